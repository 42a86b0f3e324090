"""Matrix products on several ranks: square, with a long inner dimension, and with a short one.

Each contender stores both operands as suits it, each element on one rank; the result may be stored in any way.
Source: TRA paper, section 5.3.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Callable, Mapping
from ctypes.util import find_library
from typing import NamedTuple

import torch
import torch.distributed as dist
from frame.contenders import Absent, Contender, Workload, own_rows, rank, ranks, whole
from frame.outside import PROGRAMS, Program, emulated, shared_folder
from torch import Tensor

from workloads.dask_array import by_dask

__all__ = ["WORKLOAD"]


class Shape(NamedTuple):
    rows: int
    inner: int
    columns: int
    dtype: torch.dtype


def _sizes() -> dict[str, Shape]:
    shapes = [(4000, 4000, 4000), (600, 38_400, 600), (4_800, 600, 4_800)]
    dtypes = {"": torch.float32, " float64": torch.float64}
    return {
        "x".join(map(str, shape)) + name: Shape(*shape, dtype) for name, dtype in dtypes.items() for shape in shapes
    }


SIZES: Mapping[str, Shape] = _sizes()


class _Result:
    """The last product, or this rank's shard of it."""

    def __init__(self, shape: Shape) -> None:
        self.like = torch.empty(shape.rows, shape.columns, dtype=shape.dtype)
        self.own = self.like


def operands(shape: Shape) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(shape.rows, shape.inner, generator=generator, dtype=shape.dtype),
        torch.randn(shape.inner, shape.columns, generator=generator, dtype=shape.dtype),
    )


def reference(size: str) -> Contender:
    a, b = operands(SIZES[size])
    return Contender(lambda: None, lambda: [a @ b])


def contenders(size: str) -> dict[str, Callable[[], Contender]]:
    shape = SIZES[size]
    outside = {"ScaLAPACK": lambda: by_scalapack(shape), "Dask": lambda: by_dask_array(shape)}
    if ranks() == 1:
        return {"joinsum": lambda: by_joinsum(shape), "torch": lambda: by_torch(shape), **outside}
    return {
        "joinsum": lambda: by_joinsum(shape),
        **outside,
        "hand-coded: broadcast": lambda: by_broadcast(shape),
        "hand-coded: ring": lambda: by_ring(shape),
        "hand-coded: cross product": lambda: by_cross_product(shape),
        "hand-coded: two dimensions": lambda: by_two_dimensions(shape),
    }


def by_joinsum(shape: Shape) -> Contender:
    """The plan of least predicted time among starts that divide each operand once, for operands that stay stored."""
    import joinsum

    joinsum.init()
    name = "f64" if shape.dtype is torch.float64 else "f32"
    parts = joinsum.sites()
    program = joinsum.parse(
        f"tra\ninput A: {name}[{shape.rows},{shape.inner}]<{parts},{parts}>\n"
        f"input B: {name}[{shape.inner},{shape.columns}]<{parts},{parts}>\n"
        "output C = aggregate[0, 2; add](join[1; 0; matmul](A, B))"
    )
    assert isinstance(program, joinsum.TraPlan)
    axes = len(joinsum.grid().axes)
    starts: list[list[int]] = [[0] * axes, [1] * axes] + ([[0, 1]] if axes == 2 else [])
    found = [joinsum.optimize(program, {"A": a, "B": b}) for a in starts for b in starts]
    best = min(found, key=lambda each: each.cost.seconds).plan
    a, b = operands(shape)
    inputs = {
        name: joinsum.relation(x, parts=(parts, parts), place=best.inputs[name].placement).stored()
        for name, x in (("A", a), ("B", b))
    }
    outcome: dict[str, joinsum.StoredRelation] = {}

    def step() -> None:
        outcome.update(joinsum.run(best, inputs))

    return Contender(
        step,
        result=lambda: [outcome["C"].to_tensor()],
        figures=lambda: {"predicted_seconds": joinsum.cost(best).seconds},
    )


def by_torch(shape: Shape) -> Contender:
    """One product in this process."""
    a, b = operands(shape)
    result = _Result(shape)

    def step() -> None:
        result.own = a @ b

    return Contender(step, lambda: [result.own])


def by_scalapack(shape: Shape) -> Contender:
    """ScaLAPACK on OpenBLAS in as many processes, which share memory; the fastest of its grids and block sizes."""
    if emulated():
        raise Absent("ScaLAPACK's processes share memory, so no emulated network is between them")
    if shutil.which("mpirun") is None or find_library("scalapack-openmpi") is None:
        raise Absent("ScaLAPACK is not installed: apt-get install libscalapack-openmpi2.2 openmpi-bin")
    command = ["mpirun", "-n", str(ranks()), "--bind-to", "none", "--oversubscribe", "--allow-run-as-root"]
    command += [sys.executable, str(PROGRAMS / "scalapack.py")]
    a, b = operands(shape)
    like = torch.empty(shape.rows, shape.columns, dtype=shape.dtype)
    return Program(command, shared_folder(), {"a": a, "b": b}, like).contender()


def by_dask_array(shape: Shape) -> Contender:
    """Dask's product of blocks, two along each axis for each thread."""
    a, b = operands(shape)
    cuts = 2 * ranks() * torch.get_num_threads()
    like = torch.empty(shape.rows, shape.columns, dtype=shape.dtype)
    return by_dask("product", {"a": a, "b": b}, like, (cuts, cuts))


