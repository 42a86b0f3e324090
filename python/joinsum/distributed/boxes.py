"""What sites of this process have of a distributed tensor, as boxes of its elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from joinsum.base.errors import PlanError
from joinsum.distributed.block_tensor import BlockTensor, axis_factors

__all__ = ["Box", "boxes_of"]


class Box(NamedTuple):
    """A range of each axis of a tensor.

    offsets   where the ranges begin
    array     the elements: a view of a block
    first     the first site that has them
    """

    offsets: tuple[int, ...]
    array: torch.Tensor
    first: int


def boxes_of(x: BlockTensor, *, replicas: bool = False) -> list[Box]:
    """What the sites of this process have; elements that several have once, or with `replicas` as often as there are
    arrays of them. Raises PlanError for these where a site's tiles are not adjacent.

    A block that divides an inner factor of a tensor's axis (such as width in heads times width) is no box of the
    tensor: it gives one box for each index of the outer factors."""
    axes, groups = x.physical_type.relation.axes, axis_factors(x)
    out = []
    for key, array in _arrays(x, replicas):
        first = x.physical_type.sites_of(key)[0]
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
            out.append(Box(tuple(run.begin for run in chosen), array[index].view(sizes), first))
    return out


def _arrays(x: BlockTensor, replicas: bool) -> list[tuple[Sequence[int], torch.Tensor]]:
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
            if replicas:
                raise PlanError(f"DistributedTensor: a site's tiles are not adjacent: type={x.physical_type}")
            return list(tuples)
        own = block.data_ptr() if replicas else 0
        out.setdefault((own, *itertools.chain(*sides)), ([begin for begin, _ in sides], block))
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
