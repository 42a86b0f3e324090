"""Captured graphs with their plans: run on tensors that are whole, or that lie on the sites."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch._subclasses.fake_tensor import unset_fake_temporarily

from joinsum import _C
from joinsum.base.errors import PlanError
from joinsum.capture.captured_graph import CapturedGraph, Executable
from joinsum.capture.failures import failures_named, other_sites_error
from joinsum.capture.planned_program import PlannedProgram, StoredInputs
from joinsum.capture.recording.recorded import Recorded
from joinsum.capture.single_site import SingleSiteExecutable
from joinsum.cluster.context import context
from joinsum.distributed.distributed_tensor import DistributedTensor
from joinsum.execution.planned_graph import PlannedGraph
from joinsum.planner.baseline_costs import PricedBaseline

__all__ = ["DistributedExecutable", "compile_fx"]

# Programs of one graph whose plans serve other sizes.
_MOST_KNOWN = 4


def compile_fx(graph: CapturedGraph) -> Executable:
    """Plans a graph of ATen operators for the sites there are.

    Raises CaptureError for an operator that is not captured, PlanError, KernelError.
    """
    if context().sites == 1 and not graph.sparse:  # torch's operators do not take sparse operands everywhere
        return SingleSiteExecutable(graph, lambda: DistributedExecutable(graph))
    return DistributedExecutable(graph)


class DistributedExecutable:
    """A captured graph with its plans: one for each set of types of the inputs that are distributed."""

    def __init__(self, graph: CapturedGraph | Callable[[], CapturedGraph], like: _OtherSizes | None = None) -> None:
        self._here = context()
        self._given = graph
        self._like = like
        self._known = _KnownPrograms() if like is None else like.known
        self._moving = graph.moving if isinstance(graph, CapturedGraph) else () if like is None else like.moving
        self._plans: list[tuple[Mapping[int, _C.PhysicalType], PlannedProgram]] = []  # the last used first
        self._used: PlannedProgram | None = None

    def resized(self, sizes: Mapping[str, int], graph: Callable[[], CapturedGraph]) -> DistributedExecutable:
        """The same for other sizes, by the names of symbols. `graph` is the one for these, which is read where this
        executable does not know the plan."""
        return DistributedExecutable(graph, _OtherSizes(self._known, sizes, self._moving))

    @cached_property
    def graph(self) -> CapturedGraph:
        """The captured graph, whose inputs have different names."""
        graph = self._given if isinstance(self._given, CapturedGraph) else self._given()
        if graph.names is None:
            return graph
        names = _distinct(graph.names)
        pairs = zip(graph.names, names, strict=True)
        return replace(graph, names=names, sparse={new: graph.sparse[old] for old, new in pairs if old in graph.sparse})

    @cached_property
    def _first(self) -> PlannedProgram:
        """The program of whole inputs."""
        # Torch may be compiling, with fake tensors; what sites tell each other are real ones.
        with unset_fake_temporarily():
            return self._recorded({}, ())

    @property
    def _latest(self) -> PlannedProgram:
        """The program that ran last; before that, the one of whole inputs."""
        return self._first if self._used is None else self._used

    @property
    def recorded(self) -> Recorded:
        """The program of whole inputs."""
        return self._first.recorded

    @property
    def planned(self) -> PlannedGraph:
        """The program with the plan that ran last; before that, the one for whole inputs."""
        return self._latest

    def baselines(self) -> tuple[PricedBaseline, ...]:
        """What the baselines cost beside the plan that ran last."""
        return self._latest.baselines()

    def modules(self) -> dict[str, str]:
        """For nodes of the plan that ran last, by name, the user's module that computes them, where that is known."""
        return self._latest.modules()

    @cached_property
    def input_types(self) -> list[_C.PhysicalType | None]:
        """For each input, where the plan for whole inputs wants it; None for one that is no tensor or is not read."""
        wanted = self._first.wanted
        types: list[_C.PhysicalType | None] = [None] * len(self.graph.example_inputs)
        for each in self._first.signature.inputs:
            if each.position is not None:
                types[each.position] = wanted.get(each.name)
        return types

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """The results, for whole tensors (equal on every rank) or distributed ones, in the graph's order."""
        if context() is not self._here:
            raise other_sites_error(self._here)
        used = self._used
        placed = None if used is None or used.is_due else used.placed_as_before(args)
        if used is not None and placed is not None:
            return used.run_placed(args, placed)
        stored = {i: x.stored for i, x in enumerate(args) if isinstance(x, DistributedTensor)}
        for relation in stored.values():
            if relation.context is not self._here:
                raise PlanError(
                    f"capture: a tensor is kept by the sites of another init: type={relation.type}; make it plain, "
                    "joinsum.gather(model), or give its full_tensor()"
                )
        fixed = {i: relation.type for i, relation in stored.items() if i not in self._moving}
        program = self._used = self._planned(fixed, args)
        return program.run_placed(args, program.placed(args, stored))

    def _planned(self, stored: Mapping[int, _C.PhysicalType], args: Sequence[Any]) -> PlannedProgram:
        place = next((i for i, (known, _) in enumerate(self._plans) if known == stored), None)
        if place is None and not stored:
            program = self._first
        elif place is None:
            # A plan whose inputs might start anywhere is the best one for inputs that start where it wants them.
            first: PlannedProgram | None = self.__dict__.get("_first")
            with unset_fake_temporarily():
                program = first if first is not None and first.takes(stored) else self._recorded(stored, args)
        else:
            _, program = self._plans.pop(place)
            if program.is_due:
                with unset_fake_temporarily():
                    program = self._searched(StoredInputs.of(stored, args))
        # With these types, not the equal ones of before: those of the next call are likely to be the same objects.
        self._plans.insert(0, (stored, program))
        return program

    def _recorded(self, stored: Mapping[int, _C.PhysicalType], args: Sequence[Any]) -> PlannedProgram:
        """The program for inputs of these types; the same on every rank, or an error on all of them."""
        with self._here.preparing("capture"), failures_named():
            like = self._like
            inputs = StoredInputs.of(stored, args)
            program = None if like is None else like.known.resized(like.sizes, inputs, lambda: self.graph)
        return self._searched(inputs) if program is None else self._agreed(program)

    def _searched(self, stored: StoredInputs) -> PlannedProgram:
        """The same, with a plan that is searched for at its first use."""
        with self._here.preparing("capture"), failures_named():
            program = PlannedProgram.of(self._here, self.graph, stored)
        self._known.add(program)
        return self._agreed(program)

    def _agreed(self, program: PlannedProgram) -> PlannedProgram:
        if not self._here.single_process:
            program.agree()
        return program


