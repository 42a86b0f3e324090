"""What choice.py makes of plans and of their times."""

from __future__ import annotations

import choice
import pytest
from frame.cells import Cell
from frame.results import Results
from joinsum import _C, Cluster


def plan(move: str) -> _C.IaPlan:
    return _C.IaPlan.parse(f"ia on 2\ninput A: f32[512,512]<2,2> (0)\noutput Z = {move}(A)\n")


def figures() -> dict[str, object]:
    return {
        "chosen": {"predicted": 1.0, "seconds": [2.0, 4.0, 2.0]},
        "baseline 1": {"predicted": 2.0, "seconds": [1.0, 2.0, 1.0]},
        "baseline 2": {"predicted": 3.0, "seconds": [3.0, 3.0, 3.0]},
    }


def test_the_chosen_plan_is_compared_with_the_fastest_turn_by_turn():
    assert choice.to_the_fastest(figures()) == 2.0
    assert choice.errors(figures()) == [-0.5, 1.0, 0.0]


def test_tables_have_all_plans_and_all_cells():
    lines = choice.plan_table(figures()).splitlines()
    assert [line.split("  ")[0] for line in lines[2:]] == ["baseline 1", "chosen", "baseline 2"]
    results = Results()
    results.add(Cell("ffnn", "amazon", 2, "open"), {"plans": figures()})
    lines = choice.cell_table(results).splitlines()
    assert lines[2].split() == ["ffnn", "amazon,", "2", "ranks,", "open", "3", "2.00", "50%"]
    assert lines[3].split() == ["all", "3", "50%"]


@pytest.mark.parametrize("count", [1, 2])
def test_the_best_plans_are_kept_beside_the_chosen_one_and_all_baselines(count: int):
    found = choice.Alternatives("", {choice.CHOSEN: plan("shuffle[1]")})
    found.add("found twice", plan("shuffle[1]"))
    found.add("cheap", plan("shuffle[0]"))
    found.add("baseline 1", plan("broadcast"))
    assert "found twice" not in found.plans
    kept = found.ranked(Cluster(), count)
    assert list(kept) == ["cheap", choice.CHOSEN, "baseline 1"]
    assert kept["cheap"] == 0 < kept[choice.CHOSEN] < kept["baseline 1"]
