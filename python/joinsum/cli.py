"""The command `joinsum`.

Exit codes: 0 done; 1 the loss diverged, or a defect; 2 wrong usage; 3 malformed data; 4 no plan fits; 5 a site was
lost; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from joinsum.train import Options

__all__ = ["main"]

_FILE = click.Path(path_type=Path)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def _bytes(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Reads a number of bytes: 8G, 512MiB, 1000000."""
    if value is None:
        return None
    text = value.strip().upper().removesuffix("B").removesuffix("I")
    unit = text[-1:] if text[-1:].isalpha() else ""
    try:
        number = float(text.removesuffix(unit)) * _UNITS[unit]
    except (ValueError, KeyError):
        raise click.BadParameter(f"{value!r} is no number of bytes such as 512M or 8G") from None
    if not 1 <= number < 2**63:
        raise click.BadParameter(f"{value!r} is not at least one byte")
    return int(number)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="joinsum")
def main() -> None:
    """Distributed einsum: tensor programs planned as joins and sums, and run on every site you have."""


@main.command()
@click.option(
    "--data", type=_FILE, required=True, help="Folder with train.txt[.gz] and test.txt[.gz], or a training file."
)
@click.option("--test", type=_FILE, help="Test file.  [default: the folder's]")
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
@click.option(
    "--save",
    type=_FILE,
    default="outputs/classifier.pt",
    show_default=True,
    help="Checkpoint, written after each epoch.",
)
@click.option("--resume", type=_FILE, help="Checkpoint to go on from.")
@click.option("--curve", type=_FILE, default="outputs/loss.png", show_default=True, help="Picture of the loss.")
@click.option("--limit-steps", type=click.IntRange(min=1), help="Steps of an epoch at most, for a quick try.")
@click.option(
    "--memory-limit",
    metavar="BYTES",
    callback=_bytes,
    help="Memory of a site, such as 8G; plans that need more are not run.",
)
def train(**values: Any) -> None:
    """Train a two-layer classifier on sparse multi-label data.

    It prices data-parallel and model-parallel training for these sizes and sites, says which is cheaper and why, and
    runs it. Data are in the text format of the Extreme Classification Repository. To use several processes or
    machines: torchrun --nproc-per-node N -m joinsum.cli train ...
    """
    from joinsum.train import Options

    sys.exit(_train(Options(**values)))


@main.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    show_default=True,
    help="About how long it may take.",
)
@click.option("--path", type=_FILE, help="File to write.  [default: one in the user's cache folder]")
def calibrate(seconds: float, path: Path | None) -> None:
    """Measure the sites, so that predicted times and the plans chosen by them are right here.

    Run it as programs are run: under torchrun for several processes or machines (torchrun --nproc-per-node N -m
    joinsum.cli calibrate). Later runs on the same machines and layout read the file.
    """
    sys.exit(_calibrate(seconds, path))


def _calibrate(seconds: float, path: Path | None) -> int:
    """Calibrates; returns the exit code after a line about what came out, from rank 0."""
    import joinsum
    from joinsum.calibration import cache_folder, machine_of

    rank = int(os.environ.get("RANK", "0"))
    try:
        # Without a cluster, `init` would read the file that is to be written.
        here = joinsum.init(cluster=joinsum.Cluster())
        target = path if path is not None else cache_folder() / machine_of(here).name
        cluster = joinsum.calibrate(seconds, path)
    except KeyboardInterrupt:
        return 130
    except (joinsum.PlanError, joinsum.TransportError) as error:
        click.echo(f"joinsum: {f'rank {rank}: ' if rank else ''}{error}", err=True)
        return 2 if isinstance(error, joinsum.PlanError) else 5
    if rank == 0:
        click.echo(f"{cluster}\nwritten to {target}")
    return 0


def _train(options: Options) -> int:
    """Trains; returns the exit code after a line about what went wrong."""
    from joinsum import PlanError, TransportError
    from joinsum.data.extreme import DataError
    from joinsum.train import Console, Diverged, UsageError, train

    codes: dict[type[Exception], int] = {
        Diverged: 1,
        UsageError: 2,
        OSError: 2,
        DataError: 3,
        PlanError: 4,
        TransportError: 5,
    }
    rank = int(os.environ.get("RANK", "0"))
    try:
        train(options, Console(silent=rank != 0))
    except KeyboardInterrupt:
        return 130
    except tuple(codes) as error:
        code = next(code for kind, code in codes.items() if isinstance(error, kind))
        click.echo(f"joinsum: {f'rank {rank}: ' if rank else ''}{error}", err=True)
        return code
    return 0


if __name__ == "__main__":
    main()
