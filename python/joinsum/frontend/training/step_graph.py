"""The graph of a training step: one plan, whose results become the model's and the optimizer's state."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from joinsum import _C
from joinsum.base.errors import CaptureError, PlanError
from joinsum.base.identity import identical
from joinsum.capture.captured_graph import CapturedGraph, Executable
from joinsum.capture.recording.symbolic_numbers import SymbolicNumbers, shape_of
from joinsum.distributed.distributed_tensor import DistributedTensor, replace_tensor
from joinsum.frontend.backend import check_devices
from joinsum.frontend.program import Outcome, Program, keep_labels, replace_special_operators
from joinsum.frontend.tracing.errors import compiling
from joinsum.frontend.tracing.fake_tensors import Captured, Traced
from joinsum.frontend.tracing.sizes import GraphBySize, Sizes
from joinsum.frontend.tracing.torch_internals import aot_compile, module_of
from joinsum.frontend.training.step_arguments import StepArguments, TrainedParameter
from joinsum.frontend.training.updated_graph import Templates, TracedStep, UpdatedGraph, updated_graph

__all__ = ["StepCapture", "StepGraph", "Updated", "keep_state"]


def keep_state(old: Tensor, new: Tensor) -> None:
    """Replaces the value of a parameter or buffer by a new one that is stored on the sites."""
    if new is old:
        return
    if isinstance(old, DistributedTensor) and isinstance(new, DistributedTensor):
        old.adopt(new)
    else:
        replace_tensor(old, new)


@dataclass(frozen=True)
class StepCapture:
    """How the steps of a model are captured.

    arguments   those of the current call
    names       for such arguments, names of all state and of the update's numbers, by the tensors' identity
    state       for such arguments, the identities of the tensors that persist between steps
    sharded     whether results of more than one element stay on the sites
    replicate   operators without a rule that run whole on every site
    is_model    whether trained parameters of the current call are the model's or the loss function's
    """

    arguments: Callable[[], StepArguments]
    names: Callable[[StepArguments], Mapping[int, str]]
    state: Callable[[StepArguments], Collection[int]]
    sharded: bool
    replicate: Collection[str]
    is_model: Callable[[], bool]


class StepGraph(Captured):
    """A traced step, with a program for each way in which its arguments are updated. New values of its state may
    overwrite the old ones, and stay on the sites."""

    def __init__(self, traced: Traced, capture: StepCapture) -> None:
        check_devices(traced.example_inputs)
        self._names, self._sparse = list(traced.names), traced.sparse
        _copy_aliases(traced.gm.graph)
        keep_labels(traced.gm, bool(self._sparse))
        self._capture = capture
        arguments = capture.arguments()
        place = {id(x): i for i, x in enumerate(traced.tensors) if isinstance(x, Tensor)}
        state = capture.state(arguments)
        self._sums = [place.get(id(x)) for x in arguments.sums]
        self._parameters = [place.get(id(x)) for x in arguments.parameters]
        self._state = {i for i, x in enumerate(traced.tensors) if id(x) in state}
        self._state |= {i for i in self._sums if i is not None}
        self._stored = {i: traced.tensors[i] for i in self._state}
        self._templates: Templates = {}
        self._ran: tuple[_StepProgram, Outcome] | None = None  # until the updates are taken
        self._has_run = False
        self._call = aot_compile(traced.gm, traced.example_inputs, self._planned_later, _no_backward)

    def _planned_later(
        self, gm: torch.fx.GraphModule, inputs: Sequence[Any], _: Collection[int]
    ) -> Callable[..., list[Any]]:
        replace_special_operators(gm.graph)
        self._by_size = GraphBySize(gm, inputs, _StepOfSize)
        return self._execute

    @compiling("train_step")
    def choose(self, sizes: Sizes) -> None:
        self._by_size.at(sizes)

    @compiling("train_step")
    def _program(self) -> _StepProgram:
        """The program for the current arguments and the sizes of the current call."""
        arguments, step = self._capture.arguments(), self._by_size.latest
        latest = step.latest
        if latest is not None and latest[0] is arguments.trained and latest[1] == arguments.last:
            return latest[2]
        key = arguments.update_key
        if key not in step.programs:
            step.programs[key] = self._planned(step, arguments)
        step.latest = arguments.trained, arguments.last, step.programs[key]
        return step.programs[key]

    def _planned(self, step: _StepOfSize, arguments: StepArguments) -> _StepProgram:
        known = step.known(arguments.update_key)
        if known is not None:
            other, sizes = known
            program = other.program.resized(sizes, lambda: self._planned(step.full(), arguments).program)
            if program is not None:
                return other.of(program)
        step = step.full()
        traced = TracedStep(step.gm.graph, self._parameters, self._sums)
        updated = updated_graph(traced, arguments, self._templates)
        if all(names is None for names in updated.new) and not self._capture.is_model():
            raise PlanError(
                "train_step: the optimizer has none of the model's parameters, and the loss depends on none of those "
                f"that it has: parameters={len(updated.new)}; make it from model.parameters()"
            )
        names = self._capture.names(arguments)
        count, state = len(step.inputs), set(self._state)
        state |= {count + i for i, each in enumerate(updated.inputs) if each.of_state}
        examples = [node.meta.get("val") for node in updated.graph.find_nodes(op="placeholder")][count:]
        results = list(updated.graph.output_node().args[0])[: updated.first]  # type: ignore[arg-type]
        stay = {i for i, x in enumerate(results) if self._capture.sharded and _is_large(x)}
        captured = CapturedGraph(
            module_of(updated.graph, step.gm),
            [*step.inputs, *examples],
            [*self._names, *(names[id(each.tensor(arguments))] for each in updated.inputs)],
            updated.ties,
            stay | set(updated.added),
            state,
            replicate=frozenset(self._capture.replicate) | _of_pairs(arguments),
            numbers=step.numbers,
            sparse=self._sparse,
        )
        return _StepProgram(updated, Program(captured, updated=self._state), arguments)

    @property
    def executable(self) -> Executable:
        """The planned graph of the current arguments."""
        executable = self._program().program.executable
        assert executable is not None
        return executable

    @property
    def wanted_types(self) -> dict[int, _C.PhysicalType | None]:
        """Where the plan wants the model's tensors, by their identity."""
        types = self.executable.input_types
        return {id(x): types[i] for i, x in self._stored.items()}

    def run(self, actual: Sequence[Any]) -> Sequence[Any]:
        before = None if self._has_run else self._versions(actual)
        results: Sequence[Any] = self._call(*actual)
        assert self._ran is not None
        if before is not None:
            self._check_not_written(before, self._versions(actual))
            self._has_run = True
        _, outcome = self._ran
        for position, value in outcome.written.items():
            if position in self._state:
                keep_state(actual[position], value)
            elif value is not actual[position]:
                with torch.no_grad():
                    actual[position].copy_(value)
        return results

    def _versions(self, actual: Sequence[Any]) -> dict[int, int]:
        return {i: actual[i]._version for i in self._parameters if i is not None}

    def _check_not_written(self, before: Mapping[int, int], after: Mapping[int, int]) -> None:
        """Raises CaptureError where the forward pass writes to a parameter that is trained: the update would be one of
        the value before."""
        for i, version in after.items():
            if version != before[i]:
                raise CaptureError(
                    "train_step: the forward pass writes to a parameter that is trained, as max_norm of an embedding "
                    f"does: parameter={self._names[i]}; take joinsum.distribute and a loop of your own"
                )

    def _execute(self, args: list[Any]) -> list[Any]:
        """The traced graph's results; those of the updates are taken afterwards."""
        program = self._program()
        added = program.added(self._capture.arguments())
        outcome = program.program.run([*args, *added])
        self._ran = program, outcome
        # None ends the traced graph, where torch expects a tensor.
        return [torch.empty(()) if x is None else x for x in outcome.results[: program.first]]

    def take_updated(self) -> Updated:
        """The updates of the last run."""
        assert self._ran is not None
        (program, outcome), self._ran = self._ran, None
        return program.updates(outcome.results[program.first :], self._capture.arguments())


