"""Calibrating: what is measured, and where it goes. No test asserts how long anything takes."""

from __future__ import annotations

from pathlib import Path

import joinsum
import pytest
import torch
from click.testing import CliRunner
from joinsum.cli import main
from joinsum.cluster import calibration
from joinsum.cluster.cache_folder import cache_folder
from joinsum.cluster.calibration import Calibration
from joinsum.cluster.machine import machine_of


def test_loopback_is_calibrated_for_the_user_to_pass_on(tmp_path: Path) -> None:
    sites = joinsum.init(sites=2)
    described = sites.cluster
    cluster = joinsum.calibrate(seconds=0.05, path=tmp_path / "c.json", progress=True)
    assert sites.cluster is described
    assert cluster.profile is not None
    assert cluster.profile.links == ()
    assert cluster.bytes_per_second == described.bytes_per_second
    assert calibration.load(sites, tmp_path / "c.json") == cluster
    assert joinsum.init(sites=2).cluster == described
    plan = joinsum.parse("ia on 2\ninput X: f32[64]<2> (0)\noutput Y = map[(k0); relu](X)")
    assert joinsum.cost(plan, cluster).seconds > 0
    assert joinsum.init(sites=2, cluster=cluster).cluster is cluster


def test_the_file_goes_to_the_cache_folder(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["calibrate", "--seconds", "0.05"])
    assert done.exit_code == 0, done.output
    (written,) = (tmp_path / "cache" / "joinsum").iterdir()
    assert str(written) in done.output.replace("\n", "")
    assert Calibration.of_text(written.read_text(), "c.json").machine == machine_of(joinsum.context())


@pytest.mark.parametrize("seconds", [0, -1, "a", True, float("nan"), float("inf")])
def test_a_wrong_number_of_seconds_is_an_error(seconds: object) -> None:
    with pytest.raises(joinsum.PlanError, match="calibrate: seconds are a positive number"):
        joinsum.calibrate(seconds=seconds)  # type: ignore[arg-type]


def test_calibrating_leaves_the_threads_of_torch_alone() -> None:
    threads = torch.get_num_threads()
    joinsum.calibrate(seconds=0.02, path=cache_folder() / "c.json")
    assert torch.get_num_threads() == threads
