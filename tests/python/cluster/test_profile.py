"""Profiles: measured rates, between the measured sizes and beyond them."""

from __future__ import annotations

import joinsum
import pytest
from joinsum.cluster.profile import Products, Profile, monotone

GATHER = "ia on 2\ninput X: f32[100]<2> (0)\noutput Y = broadcast(X)"


@pytest.mark.parametrize("columns", [2, 4, 9, 16])
def test_products_between_the_measured_ones_take_powers_of_their_extents(columns: int) -> None:
    products = Products("f32", (1.0, 16.0), tuple(a * b * c for a in (1, 16) for b in (1, 16) for c in (1.0, 16.0)))
    cluster = joinsum.Cluster(profile=Profile(0.0, 0.0, products=(products,)))
    text = f"ia on 1\ninput A: f32[8,4]<1,1> ()\ninput B: f32[4,{columns}]<1,1> ()\n"
    plan = joinsum.parse(text + "output C = agg[0, 2; add](join[1; 0; matmul](A, B))")
    assert joinsum.cost(plan, cluster).seconds == pytest.approx(8 * 4 * columns)


def test_what_a_profile_lacks_is_priced_by_the_flat_rates() -> None:
    cluster = joinsum.Cluster(bytes_per_second=100.0, latency_seconds=1.0, profile=Profile(0.0, 0.0))
    assert joinsum.cost(joinsum.parse(GATHER), cluster).seconds == pytest.approx(1 + 200 / 100)


def test_noise_is_flattened_to_a_list_that_never_falls() -> None:
    assert monotone([3.0, 2.0, 1.0]) == [1.0, 1.0, 1.0]
    # One disturbed measurement changes no other one.
    assert monotone([0.1, 90.0, 0.3, 2.0]) == [0.1, 0.3, 0.3, 2.0]
    assert monotone([]) == []
