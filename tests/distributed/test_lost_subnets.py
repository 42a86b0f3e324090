"""Independent subnet training goes on without a rank, in whichever phase it was lost, and after torchrun has stopped
all ranks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from forks import free_port
from launch import call, torchrun
from training import EVERYTHING, takes_long

EXAMPLE = Path(__file__).parents[2] / "examples" / "ist_elastic.py"
RESTARTED = Path(__file__).parent / "programs" / "restarted_subnets.py"

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch has no gloo"),
]


# --- in each phase of training ----------------------------------------------------------------------------------------

PHASES = ["before", "shuffle", "after", "agreement", "begun", "full", "save", "ahead", "recover", "recovered"]
# Phases, signals and ranks for which every change is tested. SIGCONT is a rank that is stopped, and continued later.
OFTEN = ["shuffle:SIGKILL:0", "agreement:SIGSTOP:2", "save:SIGKILL:0", "ahead:SIGKILL:1", "before:SIGCONT:0"]
OFTEN += ["recovered:SIGKILL:1"]
RARE = [f"{phase}:{name}:{rank}" for phase in PHASES for name in ("SIGKILL", "SIGSTOP") for rank in (0, 2)]
RARE += ["shuffle:SIGCONT:1", "ahead:SIGCONT:2"]
LOSSES = [*OFTEN, *(loss for loss in RARE if loss not in OFTEN)] if EVERYTHING else OFTEN
END = {"SIGKILL": "SIGKILL", "SIGSTOP": "stopped", "SIGCONT": "exit 1"}
ROUNDS = {"before": 2, "shuffle": 2, "after": 2, "save": 4, "recover": 0, "recovered": 0}  # of others, 3


@pytest.fixture(scope="session")
def losses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came out of each loss, and what was printed as `log`."""
    folder = tmp_path_factory.mktemp("losses")
    log = call(["lost_subnets.py", str(folder), *LOSSES], 20 + 20 * len(LOSSES))
    files = {loss: folder / loss.replace(":", "_") / "outcome.json" for loss in LOSSES}
    return {loss: json.loads(file.read_text()) for loss, file in files.items() if file.exists()} | {"log": log}


@pytest.mark.parametrize("loss", LOSSES)
def test_the_others_go_on_with_what_they_have_trained_and_the_copies_of_the_rest(loss: str, losses: Any) -> None:
    """Weights and moments are those of a loopback training, of the lost rank those of the round's beginning; from there
    on ranks train what loopback trains from their checkpoint."""
    phase, name, text = loss.split(":")
    assert loss in losses, losses["log"][-3000:]
    outcome, lost = losses[loss], int(text)
    gone = {lost, (lost + 2) % 4} if phase in ("recover", "recovered") else {lost}
    left = [rank for rank in range(4 if len(gone) == 2 else 3) if rank not in gone]
    ends = ["exit 0" if rank in left else END[name] for rank in range(len(left) + len(gone))]
    assert outcome["ends"] == ends, (outcome, losses["log"][-3000:])
    for rank in left:
        found = outcome["ranks"][str(rank)]
        assert (found["members"], found["round"]) == (left, ROUNDS.get(phase, 3))
        if phase != "agreement":  # whose error the test raises
            assert "go on with IST.recover (buddy=True) or from the last checkpoint" in found["error"]
        assert outcome["later"][str(rank)] == []
    assert outcome["checkpoint"] == []
    assert outcome["steps"]
    if name == "SIGCONT":
        assert outcome["ranks"][str(lost)]["end"] == f"rank {lost}: the others went on without it"


def test_the_launcher_of_the_example_leaves_the_others_running() -> None:
    """Without learning, weights that were lost or mixed up would differ from the first ones."""
    options = ["--ranks", "3", "--steps", "25", "--rate", "0", "--timeout", "20", "--kill", "0@12"]
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in (1, 2):
        assert f"rank {rank}: goes on with ranks [1, 2] in round 2" in done.stdout
        assert f"rank {rank}: 5 rounds, " in done.stdout
    assert done.stdout.count("same weights") == 2
    assert "ranks that ended well: 2 of 3" in done.stdout


# --- under torchrun ---------------------------------------------------------------------------------------------------


def goes_on_with(ranks: int, text: str) -> None:
    """Asserts that the ranks that were started again trained to the end with all weights, which do not learn."""
    for rank in range(ranks):
        assert f"rank {rank}: goes on with {ranks} sites in round 2" in text, text
        assert f"rank {rank}: 5 rounds, same weights" in text, text
    assert text.count("same weights") == ranks


@takes_long
@pytest.mark.parametrize(("ranks", "lost"), [(2, 1), (3, 1), (2, 0), (3, 0)])
def test_ranks_that_torchrun_starts_again_go_on_with_all_weights(ranks: int, lost: int, tmp_path: Path) -> None:
    options = ["--lose", str(lost), *(["--leave-out"] if ranks == 2 else [])]
    text = torchrun(3, RESTARTED, tmp_path, *options, options=("--max-restarts", "1"))
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"site_{site}.pt" for site in range(3) if site != lost]
    assert text.count(f"lost site {lost}") == 2
    goes_on_with(ranks, text)


@takes_long
@pytest.mark.parametrize("lost", [1, 2])
def test_torchruns_that_are_left_go_on_with_fewer_ranks(lost: int, tmp_path: Path) -> None:
    """Of three, each with a rank; the first one has the store through which they meet."""
    port = free_port()
    agents = [agent(number, port, tmp_path / "weights", number == lost) for number in range(3)]
    try:
        texts = [each.communicate(timeout=240)[0] for each in agents]
    finally:
        for each in agents:
            each.kill()
    assert [each.returncode for each in agents] == [-signal.SIGKILL * (number == lost) for number in range(3)], texts
    goes_on_with(2, "".join(texts))


def agent(number: int, port: int, folder: Path, doomed: bool) -> subprocess.Popen[str]:
    """A torchrun of two or three that meet at the port."""
    settings = "last_call_timeout=8,keep_alive_interval=1,keep_alive_max_attempt=3"
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1"]
    meeting += ["--rdzv-conf", f"is_host={str(number == 0).lower()},{settings}"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2:3", "--nproc-per-node", "1", *meeting]
    environment = {
        **os.environ,
        **({"DOOMED": "1"} if doomed else {}),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        # Otherwise ranks that are started again find the addresses of the earlier ones.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    return subprocess.Popen(
        [*launcher, "--max-restarts", "1", str(RESTARTED), str(folder), "--with-agent"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
