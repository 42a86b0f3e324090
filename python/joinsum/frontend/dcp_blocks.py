"""Blocks of distributed tensors as torch.distributed.checkpoint reads and writes them: a chunk for each box."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from joinsum.errors import PlanError

if TYPE_CHECKING:
    from joinsum.frontend.distributed_tensor import DistributedTensor

__all__ = ["chunks", "shard", "write_items"]


def _boxes(x: DistributedTensor) -> list[tuple[tuple[int, ...], torch.Tensor]]:
    """(offsets, array) of each part on the sites of this process, replicas once; the arrays are views."""
    out = []
    for key, array in x.stored.core().tuples(x.context.store):
        axes = x.physical_type.relation.axes
        offsets = tuple(0 if axis.key_dim is None else axis.cuts[key[axis.key_dim]] for axis in axes)
        out.append((offsets, array))
    return out


def _chunk(offsets: tuple[int, ...], array: torch.Tensor) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=torch.Size(offsets), sizes=array.shape)


def write_items(x: DistributedTensor, fqn: str) -> list[WriteItem]:
    """What this process writes of `x`."""
    properties = TensorProperties(dtype=x.dtype, requires_grad=x.requires_grad)
    return [
        WriteItem(
            index=MetadataIndex(fqn, torch.Size(offsets)),
            type=WriteItemType.SHARD,
            tensor_data=TensorWriteData(chunk=_chunk(offsets, array), properties=properties, size=x.size()),
        )
        for offsets, array in _boxes(x)
    ]


def chunks(x: DistributedTensor) -> list[ChunkStorageMetadata]:
    """What this process reads of `x`: replicas that are arrays of their own become one array first."""
    with torch.no_grad():
        x.share_replicas()
    return [_chunk(offsets, array) for offsets, array in _boxes(x)]


def shard(x: DistributedTensor, index: MetadataIndex) -> torch.Tensor:
    """The part at those offsets, to be read or written."""
    for offsets, array in _boxes(x):
        if index.offset is None or torch.Size(offsets) == index.offset:
            return array
    raise PlanError(f"DistributedTensor: no such part: name={index.fqn}, offset={index.offset}, type={x.physical_type}")
