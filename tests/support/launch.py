"""Programs on several processes, and what their ranks note."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parents[1] / "distributed" / "programs"


@dataclass
class Play:
    """What the ranks of one launch noted."""

    ranks: int
    log: str
    notes: list[dict[str, dict[str, Any]]] = field(default_factory=list)

    def values(self, scene: str) -> list[Any]:
        """What a scene returned, rank by rank; fails with the ranks' own errors."""
        for rank, notes in enumerate(self.notes):
            assert scene in notes, f"{scene} did not end on rank {rank}\n{self.log[-3000:]}"
            assert notes[scene]["ok"], f"{scene} on rank {rank}\n{notes[scene].get('error')}"
        return [notes[scene]["value"] for notes in self.notes]


def call(command: list[str], limit: float) -> str:
    """Runs a program with all that it starts under one time limit in seconds; returns what it printed."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=PROGRAMS,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        output += f"\nkilled after {limit} s"
    return output


def torchrun(ranks: int, *command: object, options: Sequence[str] = (), limit: float = 300) -> str:
    """What a command, a program and its arguments, prints on ranks that torchrun starts; fails where torchrun does."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore"}
    result = subprocess.run(
        [sys.executable, *launcher, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        timeout=limit,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:]
    return result.stdout


def play(ranks: int, modules: Sequence[str], folder: Path, limit: float) -> Play:
    """Plays the scenes of modules of programs/, or single ones by MODULE.SCENE, on a number of ranks."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    outcome = Play(ranks, call([*launcher, "play.py", str(folder), *modules], limit))
    for rank in range(ranks):
        file = folder / f"{rank}.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        outcome.notes.append({note["scene"]: note for note in map(json.loads, lines)})
    return outcome
