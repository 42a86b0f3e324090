"""Blocks of distributed tensors as torch.distributed.checkpoint reads and writes them: a chunk for each box."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from joinsum.base.errors import PlanError
from joinsum.distributed.block_tensor import BlockTensor, axis_factors

__all__ = ["chunks", "shard", "write_items"]


def _boxes(x: BlockTensor) -> list[tuple[tuple[int, ...], torch.Tensor]]:
    """(offsets, array) of what each site of this process has, replicas once; the arrays are views.

    A block that divides an inner factor of a tensor's axis (such as width in heads times width) is no box of the
    tensor: it gives one box for each index of the outer factors."""
    axes, groups = x.physical_type.relation.axes, axis_factors(x)
    out = []
    for key, array in _arrays(x):
        begins = [0 if axis.key_dim is None else axis.cuts[key[axis.key_dim]] for axis in axes]
        ranges = [
            _Range(begin, local, axis.extent)
            for begin, local, axis in zip(begins, array.shape, axes, strict=True)
            if axis.extent != 1
        ]
        remaining = iter(ranges)
        runs = [_runs([next(remaining) for _ in group]) for group in groups]
        array = array.reshape([each.local for each in ranges])
        for chosen in itertools.product(*runs):
            index = tuple(place for run in chosen for place in run.place)
            sizes = [run.size for run in chosen]
            out.append((tuple(run.begin for run in chosen), array[index].view(sizes)))
    return out


def _arrays(x: BlockTensor) -> list[tuple[Sequence[int], torch.Tensor]]:
    """The first key and the array of each block whose keys form a box; otherwise of each tuple."""
    type_, core = x.physical_type, x.stored.core()
    tuples = core.tuples()
    keys: dict[int, list[list[int]]] = {}
    for key, _ in tuples:
        for site in type_.sites_of(key):
            keys.setdefault(site, []).append(key)
    out: dict[tuple[int, ...], tuple[Sequence[int], torch.Tensor]] = {}
    holding = [site for site in x.context.local_sites if site in keys]
    for site, block in zip(holding, core.blocks(), strict=True):
        held = keys[site]
        sides = [(min(dim), max(dim) + 1) for dim in zip(*held, strict=True)]
        if math.prod(end - begin for begin, end in sides) != len(held):
            return list(tuples)
        out.setdefault(tuple(itertools.chain(*sides)), ([begin for begin, _ in sides], block))
    return list(out.values())


class _Range(NamedTuple):
    """A block's range of one of the relation's axes: `local` of `extent` elements from `begin` on."""

    begin: int
    local: int
    extent: int


class _Run(NamedTuple):
    """Adjacent elements of a tensor's axis in a block, and where they are in the block's array."""

    begin: int
    size: int
    place: tuple[int | slice, ...]


def _runs(ranges: Sequence[_Range]) -> list[_Run]:
    cut = max((place for place, each in enumerate(ranges) if each.local < each.extent), default=0)
    inner = math.prod(each.extent for each in ranges[cut + 1 :])
    runs = []
    for outer in itertools.product(*(range(each.local) for each in ranges[:cut])):
        begin = 0
        for each, place in zip(ranges[:cut], outer, strict=True):
            begin = begin * each.extent + each.begin + place
        begin = (begin * ranges[cut].extent + ranges[cut].begin) * inner if ranges else 0
        rest = (slice(None),) * (len(ranges) - cut)
        runs.append(_Run(begin, ranges[cut].local * inner if ranges else 1, (*outer, *rest)))
    return runs


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
