"""Lists of objectives in Python agree with the planner's table."""

from __future__ import annotations

import pytest
from joinsum import _C
from joinsum.cli.plan import plan
from joinsum.cli.train import train
from joinsum.extreme.plans import FIGURES
from joinsum.planner.cost import amount_text
from joinsum.planner.graph_plan import OBJECTIVES

NAMES = [row.name for row in _C.objectives()]


@pytest.mark.parametrize(("command", "option"), [(plan, "minimize"), (train, "cost")])
def test_commands_offer_every_objective(command: object, option: str) -> None:
    choices = {parameter.name: parameter.type for parameter in command.params}[option]  # type: ignore[attr-defined]
    assert sorted(choices.choices) == sorted(NAMES)


def test_graphs_are_planned_for_every_objective_but_the_tra_papers() -> None:
    assert ("paper", *(name for name in NAMES if name != "paper_floats")) == OBJECTIVES


def test_the_classifier_decides_by_any_objective() -> None:
    assert sorted(FIGURES) == sorted(NAMES)


def test_amounts_have_the_units_of_their_objective() -> None:
    for row in _C.objectives():
        assert amount_text(row.name, 2).endswith(f" {row.unit}")


def test_only_seconds_depend_on_the_cluster() -> None:
    assert [row.name for row in _C.objectives() if row.needs_cluster] == ["seconds"]
