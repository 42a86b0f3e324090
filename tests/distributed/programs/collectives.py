"""Scenes of the transport's collectives on sub-grids, one site per rank."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import joinsum
import torch
from joinsum import _C
from stage import Scenes, on_group, on_loopback, rank, ranks, scene

SCENES: Scenes = {}
Arrays = list[torch.Tensor]
Call = Callable[[_C.Transport, _C.SubGrids, Arrays], Arrays]

CALLS: list[Call] = [
    lambda transport, sub_grids, arrays: transport.all_reduce("sum", sub_grids, "add", arrays),
    lambda transport, sub_grids, arrays: transport.all_reduce("maximum", sub_grids, "max", arrays),
    lambda transport, sub_grids, arrays: transport.all_gather("gather", sub_grids, arrays),
    lambda transport, sub_grids, arrays: transport.reduce_scatter("sum", sub_grids, "add", arrays),
    lambda transport, sub_grids, arrays: transport.broadcast("copy", sub_grids, 0, arrays),
    lambda transport, sub_grids, arrays: transport.all_to_all("swap", sub_grids, arrays),
]


def outcomes(current: joinsum.Context) -> tuple[list[Arrays], list[int]]:
    """Results and bytes sent of every call on every sub-grid."""
    results, sent = [], []
    axes = range(len(current.grid.axes))
    for chosen in itertools.chain.from_iterable(itertools.combinations(axes, size) for size in range(len(axes) + 1)):
        sub_grids = _C.SubGrids(current.grid, chosen)
        size = len(sub_grids.groups()[0])
        for call in CALLS:
            arrays = [torch.arange(3 * size).reshape(size, 3) * (site + 1) - 4 for site in current.local_sites]
            before = current.transport.bytes_sent()
            results.append(call(current.transport, sub_grids, arrays))
            sent.append(current.transport.bytes_sent() - before)
    return results, sent


@scene(SCENES)
def collectives_of_sub_grids_are_those_of_loopback() -> list[list[int]]:
    assert ranks() == joinsum.sites()
    expected, sent = outcomes(on_loopback())
    counts = [sent]
    for collectives in ("never", "always"):
        results, sent = outcomes(on_group(collectives))
        for (own,), every in zip(results, expected, strict=True):
            assert torch.equal(own, every[rank()])
        counts.append(sent)
    return counts
