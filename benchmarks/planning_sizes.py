"""How long plans take for further batch sizes of a step in the shape of LLaMA 8B, and what they are modelled to lose.

The model is that of `planning_steps.py`. Capture, which each size needs, is not counted.

    python benchmarks/planning_sizes.py [--layers N] [--sites N] [--batch N ...] [--json FILE]
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import joinsum
import torch
from planning_steps import LENGTH, Llama, Shape, loss_of
from torch._subclasses.fake_tensor import FakeTensorMode


@dataclass(frozen=True)
class Figure:
    """A step for a batch: seconds until its plan is there, where that is from, and what the step is to take."""

    batch: int
    planning: float
    seconds: float
    origin: str


def measured(layers: int, sites: int, shape: Shape, batches: Sequence[int], length: int) -> list[Figure]:
    """Plans a step for one batch size after another; nothing runs."""
    joinsum.init(sites=sites, plan_cache=False)
    with FakeTensorMode():
        model = Llama(layers, shape)
    figures = []
    for batch in batches:
        torch._dynamo.reset()
        step = joinsum.train_step(model, loss_of, torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9))
        ids = torch.zeros(batch, length, dtype=torch.int64)
        runner = step.captured(ids, ids)
        begin = time.perf_counter()
        choice = runner.planned.choice
        planning = time.perf_counter() - begin
        figures.append(Figure(batch, planning, joinsum.cost(joinsum.IaPlan(choice.plan)).seconds, choice.origin))
    return figures


def table(figures: Sequence[Figure]) -> str:
    rows = [f"{f.batch:>6} {f.planning:>11.2f} {f.seconds:>9.2f}  {f.origin}" for f in figures]
    return "\n".join([f"{'batch':>6} {'planning s':>11} {'step s':>9}  plan", *rows])


@click.command()
@click.option("--layers", default=4, show_default=True)
@click.option("--sites", default=8, show_default=True)
@click.option("--batch", type=int, multiple=True, default=(64, 56, 52, 16, 40, 128), show_default=True)
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write the figures to this file.")
def command(layers: int, sites: int, batch: tuple[int, ...], path: Path | None) -> None:
    """Measure."""
    figures = measured(layers, sites, Shape(), batch, LENGTH)
    click.echo(table(figures))
    if path is not None:
        path.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))


if __name__ == "__main__":
    command()