class _KnownPrograms:
    """Programs of one graph for different sizes, each with a plan that was searched for it."""

    def __init__(self) -> None:
        self._programs: list[PlannedProgram] = []  # the last ones, the last of all first

    def add(self, program: PlannedProgram) -> None:
        """Makes a program known."""
        self._programs = [program, *self._programs[: _MOST_KNOWN - 1]]

    def resized(
        self, sizes: Mapping[str, int], stored: StoredInputs, graph: Callable[[], CapturedGraph]
    ) -> PlannedProgram | None:
        """One of them for other sizes and these stored inputs; None if none can have them. `graph` is the captured
        graph of these sizes."""
        made = (program.resized(sizes, stored, graph) for program in self._programs if program.is_planned)
        return next((program for program in made if program is not None), None)


@dataclass(frozen=True)
class _OtherSizes:
    """What an executable was made from: programs of its graph for other sizes, its own sizes, and the positions of
    inputs that plans may move."""

    known: _KnownPrograms
    sizes: Mapping[str, int]
    moving: Collection[int]


def _distinct(names: Sequence[str]) -> list[str]:
    """Names that plans can have, each once."""
    out: list[str] = []
    for name in names:
        plain = "".join(c if c.isalnum() or c in "_." else "_" for c in name)
        plain = plain if plain[:1] != "." else f"_{plain}"
        out.append(plain if plain not in out else f"{plain}.{len(out)}")
    return out
