"""Training steps on the example data: joinsum on several sites of one process against plain torch.

All train the same model on batches of the same data: torch with autograd, fused Adam and
binary_cross_entropy_with_logits; joinsum with each plan, with dense features and with sparse ones. They take turns of
some steps each, so that other load hits all alike; making a batch counts. Figures are medians over the rounds.

With `--amazoncat` the points are drawn in the shape of AmazonCat-13K: 203,882 features, 13,330 labels, 70 features and
5 labels a point, whose frequencies follow a power law.

    python benchmarks/train_epoch.py [--sites 4] [--hidden 256] [--batch 256] [--amazoncat] [--json FILE] [--trace]
"""

from __future__ import annotations

import itertools
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import joinsum
import numpy as np
import numpy.typing as npt
import torch
from joinsum import extreme
from joinsum.extreme.classifier import Classifier, Sizes, Training, choose

DATA = Path(__file__).resolve().parents[1] / "data" / "debian-xml" / "train.txt.gz"
RATE = 2e-2
Step = Callable[[torch.Tensor, torch.Tensor], float]
Batch = Callable[[npt.NDArray[np.int64]], tuple[torch.Tensor, torch.Tensor]]


class TorchClassifier:
    """The same model and update in plain torch."""

    def __init__(self, sizes: Sizes, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.w1 = torch.randn(sizes.features, sizes.hidden, generator=generator)
        self.w2 = torch.randn(sizes.hidden, sizes.labels, generator=generator) / sizes.hidden**0.5
        weights = [self.w1.requires_grad_(), self.w2.requires_grad_()]
        self.adam = torch.optim.Adam(weights, lr=RATE, fused=True)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> float:
        """Trains on a batch; returns its loss before the step."""
        scores = (x @ self.w1).relu() @ self.w2
        loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, y, reduction="sum") / len(x)
        self.adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.adam.step()
        return loss.item()


