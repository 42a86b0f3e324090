"""Plans as values: what to compute (TraPlan), and where tuples are stored and move while it is computed (IaPlan)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import torch

from joinsum import _C
from joinsum.algebra.expression import Expression, build_plan, places_of
from joinsum.algebra.key_functions import table_entries
from joinsum.algebra.stored_relation import Place, resolve_place
from joinsum.base.arguments import show
from joinsum.base.errors import InternalError, PlanError
from joinsum.cluster.context import context

__all__ = [
    "IaPlan",
    "PlanNode",
    "TraPlan",
    "check_verified",
    "initial_placements",
    "lower",
    "parse",
    "plan",
    "verifying",
]

Core = TypeVar("Core", bound=_C.TraPlan | _C.IaPlan)
Type = TypeVar("Type", bound=_C.RelationType | _C.PhysicalType)


class _Plan(Generic[Core, Type]):
    """Named outputs over a graph of operators; immutable."""

    def __init__(self, core: Core) -> None:
        self._core: Core = core
        self._inputs: dict[str, Type] = dict(core.inputs)  # type: ignore[arg-type]  # the types are those of the core
        self._outputs: dict[str, Type] = {name: type_ for name, type_, _ in core.outputs}  # type: ignore[misc]

    @property
    def core(self) -> Core:
        """The C++ plan."""
        return self._core

    @property
    def inputs(self) -> dict[str, Type]:
        """Types of the inputs by name, in the order of first use."""
        return dict(self._inputs)

    @property
    def outputs(self) -> dict[str, Type]:
        """Types of the outputs by name."""
        return dict(self._outputs)

    @property
    def ties(self) -> dict[str, str]:
        """For each output that may overwrite an input, that input's name."""
        return {name: tied for name, _, tied in self._core.outputs if tied is not None}

    @property
    def text(self) -> str:
        """Printed form; `joinsum.parse` reads it. Equal plans print alike."""
        return str(self._core)

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self._core)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and bool(self._core == other._core)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self._inputs)} -> {', '.join(self._outputs)}>\n{self.text}"


class TraPlan(_Plan[_C.TraPlan, _C.RelationType]):
    """A plan of the tensor relational algebra: operators without sites. Source: TRA paper, section 3.

    `joinsum.plan` makes one of lazy relations, `joinsum.parse` of text. It holds no data.

    >>> import joinsum
    >>> joinsum.parse("tra\\ninput X: f32[4,4]<2,2>\\noutput Y = aggregate[0; add](X)")
    <TraPlan X -> Y>
    tra
    input X: f32[4,4]<2,2>
    t0 = aggregate[0; add](X): f32[4@0,2]<2>
    output Y = t0
    <BLANKLINE>
    """

    def __init__(self, core: _C.TraPlan, places: Mapping[str, Place] | None = None) -> None:
        super().__init__(core)
        self._places = dict(places or {})

    @property
    def places(self) -> dict[str, Place]:
        """The initial placements of inputs, as their relations specify them."""
        return dict(self._places)

    def __hash__(self) -> int:
        return super().__hash__()


class PlanNode(NamedTuple):
    """A node of a physical plan, named as the plan's text names it.

    kind        the operator's name: `local_join`; `input`
    operation   with its arguments: `local_join[1; 0; matmul]`
    inputs      names of the nodes that it reads
    type        what it holds, and where
    fused       whether it is a join that is computed with the sum above it
    core        the C++ node: the operator's arguments as data
    """

    name: str
    kind: str
    operation: str
    inputs: tuple[str, ...]
    type: _C.PhysicalType
    fused: bool
    core: _C.IaNodeRow

    @property
    def moves(self) -> bool:
        """Whether it brings tuples to other sites."""
        return self.kind in ("broadcast", "shuffle")

    @property
    def placement(self) -> str:
        """Its placement as plans print it: `(0, *)`."""
        return self.type.placement.text(self.type.relation.frontier)


