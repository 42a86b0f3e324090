"""Captured graphs with their plans: run on tensors that are whole, or that lie on the sites."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from joinsum import _C
from joinsum.capture.compared import ByHand
from joinsum.capture.one_site import OneSite
from joinsum.capture.random import SEEDS
from joinsum.capture.record import record
from joinsum.capture.recorded import Input, Output, Recorded
from joinsum.compiled_graph import checksum
from joinsum.context import Context, context
from joinsum.contraction_order import best_orders
from joinsum.cost import cost
from joinsum.errors import PlanError, TransportError
from joinsum.explanation.model_text import PassBaseline
from joinsum.frontend.distributed_tensor import DistributedTensor, atoms_of
from joinsum.graph_choice import Choice, Ends, choose
from joinsum.plan import IaPlan
from joinsum.stored import StoredRelation

__all__ = ["PlannedProgram", "Runner", "compile_fx"]

# Vertices of a graph beyond which the search for its plan proves nothing, and up to which two searches are quick.
_SEARCHED = 500
_SEARCHED_TWICE = 4000

_SEED = "joinsum.seed"  # as disagreements of the sites show it


def compile_fx(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    names: Sequence[str] | None,
    ties: Mapping[int, int],
    stay: Collection[int],
    state: Collection[int] | None = None,
    replicate: Collection[str] = (),
) -> Runner | OneSite:
    """A graph of ATen operators, recorded for the sites there are; `joinsum.frontend.runner` says what is asked."""

    def planned() -> Runner:
        return Runner(gm, example_inputs, names, ties, stay, state, replicate)

    return OneSite(gm, example_inputs, ties, stay, planned, replicate) if context().sites == 1 else planned()


class Runner:
    """A captured graph with its plans: one for each way in which its inputs lie."""

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        example_inputs: Sequence[Any],
        names: Sequence[str] | None,
        ties: Mapping[int, int],
        stay: Collection[int],
        state: Collection[int] | None,
        replicate: Collection[str],
    ) -> None:
        self._here = context()
        self._replicate = replicate
        self._gm = gm
        self._names = None if names is None else _distinct(names)
        self._ties = dict(ties)
        self._stay = frozenset(stay)
        self._state = None if state is None else frozenset(state)
        self._count = len(example_inputs)
        self._plans: list[tuple[Mapping[int, _C.PhysicalType], PlannedProgram]] = []  # the last used first
        self._first = self._latest = self._planned({})

    @property
    def recorded(self) -> Recorded:
        """The program of whole inputs."""
        return self._first.recorded

    @property
    def choice(self) -> Choice:
        """The plan that ran last; before that, the one for whole inputs. On a process group all ranks call."""
        return self._latest.choice

    def baselines(self) -> tuple[PassBaseline, ...]:
        """What plans that people make by hand cost beside `choice`; none where nobody told which inputs are kept. Each
        costs a search. On a process group all ranks call."""
        return self._latest.baselines()

    @cached_property
    def input_types(self) -> list[_C.PhysicalType | None]:
        """For each input, where the plan for whole inputs wants it; None for one that is no tensor or is not read."""
        wanted = dict(self._first.choice.plan.inputs)
        types: list[_C.PhysicalType | None] = [None] * self._count
        for each in self.recorded.inputs:
            if each.position is not None:
                types[each.position] = wanted.get(each.name)
        return types

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """The results, for whole tensors (equal on every rank) or distributed ones, in the graph's order."""
        if context() is not self._here:
            raise PlanError(f"capture: it was made for other sites; compile again: made={self._here}, now={context()}")
        lying = {i: x.physical_type for i, x in enumerate(args) if isinstance(x, DistributedTensor)}
        for other in (args[i] for i in lying if args[i].context is not self._here):
            raise PlanError(
                f"capture: a tensor is kept by the sites of another init: type={other.physical_type}; make it plain, "
                "joinsum.gather(model), or give its full_tensor()"
            )
        self._latest = self._planned(lying, args)
        return self._latest.run(args)

    def _planned(self, lying: Mapping[int, _C.PhysicalType], args: Sequence[Any] = ()) -> PlannedProgram:
        place = next((i for i, (known, _) in enumerate(self._plans) if known == lying), None)
        if place is None:
            # Torch may be compiling, with fake tensors; what sites tell each other are real ones.
            with unset_fake_temporarily():
                found: tuple[Mapping[int, _C.PhysicalType], PlannedProgram] = (lying, self._recorded(lying, args))
        else:
            found = self._plans.pop(place)
        self._plans.insert(0, found)
        return found[1]

    def _recorded(self, lying: Mapping[int, _C.PhysicalType], args: Sequence[Any]) -> PlannedProgram:
        """The program for inputs that lie so; the same on every rank, or an error on all of them."""
        with self._here.preparing("capture"):
            axes = {i: atoms_of(args[i]) for i in lying}
            recorded = record(self._gm, self._names, self._replicate, axes, self._ties)
            made = PlannedProgram(self._here, recorded, lying, self._stay, self._state)
        if not self._here.whole:
            self._here.transport.agree("capture", f"equal programs on every rank\n{made.graph}")
        return made