def drawn_points(points: int = 4096) -> extreme.SparsePoints:
    """Points in the shape of AmazonCat-13K."""
    generator = np.random.default_rng(0)
    header = extreme.Header(points, 203_882, 13_330)

    def drawn(each: int, of: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Different numbers for each point; small ones are drawn more often."""
        rows = [np.unique((of * generator.random(each) ** 3).astype(np.int32)) for _ in range(points)]
        return np.cumsum([0, *map(len, rows)]), np.concatenate(rows)

    indptr, indices = drawn(72, header.features)
    label_indptr, label_indices = drawn(5, header.labels)
    values = generator.random(len(indices), dtype=np.float32)
    return extreme.SparsePoints(header, indptr, indices, values, label_indptr, label_indices)


def rows_of_batches(points: extreme.SparsePoints, size: int) -> Iterator[npt.NDArray[np.int64]]:
    """Endless full batches."""
    generator = torch.Generator().manual_seed(0)
    while True:
        yield from (rows for rows in points.minibatches(size, generator) if len(rows) == size)


def batch_maker(points: extreme.SparsePoints, size: int, sparse: bool) -> Batch:
    """Makes batches in buffers of its own."""
    header = points.header
    x = None if sparse else torch.empty(size, header.features)
    buffers = extreme.DenseBatch(x, torch.empty(size, header.labels))
    return lambda rows: points.batch(rows, out=buffers)


def measure(
    steps: dict[str, tuple[Batch, Step]], stream: Iterator[npt.NDArray[np.int64]], rounds: int, count: int
) -> dict[str, list[float]]:
    """Seconds of a step, by contestant and round."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for index in range(rounds + 1):
        for name, (batch, step) in steps.items():
            start = time.perf_counter()
            for rows in itertools.islice(stream, count):
                step(*batch(rows))
            if index > 0:  # the first round warms up
                seconds[name].append((time.perf_counter() - start) / count)
    return seconds


def report(seconds: dict[str, list[float]], batch: int) -> dict[str, dict[str, float]]:
    """Prints a line for each contestant; the ratio is the median over rounds of its seconds to torch's."""
    figures = {}
    click.echo(f"{'':24}{'ms a step':>12}{'points/s':>12}{'x torch':>10}")
    for name, values in seconds.items():
        ratio = statistics.median(value / base for value, base in zip(values, seconds["torch"], strict=True))
        median = statistics.median(values)
        figures[name] = {"seconds": median, "points_per_second": batch / median, "ratio": ratio}
        click.echo(f"{name:24}{1e3 * median:12.1f}{batch / median:12,.0f}{ratio:10.2f}")
    return figures


def show_trace(name: str, traces: Sequence[joinsum.Trace]) -> None:
    """Prints the nodes of a step by time, the slowest first: medians over the traced steps."""
    click.echo(f"\n{name}: nodes of a step by time")
    rows = [
        (statistics.median(entry.seconds for entry in entries), entries[0]) for entries in zip(*traces, strict=True)
    ]
    for value, entry in sorted(rows, key=lambda row: -row[0])[:16]:
        click.echo(f"{1e3 * value:9.2f} ms  {entry.kernel_calls:4} calls  {entry.node:6} {entry.operation}")
    click.echo(f"{1e3 * sum(value for value, _ in rows):9.2f} ms  in all nodes")


def compare(
    points: extreme.SparsePoints, sizes: Sizes, sites: int, rounds: int, count: int, traced: bool
) -> dict[str, object]:
    """Runs all contestants and prints the figures."""
    sizes = sizes._replace(features=points.header.features, labels=points.header.labels)
    joinsum.init(sites=sites)
    sparse = sizes._replace(entries=round(len(points.indices) / len(points) * sizes.points))
    decision = choose(sparse, sites)
    click.echo(f"{sparse}, {sites} sites, {torch.get_num_threads()} threads")
    click.echo(f"plan chosen: {decision.reason}")
    steps: dict[str, tuple[Batch, Step]] = {}
    steps["torch"] = (batch_maker(points, sizes.points, False), TorchClassifier(sizes).step)
    for name, own in (("dense", sizes), ("sparse", sparse)):
        for plan in decision.costs:
            classifier = Classifier(own, plan, Training(rate=RATE))
            steps[f"joinsum {plan}, {name} X"] = (batch_maker(points, sizes.points, name == "sparse"), classifier.step)
    stream = rows_of_batches(points, sizes.points)
    seconds = measure(steps, stream, rounds, count)
    figures = report(seconds, sizes.points)
    chosen, before = (seconds[f"joinsum {decision.chosen}, {name} X"] for name in ("sparse", "dense"))
    ratio = statistics.median(y / x for x, y in zip(chosen, before, strict=True))
    click.echo(f"chosen plan, {decision.chosen} parallel, with sparse X: {ratio:.2f} x as fast as with dense X")
    if traced:
        for name, (batch, step) in steps.items():
            traces = []
            for _ in range(5 if name != "torch" else 0):
                step(*batch(next(stream)))
                traces.append(joinsum.trace())
            if traces:
                show_trace(name, traces)
    machine = {"processor": platform.machine(), "threads": torch.get_num_threads(), "torch": torch.__version__}
    return {"sizes": sizes._asdict(), "sites": sites, "chosen": decision.chosen, "figures": figures, **machine}


@click.command()
@click.option("--sites", type=click.IntRange(min=1), default=4, show_default=True)
@click.option("--hidden", type=click.IntRange(min=1), default=256, show_default=True)
@click.option("--batch", type=click.IntRange(min=1), default=256, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--steps", type=click.IntRange(min=1), default=6, show_default=True, help="Steps of each, in a round.")
@click.option("--amazoncat", is_flag=True, help="Points in the shape of AmazonCat-13K.")
@click.option("--trace", "traced", is_flag=True, help="Show which nodes of a step take the time.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the figures here too.")
def command(
    sites: int,
    hidden: int,
    batch: int,
    rounds: int,
    steps: int,
    amazoncat: bool,
    traced: bool,
    json_file: Path | None,
) -> None:
    """Compare joinsum's training steps with plain torch's."""
    points = drawn_points() if amazoncat else extreme.load(DATA)
    result = compare(points, Sizes(batch, 1, hidden, 1), sites, rounds, steps, traced)
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    command()
