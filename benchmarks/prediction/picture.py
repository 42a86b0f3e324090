"""Figures of the prediction benchmark as text and as a plot."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from joinsum.base.text_table import seconds_text, text_table

__all__ = ["draw", "errors", "rank_correlation", "summary"]

Settings = Sequence[dict[str, Any]]
_COLORS = {"product": "tab:blue", "network": "tab:orange", "neighbours": "tab:green"}
_MARKERS = {"unlimited": "o", "10gbit": "s", "1gbit": "^"}


def _points(settings: Settings) -> list[tuple[float, float]]:
    return [(figure["predicted"], figure["measured"]) for setting in settings for figure in setting["figures"]]


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    for rank, index in enumerate(order):
        ranks[index] = float(rank)
    return ranks


def rank_correlation(points: Sequence[tuple[float, float]]) -> float:
    """Spearman's rank correlation (measured times have no ties).

    >>> rank_correlation([(1.0, 10.0), (2.0, 20.0), (3.0, 15.0)])
    0.5
    """
    return statistics.correlation(_ranks([a for a, _ in points]), _ranks([b for _, b in points]))


def summary(settings: Settings, title: str) -> str:
    """Number of points, rank correlation, and median and 90th percentile of |predicted / measured - 1|."""
    points = _points(settings)
    off = sorted(abs(predicted / measured - 1) for predicted, measured in points)
    tenth = off[min(len(off) - 1, int(0.9 * len(off)))]
    correlation = rank_correlation(points)
    return (
        f"{title}: {len(points)} plans, rank correlation {correlation:.3f}, "
        f"median error {statistics.median(off):.1%}, 90 % within {tenth:.0%}"
    )


def errors(settings: Settings) -> str:
    """A line for each plan and setting."""
    rows = [
        [
            f"{setting['ranks']} x {setting['link']}",
            figure["plan"],
            seconds_text(figure["predicted"]),
            seconds_text(figure["measured"]),
            f"{seconds_text(min(figure['runs']))} - {seconds_text(max(figure['runs']))}",
            f"{figure['predicted'] / figure['measured'] - 1:+.0%}",
        ]
        for setting in settings
        for figure in setting["figures"]
    ]
    return text_table(["setting", "plan", "predicted", "measured", "runs", "error"], rows, right=range(2, 6))


def draw(settings: Settings, path: Path) -> None:
    """Predicted over measured, both logarithmic; the lines are equality and 15 % off it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 5.2), dpi=110)
    for setting in settings:
        for entry in setting["figures"]:
            axes.plot(
                entry["measured"],
                entry["predicted"],
                _MARKERS.get(setting["link"], "x"),
                color=_COLORS[entry["plan"].split()[0]],
                fillstyle="full" if setting["ranks"] == 2 else "none",
                markersize=6,
            )
    values = [value for point in _points(settings) for value in point]
    ends = [min(values) / 1.3, max(values) * 1.3]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.fill_between(ends, [0.85 * end for end in ends], [1.15 * end for end in ends], color="black", alpha=0.1)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured seconds", ylabel="predicted seconds")
    for name, color in _COLORS.items():
        axes.plot([], [], "o", color=color, label=name)
    for name, marker in _MARKERS.items():
        axes.plot([], [], marker, color="gray", label=name)
    axes.plot([], [], "o", color="gray", label="2 ranks")
    axes.plot([], [], "o", color="gray", fillstyle="none", label="4 ranks")
    axes.legend(fontsize=8)
    axes.set_title(summary(settings, "all"), fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
