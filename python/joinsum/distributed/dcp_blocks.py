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
from joinsum.distributed.boxes import Box, boxes_of

__all__ = ["chunks", "shard", "write_items"]


def _chunk(box: Box) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=torch.Size(box.offsets), sizes=box.array.shape)


def write_items(x: BlockTensor, fqn: str) -> list[WriteItem]:
    """The boxes of `x` that this process writes."""
    properties = TensorProperties(dtype=x.dtype, requires_grad=x.requires_grad)
    return [
        WriteItem(
            index=MetadataIndex(fqn, torch.Size(box.offsets)),
            type=WriteItemType.SHARD,
            tensor_data=TensorWriteData(chunk=_chunk(box), properties=properties, size=x.size()),
        )
        for box in boxes_of(x)
    ]


def chunks(x: BlockTensor) -> list[ChunkStorageMetadata]:
    """The boxes of `x` that this process reads; replicas become one array first."""
    with torch.no_grad():
        x.share_replicas()
    return [_chunk(box) for box in boxes_of(x)]


def shard(x: BlockTensor, index: MetadataIndex) -> torch.Tensor:
    """The box at those offsets, to be read or written."""
    for box in boxes_of(x):
        if index.offset is None or torch.Size(box.offsets) == index.offset:
            return box.array
    raise PlanError(f"DistributedTensor: no such box: name={index.fqn}, offset={index.offset}, type={x.physical_type}")
