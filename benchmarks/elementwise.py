"""Training steps of models with many elementwise operators, in one process: plain torch, torch.compile and joinsum.

Contenders take turns; each turn begins with another one. Figures are medians of turns, ratios those within a turn.
Before anything is timed, the losses of the first steps must agree.

    OMP_NUM_THREADS=2 python benchmarks/elementwise.py [--model gated ...] [--turns 9]

Models, of width 256 and with 1,024 tokens unless they say otherwise: `tanh` layers with GELU's tanh form written out;
`gated` products of two halves, one through GELU; `conditioned` residuals that are scaled and shifted by a condition;
`squared` layers with squared ReLUs and RMS norms; `variational` an autoencoder of images of 784 pixels; `functions`
sines, exponentials and softplus of 2 million elements; `recurrent` a gated recurrent cell over 32 steps.
"""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import click
import joinsum
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from workloads.models import Recurrent

WIDTH = 256
LAYERS = 4
SECONDS = 0.15  # of a contender's turn, at least


class RmsNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def tanh_gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x.pow(3))))


def squared(x: Tensor) -> Tensor:
    return F.relu(x).square()


class Layers(nn.Module):
    """Residual layers with an activation."""

    def __init__(self, activation: Callable[[Tensor], Tensor], norm: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.activation = activation
        self.norms = nn.ModuleList(norm() for _ in range(LAYERS))
        self.first = nn.ModuleList(nn.Linear(WIDTH, 4 * WIDTH) for _ in range(LAYERS))
        self.second = nn.ModuleList(nn.Linear(4 * WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        for norm, first, second in zip(self.norms, self.first, self.second, strict=True):
            x = x + second(self.activation(first(norm(x))))
        return x


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.first, self.second = nn.Linear(WIDTH, 6 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.first(self.norm(x)).chunk(2, -1)
        return x + self.second(value * F.gelu(gate))


class Conditioned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.condition = nn.ModuleList(nn.Linear(16, 3 * WIDTH) for _ in range(LAYERS))
        self.first = nn.ModuleList(nn.Linear(WIDTH, 4 * WIDTH) for _ in range(LAYERS))
        self.second = nn.ModuleList(nn.Linear(4 * WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, x: Tensor, given: Tensor) -> Tensor:
        for condition, first, second in zip(self.condition, self.first, self.second, strict=True):
            shift, scale, gate = condition(F.silu(given)).unsqueeze(1).chunk(3, -1)
            x = x + gate * second(tanh_gelu(first(self.norm(x) * (1 + scale) + shift)))
        return x


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 400), nn.ReLU())
        self.mean, self.deviation = nn.Linear(400, 20), nn.Linear(400, 20)
        self.decoder = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784), nn.Sigmoid())

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.encoder(x)
        mean, deviation = self.mean(hidden), self.deviation(hidden)
        return self.decoder(mean + torch.exp(0.5 * deviation) * noise), mean, deviation


def variational_loss(result: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
    image, mean, deviation = result
    return F.binary_cross_entropy(image, x, reduction="sum") - 0.5 * (1 + deviation - mean**2 - deviation.exp()).sum()


class Functions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 512), nn.Linear(512, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return self.second(torch.sin(y) * torch.exp(-y * y) + 0.1 * y * torch.cos(2 * y) + F.softplus(y))


class Work(NamedTuple):
    model: nn.Module
    inputs: tuple[Tensor, ...]
    target: Tensor
    loss: Callable[..., Tensor] = F.mse_loss


def tokens() -> Tensor:
    return torch.randn(8, 128, WIDTH)


WORK: dict[str, Callable[[], Work]] = {
    "tanh": lambda: Work(Layers(tanh_gelu, lambda: nn.LayerNorm(WIDTH)), (tokens(),), tokens()),
    "gated": lambda: Work(nn.Sequential(*(Gated() for _ in range(LAYERS))), (tokens(),), tokens()),
    "conditioned": lambda: Work(Conditioned(), (tokens(), torch.randn(8, 16)), tokens()),
    "squared": lambda: Work(Layers(squared, RmsNorm), (tokens(),), tokens()),
    "variational": lambda: Work(
        Variational(), ((x := torch.rand(512, 784)), torch.randn(512, 20)), x, variational_loss
    ),
    "functions": lambda: Work(Functions(), (torch.randn(4096, 64),), torch.randn(4096, 64)),
    "recurrent": lambda: Work(Recurrent(), (torch.randn(64, 32, 64),), torch.randn(64, WIDTH)),
}


def contenders(work: Work) -> dict[str, Callable[[], float]]:
    """A step of each, with a model of its own."""
    first, second, third = (work._replace(model=copy.deepcopy(work.model)) for _ in range(3))
    compiled = torch.compile(lambda *batch: second.loss(second.model(*batch[:-1]), batch[-1]))
    optimizers = [torch.optim.SGD(each.model.parameters(), lr=1e-6) for each in (first, second, third)]
    step = joinsum.train_step(third.model, third.loss, optimizers[2])

    def loop(loss_of: Callable[..., Tensor], optimizer: torch.optim.Optimizer) -> Callable[[], float]:
        def run() -> float:
            loss = loss_of(*work.inputs, work.target)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.item()

        return run

    return {
        "torch": loop(lambda *batch: first.loss(first.model(*batch[:-1]), batch[-1]), optimizers[0]),
        "torch.compile": loop(compiled, optimizers[1]),
        "joinsum": lambda: step(*work.inputs, work.target).item(),
    }


def seconds_a_step(step: Callable[[], float]) -> float:
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < SECONDS:
        step()
        steps += 1
    return (time.perf_counter() - start) / steps


@click.command()
@click.option("--model", "models", type=click.Choice(list(WORK)), multiple=True, default=list(WORK))
@click.option("--turns", default=9, show_default=True)
def main(models: tuple[str, ...], turns: int) -> None:
    """Prints milliseconds of a step, and how many times as long as joinsum the others take."""
    joinsum.init(sites=1)
    click.echo(
        f"{'model':<12} {'torch':>8} {'compile':>8} {'joinsum':>8} {'torch/joinsum':>14} {'compile/joinsum':>16}"
    )
    for name in models:
        torch.manual_seed(1)
        torch._dynamo.reset()
        steps = contenders(WORK[name]())
        for _ in range(3):
            losses = [step() for step in steps.values()]
            assert max(losses) - min(losses) < 1e-4 * abs(losses[0]), (name, losses)
        times: dict[str, list[float]] = {each: [] for each in steps}
        for turn in range(turns):
            order = list(steps)[turn % 3 :] + list(steps)[: turn % 3]
            for each in order:
                times[each].append(seconds_a_step(steps[each]))
        medians = [statistics.median(each) * 1e3 for each in times.values()]
        ratios = [
            statistics.median(a / b for a, b in zip(times[other], times["joinsum"], strict=True))
            for other in ("torch", "torch.compile")
        ]
        click.echo(f"{name:<12} " + " ".join(f"{x:>8.1f}" for x in medians) + f" {ratios[0]:>14.2f} {ratios[1]:>16.2f}")


if __name__ == "__main__":
    main()
