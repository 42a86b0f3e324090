"""Predicted against measured time of plans, on links of several rates made with network namespaces.

For 2 and 4 ranks and each kind of link, the ranks calibrate (`joinsum.calibrate`), price every plan of plans.py with
what they found, and run it, in several rounds. A point is one plan on one such setting; compared are the median of the
plan's predicted `seconds` and the median wall time of its runs, from a moment when all ranks are ready until the last
one has ended.

    sudo .venv/bin/python benchmarks/prediction/run.py [--quick] [--ranks 2,4] [--links unlimited,10gbit,1gbit]

It needs root, `ip` and `tc` (`benchmarks/network.py`).
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from network import Link, Missing, check, network, run_all
from prediction.others import Others, wait_for_quiet
from prediction.picture import draw, errors, summary

FOLDER = Path(__file__).resolve().parent
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
        with tempfile.TemporaryDirectory() as folder, network(ranks, Link.parse(link)) as net:
            out = Path(folder) / "figures.json"
            command = [sys.executable, str(FOLDER / "worker.py"), "--out", str(out), "--seconds", str(seconds)]
            command += ["--quick"] if quick else []
            # torch warns that a namespace's address has no name.
            environment = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
            run_all([net.start(rank, command, environment) for rank in range(ranks)])
            figures = json.loads(out.read_text(encoding="utf-8"))
        measured.append({"ranks": ranks, "link": link, "others": others.share(), **figures})
        if measured[-1]["others"] < QUIET:
            break
    return min(measured, key=lambda figures: float(figures["others"]))


@click.command()
@click.option("--ranks", default="2,4", show_default=True, help="Numbers of ranks.")
@click.option("--links", default="unlimited,10gbit,1gbit", show_default=True, help="As for network.py.")
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
                settings.append(setting(count, link, seconds, quick))
                others = f"other programs had {settings[-1]['others']:.0%} of the cores"
                click.echo(summary(settings[-1:], f"{count} ranks, {link} link ({others})"))
    except (Missing, ValueError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(errors(settings))
    click.echo(summary(settings, "all"))
    if json_file is not None:
        json_file.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    if plot is not None:
        draw(settings, plot)


if __name__ == "__main__":
    main()