class IaPlan(_Plan[_C.IaPlan, _C.PhysicalType]):
    """A plan of the implementation algebra: operators on placed tuples. Source: TRA paper, section 4.

    >>> import joinsum
    >>> plan = joinsum.parse("ia on 2\\ninput X: f32[4,4]<2,2> (0)\\noutput Y = broadcast(X)")
    >>> str(plan.grid), str(plan.outputs["Y"])
    ('2', 'f32[4,4]<2,2> on 2 (*)')
    """

    @property
    def grid(self) -> _C.Grid:
        """The sites that the plan is for."""
        return self._core.grid

    @property
    def nodes(self) -> tuple[PlanNode, ...]:
        """All nodes, each after its inputs.

        >>> import joinsum
        >>> plan = joinsum.parse("ia on 2\\ninput X: f32[4,4]<2,2> (0)\\noutput Y = broadcast(X)")
        >>> [(node.name, node.operation, node.inputs, node.placement) for node in plan.nodes]
        [('X', 'X', (), '(0)'), ('t0', 'broadcast[0]', ('X',), '(*)')]
        """
        fused = self._core.fused_joins
        return tuple(
            PlanNode(row.name, row.kind, row.operation, tuple(row.inputs), row.type, row.name in fused, row)
            for row in self._core.nodes
        )

    @property
    def output_nodes(self) -> dict[str, str]:
        """For each output, the node that it is."""
        return dict(zip(self.outputs, self._core.output_nodes, strict=True))

    def __hash__(self) -> int:
        return super().__hash__()


def plan(*, ties: Mapping[str, str] | None = None, **outputs: Expression) -> TraPlan:
    """The plan that computes these relations together; what they share is computed once.

    outputs   lazy relations by output name
    ties      for an output, the input whose block it may overwrite; they have one type

    Inputs are called as their relations are, those without a name r0, r1, ... in the order of first use.
    Raises PlanError: no output, two relations of one name, a tie to what is no input.

    >>> import joinsum, torch
    >>> w, g = (joinsum.relation(torch.ones(4), parts=2, name=name) for name in "WG")
    >>> print(joinsum.plan(W2=w.join(g, on=([0], [0]), kernel="sub"), ties={"W2": "W"}))
    tra
    input W: f32[4]<2>
    input G: f32[4]<2>
    t0 = join[0; 0; sub](W, G): f32[4]<2>
    output W2 -> W = t0
    <BLANKLINE>
    """
    for name, relation in outputs.items():
        if not isinstance(relation, Expression):
            raise PlanError(f"plan: an output is a joinsum.Relation: output={name}, got={type(relation).__name__}")
    tied = dict(ties or {})
    for output in tied:
        if output not in outputs:
            raise PlanError(f"plan: a tie of an unknown output: output={show(output)}, outputs={list(outputs)}")
    core, sources = build_plan(outputs, tied)
    return TraPlan(core, places_of(sources))


def lower(
    plan: TraPlan, place: Mapping[str, Place] | None = None, *, output_place: Mapping[str, Place] | None = None
) -> IaPlan:
    """Translates a logical plan operator by operator. Source: TRA paper, section 5.1, Table 1.

    place          where inputs start, by name: as for `joinsum.relation`. By default as their relations specify, or
                   split along the key dimensions in order
    output_place   where outputs end, by name. By default where their last operator leaves them; an output that is tied
                   to an input ends where that starts

    Raises PlanError for a placement that does not fit, or of an unknown input or output.

    >>> import joinsum
    >>> _ = joinsum.init(sites=4)
    >>> plan = joinsum.parse("tra\\ninput X: f32[4,4]<2,2>\\noutput Y = aggregate[0; add](X)")
    >>> print(joinsum.lower(plan, place={"X": [1, "*"]}))
    ia on 2x2
    input X: f32[4,4]<2,2> on 2x2 (1, *)
    t0 = shuffle[(0, 0)](X): f32[4,4]<2,2> on 2x2 (0, 0)
    t1 = local_aggregate[0; add](t0): f32[4@0,2]<2> on 2x2 (0, 0)
    output Y = t1
    <BLANKLINE>
    """
    grid = context().grid
    placements = initial_placements("lower", plan, place, grid)
    lowered = plan.core.lower(grid, placements, _final_placements("lower", plan, output_place or {}, grid))
    check_verified("lower", lowered, plan.core)
    return IaPlan(lowered)