class PlannedProgram:
    """A recorded program with its plan, which is chosen at the first use.

    lying   types of the inputs that lie on the sites already, by their positions
    stay    positions of results that stay there
    state   positions of the inputs that are kept between runs, or None
    """

    def __init__(
        self,
        here: Context,
        recorded: Recorded,
        lying: Mapping[int, _C.PhysicalType],
        stay: Collection[int],
        state: frozenset[int] | None,
    ) -> None:
        self.here = here
        self.recorded = recorded
        self._stay = {output.name for output in recorded.outputs if _position(output) in stay}
        self.graph = self._binary(at_once=False)
        positions = {each.name: each.position for each in recorded.inputs if each.position is not None}
        self._lying = {name: lying[position] for name, position in positions.items() if position in lying}
        self._constants: dict[str, _C.StoredRelation] = {}
        self._compared = False
        self._by_hand = None if state is None else ByHand(here, recorded, state)

    def _binary(self, at_once: bool) -> _C.EinsumPlan:
        graph = self.recorded.graph(self._stay, at_once)
        orders = best_orders(graph, self.here, everywhere=True)
        return graph.binary({name: order.path for name, order in orders.items()})

    @cached_property
    def choice(self) -> Choice:
        """The plan. On a process group all ranks call."""
        return self._chosen[0]

    def baselines(self) -> tuple[PassBaseline, ...]:
        """What plans that people make by hand cost beside `choice`."""
        if self._by_hand is None:
            return ()
        return self._by_hand.compared(self.choice, Ends(free=frozenset(self._stay)))

    @cached_property
    def _starts(self) -> dict[str, _C.PhysicalType]:
        return self._chosen[1]

    @cached_property
    def _chosen(self) -> tuple[Choice, dict[str, _C.PhysicalType]]:
        """The plan, and where inputs start.

        Softmax and norms in parts make a graph larger, of which a search that proves nothing may find less: then the
        cheaper plan counts, of theirs and of those at once.
        """
        graphs = [self.graph]
        if self.recorded.cuttable and _SEARCHED < len(self.recorded.vertices) <= _SEARCHED_TWICE:
            graphs.append(self._binary(at_once=True))
        rivals = None if self._by_hand is None else self._by_hand.rivals
        made = []
        for graph in graphs:
            starts = self._starts_of(graph)
            ends = Ends({name: type_.placement for name, type_ in starts.items()}, frozenset(self._stay))
            made.append((choose(self.here, graph, True, ends, True, rivals), starts))
        if len(made) == 1:
            return made[0]
        return min(made, key=lambda each: cost(IaPlan(each[0].plan), self.here.cluster).seconds)

    def _starts_of(self, graph: _C.EinsumPlan) -> dict[str, _C.PhysicalType]:
        """For inputs that lie on the sites, the type in which the plan takes their blocks as they are. Others, whose
        blocks are cut otherwise than the plan can say, are moved before it runs."""
        cuts = graph.even_cuts(self.here.sites)
        found = {name: _relabelled(type_, cuts[name]) for name, type_ in self._lying.items() if name in cuts}
        for name in (name for name, type_ in found.items() if type_ is None):
            warnings.warn(
                f"capture: no plan can take this input as it lies, so it is gathered before each run: input={name}, "
                f"type={self._lying[name]}",
                stacklevel=2,
            )
        return {name: type_ for name, type_ in found.items() if type_ is not None}

    @cached_property
    def _types(self) -> dict[str, _C.PhysicalType]:
        return dict(self.choice.plan.inputs)

    def run(self, args: Sequence[Any]) -> list[Any]:
        """The results, in order."""
        here = self.here
        given = {each.name: self._value(each, args) for each in self.recorded.inputs}
        if not here.whole and (not self._compared or os.environ.get("JOINSUM_CHECK", "0") not in ("", "0")):
            self._compare(given)
            self._compared = True
        ties = {output.tied for output in self.recorded.outputs if output.tied is not None}
        placed = {name: self._placed(name, value, name in ties) for name, value in given.items() if name in self._types}
        taken = {name: x.stored for name, x in given.items() if name in ties and isinstance(x, DistributedTensor)}
        memory = self._memory(placed.values())
        lost, spoilt = set(taken), set[str]()
        try:
            made = here.execute(self.choice.plan, placed, self._agreed(given), overwritten=spoilt)
        except BaseException as error:
            lost &= spoilt  # what a run that failed has not overwritten is as it was
            if isinstance(error, TransportError):
                raise _explained(error) from None
            raise
        finally:
            for name in lost:
                taken[name].take()
        return [self._result(output, made[output.name], memory) for output in self.recorded.outputs]

    def _memory(self, placed: Iterable[_C.StoredRelation]) -> set[int]:
        """Where blocks of inputs and constants lie, if there are results that could lie there, too: what users write
        into these is not to be seen in parameters, nor in a later run."""
        if all(output.name in self._stay or math.prod(output.shape) <= 1 for output in self.recorded.outputs):
            return set()
        blocks = (block for relation in placed for block in relation.blocks(self.here.store))
        return {block.untyped_storage().data_ptr() for block in blocks}

    def _agreed(self, given: Mapping[str, torch.Tensor]) -> dict[str, float]:
        """What all ranks must have alike besides the plan: random numbers are functions of the seed. The agreement that
        opens a run compares it."""
        return {} if self.recorded.seed is None else {_SEED: float(given[self.recorded.seed])}

    def _value(self, each: Input, args: Sequence[Any]) -> torch.Tensor:
        if each.position is not None:
            value = args[each.position]
            return value if isinstance(value, DistributedTensor) else value.detach().resolve_conj().resolve_neg()
        if each.name == self.recorded.seed:
            return torch.randint(SEEDS, ())
        return self.recorded.constants[each.name]

    def _placed(self, name: str, value: torch.Tensor, tied: bool) -> _C.StoredRelation:
        here, type_ = self.here, self._types[name]
        if isinstance(value, DistributedTensor):
            if name in self._starts:
                core = value.stored.core()
                return core if core.type == type_ else _C.retyped(core, type_, here.store)
            value, tied = value.full_tensor().detach(), True
        if name in self.recorded.constants:
            if name not in self._constants:
                self._constants[name] = self._of_whole(value, type_, True)
            return self._constants[name]
        return self._of_whole(value, type_, tied)

    def _of_whole(self, value: torch.Tensor, type_: _C.PhysicalType, copied: bool) -> _C.StoredRelation:
        return _C.place_tensor(value, type_, self.here.local_sites, self.here.store, copied)

    def _result(self, output: Output, relation: _C.StoredRelation, memory: set[int]) -> torch.Tensor:
        if output.name in self._stay:
            return DistributedTensor(StoredRelation(relation, self.here), output.shape)
        whole = relation.whole_tensor(self.here.store)
        value = whole.reshape(output.shape) if output.tied is not None else output.of(whole)
        own = value.numel() > 1 and value.untyped_storage().data_ptr() not in memory and 0 not in value.stride()
        # No view, which autograd would not let the user write into.
        return value.detach() if own else value.clone(memory_format=torch.contiguous_format)

    def _compare(self, given: Mapping[str, torch.Tensor]) -> None:
        """Raises where the ranks' inputs differ."""
        lines = [
            f"input {name}: {list(x.shape)} {x.dtype}, "
            + (str(x.physical_type) if isinstance(x, DistributedTensor) else f"checksum {checksum(x)}")
            for name, x in given.items()
            if name != self.recorded.seed
        ]
        self.here.transport.agree("capture", "\n".join(["equal inputs on every rank", *lines]))


