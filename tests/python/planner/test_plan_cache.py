"""Plans in the user's cache folder: used when nothing has changed, otherwise rejected with the reason."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joinsum
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joinsum import _C, PlanError
from joinsum.planner.plan_cache import VERSION, PlanCache, package_digest, user_plan_cache

EQUATION = "ij,jk,kl->il"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder of plans, which is on."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JOINSUM_PLAN_CACHE", raising=False)
    joinsum.init(sites=4)
    yield tmp_path / "joinsum" / "plans"
    monkeypatch.undo()
    joinsum.init()


def planned(again: bool = True, **options: Any) -> joinsum.PlannedEinsum:
    """As a new process plans it: with nothing in memory."""
    if again:
        joinsum.init(sites=4)
    return joinsum.einsum_plan(EQUATION, (8, 6), (6, 5), (5, 7), **options)


def the_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def never(*_: object) -> None:
    raise AssertionError("planned again")


def test_the_code_is_that_of_the_whole_package(tmp_path: Path) -> None:
    (tmp_path / "nn").mkdir()
    digests = set()
    for name, text in [("a.py", "1"), ("nn/b.py", "1"), ("nn/b.py", "2"), ("nn/c.txt", "1")]:
        (tmp_path / name).write_text(text)
        digests.add(package_digest(tmp_path))
    assert len(digests) == 3


# --- hits -------------------------------------------------------------------------------------------------------------


def test_a_cached_plan_is_used_without_planning(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = planned()
    assert first.origin == "planned here"
    monkeypatch.setattr(_C, "optimize", never)
    second = planned()
    assert second.origin == f"cached in {the_file(folder)}"
    assert (second.plan, second.binary, second.program) == (first.plan, first.binary, first.program)
    assert repr(second.steps) == repr(first.steps)
    operands = [torch.rand(shape) for shape in [(8, 6), (6, 5), (5, 7)]]
    torch.testing.assert_close(second(*operands), torch.einsum(EQUATION, *operands))


def test_einsum_and_its_gradients_are_cached_too(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.rand(8, 6, requires_grad=True), torch.rand(6, 5)
    joinsum.einsum("ij,jk->ik", x, y).sum().backward()
    joinsum.init(sites=4)
    monkeypatch.setattr(_C, "optimize", never)
    joinsum.einsum("ij,jk->ik", x, y).sum().backward()
    torch.testing.assert_close(x.grad, 2 * y.sum(1).expand(8, 6))


def test_other_sites_shapes_dtypes_and_graphs_have_other_files(folder: Path) -> None:
    planned()
    joinsum.init(sites=2)
    planned(again=False)
    joinsum.einsum_plan(EQUATION, (8, 6), (6, 5), (5, 8))
    joinsum.einsum_plan(EQUATION, (8, 6), (6, 5), (5, 7), dtype=torch.float64)
    joinsum.einsum_plan(EQUATION, (8, 6), (6, 5), (5, 7), agg="max")
    assert len(list(folder.iterdir())) == 5


# --- rejections -------------------------------------------------------------------------------------------------------


def rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes a file's fields, and makes its checksum fit."""
    fields = json.loads(path.read_text())
    change(fields)
    del fields["checksum"]
    fields["checksum"] = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(fields))


def of_other_sites(fields: dict[str, Any]) -> None:
    fields["plan"] = fields["plan"].replace("ia on 2x2", "ia on 3").replace("(*, *)", "(*)")


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "cut off or damaged"),
    "cut off": (lambda path: path.write_bytes(path.read_bytes()[:-20]), "cut off or damaged"),
    "not text": (lambda path: path.write_bytes(b"\xff\xfe" + path.read_bytes()), "cut off or damaged"),
    "deep lists": (lambda path: path.write_text("[" * 200_000), "cut off or damaged"),
    "another kind of key": (lambda path: rewrite(path, lambda fields: fields.update(key=5)), "fields are not those"),
    "no sites in the key": (
        lambda path: rewrite(path, lambda fields: fields["key"].pop("machine")),
        "fields are not those",
    ),
    "a plan that is no text": (
        lambda path: rewrite(path, lambda fields: fields.update(plan=[1])),
        "fields are not those",
    ),
    "no plan": (lambda path: rewrite(path, lambda fields: fields.pop("plan")), "fields are not those"),
    "another format": (lambda path: path.write_text('{"format": "recipe"}'), "no plan of joinsum's"),
    "no object": (lambda path: path.write_text("[1, 2]"), "no plan of joinsum's"),
    "one letter": (lambda path: path.write_text(path.read_text().replace("ij", "ik", 1)), "its checksum is another"),
    "no checksum": (
        lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), "checksum": None})),
        "its checksum is another",
    ),
    "another graph": (
        lambda path: rewrite(path, lambda fields: fields["key"].update(graph=fields["key"]["graph"] + " ")),
        "the plan of another graph",
    ),
    "an unreadable plan": (
        lambda path: rewrite(path, lambda fields: fields.update(plan="ia on mars")),
        "it is damaged: ",
    ),
    "a plan of other sites": (lambda path: rewrite(path, of_other_sites), "damaged|for other sites"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "cannot be read"),
}


