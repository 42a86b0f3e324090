"""Where two plans part: values are matched by what they are, wherever they lie."""

from __future__ import annotations

import joinsum
import pytest

START = "ia on 2\ninput X: f32[4,4]<2,2> (0)\ninput W: f32[4,4]<2,2> "
END = "\noutput Z = agg[0, 2; add](join[1; 0; matmul](X, w))"
FAR = START + "(0)\nw = broadcast(W)" + END
NEAR = START + "(*)\nw = W" + END
PROGRAM = """tra
input X: f32[24,18]<6,6>
input W: f32[18,30]<6,6>
output Y = transform[relu](aggregate[0, 2; add](join[1; 0; matmul](X, W)))
"""


def plan(text: str) -> joinsum.IaPlan:
    parsed = joinsum.parse(text)
    assert isinstance(parsed, joinsum.IaPlan)
    return parsed


def test_a_plan_does_not_differ_from_itself() -> None:
    same = joinsum.diff(plan(FAR), plan(FAR))
    assert same.equal
    assert same.same == 4
    assert str(same).startswith("the plans do the same: 4 values")


def test_plans_part_where_one_moves_and_the_other_has_the_value_already() -> None:
    found = joinsum.diff(plan(FAR), plan(NEAR))
    (only,) = found.differences
    assert (only.value, str(only.a), str(only.b)) == ("W", "W (0), then t0 (*)", "W (*)")
    assert only.wire_bytes == -64
    assert found.same == 3
    assert str(found).startswith("the plans differ first at W; values that differ: 1, that do not: 3")


def test_differences_add_up_to_that_of_the_plans() -> None:
    joinsum.init(sites=6)
    found = joinsum.optimize(joinsum.parse(PROGRAM), minimize="wire_bytes")
    best = found.candidates[0]
    for other in found.candidates[1:]:
        parted = joinsum.diff(best.plan, other.plan)
        assert sum(each.wire_bytes for each in parted.differences) == other.cost.wire_bytes - best.cost.wire_bytes
        assert sum(each.seconds for each in parted.differences) == pytest.approx(other.cost.seconds - best.cost.seconds)
        assert not parted.equal


def test_the_other_way_around_the_signs_turn() -> None:
    there, back = joinsum.diff(plan(FAR), plan(NEAR)), joinsum.diff(plan(NEAR), plan(FAR))
    assert [each.wire_bytes for each in there.differences] == [-each.wire_bytes for each in back.differences]


def test_an_operator_that_one_plan_lacks_stands_alone() -> None:
    longer = "ia on 2\ninput X: f32[4]<2> (0)\noutput Y = map[(k0); relu](X)"
    shorter = "ia on 2\ninput X: f32[4]<2> (0)\noutput Y = X"
    (only,) = joinsum.diff(plan(longer), plan(shorter)).differences
    assert (only.value, str(only.a), str(only.b)) == ("local_map[(k0); relu]", "t0 (0)", "-")


def test_what_optimize_and_explain_give_is_compared_too() -> None:
    joinsum.init(sites=2)
    found = joinsum.optimize(joinsum.parse(PROGRAM))
    assert joinsum.diff(found, joinsum.explain(found)).equal


def test_a_logical_plan_is_refused_with_a_remedy() -> None:
    with pytest.raises(joinsum.PlanError, match="lower or optimize a logical one first: b=TraPlan"):
        joinsum.diff(plan(FAR), joinsum.parse(PROGRAM))  # type: ignore[arg-type]
