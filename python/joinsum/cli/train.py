"""`joinsum train`."""

from __future__ import annotations

import os
from typing import Any

import click

from joinsum.cli.options import FILE, bytes_of, exit_codes

__all__ = ["train"]


@click.command()
@click.option(
    "--data", type=FILE, required=True, help="Folder with train.txt[.gz] and test.txt[.gz], or a training file."
)
@click.option("--test", type=FILE, help="Test file.  [default: the folder's]")
@click.option(
    "--sites", type=click.IntRange(min=1), help="Sites in this process.  [default: 1; torchrun: one per rank]"
)
@click.option("--hidden", type=click.IntRange(min=1), default=256, show_default=True, help="Hidden units.")
@click.option(
    "--epochs", type=click.IntRange(min=1), default=4, show_default=True, help="Epochs in all, resumed ones included."
)
@click.option("--batch", type=click.IntRange(min=1), default=256, show_default=True, help="Points of a step.")
@click.option(
    "--lr", type=click.FloatRange(min=0, min_open=True), default=2e-2, show_default=True, help="Adam's learning rate."
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of weights and of the order of points.",
)
@click.option(
    "--plan", type=click.Choice(["auto", "data", "model"]), default="auto", show_default=True, help="Which plan runs."
)
@click.option(
    "--cost",
    type=click.Choice(["seconds", "wire_bytes", "paper_floats"]),
    default="seconds",
    show_default=True,
    help="The figure by which --plan auto chooses.",
)
@click.option("--dense", is_flag=True, help="Store features densely; by default they are sparse.")
@click.option(
    "--save",
    type=FILE,
    default="outputs/classifier.pt",
    show_default=True,
    help="Checkpoint, written after each epoch.",
)
@click.option("--resume", type=FILE, help="Checkpoint to go on from.")
@click.option("--curve", type=FILE, default="outputs/loss.png", show_default=True, help="Picture of the loss.")
@click.option("--limit-steps", type=click.IntRange(min=1), help="Steps of an epoch at most, for a quick try.")
@click.option(
    "--memory-limit",
    metavar="BYTES",
    callback=bytes_of,
    help="Memory of a site, such as 8G; plans that need more are not run.",
)
def train(**values: Any) -> None:
    """Train a two-layer classifier on sparse multi-label data.

    It prices data-parallel and model-parallel training for these sizes and sites, says which is cheaper and why, and
    runs it. Data are in the text format of the Extreme Classification Repository. To use several processes or
    machines: torchrun --nproc-per-node N -m joinsum.cli train ...
    """
    from joinsum import PlanError, TransportError
    from joinsum.extreme import DataError
    from joinsum.extreme.train import Console, Diverged, Options, UsageError, train

    codes: dict[type[Exception], int] = {
        Diverged: 1,
        UsageError: 2,
        OSError: 2,
        DataError: 3,
        PlanError: 4,
        TransportError: 5,
    }
    with exit_codes(codes):
        train(Options(**values), Console(silent=os.environ.get("RANK", "0") != "0"))
