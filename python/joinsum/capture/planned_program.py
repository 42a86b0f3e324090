"""A recorded program with its plan, as it runs on tensors that are whole or that lie on the sites."""

from __future__ import annotations

import functools
import math
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from joinsum import _C
from joinsum.algebra.plan import IaPlan
from joinsum.algebra.sources import is_sparse, sparse_array
from joinsum.algebra.stored_relation import StoredRelation
from joinsum.base.errors import TransportError
from joinsum.capture.argument_layout import ArgumentLayout
from joinsum.capture.captured_graph import CapturedGraph, SparseEntries
from joinsum.capture.decompositions.random import SEEDS
from joinsum.capture.record import record_with_template
from joinsum.capture.recording.recorded import Output, Recorded, Signature
from joinsum.capture.recording.template import Template
from joinsum.capture.run_errors import in_users_words
from joinsum.cluster.context import Context
from joinsum.distributed.block_tensor import axis_factors
from joinsum.distributed.distributed_tensor import DistributedTensor
from joinsum.execution.balanced_plans import balanced_cuts
from joinsum.execution.operands import checksum_of
from joinsum.execution.planned_graph import PlannedGraph
from joinsum.graphs.contraction_order import best_orders
from joinsum.planner.baseline_costs import PricedBaseline, ProgramBaselines
from joinsum.planner.baselines.placement_baselines import ProgramInput
from joinsum.planner.cost import PlanCost, cost, seconds_of_work
from joinsum.planner.plan_choice import Ends, PlanChoice, PlanRequest, choice_for, choose, recut

__all__ = ["PlannedProgram", "StoredInputs"]

# Vertices of a graph beyond which the search for its plan proves nothing, and up to which two searches are quick.
_SEARCHED = 500
_SEARCHED_TWICE = 4000

# Smaller graphs are searched twice where decomposing multiplies their work by more than this.
_MORE_WORK = 1.1

# Runs with the plan of other sizes before it is looked at whether a search of its own pays.
_RUNS_AT_LEAST = 8


@dataclass(frozen=True)
class StoredInputs:
    """Inputs that are stored on the sites already, by their positions.

    types   where they lie
    axes    the factors of each of their axes, where these count
    """

    types: Mapping[int, _C.PhysicalType]
    axes: Mapping[int, Sequence[Sequence[int]]]

    @staticmethod
    def of(types: Mapping[int, _C.PhysicalType], args: Sequence[Any]) -> StoredInputs:
        """Those among the arguments."""
        return StoredInputs(types, {i: axis_factors(args[i]) for i in types})

    def as_recorded(self, other: StoredInputs) -> StoredInputs:
        """These, as a program that was recorded for `other` ones has them: the factors of an input that was not stored
        then do not count."""
        return StoredInputs(self.types, {i: factors for i, factors in self.axes.items() if i in other.axes})


@dataclass(frozen=True)
class _How:
    """How a program was recorded, and how it is to run.

    stored                        the inputs that are stored on the sites already
    stay, state, device, sparse   as in CapturedGraph
    fuse                          whether elementwise operators that follow one another are one
    """

    stored: StoredInputs
    stay: Collection[int]
    state: Collection[int] | None
    device: torch.device | None
    sparse: Mapping[str, SparseEntries]
    fuse: bool

    def recorded(self, graph: CapturedGraph) -> tuple[Recorded, Template | None]:
        """The program of a graph, and its template."""
        return record_with_template(
            graph.gm,
            graph.names,
            graph.replicate,
            self.stored.axes,
            graph.ties,
            graph.numbers,
            {name: each.count for name, each in graph.sparse.items()},
            self.fuse,
        )

    def staying(self, signature: Signature) -> set[str]:
        """Names of the results that stay distributed."""
        return {output.name for output in signature.outputs if output.position in self.stay}


@dataclass(frozen=True)
class _Chosen:
    """A plan, and what runs.

    choice         the plan, for axes that are cut evenly
    plan           the same for the cuts that entries of sparse inputs need, or that stored inputs have
    starts         where inputs start
    undecomposed   whether it is of the graph without decomposed calls
    """

    choice: PlanChoice
    plan: _C.IaPlan
    starts: dict[str, _C.PhysicalType]
    undecomposed: bool


