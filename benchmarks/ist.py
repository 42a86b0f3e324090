"""Independent subnet training beside its rivals: how long until a model is as good as with DistributedDataParallel.

All methods train the same module with AdamW on the same batches of each rank and exchange after the same number of
steps (`subnets/methods.py`, `subnets/tasks.py`). Two things are measured, each of which can be run alone:

- curves: the measure on the test points by step, once for each number of ranks, method and learning rate; the ranks
  meet on this machine, as the network does not change what a method learns.
- times: for each network of `network.py`, seconds of a step and of an exchange, all methods in turns in the same
  processes, and bytes that a rank's device sends. They are medians over the turns.

A method has arrived at the first step whose measure is at least 98 % of DDP's last one, at the learning rate that gets
there soonest; the last measures are those at the learning rate with the best one. Seconds are steps times measured
seconds of a step. A figure "x ddp" is DDP's seconds to those of a method: above 1, the method is faster.

    sudo .venv/bin/python benchmarks/ist.py --workload xml --ranks 4 --network 1gbit --methods ddp,ist
    sudo .venv/bin/python benchmarks/ist.py --part curves --rates 1e-3,3e-3 --steps 600,ist=900 --json FILE
    .venv/bin/python benchmarks/ist.py --workload speech --ranks 2 --network open --each 25
    .venv/bin/python benchmarks/ist.py --part table --json FILE     # of everything that FILE has

Times need root, `ip` and `tc`, but for the network `open`, the machine itself, whose bytes are not counted; `digits`
needs scikit-learn. `speech` is a 3-layer MLP on synthetic speech: espeak-ng (`apt-get install -y espeak-ng`) speaks the
35 words of Speech Commands over accents, voices, speeds and pitches, and transformers' log-mel code makes 4,096
features of each clip; the first run takes minutes for that and keeps them in build/speech.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import click
from frame.launch import run_ranks, threads_of_rank
from frame.results import machine
from joinsum.base.text_table import text_table
from network import Link, Missing
from subnets import speech

PROGRAM = Path(__file__).resolve().parent / "subnets" / "rank.py"
METHODS = ("ddp", "local_sgd", "diloco", "ist", "ist_reset", "ist_scaled", "ist_bf16")
WORKLOADS = {
    "xml": {"steps": 600, "each": 50},
    "digits": {"steps": 300, "each": 20},
    "speech": {"steps": 400, "each": 25},
}
NETWORKS = "unlimited,1gbit,1gbit+1ms,200mbit"
ARRIVED = 0.98
LIMIT = 7200.0  # seconds after which ranks have failed

Entry = dict[str, Any]


class Setting(NamedTuple):
    """What every part of a run has in common."""

    methods: Sequence[str]
    rates: Sequence[float]
    every: int
    steps: Callable[[str, str], int]  # of a workload and method
    turns: int
    each: int | None  # steps between two evaluations; None: the workload's own


class Figures:
    """Entries of curves and times, in memory and in a file, if there is one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.entries: list[Entry] = []
        if path is not None and path.exists():
            self.entries = json.loads(path.read_text(encoding="utf-8"))

    def add(self, entry: Entry) -> None:
        """Adds an entry, or replaces the one of the same key."""
        self.entries = [each for each in self.entries if _key(each) != _key(entry)] + [entry]
        if self._path is not None:
            self._path.write_text(json.dumps(self.entries) + "\n", encoding="utf-8")

    def curves(self, workload: str, ranks: int) -> Iterator[Entry]:
        yield from (each for each in self._of(workload, ranks) if "points" in each)

    def times(self, workload: str, ranks: int) -> Iterator[Entry]:
        yield from (each for each in self._of(workload, ranks) if "turns" in each)

    def _of(self, workload: str, ranks: int) -> Iterator[Entry]:
        yield from (each for each in self.entries if (each["workload"], each["ranks"]) == (workload, ranks))


def _key(entry: Entry) -> tuple[object, ...]:
    names = ("workload", "ranks", "network", "method", "rate", "every")
    return (*(entry.get(name) for name in names), *(entry.get("turns", {})))


def answer(ranks: int, network: str, request: Mapping[str, Any]) -> Entry:
    """What rank 0 answers, from ranks of their own."""
    threads = threads_of_rank(ranks)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        out = Path(folder) / "answer.json"
        asked = json.dumps({**request, "threads": threads})
        # torch warns that a namespace's address has no name.
        environment = {"OMP_NUM_THREADS": str(threads), "TORCH_CPP_LOG_LEVEL": "ERROR", "XDG_CACHE_HOME": folder}
        run_ranks(ranks, network, [sys.executable, str(PROGRAM), asked, "--out", str(out)], environment, LIMIT)
        found: Entry = json.loads(out.read_text(encoding="utf-8"))
    return found


