"""Files of calibrations, and the costs that follow from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import joinsum
import pytest
from joinsum.cluster import calibration
from joinsum.cluster.calibration import Calibration
from joinsum.cluster.machine import Machine
from joinsum.cluster.profile import Curve, Elementwise, Links, Products, Profile, Reductions

MACHINE = Machine(("host: cpu, 2 cores, 1 threads",) * 2, (("grid", "2"), ("transport", "gloo")), (("torch", "2"),))
PROFILE = Profile(
    run_seconds=0.25,
    node_seconds=0.5,
    links=(Links((0,), Curve((0.0, 1000.0), (1.0, 3.0)), Curve((0.0, 1000.0), (1.0, 2.0))),),
    products=(Products("f32", (1.0, 16.0), (1.0,) * 7 + (64.0,)),),
    elementwise=(Elementwise(1, 1, "ordered", 4, Curve((0.0, 100.0), (0.5, 8.5))),),
    reductions=(Reductions(4, Curve((0.0, 100.0), (0.5, 4.5)), Curve((0.0, 100.0), (0.5, 2.5))),),
    copies=Curve((0.0, 1000.0), (0.0, 16.0)),
)
CALIBRATION = Calibration(MACHINE, "2026-01-02T03:04:05+00:00", PROFILE)
GATHER = "ia on 2\ninput X: f32[100]<2> (0)\noutput Y = broadcast(X)"


def read(text: str) -> Calibration:
    return Calibration.of_text(text, "there.json")


def error_of(text: str) -> str:
    with pytest.raises(joinsum.PlanError) as caught:
        read(text)
    return str(caught.value)


def damaged(change: Any) -> str:
    fields = json.loads(CALIBRATION.text())
    change(fields)
    return error_of(json.dumps(fields))


def test_a_file_is_read_as_it_was_written() -> None:
    assert read(CALIBRATION.text()) == CALIBRATION


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9])
def test_a_file_that_is_cut_off_is_an_error_with_place_and_remedy(part: float) -> None:
    text = CALIBRATION.text()
    message = error_of(text[: int(part * len(text))])
    assert "cut off or damaged at line " in message
    assert "column" in message
    assert "joinsum calibrate" in message
    assert "path=there.json" in message


def test_what_is_wrong_in_a_file_is_named_by_its_place() -> None:
    assert "profile.node_seconds: missing" in damaged(lambda fields: fields["profile"].pop("node_seconds"))
    assert "profile.links[0].all[1]: expected a size and its seconds" in damaged(
        lambda fields: fields["profile"]["links"][0]["all"].__setitem__(1, 3)
    )
    assert "profile.copies[0]: expected a number" in damaged(
        lambda fields: fields["profile"]["copies"].__setitem__(0, ["a", 1])
    )
    assert "seconds of a curve never fall" in damaged(
        lambda fields: fields["profile"]["copies"].__setitem__(1, [1000, -1])
    )
    assert "file.format: not a calibration" in damaged(lambda fields: fields.update(format="poem"))
    assert "expected an object" in error_of("[]")


def test_another_version_of_the_format_is_rejected() -> None:
    fields = json.loads(CALIBRATION.text()) | {"version": 99}
    with pytest.raises(joinsum.RejectedCalibration, match="another version of the format: file=99, here=5"):
        read(json.dumps(fields))


def test_a_file_that_cannot_be_written_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(joinsum.PlanError, match=r"the file cannot be written: path=.*file/c\.json"):
        CALIBRATION.write(tmp_path / "file" / "c.json", joinsum.context())


def test_without_a_file_nothing_is_loaded() -> None:
    assert calibration.load(joinsum.context()) is None


def test_costs_name_the_calibration_that_they_are_for() -> None:
    cluster = calibration.cluster_of(CALIBRATION)
    shown = repr(joinsum.cost(joinsum.parse(GATHER), cluster))
    assert "calibrated 2026-01-02 on 2 ranks of gloo" in shown
    assert "sites agree on the run" in shown
    assert "10 Gbit between sites" in repr(joinsum.cost(joinsum.parse(GATHER), joinsum.Cluster()))


def test_a_move_costs_its_stage_its_copies_and_its_node() -> None:
    cluster = calibration.cluster_of(CALIBRATION)
    cost = joinsum.cost(joinsum.parse(GATHER), cluster)
    stage, copies, node, run = 1 + 2 * 200 / 1000, 16 * 400 / 1000, 0.5, 0.25
    assert cost.seconds == pytest.approx(stage + copies + node + run)
    assert cost.run_seconds == run


def test_longer_curves_and_larger_plans_never_cost_less() -> None:
    cluster = calibration.cluster_of(CALIBRATION)
    costs = [
        joinsum.cost(joinsum.parse(GATHER.replace("100", str(size))), cluster).seconds for size in range(2, 4000, 37)
    ]
    assert costs == sorted(costs)


def test_a_calibration_of_another_machine_is_rejected_with_the_difference_and_the_path() -> None:
    with pytest.raises(
        joinsum.RejectedCalibration, match=r"another number of sites: file=2, here=0; .*path=there\.json"
    ):
        CALIBRATION.check(Machine((), MACHINE.layout, MACHINE.libraries), "there.json")
