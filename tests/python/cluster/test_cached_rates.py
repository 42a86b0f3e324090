"""Rates of sites that nobody has calibrated stay what they were while looks at them come near."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import joinsum
import pytest
from joinsum import Cluster
from joinsum.cluster.cached_rates import FASTER, SLOWER, with_cached_rates
from joinsum.cluster.machine import Machine
from joinsum.cluster.profile import Curve, Profile

HERE = Machine(("host: cpu",), (("grid", "1"), ("transport", "gloo")), (("torch", "2"),))


def profile_of(times: float) -> Profile:
    return Profile(1e-3 / times, 1e-5 / times, copies=Curve((0.0, 1e9), (0.0, 0.1 / times)), quick=True)


FIRST = Cluster("quick", 1e11, 1e9, 1e-4, profile=profile_of(1.0))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JOINSUM_PLAN_CACHE", raising=False)
    yield tmp_path / "joinsum"
    monkeypatch.undo()
    joinsum.init()


def look(machine: Machine = HERE, caches_plans: bool = True, times: float = 1.0) -> Cluster:
    """What a start finds whose quick look is so many times faster than the first one."""
    sites = joinsum.init(sites=1)
    rates = (FIRST.flops_per_second * times, FIRST.bytes_per_second * times, FIRST.latency_seconds / times)
    return with_cached_rates(sites, machine, Cluster("quick", *rates), caches_plans, lambda: profile_of(times))


@pytest.mark.parametrize("times", [0.9 * FASTER, 1.0, 0.6, 1.1 / SLOWER])
def test_a_look_that_comes_near_changes_nothing(times: float) -> None:
    assert look() == FIRST
    assert look(times=times) == FIRST
    assert look() == FIRST


@pytest.mark.parametrize("times", [1.1 * FASTER, 100.0, 0.9 / SLOWER])
def test_a_look_that_is_far_off_counts_from_then_on(times: float) -> None:
    look()
    changed = look(times=times)
    assert changed.bytes_per_second == FIRST.bytes_per_second * times
    assert changed.latency_seconds == FIRST.latency_seconds / times
    assert changed.profile == profile_of(times)
    assert look(times=times) == changed


@pytest.mark.parametrize(
    "other",
    [
        Machine(("another: cpu",), HERE.layout, HERE.libraries),
        Machine(HERE.sites * 2, HERE.layout, HERE.libraries),
        Machine(HERE.sites, (("grid", "1"), ("transport", "nccl")), HERE.libraries),
        Machine(HERE.sites, HERE.layout, (("torch", "3"),)),
    ],
)
def test_other_hosts_layouts_and_versions_have_rates_of_their_own(other: Machine) -> None:
    look()
    assert look(other, times=1.2).flops_per_second == 1.2 * FIRST.flops_per_second


def test_no_rate_is_cached_where_plans_are_not(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look(caches_plans=False)
    monkeypatch.setenv("JOINSUM_PLAN_CACHE", "0")
    look()
    assert not folder.exists()


@pytest.mark.parametrize("content", ["[", "[]", "{}"])
def test_a_damaged_file_is_a_warning_and_replaced(folder: Path, content: str) -> None:
    look()
    (file,) = folder.iterdir()
    file.write_text(content)
    with pytest.warns(UserWarning, match="cached rates are not used, but those measured now: file="):
        assert look(times=1.2).flops_per_second == 1.2 * FIRST.flops_per_second
    assert look().flops_per_second == 1.2 * FIRST.flops_per_second


@pytest.mark.parametrize("name", ["rates", "profile"])
def test_a_file_without_an_entry_is_a_warning_and_replaced(folder: Path, name: str) -> None:
    look()
    (file,) = folder.iterdir()
    content = json.loads(file.read_text())
    content[name] = {"flops_per_second": -1.0}
    file.write_text(json.dumps(content))
    with pytest.warns(UserWarning, match="cached rates are not used, but those measured now: file="):
        assert look(times=1.2).flops_per_second == 1.2 * FIRST.flops_per_second