def measure_curves(figures: Figures, workload: str, ranks: int, setting: Setting) -> None:
    """The curve of each method at each rate."""
    each = setting.each or WORKLOADS[workload]["each"]
    for method, rate in itertools.product(setting.methods, setting.rates):
        key = {"workload": workload, "method": method, "rate": rate, "every": setting.every}
        steps = setting.steps(workload, method)
        found = answer(ranks, "open", {**key, "steps": steps, "each": each})
        figures.add({**key, "ranks": ranks, **found})
        last = ", ".join(f"{value:.4f}" for value in found["points"][-1][1:])
        took = f"{found['training_seconds']:.0f} s, evaluation {found['evaluation_seconds']:.0f} s"
        click.echo(f"{workload}, {ranks} ranks, {method} at {rate:g}: {last} after {steps} steps ({took})")


def measure_times(figures: Figures, workload: str, ranks: int, network: str, setting: Setting) -> None:
    key = {"workload": workload, "every": setting.every}
    found = answer(ranks, network, {**key, "methods": setting.methods, "turns": setting.turns})
    figures.add({**key, "ranks": ranks, "network": network, **found})


def best(curves: Sequence[Entry]) -> Entry:
    """The curve whose last measure is the best."""
    return max(curves, key=lambda each: each["points"][-1][1])


def arrival(curves: Sequence[Entry], target: float) -> int | None:
    """The first step at which one of the curves has the target."""
    steps = [point[0] for each in curves for point in each["points"] if point[1] >= target]
    return min(steps, default=None)


class Cost(NamedTuple):
    """Medians over the turns: seconds of a step alone and of an exchange, of a step in all, and bytes of a step."""

    step: float
    exchange: float
    seconds: float
    bytes: float


def cost(turns: Sequence[Mapping[str, float]], every: int) -> Cost:
    """The cost of a method's steps.

    >>> cost([{"step": 1.0, "exchange": 5.0, "bytes": 8.0}], every=10)
    Cost(step=1.0, exchange=5.0, seconds=1.5, bytes=8.0)
    """
    step, exchange, sent = (median(each[name] for each in turns) for name in ("step", "exchange", "bytes"))
    return Cost(step, exchange, median(each["step"] + each["exchange"] / every for each in turns), sent)


HEADER = [
    *("method", "last measures", "at rate", "steps to 98 %", "network", "step ms", "exchange ms"),
    *("ms a step", "x ddp", "MB a step", "s to 98 %", "x ddp"),
]


def rows(figures: Figures, workload: str, ranks: int) -> Iterator[list[str]]:
    """One for each network and method of which there are times; curves may be missing."""
    curves: dict[str, list[Entry]] = {}
    for each in figures.curves(workload, ranks):
        curves.setdefault(each["method"], []).append(each)
    target = ARRIVED * best(curves["ddp"])["points"][-1][1] if "ddp" in curves else float("inf")
    steps = {name: arrival(found, target) for name, found in curves.items()}
    for entry in figures.times(workload, ranks):
        costs = {name: cost(turns, entry["every"]) for name, turns in entry["turns"].items()}
        arrived = {name: own.seconds * count for name, own in costs.items() if (count := steps.get(name))}
        for name, own in costs.items():
            last = best(curves[name]) if name in curves else None
            yield [
                name,
                " ".join(f"{x:.4f}" for x in last["points"][-1][1:]) if last else "",
                f"{last['rate']:g}" if last else "",
                str(steps.get(name) or "never") if last else "",
                entry["network"],
                f"{1e3 * own.step:.1f}",
                f"{1e3 * own.exchange:.1f}",
                f"{1e3 * own.seconds:.1f}",
                f"{costs['ddp'].seconds / own.seconds:.2f}" if "ddp" in costs else "",
                f"{own.bytes / 1e6:.3f}" if own.bytes else "",
                f"{arrived[name]:.1f}" if name in arrived else "",
                f"{arrived['ddp'] / arrived[name]:.2f}" if "ddp" in arrived and name in arrived else "",
            ]


