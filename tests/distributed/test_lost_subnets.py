"""Independent subnet training goes on without a rank, in whichever phase of an exchange it was lost, and after torchrun
has stopped all ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist
from forks import free_port
from launch import torchrun
from training import rare, takes_long

PROGRAM = Path(__file__).parent / "programs" / "lost_subnets.py"
RESTARTED = Path(__file__).parent / "programs" / "restarted_subnets.py"

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch has no gloo"),
]


@pytest.mark.parametrize(
    ("loss", "lost", "round_"),
    [
        ("0@3:after:SIGKILL", 0, 2),
        ("2@3:begun:SIGKILL", 2, 3),
        rare("1@3:before:SIGKILL", 1, 2),
        rare("0@3:after:SIGSTOP", 0, 2),
        rare("1@1:after:SIGKILL", 1, 0),
    ],
)
def test_the_others_go_on_with_all_weights(loss: str, lost: int, round_: int) -> None:
    """Without learning, weights that were lost or mixed up would differ from the first ones."""
    arguments = ["--ranks", "3", "--steps", "25", "--rate", "0", "--timeout", "5"]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        env={**os.environ, "JOINSUM_TEST_LOSS": loss},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    left = [rank for rank in range(3) if rank != lost]
    for rank in left:
        assert f"rank {rank}: goes on with ranks {left} in round {round_}" in done.stdout
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
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_that_torchrun_starts_again_go_on_with_all_weights(ranks: int, tmp_path: Path) -> None:
    options = ["--leave-out"] if ranks == 2 else []
    text = torchrun(3, RESTARTED, tmp_path, *options, options=("--max-restarts", "1"))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["site_0.pt", "site_2.pt"]
    assert text.count("lost site 1") == 2
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
