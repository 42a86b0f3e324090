"""Baselines of graphs in JSON's form, as pins for the planner: labels that all sites divide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from joinsum import _C
from joinsum.graphs.label_classes import LabelClasses, Place
from joinsum.planner.baselines.table import BaselineBuilder

__all__ = ["LabelBaseline", "LabelBaselines"]

_NO_DATA = "every input is a parameter"


@dataclass(frozen=True)
class LabelBaseline:
    """A baseline: the labels that the sites divide.

    axes    the label that all grid axes divide, by the name of an input (its axis then) or an operation; None keeps a
            copy on every site. What is not named is left to the optimizer
    ends    the same of outputs
    reason  why the graph cannot be placed so, or None
    """

    name: str
    axes: Mapping[str, str | None] = field(default_factory=dict)
    ends: Mapping[str, str | None] = field(default_factory=dict)
    reason: str | None = None


class LabelBaselines(BaselineBuilder[LabelBaseline]):
    """The baselines of a graph.

    parameters  inputs that are weights; none: those that have no axis of the batch's class, which is that of the first
                axis of the first input
    repeating   whether plans that repeat all work are compared
    """

    def __init__(self, graph: _C.JsonGraph, sites: int, parameters: Sequence[str] = (), repeating: bool = True) -> None:
        self.inputs, self.outputs = graph.inputs, graph.outputs
        self.operations = {operation.name: operation for operation in graph.operations}
        self.sites = sites
        self.repeating = repeating
        self.classes = LabelClasses(
            (name, each.inputs, each.in_labels, each.out_labels) for name, each in self.operations.items()
        )
        # How pins name the axes of each value.
        self.axes: dict[str, list[int | str]] = {name: list(range(len(shape))) for name, shape in self.inputs.items()}
        self.axes |= {name: list(operation.out_labels) for name, operation in self.operations.items()}
        batch = next((self.classes_of(name)[0] for name, shape in self.inputs.items() if shape), None)
        self.parameters = set(parameters) or {name for name in self.inputs if batch not in self.classes_of(name)}
        self.data = [name for name in self.inputs if name not in self.parameters]

    def classes_of(self, name: str) -> list[Place]:
        """The class of each axis of a value."""
        return [self.classes.find((name, axis)) for axis in self.axes[name]]

    def extent(self, name: str, axis: int) -> int:
        if name in self.inputs:
            return self.inputs[name][axis]
        operation = self.operations[name]
        return operation.extents[operation.out_labels[axis]]

    def axis_in(self, name: str, classes: Sequence[Place]) -> str | None:
        """The axis of a value, as pins name it, of the first of these classes that it has and that is long enough."""
        own = self.classes_of(name)
        for wanted in classes:
            for axis, of in enumerate(own):
                if of == wanted and self.extent(name, axis) >= self.sites:
                    return str(self.axes[name][axis])
        return None

    def label_in(self, operation: _C.JsonOperation, classes: Sequence[Place]) -> str | None:
        for wanted in classes:
            for label in operation.labels:
                if self.classes.find((operation.name, label)) == wanted and operation.extents[label] >= self.sites:
                    return label
        return None

    def divided(self, name: str, classes: Sequence[Place]) -> LabelBaseline:
        """Everything that has one of these classes divided along it; other inputs and outputs on every site."""
        axes = {name: self.axis_in(name, classes) for name in self.inputs}
        for operation in self.operations.values():
            label = self.label_in(operation, classes)
            if label is not None:
                axes[operation.name] = label
        return LabelBaseline(name, axes, {output: self.axis_in(of, classes) for output, of in self.outputs.items()})

    def uniform(self) -> list[LabelBaseline]:
        """For each class of labels that is long enough: all that has it divided along it, the rest left open.

        >>> from joinsum.graphs.json_form import read_json_value
        >>> op = {"name": "Z", "inputs": ["X"], "in_labels": ["ij"], "out_labels": "i", "agg": "max"}
        >>> graph = read_json_value("plan_graph", {"inputs": {"X": [4, 8]}, "ops": [op], "outputs": ["Z"]})
        >>> [strategy.axes for strategy in LabelBaselines(graph, 4).uniform()]
        [{'X': '0', 'Z': 'i'}, {'X': '1', 'Z': 'j'}]
        """
        every = [*self.inputs, *self.operations]
        found = [
            self.divided("", [place]) for place in dict.fromkeys(p for name in every for p in self.classes_of(name))
        ]
        return [replace(each, axes={name: label for name, label in each.axes.items() if label}) for each in found]

    def split(self, name: str, axis: int) -> LabelBaseline:
        """Data along their first or second class of axes, parameters on every site."""
        if not self.data:
            return LabelBaseline(name, reason=_NO_DATA)
        first = self.data[0]
        classes = list(dict.fromkeys(self.classes_of(first)))
        if axis >= len(classes):
            return LabelBaseline(name, reason=f"{first} has {len(classes)} classes of axes")
        extent = self.extent(first, self.classes_of(first).index(classes[axis]))
        if extent < self.sites:
            return LabelBaseline(name, reason=f"{extent} elements for {self.sites} sites along axis {axis} of {first}")
        return self.divided(name, [classes[axis]])

    def sharded(self, name: str) -> LabelBaseline:
        """Data parallel, but parameters and what has no batch start and end divided along their longest axes."""
        plain = self.split(name, 0)
        if plain.reason is not None:
            return plain
        ends = {output: label or self.longest(self.outputs[output]) for output, label in plain.ends.items()}
        shards = {parameter: self.longest(parameter) for parameter in self.inputs if parameter in self.parameters}
        if not any(shards.values()):
            return LabelBaseline(name, reason=f"no parameter has an axis of {self.sites} elements")
        return LabelBaseline(name, dict(plain.axes) | shards, ends)

    def longest(self, name: str) -> str | None:
        axes = self.axes[name]
        axis = max(range(len(axes)), key=lambda axis: self.extent(name, axis), default=None)
        return None if axis is None or self.extent(name, axis) < self.sites else str(axes[axis])

    def tensor_parallel(self, name: str) -> LabelBaseline:
        """Parameters along classes that no data has: columns where a product makes one, rows where it reduces it."""
        of_data = {place for data in self.data for place in self.classes_of(data)}
        hidden = {place for parameter in self.parameters for place in self.classes_of(parameter)} - of_data
        found = (
            self.classes.find((operation.name, label))
            for operation in self.operations.values()
            for label in operation.labels
            if operation.extents[label] >= self.sites
        )
        order = [place for place in dict.fromkeys(found) if place in hidden]
        if not order:
            return LabelBaseline(name, reason=f"no class of {self.sites} elements is of parameters alone")
        return self.divided(name, order)

    def replicated(self, name: str) -> LabelBaseline:
        if not self.repeating:
            return LabelBaseline(name, reason="moves nothing as every site does all work: compared in seconds")
        return LabelBaseline(name, dict.fromkeys([*self.inputs, *self.operations]), dict.fromkeys(self.outputs))
