"""Independent subnet training beside its baselines: how long until a model is as good as with DistributedDataParallel.

All methods train the same module with AdamW on the same batches of each rank and exchange after the same number of
steps (`subnets/methods.py`, `subnets/tasks.py`). Three things are measured, each of which can be run alone:

- curves: the measure on the test points by step, for each number of ranks, method, learning rate and seed; the ranks
  meet on this machine, as the network does not change what a method learns.
- times: for each network of `network.py`, seconds of a step and of an exchange, all methods in turns in the same
  processes, and bytes that a rank's device sends. They are medians over the turns.
- runs (not part of `all`): each method trains in each network, to compare its seconds with steps times seconds.

A method has arrived at the first step whose measure is at least 98 % of DDP's last one (the mean over the seeds), at
the learning rate that gets there soonest; of several seeds, the median arrives. The last measures are means over the
seeds at the learning rate with the best one. Seconds are steps times measured seconds of a step. A figure "x ddp" is
DDP's seconds to those of a method: above 1, the method is faster.

    sudo .venv/bin/python benchmarks/ist.py --workload xml --ranks 4 --network 1gbit --methods ddp,ist
    sudo .venv/bin/python benchmarks/ist.py --part curves --rates 1e-3,3e-3 --steps 600,ist=900 --json FILE
    .venv/bin/python benchmarks/ist.py --workload speech --ranks 2 --network open --each 25
    sudo .venv/bin/python benchmarks/ist.py --part runs --workload xml --ranks 4 --network 1gbit --json FILE
    .venv/bin/python benchmarks/ist.py --part table --json FILE     # of everything that FILE has

Times need root, `ip` and `tc`, but for the network `open`, the machine itself, whose bytes are not counted; `digits`
needs scikit-learn. `speech` is a 3-layer MLP on synthetic speech: espeak-ng (`apt-get install -y espeak-ng`) speaks the
35 words of Speech Commands over accents, voices, speeds and pitches, and transformers' log-mel code makes 4,096
features of each clip; the first run takes minutes for that and keeps them in build/speech. `speech_wide` is the same
with hidden layers of 4,096 instead of 1,000 units, as the thesis has them.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from statistics import mean, median
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
    "speech_wide": {"steps": 300, "each": 25},
}
NETWORKS = "unlimited,1gbit,1gbit+1ms,200mbit"
ARRIVED = 0.98
LIMIT = 7200.0  # seconds after which ranks have failed

Entry = dict[str, Any]


class Setting(NamedTuple):
    """What every part of a run has in common."""

    methods: Sequence[str]
    rates: Sequence[float]
    seeds: Sequence[int]
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
        """One of each method, rate and seed; runs in a network are such, too."""
        found: dict[tuple[object, ...], Entry] = {}
        for each in self._of(workload, ranks):
            if "points" in each:
                found.setdefault(tuple(each[name] for name in ("method", "rate", "seed", "every")), each)
        yield from found.values()

    def runs(self, workload: str, ranks: int) -> Iterator[Entry]:
        yield from (each for each in self._of(workload, ranks) if "points" in each and "network" in each)

    def times(self, workload: str, ranks: int) -> Iterator[Entry]:
        yield from (each for each in self._of(workload, ranks) if "turns" in each)

    def _of(self, workload: str, ranks: int) -> Iterator[Entry]:
        yield from (each for each in self.entries if (each["workload"], each["ranks"]) == (workload, ranks))


def _key(entry: Entry) -> tuple[object, ...]:
    names = ("workload", "ranks", "network", "method", "rate", "seed", "every")
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


def measure_curves(figures: Figures, workload: str, ranks: int, setting: Setting, network: str | None = None) -> None:
    """The curve of each method at each rate and seed; `network`: of a run there, which has its seconds."""
    each = setting.each or WORKLOADS[workload]["each"]
    where = {} if network is None else {"network": network}
    for method, rate, seed in itertools.product(setting.methods, setting.rates, setting.seeds):
        key = {"workload": workload, "method": method, "rate": rate, "seed": seed, "every": setting.every}
        steps = setting.steps(workload, method)
        found = answer(ranks, network or "open", {**key, "steps": steps, "each": each})
        figures.add({**key, "ranks": ranks, **where, **found})
        last = ", ".join(f"{value:.4f}" for value in found["points"][-1][1:])
        took = f"{found['seconds'][-1]:.0f} s, evaluation {found['evaluation_seconds']:.0f} s"
        click.echo(f"{workload}, {ranks} ranks, {method} at {rate:g}, seed {seed}: {last} after {steps} steps ({took})")


def measure_times(figures: Figures, workload: str, ranks: int, network: str, setting: Setting) -> None:
    key = {"workload": workload, "every": setting.every}
    found = answer(ranks, network, {**key, "methods": setting.methods, "turns": setting.turns})
    figures.add({**key, "ranks": ranks, "network": network, **found})


Curves = dict[str, dict[float, list[Entry]]]  # of a method and learning rate, one for each seed


def by_method(entries: Iterable[Entry]) -> Curves:
    curves: Curves = {}
    for each in entries:
        curves.setdefault(each["method"], {}).setdefault(each["rate"], []).append(each)
    return curves


def mean_points(curves: Sequence[Entry]) -> list[list[float]]:
    """Measures, the means over the seeds, at the steps that all have.

    >>> mean_points([{"points": [[10, 0.5], [20, 1.0]]}, {"points": [[10, 1.5], [20, 3.0]]}])
    [[10, 1.0], [20, 2.0]]
    """
    by_step = [{point[0]: point[1:] for point in each["points"]} for each in curves]
    steps = sorted(set(by_step[0]).intersection(*by_step[1:]))
    return [[step, *(mean(values) for values in zip(*(own[step] for own in by_step), strict=True))] for step in steps]


def of_most_seeds(curves: Mapping[float, Sequence[Entry]]) -> dict[float, Sequence[Entry]]:
    """Without learning rates that were tried with fewer seeds than others."""
    most = max(len(each) for each in curves.values())
    return {rate: each for rate, each in curves.items() if len(each) == most}


def best(curves: Mapping[float, Sequence[Entry]]) -> tuple[float, list[list[float]]]:
    """The learning rate whose last measure is the best, and its points."""
    means = {rate: mean_points(each) for rate, each in of_most_seeds(curves).items()}
    rate = max(means, key=lambda rate: means[rate][-1][1])
    return rate, means[rate]


def arrivals(curve: Sequence[Entry], target: float) -> list[float]:
    """For each seed the first step that has the target, in order; infinity where none has.

    >>> arrivals([{"points": [[10, 0.5], [20, 1.0]]}, {"points": [[10, 0.8]]}], 0.7)
    [10, 20]
    """
    return sorted(min((point[0] for point in each["points"] if point[1] >= target), default=inf) for each in curve)


def arrival(curves: Mapping[float, Sequence[Entry]], target: float) -> list[float]:
    """The arrivals at the learning rate of the first median."""
    return min((arrivals(each, target) for each in of_most_seeds(curves).values()), key=median)


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
    curves = by_method(figures.curves(workload, ranks))
    target = target_of(curves)
    steps = {name: arrival(found, target) for name, found in curves.items()}
    for entry in figures.times(workload, ranks):
        costs = {name: cost(turns, entry["every"]) for name, turns in entry["turns"].items()}
        arrived = {
            name: own.seconds * median(steps[name])
            for name, own in costs.items()
            if name in steps and median(steps[name]) < inf
        }
        for name, own in costs.items():
            rate, points = best(curves[name]) if name in curves else (None, [])
            yield [
                name,
                " ".join(f"{x:.4f}" for x in points[-1][1:]) if points else "",
                f"{rate:g}" if rate else "",
                " ".join(_number(each) for each in steps.get(name, [])),
                entry["network"],
                f"{1e3 * own.step:.1f}",
                f"{1e3 * own.exchange:.1f}",
                f"{1e3 * own.seconds:.1f}",
                f"{costs['ddp'].seconds / own.seconds:.2f}" if "ddp" in costs else "",
                f"{own.bytes / 1e6:.3f}" if own.bytes else "",
                f"{arrived[name]:.1f}" if name in arrived else "",
                f"{arrived['ddp'] / arrived[name]:.2f}" if "ddp" in arrived and name in arrived else "",
            ]


def target_of(curves: Curves) -> float:
    """The measure at which a method has arrived."""
    return ARRIVED * best(curves["ddp"])[1][-1][1] if "ddp" in curves else inf


def _number(steps: float) -> str:
    return "never" if steps == inf else f"{steps:g}"


HEADER_OF_RUNS = ["method", "network", "steps", "measured s", "steps x s a step", "ratio", "s to 98 %"]


def rows_of_runs(figures: Figures, workload: str, ranks: int) -> Iterator[list[str]]:
    """Measured seconds of training in a network beside those that follow from steps and times."""
    costs = {
        (entry["network"], name): cost(turns, entry["every"]).seconds
        for entry in figures.times(workload, ranks)
        for name, turns in entry["turns"].items()
    }
    target = target_of(by_method(figures.curves(workload, ranks)))
    for each in figures.runs(workload, ranks):
        steps, seconds = each["points"][-1][0], each["seconds"][-1]
        one = costs.get((each["network"], each["method"]))
        arrived = [at for point, at in zip(each["points"], each["seconds"], strict=True) if point[1] >= target]
        yield [
            *(each["method"], each["network"], str(steps), f"{seconds:.1f}"),
            *((f"{steps * one:.1f}", f"{seconds / (steps * one):.2f}") if one else ("", "")),
            f"{arrived[0]:.1f}" if arrived else "never",
        ]


def draw(figures: Figures, workload: str, ranks: int, path: Path) -> None:
    """Draws the best curve of each method by step, and by seconds in each network; below, bytes and times of a step."""
    from matplotlib.figure import Figure

    curves = by_method(figures.curves(workload, ranks))
    networks: dict[str, dict[str, Cost]] = {}
    for entry in figures.times(workload, ranks):
        of_a_step = {name: cost(turns, entry["every"]) for name, turns in entry["turns"].items()}
        networks.setdefault(entry["network"], {}).update(of_a_step)
    figure = Figure(figsize=(4 * (1 + len(networks)), 5.4), layout="constrained")
    above, below = figure.subplots(2, 1 + len(networks), sharey="row", squeeze=False, height_ratios=(3, 1))
    for axes, network in zip(above, [None, *networks], strict=True):
        for place, (name, found) in enumerate(curves.items()):
            own = None if network is None else networks[network].get(name)
            if network is None or own is not None:
                steps, measures = zip(*(point[:2] for point in best(found)[1]), strict=True)
                seconds = [step if own is None else own.seconds * step for step in steps]
                axes.plot(seconds, measures, label=name, marker=".", color=f"C{place}")
        axes.set(title=network or "any network", xlabel="step" if network is None else "seconds")
        if network is not None:
            axes.set_xscale("log")
    above[0].set_ylabel("P@1" if workload == "xml" else "accuracy")
    above[0].legend()
    names = list(curves)
    sent = {name: own.bytes / 1e6 for costs in networks.values() for name, own in costs.items() if own.bytes}
    _bars(below[0], names, sent, "MB a step, a rank")
    for axes, costs in zip(below[1:], networks.values(), strict=True):
        _bars(axes, names, {name: 1e3 * own.seconds for name, own in costs.items()}, "ms a step")
    figure.savefig(path, dpi=110)


def _bars(axes: Any, names: Sequence[str], values: Mapping[str, float], label: str) -> None:
    """A bar for each name that has a value, in its color."""
    for place, name in enumerate(names):
        if name in values:
            bar = axes.barh(name, values[name], color=f"C{place}")
            axes.bar_label(bar, [f"{values[name]:,.{0 if values[name] >= 10 else 1}f}"], padding=2)
    axes.set(xlabel=label)
    axes.margins(x=0.2)
    axes.set_ylim(len(names) - 0.5, -0.5)


def _steps(text: str | None) -> Callable[[str, str], int]:
    """Reads `600,ist=900`; without a number the workload's own."""
    numbers: dict[str, int] = {}
    for word in text.split(",") if text else []:
        name, _, number = word.rpartition("=")
        numbers[name] = int(number)
    return lambda workload, method: numbers.get(method, numbers.get("", WORKLOADS[workload]["steps"]))


