"""Clusters: rates in their ranges, and the short measurement."""

from __future__ import annotations

import joinsum
import pytest
import torch
from joinsum.cluster.cluster import measure


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
