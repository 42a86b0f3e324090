"""Training steps of `joinsum.train_step` and of torch's DistributedDataParallel on the same ranks, in turns.

Two models: `decoder`, a LLaMA of equal layers, which data parallelism fits; and `classifier`, two wide layers with many
classes and a small batch, whose gradients are far larger than its activations. Figures are medians of the slowest
rank's seconds, and the bytes that all ranks send in a step: joinsum's are counted by its transport, DDP's are those of
an all-reduce of all gradients, 2 (ranks - 1) times their size.

    torchrun --nproc-per-node 2 benchmarks/against_ddp.py [--model classifier] [--rounds 5]
    sudo .venv/bin/python benchmarks/against_ddp.py --link 1gbit       # two ranks whose link has 1 Gbit
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import joinsum
import torch
import torch.distributed as dist
from one_site_models import Work, new_work
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parent / "prediction"))
from network import LINKS, network
from run import run_all

Step = Callable[[], object]


def classifier(features: int = 65536, hidden: int = 256, classes: int = 65536, batch: int = 64) -> Work:
    """A batch has features x batch elements, the weights (features + classes) x hidden."""
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, classes))
    return Work(layers, nn.functional.cross_entropy, torch.randn(batch, features), torch.randint(classes, (batch,)))


def work_of(name: str) -> Work:
    return (
        classifier()
        if name == "classifier"
        else new_work("llama", layers=6, width=512, tokens=8192, batch=4, length=256)
    )


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4)


def by_ddp(work: Work) -> Step:
    """Each rank has its part of the batch."""
    model = DistributedDataParallel(work.model)
    optimizer = adamw(model)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    inputs, target = work.inputs.chunk(ranks)[rank], work.target.chunk(ranks)[rank]

    def step() -> None:
        work.loss(model(inputs), target).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def by_joinsum(work: Work) -> Step:
    """Every rank has the whole batch; the plan divides it where that is cheapest."""
    step = joinsum.train_step(work.model, work.loss, adamw(work.model))
    return lambda: step(work.inputs, work.target)


def of_all_ranks(number: float, operation: dist.ReduceOp.RedOpType) -> float:
    tensor = torch.tensor(number, dtype=torch.float64)
    dist.all_reduce(tensor, operation)
    return float(tensor)


def seconds_of(step: Step) -> float:
    """Of the slowest rank."""
    dist.barrier()
    start = time.perf_counter()
    step()
    return of_all_ranks(time.perf_counter() - start, dist.ReduceOp.MAX)


def compare(name: str, rounds: int) -> None:
    """Prints both times, both numbers of bytes, and how the plan compares."""
    steps = {"DDP": by_ddp(work_of(name)), "joinsum": by_joinsum(work_of(name))}
    parameters = sum(p.numel() * p.element_size() for p in work_of(name).model.parameters())
    sent = {"DDP": 2.0 * (dist.get_world_size() - 1) * parameters}
    seconds: dict[str, list[float]] = {each: [] for each in steps}
    for turn in range(rounds + 2):  # two turns warm up: DDP orders its buckets, joinsum captures and plans
        for each, step in steps.items():
            took = seconds_of(step)
            if turn >= 2:
                seconds[each].append(took)
    sent["joinsum"] = of_all_ranks(joinsum.trace().bytes_sent, dist.ReduceOp.SUM)
    if dist.get_rank() == 0:
        click.echo(f"{name}, {dist.get_world_size()} ranks, {parameters / 2**20:.0f} MiB of parameters")
        for each in steps:
            median = statistics.median(seconds[each])
            click.echo(f"{each:8} {1e3 * median:8.0f} ms a step {sent[each] / 2**20:8.1f} MiB sent by all ranks")
        ratio = statistics.median(a / b for a, b in zip(seconds["DDP"], seconds["joinsum"], strict=True))
        click.echo(f"joinsum's speed is {ratio:.2f} times DDP's")


@click.command()
@click.option("--model", "models", type=click.Choice(["decoder", "classifier"]), multiple=True, help="Default: both.")
@click.option("--rounds", default=5, show_default=True, help="Turns of both.")
@click.option(
    "--link", type=click.Choice(list(LINKS)), help="Two ranks in network namespaces with such links; as root."
)
def command(models: tuple[str, ...], rounds: int, link: str | None) -> None:
    """Training steps against DistributedDataParallel; start it with torchrun, or with --link."""
    if link is not None and "RANK" not in os.environ:
        with network(2, link) as ranks:
            run_all(ranks, [sys.executable, *sys.argv])
        return
    dist.init_process_group("gloo")
    joinsum.init()
    for name in models or ("classifier", "decoder"):
        compare(name, rounds)
    dist.destroy_process_group()


if __name__ == "__main__":
    command()