def draw(figures: Figures, workload: str, ranks: int, path: Path) -> None:
    """Draws the best curve of each method by step, and by seconds in each network."""
    from matplotlib.figure import Figure

    curves: dict[str, list[Entry]] = {}
    for each in figures.curves(workload, ranks):
        curves.setdefault(each["method"], []).append(each)
    networks: dict[str, dict[str, float]] = {}
    for entry in figures.times(workload, ranks):
        of_a_step = {name: cost(turns, entry["every"]).seconds for name, turns in entry["turns"].items()}
        networks.setdefault(entry["network"], {}).update(of_a_step)
    figure = Figure(figsize=(4 * (1 + len(networks)), 3.6), layout="constrained")
    panels = figure.subplots(1, 1 + len(networks), sharey=True, squeeze=False)[0]
    for axes, network in zip(panels, [None, *networks], strict=True):
        for place, (name, found) in enumerate(curves.items()):
            scale = 1.0 if network is None else networks[network].get(name)
            if scale is not None:
                steps, measures = zip(*(point[:2] for point in best(found)["points"]), strict=True)
                seconds = [scale * step for step in steps]
                axes.plot(seconds, measures, label=name, marker=".", color=f"C{place}")
        axes.set(title=network or "any network", xlabel="step" if network is None else "seconds")
        if network is not None:
            axes.set_xscale("log")
    panels[0].set_ylabel("P@1" if workload == "xml" else "accuracy")
    panels[0].legend()
    figure.savefig(path, dpi=110)


def _steps(text: str | None) -> Callable[[str, str], int]:
    """Reads `600,ist=900`; without a number the workload's own."""
    numbers: dict[str, int] = {}
    for word in text.split(",") if text else []:
        name, _, number = word.rpartition("=")
        numbers[name] = int(number)
    return lambda workload, method: numbers.get(method, numbers.get("", WORKLOADS[workload]["steps"]))


@click.command()
@click.option("--part", type=click.Choice(["all", "curves", "times", "table"]), default="all", show_default=True)
@click.option("--workload", "workloads", type=click.Choice(list(WORKLOADS)), multiple=True, default=list(WORKLOADS))
@click.option("--ranks", default="2,4", show_default=True, help="Numbers of ranks.")
@click.option("--network", "networks", default=NETWORKS, show_default=True, help="As for network.py, or open.")
@click.option("--methods", default=",".join(METHODS[:4]), show_default=True, help=f"Of {', '.join(METHODS)}.")
@click.option("--rates", default="1e-3,3e-3,1e-2", show_default=True, help="Learning rates to try.")
@click.option("--every", default=10, show_default=True, help="Steps of a round.")
@click.option("--steps", help="Of a curve: a number, and others for methods, such as 600,ist=900.")
@click.option("--each", type=int, help="Steps between two points of a curve.")
@click.option("--turns", default=5, show_default=True, help="Rounds of each method, for its times.")
@click.option(
    "--json", "path", type=click.Path(path_type=Path), help="Keep the figures in this file, beside its others."
)
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the curves of the last workload in this file.")
def main(
    part: str,
    workloads: Sequence[str],
    ranks: str,
    networks: str,
    methods: str,
    rates: str,
    every: int,
    steps: str | None,
    each: int | None,
    turns: int,
    path: Path | None,
    plot: Path | None,
) -> None:
    """Compare independent subnet training with its rivals."""
    names = methods.split(",")
    if set(names) - set(METHODS):
        raise click.UsageError(f"--methods: unknown: {', '.join(sorted(set(names) - set(METHODS)))}")
    setting = Setting(names, [float(each) for each in rates.split(",")], every, _steps(steps), turns, each)
    figures = Figures(path)
    if "speech" in workloads and part != "table":
        speech.prepare()  # before ranks of their own would each do so
    for workload in workloads:
        for count in map(int, ranks.split(",")):
            try:
                if part in ("all", "curves"):
                    measure_curves(figures, workload, count, setting)
                for network in networks.split(",") if part in ("all", "times") else []:
                    if network != "open":
                        Link.parse(network)
                    measure_times(figures, workload, count, network, setting)
            except (Missing, ValueError) as error:
                raise click.ClickException(str(error)) from None
            click.echo(f"{workload}, {count} ranks, {threads_of_rank(count)} threads a rank, {machine()['processor']}")
            click.echo(text_table(HEADER, list(rows(figures, workload, count)), right=list(range(5, len(HEADER)))))
            if plot is not None:
                draw(figures, workload, count, plot)


if __name__ == "__main__":
    main()