def by_broadcast(shape: Shape) -> Contender:
    """A and B by rows. B's shards are broadcast one after the other, each while the one before is multiplied."""
    a, b = operands(shape)
    own_a, own_b = own_rows(a).clone(), own_rows(b).clone()
    columns = own_a.tensor_split(ranks(), 1)
    shards = [torch.empty_like(x) if r != rank() else own_b for r, x in enumerate(b.tensor_split(ranks()))]
    del a, b
    result = _Result(shape)

    def step() -> None:
        works = [dist.broadcast(shard, r, async_op=True) for r, shard in enumerate(shards)]
        result.own = columns[rank()] @ own_b
        for r, work in enumerate(works):
            assert work is not None
            work.wait()
            if r != rank():
                result.own.addmm_(columns[r], shards[r])

    return Contender(step, lambda: [whole(result.own, result.like)])


def by_ring(shape: Shape) -> Contender:
    """A and B by rows: B's shards go around, each is multiplied while the next one comes. If A is the smaller operand,
    both are stored by columns and A's shards go around: `(Bᵀ Aᵀ)ᵀ`."""
    a, b = operands(shape)
    turned = a.numel() < b.numel()
    stays, goes = (b.T, a.T) if turned else (a, b)
    own = own_rows(stays).contiguous()
    columns = own.tensor_split(ranks(), 1)
    blocks = [x.contiguous() for x in goes.tensor_split(ranks())]
    shards = [x if r == rank() else torch.empty_like(x) for r, x in enumerate(blocks)]
    del a, b, stays, goes, blocks
    following, before = (rank() + 1) % ranks(), (rank() - 1) % ranks()
    result = _Result(shape)

    def step() -> None:
        for turn in range(ranks()):
            have, comes = (rank() - turn) % ranks(), (rank() - turn - 1) % ranks()
            works = []
            if turn + 1 < ranks():
                works = [dist.isend(shards[have], following, tag=turn), dist.irecv(shards[comes], before, tag=turn)]
            if turn == 0:
                result.own = columns[have] @ shards[have]
            else:
                result.own.addmm_(columns[have], shards[have])
            for work in works:
                assert work is not None
                work.wait()

    def gathered() -> list[Tensor]:
        return [whole(result.own, result.like.T).T if turned else whole(result.own, result.like)]

    return Contender(step, gathered)


def by_cross_product(shape: Shape) -> Contender:
    """A by columns, B by rows. Each rank multiplies its shards and sends every other one its rows of the partial sum,
    while it computes the next rows."""
    a, b = operands(shape)
    rows = [x.contiguous() for x in own_rows(a, 1).tensor_split(ranks())]
    own_b = own_rows(b).clone()
    del a, b
    arrived = [torch.empty(len(rows[rank()]), shape.columns, dtype=shape.dtype) for _ in range(ranks() - 1)]
    result = _Result(shape)

    def step() -> None:
        others = [(rank() + distance) % ranks() for distance in range(1, ranks())]
        receives = [dist.irecv(buffer, other) for buffer, other in zip(arrived, others, strict=True)]
        partial = []  # alive until it is sent
        sends = []
        for other in others:
            partial.append(rows[other] @ own_b)
            sends.append(dist.isend(partial[-1], other))
        result.own = rows[rank()] @ own_b
        for receive, buffer in zip(receives, arrived, strict=True):
            assert receive is not None
            receive.wait()
            result.own += buffer
        for send in sends:
            assert send is not None
            send.wait()

    return Contender(step, lambda: [whole(result.own, result.like)])


def by_two_dimensions(shape: Shape) -> Contender:
    """Cannon's algorithm: blocks of both operands on a square of ranks, stored so that the first product needs no
    message; blocks of A go along rows and those of B along columns, each while the ones before are multiplied."""
    side = math.isqrt(ranks())
    if side * side != ranks():
        raise Absent(f"needs a square number of ranks: ranks={ranks()}")
    i, j = divmod(rank(), side)
    a, b = operands(shape)
    grid_a = [x.tensor_split(side, 1) for x in a.tensor_split(side)]
    grid_b = [x.tensor_split(side, 1) for x in b.tensor_split(side)]
    # One block of each for every turn; the first ones are stored, the others arrive.
    inner = [(i + j + turn) % side for turn in range(side)]
    of_a = [grid_a[i][k].contiguous() for k in inner]
    of_b = [grid_b[k][j].contiguous() for k in inner]
    for block in (*of_a[1:], *of_b[1:]):
        block.zero_()
    extent = grid_a[i][0].shape[0], grid_b[0][j].shape[1]
    del a, b, grid_a, grid_b
    left, right = i * side + (j - 1) % side, i * side + (j + 1) % side
    above, below = (i - 1) % side * side + j, (i + 1) % side * side + j
    result = _Result(shape)

    def step() -> None:
        for turn in range(side):
            works = []
            if turn + 1 < side:
                works = [dist.isend(of_a[turn], left, tag=2 * turn), dist.isend(of_b[turn], above, tag=2 * turn + 1)]
                works.append(dist.irecv(of_a[turn + 1], right, tag=2 * turn))
                works.append(dist.irecv(of_b[turn + 1], below, tag=2 * turn + 1))
            if turn == 0:
                result.own = of_a[0] @ of_b[0]
            else:
                result.own.addmm_(of_a[turn], of_b[turn])
            for work in works:
                assert work is not None
                work.wait()

    def gathered() -> list[Tensor]:
        full = torch.zeros_like(result.like)
        full.tensor_split(side)[i].tensor_split(side, 1)[j].copy_(result.own)
        assert full.tensor_split(side)[i].tensor_split(side, 1)[j].shape == extent
        dist.all_reduce(full)
        return [full]

    return Contender(step, gathered)


WORKLOAD = Workload(list(SIZES), reference, contenders, checked_steps=1, tolerance=1e-5)