class PlannedProgram(PlannedGraph):
    """A recorded program with its plan: the planned graph that takes and gives what the FX graph does.

    signature   what it takes and gives
    core        its graph, in einsums of at most two operands
    how         how it was recorded and is to run
    record      gives the recorded program
    template    the program for other sizes, if there is one
    """

    def __init__(
        self,
        current: Context,
        signature: Signature,
        core: _C.EinsumPlan,
        how: _How,
        record: Callable[[], Recorded],
        template: Template | None,
    ) -> None:
        super().__init__(current, core)
        self.signature, self.template = signature, template
        self._how, self._record = how, functools.cache(record)
        self._stay = how.staying(signature)
        positions = {each.name: each.position for each in signature.inputs if each.position is not None}
        types = how.stored.types
        self._stored = {name: types[position] for name, position in positions.items() if position in types}
        self._constants: dict[str, _C.StoredRelation] = {}
        self._sparse_inputs: dict[str, _SparseInput] = {}
        self._device = how.device or current.device
        self._before: ArgumentLayout | None = None
        self._runs = 0
        self._result_types: dict[str, _C.PhysicalType] = {}
        self._baselines = None if how.state is None else _baselines_of(current, signature, how.state)
        self._due = math.inf  # the runs after which its plan is to be searched for

    @staticmethod
    def of(current: Context, graph: CapturedGraph, stored: StoredInputs) -> PlannedProgram:
        """The program of a graph for these stored inputs."""
        how = _How(stored, graph.stay, graph.state, graph.device, graph.sparse, current.device.type == "cpu")
        recorded, template = how.recorded(graph)
        core = _binary(current, recorded.graph(how.staying(recorded)))
        return PlannedProgram(current, recorded, core, how, lambda: recorded, template)

    @property
    def recorded(self) -> Recorded:
        """The recorded program."""
        return self._record()

    @property
    def is_planned(self) -> bool:
        """Whether its plan is chosen."""
        return "_chosen" in self.__dict__

    @property
    def is_due(self) -> bool:
        """Whether its plan is to be searched for: it is that of other sizes, and may have lost by now as many seconds,
        against one that only works, as the search takes that it saved."""
        if self._runs < self._due:
            return False
        if self._due == _RUNS_AT_LEAST:
            loss = self.cost.seconds - seconds_of_work(self.choice.binary, self.context.cluster, self.context.sites)
            self._due = max(self._runs, self.choice.search_seconds / max(loss, 1e-12))
        return self._runs >= self._due

    def resized(
        self, sizes: Mapping[str, int], stored: StoredInputs, graph: Callable[[], CapturedGraph]
    ) -> PlannedProgram | None:
        """The program for other sizes and these stored inputs, with this plan rebuilt for them; None if it cannot be.
        `graph` is the captured graph of these sizes."""
        resized = None if self.template is None else self.template.at(sizes, self._stay)
        if resized is None:
            return None
        chosen = self._chosen
        core = resized.graph.with_undecomposed_calls() if chosen.undecomposed else resized.graph
        choice = choice_for(self.context, chosen.choice, core)
        if choice is None:
            return None
        how = replace(self._how, stored=stored.as_recorded(self._how.stored))
        made = PlannedProgram(
            self.context, resized.signature, choice.binary, how, lambda: how.recorded(graph())[0], self.template
        )
        cuts = made._cuts_of(choice.binary)
        starts = made._starts_of(cuts, warn=False)
        plan = made._cut(choice, cuts, made._request_of(core, starts))
        wanted = dict(plan.inputs)
        gathered = self._stored.keys() - chosen.starts.keys()
        if any(wanted.get(name) not in (None, starts.get(name)) for name in made._stored.keys() - gathered):
            return None
        made.__dict__["_chosen"] = _Chosen(choice, plan, starts, chosen.undecomposed)
        made._due = _RUNS_AT_LEAST
        return made

    @cached_property
    def choice(self) -> PlanChoice:
        """The plan, and what it was made from. On a process group all ranks must call."""
        return self._chosen.choice

    def baselines(self) -> tuple[PricedBaseline, ...]:
        """What the baselines cost beside `choice`."""
        if self._baselines is None:
            return ()
        return self._baselines.priced(self.choice, Ends(free=frozenset(self._stay)))

    def modules(self) -> dict[str, str]:
        """For nodes of `plan`, by name, the user's module that computes them, where that is known."""
        return self.recorded.modules_in(self.choice.plan, lambda graph: _orders(self.context, graph), self._stay)

    @cached_property
    def plan(self) -> IaPlan:
        """The physical plan that runs."""
        return IaPlan(self._chosen.plan)

    @cached_property
    def cost(self) -> PlanCost:
        """The costs of `choice`, node by node, on the cluster that it was chosen for."""
        return cost(IaPlan(self.choice.plan), self.context.cluster)

    @cached_property
    def _types(self) -> dict[str, _C.PhysicalType]:
        """Where the plan wants its inputs."""
        return dict(self._chosen.plan.inputs)

    @property
    def wanted(self) -> Mapping[str, _C.PhysicalType]:
        """For the inputs that the plan reads, by name, where it wants them."""
        return self._types

    @cached_property
    def _starts(self) -> dict[str, _C.PhysicalType]:
        return self._chosen.starts

    @cached_property
    def _chosen(self) -> _Chosen:
        """The plan.

        Decomposing softmax and norms enlarges the graph, and a truncated search may do worse on it; so both forms are
        planned, and the cheaper plan is taken. So they are where decomposing adds much work, as in attention, whose
        scores are then computed twice.
        """
        graphs = [self.core]
        recorded = self.recorded
        if len(recorded.vertices) <= _SEARCHED_TWICE:
            decomposed = recorded.graph(self._stay)
            undecomposed = decomposed.with_undecomposed_calls()
            if undecomposed != decomposed:
                undecomposed = _binary(self.context, undecomposed)
                many = len(recorded.vertices) > _SEARCHED
                if many or _work(self.core) > _MORE_WORK * _work(undecomposed):
                    graphs.append(undecomposed)
        choices: list[_Chosen] = []
        for graph in graphs:
            cuts = self._cuts_of(graph)
            starts = self._starts_of(cuts)
            request = self._request_of(graph, starts)
            choice = choose(self.context, request)
            choices.append(_Chosen(choice, self._cut(choice, cuts, request), starts, bool(choices)))
        if len(choices) == 1:
            return choices[0]
        return min(choices, key=lambda each: cost(IaPlan(each.choice.plan), self.context.cluster).seconds)

    def takes(self, stored: Mapping[int, _C.PhysicalType]) -> bool:
        """Whether there is a plan already, and it takes the blocks of stored inputs, given by position, as they are."""
        if not self.is_planned:
            return False
        wanted = {each.position: self._types.get(each.name) for each in self.signature.inputs}
        return all(wanted.get(position) in (None, type_) for position, type_ in stored.items())

    def _request_of(self, graph: _C.EinsumPlan, starts: Mapping[str, _C.PhysicalType]) -> PlanRequest:
        ends = Ends({name: type_.placement for name, type_ in starts.items()}, frozenset(self._stay))
        baselines = None if self._baselines is None else self._baselines.warm_starts
        return PlanRequest(graph, ends=ends, reuse=True, baselines=baselines)

    def _cut(self, choice: PlanChoice, cuts: Mapping[str, _C.RelationType], request: PlanRequest) -> _C.IaPlan:
        """The plan for these cuts of its inputs."""
        if cuts == choice.binary.even_cuts(self.context.sites):
            return choice.plan
        return recut(self.context, request, choice, cuts)

    def _cuts_of(self, graph: _C.EinsumPlan) -> dict[str, _C.RelationType]:
        """How the graph's inputs are cut: so that sites have about equal work for the entries of sparse ones that were
        captured, and otherwise evenly; as those are that are stored on the sites."""
        even = graph.even_cuts(self.context.sites)
        stored = {name: _cut_points(type_, even[name]) for name, type_ in self._stored.items() if name in even}
        samples = self._samples_of(graph)
        if self.context.sites == 1 or not (samples or any(map(any, stored.values()))):
            return even
        return balanced_cuts(self.context, graph, samples, even, stored)

    def _samples_of(self, graph: _C.EinsumPlan) -> dict[str, list[list[int]]]:
        """Where entries of sparse inputs lie, along each factor of their axes."""
        samples = {name: self._how.sparse[name].sample for name in graph.sparse_inputs if name in self._how.sparse}
        return {
            name: [
                part.tolist() for x, axes in zip(sample, self._axes[name], strict=True) for part in _parts_of(x, axes)
            ]
            for name, sample in samples.items()
            if sample is not None
        }

    def _starts_of(self, cuts: Mapping[str, _C.RelationType], warn: bool = True) -> dict[str, _C.PhysicalType]:
        """For inputs that are stored on the sites, the type in which the plan takes their blocks as they are, if it
        cuts them so. Inputs whose layout no plan can express are gathered before each run."""
        found = {name: _relabelled(type_, cuts[name]) for name, type_ in self._stored.items() if name in cuts}
        for name in (name for name, type_ in found.items() if type_ is None and warn):
            warnings.warn(
                f"capture: no plan can take this input in its layout, so it is gathered before each run: input={name}, "
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
        if self.signature.seed is not None:
            seed = torch.tensor(current.common_seed(int(torch.randint(SEEDS, ()))))
            if self.signature.seed in self._types:
                placed[self.signature.seed] = self._placed(self.signature.seed, seed, False)
        memory = self._memory(placed.values())
        if self._runs < 2:
            _C.return_free_memory()  # of the search, and of the plain tensors that distributed ones replace
        self._runs += 1
        spoilt: set[str] = set()
        try:
            made = current.execute(self._chosen.plan, placed, {}, update=True, overwritten=spoilt)
        except BaseException as error:
            # What a run that failed has not overwritten is as it was.
            for name in spoilt:
                x = None if self._tied.get(name) is None else args[self._tied[name]]
                if isinstance(x, DistributedTensor):
                    x.stored.take()
            said = in_users_words(error, self._data)
            if said is None:
                raise
            raise said from error
        return self._results(made, placed, args, memory)

    @cached_property
    def _places(self) -> dict[str, int | None]:
        """For each input its position in the arguments; None for constants and the seed."""
        return {each.name: each.position for each in self.signature.inputs}

    @cached_property
    def _axes(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        """For each input the factors of its axes."""
        return {each.name: each.axes for each in self.signature.inputs}

    @cached_property
    def _tied(self) -> dict[str, int]:
        """The inputs that results overwrite, and their positions."""
        names = dict.fromkeys(output.tied for output in self.signature.outputs if output.tied is not None)
        positions = {name: self._places[name] for name in names}
        return {name: position for name, position in positions.items() if position is not None}

    @cached_property
    def _only_stays(self) -> bool:
        """Whether every result stays distributed or is one number."""
        return all(output.name in self._stay or math.prod(output.shape) <= 1 for output in self.signature.outputs)

    @cached_property
    def _outputs(self) -> list[tuple[Output, str, bool, int | None]]:
        """The results, their names, whether they stay distributed, and the positions of the inputs that they
        overwrite."""
        return [
            (each, each.name, each.name in self._stay, None if each.tied is None else self._tied.get(each.tied))
            for each in self.signature.outputs
        ]

    @cached_property
    def _read(self) -> list[tuple[str, int | None, _C.PhysicalType]]:
        """The inputs that the plan reads but the seed, their positions, and where it wants them."""
        return [(name, self._places[name], type_) for name, type_ in self._types.items() if name != self.signature.seed]

    def placed(self, args: Sequence[Any], stored: Mapping[int, StoredRelation]) -> dict[str, _C.StoredRelation]:
        """The blocks of the inputs that the plan reads, but the seed; `stored` has the relations of the distributed
        arguments, by position."""
        placed, others = {}, []
        as_they_lie: dict[int, str] = {}
        for name, position, type_ in self._read:
            relation = None if position is None else stored.get(position)
            if position is not None and relation is not None and (relation.type is type_ or relation.type == type_):
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
        return {block.untyped_storage().data_ptr() for block in blocks if not block.is_sparse}

    def _value(self, name: str, position: int | None, args: Sequence[Any]) -> torch.Tensor:
        if position is None:
            return self.signature.constants[name]
        value: torch.Tensor = args[position]
        if is_sparse(value):
            return value.detach()
        return value if isinstance(value, DistributedTensor) else value.detach().resolve_conj().resolve_neg()

    def _placed(self, name: str, value: torch.Tensor, tied: bool) -> _C.StoredRelation:
        """The blocks of an input. Constants and scalars, which torch takes from the CPU, come to the program's device,
        but for those that the run overwrites."""
        current, type_ = self.context, self._types[name]
        if is_sparse(value):
            before = self._sparse_inputs.get(name)
            if before is None or not before.is_of(value):
                placed = self._of_whole(_in_factors(sparse_array("capture", value), self._axes[name]), type_, False)
                before = self._sparse_inputs[name] = _SparseInput.of(value, placed)
            return before.placed
        if isinstance(value, DistributedTensor):
            core = value.stored.core()
            if core.type == type_:
                return core
            if name in self._starts:
                return _C.retyped(core, type_, current.store)
            value, tied = value.full_tensor().detach(), True
        if name in self.signature.constants:
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
        if whole.is_sparse:
            return _sparse_result(output, whole)
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

    @cached_property
    def _data(self) -> dict[str, str]:
        """The inputs that are not the model's: by name, shape and dtype."""
        inputs, state = self.signature.inputs, self._how.state or ()
        data = [each for each in inputs if each.position is not None and each.position not in state]
        return {each.name: f"{list(each.shape)} {each.dtype}" for each in data}

    def agree(self) -> None:
        """Raises TransportError on all ranks where they do not all capture this program."""
        self._agree("this rank captures this graph", [str(self.core)])

    def _compare_inputs(self, args: Sequence[Any]) -> None:
        """Raises TransportError on all ranks where their inputs differ."""
        values = {
            name: self._value(name, position, args)
            for name, position in self._places.items()
            if name != self.signature.seed
        }
        lines = [
            f"input {name}: {list(x.shape)} {x.dtype}, "
            + (str(x.physical_type) if isinstance(x, DistributedTensor) else f"checksum {_checksum(x)}")
            for name, x in values.items()
        ]
        self._agree("this rank runs a graph that it captured before", lines)

    def _agree(self, what: str, lines: Sequence[str]) -> None:
        """Compares what ranks do. The batch comes first: where it differs, so does what follows from it."""
        batch = [f"input {name}: {value}" for name, value in self._data.items()]
        try:
            self.context.transport.agree("capture", "\n".join([*batch, what, *lines]))
        except TransportError as error:
            said = in_users_words(error, self._data)
            if said is None:
                raise
            raise said from error


@dataclass(frozen=True)
class _SparseInput:
    """The blocks of a sparse argument, which the next call is likely to have, too.

    parts   copies of the tensors that it consists of: their versions do not count writes into memory that they share
    """

    layout: torch.layout
    parts: list[torch.Tensor]
    placed: _C.StoredRelation

    @staticmethod
    def of(x: torch.Tensor, placed: _C.StoredRelation) -> _SparseInput:
        """The blocks of this tensor."""
        return _SparseInput(x.layout, [part.detach().clone() for part in _parts(x)], placed)

    def is_of(self, x: torch.Tensor) -> bool:
        """Whether the tensor, of the same shape and dtype, consists of equal ones."""
        parts = _parts(x)
        same = x.layout is self.layout and [y.dtype for y in parts] == [y.dtype for y in self.parts]
        return same and all(map(torch.equal, parts, self.parts))


def _parts_of(indices: np.ndarray, factors: Sequence[int]) -> list[np.ndarray]:
    """Indices along an axis as indices along its factors, ascending."""
    return [np.sort(each) for each in np.unravel_index(indices, tuple(factors))] if factors else []


def _in_factors(x: torch.Tensor, axes: Sequence[Sequence[int]]) -> torch.Tensor:
    """A coalesced `torch.sparse_coo` tensor whose axes are the factors of its own ones; dense where there are none."""
    if [extent for factors in axes for extent in factors] == list(x.shape):
        return x
    shape = [extent for factors in axes for extent in factors]
    if not shape:
        return x.to_dense().reshape(())
    pairs = [(own, tuple(factors)) for own, factors in zip(x.indices(), axes, strict=True) if factors]
    indices = [index for own, factors in pairs for index in torch.unravel_index(own, factors)]
    return torch.sparse_coo_tensor(torch.stack(indices), x.values(), shape, is_coalesced=True, check_invariants=False)


def _sparse_result(output: Output, whole: torch.Tensor) -> torch.Tensor:
    """A result that is a sparse input, or a view of one; dense where elements repeat."""
    if any(factor.dim is None for factor in output.factors):
        return output.of(whole.to_dense())
    old, indices = whole.indices(), []
    for axis in output.axes:
        index = torch.zeros_like(old[0])
        for factor in axis:
            index = index * factor.extent + old[factor.dim]
        indices.append(index)
    return torch.sparse_coo_tensor(
        torch.stack(indices), whole.values(), output.shape, check_invariants=False
    ).coalesce()


def _parts(x: torch.Tensor) -> list[torch.Tensor]:
    if x.layout is torch.sparse_coo:
        return [x._indices(), x._values()]
    by_rows = x.layout in (torch.sparse_csr, torch.sparse_bsr)
    return (
        [x.crow_indices(), x.col_indices(), x.values()] if by_rows else [x.ccol_indices(), x.row_indices(), x.values()]
    )


def _checksum(x: torch.Tensor) -> str:
    return checksum_of(sparse_array("capture", x) if is_sparse(x) else x)


def _work(graph: _C.EinsumPlan) -> int:
    """Floating-point operations of the graph on one site."""
    return cost(IaPlan(_C.on_one_site(graph.lower(graph.even_cuts(1))))).flops


def _binary(current: Context, graph: _C.EinsumPlan) -> _C.EinsumPlan:
    return graph.binary(_orders(current, graph))


def _orders(current: Context, graph: _C.EinsumPlan) -> dict[str, list[tuple[int, int]]]:
    return {name: order.path for name, order in best_orders(graph, current, everywhere=True).items()}


def _baselines_of(current: Context, signature: Signature, state: Collection[int]) -> ProgramBaselines:
    inputs = [
        ProgramInput(each.name, each.shape, each.axes, each.position in state)
        for each in signature.inputs
        if each.position is not None
    ]
    return ProgramBaselines(current, inputs)


def _cut_points(type_: _C.PhysicalType, wanted: _C.RelationType) -> list[list[int]]:
    """For each axis of `wanted`, whose axes are those of a stored type or factors of them, the cut points that it has
    there; none where it is not cut, or between indices of the axis."""
    points: list[list[int]] = [[] for _ in wanted.axes]
    for axis, place in _first_factors(type_, wanted):
        inner = axis.extent // wanted.axes[place].extent
        if axis.key_dim is not None and all(cut % inner == 0 for cut in axis.cuts):
            points[place] = [cut // inner for cut in axis.cuts]
    return points


def _first_factors(type_: _C.PhysicalType, wanted: _C.RelationType) -> Iterator[tuple[_C.Axis, int]]:
    """The axes of a stored type that have factors in `wanted`, and the place of each one's first factor there."""
    place = 0
    for axis in type_.relation.axes:
        first, left = place, axis.extent
        while left > 1:
            left //= wanted.axes[place].extent
            place += 1
        if first < place:
            yield axis, first


def _relabelled(type_: _C.PhysicalType, wanted: _C.RelationType) -> _C.PhysicalType | None:
    """The type of relation `wanted` whose blocks hold what those of `type_` do: its axes are the same, or factors of
    them. None where no placement says that."""
    dims: dict[int, int] = {}
    points = _cut_points(type_, wanted)
    for axis, place in _first_factors(type_, wanted):
        key_dim = wanted.axes[place].key_dim
        if axis.key_dim is not None and key_dim is not None and points[place] == list(wanted.axes[place].cuts):
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
