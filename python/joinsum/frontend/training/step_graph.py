"""The graph of a training step: one plan, whose results become the model's and the optimizer's state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from joinsum.capture.captured_graph import CapturedGraph, Executable
from joinsum.distributed.distributed_tensor import DistributedTensor, replace_tensor
from joinsum.frontend.backend import check_devices
from joinsum.frontend.program import Outcome, Program, keep_labels
from joinsum.frontend.tracing.fake_tensors import Captured, Traced
from joinsum.frontend.tracing.torch_internals import aot_compile

__all__ = ["StepArguments", "StepGraph", "TrainedParameter", "keep_state"]


@dataclass(frozen=True)
class TrainedParameter:
    """A parameter that a step updates.

    traits   the options of its group that decide which operators there are
    state    the optimizer's tensors for it, in the optimizer's order
    steps    number of updates that it has had
    cohort   index of the number tensors that its update reads
    """

    parameter: Tensor
    traits: dict[str, bool]
    state: dict[str, Tensor]
    steps: int
    cohort: int


@dataclass(frozen=True)
class StepArguments:
    """Arguments of the traced function besides the batch: tensors, and options that decide which operators it calls.

    sums      sums of gradients since the last update, one per trained parameter; empty at an update's first batch
    numbers   tensors of one element that the update reads, by name, for each cohort
    last      whether an update follows
    """

    trained: list[TrainedParameter]
    sums: list[Tensor]
    numbers: list[dict[str, Tensor]]
    last: bool

    def as_tuple(self) -> tuple[Any, ...]:
        """The last argument of the traced function, in the order in which it reads it."""
        places = [each.parameter for each in self.trained]
        states = [each.state for each in self.trained] if self.last else []
        kinds = [(each.cohort, each.traits) for each in self.trained] if self.last else []
        return places, self.sums, states, self.numbers, kinds, self.last


def keep_state(old: Tensor, new: Tensor) -> None:
    """Replaces the value of a parameter or buffer by a new one that is stored on the sites."""
    if isinstance(old, DistributedTensor) and isinstance(new, DistributedTensor):
        old.adopt(new)
    else:
        replace_tensor(old, new)


class StepGraph(Captured):
    """The graph of a step. New values of its state may overwrite the old ones, and stay on the sites.

    state   names of the tensors that persist between steps, by identity
    """

    def __init__(
        self, traced: Traced, state: Mapping[int, str], arguments: StepArguments, replicate: Collection[str]
    ) -> None:
        self._replicate = replicate
        check_devices(traced.example_inputs)
        keep_labels(traced.gm)
        self._program: Program | None = None
        self._graph: tuple[torch.fx.GraphModule, Sequence[Any]] | None = None
        self._names = traced.names
        place = {id(x): i for i, x in enumerate(traced.tensors) if isinstance(x, Tensor)}
        self._state = {i for i, x in enumerate(traced.tensors) if id(x) in state}
        self._sums = [place.get(id(x)) for x in arguments.sums]
        self._places = [place.get(id(each.parameter)) for each in arguments.trained]
        self._states = [{name: place.get(id(x)) for name, x in each.state.items()} for each in arguments.trained]
        self._last = arguments.last
        self._written: dict[int, Tensor] = {}
        self._call = aot_compile(traced.gm, traced.example_inputs, self._planned_later, _no_backward)

    def _planned_later(
        self, graph: torch.fx.GraphModule, inputs: Sequence[Any], _: Collection[int]
    ) -> Callable[..., list[Any]]:
        self._graph = graph, list(inputs)
        return self._execute

    def bind(self, structure: Any) -> None:
        """Plans the graph, because `structure` now says which results are which state."""
        _, updated = structure
        ties: dict[int, int | None] = {}
        for i, new in enumerate(updated):
            if new is None:
                continue
            if not self._last:
                ties[new.position] = self._sums[i] if self._sums else None
                continue
            parameter, state = new
            ties[parameter.position] = self._places[i]
            ties |= {slot.position: self._states[i][name] for name, slot in state.items()}
        assert self._graph is not None
        graph, inputs = self._graph
        known = {i: into for i, into in ties.items() if into is not None}
        persistent = self._state | {position for position in self._sums if position is not None}
        captured = CapturedGraph(graph, inputs, self._names, known, ties.keys(), persistent, self._replicate)
        self._program = Program(captured, updated=self._state)
        self._graph = None

    @property
    def executable(self) -> Executable:
        """The planned graph."""
        assert self._program is not None
        assert self._program.executable is not None
        return self._program.executable

    def run(self, actual: Sequence[Any]) -> Sequence[Any]:
        self._written = {}
        results: Sequence[Any] = self._call(*actual)
        for position, value in self._written.items():
            keep_state(actual[position], value)
        self._written = {}
        return results

    def _execute(self, args: list[Any]) -> list[Any]:
        assert self._program is not None
        outcome: Outcome = self._program.run(args)
        self._written = outcome.written
        return outcome.results


def _no_backward(*_: object) -> Callable[..., Any]:
    raise AssertionError("a training step has no results that require a gradient")
