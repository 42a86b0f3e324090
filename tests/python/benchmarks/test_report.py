"""The document that report.py writes."""

from __future__ import annotations

from pathlib import Path

import report
from frame.cells import Cell
from frame.results import Results, machine


def results() -> Results:
    found = Results()
    for ranks, other in ((2, 0.5), (4, 2.0)):
        seconds = {"joinsum": [1.0] * 7, "DDP": [other] * 7}
        figures = {"seconds": seconds, "absent": {"Dask": "is not installed"}}
        found.add(Cell("ffnn", "amazon", ranks, "open"), {**figures, "machine": machine(), "command": "python x"})
    return found


def test_what_is_written_by_hand_stays_and_what_is_generated_is_replaced():
    once = report.document(results(), "# Benchmarks\n\nBy hand.\n")
    assert once.startswith("# Benchmarks\n\nBy hand.\n")
    assert report.document(results(), once) == once


def test_the_summary_has_the_geometric_mean_and_the_least_ratio():
    assert "| ffnn | open | 2 | 1.00 | 0.50 |" in report.document(results(), "")


def test_tables_name_the_command_the_machine_and_absent_contenders():
    text = report.document(results(), "")
    assert f"`python x` on {machine()['processor']}" in text
    assert "Absent: Dask: is not installed." in text


def test_a_plot_is_drawn(tmp_path: Path):
    report.draw(results(), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000
