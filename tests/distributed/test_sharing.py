"""Ranks of one host exchange arrays through shared memory: as through sockets, and nothing of it remains."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import network
import pytest
import torch.distributed as dist
from launch import PROGRAMS, Play, call, play

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch has no gloo"),
]

LIMIT = 150
every_size = pytest.mark.parametrize("ranks", [2, 4])


@pytest.fixture(scope="session")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Launches on a number of ranks, each once."""

    @cache
    def played(ranks: int) -> Play:
        return play(ranks, ["sharing"], tmp_path_factory.mktemp(f"sharing{ranks}"), LIMIT)

    return played


@every_size
def test_ranks_of_one_host_share_memory_and_the_machine_says_so(plays: Any, ranks: int) -> None:
    each = [["all", "False"], ["none", "True"], ["none", "False"]]
    assert plays(ranks).values("all_ranks_of_a_host_share_memory") == [each] * ranks


@every_size
def test_plans_have_equal_results_and_bytes_with_and_without_it(plays: Any, ranks: int) -> None:
    for shared, sockets, gloo in plays(ranks).values("plans_have_equal_results_and_bytes_with_and_without_it"):
        assert shared == sockets == gloo > 0


@every_size
@pytest.mark.parametrize(
    "scene",
    [
        "messages_larger_than_a_ring_cross_both_ways_at_once",
        "messages_of_any_size_arrive_in_their_places",
        "exchanges_under_way_arrive_in_their_order",
        "texts_larger_than_their_ring_are_gathered",
    ],
)
def test_messages_arrive_as_they_were_sent(plays: Any, ranks: int, scene: str) -> None:
    plays(ranks).values(scene)


@every_size
def test_a_rank_that_does_not_share_uses_sockets_with_all(plays: Any, ranks: int) -> None:
    shared = "none" if ranks == 2 else "some"
    assert plays(ranks).values("a_rank_that_does_not_share_uses_sockets_with_all") == [shared] * ranks


@every_size
def test_contexts_that_are_dropped_leave_no_memory(plays: Any, ranks: int) -> None:
    assert plays(ranks).values("contexts_that_are_dropped_leave_no_memory") == [0] * ranks


# --- lost ranks; test_process_group.py has more, which share memory, too ----------------------------------------------


def names_in_shm() -> set[str]:
    """What is in /dev/shm but for what torch's data loaders of other tests put there."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith(("torch_", "psm_", "sem.", "pym-"))}


def ranks_of(program: str) -> list[str]:
    """Processes that run a program of programs/."""
    found = subprocess.run(["pgrep", "-f", program], capture_output=True, text=True, check=False)
    return found.stdout.split()


def lose(
    scenes: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, shared: str, sockets: str = "1"
) -> dict[str, Any]:
    """Plays scenes of failures.py; returns what its ranks noted, by name of the file, and what it printed as `log`."""
    monkeypatch.setenv("JOINSUM_SHARED_MEMORY", shared)
    monkeypatch.setenv("JOINSUM_SOCKETS", sockets)
    log = call(["failures.py", str(folder), *scenes], LIMIT)
    notes = {file.stem: json.loads(file.read_text()) for file in folder.glob("*.json")}
    assert all(f"{scene}.exits" in notes for scene in scenes), log[-3000:]
    return notes | {"log": log[-3000:]}


def test_nothing_remains_of_ranks_that_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = names_in_shm()
    notes = lose(["killed_in_a_message"], tmp_path, monkeypatch, "1")
    assert notes["killed_in_a_message.exits"] == ["exit 0", "exit 0", "SIGKILL"], notes["log"]
    assert names_in_shm() <= before
    assert not ranks_of(str(tmp_path))


@pytest.mark.parametrize("own", ["1", "0"])
def test_lost_ranks_are_named_on_sockets_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str) -> None:
    texts = {
        "killed_in_a_message": "exchange: lost site 2: .*",
        "stopped_in_a_message": r"exchange: lost site 2: silent for \d+\.\d s",
    }
    notes = lose(list(texts), tmp_path, monkeypatch, "0", own)
    for scene, text in texts.items():
        for rank in (0, 1):
            assert re.fullmatch(text, notes[f"{scene}.{rank}"]["run"]["text"]), notes[f"{scene}.{rank}"]


# --- other networks ---------------------------------------------------------------------------------------------------


def notes_of_network(program: str, folder: Path, link: str, ranks: int) -> list[str]:
    """What the ranks of a program wrote that ran in network namespaces."""
    command = [sys.executable, str(PROGRAMS / program), str(folder)]
    environment = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    try:
        with network.network(ranks, network.Link.parse(link)) as net:
            network.run_all(
                [net.start(rank, command, environment, stdin=subprocess.PIPE) for rank in range(ranks)], LIMIT
            )
    except network.Missing as missing:
        pytest.skip(str(missing))
    return [(folder / str(rank)).read_text() for rank in range(ranks)]


@pytest.mark.parametrize(("link", "ranks", "shared"), [("unlimited", 2, "none"), ("2xunlimited", 4, "some")])
def test_ranks_in_different_network_namespaces_do_not_share(tmp_path: Path, link: str, ranks: int, shared: str) -> None:
    assert notes_of_network("networks.py", tmp_path, link, ranks) == [f"{shared} True"] * ranks


@pytest.mark.parametrize("ranks", [2, 3])
def test_interfaces_send_what_is_predicted_and_counted(tmp_path: Path, ranks: int) -> None:
    notes = [json.loads(text) for text in notes_of_network("interfaces.py", tmp_path, "unlimited", ranks)]
    assert sum(each["counted"] for each in notes) == notes[0]["predicted"] > 10_000_000
    for each in notes:
        assert each["counted"] <= each["interface"] <= 1.05 * each["counted"] + 50_000