def _copy_aliases(graph: torch.fx.Graph) -> None:
    """Copies the results that share memory with an input, before the step updates it. Only results are detached (see
    `step_results.detached`); other outputs, such as what a module stores, stay as they are."""

    def memory_of(node: torch.fx.Node) -> int | None:
        value = node.meta.get("example_value")
        if not isinstance(value, Tensor) or value.layout is not torch.strided:
            return None
        return int(value.untyped_storage()._cdata)

    of_inputs = {memory_of(node) for node in graph.find_nodes(op="placeholder")} - {None}
    output = graph.output_node()
    with graph.inserting_before(output):
        for node in output.all_input_nodes:
            if node.target == "detach" and memory_of(node) in of_inputs:
                cloned = graph.call_function(torch.clone, (node,))
                cloned.meta = dict(node.meta)
                output.replace_input_with(node, cloned)


@dataclass(frozen=True)
class Updated:
    """The updates of a run.

    indices    of the trained parameters that have a gradient
    replaced   for each of them its new value and its new state by name, or the sum of gradients and no state; empty
               where the run has stored all of them in the tensors that they replace
    """

    indices: Sequence[int]
    replaced: Mapping[int, tuple[Tensor, dict[str, Tensor]]]


class _StepOfSize:
    """The traced graph of a step for one set of sizes.

    programs   for each way in which its arguments are updated
    latest     what the program that ran last was made for, and the program
    """

    def __init__(self, gm: torch.fx.GraphModule, inputs: Sequence[Any], numbers: SymbolicNumbers | None) -> None:
        self.gm, self.inputs, self.numbers = gm, inputs, numbers
        self.programs: dict[Hashable, _StepProgram] = {}
        self.latest: tuple[Sequence[TrainedParameter], bool, _StepProgram] | None = None
        # The step for these sizes from its own graph; and the one for other sizes that this one was made from.
        self.full: Callable[[], _StepOfSize] = lambda: self
        self._from: tuple[_StepOfSize, Sizes] | None = None

    def resized(self, sizes: Sizes, full: Callable[[], _StepOfSize]) -> _StepOfSize | None:
        """The step for other sizes, whose programs are those of this one where it has them."""
        if self.numbers is None or self.numbers.at(sizes) is None:
            return None
        made = _StepOfSize(self.gm, self.inputs, None)
        made.full, made._from = full, (self, sizes)
        return made

    def known(self, update_key: Hashable) -> tuple[_StepProgram, Sizes] | None:
        """The program for other sizes, for arguments that are updated in this way, and these sizes; None where there is
        none."""
        if self._from is None or update_key not in self._from[0].programs:
            return None
        return self._from[0].programs[update_key], self._from[1]


