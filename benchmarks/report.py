"""Makes docs/benchmarks.md and its plot from a file of results.

Text before the first generated section stays as it is; a machine, versions and the command stand with each table.

    python benchmarks/report.py FILE
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import click
from frame.cells import Cell
from frame.results import Results, ratio_to_best
from frame.timing import spread

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
GENERATED = "<!-- benchmarks/report.py writes what follows -->"

Figures = Mapping[Cell, dict[str, Any]]


def sections(results: Results) -> Iterator[str]:
    """The summary, then a section for each workload."""
    yield _summary(results.cells)
    for workload in dict.fromkeys(cell.workload for cell in results.cells):
        own = {cell: figures for cell, figures in results.cells.items() if cell.workload == workload}
        yield f"## {workload}\n\n{_about(own)}\n\n{_contenders(own)}"


def _ratios(cells: Figures) -> dict[Cell, float]:
    found = {cell: ratio_to_best(figures["seconds"]) for cell, figures in cells.items()}
    return {cell: best[1].median for cell, best in found.items() if best is not None}


def _summary(cells: Figures) -> str:
    """Geometric means and least ratios by workload and network."""
    groups: dict[tuple[str, str], list[float]] = {}
    for cell, value in _ratios(cells).items():
        groups.setdefault((cell.workload, cell.network), []).append(value)
    rows = [
        f"| {workload} | {network} | {len(values)} | {geometric_mean(values):.2f} | {min(values):.2f} |"
        for (workload, network), values in groups.items()
    ]
    head = "| workload | network | cells | geometric mean of ratios | least |\n|---|---|---|---|---|\n"
    return "## Ratios to the best other contender\n\n" + head + "\n".join(rows) + "\n\n![ratios](benchmarks.png)"


def _about(cells: Figures) -> str:
    """Machine, versions and command, once for all cells that share them."""
    found: dict[str, None] = {}
    for figures in cells.values():
        at = figures["machine"]
        found[
            f"`{figures['command']}` on {at['processor']}, {at['cores']} cores, {at['vectors']}; torch {at['torch']}, "
            f"Python {at['python']}, {at['system']}."
        ] = None
    return "\n".join(found)


def _contenders(cells: Figures) -> str:
    """A row for each cell, a column for each contender: the median milliseconds."""
    names = list(dict.fromkeys(name for figures in cells.values() for name in figures["seconds"]))
    head = ["size", "ranks", "network", *names, "ratio (quartiles)"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for cell, figures in cells.items():
        row = [cell.size, str(cell.ranks), cell.network]
        for name in names:
            seconds = figures["seconds"].get(name)
            row.append(f"{1e3 * spread(seconds).median:.1f} ms" if seconds else "")
        best = ratio_to_best(figures["seconds"])
        row.append(f"{best[1].median:.2f} ({best[1].low:.2f} - {best[1].high:.2f})" if best else "")
        lines.append(f"| {' | '.join(row)} |")
    absent = {f"{name}: {why}" for figures in cells.values() for name, why in figures["absent"].items()}
    return "\n".join(lines) + "".join(f"\n\nAbsent: {each}." for each in sorted(absent))


def document(results: Results, before: str) -> str:
    """The document with its generated part anew."""
    written = before.partition(GENERATED)[0].rstrip()
    return f"{written}\n\n{GENERATED}\n\n" + "\n\n".join(sections(results)) + "\n"


def draw(results: Results, path: Path) -> None:
    """A bar for each cell: its ratio, with quartiles, on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = [(cell, best[1]) for cell, f in results.cells.items() if (best := ratio_to_best(f["seconds"])) is not None]
    figure, axes = pyplot.subplots(figsize=(8, 0.5 + 0.22 * len(bars)), dpi=110)
    colors = {name: f"C{index}" for index, name in enumerate(dict.fromkeys(cell.workload for cell, _ in bars))}
    for row, (cell, of) in enumerate(bars):
        errors = [[of.median - of.low], [of.high - of.median]]
        axes.barh(row, of.median, xerr=errors, color=colors[cell.workload], height=0.7)
    axes.set_yticks(range(len(bars)), [str(cell) for cell, _ in bars], fontsize=7)
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set(xscale="log", xlabel="seconds of the best other contender / seconds of joinsum")
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


@click.command()
@click.argument("file", type=click.Path(exists=True, path_type=Path))
def main(file: Path) -> None:
    """Write docs/benchmarks.md from FILE, which `bench.py --json` has written."""
    results = Results.read(file)
    DOCUMENT.write_text(document(results, DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    draw(results, DOCUMENT.with_suffix(".png"))


if __name__ == "__main__":
    main()
