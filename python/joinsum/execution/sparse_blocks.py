"""Sparse operands as sites store them. What is made of a `SparseTensor` is kept with it, for the next call that reads
it; torch's own sparse tensors, which may be written to, are read anew in each call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from joinsum import _C
from joinsum.algebra.sources import sparse_array
from joinsum.sparse import SparseTensor

__all__ = ["array_of", "block_of", "placed", "sample_of"]

# Of one tensor, in the ways in which plans divide it.
_MOST_PLACED = 4

_KEPT = "_joinsum_kept"


class _Kept:
    """What is kept of a tensor: a sample of its entries, and its blocks by how they are divided, in one store."""

    def __init__(self) -> None:
        self.sample: np.ndarray | None = None
        self.store: _C.BlockStore | None = None
        self.relations: dict[tuple[str, tuple[int, ...]], _C.StoredRelation] = {}


def block_of(x: SparseTensor) -> torch.Tensor:
    """The tensor as a coalesced `torch.sparse_coo` one with the elements that it stores; of a dense last level those
    that are not at the fill, unless its values were given, which may have gradients. Nobody writes to it.

    >>> block_of(SparseTensor.from_edges([[1, 0], [0, 2]], 3)).indices()
    tensor([[0, 1],
            [2, 0]])
    """
    known: torch.Tensor | None = x.calls.get(_KEPT)
    if known is not None:
        return known
    shared = x.shared_values is not None
    indices, values = x.handle.to_coordinates(without_fill=x.levels[-1:] == ("dense",) and not shared)
    columns = torch.stack(indices) if indices else torch.empty((0, len(values)), dtype=torch.int64)
    made = torch.sparse_coo_tensor(columns, values, x.shape, is_coalesced=True, check_invariants=False)
    if not shared:
        setattr(made, _KEPT, _Kept())
        x.calls[_KEPT] = made
    return made


def array_of(who: str, x: SparseTensor | torch.Tensor) -> torch.Tensor:
    """The entries of a tensor of fill 0 as sites store them, as `sparse_array`, which says what it raises."""
    kept = isinstance(x, SparseTensor) and x.shared_values is None and x.fill == 0
    if isinstance(x, SparseTensor) and kept and math.prod(x.shape) * x.dtype.itemsize < 2**63:
        return block_of(x)
    return sparse_array(who, x)


def sample_of(x: torch.Tensor, look: Callable[[torch.Tensor], np.ndarray]) -> np.ndarray:
    """`look(x)`, once for a tensor that is kept."""
    kept: _Kept | None = getattr(x, _KEPT, None)
    if kept is None:
        return look(x)
    if kept.sample is None:
        kept.sample = look(x)
    return kept.sample


def placed(x: torch.Tensor, type_: _C.PhysicalType, sites: Sequence[int], store: _C.BlockStore) -> _C.StoredRelation:
    """The tensor's blocks on these sites, once for a tensor that is kept. Nothing overwrites sparse blocks."""
    kept: _Kept | None = getattr(x, _KEPT, None)
    if kept is None:
        return _C.place_tensor(x, type_, sites, store, False)
    if kept.store is not store or len(kept.relations) >= _MOST_PLACED:
        kept.store, kept.relations = store, {}
    key = str(type_), tuple(sites)
    if key not in kept.relations:
        kept.relations[key] = _C.place_tensor(x, type_, sites, store, False)
    return kept.relations[key]
