"""The cost constants of logical plans, from kernels that are measured on this machine."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from joinsum.base.arguments import integer, show
from joinsum.base.errors import PlanError
from joinsum.sparse.program import Program
from joinsum.sparse.sparse_tensor import SparseTensor

__all__ = ["MeasuredCost", "MeasuredKernel", "measure_cost"]

_ENTRIES = (20_000, 80_000, 320_000)
_MOST_ENTRIES = 10**8
_RUNS = 3
_ROUNDS = 10


class MeasuredKernel(NamedTuple):
    """One of the kernels: entries of its result and of the expression that it reduces, and the seconds of a warm
    run."""

    name: str
    nnz_agg: float
    nnz_map: float
    seconds: float


@dataclass(frozen=True)
class MeasuredCost:
    """What an entry costs.

    cost      seconds of an entry of an aggregate's result, and of one of the expression that it reduces: the argument
              `cost` of `Program.plan`
    call      seconds of a kernel beside them
    kernels   that were measured

    Source: Galley, section 5.3.
    """

    cost: tuple[float, float]
    call: float
    kernels: tuple[MeasuredKernel, ...]

    def __str__(self) -> str:
        lines = [
            f"{kernel.name:<24} {kernel.nnz_agg:>10.0f} of {kernel.nnz_map:>10.0f}   {1e3 * kernel.seconds:8.3f} ms, "
            f"fitted {1e3 * self.fitted(kernel):8.3f} ms"
            for kernel in self.kernels
        ]
        lines.append(
            f"nanoseconds of an entry of the result {1e9 * self.cost[0]:.3g}, of the expression "
            f"{1e9 * self.cost[1]:.3g}, microseconds of a kernel {1e6 * self.call:.3g}"
        )
        return "\n".join(lines)

    def fitted(self, kernel: MeasuredKernel) -> float:
        """Seconds by the constants."""
        return self.cost[0] * kernel.nnz_agg + self.cost[1] * kernel.nnz_map + self.call


def measure_cost(
    *, threads: int | None = None, engine: str = "compiled", entries: Sequence[int] = _ENTRIES
) -> MeasuredCost:
    """Measures sums, products and reductions of random sparse and dense tensors, and fits the constants by least
    squares, none of them negative. Takes seconds the first time, when kernels are compiled.

    threads   that run kernels, by default as many as torch uses
    engine    as of `Plan.run`; "interpreter" where there is no compiler
    entries   about so many has an operand, for each kernel

    >>> measured = measure_cost(engine="interpreter", entries=[500, 5000])
    >>> min(measured.cost) >= 0, len(measured.kernels)
    (True, 18)
    """
    listed = list(entries) if isinstance(entries, (list, tuple)) else []
    sizes = [integer("measure_cost", f"entries[{i}]", each) for i, each in enumerate(listed)]
    if len(sizes) < 2 or min(sizes) < 100 or max(sizes) > _MOST_ENTRIES:
        raise PlanError(
            f"measure_cost: entries are two numbers or more from 100 to {_MOST_ENTRIES}: entries={show(entries)}"
        )
    kernels = tuple(_measured(*each, threads, engine) for size in sizes for each in _programs(size))
    per_result, per_element, call = _fit(kernels)
    return MeasuredCost((per_result, per_element), call, kernels)


def _programs(entries: int) -> Iterator[tuple[str, Program, float]]:
    """Names, programs, and entries of the expressions that they reduce."""
    draw = torch.Generator().manual_seed(entries)
    rows, side = math.isqrt(entries) * 4, math.isqrt(entries)
    x = _random(draw, rows, rows, entries)
    a, b = (_random(draw, entries // 16, entries // 16, entries // 4) for _ in range(2))
    dense, u, v, w = (
        SparseTensor.from_torch(torch.rand(*shape, generator=draw, dtype=torch.float64))
        for shape in ((side, side), (side,), (side,), (rows,))
    )
    letters = {"x": "ij", "y": "ij", "a": "ik", "b": "kj", "d": "ij", "u": "i", "v": "j", "w": "j"}

    def query(reduced: str, output: str, **factors: SparseTensor) -> Program:
        expr: list[Any] = ["map", "*", [["in", name, list(letters[name])] for name in factors]]
        expr = ["agg", "+", list(reduced), expr] if reduced else expr
        return Program({"tensors": factors, "queries": [{"name": "q", "expr": expr, "output": list(output)}]})

    columns, rows_of_b = a.handle.to_coordinates(False)[0][1], b.handle.to_coordinates(False)[0][0]
    products = (columns.bincount(minlength=entries) * rows_of_b.bincount(minlength=entries)).sum()
    yield "sum of all", query("ij", "", x=x), x.nnz
    yield "sums of rows", query("j", "i", x=x), x.nnz
    yield "sums of columns", query("i", "j", x=x), x.nnz
    yield "sparse times vector", query("j", "i", x=x, w=w), x.nnz
    yield "elementwise product", query("", "ij", x=x, y=x), x.nnz
    yield "sparse times sparse", query("k", "ij", a=a, b=b), float(products)
    yield "dense sums of rows", query("j", "i", d=dense), side**2
    yield "outer product", query("", "ij", u=u, v=v), side**2
    yield "dense between vectors", query("ij", "", d=dense, u=u, v=v), side**2


def _random(draw: torch.Generator, rows: int, columns: int, entries: int) -> SparseTensor:
    places = torch.randint(rows * columns, (entries,), generator=draw)
    values = torch.rand(entries, generator=draw, dtype=torch.float64)
    coordinates = [places // columns, places % columns]
    return SparseTensor.from_coordinates(coordinates, values, [rows, columns], levels="csr", fold="+")


def _measured(name: str, program: Program, nnz_map: float, threads: int | None, engine: str) -> MeasuredKernel:
    plan = program.plan()
    plan.run(threads=threads, engine=engine, analyze=True)
    nnz_agg = sum(plan.true_entries.values())
    seconds = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        plan.run(threads=threads, engine=engine)
        seconds.append(time.perf_counter() - start)
    return MeasuredKernel(name, nnz_agg, nnz_map, min(seconds))


def _fit(kernels: Sequence[MeasuredKernel]) -> list[float]:
    """Constants that are not negative, of least squares. Kernels of microseconds count as those of milliseconds:
    errors are divided by the geometric mean of measured and fitted seconds, in a few rounds."""
    table = torch.tensor([[k.nnz_agg, k.nnz_map, 1] for k in kernels], dtype=torch.float64)
    seconds = torch.tensor([[k.seconds] for k in kernels], dtype=torch.float64)
    fitted = seconds
    for _ in range(_ROUNDS):
        scale = (seconds * fitted).sqrt()
        found = _not_negative(table / scale, seconds / scale)
        fitted = (table @ found).clamp(min=1e-9)
    constants: list[float] = found.flatten().tolist()
    return constants


def _not_negative(table: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """The least squares solution without negative constants: the best one in which some of them are zero."""
    best, least = torch.zeros(3, 1, dtype=torch.float64), math.inf
    for count in (1, 2, 3):
        for chosen in map(list, itertools.combinations(range(3), count)):
            found = torch.linalg.lstsq(table[:, chosen], wanted, driver="gelsd").solution
            error = float((table[:, chosen] @ found - wanted).square().sum())
            if float(found.min()) >= 0 and error < least:
                best, least = torch.zeros(3, 1, dtype=torch.float64), error
                best[chosen] = found
    return best
