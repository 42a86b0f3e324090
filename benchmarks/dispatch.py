"""What a run of a plan costs beside its arithmetic: seconds of a run, and of each of its steps, on loopback sites.

The plans are chains of nodes of one kind on arrays of a few elements, so that nothing but the dispatch takes time. A
rank of a process group runs them as one site does.

    python benchmarks/dispatch.py [--sites 1] [--quick] [--json FILE]
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

import click
import joinsum
import torch
from joinsum import _C

GRIDS = {1: "1x1", 4: "2x2"}
STEPS = 64
CHAINS = ("map", "join", "shuffle", "product")


class Dispatch(NamedTuple):
    """Seconds of one run of a chain (median and lower quartile), and what each further step adds to the median."""

    chain: str
    sites: int
    run_seconds: float
    lower_quartile_seconds: float
    step_seconds: float


def step_text(chain: str, step: int, last: str) -> str:
    """The node that a chain adds to its last one. A product leaves pending partials, which the shuffle reduces."""
    target = "(1, 0)" if step % 2 == 0 else "(0, 1)"
    return {
        "map": f"map[(k0, k1); scale[1.0]]({last})",
        "join": f"join[0, 1; 0, 1; add]({last}, X)",
        "shuffle": f"shuffle[{target}]({last})",
        "product": f"shuffle[(0, 1)](agg[0, 2; add](join[1; 0; matmul]({last}, W)))",
    }[chain]


def plan_of(chain: str, sites: int, steps: int) -> _C.IaPlan:
    grid = GRIDS[sites]
    lines = [f"ia on {grid}", f"input X: f32[8,8]<4,4> on {grid} (0, 1)", f"input W: f32[8,8]<4,4> on {grid} (*, 0)"]
    lines += [f"a{i} = {step_text(chain, i, f'a{i - 1}' if i else 'X')}" for i in range(steps)]
    return _C.IaPlan.parse("\n".join([*lines, f"output Z = a{steps - 1}", ""]))


def run_seconds(chain: str, sites: int, steps: int, seconds: float) -> list[float]:
    """Seconds of runs of one plan, after the first ones."""
    current = joinsum.init(sites=sites)
    plan = plan_of(chain, sites, steps)
    placed = {
        name: _C.place_tensor(torch.eye(8), type_, current.local_sites, current.store, True)
        for name, type_ in plan.inputs
    }
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken) < 8:
        start = time.perf_counter()
        current.execute(plan, placed, {})
        taken.append(time.perf_counter() - start)
    joinsum.init()
    return taken[3:]


def dispatch(chain: str, sites: int, seconds: float) -> Dispatch:
    """A chain of two steps beside one of all of them."""
    short, long = run_seconds(chain, sites, 2, seconds / 4), run_seconds(chain, sites, STEPS, seconds)
    step = (median(long) - median(short)) / (STEPS - 2)
    return Dispatch(chain, sites, median(long), quantiles(long, n=4)[0], step)


def main(sites: Sequence[int], quick: bool, file: Path | None = None) -> None:
    torch.set_num_threads(1)
    found = [dispatch(chain, count, 0.2 if quick else 4.0) for count in sites for chain in CHAINS]
    for each in found:
        click.echo(
            f"{each.chain:8} {STEPS} steps, {each.sites} sites: {each.run_seconds * 1e6:8.0f} us a run (lower quartile "
            f"{each.lower_quartile_seconds * 1e6:.0f}), {each.step_seconds * 1e6:6.2f} us a step"
        )
    if file is not None:
        file.write_text(json.dumps([each._asdict() for each in found], indent=2) + "\n")


@click.command()
@click.option("--sites", type=click.Choice(list(map(str, GRIDS))), multiple=True, help="How many; both by default.")
@click.option("--quick", is_flag=True, help="Few runs.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Also writes the figures to FILE.")
def command(sites: Sequence[str], quick: bool, file: Path | None) -> None:
    main([int(count) for count in sites] or list(GRIDS), quick, file)


if __name__ == "__main__":
    command()
