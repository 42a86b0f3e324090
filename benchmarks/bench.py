"""Compares joinsum with torch's ways and with hand-coded plans: the same work, in the same processes, in turns.

A cell is a workload at one size, on a number of ranks, over one network. Its ranks are processes of this machine that
hold all contenders; their results are compared with plain torch's before anything is timed. Every rank has
max(1, cores / ranks) threads. A figure is the median of the turns, with quartiles; a ratio is the median of the ratios
within a turn, of the best other contender's seconds to joinsum's: above 1, joinsum is faster.

    python benchmarks/bench.py --suite quick
    python benchmarks/bench.py --workload language_model --size gpt-4x256 --ranks 2 --network open --json FILE
    sudo .venv/bin/python benchmarks/bench.py --workload ffnn --ranks 2,4 --network 1gbit,10gbit+0.2ms,2x1gbit
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click
from frame.cells import SUITES, Cell
from frame.flags import cell_flags
from frame.launch import run_cell, threads_of_rank
from frame.results import HEADER, Results, fallen, machine, table
from frame.timing import spread
from joinsum.base.text_table import text_table
from network import Missing
from workloads import WORKLOADS


def _show(cell: Cell, results: Results) -> None:
    """All contenders of a cell, the fastest first."""
    figures = results.cells[cell]
    click.echo(f"{cell}, {figures['threads']} threads a rank")
    for name, seconds in sorted(figures["seconds"].items(), key=lambda item: spread(item[1]).median):
        median, low, high = (1e3 * value for value in spread(seconds))
        click.echo(f"  {name:30} {median:9.1f} ms ({low:.1f} - {high:.1f})")
    for name, reason in figures["absent"].items():
        click.echo(f"  {name:30} absent: {reason}")


def _command(words: Sequence[str]) -> str:
    """What measures the figures, whatever file they go to.

    >>> _command(["bench.py", "--json", "figures.json", "--suite", "quick", "--resume"])
    'python bench.py --suite quick'
    """
    kept, rest = ["python"], iter(words)
    for word in rest:
        if word == "--json":
            next(rest, None)
        elif word != "--resume" and not word.startswith("--json="):
            kept.append(word)
    return shlex.join(kept)


@click.command()
@cell_flags("standard", {name: each.sizes for name, each in WORKLOADS.items()})
@click.option("--contender", "only", multiple=True, help="Only these beside joinsum.")
@click.option("--turns", type=click.IntRange(min=1), help="Turns of each contender.")
@click.option("--limit", default=900.0, show_default=True, help="Seconds after which a cell has failed.")
@click.option("--against", type=click.Path(exists=True, path_type=Path), help="Name ratios that fell by more than 5 %.")
def main(
    suite: str,
    chosen: Sequence[Cell],
    results: Results,
    only: tuple[str, ...],
    turns: int | None,
    limit: float,
    against: Path | None,
) -> None:
    """Compare joinsum with all other contenders."""
    before = Results.read(against) if against is not None else Results()
    about = {"machine": machine(), "command": _command(sys.argv)}
    failures = []
    for cell in chosen:
        if cell in results.cells:
            continue
        start = time.perf_counter()
        try:
            found = run_cell(cell, turns or SUITES[suite].turns, only, limit)
        except (click.ClickException, Missing) as error:
            message = error.message if isinstance(error, click.ClickException) else str(error)
            failures.append(f"{cell}: {message}")
            click.echo(f"FAILED {failures[-1]}", err=True)
            continue
        own = {"threads": threads_of_rank(cell.ranks), "cell_seconds": time.perf_counter() - start}
        results.add(cell, {**found, **own, **about})
        _show(cell, results)
    click.echo(text_table(HEADER, table(results), right=[2, 4, 6, 7]))
    falls = list(fallen(results, before))
    for fall in falls:
        click.echo(f"fell: {fall.cell}: ratio {fall.before:.2f} before, {fall.now:.2f} now")
    if failures:
        raise click.ClickException("; ".join(failures))
    if against is not None and not falls:
        click.echo(f"no ratio fell by more than 5 % against {against}")


if __name__ == "__main__":
    main()
