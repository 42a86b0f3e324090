"""What an explanation holds."""

from __future__ import annotations

import joinsum
from explained_programs import PROGRAM


def test_alternatives_are_the_plans_that_lost_and_by_how_much() -> None:
    joinsum.init(sites=6)
    found = joinsum.optimize(joinsum.parse(PROGRAM), minimize="wire_bytes")
    explained = joinsum.explain(found)
    assert [other.name for other in explained.alternatives] == [each.name for each in found.candidates[1:]]
    for other in explained.alternatives:
        assert other.extra_cost == other.cost.wire_bytes - explained.cost.wire_bytes >= 0
    assert [other.extra_cost for other in explained.alternatives] == sorted(
        other.extra_cost for other in explained.alternatives
    )


def test_an_exact_search_says_so_and_one_without_placement_does_not() -> None:
    joinsum.init(sites=4)
    assert joinsum.explain(joinsum.parse(PROGRAM), minimize="wire_bytes").exact
    plain = joinsum.explain(joinsum.parse(PROGRAM), without=["placement", "products", "rewrite"])
    assert not plain.exact
    assert "not exact: no proof" in str(plain)
    assert "alternatives: none" in str(plain)