@pytest.mark.parametrize("name", [name for name in DAMAGES if name != "a folder"])
def test_a_damaged_or_foreign_file_is_rejected_with_a_warning_and_replaced(folder: Path, name: str) -> None:
    damage, said = DAMAGES[name]
    wanted = planned().plan
    damage(the_file(folder))
    with pytest.warns(UserWarning, match=f"a cached plan is rejected: .*({said}).*: file={the_file(folder)}"):
        second = planned()
    assert second.plan == wanted
    assert second.origin.startswith("planned here, as the cached plan was rejected: ")
    assert planned().origin == f"cached in {the_file(folder)}"


def test_a_file_that_cannot_be_read_or_replaced_is_two_warnings(folder: Path) -> None:
    wanted = planned().plan
    DAMAGES["a folder"][0](the_file(folder))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert planned().plan == wanted
    said = [str(each.message) for each in caught]
    assert "a cached plan is rejected: it cannot be read" in said[0]
    assert "the plan cannot be cached; set JOINSUM_PLAN_CACHE=0" in said[1]


def test_the_plan_of_another_graph_under_this_name_is_rejected(folder: Path) -> None:
    planned()
    mine = the_file(folder)
    joinsum.einsum_plan("ij,jk->ik", (8, 6), (6, 7))
    (other,) = set(folder.iterdir()) - {mine}
    shutil.copy(other, mine)
    with pytest.warns(UserWarning, match="foreign: it is the plan of another graph"):
        assert planned().plan.outputs["z"].relation.axes[0].extent == 8


STALE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "torch": (
        lambda fields: fields["key"]["machine"]["libraries"].update(torch="1.0"),
        "stale, libraries have changed: torch: file=1.0",
    ),
    "joinsum": (
        lambda fields: fields["key"]["machine"]["libraries"].update(joinsum="0.0.1"),
        "stale, libraries have changed: joinsum: file=0.0.1",
    ),
    "host": (
        lambda fields: fields["key"]["machine"]["sites"].__setitem__(0, "elsewhere: cpu"),
        "another machine: site=0",
    ),
    "grid": (
        lambda fields: fields["key"]["machine"]["layout"].update(grid="4"),
        "another layout: grid: file=4, here=2x2",
    ),
    "build": (lambda fields: fields["key"].update(code="0"), "another build of joinsum made it"),
    "format": (lambda fields: fields.update(version=0), f"another version of the format: file=0, here={VERSION}"),
}


@pytest.mark.parametrize("name", STALE)
def test_a_stale_file_is_rejected_with_its_reason_and_replaced(folder: Path, name: str) -> None:
    change, said = STALE[name]
    wanted = planned().plan
    rewrite(the_file(folder), change)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is nobody's fault
        second = planned()
    assert second.plan == wanted
    assert said in second.origin
    assert planned().origin == f"cached in {the_file(folder)}"


def test_a_plan_for_other_rates_is_stale(folder: Path) -> None:
    planned()
    joinsum.init(sites=4, cluster=joinsum.Cluster("fast", bytes_per_second=1e12))
    assert "planned for other rates: file=10 Gbit" in planned(again=False).origin
    assert len(list(folder.iterdir())) == 1


@given(st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_file_holds_the_plan_is_the_right_one(folder: Path, data: st.DataObject) -> None:
    wanted = planned().plan
    path = the_file(folder)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    else:
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert planned().plan == wanted


# --- off, and the folder's size ---------------------------------------------------------------------------------------


def test_the_environment_and_arguments_turn_it_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(cache=False)
    joinsum.init(sites=4, plan_cache=False)
    planned(again=False)
    monkeypatch.setenv("JOINSUM_PLAN_CACHE", "0")
    planned()
    assert not folder.exists()
    monkeypatch.delenv("JOINSUM_PLAN_CACHE")
    planned()
    assert the_file(folder)
    assert planned(cache=False).origin == "planned here"


@pytest.mark.parametrize("value", ["-1", "much", "inf", "nan"])
def test_a_limit_that_is_no_number_is_an_error(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("JOINSUM_PLAN_CACHE", value)
    with pytest.raises(PlanError, match=f"JOINSUM_PLAN_CACHE is a limit in MiB, .*JOINSUM_PLAN_CACHE='{value}'"):
        planned()


def test_the_folder_stays_within_its_limit_and_keeps_what_was_used_last(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOINSUM_PLAN_CACHE", "0.03")
    used = joinsum.einsum_plan("ij->i", (1, 3))
    path = the_file(folder)
    for extent in range(2, 40):
        joinsum.einsum_plan("ij->i", (extent, 3))
        joinsum.init(sites=4)
        assert joinsum.einsum_plan("ij->i", (1, 3)).origin == f"cached in {path}", used
        assert sum(each.stat().st_size for each in folder.iterdir()) <= 0.03 * 2**20
    assert 3 < len(list(folder.iterdir())) < 39


PROCESS = """
import sys, warnings, joinsum, torch
warnings.simplefilter("error")
for turn in range(3):
    joinsum.init(sites=4)
    for extent in range(1, 15):
        x = torch.rand(extent, 6, dtype=torch.float64)
        y = torch.rand(6, 5, dtype=torch.float64)
        torch.testing.assert_close(joinsum.einsum("ij,jk->ik", x, y), x @ y)
"""


def test_processes_share_the_folder(folder: Path) -> None:
    started = [subprocess.Popen([sys.executable, "-c", PROCESS], stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in started:
        _, output = process.communicate(timeout=300)
        assert process.returncode == 0, output
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 14
    assert all(name.endswith(".json") for name in names)
    assert isinstance(user_plan_cache(), PlanCache)
