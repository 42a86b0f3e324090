"""Claims about `joinsum train` on several processes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import torch
from forks import Forks, free_port
from joinsum.extreme import checkpoint
from joinsum.extreme.train import Console, Options, train

pytestmark = pytest.mark.distributed


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A training and a test file of 60 points, 12 features and 9 labels."""
    for seed, name in enumerate(("train.txt", "test.txt")):
        generator = torch.Generator().manual_seed(seed)
        lines = ["60 12 9"]
        for _ in range(60):
            chosen = torch.randperm(12, generator=generator)[:3].sort().values.tolist()
            names = ",".join(map(str, sorted({feature % 9 for feature in chosen})))
            lines.append(names + " " + " ".join(f"{feature}:0.{feature + 3}" for feature in chosen))
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    return tmp_path


def arguments(folder: pathlib.Path, plan: str, epochs: int) -> list[str]:
    paths = ["--data", folder, "--save", folder / "run.pt", "--curve", folder / "loss.png"]
    sizes = ["--hidden", 5, "--batch", 8, "--epochs", epochs, "--plan", plan]
    return ["joinsum.cli", "train", *map(str, [*paths, *sizes])]


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks(["joinsum.extreme.train", "matplotlib.figure"], pathlib.Path.cwd()) as process:
        yield process


@pytest.mark.parametrize("plan", ["data", "model"])
def test_two_ranks_lose_what_two_sites_of_one_process_lose(forks: Forks, folder: pathlib.Path, plan: str) -> None:
    said = forks.output(["-m", *arguments(folder, plan, epochs=3)], folder / "log", ranks=2)
    assert said.count("done: epoch 3, 24 steps") == 1
    assert "sites: 2 (grid 2) in 2 processes" in said
    found = checkpoint.load(folder / "run.pt")["history"]
    current = Options(data=folder, sites=2, hidden=5, epochs=3, batch=8, plan=plan, save=None, curve=None)
    wanted = train(current, Console(silent=True))
    assert found["losses"] == pytest.approx(wanted.losses, rel=1e-5)
    for one, other in zip(found["precisions"], wanted.precisions, strict=True):
        assert one == pytest.approx(other, abs=0.05)


def test_a_killed_rank_ends_the_others_with_5_and_leaves_the_last_epoch(folder: pathlib.Path) -> None:
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-m", *arguments(folder, "model", epochs=100000)]
    ranks = [
        subprocess.Popen(
            program,
            env={**os.environ, **world, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        deadline = time.monotonic() + 120
        while not (folder / "run.pt").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        ranks[1].kill()
        said, _ = ranks[0].communicate(timeout=120)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert ranks[0].returncode == 5, said
    assert "joinsum: " in said.strip().splitlines()[-1]
    assert checkpoint.load(folder / "run.pt")["epoch"] >= 1
