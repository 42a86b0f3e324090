"""Captured graphs with their plans: run on tensors that are whole, or that lie on the sites."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from joinsum import _C
from joinsum.algebra.plan import IaPlan
from joinsum.algebra.stored_relation import StoredRelation
from joinsum.base.errors import PlanError
from joinsum.capture.argument_layout import ArgumentLayout
from joinsum.capture.captured_graph import CapturedGraph, Executable
from joinsum.capture.decompositions.random import SEEDS
from joinsum.capture.record import record
from joinsum.capture.recording.recorded import Output, Recorded
from joinsum.capture.single_site import SingleSiteExecutable
from joinsum.cluster.context import Context, context
from joinsum.distributed.block_tensor import axis_factors
from joinsum.distributed.distributed_tensor import DistributedTensor
from joinsum.execution.operands import checksum
from joinsum.execution.planned_graph import PlannedGraph
from joinsum.graphs.contraction_order import best_orders
from joinsum.planner.baseline_costs import PricedBaseline, ProgramBaselines
from joinsum.planner.baselines.placement_baselines import ProgramInput
from joinsum.planner.cost import cost
from joinsum.planner.plan_choice import Ends, PlanChoice, PlanRequest, choose

__all__ = ["DistributedExecutable", "PlannedProgram", "compile_fx"]

# Vertices of a graph beyond which the search for its plan proves nothing, and up to which two searches are quick.
_SEARCHED = 500
_SEARCHED_TWICE = 4000

# Smaller graphs are searched twice where decomposing multiplies their work by more than this.
_MORE_WORK = 1.1


def compile_fx(graph: CapturedGraph) -> Executable:
    """Plans a graph of ATen operators for the sites there are.

    Raises CaptureError for an operator that is not captured, PlanError, KernelError.
    """
    if context().sites == 1:
        return SingleSiteExecutable(graph, lambda: DistributedExecutable(graph))
    return DistributedExecutable(graph)


class DistributedExecutable:
    """A captured graph with its plans: one for each set of types of the inputs that are distributed."""

    def __init__(self, graph: CapturedGraph) -> None:
        self._here = context()
        self._graph = replace(graph, names=None if graph.names is None else _distinct(graph.names))
        self._plans: list[tuple[Mapping[int, _C.PhysicalType], PlannedProgram]] = []  # the last used first
        self._used: PlannedProgram | None = None

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
        wanted = dict(self._first.choice.plan.inputs)
        types: list[_C.PhysicalType | None] = [None] * len(self._graph.example_inputs)
        for each in self.recorded.inputs:
            if each.position is not None:
                types[each.position] = wanted.get(each.name)
        return types

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """The results, for whole tensors (equal on every rank) or distributed ones, in the graph's order."""
        if context() is not self._here:
            raise PlanError(f"capture: it was made for other sites; compile again: made={self._here}, now={context()}")
        placed = None if self._used is None else self._used.placed_as_before(args)
        if self._used is not None and placed is not None:
            return self._used.run_placed(args, placed)
        stored = {i: x.stored for i, x in enumerate(args) if isinstance(x, DistributedTensor)}
        for relation in stored.values():
            if relation.context is not self._here:
                raise PlanError(
                    f"capture: a tensor is kept by the sites of another init: type={relation.type}; make it plain, "
                    "joinsum.gather(model), or give its full_tensor()"
                )
        program = self._used = self._planned({i: relation.type for i, relation in stored.items()}, args)
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
        # With these types, not the equal ones of before: those of the next call are likely to be the same objects.
        self._plans.insert(0, (stored, program))
        return program

    def _recorded(self, stored: Mapping[int, _C.PhysicalType], args: Sequence[Any]) -> PlannedProgram:
        """The program for inputs of these types; the same on every rank, or an error on all of them."""
        graph = self._graph
        with self._here.preparing("capture"):
            axes = {i: axis_factors(args[i]) for i in stored}
            recorded = record(graph.gm, graph.names, graph.replicate, axes, graph.ties)
            program = PlannedProgram(self._here, recorded, stored, graph)
        if not self._here.single_process:
            self._here.transport.agree("capture", f"equal programs on every rank\n{program.core}")
        return program


