"""What joinsum costs where there is one site: a model in the shape of GPT-2 small, plain torch and joinsum in turns.

Forward and backward passes by `torch.compile(model, backend="joinsum")`, and whole training steps by
`joinsum.train_step`, each against the same by torch alone. Figures are medians of rounds, and the processor's time,
which other work on the machine disturbs less than the clock's.

    python benchmarks/one_site.py [--layers 12] [--width 768] [--tokens 50257] [--rounds 7]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import click
import joinsum
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LIMIT = 1.05  # times plain torch


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(self.norm1(x)).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        made = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(made.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, tokens: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.layers(x)))


def loss_of(scores: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), target.flatten())


class Figure(NamedTuple):
    """Seconds of torch and of joinsum, by the clock and of the processor."""

    what: str
    clock: tuple[float, float]
    processor: tuple[float, float]

    @property
    def ratio(self) -> float:
        return self.processor[1] / self.processor[0]


def timed(work: Callable[[], object]) -> tuple[float, float]:
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def compared(what: str, plain: Callable[[], object], planned: Callable[[], object], rounds: int) -> Figure:
    """Both in turns, each first in half of the rounds, after one round that does not count."""
    plain(), planned()
    times: list[list[tuple[float, float]]] = [[], []]
    for i in range(rounds):
        for which in (0, 1) if i % 2 == 0 else (1, 0):
            times[which].append(timed((plain, planned)[which]))
    (a, b), (c, d) = ([statistics.median(kind) for kind in zip(*each, strict=True)] for each in times)
    return Figure(what, (a, c), (b, d))


def measured(
    layers: int, width: int, tokens: int, batch: int, length: int, rounds: int, kinds: Sequence[str]
) -> list[Figure]:
    """The figures; asserts that losses agree."""
    joinsum.init(sites=1)
    torch.manual_seed(0)
    ids = torch.randint(tokens, (batch, length))
    target = torch.randint(tokens, (batch, length))

    def made() -> Gpt:
        torch.manual_seed(1)
        return Gpt(layers, width, max(1, width // 64), tokens, length)

    def passes(run: Callable[[Tensor], Tensor], model: nn.Module) -> Callable[[], float]:
        def work() -> float:
            model.zero_grad()
            loss = loss_of(run(ids), target)
            loss.backward()
            return loss.item()

        return work

    def steps(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], float]:
        def work() -> float:
            optimizer.zero_grad()
            loss = loss_of(model(ids), target)
            loss.backward()
            optimizer.step()
            return loss.item()

        return work

    optimizers = {
        "SGD with momentum": lambda model: torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9),
        "AdamW": lambda model: torch.optim.AdamW(model.parameters(), lr=1e-4),
    }
    figures = []
    for what in kinds:
        plain, other = made(), made()
        if what == "forward and backward":
            run, planned = passes(plain, plain), passes(torch.compile(other, backend="joinsum"), other)
        else:
            step = joinsum.train_step(other, loss_of, optimizers[what](other))
            run, planned = steps(plain, optimizers[what](plain)), lambda step=step: step(ids, target).item()
        figures.append(compared(what, run, planned, rounds))
        first, second = run(), planned()
        assert abs(first - second) < 1e-3 * abs(first), (what, first, second)
    return figures


KINDS = ("forward and backward", "SGD with momentum", "AdamW")


def table(figures: Sequence[Figure]) -> str:
    rows = [f"{'':<22} {'torch s':>9} {'joinsum s':>10} {'CPU s':>8} {'CPU s':>8} {'ratio':>6}"]
    rows += [
        f"{f.what:<22} {f.clock[0]:>9.3f} {f.clock[1]:>10.3f} "
        f"{f.processor[0]:>8.3f} {f.processor[1]:>8.3f} {f.ratio:>6.3f}"
        for f in figures
    ]
    return "\n".join(rows)


@click.command()
@click.option("--layers", default=12, show_default=True)
@click.option("--width", default=768, show_default=True)
@click.option("--tokens", default=50257, show_default=True)
@click.option("--batch", default=4, show_default=True)
@click.option("--length", default=128, show_default=True)
@click.option("--rounds", default=7, show_default=True)
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, default=KINDS)
def command(layers: int, width: int, tokens: int, batch: int, length: int, rounds: int, kinds: tuple[str, ...]) -> None:
    """Measure, and exit with 1 where joinsum takes more than 1.05 times torch's time."""
    figures = measured(layers, width, tokens, batch, length, rounds, kinds)
    click.echo(table(figures))
    if any(figure.ratio > LIMIT for figure in figures):
        raise SystemExit(f"more than {LIMIT} times torch's time")


def main(quick: bool) -> None:
    """What `benchmarks/run.py` runs."""
    if quick:
        click.echo(table(measured(1, 64, 64, 2, 16, 3, KINDS)))
    else:
        command.main([], standalone_mode=False)


if __name__ == "__main__":
    command()
