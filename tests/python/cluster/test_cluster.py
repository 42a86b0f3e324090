"""Clusters: rates in their ranges, and the short measurement."""

from __future__ import annotations

import joinsum
import pytest
import torch
from joinsum.cluster.cluster import measure
from joinsum.cluster.profile import Curve, Links, Profile

PLAN = """ia on 2
input X: f32[1000]<2> (0)
input A: f32[1000]<2> (0)
output Z = broadcast(A)
output Y = map[(k0); exp](X)"""


def overlapping(overlap: float) -> joinsum.Cluster:
    """Messages take 1 s, a map of 500 elements 0.5 s."""
    second = Curve((0.0, 1e6), (1.0, 1.0))
    profile = Profile(0.0, 0.0, links=(Links((0,), second, second),), overlap=overlap)
    return joinsum.Cluster(flops_per_second=1e3, profile=profile)


@pytest.mark.parametrize(("overlap", "seconds"), [(0.0, 1.5), (0.2, 1.3), (1.0, 1.0)])
def test_messages_hide_behind_computations_by_the_overlap(overlap: float, seconds: float) -> None:
    cost = joinsum.cost(joinsum.parse(PLAN), overlapping(overlap))
    assert sum(node.seconds for node in cost.nodes) == pytest.approx(1.5, rel=1e-6)
    assert cost.seconds == pytest.approx(seconds, rel=1e-6)
    assert cost.hidden_seconds == pytest.approx(1.5 - seconds, rel=1e-6)
    assert ("of messages that travel meanwhile" in repr(cost)) == (overlap > 0)


def test_moves_that_travel_together_share_their_latency() -> None:
    plan = joinsum.parse(PLAN.replace("output Y", "input B: f32[1000]<2> (0)\noutput W = broadcast(B)\noutput Y"))
    cost = joinsum.cost(plan, overlapping(0.0))
    assert sum(node.seconds for node in cost.nodes) == pytest.approx(2.5, rel=1e-6)
    assert cost.seconds == pytest.approx(1.5, rel=1e-6)


def test_with_hidden_messages_only_what_no_schedule_avoids_counts() -> None:
    # 500 elements take 1 s of latency and 2 s for their bytes.
    curve = Curve((0.0, 2000.0), (1.0, 3.0))
    profile = Profile(0.0, 0.0, links=(Links((0,), curve, curve),), overlap=0.75)
    left = joinsum.Cluster(flops_per_second=1e3, profile=profile).with_hidden_messages
    assert joinsum.cost(joinsum.parse(PLAN), left).seconds == pytest.approx(0.5 + 0.25 * 2, rel=1e-6)
    assert joinsum.Cluster().with_hidden_messages == joinsum.Cluster()


def test_an_overlap_is_a_fraction() -> None:
    with pytest.raises(joinsum.PlanError, match=r"a fraction is at least 0 and at most 1: overlap=1\.5"):
        overlapping(1.5).core()


def test_a_profile_is_checked() -> None:
    with pytest.raises(joinsum.PlanError, match=r"a profile is what joinsum\.calibrate finds: profile=3"):
        joinsum.Cluster(profile=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["flops_per_second", "bytes_per_second", "latency_seconds"])
def test_a_rate_outside_its_range_is_named(name: str) -> None:
    with pytest.raises(joinsum.PlanError, match=f"a rate is a positive number, a latency not negative: {name}=-1"):
        joinsum.Cluster(**{name: -1.0})  # type: ignore[arg-type]


def test_memory_is_a_number_of_bytes() -> None:
    with pytest.raises(joinsum.PlanError, match=r"memory is a number of bytes or None: memory_bytes=1\.5"):
        joinsum.Cluster(memory_bytes=1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("sites", [1, 2])
def test_a_short_measurement_gives_positive_rates(sites: int) -> None:
    cluster = measure(joinsum.init(sites=sites).transport, torch.device("cpu"), "quick")
    assert cluster.name == "quick"
    assert cluster.flops_per_second > 0
    assert cluster.bytes_per_second > 0
