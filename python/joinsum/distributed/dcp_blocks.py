"""Blocks of distributed tensors as torch.distributed.checkpoint reads and writes them: a chunk for each box."""

from __future__ import annotations

import torch
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from joinsum.base.errors import PlanError
from joinsum.distributed.block_tensor import BlockTensor
from joinsum.distributed.boxes import boxes_of

__all__ = ["chunks", "shard", "write_items"]


def _boxes(x: BlockTensor) -> list[tuple[tuple[int, ...], torch.Tensor]]:
    """(offsets, array) of what each site of this process has, replicas once; the arrays are views."""
    return [(each.offsets, each.array) for each in boxes_of(x)]


def _chunk(offsets: tuple[int, ...], array: torch.Tensor) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=torch.Size(offsets), sizes=array.shape)


def write_items(x: BlockTensor, fqn: str) -> list[WriteItem]:
    """The boxes of `x` that this process writes."""
    properties = TensorProperties(dtype=x.dtype, requires_grad=x.requires_grad)
    return [
        WriteItem(
            index=MetadataIndex(fqn, torch.Size(offsets)),
            type=WriteItemType.SHARD,
            tensor_data=TensorWriteData(chunk=_chunk(offsets, array), properties=properties, size=x.size()),
        )
        for offsets, array in _boxes(x)
    ]


def chunks(x: BlockTensor) -> list[ChunkStorageMetadata]:
    """The boxes of `x` that this process reads; replicas become one array first."""
    with torch.no_grad():
        x.share_replicas()
    return [_chunk(offsets, array) for offsets, array in _boxes(x)]


def shard(x: BlockTensor, index: MetadataIndex) -> torch.Tensor:
    """The box at those offsets, to be read or written."""
    for offsets, array in _boxes(x):
        if index.offset is None or torch.Size(offsets) == index.offset:
            return array
    raise PlanError(f"DistributedTensor: no such box: name={index.fqn}, offset={index.offset}, type={x.physical_type}")
