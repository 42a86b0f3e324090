"""Examples with other libraries' loops on two ranks: they train as plain torch, stop, and go on from checkpoints."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from forks import Forks
from launch import torchrun

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch has no gloo"),
]


@cache
def wanted(max_norm: float | None, pieces: int = 64) -> list[float]:
    """Losses of eight steps by plain torch on the whole batches of so many pieces of text."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        from hf_finetune import Pieces, small_llama
    finally:
        sys.path.remove(str(EXAMPLES))
    model = small_llama()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    epoch = list(torch.utils.data.DataLoader(Pieces(pieces), 8))
    for batch in (epoch * 2)[:8]:
        loss = model(**batch).loss
        loss.backward()
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    libraries = ["joinsum", "torch._dynamo", "transformers.models.llama.modeling_llama", "transformers.trainer"]
    libraries += [name for name in ("accelerate", "lightning.pytorch") if find_spec(name.partition(".")[0])]
    with Forks(libraries, EXAMPLES) as process:
        yield process


def steps_of(text: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+): loss ([\d.]+)", text)}


def same(found: dict[int, float], expected: list[float], first: int) -> None:
    """Asserts the losses of steps from `first` on; Adam magnifies how sums are rounded."""
    assert list(found) == list(range(first, first + len(found)))
    assert list(found.values()) == pytest.approx(expected[first : first + len(found)], abs=2e-3)


@pytest.mark.parametrize(
    ("library", "example", "pieces"),
    [("accelerate", "hf_accelerate.py", 64), ("lightning", "lightning_strategy.py", 32)],
)
def test_a_loop_of_another_library_goes_on_from_its_checkpoint(
    forks: Forks, library: str, example: str, pieces: int, tmp_path: Path
) -> None:
    pytest.importorskip(library)
    command = [EXAMPLES / example, "--out", tmp_path / "out"]
    first = steps_of(forks.output([*command, "--steps", 4], tmp_path / "log", ranks=2))
    assert len(first) == 4
    same(first, wanted(1.0, pieces), 0)
    rest = steps_of(forks.output([*command, "--steps", 8, "--resume"], tmp_path / "log", ranks=2))
    assert len(rest) == 4
    same(rest, wanted(1.0, pieces), 4)


def test_a_trainer_of_hugging_face_goes_on_from_its_checkpoint_and_evaluates(forks: Forks, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    evaluated = []
    for arguments in (["--steps", 4], ["--steps", 8, "--resume"]):
        command = [EXAMPLES / "hf_trainer.py", *arguments, "--out", tmp_path / "out"]
        text = forks.output(command, tmp_path / "log", ranks=2)
        (line,) = re.findall(r"losses ([\d., ]+); evaluated ([\d.]+)", text)
        losses = [float(each) for each in line[0].split(", ")]
        same(dict(enumerate(losses)), wanted(1.0), 0)
        evaluated.append(float(line[1]))
    assert len(losses) == 8
    assert evaluated[0] == pytest.approx(wanted(1.0)[4], abs=0.3)  # of the first batch, after four steps
    assert evaluated[1] < evaluated[0]


def test_torchrun_starts_failed_ranks_again_and_they_go_on(tmp_path: Path) -> None:
    arguments = ["--out", tmp_path, "--fail-at", 5]
    text = torchrun(2, EXAMPLES / "torchrun_loop.py", *arguments, options=("--max-restarts", "1"))
    assert "rank 1 fails" in text
    steps = [int(step) for step in re.findall(r"step (\d+): loss", text)]
    assert steps == [0, 1, 2, 3, 4, 4, 5, 6, 7]  # from the checkpoint after step 3
    same(steps_of(text), wanted(None), 0)
