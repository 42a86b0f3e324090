"""Products of matrices with other pairs than product and sum: min-plus (shortest paths) and log-sum-exp.

Every rank has both operands and gets the result, as a call of `joinsum.einsum` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
import torch.distributed as dist
from frame.contenders import Contender, Workload, own_rows, rank, ranks
from torch import Tensor

__all__ = ["WORKLOAD"]

# Elements of a joined tile: 2 MiB, which a core's cache may hold.
TILE = 1 << 19


class Shape(NamedTuple):
    extent: int
    aggregation: str


SIZES: Mapping[str, Shape] = {
    "min-plus 1024": Shape(1024, "min"),
    "logsumexp 1024": Shape(1024, "logsumexp"),
    "min-plus 2048": Shape(2048, "min"),
}


def operands(shape: Shape) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    extents = shape.extent, shape.extent
    return torch.randn(*extents, generator=generator), torch.randn(*extents, generator=generator)


def _reduced(joined: Tensor, shape: Shape) -> Tensor:
    return joined.amin(-1) if shape.aggregation == "min" else joined.logsumexp(-1)


def tiled(a: Tensor, b: Tensor, shape: Shape, into: Tensor) -> None:
    """Joins a row with some columns at a time, in one buffer, and reduces."""
    turned = b.T.contiguous()
    columns = max(1, TILE // shape.extent)
    buffer = torch.empty(columns, shape.extent)
    for i, row in enumerate(a):
        for j in range(0, len(turned), columns):
            part = turned[j : j + columns]
            into[i, j : j + columns] = _reduced(torch.add(part, row, out=buffer[: len(part)]), shape)


def reference(size: str) -> Contender:
    shape = SIZES[size]
    a, b = (x.double() for x in operands(shape))
    result = torch.empty(shape.extent, shape.extent)

    def step() -> None:
        for row, out in zip(a, result, strict=True):
            out.copy_(_reduced(row + b.T, shape))

    return Contender(step, lambda: [result])


def contenders(size: str) -> dict[str, Callable[[], Contender]]:
    shape = SIZES[size]
    found = {"joinsum": lambda: by_joinsum(shape)}
    if ranks() == 1:
        return found | {
            "torch": lambda: by_tiles(shape),
            "torch.compile": lambda: by_inductor(shape),
        }
    return found | {"hand-coded: tiles": lambda: by_tiles(shape)}


def by_joinsum(shape: Shape) -> Contender:
    """One call of `joinsum.einsum`."""
    import joinsum

    joinsum.init()
    a, b = operands(shape)
    result: list[Tensor] = []

    def step() -> None:
        found = joinsum.einsum("ij,jk->ik", a, b, join="add", agg=shape.aggregation)
        assert isinstance(found, Tensor)
        result[:] = [found]

    return Contender(step, lambda: result)


def by_inductor(shape: Shape) -> Contender:
    """Inductor fuses the broadcast and the reduction into loops that store no joined tensor."""
    a, b = operands(shape)
    joined = torch.compile(lambda a, b: _reduced(a[:, None, :] + b.T[None, :, :], shape))
    result: list[Tensor] = []

    def step() -> None:
        result[:] = [joined(a, b)]

    return Contender(step, lambda: result)


def by_tiles(shape: Shape) -> Contender:
    """Each rank computes its rows, tile by tile; the rows are gathered."""
    a, b = operands(shape)
    result = torch.empty(shape.extent, shape.extent)

    def step() -> None:
        tiled(own_rows(a), b, shape, own_rows(result))
        if ranks() > 1:
            shards = list(result.tensor_split(ranks()))
            dist.all_gather(shards, shards[rank()].clone())

    return Contender(step, lambda: [result])


WORKLOAD = Workload(list(SIZES), reference, contenders, checked_steps=1, tolerance=1e-6)
