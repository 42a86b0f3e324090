"""Flags of the programs that go through cells: which cells, and the file of their figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from frame.cells import SUITES, Asked, chosen_cells
from frame.results import Results

__all__ = ["cell_flags"]


def cell_flags(suite: str, known: Mapping[str, Sequence[str]]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the flags to a command, which gets `suite`, `chosen` (cells) and `results` in their place.

    suite   the default
    known   the sizes of each workload
    """
    options = [
        click.option("--suite", type=click.Choice(list(SUITES)), default=suite, show_default=True, help="Which cells."),
        click.option("--workload", "workloads", type=click.Choice(list(known)), multiple=True),
        click.option("--size", "sizes", multiple=True, help="Names of sizes."),
        click.option("--ranks", help="Numbers of ranks, with commas."),
        click.option(
            "--network", "networks", help="`open`, or links such as 1gbit, 10gbit+0.2ms, 2x1gbit, with commas."
        ),
        click.option("--json", "file", type=click.Path(path_type=Path), help="Write the figures here, cell by cell."),
        click.option("--resume", is_flag=True, help="Leave out the cells that the file of --json has."),
    ]

    def add_to(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_cells(
            suite: str,
            workloads: tuple[str, ...],
            sizes: tuple[str, ...],
            ranks: str | None,
            networks: str | None,
            file: Path | None,
            resume: bool,
            **others: Any,
        ) -> None:
            if resume and file is None:
                raise click.UsageError("--resume needs the file of --json")
            try:
                chosen = chosen_cells(suite, known, Asked(workloads, sizes, ranks, networks))
            except ValueError as error:
                raise click.UsageError(str(error)) from None
            results = Results.read(file) if resume and file is not None else Results(file)
            command(suite=suite, chosen=chosen, results=results, **others)

        for option in reversed(options):
            with_cells = option(with_cells)
        return with_cells

    return add_to
