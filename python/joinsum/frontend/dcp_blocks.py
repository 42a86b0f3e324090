"""Blocks of distributed tensors as torch.distributed.checkpoint reads and writes them: a chunk for each box."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

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
    """(offsets, array) of what each site of this process has, replicas once; the arrays are views.

    A part that is cut inside an axis which is a product of several of the relation's, as heads times width is, is no
    box of the tensor: it counts as one for each index of the axes before."""
    from joinsum.frontend.distributed_tensor import atoms_of

    axes, groups = x.physical_type.relation.axes, atoms_of(x)
    out = []
    for key, array in _arrays(x):
        begins = [0 if axis.key_dim is None else axis.cuts[key[axis.key_dim]] for axis in axes]
        parts = [_Part(begin, local, axis.extent) for begin, local, axis in zip(begins, array.shape, axes, strict=True)]
        whole = iter([part for part in parts if part.extent != 1])
        runs = [_runs([next(whole) for _ in group]) for group in groups]
        array = array.reshape([part.local for part in parts if part.extent != 1])
        for chosen in itertools.product(*runs):
            index = tuple(place for run in chosen for place in run.place)
            sizes = [run.size for run in chosen]
            out.append((tuple(run.begin for run in chosen), array[index].view(sizes)))
    return out


def _arrays(x: DistributedTensor) -> list[tuple[Sequence[int], torch.Tensor]]:
    """For what a site has, its first key and the array: the whole block where its keys are all those between two, else
    each tuple."""
    type_, core, store = x.physical_type, x.stored.core(), x.context.store
    tuples = core.tuples(store)
    keys: dict[int, list[list[int]]] = {}
    for key, _ in tuples:
        for site in type_.sites_of(key):
            keys.setdefault(site, []).append(key)
    out: dict[tuple[int, ...], tuple[Sequence[int], torch.Tensor]] = {}
    holding = [site for site in x.context.local_sites if site in keys]
    for site, block in zip(holding, core.blocks(store), strict=True):
        held = keys[site]
        sides = [(min(dim), max(dim) + 1) for dim in zip(*held, strict=True)]
        if math.prod(end - begin for begin, end in sides) != len(held):
            return list(tuples)
        out.setdefault(tuple(itertools.chain(*sides)), ([begin for begin, _ in sides], block))
    return list(out.values())


class _Part(NamedTuple):
    """What a part has of one of the relation's axes: `local` of `extent` elements."""

    begin: int
    local: int
    extent: int


class _Run(NamedTuple):
    """Elements of a tensor's axis that a part has next to each other, and where they are in the part's array."""

    begin: int
    size: int
    place: tuple[int | slice, ...]


def _runs(parts: Sequence[_Part]) -> list[_Run]:
    cut = max((place for place, part in enumerate(parts) if part.local < part.extent), default=0)
    inner = math.prod(part.extent for part in parts[cut + 1 :])
    runs = []
    for outer in itertools.product(*(range(part.local) for part in parts[:cut])):
        begin = 0
        for part, place in zip(parts[:cut], outer, strict=True):
            begin = begin * part.extent + part.begin + place
        begin = (begin * parts[cut].extent + parts[cut].begin) * inner if parts else 0
        rest = (slice(None),) * (len(parts) - cut)
        runs.append(_Run(begin, parts[cut].local * inner if parts else 1, (*outer, *rest)))
    return runs


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