class PlannedProgram(PlannedGraph):
    """A recorded program with its plan: the planned graph that takes and gives what the FX graph does.

    types   of the inputs that are stored on the sites already, by their positions
    """

    def __init__(
        self, current: Context, recorded: Recorded, types: Mapping[int, _C.PhysicalType], graph: CapturedGraph
    ) -> None:
        self.recorded = recorded
        self._stay = {output.name for output in recorded.outputs if output.position in graph.stay}
        super().__init__(current, _binary(current, recorded.graph(self._stay)))
        positions = {each.name: each.position for each in recorded.inputs if each.position is not None}
        self._stored = {name: types[position] for name, position in positions.items() if position in types}
        self._constants: dict[str, _C.StoredRelation] = {}
        self._device = graph.device or current.device
        self._before: ArgumentLayout | None = None
        self._runs = 0
        self._result_types: dict[str, _C.PhysicalType] = {}
        self._baselines = None if graph.state is None else _baselines_of(current, recorded, graph.state)

    @cached_property
    def choice(self) -> PlanChoice:
        """The plan, and what it was made from. On a process group all ranks must call."""
        return self._chosen[0]

    def baselines(self) -> tuple[PricedBaseline, ...]:
        """What the baselines cost beside `choice`."""
        if self._baselines is None:
            return ()
        return self._baselines.priced(self.choice, Ends(free=frozenset(self._stay)))

    def modules(self) -> dict[str, str]:
        """For nodes of `choice.plan`, by name, the user's module that computes them, where that is known."""
        return self.recorded.modules_in(self.choice.plan, lambda graph: _orders(self.context, graph), self._stay)

    @cached_property
    def _starts(self) -> dict[str, _C.PhysicalType]:
        return self._chosen[1]

    @cached_property
    def _chosen(self) -> tuple[PlanChoice, dict[str, _C.PhysicalType]]:
        """The plan, and where inputs start.

        Decomposing softmax and norms enlarges the graph, and a truncated search may do worse on it; so both forms are
        planned, and the cheaper plan is taken. So they are where decomposing adds much work, as in attention, whose
        scores are then computed twice.
        """
        graphs = [self.core]
        if len(self.recorded.vertices) <= _SEARCHED_TWICE:
            decomposed = self.recorded.graph(self._stay)
            undecomposed = decomposed.with_undecomposed_calls()
            many = len(self.recorded.vertices) > _SEARCHED
            if undecomposed != decomposed and (many or _work(decomposed) > _MORE_WORK * _work(undecomposed)):
                graphs.append(_binary(self.context, undecomposed))
        baselines = None if self._baselines is None else self._baselines.warm_starts
        choices = []
        for graph in graphs:
            starts = self._starts_of(graph)
            ends = Ends({name: type_.placement for name, type_ in starts.items()}, frozenset(self._stay))
            choices.append(
                (choose(self.context, PlanRequest(graph, ends=ends, reuse=True, baselines=baselines)), starts)
            )
        if len(choices) == 1:
            return choices[0]
        return min(choices, key=lambda each: cost(IaPlan(each[0].plan), self.context.cluster).seconds)

    def takes(self, stored: Mapping[int, _C.PhysicalType]) -> bool:
        """Whether there is a plan already, and it takes the blocks of stored inputs, given by position, as they are."""
        if "_chosen" not in self.__dict__:
            return False
        wanted = {each.position: self._types.get(each.name) for each in self.recorded.inputs}
        return all(wanted.get(position) in (None, type_) for position, type_ in stored.items())

    def _starts_of(self, graph: _C.EinsumPlan) -> dict[str, _C.PhysicalType]:
        """For inputs that are stored on the sites, the type in which the plan takes their blocks as they are. Inputs
        whose layout no plan can express are gathered before each run."""
        cuts = graph.even_cuts(self.context.sites)
        found = {name: _relabelled(type_, cuts[name]) for name, type_ in self._stored.items() if name in cuts}
        for name in (name for name, type_ in found.items() if type_ is None):
            warnings.warn(
                f"capture: no plan can take this input as it lies, so it is gathered before each run: input={name}, "
                f"type={self._stored[name]}",
                stacklevel=2,
            )
        return {name: type_ for name, type_ in found.items() if type_ is not None}

    def run_placed(self, args: Sequence[Any], placed: dict[str, _C.StoredRelation]) -> list[Any]:
        """The results, in order; `placed` has the blocks of the arguments, and will have those of the seed."""
        current = self.context
        if not current.single_process and (not self._compared or os.environ.get("JOINSUM_CHECK", "0") not in ("", "0")):
            self._compare_inputs(args)
            self._compared = True
        if self.recorded.seed is not None:
            seed = torch.tensor(current.common_seed(int(torch.randint(SEEDS, ()))))
            if self.recorded.seed in self._types:
                placed[self.recorded.seed] = self._placed(self.recorded.seed, seed, False)
        memory = self._memory(placed.values())
        if self._runs < 2:
            _C.return_free_memory()  # of the search, and of the plain tensors that distributed ones replace
        self._runs += 1
        spoilt: set[str] = set()
        try:
            made = current.execute(self.choice.plan, placed, {}, update=True, overwritten=spoilt)
        except BaseException:
            # What a run that failed has not overwritten is as it was.
            for name in spoilt:
                x = None if self._tied.get(name) is None else args[self._tied[name]]
                if isinstance(x, DistributedTensor):
                    x.stored.take()
            raise
        return self._results(made, placed, args, memory)

    @cached_property
    def _places(self) -> dict[str, int | None]:
        """For each input its position in the arguments; None for constants and the seed."""
        return {each.name: each.position for each in self.recorded.inputs}

    @cached_property
    def _tied(self) -> dict[str, int]:
        """The inputs that results overwrite, and their positions."""
        names = dict.fromkeys(output.tied for output in self.recorded.outputs if output.tied is not None)
        positions = {name: self._places[name] for name in names}
        return {name: position for name, position in positions.items() if position is not None}

    @cached_property
    def _only_stays(self) -> bool:
        """Whether every result stays distributed or is one number."""
        return all(output.name in self._stay or math.prod(output.shape) <= 1 for output in self.recorded.outputs)

    @cached_property
    def _outputs(self) -> list[tuple[Output, str, bool, int | None]]:
        """The results, their names, whether they stay distributed, and the positions of the inputs that they
        overwrite."""
        return [
            (each, each.name, each.name in self._stay, None if each.tied is None else self._tied.get(each.tied))
            for each in self.recorded.outputs
        ]

    @cached_property
    def _read(self) -> list[tuple[str, int | None, _C.PhysicalType]]:
        """The inputs that the plan reads but the seed, their positions, and where it wants them."""
        return [(name, self._places[name], type_) for name, type_ in self._types.items() if name != self.recorded.seed]

    def placed(self, args: Sequence[Any], stored: Mapping[int, StoredRelation]) -> dict[str, _C.StoredRelation]:
        """The blocks of the inputs that the plan reads, but the seed; `stored` has the relations of the distributed
        arguments, by position."""
        placed, others = {}, []
        as_they_lie: dict[int, str] = {}
        for name, position, type_ in self._read:
            relation = None if position is None else stored.get(position)
            if position is not None and relation is not None and relation.type is type_:
                placed[name] = relation.core()
                as_they_lie[position] = name
            else:
                others.append((name, position))
                placed[name] = self._placed(name, self._value(name, position, args), name in self._tied)
        self._before = ArgumentLayout.of(stored, as_they_lie, others, len(args))
        return placed

    def placed_as_before(self, args: Sequence[Any]) -> dict[str, _C.StoredRelation] | None:
        """The same, if the distributed arguments lie as at the last call of `placed`; None if one does not."""
        cores = None if self._before is None else self._before.cores(args, self.context)
        if self._before is None or cores is None:
            return None
        placed = dict(zip(self._before.names, cores, strict=True))
        for name, position in self._before.others:
            placed[name] = self._placed(name, self._value(name, position, args), name in self._tied)
        return placed

    def _memory(self, placed: Iterable[_C.StoredRelation]) -> set[int]:
        """Where blocks of inputs and constants lie, if there are results that could lie there, too: what users write
        into these is not to be seen in parameters, nor in a later run."""
        if self._only_stays:
            return set()
        blocks = (block for relation in placed for block in relation.blocks())
        return {block.untyped_storage().data_ptr() for block in blocks}

    def _value(self, name: str, position: int | None, args: Sequence[Any]) -> torch.Tensor:
        if position is None:
            return self.recorded.constants[name]
        value: torch.Tensor = args[position]
        return value if isinstance(value, DistributedTensor) else value.detach().resolve_conj().resolve_neg()

    def _placed(self, name: str, value: torch.Tensor, tied: bool) -> _C.StoredRelation:
        """The blocks of an input. Constants and scalars, which torch takes from the CPU, come to the program's device,
        but for those that the run overwrites."""
        current, type_ = self.context, self._types[name]
        if isinstance(value, DistributedTensor):
            core = value.stored.core()
            if core.type == type_:
                return core
            if name in self._starts:
                return _C.retyped(core, type_, current.store)
            value, tied = value.full_tensor().detach(), True
        if name in self.recorded.constants:
            if name not in self._constants:
                self._constants[name] = self._of_whole(value.to(self._device), type_, True)
            return self._constants[name]
        return self._of_whole(value if tied or value.dim() else value.to(self._device), type_, tied)

    def _of_whole(self, value: torch.Tensor, type_: _C.PhysicalType, copied: bool) -> _C.StoredRelation:
        return _C.place_tensor(value, type_, self.context.local_sites, self.context.store, copied)

    def _results(
        self,
        made: Mapping[str, _C.StoredRelation],
        placed: Mapping[str, _C.StoredRelation],
        args: Sequence[Any],
        memory: set[int],
    ) -> list[torch.Tensor]:
        """The results of a run; one that overwrites a distributed tensor is that tensor, with the new blocks."""
        as_they_lie = set() if self._before is None else self._before.set_of_positions
        results: list[torch.Tensor] = []
        for output, name, stays, place in self._outputs:
            relation = made.get(name)
            if relation is None and stays and place is not None and place in as_they_lie:
                results.append(args[place])  # its relation has the new blocks
                continue
            if relation is None:
                relation = placed[str(output.tied)]
            if not stays:
                results.append(self._whole_result(output, relation, memory))
                continue
            type_ = self._result_types.get(name) or self._result_type(output, relation)
            new = StoredRelation(relation, self.context, type_)
            old = None if place is None else args[place]
            if isinstance(old, DistributedTensor):
                before = old.stored
                old.store(new)
                before.take()
                results.append(old)
            else:
                results.append(DistributedTensor(new, output.shape))
        return results

    def _whole_result(self, output: Output, relation: _C.StoredRelation, memory: set[int]) -> torch.Tensor:
        """A result on every rank."""
        whole = relation.whole_tensor(self.context.store)
        value = whole.reshape(output.shape) if output.tied is not None else output.of(whole)
        own = value.numel() > 1 and value.untyped_storage().data_ptr() not in memory and 0 not in value.stride()
        # No view, which autograd would not let the user write into.
        return value.detach() if own else value.clone(memory_format=torch.contiguous_format)

    def _result_type(self, output: Output, relation: _C.StoredRelation) -> _C.PhysicalType:
        """The type of a result, in every run the same object: that of the input which it overwrites, if they are equal,
        so that the next run knows it by identity."""
        wanted = None if output.tied is None else self._types.get(output.tied)
        type_ = wanted if wanted is not None and wanted == relation.type else relation.type
        self._result_types[output.name] = type_
        return type_

    def _compare_inputs(self, args: Sequence[Any]) -> None:
        """Raises where the ranks' inputs differ."""
        values = {
            name: self._value(name, position, args)
            for name, position in self._places.items()
            if name != self.recorded.seed
        }
        lines = [
            f"input {name}: {list(x.shape)} {x.dtype}, "
            + (str(x.physical_type) if isinstance(x, DistributedTensor) else f"checksum {checksum(x)}")
            for name, x in values.items()
        ]
        self.context.transport.agree("capture", "\n".join(["equal inputs on every rank", *lines]))


