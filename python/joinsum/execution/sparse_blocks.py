"""Sparse operands as sites store them. What is made of a `SparseTensor` is cached with it, for the next call that reads
it; torch's own sparse tensors, which may be written to, are read anew in each call."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from joinsum import _C
from joinsum.algebra.sources import sparse_array
from joinsum.cluster.context import Context
from joinsum.sparse import SparseTensor

__all__ = ["array_of", "block_of", "placed", "sample_of"]

# Of one tensor, in the ways in which plans divide it.
_MOST_PLACED = 4

_CACHE = "_joinsum_cache"


class _Cache:
    """What is cached with a tensor: a sample of its entries. Contexts have its blocks."""

    sample: np.ndarray | None = None


def block_of(x: SparseTensor) -> torch.Tensor:
    """The tensor as a coalesced `torch.sparse_coo` one with the elements that it stores; of a dense last level those
    that are not at the fill, unless its values were given, which may have gradients. Nobody writes to it.

    >>> block_of(SparseTensor.from_edges([[1, 0], [0, 2]], 3)).indices()
    tensor([[0, 1],
            [2, 0]])
    """
    known: torch.Tensor | None = x.calls.get(_CACHE)
    if known is not None:
        return known
    shared = x.shared_values is not None
    with torch.inference_mode(False):  # calls with gradients may read it, too
        indices, values = x.handle.to_coordinates(without_fill=x.levels[-1:] == ("dense",) and not shared)
        columns = torch.stack(indices) if indices else torch.empty((0, len(values)), dtype=torch.int64)
        made = torch.sparse_coo_tensor(columns, values, x.shape, is_coalesced=True, check_invariants=False)
    if not shared:
        setattr(made, _CACHE, _Cache())
        x.calls[_CACHE] = made
    return made


def array_of(who: str, x: SparseTensor | torch.Tensor) -> torch.Tensor:
    """The entries of a tensor of fill 0 as sites store them, as `sparse_array`, which says what it raises."""
    if not isinstance(x, SparseTensor) or x.shared_values is not None:
        return sparse_array(who, x)
    is_stored = x.fill == 0 and math.prod(x.shape) * x.dtype.itemsize < 2**63
    return block_of(x) if is_stored else sparse_array(who, x)


def sample_of(x: torch.Tensor, look: Callable[[torch.Tensor], np.ndarray]) -> np.ndarray:
    """`look(x)`, once for a tensor that is cached."""
    cache: _Cache | None = getattr(x, _CACHE, None)
    if cache is None:
        return look(x)
    if cache.sample is None:
        cache.sample = look(x)
    return cache.sample


def placed(current: Context, x: torch.Tensor, type_: _C.PhysicalType) -> _C.StoredRelation:
    """The tensor's blocks on a context's sites, once for a tensor that is cached. Nothing overwrites sparse blocks."""

    def place() -> _C.StoredRelation:
        return _C.place_tensor(x, type_, current.local_sites, current.store, False)

    cache: _Cache | None = getattr(x, _CACHE, None)
    if cache is None:
        return place()
    known = current.sparse_blocks.setdefault(cache, {})
    key = str(type_)
    found = known.get(key)
    if found is None:
        found = place()
        if len(known) >= _MOST_PLACED:
            known.clear()
        known[key] = found
    return found
