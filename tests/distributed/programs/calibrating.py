"""Scenes for two ranks: what they calibrate, and the file that later inits read."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path

import joinsum
import torch
from joinsum.cluster.cache_folder import cache_folder
from joinsum.cluster.machine import machine_of
from stage import Scenes, error_of, rank, scene

SCENES: Scenes = {}
CACHE = Path(sys.argv[1]) / "cache"
PLAN = "ia on 2\ninput X: f32[64,64]<2,2> (1)\noutput Y = shuffle[0](X)"


def in_own_cache() -> None:
    """Rank 1 looks in a folder without files: only rank 0's counts."""
    os.environ["XDG_CACHE_HOME"] = str(CACHE if rank() == 0 else CACHE / "empty")


@scene(SCENES)
def all_ranks_find_the_same_rates_and_costs_follow() -> list[object]:
    in_own_cache()
    current = joinsum.init()
    quick = current.cluster.name
    cluster = joinsum.calibrate(seconds=0.3, progress=rank() == 0)
    assert current.cluster is cluster
    assert cluster.profile is not None
    assert [link.axes for link in cluster.profile.links] == [(0,)]
    for curve in (cluster.profile.links[0].all, cluster.profile.links[0].pair):
        assert list(curve.seconds) == sorted(curve.seconds)
        assert curve.sizes[0] == 4096
    joinsum.relation(torch.ones(64, 64), parts=(2, 2)).stored().move([1])
    again = joinsum.init()
    assert again.cluster == cluster
    return [quick, cluster.name, joinsum.cost(joinsum.parse(PLAN)).seconds]


@scene(SCENES)
def threads_of_gloo_start_when_a_core_is_free() -> list[str]:
    joinsum.init()
    names = {int(task.name): (task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}
    policies = {os.sched_getscheduler(thread) for thread, name in names.items() if name == "gloo_tcp_loop"}
    return ["batch" if policy == os.SCHED_BATCH else str(policy) for policy in policies]


@scene(SCENES)
def a_stale_file_is_passed_over_with_a_warning_from_rank_0() -> list[str]:
    in_own_cache()
    current = joinsum.init()
    file = cache_folder() / machine_of(current).name
    if rank() == 0:
        fields = json.loads(file.read_text())
        fields["machine"]["libraries"]["torch"] = "1.0"
        file.write_text(json.dumps(fields))
    current.transport.agree("written", "")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cluster = joinsum.init().cluster
    assert cluster.profile is not None
    assert cluster.profile.quick
    return [cluster.name, *(str(warning.message) for warning in caught)]


@scene(SCENES)
def a_file_cut_in_half_is_an_error_on_every_rank() -> str:
    in_own_cache()
    current = joinsum.init(cluster=joinsum.Cluster())
    file = cache_folder() / machine_of(current).name
    if rank() == 0:
        text = file.read_text()
        file.write_text(text[: len(text) // 2])
    current.transport.agree("written", "")
    kind, message, _ = error_of(joinsum.init)
    assert kind == "PlanError"
    if rank() == 0:
        file.unlink()
    joinsum.init(cluster=joinsum.Cluster()).transport.agree("removed", "")
    return message


@scene(SCENES)
def a_file_that_cannot_be_written_is_an_error_on_every_rank() -> str:
    joinsum.init(cluster=joinsum.Cluster())
    kind, message, _ = error_of(lambda: joinsum.calibrate(seconds=0.05, path="/proc/none/c.json"))
    assert kind == "PlanError"
    return message
