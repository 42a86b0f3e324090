"""The overhead of `joinsum.einsum`.

On one site: the ratio to torch.einsum, both in turns in one run, and the microseconds that a cached call adds. On
several loopback sites: the microseconds of a cached call of small operands, and of its parts. For plans: the time to
make one, to read it from the user's cache folder, and to find it in memory.

    python benchmarks/einsum_overhead.py [--quick] [--json FILE]
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click
import joinsum
import torch
from joinsum import _C

RATIO_LIMIT = 1.05  # of the time of torch.einsum, on one site
ADDED_LIMIT = 20e-6  # seconds that a cached call may add to that
DISK_LIMIT = 50e-3  # seconds of a plan from the cache folder
MEMORY_LIMIT = 20e-6  # seconds of a plan that is cached in memory

EQUATIONS: dict[str, tuple[str, list[tuple[int, ...]]]] = {
    "product 8": ("ij,jk->ik", [(8, 8)] * 2),
    "product 512": ("ij,jk->ik", [(512, 512)] * 2),
    "batched 16x128": ("bij,bjk->bik", [(16, 128, 128)] * 2),
    "chain 256": ("ij,jk,kl->il", [(256, 256)] * 3),
    "sum 1024": ("ij->j", [(1024, 1024)]),
}

Call = Callable[[], object]


class Ratio(NamedTuple):
    """joinsum and torch on one site; seconds are medians over calls."""

    equation: str
    torch_seconds: float
    joinsum_seconds: float
    added_seconds: float  # median of the differences, turn by turn

    @property
    def ratio(self) -> float:
        return self.joinsum_seconds / self.torch_seconds

    @property
    def good(self) -> bool:
        return self.joinsum_seconds <= RATIO_LIMIT * self.torch_seconds + ADDED_LIMIT


def seconds_of(call: Call) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turns(calls: dict[str, Call], seconds: float) -> dict[str, list[float]]:
    """Seconds of each call; a turn makes each call once, so that other load hits all alike. Takes about `seconds`."""
    warm = sum(seconds_of(call) for _ in range(3) for call in calls.values()) / 3
    turns = max(11, min(5000, int(seconds / warm)))
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            taken[name].append(seconds_of(call))
    return taken


def compared(name: str, seconds: float) -> Ratio:
    """torch's and joinsum's calls in turns."""
    equation, shapes = EQUATIONS[name]
    operands = [torch.rand(shape) for shape in shapes]
    calls: dict[str, Call] = {
        "torch": lambda: torch.einsum(equation, *operands),
        "joinsum": lambda: joinsum.einsum(equation, *operands),
    }
    taken = in_turns(calls, seconds)
    differences = [mine - its for its, mine in zip(taken["torch"], taken["joinsum"], strict=True)]
    return Ratio(name, median(taken["torch"]), median(taken["joinsum"]), median(differences))


def parts_of_a_call(sites: int, seconds: float) -> dict[str, float]:
    """Seconds of a cached call on loopback sites, and of what it does."""
    current = joinsum.init(sites=sites)
    x, y = torch.rand(8, 8), torch.rand(8, 8)
    run = joinsum.einsum_plan("ij,jk->ik", x, y)
    assert isinstance(run, joinsum.PlannedEinsum)
    plan = run.plan.core
    types = dict(plan.inputs)

    def place() -> dict[str, _C.StoredRelation]:
        operands = {"x0": x, "x1": y}
        return {
            name: _C.place_tensor(operands[name], types[name], current.local_sites, current.store, False)
            for name in operands
        }

    placed = place()
    result = current.execute(plan, placed, {})["z"]
    calls: dict[str, Call] = {
        "torch.einsum": lambda: torch.einsum("ij,jk->ik", x, y),
        "whole call": lambda: joinsum.einsum("ij,jk->ik", x, y),
        "placing": place,
        "running the plan": lambda: current.execute(plan, placed, {}),
        "result": lambda: result.whole_tensor(current.store),
    }
    taken = in_turns(calls, seconds)
    joinsum.init()
    return {name: median(each) for name, each in taken.items()}


@contextmanager
def own_cache_folder() -> Iterator[None]:
    """An empty cache folder that is in use."""
    saved = {name: os.environ.pop(name, None) for name in ("XDG_CACHE_HOME", "JOINSUM_PLAN_CACHE")}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        try:
            yield
        finally:
            del os.environ["XDG_CACHE_HOME"]
            os.environ.update({name: value for name, value in saved.items() if value is not None})


PLANNED = {
    "product": ("ij,jk->ik", (512, 512), (512, 512)),
    "six operands": ("ab,bc,cd,de,ef,fg->ag", *[(64, 64)] * 6),
}


def planning(name: str, rounds: int) -> dict[str, float]:
    """Seconds until a plan is ready: planned, from the folder, from memory."""
    equation, *shapes = PLANNED[name]

    def plan() -> object:
        return joinsum.einsum_plan(equation, *shapes)

    with own_cache_folder():
        joinsum.init(sites=8)
        planned = seconds_of(lambda: joinsum.einsum_plan(equation, *shapes, cache=False))
        plan()
        from_disk = []
        for _ in range(rounds):
            joinsum.init(sites=8)
            from_disk.append(seconds_of(plan))
        from_memory = median(seconds_of(plan) for _ in range(1000))
    joinsum.init()
    return {"planned": planned, "disk": median(from_disk), "memory": from_memory}


def main(quick: bool = False, file: Path | None = None) -> None:
    seconds = 0.1 if quick else 2.0
    joinsum.init()
    ratios = [compared(name, seconds) for name in EQUATIONS]
    click.echo(f"one site, {torch.get_num_threads()} threads\nequation          torch     joinsum   ratio    added")
    for each in ratios:
        times = f"{each.torch_seconds * 1e6:8.1f} {each.joinsum_seconds * 1e6:8.1f} us {each.ratio:6.3f}"
        over = "" if each.good else "over the limit"
        click.echo(f"{each.equation:14} {times} {each.added_seconds * 1e6:6.1f} us {over}")
    parts = {sites: parts_of_a_call(sites, seconds) for sites in (2, 4, 8)}
    click.echo("a cached call of 8 x 8 operands on loopback, us\nsites  " + "  ".join(next(iter(parts.values()))))
    for sites, figures in parts.items():
        cells = (f"{seconds * 1e6:{len(name)}.1f}" for name, seconds in figures.items())
        click.echo(f"{sites:5}  " + "  ".join(cells))
    plans = {name: planning(name, 3 if quick else 11) for name in PLANNED}
    click.echo("a plan for 8 sites, ms")
    for name, figures in plans.items():
        too_long = figures["disk"] > DISK_LIMIT or figures["memory"] > MEMORY_LIMIT
        listed = ", ".join(f"{kind} {seconds * 1e3:.3f}" for kind, seconds in figures.items())
        click.echo(f"{name:14} {listed} {'over the limit' if too_long else ''}")
    if file is not None:
        figures_of_run = {"one_site": [each._asdict() for each in ratios], "loopback": parts, "plans": plans}
        file.write_text(json.dumps(figures_of_run, indent=1) + "\n")


@click.command()
@click.option("--quick", is_flag=True, help="Few rounds.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Also writes the figures to FILE.")
def command(quick: bool, file: Path | None) -> None:
    main(quick, file)


if __name__ == "__main__":
    command()