@click.command()
@click.option(
    "--part", type=click.Choice(["all", "curves", "times", "runs", "table"]), default="all", show_default=True
)
@click.option("--workload", "workloads", type=click.Choice(list(WORKLOADS)), multiple=True, default=list(WORKLOADS))
@click.option("--ranks", default="2,4", show_default=True, help="Numbers of ranks.")
@click.option("--network", "networks", default=NETWORKS, show_default=True, help="As for network.py, or open.")
@click.option("--methods", default=",".join(METHODS[:4]), show_default=True, help=f"Of {', '.join(METHODS)}.")
@click.option("--rates", default="1e-3,3e-3,1e-2", show_default=True, help="Learning rates to try.")
@click.option("--seeds", default="0", show_default=True, help="Of weights, batches and subnets.")
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
    seeds: str,
    every: int,
    steps: str | None,
    each: int | None,
    turns: int,
    path: Path | None,
    plot: Path | None,
) -> None:
    """Compare independent subnet training with its baselines."""
    names = methods.split(",")
    if set(names) - set(METHODS):
        raise click.UsageError(f"--methods: unknown: {', '.join(sorted(set(names) - set(METHODS)))}")
    numbers = [float(each) for each in rates.split(",")], [int(each) for each in seeds.split(",")]
    setting = Setting(names, *numbers, every, _steps(steps), turns, each)
    figures = Figures(path)
    if part != "table" and any(each.startswith("speech") for each in workloads):
        speech.prepare()  # before ranks of their own would each do so
    for workload in workloads:
        for count in map(int, ranks.split(",")):
            try:
                if part in ("all", "curves"):
                    measure_curves(figures, workload, count, setting)
                for network in networks.split(",") if part in ("all", "times", "runs") else []:
                    if network != "open":
                        Link.parse(network)
                    if part == "runs":
                        measure_curves(figures, workload, count, setting, network)
                    else:
                        measure_times(figures, workload, count, network, setting)
            except (Missing, ValueError) as error:
                raise click.ClickException(str(error)) from None
            click.echo(f"{workload}, {count} ranks, {threads_of_rank(count)} threads a rank, {machine()['processor']}")
            click.echo(text_table(HEADER, list(rows(figures, workload, count)), right=list(range(5, len(HEADER)))))
            if any(figures.runs(workload, count)):
                click.echo(
                    text_table(HEADER_OF_RUNS, list(rows_of_runs(figures, workload, count)), right=[2, 3, 4, 5, 6])
                )
            if plot is not None:
                draw(figures, workload, count, plot)


if __name__ == "__main__":
    main()
