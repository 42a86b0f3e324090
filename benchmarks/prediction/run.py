"""Predicted against measured time of plans, on links of several rates made with network namespaces.

For 2 and 4 ranks and each kind of link, the ranks calibrate (`joinsum.calibrate`), price every plan of plans.py with
what they found, and run it, in several rounds. A point is one plan on one such setting; compared are the median of the
plan's predicted `seconds` and the median wall time of its runs, from a moment when all ranks are ready until the last
one has ended.

    sudo .venv/bin/python benchmarks/prediction/run.py [--quick] [--ranks 2,4] [--links open,10gbit,1gbit]

It needs root, `ip` and `tc`. Nothing of the network outlives it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from network import LINKS, Missing, Network, check, network
from others import Others, wait_for_quiet
from picture import draw, errors, summary

FOLDER = Path(__file__).resolve().parent
LIMIT = 900
TRIES = 2
QUIET = 0.1


def setting(ranks: int, link: str, seconds: float, quick: bool) -> dict[str, Any]:
    """Figures of one number of ranks on one kind of link. If other programs used more than QUIET of the cores, it
    measures again, at most TRIES times; the quietest run counts, and `others` is the share that other programs used."""
    measured: list[dict[str, Any]] = []
    for _ in range(1 if quick else TRIES):
        if not quick:
            wait_for_quiet()
        others = Others()
        with tempfile.TemporaryDirectory() as folder, network(ranks, link) as net:
            out = Path(folder) / "figures.json"
            command = [sys.executable, str(FOLDER / "worker.py"), "--out", str(out), "--seconds", str(seconds)]
            run_all(net, [*command, "--quick"] if quick else command)
            figures = json.loads(out.read_text(encoding="utf-8"))
        measured.append({"ranks": ranks, "link": link, "others": others.share(), **figures})
        if measured[-1]["others"] < QUIET:
            break
    return min(measured, key=lambda figures: float(figures["others"]))


def run_all(net: Network, command: Sequence[str]) -> None:
    """Runs `command` as every rank; ends all of them if one fails, and on Ctrl-C."""
    # torch warns that a namespace's address has no name.
    environment = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    processes = [net.start(rank, command, environment) for rank in range(len(net.namespaces))]
    try:
        for rank, process in enumerate(processes):
            if process.wait(timeout=LIMIT) != 0:
                raise click.ClickException(f"prediction: rank {rank} ended with exit code {process.returncode}")
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@click.command()
@click.option("--ranks", default="2,4", show_default=True, help="Numbers of ranks.")
@click.option("--links", default=",".join(LINKS), show_default=True, help="Kinds of links.")
@click.option("--seconds", type=float, default=20.0, show_default=True, help="Seconds of each calibration.")
@click.option("--quick", is_flag=True, help="Small plans: shows that the benchmark runs.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures here too.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw them here.")
def main(ranks: str, links: str, seconds: float, quick: bool, json_file: Path | None, plot: Path | None) -> None:
    """Compare predicted and measured seconds of plans."""
    try:
        check()
        settings = []
        for count in map(int, ranks.split(",")):
            for link in links.split(","):
                if link not in LINKS:
                    raise click.UsageError(f"no such link: link={link}, links={', '.join(LINKS)}")
                settings.append(setting(count, link, seconds, quick))
                others = f"other programs had {settings[-1]['others']:.0%} of the cores"
                click.echo(summary(settings[-1:], f"{count} ranks, {link} link ({others})"))
    except Missing as missing:
        raise click.ClickException(str(missing)) from None
    except subprocess.TimeoutExpired:
        raise click.ClickException(f"prediction: a rank has not ended within {LIMIT} s") from None
    click.echo(errors(settings))
    click.echo(summary(settings, "all"))
    if json_file is not None:
        json_file.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    if plot is not None:
        draw(settings, plot)


if __name__ == "__main__":
    main()
