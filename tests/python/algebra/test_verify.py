"""Verdicts on physical plans, and the rules that make such plans."""

from __future__ import annotations

import joinsum
import pytest

PROGRAM = """tra
input A: f32[40000,10000]<4,4>
input B: f32[10000,40000]<4,4>
output C = aggregate[0, 2; add](join[1; 0; matmul](A, B))"""

INPUTS = """ia on 2x2
input A: f32[40000,10000]<4,4> (1, 1)
input B: f32[10000,40000]<4,4> (0, 0)
"""


def verdict(expression: str) -> joinsum.Verdict:
    plan, program = joinsum.parse(f"{INPUTS}output C = {expression}"), joinsum.parse(PROGRAM)
    assert isinstance(plan, joinsum.IaPlan)
    assert isinstance(program, joinsum.TraPlan)
    return joinsum.verify(plan, program)


def test_a_plan_that_rules_derive_is_proved() -> None:
    found = verdict("shuffle[0](agg[0, 2; add](join[1; 0; matmul](A, B)))")
    assert found.kind == "proved"
    assert found.accepted


def test_a_plan_with_another_kernel_is_refuted_on_small_arrays() -> None:
    found = verdict("shuffle[0](agg[0, 2; max](agg[0, 1, 2; add](shuffle[1](join[1; 0; matmul](A, B)))))")
    assert found.kind == "refuted"
    assert found.reason.startswith("output C (t4) differs: key=<")
    assert not found.accepted


def test_a_plan_that_leaves_partials_is_refuted() -> None:
    found = verdict("agg[0, 2; add](join[1; 0; matmul](A, B))")
    assert found == joinsum.Verdict("refuted", "output C (t1) is pending: placement=(+add, +add)")


def test_the_plans_must_be_a_physical_and_a_logical_one() -> None:
    program = joinsum.parse(PROGRAM)
    with pytest.raises(joinsum.PlanError, match="verify: a physical plan is compared with a logical one: plan=TraPlan"):
        joinsum.verify(program, program)  # type: ignore[arg-type]


def test_rounds_are_positive() -> None:
    program = joinsum.parse(PROGRAM)
    assert isinstance(program, joinsum.TraPlan)
    with pytest.raises(joinsum.PlanError, match="verify: at least one round: rounds=0"):
        joinsum.verify(joinsum.lower(program), program, rounds=0)


def test_every_lowered_plan_is_proved() -> None:
    program = joinsum.parse(PROGRAM)
    assert isinstance(program, joinsum.TraPlan)
    assert joinsum.verify(joinsum.lower(program), program).kind == "proved"


def test_rules_are_listed_once_each() -> None:
    names = [rule.name for rule in joinsum.rules()]
    assert len(set(names)) == len(names) > 30
    assert {"R1-1", "R2-7", "MM-3", "P-1"} <= set(names)
