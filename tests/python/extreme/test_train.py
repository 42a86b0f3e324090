"""Claims about `joinsum train`: what it says, what it writes, how it ends."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import joinsum
import pytest
import torch
from click.testing import CliRunner, Result
from joinsum.cli import main
from joinsum.extreme import checkpoint
from joinsum.extreme.train import Console, Diverged, History, Options, UsageError, train

PNG = b"\x89PNG\r\n\x1a\n"


def write_points(path: pathlib.Path, points: int, seed: int, features: int = 12, labels: int = 9) -> None:
    """Points whose labels are their features modulo the number of labels."""
    generator = torch.Generator().manual_seed(seed)
    lines = [f"{points} {features} {labels}"]
    for _ in range(points):
        chosen = torch.randperm(features, generator=generator)[:3].sort().values.tolist()
        names = ",".join(map(str, sorted({feature % labels for feature in chosen})))
        lines.append(names + " " + " ".join(f"{feature}:0.{feature + 3}" for feature in chosen))
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    write_points(tmp_path / "train.txt", 50, seed=1)
    write_points(tmp_path / "test.txt", 21, seed=2)
    return tmp_path


def options(folder: pathlib.Path, **values: Any) -> Options:
    small = {"sites": 3, "hidden": 5, "epochs": 4, "batch": 8, "save": folder / "run.pt", "curve": None}
    return Options(data=folder, **{**small, **values})


def command(folder: pathlib.Path, *arguments: object) -> Result:
    paths = ["--data", folder, "--save", folder / "run.pt", "--curve", folder / "loss.png", "--sites", 2]
    sizes = ["--hidden", 5, "--batch", 8, "--epochs", 2]
    return CliRunner().invoke(main, ["train", *map(str, [*paths, *sizes, *arguments])])


def quietly(chosen: Options) -> History:
    return train(chosen, Console(silent=True))


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", ["data", "model"])
def test_training_learns_and_measures(folder: pathlib.Path, plan: str) -> None:
    history = quietly(options(folder, plan=plan, hidden=20, epochs=30, lr=0.05))
    assert len(history.losses) == 30 * 7
    assert history.epoch_ends == [7 * epoch for epoch in range(1, 31)]
    assert history.epoch_losses[-1] < history.epoch_losses[0] / 3
    assert list(history.precisions[0]) == ["P@1", "P@3", "P@5"]
    assert history.precisions[-1]["P@1"] > 0.9


def test_the_epochs_loss_is_the_mean_over_its_points(folder: pathlib.Path) -> None:
    history = quietly(options(folder, epochs=1))
    weights = torch.tensor([8.0] * 6 + [2.0], dtype=torch.float64)
    mean = (torch.tensor(history.losses, dtype=torch.float64) * weights).sum() / 50
    assert history.epoch_losses == pytest.approx([mean.item()])


@pytest.mark.parametrize("plan", ["data", "model"])
def test_a_resumed_run_goes_on_bit_for_bit(folder: pathlib.Path, plan: str) -> None:
    whole = quietly(options(folder, plan=plan, save=folder / "whole.pt"))
    quietly(options(folder, plan=plan, epochs=1))
    quietly(options(folder, plan=plan, epochs=3, resume=folder / "run.pt"))
    resumed = quietly(options(folder, plan=plan, resume=folder / "run.pt"))
    assert resumed == whole
    one, other = (checkpoint.load(folder / name) for name in ("whole.pt", "run.pt"))
    assert one["state"].keys() == other["state"].keys()
    for name, value in one["state"].items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(other["state"][name])), name
    assert torch.equal(one["generator"], other["generator"])


def test_plans_and_sites_lose_alike(folder: pathlib.Path) -> None:
    wanted = quietly(options(folder, sites=1, plan="data")).losses
    for sites, plan in ((2, "model"), (4, "data"), (5, "model")):
        assert quietly(options(folder, sites=sites, plan=plan)).losses == pytest.approx(wanted, rel=1e-4)


def test_a_batch_larger_than_the_data_is_the_data(folder: pathlib.Path) -> None:
    assert len(quietly(options(folder, batch=1000, epochs=2)).losses) == 2


def test_limit_steps_shortens_every_epoch(folder: pathlib.Path) -> None:
    assert quietly(options(folder, limit_steps=3)).epoch_ends == [3, 6, 9, 12]


def test_a_loss_that_is_no_number_stops_the_run(folder: pathlib.Path) -> None:
    with pytest.raises(Diverged, match=r"^loss is not a finite number: loss=(inf|nan), step="):
        quietly(options(folder, lr=1e38, epochs=9))


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_a_failed_save_leaves_the_old_checkpoint(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.pt"
    checkpoint.save(path, {"epoch": 1})
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        checkpoint.save(path, {"epoch": lambda: None})
    assert checkpoint.load(path) == {"epoch": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.pt"]


class Trap:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, ("touch trapped",)


@pytest.mark.parametrize("content", [b"", b"text", pickle.dumps({"a": 1}, 2), pickle.dumps(Trap(), 2)])
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: pathlib.Path, content: bytes) -> None:
    path = tmp_path / "run.pt"
    path.write_bytes(content)
    with pytest.raises(joinsum.CheckpointError, match=r"run\.pt: not a checkpoint"):
        checkpoint.load(path)
    assert not pathlib.Path("trapped").exists()


def test_another_programs_checkpoint_is_refused(tmp_path: pathlib.Path) -> None:
    torch.save({"weights": torch.ones(2)}, tmp_path / "run.pt")
    with pytest.raises(joinsum.CheckpointError, match="not a checkpoint of this program: format=None"):
        checkpoint.load(tmp_path / "run.pt")


def test_a_checkpoint_of_other_sizes_names_both(folder: pathlib.Path) -> None:
    quietly(options(folder, epochs=1))
    sizes = r"checkpoint=\{'features': 12, 'hidden': 5, 'labels': 9\}, run=\{'features': 12, 'hidden': 6, 'labels': 9\}"
    with pytest.raises(UsageError, match=rf"^--resume: checkpoint is of other sizes: path=.*run\.pt, {sizes}$"):
        quietly(options(folder, hidden=6, resume=folder / "run.pt"))


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_says_what_it_does_and_writes_its_files(folder: pathlib.Path) -> None:
    result = command(folder)
    assert result.exit_code == 0, result.output
    said = result.output
    assert "sites: 2 (grid 2) in this process" in said
    for heading in ("plan", "seconds (predicted)", "bytes on the wire", "paper's floats", "peak memory of a site"):
        assert heading in said
    assert "plan: " in said
    assert "because a step costs" in said
    assert "50 points, 12 features, 9 labels" in said
    assert "baseline, the most frequent labels, P@1 " in said
    assert "epoch 1/2: mean loss " in said
    assert "epoch 2/2: mean loss " in said
    last = said.strip().splitlines()[-1]
    assert last.startswith("done: epoch 2, 14 steps, ")
    assert (folder / "loss.png").read_bytes().startswith(PNG)
    assert checkpoint.load(folder / "run.pt")["epoch"] == 2


def test_files_may_be_named_and_compressed(folder: pathlib.Path) -> None:
    packed = folder / "points.gz"
    packed.write_bytes(gzip.compress((folder / "train.txt").read_bytes()))
    (folder / "train.txt").unlink()
    result = command(folder, "--data", packed, "--test", folder / "test.txt", "--plan", "data", "--limit-steps", 1)
    assert result.exit_code == 0, result.output
    assert "plan: data parallel, because it was requested" in result.output
    (folder / "test.txt").rename(folder / "other.txt")
    alone = command(folder, "--data", packed, "--limit-steps", 1)
    assert "no test file: precision is not measured" in alone.output


def test_folders_of_outputs_are_created(folder: pathlib.Path) -> None:
    save, curve = folder / "new" / "run.pt", folder / "other" / "new" / "loss.png"
    assert command(folder, "--save", save, "--curve", curve, "--limit-steps", 1).exit_code == 0
    assert save.exists()
    assert curve.exists()


def test_a_resumed_command_says_what_changed(folder: pathlib.Path) -> None:
    assert command(folder, "--epochs", 1).exit_code == 0
    result = command(folder, "--resume", folder / "run.pt", "--lr", 0.5)
    assert f"going on after epoch 1 of {folder / 'run.pt'}" in result.output
    assert "note: that run had lr=0.02, now 0.5" in result.output
    assert "epoch 2/2: mean loss" in result.output
    assert "epoch 1/2" not in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "{folder}/none"], "--data: no such file or folder: path={folder}/none"),
        (["--data", "{folder}/empty"], "--data: folder has no train.txt or train.txt.gz: folder={folder}/empty"),
        (["--test", "{folder}/none"], "--test: no such file: path={folder}/none"),
        (
            ["--save", "{folder}/train.txt/a.pt"],
            "--save: {folder}/train.txt/a.pt: cannot be written: {folder}/train.txt is",
        ),
        (["--save", "{folder}/empty"], "--save: {folder}/empty: is a directory"),
        (
            ["--curve", "{folder}/test.txt/a.png"],
            "--curve: {folder}/test.txt/a.png: cannot be written: {folder}/test.txt is",
        ),
        (["--resume", "{folder}/none.pt"], "--resume: [Errno 2] No such file or directory: '{folder}/none.pt'"),
        (["--resume", "{folder}/train.txt"], "--resume: {folder}/train.txt: not a checkpoint"),
        (["--hidden", "0"], "Invalid value for '--hidden'"),
        (["--batch", "-1"], "Invalid value for '--batch'"),
        (["--sites", "0"], "Invalid value for '--sites'"),
        (["--lr", "0"], "Invalid value for '--lr'"),
        (["--plan", "tensor"], "Invalid value for '--plan'"),
        (["--memory-limit", "much"], "'much' is no number of bytes such as 512M or 8G"),
        (["--memory-limit", "-1G"], "'-1G' is not at least one byte"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_is_wrong(
    folder: pathlib.Path, arguments: list[str], message: str
) -> None:
    (folder / "empty").mkdir()
    result = command(folder, *(argument.format(folder=folder) for argument in arguments))
    assert result.exit_code == 2, result.output
    assert message.format(folder=folder) in result.output
    assert not (folder / "run.pt").exists()


def test_malformed_data_ends_with_3_and_names_the_line(folder: pathlib.Path) -> None:
    (folder / "test.txt").write_text("2 12 9\n1 3:0.5\n1 12:0.5\n")
    result = command(folder)
    assert result.exit_code == 3
    assert f"joinsum: {folder}/test.txt:3: feature is out of range: feature=12, features=12\n" in result.output
    (folder / "test.txt").write_text("1 12 8\n1 3:0.5\n")
    result = command(folder)
    assert result.exit_code == 3
    assert "test.txt:1: sizes are not the training file's: features=12, labels=8, " in result.output
    (folder / "test.txt").write_text("0 12 9\n")
    assert "test.txt:1: file has no points: points=0" in command(folder).output


def test_no_plan_that_fits_ends_with_4(folder: pathlib.Path) -> None:
    result = command(folder, "--memory-limit", "1K")
    assert result.exit_code == 4
    assert "joinsum: choose: no plan fits the memory of a site: " in result.output
    assert command(folder, "--memory-limit", "1GiB").exit_code == 0


def test_a_lost_site_ends_with_5(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_: object) -> float:
        raise joinsum.TransportError("broadcast t3: site is lost: site=1")

    monkeypatch.setattr("joinsum.extreme.classifier.Classifier.step", lose)
    result = command(folder)
    assert result.exit_code == 5
    assert "joinsum: broadcast t3: site is lost: site=1\n" in result.output


def test_sites_that_are_not_torchruns_end_with_2(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    result = command(folder)
    assert result.exit_code == 2
    assert "--sites: torchrun has one site per rank: sites=2, ranks=3" in result.output


def test_an_interrupt_ends_with_130_and_keeps_the_last_epoch(folder: pathlib.Path) -> None:
    arguments = ["--data", folder, "--save", folder / "run.pt", "--curve", folder / "loss.png"]
    arguments += ["--hidden", 5, "--batch", 2, "--epochs", 100000]
    # A shell that starts the tests in the background has them and their children ignore interrupts.
    heeds = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    program = [sys.executable, "-c", heeds + "from joinsum.cli.main import main; main()", "train", *map(str, arguments)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        # The second epoch is over, so the first one has been saved, however long that took.
        begun = list(itertools.takewhile(lambda line: not line.startswith("epoch 2/"), process.stdout))
        process.send_signal(signal.SIGINT)
        said = "".join(begun) + process.stdout.read()
    assert process.returncode == 130, said
    epoch = checkpoint.load(folder / "run.pt")["epoch"]
    assert f"interrupted: {folder / 'run.pt'} holds epoch {epoch}; go on with --resume {folder / 'run.pt'}" in said
    assert "Traceback" not in said


def test_an_interrupt_while_an_epoch_is_saved_names_the_epoch_that_was(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = checkpoint.save

    def interrupted(path: pathlib.Path, content: dict[str, Any]) -> None:
        if content["epoch"] == 3:
            raise KeyboardInterrupt
        whole(path, content)

    monkeypatch.setattr(checkpoint, "save", interrupted)
    result = command(folder, "--epochs", 4)
    assert result.exit_code == 130
    assert checkpoint.load(folder / "run.pt")["epoch"] == 2
    assert f"interrupted: {folder / 'run.pt'} holds epoch 2; " in result.output


def test_help_needs_neither_torch_nor_matplotlib() -> None:
    program = """
import json, sys
from click.testing import CliRunner
from joinsum.cli import main
assert "--memory-limit" in CliRunner().invoke(main, ["train", "--help"]).output
print(json.dumps(sorted(sys.modules)))
"""
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not {"matplotlib", "rich.table"} & set(json.loads(output))