class _StepProgram:
    """The program of a step for all arguments of one `update_key`."""

    def __init__(self, updated: UpdatedGraph, program: Program, arguments: StepArguments) -> None:
        self.program = program
        self.first = updated.first
        self._new = updated.new
        self._indices = [i for i, names in enumerate(updated.new) if names is not None]
        self._added = [each.place(arguments) for each in updated.inputs]
        # Where the arguments have the tensors that the new values replace.
        self._replaced: list[int] = []
        for i in self._indices if arguments.last else ():
            self._replaced += [i, *(arguments.places[True, i, name] for name in updated.new[i] or ())]

    def of(self, program: Program) -> _StepProgram:
        """The same with another program."""
        made = copy.copy(self)
        made.program = program
        return made

    def added(self, arguments: StepArguments) -> list[Tensor]:
        """The inputs after those of the traced graph."""
        tensors = arguments.tensors
        return [tensors[place] for place in self._added]

    def updates(self, values: Sequence[Tensor], arguments: StepArguments) -> Updated:
        """The updates for the results of a run."""
        tensors = arguments.tensors
        if arguments.last and identical(values, [tensors[place] for place in self._replaced]):
            return Updated(self._indices, {})
        left = iter(values)
        return Updated(
            self._indices,
            {i: (next(left), {name: next(left) for name in self._new[i] or ()}) for i in self._indices},
        )


def _of_pairs(arguments: StepArguments) -> frozenset[str]:
    """The operators of the updates of complex parameters that have no rule."""
    found = any(p.is_complex() for p in arguments.parameters)
    return frozenset(["aten::view_as_real", "aten::view_as_complex"] if found else [])


def _is_large(result: Any) -> bool:
    """Whether a result of a graph has more than one element."""
    return isinstance(result, torch.fx.Node) and math.prod(shape_of(result.meta["val"])) > 1


def _no_backward(*_: object) -> Callable[..., Any]:
    raise AssertionError("a training step has no results that require a gradient")
