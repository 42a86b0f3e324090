"""Times contractions by other pairs than products and sums against torch.

joinsum takes turns with torch's broadcast-then-reduce, in pieces of the joined tensor that fit in memory, and with
torch's matrix product of the same shape. Figures are medians over the rounds, all on the same number of threads. Then
follow argmax and argmin, and gradients, for which torch's autograd runs through each piece.

    python benchmarks/contractions.py [--size 1024] [--rounds 5] [--threads N] [--json FILE]
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import click
import joinsum
import torch

# Bytes of a piece of the joined tensor; at least one row of the left operand.
PIECE_BYTES = 1 << 22
Operation = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

JOINS: dict[str, Operation] = {
    "add": torch.add,
    "mul": torch.mul,
    "max": torch.maximum,
    "squared_difference": lambda a, b: (a - b).square_(),
    "abs_difference": lambda a, b: (a - b).abs_(),
}
REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "min": lambda x: x.amin(1),
    "max": lambda x: x.amax(1),
    "sum": lambda x: x.sum(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(1),
}
PAIRS = [
    ("add", "min"),
    ("add", "max"),
    ("mul", "max"),
    ("max", "min"),
    ("squared_difference", "sum"),
    ("abs_difference", "sum"),
    ("add", "logsumexp"),
    ("add", "argmax"),
    ("add", "argmin"),
]
GRADIENTS = [
    ("add", "max"),
    ("add", "min"),
    ("mul", "max"),
    ("add", "logsumexp"),
    ("abs_difference", "sum"),
    ("squared_difference", "sum"),
]


def broadcast_then_reduce(join: str, agg: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`(a[:, :, None] ⊗ b[None])` reduced over its second axis, some rows of `a` at a time."""
    rows = max(1, PIECE_BYTES // (b.numel() * b.element_size()))
    return torch.cat([REDUCTIONS[agg](JOINS[join](some[:, :, None], b[None])) for some in a.split(rows)])


def gradient(call: Operation, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The gradients of the sum of the result, one after the other in one tensor."""
    x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
    return torch.cat([each.flatten() for each in torch.autograd.grad(call(x, y).sum(), (x, y))])


def gradient_by_pieces(join: str, agg: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The same by torch, some rows of `a` at a time."""
    rows = max(1, PIECE_BYTES // (b.numel() * b.element_size()))
    left, right = [], torch.zeros_like(b)
    for some in a.split(rows):
        x, y = some.clone().requires_grad_(), b.clone().requires_grad_()
        own, other = torch.autograd.grad(REDUCTIONS[agg](JOINS[join](x[:, :, None], y[None])).sum(), (x, y))
        left.append(own)
        right += other
    return torch.cat([*(each.flatten() for each in left), right.flatten()])


def measure(contestants: dict[str, Callable[[], torch.Tensor]], rounds: int) -> dict[str, list[float]]:
    """Seconds of a call, by contestant and round; a first round warms up and does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for index in range(rounds + 1):
        for name, call in contestants.items():
            start = time.perf_counter()
            call()
            if index > 0:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def compare(
    join: str, agg: str, size: int, rounds: int, dtype: torch.dtype, backward: bool = False
) -> dict[str, float | str]:
    """Medians of the three contestants' milliseconds, and of the ratios within a round."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, size, generator=generator, dtype=dtype) for _ in range(2))

    def by_joinsum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, joinsum.einsum("ij,jk->ik", x, y, join=join, agg=agg))

    by_torch = gradient_by_pieces if backward else broadcast_then_reduce
    contestants: dict[str, Callable[[], torch.Tensor]] = {
        "joinsum": lambda: gradient(by_joinsum, a, b) if backward else by_joinsum(a, b),
        "broadcast": lambda: by_torch(join, agg, a, b),
        "matmul": lambda: torch.matmul(a, b),
    }
    torch.testing.assert_close(contestants["joinsum"](), contestants["broadcast"](), rtol=1e-4, atol=1e-3)
    seconds = measure(contestants, rounds)
    ratio = {
        name: statistics.median(x / y for x, y in zip(*(seconds[each] for each in pair), strict=True))
        for name, pair in {"broadcast": ("broadcast", "joinsum"), "matmul": ("joinsum", "matmul")}.items()
    }
    figures: dict[str, float | str] = {f"{name}_ms": 1e3 * statistics.median(each) for name, each in seconds.items()}
    what = "gradients" if backward else "result"
    return {
        "join": join,
        "agg": agg,
        "what": what,
        **figures,
        "times_faster": ratio["broadcast"],
        "times_matmul": ratio["matmul"],
    }


def report(size: int, rounds: int, dtype: torch.dtype) -> list[dict[str, float | str]]:
    """Prints a line for each pair."""
    click.echo(
        f"{size}³ {str(dtype).removeprefix('torch.')}, {torch.get_num_threads()} threads, "
        f"{torch.backends.cpu.get_cpu_capability()}, {platform.machine()}"
    )
    click.echo(f"{'':26}{'joinsum ms':>12}{'torch ms':>12}{'faster':>9}{'matmul ms':>12}{'x matmul':>10}")
    rows = []
    cases = [(pair, False) for pair in PAIRS] + [(pair, True) for pair in GRADIENTS]
    for (join, agg), backward in cases:
        row = compare(join, agg, size, rounds, dtype, backward)
        rows.append(row)
        name = f"{'d ' if backward else ''}{join}, {agg}"
        click.echo(
            f"{name:26}{row['joinsum_ms']:12.1f}{row['broadcast_ms']:12.1f}{row['times_faster']:9.1f}"
            f"{row['matmul_ms']:12.1f}{row['times_matmul']:10.2f}"
        )
    return rows


@click.command()
@click.option("--size", default=1024, show_default=True, help="Extent of every label.")
@click.option("--rounds", default=5, show_default=True, help="Turns of each contestant.")
@click.option("--threads", type=int, help="Threads of torch; all cores without it.")
@click.option("--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures there.")
def command(size: int, rounds: int, threads: int | None, dtype: str, json_path: Path | None) -> None:
    """Pairs of operations against torch."""
    if threads:
        torch.set_num_threads(threads)
    joinsum.init()
    rows = report(size, rounds, getattr(torch, dtype))
    if json_path:
        json_path.write_text(json.dumps(rows, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    command()
