"""The graph of a whole step: the graph that torch traced, and the updates of the parameters after it.

torch traces forward and backward pass alone, up to one operator that takes the gradients. The update of a parameter is
traced once for all parameters of one shape, dtype and device with the same options, and its nodes are copied for each.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from joinsum.base.errors import PlanError
from joinsum.capture.recording.symbolic_numbers import shape_of
from joinsum.frontend.lookups import Lookup, lookups_of
from joinsum.frontend.tracing.torch_internals import aten_graph
from joinsum.frontend.training.step_arguments import StepArguments, TrainedParameter
from joinsum.frontend.training.update import in_single_precision

__all__ = ["AddedInput", "Templates", "TracedStep", "UpdatedGraph", "gradients_of", "updated_graph"]

# The graph of an update and the names of the new state, by the operands' layouts and all that decides its operators.
Templates = dict[Hashable, tuple[fx.Graph, list[str]]]


@torch.library.custom_op("joinsum::gradients", mutates_args=())
def gradients_of(loss: Tensor, gradients: Sequence[Tensor | None], skipped: Tensor | None) -> Tensor:
    """Ends the graph that torch traces: the gradients are its operands, and whether the update is to be skipped."""
    return loss.new_empty(())


@gradients_of.register_fake
def _(loss: Tensor, gradients: Sequence[Tensor | None], skipped: Tensor | None) -> Tensor:
    return loss.new_empty(())


@dataclass(frozen=True)
class TracedStep:
    """Forward and backward pass of a step, as AOTAutograd traced them.

    graph        operators of ATen, and one `joinsum::gradients`
    parameters   for each trained parameter, the position of its placeholder; None where the graph does not read it
    sums         the same for the sums of gradients; empty at an update's first batch
    """

    graph: fx.Graph
    parameters: Sequence[int | None]
    sums: Sequence[int | None]


@dataclass(frozen=True)
class AddedInput:
    """An input that the updates read: entry `name` of a trained parameter's state, or of a cohort's numbers."""

    of_state: bool
    index: int
    name: str

    def tensor(self, arguments: StepArguments) -> Tensor:
        """The tensor in a call."""
        return arguments.tensors[self.place(arguments)]

    def place(self, arguments: StepArguments) -> int:
        """Its position in `arguments.tensors`, the same for equal `update_key`s."""
        return arguments.places[self.of_state, self.index, self.name]


@dataclass(frozen=True)
class UpdatedGraph:
    """The graph of a step. Its results are those of the traced graph, with None for the gradients' operator, then the
    new values.

    inputs   the inputs after those of the traced graph
    first    the position of the first new value
    new      for each trained parameter, the names of its new state, whose values follow the parameter's; None for a
             parameter without a gradient
    ties     for a result, the position of the input that it replaces
    """

    graph: fx.Graph
    inputs: Sequence[AddedInput]
    first: int
    new: Sequence[Sequence[str] | None]
    ties: Mapping[int, int]

    @property
    def added(self) -> range:
        """Positions of the new values."""
        return range(self.first, self.first + sum(1 + len(names) for names in self.new if names is not None))


def updated_graph(traced: TracedStep, arguments: StepArguments, templates: Templates) -> UpdatedGraph:
    """The graph with the updates for these arguments; the traced one stays as it is.

    templates   the graphs of updates of parameters that have been traced; new ones are added
    """
    graph = fx.Graph()
    graph.output(graph.graph_copy(traced.graph, {}))
    results, gradients, skipped = _take_gradients(graph)
    first = len(results)
    updates = _Updates(graph, templates, arguments, results, gradients, skipped)
    for i, gradient in enumerate(gradients):
        if gradient is None:
            updates.new.append(None)
        elif arguments.last:
            updates.update(i, traced.parameters[i], gradient)
        else:
            updates.keep(gradient, traced.sums[i] if traced.sums else None)
    graph.output_node().args = (tuple(updates.results),)
    return UpdatedGraph(graph, list(updates.inputs), first, updates.new, updates.ties)


def _take_gradients(graph: fx.Graph) -> tuple[list[Any], list[fx.Node | None], fx.Node | None]:
    """Removes the operator that takes the gradients; gives the graph's results, with None for the operator, the
    gradients, and whether the update is to be skipped, where that is computed."""
    (end,) = graph.find_nodes(op="call_function", target=torch.ops.joinsum.gradients.default)
    output, gradients, skipped = graph.output_node(), list(end.args[1]), end.args[2]
    results: Any = output.args[0]
    results = [None if each is end else each for each in results]
    output.args = (tuple(results),)
    graph.erase_node(end)
    return results, gradients, skipped


class _Updates:
    """Updates that are being added to a graph, whose results so far are `results`; where `skipped` is true, they change
    nothing."""

    def __init__(
        self,
        graph: fx.Graph,
        templates: Templates,
        arguments: StepArguments,
        results: list[Any],
        gradients: Sequence[fx.Node | None],
        skipped: fx.Node | None,
    ) -> None:
        self._graph = graph
        self._gradients = gradients
        self._skipped = skipped
        self._templates = templates
        self._arguments = arguments
        self._placeholders = list(graph.find_nodes(op="placeholder"))
        self._places = {node: place for place, node in enumerate(self._placeholders)}
        self.results = results
        self.inputs: dict[AddedInput, fx.Node] = {}
        self.new: list[Sequence[str] | None] = []
        self.ties: dict[int, int] = {}

    def keep(self, gradient: fx.Node, into: int | None) -> None:
        """Makes a sum of gradients, which replaces input `into`, a result."""
        self.new.append(())
        if into is not None:
            self.ties[len(self.results)] = into
        self.results.append(gradient)

    def update(self, index: int, place: int | None, gradient: fx.Node) -> None:
        """Adds the update of a trained parameter, the placeholder `place`."""
        assert place is not None, "a parameter that has a gradient is an input"
        trained, parameter = self._arguments.trained[index], self._placeholders[place]
        state = {name: self._input(AddedInput(True, index, name), parameter) for name in trained.moments}
        numbers = [AddedInput(False, trained.cohort, name) for name in self._arguments.numbers[trained.cohort]]
        others = [*state.values(), *(self._input(each, parameter) for each in numbers)]
        lookups = self._lookups(trained, gradient)
        if lookups:
            last: list[fx.Node] = [each.gradient for each in lookups] + [each.rows for each in lookups]
        else:
            last = [gradient] if self._skipped is None else [gradient, self._skipped]
        operands = [parameter, *others, *last]
        template, names = self._template(index, operands, lookups)
        copies = dict(zip(template.find_nodes(op="placeholder"), operands, strict=True))
        with self._graph.inserting_before(self._graph.output_node()):
            new: Any = self._graph.graph_copy(template, copies)
        self.new.append(names)
        for value, into in zip(new, [parameter, *(state[name] for name in names)], strict=True):
            self.ties[len(self.results)] = self._places[into]
            self.results.append(value)

    def _input(self, added: AddedInput, parameter: fx.Node) -> fx.Node:
        """The placeholder of an input, which follows all others; its tensor is laid out as the parameter."""
        if added not in self.inputs:
            with self._graph.inserting_after(self._placeholders[-1]):
                node = self._graph.placeholder(f"added_{len(self.inputs)}")
            tensor, like = added.tensor(self._arguments), parameter.meta["val"]
            shape = torch.Size()
            if added.of_state:
                shape = self._arguments.trained[added.index].update.shape(added.name, like.shape)
            if tensor.shape != shape:
                raise PlanError(
                    f"train_step: the optimizer's state does not fit the parameter: name={added.name}, "
                    f"state={list(tensor.shape)}, parameter={list(like.shape)}"
                )
            if shape == like.shape and added.of_state:
                node.meta["val"] = torch.empty_like(like, dtype=tensor.dtype)
            else:
                node.meta["val"] = like.new_empty(shape, dtype=tensor.dtype, device=tensor.device)
            self.inputs[added] = node
            self._places[node] = len(self._placeholders)
            self._placeholders.append(node)
        return self.inputs[added]

    def _lookups(self, trained: TrainedParameter, gradient: fx.Node) -> list[Lookup]:
        """The lookups whose gradients are all that the update of a parameter needs: all with one padding, of at most
        as many rows as the table has."""
        update = trained.update
        if update.of_rows is None or not update.rests(trained.traits) or self._skipped is not None:
            return []
        lookups = lookups_of(gradient, self._gradients)
        read = sum(math.prod(shape_of(each.rows.meta["val"])) for each in lookups)
        rows, columns = shape_of(gradient.meta["val"])[:2] if lookups else (0, 0)
        fits = read <= rows and columns > 0 and len({each.padding for each in lookups}) == 1
        return lookups if fits else []

    def _template(
        self, index: int, operands: Sequence[fx.Node], lookups: Sequence[Lookup]
    ) -> tuple[fx.Graph, list[str]]:
        """The graph of the update of parameters like this one, and the names of the new state. After parameter, state
        and numbers the operands are the gradients of the lookups and their rows; without lookups the gradient, and
        whether the update is skipped, where that is computed."""
        trained = self._arguments.trained[index]
        numbers = list(self._arguments.numbers[trained.cohort])
        skips = self._skipped is not None
        paddings = tuple(each.padding for each in lookups)
        traits = trained.traits.items()
        key = (trained.update, *map(_layout, operands), *trained.moments, *numbers, *traits, skips, paddings)
        if key in self._templates:
            return self._templates[key]
        names: list[str] = []

        def update(parameter: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
            count = len(trained.moments)
            state = dict(zip(trained.moments, others, strict=False))
            rest = dict(zip(numbers, others[count:], strict=False))
            last = others[count + len(numbers) :]
            if lookups:
                assert trained.update.of_rows is not None
                lookup = _joined(last, paddings[0], parameter.shape[1])
                new, after = trained.update.of_rows(parameter, lookup, state, rest, trained.traits)
            else:
                new, after = in_single_precision(trained.update).new(parameter, last[0], state, rest, trained.traits)
            names.extend(after)
            if lookups or not skips:
                return new, *after.values()
            old = [parameter, *(state[name] for name in after)]
            return tuple(torch.where(last[1], *each) for each in zip(old, [new, *after.values()], strict=True))

        self._templates[key] = aten_graph(update, [node.meta["val"] for node in operands]), names
        return self._templates[key]


def _joined(gradients_and_rows: Sequence[Tensor], padding: int, columns: int) -> Lookup:
    """One lookup of all that several ones read."""
    count = len(gradients_and_rows) // 2
    gradients, rows = gradients_and_rows[:count], gradients_and_rows[count:]
    if count == 1:
        return Lookup(gradients[0], rows[0], padding)
    joined = torch.cat([each.reshape(-1, columns) for each in gradients])
    return Lookup(joined, torch.cat([each.reshape(-1) for each in rows]), padding)


def _layout(node: fx.Node) -> Hashable:
    x = node.meta["val"]
    return x.shape, x.stride(), x.dtype, x.device
