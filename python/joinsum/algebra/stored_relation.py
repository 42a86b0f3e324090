"""Relations that are stored on the sites: the results of runs, which later runs read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter, is_not

import torch

from joinsum import _C
from joinsum.base.arguments import check_array, integer, show
from joinsum.base.dtypes import torch_dtype
from joinsum.base.errors import PlanError
from joinsum.base.identity import identical
from joinsum.cluster.context import Context, context

__all__ = ["Place", "StoredRelation", "cores_of", "fitted_type", "resolve_place"]

# A placement as users write it: text in a plan's notation, one state per grid axis, or None for the default.
Place = str | Sequence[int | str] | _C.Placement


def resolve_place(who: str, place: object, grid: _C.Grid, frontier: Sequence[int]) -> _C.Placement:
    """The placement that `place` names for a relation of that frontier.

    `"replicated"`, text as plans print it (`"(0, *)"`), or a list with one state per grid axis (`[0, "*"]`): a key
    dimension that the axis splits, or `"*"` for a copy at each of its coordinates.

    >>> resolve_place("relation", [0, "*"], _C.Grid.of_sites(4), [2, 2]).text([2, 2])
    '(0, *)'
    """
    if isinstance(place, _C.Placement):
        return place
    if isinstance(place, str):
        if place == "replicated":
            return _C.Placement.replicated(grid)
        return _parsed(who, place, grid, frontier)
    if not isinstance(place, Sequence):
        forms = "text such as '(0, *)', a list such as [0, '*'], or 'replicated'"
        raise PlanError(f"{who}: a placement is {forms}: place={show(place)}")
    states = [state if isinstance(state, str) else str(integer(who, "place", state)) for state in place]
    return _parsed(who, f"({', '.join(states)})", grid, frontier)


def _parsed(who: str, place: str, grid: _C.Grid, frontier: Sequence[int]) -> _C.Placement:
    try:
        return _C.Placement.parse(place, grid, list(frontier))
    except PlanError as error:
        raise PlanError(f"{who}: placement {place}: {error}") from None


def fitted_type(
    who: str, dtype: str, keys: Sequence[Sequence[int]], shapes: Sequence[Sequence[int]], links: Sequence[int | None]
) -> _C.RelationType:
    """Type of a relation of arrays of these shapes at these keys; axis a follows key dimension `links[a]` if it can."""
    arity = len(keys[0]) if keys else 0
    frontier = [max((key[dim] for key in keys), default=-1) + 1 for dim in range(arity)]
    all_keys, all_shapes = [list(key) for key in keys], [list(shape) for shape in shapes]
    preferred = [-1 if link is None else link for link in links]
    axes = _C.fit_axes(who, frontier, all_keys, all_shapes, preferred)
    return _C.RelationType.make(who, dtype, frontier, axes, all_keys)


class StoredRelation:
    """A relation whose arrays are stored on the sites; `joinsum.run` returns and reads it, `joinsum.relation` reads it.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> x = joinsum.relation(torch.arange(4.), parts=2).stored()
    >>> x
    <StoredRelation f32[4]<2> on 2 (0)>
    >>> x.tuples()
    [((0,), tensor([0., 1.])), ((1,), tensor([2., 3.]))]
    """

    __slots__ = ("_array", "_context", "_core", "_type")

    def __init__(self, core: _C.StoredRelation, context: Context, type_: _C.PhysicalType | None = None) -> None:
        """type_   that of `core`, if the caller has it: relations that share the object are compared by identity"""
        self._core: _C.StoredRelation | None = core
        self._array: torch.Tensor | None = None  # the only block, until it enters the store
        self._type = core.type if type_ is None else type_
        self._context = context

    @classmethod
    def of_array(cls, array: torch.Tensor, type_: _C.PhysicalType, context: Context) -> StoredRelation:
        """The relation of which this process has one block, `array`: shared, not copied. The block enters the store
        when a plan first reads it; until then torch frees its memory as that of any tensor."""
        relation = cls.__new__(cls)
        relation._core, relation._array, relation._type, relation._context = None, array, type_, context
        return relation

    @classmethod
    def of_blocks(cls, blocks: Sequence[torch.Tensor], type_: _C.PhysicalType) -> StoredRelation:
        """The relation whose blocks on the sites of this process are these: shared, not copied, in the order in which
        `blocks` gives them. Moves nothing, and each rank of a process group gives its own.

        type_   type and placement, as the `inputs` and `outputs` of a physical plan have them

        Raises PlanError for another number of blocks, and for one of another shape or dtype.

        >>> import joinsum, torch
        >>> _ = joinsum.init(sites=2)
        >>> plan = joinsum.parse("ia on 2\\ninput X: f32[4]<2> (0)\\noutput Y = broadcast(X)")
        >>> x = joinsum.StoredRelation.of_blocks([torch.zeros(2), torch.ones(2)], plan.inputs["X"])
        >>> joinsum.run(plan, {"X": x})["Y"].to_tensor()
        tensor([0., 0., 1., 1.])
        """
        current = context()
        arrays = [check_array("stored relation", block) for block in blocks]
        wanted = torch_dtype(type_.relation.dtype)
        for array in arrays:
            if array.dtype is not wanted:
                raise PlanError(f"stored relation: a block has another dtype: wanted={wanted}, block={array.dtype}")
        return cls(_C.place_blocks(arrays, type_, current.local_sites, current.store), current, type_)

    def __repr__(self) -> str:
        state = "" if self.alive else ", overwritten"
        return f"<StoredRelation {self._type}{state}>"

    @property
    def type(self) -> _C.PhysicalType:
        """Type and placement; prints as in plans: `f32[4]<2> on 2 (0)`."""
        return self._type

    @property
    def context(self) -> Context:
        """The sites that store it."""
        return self._context

    @property
    def alive(self) -> bool:
        """Whether it can still be read: a run whose output is tied to it may have overwritten it."""
        return self._core is not None or self._array is not None

    def tuples(self) -> list[tuple[tuple[int, ...], torch.Tensor]]:
        """All tuples, ascending by key, as copies; every rank of a process group gets them, and all must call.

        Raises PlanError when a run has overwritten the relation.
        """
        return self._copies(self._everywhere())

    def local_tuples(self) -> list[tuple[tuple[int, ...], torch.Tensor]]:
        """Tuples on the sites of this process, ascending by key, replicas once, as copies; moves nothing."""
        return self._copies(self.core())

    def to_tensor(self, links: Sequence[int | None] | None = None) -> torch.Tensor:
        """The tensor that the relation represents: each axis assembled from the tiles that a key dimension numbers.

        links   for each array axis, the key dimension that numbers its tiles, or None; by default those of the type

        Every rank of a process group gets the tensor, and all must call. It shares no memory with the relation. Of a
        sparse relation it is a `torch.sparse_coo` tensor.
        Raises PlanError where a key is missing or occurs twice, or a key dimension numbers the tiles of no axis.

        >>> import joinsum, torch
        >>> tiles = joinsum.relation({(1, 0): torch.tensor([3.]), (0, 0): torch.tensor([2.])})
        >>> tiles.to_tensor(links=[0])
        tensor([2., 3.])
        """
        core = self._everywhere()
        if links is not None:
            core = self._relinked(core, links)
        tensor = core.whole_tensor(self._context.store)
        return tensor.clone() if tensor.is_sparse or core.shares_memory(tensor) else tensor

    def move(self, place: Place) -> StoredRelation:
        """A copy of the relation at another placement. All ranks of a process group must call.

        >>> import joinsum, torch
        >>> _ = joinsum.init(sites=4)
        >>> joinsum.relation(torch.ones(4, 4), parts=(2, 2)).stored().move([0, "*"])
        <StoredRelation f32[4,4]<2,2> on 2x2 (0, *)>
        """
        target = resolve_place("move", place, self._context.grid, self._type.relation.frontier)
        source = _C.ia_input("moved", self._type)
        moved = _C.ia_broadcast(source) if target.fully_replicated else _C.ia_shuffle(source, target)
        return StoredRelation(self._moved(moved), self._context)

    def core(self) -> _C.StoredRelation:
        """The C++ relation; raises PlanError when a run has overwritten it."""
        if self._core is None:
            if self._array is None:
                raise PlanError(f"stored relation: a run has overwritten it; use the run's output: type={self._type}")
            current = self._context
            self._core = _C.place_blocks([self._array], self._type, current.local_sites, current.store)
            self._array = None
        return self._core

    def blocks(self) -> list[torch.Tensor]:
        """The arrays on the sites of this process, site by site, not copied; raises PlanError when a run has
        overwritten them."""
        return self.core().blocks() if self._array is None else [self._array]

    def only_block(self) -> torch.Tensor | None:
        """The array of a process that has one; None where it has several, or none. Raises as `blocks` does."""
        if self._array is not None:
            return self._array
        blocks = self.core().blocks()
        return blocks[0] if len(blocks) == 1 else None

    def has_layout_of(self, other: StoredRelation) -> bool:
        """Whether type, placement and sites are the same. Such relations share their type object, so that the next
        comparison is by identity."""
        if self._type is other._type:
            return self._context is other._context
        if self._context is not other._context or self._type != other._type:
            return False
        self._type = other._type
        return True

    def take(self) -> None:
        """Marks the relation as overwritten by a run."""
        self._core = self._array = None

    def _moved(self, node: _C.IaNode) -> _C.StoredRelation:
        plan = _C.IaPlan.make([("out", node, None)])
        return self._context.execute(plan, {"moved": self.core()}, {}, traced=False)["out"]

    def _everywhere(self) -> _C.StoredRelation:
        """The same relation with all tuples on sites of this process."""
        placement = self._type.placement
        if (self._context.single_process or placement.fully_replicated) and not placement.pending:
            return self.core()
        return self._moved(_C.ia_broadcast(_C.ia_input("moved", self._type)))

    def _copies(self, core: _C.StoredRelation) -> list[tuple[tuple[int, ...], torch.Tensor]]:
        return [(tuple(key), array.clone()) for key, array in core.tuples()]

    def _relinked(self, core: _C.StoredRelation, links: Sequence[int | None]) -> _C.StoredRelation:
        """The same tuples under a type with these links, on one site."""
        relation = self._type.relation
        wanted = check_links("to_tensor", links, relation.rank, relation.arity)
        pairs = core.tuples()
        shapes = [list(array.shape) for _, array in pairs]
        fitted = fitted_type("to_tensor", relation.dtype, [key for key, _ in pairs], shapes, wanted)
        check_fit("to_tensor", fitted, wanted)
        one_site = _C.Grid.of_sites(1)
        place = _C.PhysicalType.placed("to_tensor", fitted, one_site, _C.Placement.replicated(one_site))
        return _C.place_tuples(pairs, place, [0], self._context.store, False)


_type_of, _context_of, _core_of = attrgetter("_type"), attrgetter("_context"), attrgetter("_core")


def cores_of(
    relations: Sequence[StoredRelation], types: Sequence[_C.PhysicalType], context: Context
) -> list[_C.StoredRelation] | None:
    """What plans read of relations on the sites of `context`, if their types are these objects; None where they are
    not, or where a block has not entered the store."""
    if not identical(list(map(_type_of, relations)), types):
        return None
    if list(map(_context_of, relations)).count(context) != len(relations):
        return None
    cores = list(map(_core_of, relations))
    return cores if all(map(is_not, cores, repeat(None))) else None


def check_links(who: str, links: object, rank: int, arity: int) -> list[int | None]:
    """`links` as one key dimension, or None, for each of `rank` axes."""
    if isinstance(links, (str, bytes)) or not isinstance(links, Sequence) or len(links) != rank:
        raise PlanError(
            f"{who}: links name a key dimension or None for each array axis: links={show(links)}, rank={rank}"
        )
    checked = [None if link is None else integer(who, "link", link) for link in links]
    for link in checked:
        if link is not None and not 0 <= link < arity:
            raise PlanError(f"{who}: link to a key dimension that is not there: link={link}, key arity={arity}")
    return checked


def check_fit(who: str, fitted: _C.RelationType, links: Sequence[int | None]) -> None:
    """Raises where an axis could not be linked as requested."""
    for index, (axis, link) in enumerate(zip(fitted.axes, links, strict=True)):
        if link is not None and axis.key_dim != link:
            what = "extents along an axis are no function of the key dimension it is linked to"
            raise PlanError(f"{who}: {what}: axis={index}, key dimension={link}")
