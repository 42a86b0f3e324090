"""The overhead of joinsum on one site: four models, every way in, plain torch and joinsum in turns.

Forward and backward passes by `joinsum.compile` and `torch.compile(model, backend="joinsum")`, whole training steps by
`joinsum.train_step`, and the user's loop with `joinsum.distribute`, each against the same in plain torch. Figures are
medians of rounds, of wall time and of processor time, which other programs disturb less.

    python benchmarks/one_site.py [--model gpt ...] [--way train_step ...] [--layers 4] [--width 512] [--rounds 9]

`--small` measures instead the microseconds that each way in adds to a step of less than a millisecond.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import click
import joinsum
import torch
from one_site_models import NAMES, Work, new_work, small
from torch import nn

LIMIT = 1.05  # times plain torch
CALLS = 20  # of a small model, timed together


class Figure(NamedTuple):
    """Seconds of torch and of joinsum, in wall time and processor time."""

    model: str
    way: str
    clock: tuple[float, float]
    processor: tuple[float, float]

    @property
    def ratio(self) -> float:
        return self.processor[1] / self.processor[0]


def timed(work: Callable[[], object]) -> tuple[float, float]:
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def compared(
    plain: Callable[[], object], planned: Callable[[], object], rounds: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Both in turns, each first in half of the rounds, after two rounds that do not count."""
    for _ in range(2):
        plain(), planned()
    times: list[list[tuple[float, float]]] = [[], []]
    for i in range(rounds):
        for which in (0, 1) if i % 2 == 0 else (1, 0):
            times[which].append(timed((plain, planned)[which]))
    (a, b), (c, d) = ([statistics.median(kind) for kind in zip(*each, strict=True)] for each in times)
    return (a, c), (b, d)


# --- ways in ----------------------------------------------------------------------------------------------------------


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4)


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def passes(loss_of: Callable[[], torch.Tensor], model: nn.Module) -> Callable[[], float]:
    """Forward and backward."""

    def work() -> float:
        model.zero_grad()
        loss = loss_of()
        loss.backward()
        return loss.item()

    return work


def loop(work: Work, optimizer: torch.optim.Optimizer) -> Callable[[], float]:
    """The user's loop."""

    def step() -> float:
        optimizer.zero_grad()
        loss = work.loss(work.model(work.inputs), work.target)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def compile_(plain: Work, other: Work) -> tuple[Callable[[], float], Callable[[], float]]:
    """`joinsum.compile`: model and loss."""
    run = joinsum.compile(lambda x, y: other.loss(other.model(x), y))
    first = passes(lambda: plain.loss(plain.model(plain.inputs), plain.target), plain.model)
    return first, passes(lambda: run(other.inputs, other.target), other.model)


def backend(plain: Work, other: Work) -> tuple[Callable[[], float], Callable[[], float]]:
    """`torch.compile`: the model."""
    run = torch.compile(other.model, backend="joinsum")
    first = passes(lambda: plain.loss(plain.model(plain.inputs), plain.target), plain.model)
    return first, passes(lambda: other.loss(run(other.inputs), other.target), other.model)


def steps(
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
) -> Callable[[Work, Work], tuple[Callable[[], float], Callable[[], float]]]:
    """`joinsum.train_step` with an optimizer."""

    def way(plain: Work, other: Work) -> tuple[Callable[[], float], Callable[[], float]]:
        step = joinsum.train_step(other.model, other.loss, optimizer(other.model))
        return loop(plain, optimizer(plain.model)), lambda: step(other.inputs, other.target).item()

    return way


def distribute(plain: Work, other: Work) -> tuple[Callable[[], float], Callable[[], float]]:
    """`joinsum.distribute` in the user's loop, with AdamW."""
    model = joinsum.distribute(other.model, other.inputs)
    return loop(plain, adamw(plain.model)), loop(other._replace(model=model), adamw(model))


WAYS = {
    "compile": compile_,
    "backend": backend,
    "train_step": steps(adamw),
    "train_step, momentum": steps(momentum),
    "distribute": distribute,
}


# --- figures ----------------------------------------------------------------------------------------------------------


def measured(
    models: Sequence[str],
    ways: Sequence[str],
    sizes: tuple[int, int, int, int, int],
    rounds: int,
    emit: Callable[[Figure], object] = lambda figure: None,
) -> list[Figure]:
    """The figures; asserts that the losses agree where nothing is drawn.

    sizes   layers, width, tokens, batch, length
    """
    joinsum.init(sites=1)
    figures = []
    for model in models:
        for way in ways:
            torch._dynamo.reset()
            first, second = WAYS[way](new_work(model, *sizes), new_work(model, *sizes))
            if model in ("llama", "cnn"):
                one, other = first(), second()
                assert abs(one - other) < 1e-3 * abs(one), (model, way, one, other)
            figures.append(Figure(model, way, *compared(first, second, rounds)))
            emit(figures[-1])
    return figures


def added(ways: Sequence[str], rounds: int, emit: Callable[[str], object]) -> None:
    """What a step of a small model takes by itself and with joinsum, in microseconds of the processor's time."""
    joinsum.init(sites=1)
    emit(f"{'way in':<21} {'torch us':>9} {'joinsum us':>11} {'added us':>9}")

    def often(step: Callable[[], float]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(CALLS):
                step()

        return run

    for way in ways:
        torch._dynamo.reset()
        first, second = map(often, WAYS[way](small(), small()))
        _, processor = compared(first, second, rounds)
        torchs, joinsums = (seconds / CALLS * 1e6 for seconds in processor)
        emit(f"{way:<21} {torchs:>9.0f} {joinsums:>11.0f} {joinsums - torchs:>9.0f}")


HEAD = f"{'model':<8} {'way in':<21} {'torch s':>9} {'joinsum s':>10} {'CPU s':>8} {'CPU s':>8} {'ratio':>6}"


def row(f: Figure) -> str:
    return (
        f"{f.model:<8} {f.way:<21} {f.clock[0]:>9.3f} {f.clock[1]:>10.3f} "
        f"{f.processor[0]:>8.3f} {f.processor[1]:>8.3f} {f.ratio:>6.3f}"
    )


@click.command()
@click.option("--model", "models", type=click.Choice(NAMES), multiple=True, default=NAMES)
@click.option("--way", "ways", type=click.Choice(list(WAYS)), multiple=True, default=list(WAYS))
@click.option("--layers", default=4, show_default=True)
@click.option("--width", default=512, show_default=True)
@click.option("--tokens", default=8192, show_default=True)
@click.option("--batch", default=4, show_default=True)
@click.option("--length", default=128, show_default=True)
@click.option("--rounds", default=9, show_default=True)
@click.option("--small", "is_small", is_flag=True, help="Microseconds that are added to a step of a small model.")
def command(
    models: tuple[str, ...],
    ways: tuple[str, ...],
    layers: int,
    width: int,
    tokens: int,
    batch: int,
    length: int,
    rounds: int,
    is_small: bool,
) -> None:
    """Measure, and exit with 1 where joinsum takes more than 1.05 times torch's time."""
    if is_small:
        added(ways, rounds, click.echo)
        return
    click.echo(HEAD)
    sizes = (layers, width, tokens, batch, length)
    figures = measured(models, ways, sizes, rounds, lambda figure: click.echo(row(figure)))
    slow = [f"{figure.model} {figure.way}" for figure in figures if figure.ratio > LIMIT]
    if slow:
        raise SystemExit(f"more than {LIMIT} times torch's time: {', '.join(slow)}")


if __name__ == "__main__":
    command()
