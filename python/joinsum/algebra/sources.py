"""Sources of lazy relations: a tensor, tuples, or a relation that is stored on the sites."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from joinsum import _C
from joinsum.algebra.stored_relation import Place, StoredRelation, check_fit, check_links, fitted_type
from joinsum.base.arguments import check_array, integers, shape_text, show
from joinsum.base.dtypes import dtype_name
from joinsum.base.errors import PlanError
from joinsum.cluster.cluster import Cluster
from joinsum.cluster.context import Context
from joinsum.sparse.conversions import compressed_indices
from joinsum.sparse.sparse_tensor import SparseTensor

__all__ = [
    "Source",
    "StoredSource",
    "TensorSource",
    "TuplesSource",
    "is_sparse",
    "source_of",
    "sparse_array",
    "stored_source",
]


@dataclass(frozen=True, eq=False)
class Source(ABC):
    """Tuples of a type, and their initial placement; each run that reads them stores them on the sites."""

    type: _C.RelationType
    place: Place | None

    @abstractmethod
    def placed(self, target: _C.PhysicalType, context: Context, copy: bool) -> _C.StoredRelation:
        """Blocks on the sites of this process. Without `copy` they are views where possible."""

    def tuples(self) -> list[tuple[list[int], torch.Tensor]]:
        """All tuples, ascending by key; every rank of a process group gets them."""
        one_site = Context(_C.make_loopback(1), Cluster(), None, 1.0, _C.make_store("memory"))
        everywhere = _C.Placement.replicated(one_site.grid)
        target = _C.PhysicalType.placed("input", self.type, one_site.grid, everywhere)
        return self.placed(target, one_site, False).tuples()

    @property
    def device(self) -> torch.device | None:
        """The device of the arrays; None without arrays, and for arrays that are stored already."""
        return None


@dataclass(frozen=True, eq=False)
class TensorSource(Source):
    """A tensor cut into tiles."""

    tensor: torch.Tensor

    def placed(self, target: _C.PhysicalType, context: Context, copy: bool) -> _C.StoredRelation:
        return _C.place_tensor(self.tensor, target, context.local_sites, context.store, copy)

    @property
    def device(self) -> torch.device | None:
        return self.tensor.device


@dataclass(frozen=True, eq=False)
class TuplesSource(Source):
    """Tuples with an array each."""

    pairs: Sequence[tuple[list[int], torch.Tensor]]

    def placed(self, target: _C.PhysicalType, context: Context, copy: bool) -> _C.StoredRelation:
        return _C.place_tuples(list(self.pairs), target, context.local_sites, context.store, copy)

    @property
    def device(self) -> torch.device | None:
        return self.pairs[0][1].device


@dataclass(frozen=True, eq=False)
class StoredSource(Source):
    """A relation that is stored on the sites. Plans move it only if it is `lazy`: the cached result of one."""

    stored: StoredRelation
    lazy: bool = False

    def placed(self, target: _C.PhysicalType, context: Context, copy: bool) -> _C.StoredRelation:
        stored = self.stored
        core = stored.core()
        if stored.context is not context:
            raise PlanError(f"input: stored on the sites of an earlier init; give its to_tensor(): type={stored.type}")
        if stored.type != target:
            if not self.lazy:
                spot = target.placement.text(target.relation.frontier)
                raise PlanError(
                    f"input: at another placement; give its move({spot!r}): wanted={target}, stored={stored.type}"
                )
            return stored.move(target.placement).core()
        if not copy:
            return core
        return _C.place_tuples(core.tuples(), target, context.local_sites, context.store, True)

    def tuples(self) -> list[tuple[list[int], torch.Tensor]]:
        return [(list(key), array) for key, array in self.stored.tuples()]


def tensor_source(x: torch.Tensor, parts: object, place: Place | None) -> TensorSource:
    """`x` cut into `parts[a]` tiles along axis a; by default one."""
    tensor = check_array("relation", x)
    counts = _counts(tensor, parts)
    type_ = _C.RelationType.of_tensor(dtype_name("relation", tensor.dtype), list(tensor.shape), counts)
    return TensorSource(type_, place, tensor)


def _counts(tensor: torch.Tensor, parts: object) -> list[int]:
    counts = [1] * tensor.dim() if parts is None else integers("relation", "parts", parts)
    if len(counts) != tensor.dim():
        raise PlanError(f"relation: parts name each axis once: parts={counts}, shape={shape_text(tensor)}")
    if any(count < 1 for count in counts):
        raise PlanError(f"relation: an axis has at least one part: parts={counts}")
    return counts


def is_sparse(x: object) -> bool:
    """Whether it is a SparseTensor, or a tensor of a sparse layout of torch's."""
    return isinstance(x, SparseTensor) or (isinstance(x, torch.Tensor) and x.layout in _SPARSE)


_SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def sparse_array(who: str, x: SparseTensor | torch.Tensor) -> torch.Tensor:
    """The entries in row-major order, as blocks store them: a coalesced `torch.sparse_coo` tensor without dense axes.

    Raises PlanError for another fill than 0, for indices that are malformed, and where the tensor is in autograd.
    """
    if x.requires_grad:
        remedy = "x.with_values(values.detach())" if isinstance(x, SparseTensor) else "x.detach()"
        raise PlanError(f"{who}: sparse tensors have no gradients here; give {remedy}: requires_grad=True")
    if math.prod(x.shape) * x.dtype.itemsize >= 2**63:
        raise PlanError(f"{who}: a tensor of 2^63 bytes or more, were it dense: shape={list(x.shape)}")
    if isinstance(x, SparseTensor):
        if x.fill != 0:
            raise PlanError(
                f"{who}: a sparse tensor is 0 here where it stores nothing; einsums and programs take other fills: "
                f"fill={x.fill}"
            )
        return x.to_torch("coo")
    dtype_name(who, x.dtype)
    if x.is_inference() and not torch.is_inference_mode_enabled():
        x = x.clone()  # torch lets nobody detach it here
    x = _well_formed(who, x.detach())
    coo = (x if x.layout is torch.sparse_coo else x.to_sparse(layout=torch.sparse_coo)).coalesce()
    if coo.dense_dim() > 0:
        raise PlanError(f"{who}: a sparse tensor has no dense axes here: dense axes={coo.dense_dim()}")
    return coo


def _well_formed(who: str, x: torch.Tensor) -> torch.Tensor:
    """The same sparse tensor, whose indices have been checked."""
    try:
        if x.layout is torch.sparse_coo:
            return torch.sparse_coo_tensor(
                x._indices(), x._values(), x.shape, is_coalesced=x.is_coalesced(), check_invariants=True
            )
        return torch.sparse_compressed_tensor(
            *compressed_indices(x), x.values(), x.shape, layout=x.layout, check_invariants=True
        )
    except RuntimeError as error:
        SparseTensor.from_torch(x)  # names the place of most mistakes
        raise PlanError(f"{who}: a malformed sparse tensor: layout={x.layout}, torch says: {error}") from error


def sparse_source(x: SparseTensor | torch.Tensor, parts: object, place: Place | None, balance: str) -> TensorSource:
    """A sparse tensor cut into tiles, which have about equally many indices or entries."""
    if balance not in ("indices", "entries"):
        raise PlanError(f"relation: parts have equally many what? balance={show(balance)}, choices=[indices, entries]")
    tensor = sparse_array("relation", x)
    counts, dtype = _counts(tensor, parts), dtype_name("relation", tensor.dtype)
    if balance == "entries":
        cuts = [_cuts_by_entries(*axis) for axis in zip(tensor.indices(), tensor.shape, counts, strict=True)]
        type_ = _C.RelationType.of_cuts(dtype, cuts)
    else:
        type_ = _C.RelationType.of_tensor(dtype, list(tensor.shape), counts)
    return TensorSource(type_.with_entries(tensor.values().numel()), place, tensor)


def _cuts_by_entries(indices: torch.Tensor, extent: int, parts: int) -> list[int]:
    """Cut points between which an axis has about equally many of these indices; no part is empty."""
    parts = max(1, min(parts, extent))
    below = torch.bincount(indices, minlength=extent).cumsum(0)
    wanted = below[-1:] * torch.arange(1, parts) / parts if extent else torch.empty(0)
    cuts = [0, *(torch.searchsorted(below, wanted) + 1).tolist(), extent]
    for part in range(1, parts):
        cuts[part] = min(max(cuts[part], cuts[part - 1] + 1), extent - (parts - part))
    return cuts


