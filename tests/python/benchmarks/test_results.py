"""Files of results, and comparisons of two runs."""

from __future__ import annotations

import doctest
from pathlib import Path

import frame.results
from frame.cells import Cell
from frame.results import Results, fallen, ratio_to_best, table

CELL = Cell("ffnn", "amazon", 2, "open")


def figures(joinsum: float, **others: float) -> dict[str, dict[str, list[float]]]:
    return {"seconds": {"joinsum": [joinsum] * 3, **{name: [value] * 3 for name, value in others.items()}}}


def results(joinsum: float, **others: float) -> Results:
    found = Results()
    found.add(CELL, figures(joinsum, **others))
    return found


def test_the_examples_hold():
    assert doctest.testmod(frame.results).failed == 0


def test_a_ratio_is_to_the_fastest_other_contender():
    name, of = ratio_to_best(figures(2.0, DDP=1.0, FSDP2=4.0)["seconds"])
    assert (name, of.median) == ("DDP", 0.5)


def test_a_cell_without_another_contender_has_no_ratio():
    assert ratio_to_best({"joinsum": [1.0]}) is None
    assert table(results(1.0))[0][-1] == ""


def test_a_ratio_that_fell_by_more_than_five_percent_is_named():
    before = results(1.0, DDP=1.0)
    assert [fall.cell for fall in fallen(results(1.06, DDP=1.0), before)] == [CELL]
    assert list(fallen(results(1.04, DDP=1.0), before)) == []
    assert list(fallen(results(0.5, DDP=1.0), before)) == []


def test_a_slower_machine_is_no_fall():
    assert list(fallen(results(10.0, DDP=10.0), results(1.0, DDP=1.0))) == []


def test_a_new_contender_that_is_faster_is_a_fall():
    """The ratio is to the best of all."""
    assert len(list(fallen(results(1.0, DDP=1.0, buckets=0.5), results(1.0, DDP=1.0)))) == 1


def test_cells_that_only_one_run_has_are_not_compared():
    assert list(fallen(results(9.0, DDP=1.0), Results())) == []


def test_a_file_has_the_cells_of_an_interrupted_run(tmp_path: Path):
    path = tmp_path / "results.json"
    Results(path).add(CELL, figures(1.0, DDP=2.0))
    read = Results.read(path)
    read.add(CELL._replace(ranks=4), figures(1.0, DDP=3.0))
    assert [cell.ranks for cell in Results.read(path).cells] == [2, 4]
    assert not path.with_suffix(".new").exists()


def test_a_missing_file_has_no_cells(tmp_path: Path):
    assert Results.read(tmp_path / "none.json").cells == {}
