"""Calibration: what is measured, the file, and the costs that follow. No test asserts how long anything takes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import joinsum
import pytest
import torch
from click.testing import CliRunner
from joinsum import calibration
from joinsum.calibrate import axis_sets, elementwise_families, sub_groups
from joinsum.calibration import Calibration, Machine
from joinsum.cli import main
from joinsum.profile import Curve, Elementwise, Folds, Links, Products, Profile, monotone

HERE = Machine(("host: cpu, 2 cores, 1 threads",) * 2, (("grid", "2"), ("transport", "gloo")), (("torch", "2"),))
PROFILE = Profile(
    run_seconds=0.25,
    node_seconds=0.5,
    links=(Links((0,), Curve((0.0, 1000.0), (1.0, 3.0)), Curve((0.0, 1000.0), (1.0, 2.0))),),
    products=(Products("f32", (1.0, 16.0), (1.0,) * 7 + (64.0,)),),
    elementwise=(Elementwise(1, 1, "ordered", 4, Curve((0.0, 100.0), (0.5, 8.5))),),
    folds=(Folds(4, Curve((0.0, 100.0), (0.5, 4.5)), Curve((0.0, 100.0), (0.5, 2.5))),),
    copies=Curve((0.0, 1000.0), (0.0, 16.0)),
)
CALIBRATION = Calibration(HERE, "2026-01-02T03:04:05+00:00", PROFILE)
GATHER = "ia on 2\ninput X: f32[100]<2> (0)\noutput Y = broadcast(X)"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    joinsum.init()


def read(text: str) -> Calibration:
    return Calibration.of_text(text, "there.json")


def error_of(text: str) -> str:
    with pytest.raises(joinsum.PlanError) as caught:
        read(text)
    return str(caught.value)


def damaged(change: Any) -> str:
    told = json.loads(CALIBRATION.text())
    change(told)
    return error_of(json.dumps(told))


# --- the file ---------------------------------------------------------------------------------------------------------


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
    assert "profile.node_seconds: it is missing" in damaged(lambda told: told["profile"].pop("node_seconds"))
    assert "profile.links[0].all[1]: a size and its seconds" in damaged(
        lambda told: told["profile"]["links"][0]["all"].__setitem__(1, 3)
    )
    assert "profile.copies[0]: a number is wanted" in damaged(
        lambda told: told["profile"]["copies"].__setitem__(0, ["a", 1])
    )
    assert "seconds of a curve never fall" in damaged(lambda told: told["profile"]["copies"].__setitem__(1, [1000, -1]))
    assert "file.format: not a calibration" in damaged(lambda told: told.update(format="poem"))
    assert "an object is wanted" in error_of("[]")


def test_another_version_of_the_format_is_rejected() -> None:
    told = json.loads(CALIBRATION.text()) | {"version": 99}
    with pytest.raises(joinsum.RejectedCalibration, match="another version of the format: file=99, here=1"):
        read(json.dumps(told))


@pytest.mark.parametrize(
    ("here", "reason"),
    [
        (replace(HERE, libraries=(("torch", "3"),)), "stale, libraries have changed: torch: file=2, here=3"),
        (replace(HERE, sites=("other", HERE.sites[1])), "another machine: site=0, file=host: cpu"),
        (replace(HERE, sites=HERE.sites * 2), "another number of sites: file=2, here=4"),
        (
            replace(HERE, layout=(("grid", "2"), ("transport", "nccl"))),
            "another layout: transport: file=gloo, here=nccl",
        ),
    ],
)
def test_files_of_other_sites_or_libraries_are_rejected_with_the_difference(here: Machine, reason: str) -> None:
    with pytest.raises(joinsum.RejectedCalibration) as caught:
        CALIBRATION.check(here, "there.json")
    assert reason in str(caught.value)
    assert "path=there.json" in str(caught.value)


def test_the_name_of_a_file_is_the_sites_and_not_the_libraries() -> None:
    assert HERE.name == replace(HERE, libraries=(("torch", "3"),)).name
    assert HERE.name != replace(HERE, layout=(("grid", "2"),)).name


def test_a_file_that_cannot_be_written_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(joinsum.PlanError, match=r"the file cannot be written: path=.*file/c\.json"):
        CALIBRATION.write(tmp_path / "file" / "c.json", joinsum.context())


def test_without_a_file_nothing_is_loaded() -> None:
    assert calibration.load(joinsum.context()) is None


# --- costs ------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("columns", [2, 4, 9, 16])
def test_products_between_the_measured_ones_take_powers_of_their_extents(columns: int) -> None:
    products = Products("f32", (1.0, 16.0), tuple(a * b * c for a in (1, 16) for b in (1, 16) for c in (1.0, 16.0)))
    cluster = joinsum.Cluster(profile=Profile(0.0, 0.0, products=(products,)))
    text = f"ia on 1\ninput A: f32[8,4]<1,1> ()\ninput B: f32[4,{columns}]<1,1> ()\n"
    plan = joinsum.parse(text + "output C = agg[0, 2; add](join[1; 0; matmul](A, B))")
    assert joinsum.cost(plan, cluster).seconds == pytest.approx(8 * 4 * columns)


def test_longer_curves_and_larger_plans_never_cost_less() -> None:
    cluster = calibration.cluster_of(CALIBRATION)
    costs = [
        joinsum.cost(joinsum.parse(GATHER.replace("100", str(size))), cluster).seconds for size in range(2, 4000, 37)
    ]
    assert costs == sorted(costs)


def test_what_a_profile_lacks_is_priced_by_the_flat_rates() -> None:
    cluster = joinsum.Cluster(bytes_per_second=100.0, latency_seconds=1.0, profile=Profile(0.0, 0.0))
    assert joinsum.cost(joinsum.parse(GATHER), cluster).seconds == pytest.approx(1 + 200 / 100)


def test_a_profile_is_checked() -> None:
    with pytest.raises(joinsum.PlanError, match=r"a profile is what joinsum\.calibrate finds: profile=3"):
        joinsum.Cluster(profile=3)  # type: ignore[arg-type]


def test_noise_is_flattened_to_the_nearest_list_that_never_falls() -> None:
    assert monotone([3.0, 2.0, 1.0]) == [2.0, 2.0, 2.0]
    assert monotone([]) == []


# --- measuring --------------------------------------------------------------------------------------------------------


def test_loopback_is_calibrated_for_the_user_to_pass_on(tmp_path: Path) -> None:
    here = joinsum.init(sites=2)
    described = here.cluster
    cluster = joinsum.calibrate(seconds=0.05, path=tmp_path / "c.json", progress=True)
    assert here.cluster is described
    assert cluster.profile is not None
    assert cluster.profile.links == ()
    assert cluster.bytes_per_second == described.bytes_per_second
    assert calibration.load(here, tmp_path / "c.json") == cluster
    assert joinsum.init(sites=2).cluster == described
    plan = joinsum.parse("ia on 2\ninput X: f32[64]<2> (0)\noutput Y = map[(k0); relu](X)")
    assert joinsum.cost(plan, cluster).seconds > 0
    assert joinsum.init(sites=2, cluster=cluster).cluster is cluster


def test_the_file_goes_to_the_cache_folder(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["calibrate", "--seconds", "0.05"])
    assert done.exit_code == 0, done.output
    (written,) = (tmp_path / "cache" / "joinsum").iterdir()
    assert str(written) in done.output.replace("\n", "")
    assert read(written.read_text()).machine == calibration.machine_of(joinsum.context())


@pytest.mark.parametrize("seconds", [0, -1, "a", True, float("nan"), float("inf")])
def test_a_wrong_number_of_seconds_is_an_error(seconds: object) -> None:
    with pytest.raises(joinsum.PlanError, match="calibrate: seconds are a positive number"):
        joinsum.calibrate(seconds=seconds)  # type: ignore[arg-type]


def test_every_family_of_elementwise_kernels_is_measured_by_kernels_of_the_table() -> None:
    rows = {row.name: row for row in joinsum.kernels() if row.form == "elementwise"}
    for family, names in elementwise_families().items():
        for name in names:
            row = rows[name.split("[")[0]]
            assert (row.operands, row.flops_per_element) == family[:2]


@pytest.mark.parametrize("rank", range(1, 7))
def test_the_set_of_all_axes_is_always_measured(rank: int) -> None:
    sets = axis_sets(rank)
    assert tuple(range(rank)) in sets
    assert len(set(sets)) == len(sets)


def test_sub_groups_are_of_sites_that_differ_along_their_axes_only() -> None:
    assert sub_groups([2, 3], [1]) == [[0, 1, 2], [3, 4, 5]]
    assert sub_groups([2, 3], [0, 1]) == [[0, 1, 2, 3, 4, 5]]


def test_calibrating_leaves_the_threads_of_torch_alone() -> None:
    threads = torch.get_num_threads()
    joinsum.calibrate(seconds=0.02, path=calibration.cache_folder() / "c.json")
    assert torch.get_num_threads() == threads