def _explained(error: TransportError) -> TransportError:
    """The error, with the remedy where ranks have drawn different seeds."""
    if f"scalar {_SEED} = " not in str(error):
        return error
    return TransportError(
        f"capture: random numbers would differ between ranks: {error}; draw alike from torch's default generator on "
        "every rank: call torch.manual_seed with one number, and draw what only some ranks need from a torch.Generator"
    )


def _position(output: Output) -> int | None:
    """The position of a result of the graph."""
    head, _, number = output.name.rpartition(".")
    return int(number) if head == "output" else None


def _distinct(names: Sequence[str]) -> list[str]:
    """Names that plans can have, each once."""
    out: list[str] = []
    for name in names:
        plain = "".join(c if c.isalnum() or c in "_." else "_" for c in name)
        plain = plain if plain[:1].isalpha() or plain[:1] == "_" else f"x{plain}"
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
    states = type_.placement.text(type_.relation.frontier).strip("()").split(",")
    mapped = []
    for state in (each.strip() for each in states if each.strip()):
        if state == "*":
            mapped.append(state)
        elif state.isdigit() and int(state) in dims:
            mapped.append(str(dims[int(state)]))
        else:
            return None
    placement = _C.Placement.parse(f"({', '.join(mapped)})", type_.grid, wanted.frontier)
    return _C.PhysicalType.placed("capture", wanted, type_.grid, placement)