def initial_placements(
    who: str, plan: TraPlan, place: Mapping[str, Place] | None, grid: _C.Grid
) -> dict[str, _C.Placement]:
    """Where inputs start, by name: as their relations specify, and as `place` does. Raises PlanError for an unknown
    input, and for what is no logical plan."""
    if not isinstance(plan, TraPlan):
        raise PlanError(f"{who}: not a logical plan: got={type(plan).__name__}")
    inputs = plan.inputs
    places = plan.places | dict(place or {})
    for name in places:
        if name not in inputs:
            raise PlanError(f"{who}: a placement for an unknown input: input={show(name)}, inputs={list(inputs)}")
    return {name: resolve_place(f"input {name}", spot, grid, inputs[name].frontier) for name, spot in places.items()}


def _final_placements(who: str, plan: TraPlan, place: Mapping[str, Place], grid: _C.Grid) -> dict[str, _C.Placement]:
    outputs, ties = plan.outputs, plan.ties
    for name in place:
        if name not in outputs:
            what = f"a placement for an unknown output: output={show(name)}, outputs={list(outputs)}"
            raise PlanError(f"{who}: {what}")
        if name in ties:
            raise PlanError(f"{who}: a tied output ends where its input starts: output={name}, input={ties[name]}")
    return {name: resolve_place(f"output {name}", spot, grid, outputs[name].frontier) for name, spot in place.items()}


def check_verified(who: str, plan: _C.IaPlan, program: _C.TraPlan) -> None:
    """Raises InternalError for a plan that the verifier does not accept, if every plan is verified."""
    if not verifying():
        return
    verdict = _C.verify(plan, program, 0, 4)
    if verdict.kind not in ("proved", "tested"):
        raise InternalError(f"{who}: the verifier does not accept a plan: {verdict.kind}: {verdict.reason}")


def verifying() -> bool:
    """Whether every plan of a program is verified: JOINSUM_VERIFY=1 in the environment."""
    return os.environ.get("JOINSUM_VERIFY", "0") not in ("", "0")


def parse(text: str, tables: Mapping[str, torch.Tensor | Sequence[int]] | None = None) -> TraPlan | IaPlan:
    """Reads a plan; its first line says which algebra: `tra`, or `ia on 2x2`.

    tables   the tables that `lookup(name, index)` in the plan reads, by name

    Raises PlanError, or KernelError for an unknown kernel, naming line and column.

    >>> import joinsum
    >>> turned = joinsum.parse("tra\\ninput X: f32[4]<2>\\noutput Y = rekey[(1 - k0)](X)")
    >>> joinsum.parse(turned.text) == turned
    True
    """
    if not isinstance(text, str):
        raise PlanError(f"parse: a plan is text: got={type(text).__name__}")
    values = {name: table_entries(table) for name, table in (tables or {}).items()}
    words = (line.split("#")[0].split() for line in text.splitlines())
    header = next((line for line in words if line), [""])[0]
    if header == "ia":
        return IaPlan(_C.IaPlan.parse(text, values))
    if header == "tra":
        return TraPlan(_C.TraPlan.parse(text, values))
    if header == "einsum":
        raise PlanError("parse: a graph of einsums; give the text to joinsum.Graph.parse: first word='einsum'")
    raise PlanError(f"parse: a plan begins with `tra`, or with `ia on` and a grid: first word={show(header)}")