def _work(graph: _C.EinsumPlan) -> int:
    """Floating-point operations of the graph on one site."""
    return cost(IaPlan(_C.on_one_site(graph.lower(graph.even_cuts(1))))).flops


def _binary(current: Context, graph: _C.EinsumPlan) -> _C.EinsumPlan:
    return graph.binary(_orders(current, graph))


def _orders(current: Context, graph: _C.EinsumPlan) -> dict[str, list[tuple[int, int]]]:
    return {name: order.path for name, order in best_orders(graph, current, everywhere=True).items()}


def _baselines_of(current: Context, recorded: Recorded, state: Collection[int]) -> ProgramBaselines:
    inputs = [
        ProgramInput(each.name, each.shape, each.axes, each.position in state)
        for each in recorded.inputs
        if each.position is not None
    ]
    return ProgramBaselines(current, inputs)


def _distinct(names: Sequence[str]) -> list[str]:
    """Names that plans can have, each once."""
    out: list[str] = []
    for name in names:
        plain = "".join(c if c.isalnum() or c in "_." else "_" for c in name)
        plain = plain if plain[:1] != "." else f"_{plain}"
        out.append(plain if plain not in out else f"{plain}.{len(out)}")
    return out


def _relabelled(type_: _C.PhysicalType, wanted: _C.RelationType) -> _C.PhysicalType | None:
    """The type of relation `wanted` whose blocks hold what those of `type_` do: its axes are the same, or factors of
    them. None where no placement says that."""
    dims: dict[int, int] = {}
    place = 0
    for axis in type_.relation.axes:
        first, left = place, axis.extent
        while left > 1:
            left //= wanted.axes[place].extent
            place += 1
        key_dim = wanted.axes[first].key_dim if first < place else None
        if axis.key_dim is not None and key_dim is not None:
            inner = axis.extent // wanted.axes[first].extent
            if [cut * inner for cut in wanted.axes[first].cuts] == list(axis.cuts):
                dims[axis.key_dim] = key_dim
    states: list[_C.AxisState] = []
    for state in type_.placement.states:
        if isinstance(state, _C.Replicated):
            states.append(state)
        elif isinstance(state, _C.Split) and state.dim in dims:
            states.append(_C.Split(dims[state.dim], wanted.frontier[dims[state.dim]]))
        else:
            return None
    return _C.PhysicalType.placed("capture", wanted, type_.grid, _C.Placement.of_states(states))