def tuples_source(
    tuples: Mapping[object, torch.Tensor] | Iterable[object], links: Sequence[int | None] | None, place: Place | None
) -> TuplesSource:
    """(key, array) pairs. An axis is linked as `links` says; by default axis a to key dimension a where there are as
    many key dimensions as axes, and where the extents allow it."""
    pairs = [_pair(entry) for entry in (tuples.items() if isinstance(tuples, Mapping) else tuples)]
    if not pairs:
        raise PlanError(
            "relation: no tuples, so neither rank nor dtype is known; filter a relation that has some: tuples=0"
        )
    first_key, first = pairs[0]
    for key, array in pairs:
        if len(key) != len(first_key):
            raise PlanError(f"relation: keys differ in length: key={key}, first key={first_key}")
        if array.dim() != first.dim():
            found = f"shape={shape_text(array)}, first shape={shape_text(first)}"
            raise PlanError(f"relation: arrays differ in rank: key={key}, {found}")
        if array.dtype != first.dtype or array.device != first.device:
            got, wanted = f"{array.dtype} on {array.device}", f"{first.dtype} on {first.device}"
            raise PlanError(f"relation: arrays differ in dtype or device: key={key}, array={got}, first={wanted}")
    arity, rank = len(first_key), first.dim()
    natural: list[int | None] = list(range(rank)) if arity == rank else [None] * rank
    wanted_links = natural if links is None else check_links("relation", links, rank, arity)
    shapes = [list(array.shape) for _, array in pairs]
    type_ = fitted_type(
        "relation", dtype_name("relation", first.dtype), [key for key, _ in pairs], shapes, wanted_links
    )
    if links is not None:
        check_fit("relation", type_, wanted_links)
    return TuplesSource(type_, place, pairs)


def _pair(entry: object) -> tuple[list[int], torch.Tensor]:
    if not isinstance(entry, (tuple, list)) or len(entry) != 2:
        raise PlanError(f"relation: tuples are (key, tensor) pairs: entry={show(entry)}")
    key = integers("relation", "key", entry[0])
    if any(component < 0 for component in key):
        raise PlanError(f"relation: negative key: key={key}")
    if any(component >= 2**62 for component in key):
        raise PlanError(f"relation: key out of range: key={key}")
    return key, check_array("relation", entry[1])


def stored_source(stored: StoredRelation, lazy: bool = False) -> StoredSource:
    """A stored relation. Plans read it at its placement, or, where no plan can, at the default placement."""
    placement = stored.type.placement
    startable = not placement.scattered and not placement.pending
    return StoredSource(stored.type.relation, placement if startable else None, stored, lazy)


def source_of(
    x: object,
    parts: object = None,
    links: Sequence[int | None] | None = None,
    place: Place | None = None,
    balance: str = "indices",
) -> Source:
    """The source that the arguments of `joinsum.relation` describe."""
    if place is not None and not isinstance(place, (str, Sequence, _C.Placement)):
        raise PlanError(f"relation: a placement is text, a list or 'replicated': place={show(place)}")
    if isinstance(x, (torch.Tensor, SparseTensor)):
        if links is not None:
            raise PlanError(
                f"relation: the axes of a tensor are linked already; links are for tuples: links={show(links)}"
            )
        if is_sparse(x):
            return sparse_source(x, parts, place, balance)
        assert isinstance(x, torch.Tensor)
        if balance != "indices":
            raise PlanError(f"relation: parts of a dense tensor have equally many indices: balance={show(balance)}")
        return tensor_source(x, parts, place)
    if parts is not None:
        raise PlanError(f"relation: parts cut a tensor; tuples have theirs: parts={show(parts)}")
    if balance != "indices":
        raise PlanError(
            f"relation: balance is of the parts of a sparse tensor; tuples have theirs: balance={show(balance)}"
        )
    if isinstance(x, StoredRelation):
        if place is not None:
            raise PlanError(f"relation: a stored relation has its place; use its move(place): type={x.type}")
        return stored_source(x)
    if isinstance(x, (Mapping, list, tuple)):
        return tuples_source(x, links, place)
    raise PlanError(
        f"relation: give a tensor, a dict or list of (key, tensor), or a stored relation: got={type(x).__name__}"
    )
