"""Training steps of models with many elementwise operators: plain torch, torch.compile and joinsum in one process, and
DDP of both beside joinsum on several ranks.

Contenders take turns; each turn begins with another one. Figures are medians of turns, ratios those within a turn.
Before anything is timed, the losses of the first steps must agree.

    OMP_NUM_THREADS=2 python benchmarks/elementwise.py [--model gated ...] [--turns 9]
    torchrun --nproc-per-node 2 benchmarks/elementwise.py [--model gated ...] [--turns 9]

Models, of width 256 and with 1,024 tokens unless they say otherwise: `tanh` layers with GELU's tanh form written out;
`gated` products of two halves, one through GELU; `conditioned` residuals that are scaled and shifted by a condition;
`squared` layers with squared ReLUs and RMS norms; `variational` an autoencoder of images of 784 pixels; `functions`
sines, exponentials and softplus of 2 million elements; `recurrent` a gated recurrent cell over 32 steps.
"""

from __future__ import annotations

import copy
import math
import os
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import click
import joinsum
import torch
import torch.distributed as dist
from frame.contenders import own_rows, rank, ranks
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
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
    summed: bool = False  # over the batch, where others are means


def tokens() -> Tensor:
    return torch.randn(8, 128, WIDTH)


WORK: dict[str, Callable[[], Work]] = {
    "tanh": lambda: Work(Layers(tanh_gelu, lambda: nn.LayerNorm(WIDTH)), (tokens(),), tokens()),
    "gated": lambda: Work(nn.Sequential(*(Gated() for _ in range(LAYERS))), (tokens(),), tokens()),
    "conditioned": lambda: Work(Conditioned(), (tokens(), torch.randn(8, 16)), tokens()),
    "squared": lambda: Work(Layers(squared, RmsNorm), (tokens(),), tokens()),
    "variational": lambda: Work(
        Variational(), ((x := torch.rand(512, 784)), torch.randn(512, 20)), x, variational_loss, summed=True
    ),
    "functions": lambda: Work(Functions(), (torch.randn(4096, 64),), torch.randn(4096, 64)),
    "recurrent": lambda: Work(Recurrent(), (torch.randn(64, 32, 64),), torch.randn(64, WIDTH)),
}


def contenders(work: Work) -> dict[str, Callable[[], float]]:
    """A step of each, with a model of its own, which gives the loss of the whole batch, or of a rank's rows."""
    first, second, third = (copy.deepcopy(work.model) for _ in range(3))
    optimizers = [torch.optim.SGD(each.parameters(), lr=1e-6) for each in (first, second, third)]
    step = joinsum.train_step(third, work.loss, optimizers[2])
    *inputs, target = map(own_rows, (*work.inputs, work.target))

    def loop(model: nn.Module, optimizer: torch.optim.Optimizer, compiled: bool) -> Callable[[], float]:
        shared = DistributedDataParallel(model) if dist.is_initialized() else model

        def loss_of(*batch: Tensor) -> Tensor:
            return work.loss(shared(*batch[:-1]), batch[-1])

        function = torch.compile(loss_of) if compiled else loss_of

        def run() -> float:
            loss = function(*inputs, target)
            (loss * ranks() if work.summed else loss).backward()  # DDP takes the mean of the ranks' gradients
            optimizer.step()
            optimizer.zero_grad()
            return loss.item()

        return run

    return {
        "torch": loop(first, optimizers[0], compiled=False),
        "torch.compile": loop(second, optimizers[1], compiled=True),
        "joinsum": lambda: step(*work.inputs, work.target).item(),
    }


def total(loss: float, name: str, work: Work) -> float:
    """The loss of the whole batch."""
    if not dist.is_initialized() or name == "joinsum":
        return loss
    of_all = torch.tensor(loss, dtype=torch.float64)
    dist.all_reduce(of_all)
    return float(of_all) / (1 if work.summed else ranks())


def seconds_a_step(step: Callable[[], float], steps: int) -> float:
    if dist.is_initialized():
        dist.barrier()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - start) / steps


def steps_of_a_turn(step: Callable[[], float]) -> int:
    """As many as take SECONDS, the same on all ranks."""
    steps = torch.tensor(max(1, round(SECONDS / seconds_a_step(step, 3))))
    if dist.is_initialized():
        dist.broadcast(steps, 0)
    return int(steps)


def show(line: str) -> None:
    if rank() == 0:
        click.echo(line)


@click.command()
@click.option("--model", "models", type=click.Choice(list(WORK)), multiple=True, default=list(WORK))
@click.option("--turns", default=9, show_default=True)
def main(models: tuple[str, ...], turns: int) -> None:
    """Prints milliseconds of a step, and how many times as long as joinsum the others take."""
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
    joinsum.init(sites=None if dist.is_initialized() else 1)
    show(f"{'model':<12} {'torch':>8} {'compile':>8} {'joinsum':>8} {'torch/joinsum':>14} {'compile/joinsum':>16}")
    for name in models:
        torch.manual_seed(1)
        torch._dynamo.reset()
        work = WORK[name]()
        steps = contenders(work)
        for _ in range(3):
            losses = [total(step(), each, work) for each, step in steps.items()]
            assert max(losses) - min(losses) < 1e-4 * abs(losses[0]), (name, losses)
        times: dict[str, list[float]] = {each: [] for each in steps}
        count = {each: steps_of_a_turn(step) for each, step in steps.items()}
        for turn in range(turns):
            order = list(steps)[turn % 3 :] + list(steps)[: turn % 3]
            for each in order:
                times[each].append(seconds_a_step(steps[each], count[each]))
        medians = [statistics.median(each) * 1e3 for each in times.values()]
        ratios = [
            statistics.median(a / b for a, b in zip(times[other], times["joinsum"], strict=True))
            for other in ("torch", "torch.compile")
        ]
        show(f"{name:<12} " + " ".join(f"{x:>8.1f}" for x in medians) + f" {ratios[0]:>14.2f} {ratios[1]:>16.2f}")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
