"""The plans that people make by hand, as pins for the planner: what a chosen plan of a graph is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from joinsum.graph_json import Graph, Operation

__all__ = ["Strategy", "strategies", "uniform"]

# An axis of an input or a label of an operation: `(name, axis)` or `(name, label)`.
_Place = tuple[str, int | str]

_NO_DATA = "every input is a parameter"


@dataclass(frozen=True)
class Strategy:
    """A way to place a graph.

    axes    the label that all grid axes divide, by the name of an input (its axis then) or an operation; None keeps a
            copy on every site. What is not named is left to the optimizer
    ends    the same of outputs
    reason  why the graph cannot be placed so, or None
    """

    name: str
    axes: Mapping[str, str | None] = field(default_factory=dict)
    ends: Mapping[str, str | None] = field(default_factory=dict)
    reason: str | None = None


def strategies(graph: Graph, parameters: Sequence[str], sites: int, repeating: bool) -> list[Strategy]:
    """Data parallel, fully sharded data parallel, Megatron-style rows and columns, sequence split, replicate all.

    parameters  inputs that are weights; none: those that have no axis of the batch's class, which is that of the first
                axis of the first input
    repeating   whether plans that repeat all work are compared
    """
    return _Strategies(graph, parameters, sites).all(repeating)


def uniform(graph: Graph, sites: int) -> list[Strategy]:
    """For each class of labels that is long enough: all that has it divided along it, the rest left open.

    >>> from joinsum.graph_json import read_graph
    >>> op = {"name": "Z", "inputs": ["X"], "in_labels": ["ij"], "out_labels": "i", "agg": "max"}
    >>> graph = read_graph("plan_graph", {"inputs": {"X": [4, 8]}, "ops": [op], "outputs": ["Z"]})
    >>> [strategy.axes for strategy in uniform(graph, 4)]
    [{'X': '0', 'Z': 'i'}, {'X': '1', 'Z': 'j'}]
    """
    return _Strategies(graph, (), sites).uniform()


class _Classes:
    """Labels and axes that are one through shared tensors."""

    def __init__(self, graph: Graph) -> None:
        self.parent: dict[_Place, _Place] = {}
        axes: dict[str, list[_Place]] = {
            name: [(name, axis) for axis in range(len(extents))] for name, extents in graph.inputs.items()
        }
        for operation in graph.operations:
            for source, labels in zip(operation.inputs, operation.in_labels, strict=True):
                for place, label in zip(axes[source], labels, strict=True):
                    self.unite(place, (operation.name, label))
            axes[operation.name] = [(operation.name, label) for label in operation.out_labels]
        self.axes = axes

    def find(self, place: _Place) -> _Place:
        while (above := self.parent.get(place, place)) != place:
            place = above
        return place

    def unite(self, first: _Place, second: _Place) -> None:
        self.parent[self.find(second)] = self.find(first)

    def of(self, name: str) -> list[_Place]:
        """Classes of the axes of a value."""
        return [self.find(place) for place in self.axes[name]]


class _Strategies:
    def __init__(self, graph: Graph, parameters: Sequence[str], sites: int) -> None:
        self.graph = graph
        self.sites = sites
        self.classes = _Classes(graph)
        batch = next((self.classes.of(name)[0] for name, extents in graph.inputs.items() if extents), None)
        self.parameters = set(parameters) or {name for name in graph.inputs if batch not in self.classes.of(name)}
        self.data = [name for name in graph.inputs if name not in self.parameters]

    def all(self, repeating: bool) -> list[Strategy]:
        replicated = Strategy("replicate all", reason="moves nothing as every site does all work: compared in seconds")
        if repeating:
            names = [operation.name for operation in self.graph.operations]
            replicated = Strategy(
                "replicate all", dict.fromkeys([*self.graph.inputs, *names]), dict.fromkeys(self.graph.outputs)
            )
        return [
            self.split("data parallel", 0),
            self.sharded(),
            self.columns_and_rows(),
            self.split("sequence split", 1),
            replicated,
        ]

    def extent(self, name: str, axis: int) -> int:
        if name in self.graph.inputs:
            return self.graph.inputs[name][axis]
        operation = next(operation for operation in self.graph.operations if operation.name == name)
        return operation.extents[operation.out_labels[axis]]

    def axis_in(self, name: str, classes: Sequence[_Place]) -> str | None:
        """The axis of a value, as pins name it, of the first of these classes that it has and that is long enough."""
        own = self.classes.of(name)
        for wanted in classes:
            for axis, of in enumerate(own):
                if of == wanted and self.extent(name, axis) >= self.sites:
                    place = self.classes.axes[name][axis]
                    return str(place[1])
        return None

    def label_in(self, operation: Operation, classes: Sequence[_Place]) -> str | None:
        for wanted in classes:
            for label in operation.labels:
                if self.classes.find((operation.name, label)) == wanted and operation.extents[label] >= self.sites:
                    return label
        return None

    def divided(self, name: str, classes: Sequence[_Place]) -> Strategy:
        """Everything that has one of these classes divided along it; other inputs and outputs on every site."""
        axes = {name: self.axis_in(name, classes) for name in self.graph.inputs}
        for operation in self.graph.operations:
            label = self.label_in(operation, classes)
            if label is not None:
                axes[operation.name] = label
        return Strategy(name, axes, {output: self.axis_in(of, classes) for output, of in self.graph.outputs.items()})

    def uniform(self) -> list[Strategy]:
        """For each class, all that has it divided along it."""
        every = [*self.graph.inputs, *(operation.name for operation in self.graph.operations)]
        found = [
            self.divided("", [place]) for place in dict.fromkeys(p for name in every for p in self.classes.of(name))
        ]
        return [replace(each, axes={name: label for name, label in each.axes.items() if label}) for each in found]

    def split(self, name: str, axis: int) -> Strategy:
        """Data along their first or second class of axes, parameters on every site."""
        if not self.data:
            return Strategy(name, reason=_NO_DATA)
        first = self.data[0]
        classes = list(dict.fromkeys(self.classes.of(first)))
        if axis >= len(classes):
            return Strategy(name, reason=f"{first} has {len(classes)} classes of axes")
        extent = self.extent(first, self.classes.of(first).index(classes[axis]))
        if extent < self.sites:
            return Strategy(name, reason=f"{extent} elements for {self.sites} sites along axis {axis} of {first}")
        return self.divided(name, [classes[axis]])

    def sharded(self) -> Strategy:
        """Data parallel, but parameters and what has no batch start and end divided along their longest axes."""
        name = "fully sharded data parallel"
        plain = self.split(name, 0)
        if plain.reason is not None:
            return plain
        ends = {output: label or self.longest(self.graph.outputs[output]) for output, label in plain.ends.items()}
        shards = {parameter: self.longest(parameter) for parameter in self.graph.inputs if parameter in self.parameters}
        if not any(shards.values()):
            return Strategy(name, reason=f"no parameter has an axis of {self.sites} elements")
        return Strategy(name, dict(plain.axes) | shards, ends)

    def longest(self, name: str) -> str | None:
        places = self.classes.axes[name]
        axis = max(range(len(places)), key=lambda axis: self.extent(name, axis), default=None)
        return None if axis is None or self.extent(name, axis) < self.sites else str(places[axis][1])

    def columns_and_rows(self) -> Strategy:
        """Parameters along classes that no data has: columns where a product makes one, rows where it folds it."""
        name = "Megatron rows and columns"
        of_data = {place for data in self.data for place in self.classes.of(data)}
        hidden = {place for parameter in self.parameters for place in self.classes.of(parameter)} - of_data
        found = (
            self.classes.find((operation.name, label))
            for operation in self.graph.operations
            for label in operation.labels
            if operation.extents[label] >= self.sites
        )
        order = [place for place in dict.fromkeys(found) if place in hidden]
        if not order:
            return Strategy(name, reason=f"no class of {self.sites} elements is of parameters alone")
        return self.divided(name, order)
