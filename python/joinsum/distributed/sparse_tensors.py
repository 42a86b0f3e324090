"""Sparse tensors of torch beside distributed ones: what torch's optimizers do with the sparse gradient of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from joinsum.base.errors import PlanError
from joinsum.distributed.block_tensor import BlockTensor
from joinsum.distributed.boxes import Box, boxes_of
from joinsum.distributed.reductions import is_everywhere

__all__ = ["is_sparse_operand", "packed", "sparse_mask", "with_sparse"]


def is_sparse_operand(x: object) -> bool:
    return isinstance(x, Tensor) and x.layout is torch.sparse_coo


def packed(x: Tensor) -> Tensor:
    """The tensor itself, or a copy where its strides are not those of a new tensor of its shape. torch takes the stride
    of an axis of one element for its row's length, and calls any such tensor contiguous."""
    new = torch.empty(x.shape, device="meta").stride()
    return x if x.stride() == new else x.clone(memory_format=torch.contiguous_format)


def with_sparse(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
    """Sums, differences and products of a distributed and a sparse tensor, which is equal on every rank."""
    name, (x, y) = func._opname, args
    if name == "mul":
        x, y = (y, x) if is_sparse_operand(x) else (x, y)
        found = sparse_mask(func, (x, y), {})
        return torch.sparse_coo_tensor(
            y._indices(), found._values() * y._values(), y.shape, is_coalesced=y.is_coalesced(), check_invariants=False
        )
    alpha = kwargs.get("alpha", 1) * (-1 if name.startswith("sub") else 1)
    into = x if name.endswith("_") or not isinstance(x, BlockTensor) else x.clone()
    return _add(func, into, y, alpha)


def _add(func: Any, x: Any, y: Tensor, alpha: Any) -> BlockTensor:
    """Each site adds what is in its blocks, in the order of the entries."""
    if not isinstance(x, BlockTensor) or x.shape != y.shape:
        raise PlanError(
            f"DistributedTensor: a sparse tensor is added to a distributed one of its shape: operator={func}, "
            f"shapes={list(x.shape)} and {list(y.shape)}"
        )
    with torch.no_grad():
        for box in boxes_of(x, replicas=True):
            array = packed(box.array)
            array.add_(_inside(box, y), alpha=alpha)
            if array is not box.array:
                box.array.copy_(array)
    return x


def sparse_mask(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
    """The elements of a distributed tensor where a sparse one, equal on every rank, has entries; on every rank."""
    x, mask = args
    if not isinstance(x, BlockTensor) or not is_sparse_operand(mask):
        raise PlanError(f"DistributedTensor: a mask is a sparse tensor in coordinates: operator={func}")
    indices, everywhere = mask._indices(), is_everywhere(x)
    values = torch.zeros(mask._values().shape, dtype=x.dtype, device=x.device)
    local = set(x.context.local_sites)
    for box in boxes_of(x):
        if everywhere or box.first in local:
            entries = _entries_in(box, mask)
            local_values = box.array[tuple(_local(box, indices, entries))]
            values[(entries, *_ranges(box, mask.sparse_dim()))] = local_values
    if not everywhere:
        values = torch.stack(x.context.all_gather(str(func), values, f"rows of shape={list(x.shape)}")).sum(0)
    return torch.sparse_coo_tensor(indices, values, x.shape, is_coalesced=mask.is_coalesced(), check_invariants=False)


def _inside(box: Box, y: Tensor) -> Tensor:
    """The range of a sparse tensor that a box has."""
    if box.array.shape == y.shape:
        return y
    entries = _entries_in(box, y)
    values = y._values()[(entries, *_ranges(box, y.sparse_dim()))]
    places = _local(box, y._indices(), entries)
    return torch.sparse_coo_tensor(places, packed(values), box.array.shape, check_invariants=False)


def _entries_in(box: Box, y: Tensor) -> Tensor | slice:
    """Which entries of a sparse tensor are in the box."""
    found = None
    for places, extent, begin, size in zip(y._indices(), y.shape, box.offsets, box.array.shape, strict=False):
        if size < extent:
            inside = (places >= begin) & (places < begin + size)
            found = inside if found is None else found & inside
    return slice(None) if found is None else found.nonzero()[:, 0]


def _local(box: Box, indices: Tensor, entries: Tensor | slice) -> Tensor:
    begins = torch.tensor(box.offsets[: indices.shape[0]], device=indices.device)
    return indices[:, entries] - begins[:, None]


def _ranges(box: Box, sparse: int) -> list[slice]:
    """The box's ranges of the axes after the first `sparse` ones."""
    pairs = zip(box.offsets, box.array.shape, strict=True)
    return [slice(begin, begin + size) for begin, size in pairs][sparse:]
