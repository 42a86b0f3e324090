"""Several sites of one process beside one site: what dividing the work costs by itself, where nothing is sent.

For each cell plain torch and joinsum do the same work in one process, with all of its cores, and take turns; once with
joinsum on one site, once on several, each in a process of its own, as a process has one context. Results are checked
before anything is timed.

    python benchmarks/loopback.py [--sites 4] [--cell ffnn:amazon ...] [--turns 9] [--json FILE]
"""

from __future__ import annotations

import functools
import json
import multiprocessing
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import click
from frame.contenders import check_equal
from frame.timing import Spread, ratio, take_turns
from workloads import WORKLOADS

CELLS = (
    "products:4000x4000x4000",
    "products:600x38400x600",
    "products:4800x600x4800",
    "ffnn:amazon",
    "ffnn:speech",
    "language_model:gpt-4x256",
    "language_model:llama-4x256",
)


class Figure(NamedTuple):
    """How many times plain torch's speed joinsum has: on one site, and on several."""

    cell: str
    one: Spread
    several: Spread

    @property
    def kept(self) -> float:
        """The part of one site's speed that several have."""
        return self.several.median / self.one.median


def ratio_on(cell: str, sites: int, turns: int) -> Spread:
    """torch's time to that of joinsum on so many sites of this process."""
    import joinsum

    workload, size = WORKLOADS[cell.partition(":")[0]], cell.partition(":")[2]
    reference, prepare = workload.reference(size), workload.contenders(size)
    with mock.patch.object(joinsum, "init", functools.partial(joinsum.init, sites=sites)):  # what contenders call
        contenders = {name: prepare[name]() for name in ("joinsum", "torch")}
    for _ in range(workload.checked_steps):
        for each in (reference, *contenders.values()):
            each.step()
    for name, contender in contenders.items():
        check_equal(name, contender.result(), reference.result(), workload.tolerance)
    _, seconds = take_turns({name: each.step for name, each in contenders.items()}, turns)
    return ratio(seconds["joinsum"], seconds["torch"])


def compared(cell: str, sites: int, turns: int) -> Figure:
    """Both ratios, from processes of their own."""
    found = []
    for count in (1, sites):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found.append(pool.apply(ratio_on, (cell, count, turns)))
    return Figure(cell, *found)


def table(figures: Sequence[Figure], sites: int) -> str:
    heads = f"{'cell':28}{'1 site, times torch':>22}{f'{sites} sites, times torch':>22}{'of one site':>14}"
    lines = [f"{each.cell:28}{each.one.median:22.2f}{each.several.median:22.2f}{each.kept:14.2f}" for each in figures]
    return "\n".join([heads, *lines])


@click.command()
@click.option("--sites", type=click.IntRange(2), default=4)
@click.option("--cell", "cells", multiple=True, default=CELLS, help="workload:size, as bench.py has them")
@click.option("--turns", type=click.IntRange(1), default=9)
@click.option("--json", "file", type=click.Path(path_type=Path))
def main(sites: int, cells: tuple[str, ...], turns: int, file: Path | None) -> None:
    """Compare several sites of a process with one."""
    figures = []
    for cell in cells:
        figures.append(compared(cell, sites, turns))
        click.echo(table(figures[-1:], sites), err=True)
    click.echo(table(figures, sites))
    if file is not None:
        file.write_text(
            json.dumps([{**each._asdict(), "kept": each.kept} for each in figures]) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
