"""The picture of the sparse benchmarks, from made-up figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sparse_plots
from click.testing import CliRunner
from sparse_plots import Mark

KERNELS = [
    {"operation": "spmv", "matrix": "yeast", "threads": 1, "ms": {"scipy": 3.0, "joinsum": 2.0, "torch": 1.0}},
    {"operation": "spmv", "matrix": "yeast", "threads": 2, "ms": {"joinsum": 0.5, "scipy": 2.0}},
    {"operation": "spmm", "matrix": "human", "threads": 2, "ms": {"joinsum": 4.0, "scipy": 10.0, "torch": 8.0}},
]
JOINS = [
    {
        "join": "star",
        "workload": "linear",
        "threads": 2,
        "refused": "",
        "plan": 0.5,
        "run": 1.5,
        "others": {"torch": 9.0, "numpy by hand": 1.0},
    },
    {
        "join": "self",
        "workload": "covariance",
        "threads": 2,
        "refused": "too large",
        "plan": 0.5,
        "run": 0.0,
        "others": {"torch": 9.0},
    },
]
SUBGRAPHS = [
    {"graph": "yeast", "family": "star", "joinsum": 2.0, "duckdb": 2.0 * ratio} for ratio in (9.0, 1.0, 3.0, 2.0, 4.0)
] + [{"graph": "human", "family": "star", "joinsum": 0.5, "duckdb": 0.25}]


def test_operations_are_compared_with_the_fastest_other_library() -> None:
    assert sparse_plots.operations(KERNELS) == [
        Mark("spmv", "yeast, 1 thread", 0.5, 0.5, 0.5),
        Mark("spmv", "yeast, 2 threads", 4.0, 4.0, 4.0),
        Mark("spmm", "human, 2 threads", 2.0, 2.0, 2.0),
    ]


def test_joins_count_planning_and_leave_out_what_was_refused() -> None:
    assert sparse_plots.joins(JOINS) == [Mark("star: linear", "2 threads", 0.5, 0.5, 0.5)]


def test_families_have_the_median_and_the_quartiles_of_their_ratios() -> None:
    assert sparse_plots.subgraphs(SUBGRAPHS) == [
        Mark("star", "yeast", 3.0, 2.0, 4.0),
        Mark("star", "human", 0.5, 0.5, 0.5),
    ]


def run(folder: Path, **files: list[dict[str, Any]]) -> tuple[Any, Path]:
    options = ["--out", str(folder / "sparse.png")]
    for name, rows in files.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(rows))
        options += [f"--{name}", str(path)]
    return CliRunner().invoke(sparse_plots.main, options), folder / "sparse.png"


@pytest.mark.parametrize("names", [("kernels", "joins", "subgraphs"), ("subgraphs",)])
def test_a_picture_is_drawn_of_the_files_that_there_are(tmp_path: Path, names: tuple[str, ...]) -> None:
    rows = {"kernels": KERNELS, "joins": JOINS, "subgraphs": SUBGRAPHS}
    result, picture = run(tmp_path, **{name: rows[name] for name in names})
    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_axes_are_logarithmic_with_a_line_at_one() -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    sparse_plots.draw_panel(axes, sparse_plots.Panel("operations", "ratio", sparse_plots.operations(KERNELS)))
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.get_yticklabels()] == ["spmv", "spmm"]
    assert [1, 1] in [list(line.get_xdata()) for line in axes.get_lines()]
    drawn = [value for line in axes.get_lines() for value in line.get_xdata()]
    assert {0.5, 4.0, 2.0} <= set(drawn)


def test_nothing_to_draw_is_an_error(tmp_path: Path) -> None:
    result, picture = run(tmp_path)
    assert result.exit_code == 2
    assert "nothing to draw" in result.output
    assert run(tmp_path, joins=JOINS[1:])[0].exit_code == 2
    assert not picture.exists()
