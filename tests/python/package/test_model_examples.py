"""The examples of training models, as their users run them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from forks import Forks

ROOT = Path(__file__).parents[3]
SMALL = ["--sites", "2", "--layers", "1", "--width", "16", "--batch", "4", "--context", "16", "--save-every", "4"]


def start(*command: str) -> subprocess.Popen[str]:
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    program = [sys.executable, *command]
    return subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    libraries = ["transformers.models.llama.modeling_llama"] if find_spec("transformers") else []
    with Forks(["joinsum", "torch._dynamo", *libraries], ROOT) as process:
        yield process


@pytest.fixture(scope="module")
def whole(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """Losses of twelve steps on two sites of one process."""
    folder = tmp_path_factory.mktemp("whole")
    command = ["examples/train_lm.py", *SMALL, "--steps", "12", "--out", folder / "out"]
    return losses(forks.output(command, folder / "log"))


def losses(text: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in re.findall(r"^step (\d+): loss ([\d.]+)", text, re.MULTILINE)}


@pytest.mark.slow
def test_a_killed_run_loses_at_most_the_steps_since_the_last_checkpoint(
    forks: Forks, whole: dict[int, float], tmp_path: Path
) -> None:
    assert list(whole) == list(range(1, 13))
    process = start("examples/train_lm.py", *SMALL, "--steps", "12", "--out", str(tmp_path / "killed"))
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step 7:"):
            process.send_signal(signal.SIGKILL)
            break
    assert process.wait() == -signal.SIGKILL
    command = ["examples/train_lm.py", *SMALL, "--steps", "12", "--out", tmp_path / "killed", "--resume"]
    text = forks.output(command, tmp_path / "log")
    later = losses(text)
    # The kill may come after the checkpoint of step 8.
    assert list(later) in (list(range(5, 13)), list(range(9, 13)))
    assert later == pytest.approx({step: whole[step] for step in later}, rel=1e-3)
    assert (tmp_path / "killed" / "loss.png").stat().st_size > 0
    assert text.count("--- after") == 2


@pytest.mark.slow
def test_processes_learn_what_sites_in_one_process_do(forks: Forks, whole: dict[int, float], tmp_path: Path) -> None:
    command = ["examples/train_lm.py", *SMALL, "--steps", "6", "--out", tmp_path / "two"]
    text = forks.output(command, tmp_path / "log", ranks=2)
    assert "2 sites" in text
    assert losses(text) == pytest.approx({step: whole[step] for step in range(1, 7)}, rel=1e-3)


@pytest.mark.slow
def test_the_module_and_the_program_of_the_algebra_learn_the_same(forks: Forks, tmp_path: Path) -> None:
    sizes = ["--epochs", "1", "--hidden", "16", "--batch", "32"]
    module = forks.output(["examples/train_xml.py", *sizes, "--steps", "2"], tmp_path / "module")
    program = ["-m", "joinsum.cli", "train", "--data", "data/debian-xml", *sizes, "--limit-steps", "2", "--sites", "4"]
    files = ["--save", tmp_path / "classifier.pt", "--curve", tmp_path / "loss.png"]
    algebra = forks.output([*program, *files], tmp_path / "algebra")
    found = [re.search(r"mean loss ([\d.]+), P@1 ([\d.]+), P@3 ([\d.]+)", text) for text in (module, algebra)]
    values = [[float(each) for each in match.groups()] for match in found if match is not None]
    assert len(values) == 2
    assert values[0] == pytest.approx(values[1], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["train_step", "distribute"])
def test_a_hugging_face_model_trains_and_is_saved_as_plain_weights(forks: Forks, way: str, tmp_path: Path) -> None:
    command = ["examples/hf_finetune.py", "--way", way, "--sites", "2", "--steps", "3", "--out", tmp_path / "out"]
    text = forks.output(command, tmp_path / "log")
    values = [float(each) for each in re.findall(r"\d+\.\d{4}", text)]
    assert len(values) == 3
    assert values[-1] < values[0]
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == "llama"
    assert (tmp_path / "out" / "model.safetensors").exists()
