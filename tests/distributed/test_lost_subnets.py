"""Independent subnet training goes on without a rank, in whichever phase of an exchange it was lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist
from training import EVERYTHING

PROGRAM = Path(__file__).parent / "programs" / "lost_subnets.py"

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch has no gloo"),
]


@pytest.mark.parametrize(
    ("loss", "lost", "round_"),
    [
        ("1@3:before:SIGKILL", 1, 2),
        ("0@3:after:SIGKILL", 0, 2),
        ("2@3:begun:SIGKILL", 2, 3),
        *([("0@3:after:SIGSTOP", 0, 2), ("1@1:after:SIGKILL", 1, 0)] if EVERYTHING else []),
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
