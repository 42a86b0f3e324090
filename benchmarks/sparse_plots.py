"""Draws docs/sparse.png from what the sparse benchmarks measured: single operations, joins, subgraph counting.

Operations and joins show the seconds of the fastest other contender divided by joinsum's, of joins by planning and
running; subgraphs DuckDB's divided by joinsum's, the median and the quartiles of each family. Above 1 joinsum is
faster.

    python benchmarks/sparse_kernels.py --json kernels.json
    python benchmarks/sparse_joins.py --json joins.json
    python benchmarks/sparse_subgraphs.py --json subgraphs.json
    python benchmarks/sparse_plots.py --kernels kernels.json --joins joins.json --subgraphs subgraphs.json

A file may be left out; the picture then lacks its part.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

import click

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "sparse.png"

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Mark:
    """A ratio, or the median of several with its quartiles, in the line `row` of a panel; one colour a `series`."""

    row: str
    series: str
    ratio: float
    low: float
    high: float


def single(row: str, series: str, ratio: float) -> Mark:
    return Mark(row, series, ratio, ratio, ratio)


def operations(rows: Rows) -> list[Mark]:
    """A mark for each operation, matrix and number of threads."""
    found = []
    for row in rows:
        best = min(ms for name, ms in row["ms"].items() if name != "joinsum")
        series = f"{row['matrix']}, {row['threads']} thread{'s' if row['threads'] > 1 else ''}"
        found.append(single(row["operation"], series, best / row["ms"]["joinsum"]))
    return found


def joins(rows: Rows) -> list[Mark]:
    """A mark for each workload and number of threads; none where joinsum refused."""
    return [
        single(
            f"{row['join']}: {row['workload']}",
            f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}",
            min(row["others"].values()) / (row["plan"] + row["run"]),
        )
        for row in rows
        if not row["refused"]
    ]


def subgraphs(rows: Rows) -> list[Mark]:
    """The median and the quartiles of each family's ratios, by network."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        groups[row["family"], row["graph"]].append(row["duckdb"] / row["joinsum"])
    found = []
    for (family, graph), ratios in groups.items():
        low, middle, high = quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
        found.append(Mark(family, graph, middle, low, high))
    return found


@dataclass(frozen=True)
class Panel:
    title: str
    label: str
    marks: list[Mark]

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(mark.row for mark in self.marks))


READERS: dict[str, tuple[str, str, Callable[[Rows], list[Mark]]]] = {
    "kernels": ("single operations", "fastest other library / joinsum", operations),
    "joins": ("machine learning over joins", "fastest other contender / joinsum with planning", joins),
    "subgraphs": ("labelled subgraphs", "DuckDB / joinsum with planning: median, quartiles", subgraphs),
}


def panels(files: dict[str, Path | None]) -> list[Panel]:
    """What to draw, of the files that there are."""
    found = []
    for name, (title, label, read) in READERS.items():
        file = files[name]
        if file is not None:
            found.append(Panel(title, label, read(json.loads(file.read_text(encoding="utf-8")))))
    return found


def draw_panel(axes: Any, panel: Panel) -> None:
    """A line for each row; marks of different series lie a little above one another."""
    rows = panel.rows
    series = list(dict.fromkeys(mark.series for mark in panel.marks))
    step = 0.7 / len(series)
    for number, name in enumerate(series):
        own = [mark for mark in panel.marks if mark.series == name]
        places = [rows.index(mark.row) - 0.35 + (number + 0.5) * step for mark in own]
        errors = [[mark.ratio - mark.low for mark in own], [mark.high - mark.ratio for mark in own]]
        axes.errorbar([mark.ratio for mark in own], places, xerr=errors, fmt="o", markersize=4, label=name)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set(xscale="log", title=panel.title, xlabel=panel.label)
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))


def draw(drawn: list[Panel], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    heights = [1.0 + 0.45 * len(panel.rows) for panel in drawn]
    figure, grid = pyplot.subplots(
        len(drawn), 1, figsize=(9, sum(heights)), dpi=110, squeeze=False, height_ratios=heights
    )
    for axes, panel in zip(grid[:, 0], drawn, strict=True):
        draw_panel(axes, panel)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


@click.command(help=__doc__)
@click.option("--kernels", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--joins", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--subgraphs", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", default=PICTURE, show_default="docs/sparse.png", type=click.Path(path_type=Path))
def main(out: Path, **files: Path | None) -> None:
    found = [panel for panel in panels(files) if panel.marks]
    if not found:
        raise click.UsageError("nothing to draw: give --kernels, --joins or --subgraphs, a file that has rows")
    draw(found, out)


if __name__ == "__main__":
    main()
