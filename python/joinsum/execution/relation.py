"""Lazy tensor relations: the algebra as methods. Nothing runs before its tuples are requested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch

from joinsum import _C
from joinsum.algebra.expression import Expression, build_plan
from joinsum.algebra.key_functions import table_entries, trace_key_map, trace_predicate
from joinsum.algebra.plan import IaPlan, TraPlan
from joinsum.algebra.plan import lower as lower_plan
from joinsum.algebra.plan import plan as plan_of
from joinsum.algebra.sources import Source, source_of
from joinsum.algebra.stored_relation import Place, StoredRelation
from joinsum.base.arguments import integer, integers, kernel_named, show
from joinsum.base.errors import PlanError
from joinsum.cluster.cluster import Cluster
from joinsum.cluster.context import context
from joinsum.execution.run import evaluate_relation
from joinsum.planner.cost import PlanCost
from joinsum.planner.cost import cost as cost_of

__all__ = ["Relation", "relation"]

Tables = Mapping[str, torch.Tensor | Sequence[int]]


class Relation(Expression):
    """A bag of (key, array) tuples that is computed when it is requested, and then cached.

    `joinsum.relation` makes one; each operator below gives another. Its type, and every error that follows from it, is
    found at once. Plans read what a tensor holds when they run. Source: TRA paper, section 3.1.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=4)
    >>> a = joinsum.relation(torch.tensor([[1, 2], [3, 4]]), parts=(2, 2))
    >>> b = a.join(a, on=([1], [0]), kernel="matmul").aggregate(keep=[0, 2], kernel="add")
    >>> b
    <Relation i64[2,2]<2,2> = aggregate[0, 2; add]>
    >>> b.to_tensor()
    tensor([[ 7, 10],
            [15, 22]])
    """

    explain: ClassVar[Callable[..., Any]]  # set by the room of explanations, which is above this one

    __slots__ = ("_stored",)

    def __init__(
        self,
        node: _C.TraNode,
        operands: Sequence[Expression] = (),
        source: Source | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(node, operands, source, name)
        self._stored: StoredRelation | None = None

    def __repr__(self) -> str:
        made = f"= {_C.tra_operation_text(self.node)}" if self.source is None else f"from {self.name or 'data'}"
        return f"<Relation {self.type} {made}>"

    @property
    def type(self) -> _C.RelationType:
        """Dtype, array axes and key frontier; prints as plans do: `f32[100,50]<4,2>`."""
        return self.node.type

    # --- operators ----------------------------------------------------------------------------------------------------

    def join(
        self, other: Relation, on: tuple[Iterable[int], Iterable[int]] = ((), ()), kernel: str = "mul"
    ) -> Relation:
        """Pairs the tuples that agree on the join keys, and runs a kernel of two operands on each pair of arrays.

        on       key dimensions of this relation, and those of `other` that must equal them, in order
        kernel   as `joinsum.kernels()` lists them, with parameters in brackets: `"contract[ij,jk->ik]"`

        The new key is all of this one's components, then those of `other` that are no join keys.
        Raises PlanError, KernelError. Source: section 3.1 (2).

        >>> import joinsum, torch
        >>> x = joinsum.relation({0: torch.tensor(2.), 1: torch.tensor(3.)})
        >>> x.join(x, on=([], []), kernel="mul").tuples()
        [((0, 0), tensor(4.)), ((0, 1), tensor(6.)), ((1, 0), tensor(6.)), ((1, 1), tensor(9.))]
        """
        if not isinstance(other, Relation):
            raise PlanError(f"join: the other operand is a joinsum.Relation: got={type(other).__name__}")
        if not isinstance(on, (tuple, list)) or len(on) != 2:
            raise PlanError(f"join: on names the key dimensions of both sides, as in ([1], [0]): on={show(on)}")
        left, right = (integers("join", "on", dims) for dims in on)
        named = kernel_named("join", kernel)
        return Relation(_C.tra_join(self.node, other.node, left, right, named), (self, other))

    def aggregate(self, keep: Iterable[int], kernel: str = "add") -> Relation:
        """Aggregates the tuples that agree on the key dimensions `keep`, which become the key in that order.

        kernel   of two operands of one shape, associative and commutative where several keys fall together

        Raises PlanError, KernelError. Source: section 3.1 (1).

        >>> import joinsum, torch
        >>> joinsum.relation(torch.arange(6.), parts=3).aggregate(keep=[], kernel="add").tuples()
        [((), tensor([6., 9.]))]
        """
        dims = integers("aggregate", "keep", keep)
        return Relation(_C.tra_aggregate(self.node, dims, kernel_named("aggregate", kernel)), (self,))

    def rekey(self, function: Callable[..., object] | str, tables: Tables | None = None) -> Relation:
        """Gives each tuple the key that `function` makes of its own.

        function   of the key's components, returning a tuple of integer expressions; called once with recording objects
                   (`joinsum.key_trace`). Or text: `"(k1, k0)"`
        tables     those that `lookup(name, index)` in a text reads

        Raises PlanError for what cannot be recorded, and for a negative component, naming the key.
        Source: section 3.1 (3).

        >>> import joinsum, torch
        >>> x = joinsum.relation(torch.arange(4.), parts=4)
        >>> x.rekey(lambda i: (i // 2, i % 2)).type
        f32[1]<2,2>
        >>> x.rekey(lambda i: 3 - i).tuples()[0]
        ((0,), tensor([3.]))
        """
        key_map = trace_key_map("rekey", function, self.type.arity, _table_values(tables))
        return Relation(_C.tra_rekey(self.node, key_map), (self,))

    def filter(self, predicate: Callable[..., object] | str, tables: Tables | None = None) -> Relation:
        """Keeps the tuples whose key satisfies `predicate`, a function of the key's components, or text, as in `rekey`.

        Raises PlanError for what cannot be recorded. Source: section 3.1 (4).

        >>> import joinsum, torch
        >>> x = joinsum.relation(torch.arange(4.).reshape(2, 2), parts=(2, 2))
        >>> x.filter(lambda i, j: i == j).tuples()
        [((0, 0), tensor([[0.]])), ((1, 1), tensor([[3.]]))]
        """
        traced = trace_predicate("filter", predicate, self.type.arity, _table_values(tables))
        return Relation(_C.tra_filter(self.node, traced), (self,))

    def upsert(self, updates: Relation) -> Relation:
        """The tuples of `updates`, and those of this relation whose key it lacks: SQL's upsert.

        updates   of this relation's dtype, with keys and arrays of as many dimensions; new keys are inserted

        No relation changes: this gives another one. Raises PlanError. Not an operator of the paper.

        >>> import joinsum, torch
        >>> x = joinsum.relation(torch.arange(4.), parts=4)
        >>> x.upsert(joinsum.relation({1: torch.tensor([7.]), 4: torch.tensor([8.])})).to_tensor(links=[0])
        tensor([0., 7., 2., 3., 8.])
        """
        if not isinstance(updates, Relation):
            raise PlanError(f"upsert: updates are a joinsum.Relation: got={type(updates).__name__}")
        return Relation(_C.tra_upsert(self.node, updates.node), (self, updates))

    def transform(self, kernel: str) -> Relation:
        """Runs a kernel of one operand on each array. Raises PlanError, KernelError. Source: section 3.1 (5).

        >>> import joinsum, torch
        >>> joinsum.relation(torch.tensor([-1., 2.])).transform("scale[0.5]").to_tensor()
        tensor([-0.5000,  1.0000])
        """
        return Relation(_C.tra_transform(self.node, kernel_named("transform", kernel)), (self,))

    def tile(self, axis: int, size: int) -> Relation:
        """Cuts each array in pieces of `size` elements along `axis`; a new last key component counts them.

        The last piece may be shorter. Raises PlanError. Source: section 3.1 (6).

        >>> import joinsum, torch
        >>> joinsum.relation(torch.arange(5)).tile(axis=0, size=2).tuples()
        [((0, 0), tensor([0, 1])), ((0, 1), tensor([2, 3])), ((0, 2), tensor([4]))]
        """
        along, length = integer("tile", "axis", axis), integer("tile", "size", size)
        return Relation(_C.tra_tile(self.node, along, length), (self,))

    def concat(self, key_dim: int, axis: int) -> Relation:
        """Joins the arrays that differ in key component `key_dim` only along `axis`, in key order.

        Raises PlanError where one is missing or occurs twice. Source: section 3.1 (7).

        >>> import joinsum, torch
        >>> x = joinsum.relation(torch.arange(4).reshape(2, 2), parts=(2, 2))
        >>> x.concat(key_dim=1, axis=1).tuples()
        [((0,), tensor([[0, 1]])), ((1,), tensor([[2, 3]]))]
        """
        dim, along = integer("concat", "key_dim", key_dim), integer("concat", "axis", axis)
        return Relation(_C.tra_concat(self.node, dim, along), (self,))

    # --- results ------------------------------------------------------------------------------------------------------

    def stored(self) -> StoredRelation:
        """The relation as the sites store it: computed at the first call, then the same one until a run overwrites it.

        Every rank of a process group must call, with an equal program (checked before anything moves).
        """
        stored = self._stored
        if stored is None or not stored.alive or stored.context is not context():
            stored = self._stored = evaluate_relation(*build_plan({"out": self}, {}))
        return stored

    def tuples(self) -> list[tuple[tuple[int, ...], torch.Tensor]]:
        """All (key, array) tuples, ascending by key; every rank of a process group gets them, and all must call.

        >>> import joinsum, torch
        >>> joinsum.relation([((0,), torch.tensor(1)), ((0,), torch.tensor(2))]).tuples()
        [((0,), tensor(1)), ((0,), tensor(2))]
        """
        return self.stored().tuples()

    def local_tuples(self) -> list[tuple[tuple[int, ...], torch.Tensor]]:
        """The tuples on this process's sites only, ascending by key, replicas once."""
        return self.stored().local_tuples()

    def to_tensor(self, links: Sequence[int | None] | None = None) -> torch.Tensor:
        """The tensor that the relation represents; see `StoredRelation.to_tensor`.

        >>> import joinsum, torch
        >>> joinsum.relation(torch.arange(3), parts=3).rekey(lambda i: 2 - i).to_tensor(links=[0])
        tensor([2, 1, 0])
        """
        return self.stored().to_tensor(links)

    # --- plans --------------------------------------------------------------------------------------------------------

    def plan(self, name: str = "out") -> TraPlan:
        """The logical plan with this relation as its one output.

        >>> import joinsum, torch
        >>> print(joinsum.relation(torch.ones(4), parts=2, name="X").transform("relu").plan("Y"))
        tra
        input X: f32[4]<2>
        t0 = transform[relu](X): f32[4]<2>
        output Y = t0
        <BLANKLINE>
        """
        return plan_of(ties=None, **{name: self})

    def lower(self) -> IaPlan:
        """The plan in the implementation algebra, for the sites there are; see `joinsum.lower`."""
        return lower_plan(self.plan())

    def cost(self, cluster: Cluster | None = None) -> PlanCost:
        """What computing it costs, on the context's cluster by default; see `joinsum.cost`."""
        return cost_of(self.plan(), cluster)


def relation(
    x: object,
    parts: int | Iterable[int] | None = None,
    *,
    links: Sequence[int | None] | None = None,
    place: Place | None = None,
    balance: str = "indices",
    name: str | None = None,
) -> Relation:
    """A lazy relation of a tensor, of tuples, or of a stored relation.

    x       a tensor without gradient, dense or sparse (`joinsum.SparseTensor`, and torch's layouts); or a dict, or a
            list that may repeat keys, of (key, tensor): a key is a tuple of ints or an int, the arrays are dense and
            have one rank, dtype and device; or a `StoredRelation`
    parts   of a tensor: the number of parts of each axis (an int for one axis, by default 1 each). Part i of an axis of
            n elements in c parts is [ceil(i n / c), ceil((i + 1) n / c)); more parts than elements gives n
    links   of tuples: for each array axis the key dimension that counts its parts, or None for an axis of one extent.
            By default axis a is linked to key dimension a where there are as many of both and the extents allow it
    place   where it starts: `"replicated"`, text (`"(0, *)"`) or a list (`[0, "*"]`) with one state per grid axis, a
            key dimension that the axis splits or `"*"`. By default split along its key dimensions in order
    balance of a sparse tensor: `"indices"`, or `"entries"`, which cuts each axis so that its parts have about equally
            many entries
    name    of the plan's input; by default r0, r1, ... in the order of first use

    A tensor is read, not copied, when a plan runs. On a process group every rank passes the unsharded tensor.
    Raises PlanError. Source: TRA paper, section 3; cut points as in `docs/algebra.md`, section 1.

    >>> import joinsum, torch
    >>> joinsum.relation(torch.ones(10, 6), parts=(4, 2))
    <Relation f32[10,6]<4,2> from data>
    >>> [tuple(array.shape) for _, array in joinsum.relation(torch.ones(10), parts=4).tuples()]
    [(3,), (2,), (3,), (2,)]
    >>> joinsum.relation({(0, 0): torch.ones(2), (1, 1): torch.ones(2)}, name="D").type
    f32[2]<2,2> hole<0,1>
    >>> joinsum.relation(torch.eye(6).to_sparse(), parts=(3, 1)).type
    f32[6,6]<3,1> sparse{6}
    """
    if isinstance(x, Relation):
        raise PlanError(f"relation: it is one already: got={x!r}")
    if name is not None and not isinstance(name, str):
        raise PlanError(f"relation: a name is text: name={show(name)}")
    source = source_of(x, parts, links, place, balance)
    return Relation(_C.tra_input("r0" if name is None else name, source.type), (), source, name)


def _table_values(tables: Tables | None) -> dict[str, list[int]]:
    return {name: table_entries(table) for name, table in (tables or {}).items()}
