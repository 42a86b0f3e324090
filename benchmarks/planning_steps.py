"""How long it takes to capture and to plan a whole training step of a model in the shape of LLaMA 8B.

Forward, loss, backward and update of SGD with momentum, of 32 layers of width 4096 (32 heads of queries, 8 of keys,
hidden width 14336, 128256 tokens). The model is made of fake tensors: nothing is computed, and weights take no memory.

    python benchmarks/planning_steps.py [--layers N ...] [--sites N ...] [--json FILE]
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
import torch.nn.functional as F
from one_site_models import RmsNorm
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

BATCH, LENGTH = 8, 2048
CAPTURE_LIMIT, PLANNING_LIMIT = 60.0, 10.0  # seconds, of 32 layers


@dataclass(frozen=True)
class Shape:
    """Extents of a model."""

    width: int = 4096
    heads: int = 32
    key_heads: int = 8
    hidden: int = 14336
    tokens: int = 128256


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of positions."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Layer(nn.Module):
    """Attention with grouped queries, and SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, size = shape, shape.width // shape.heads
        self.norm1, self.norm2 = RmsNorm(shape.width), RmsNorm(shape.width)
        self.query = nn.Linear(shape.width, shape.width, bias=False)
        self.key = nn.Linear(shape.width, shape.key_heads * size, bias=False)
        self.value = nn.Linear(shape.width, shape.key_heads * size, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attended(self.norm1(x), cos, sin)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def attended(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        size = self.shape.width // self.shape.heads
        query, key, value = (
            y.unflatten(-1, (-1, size)).transpose(1, 2) for y in (self.query(x), self.key(x), self.value(x))
        )
        query, key = turned(query, cos, sin), turned(key, cos, sin)
        repeats = self.shape.heads // self.shape.key_heads
        key, value = (y.unsqueeze(2).expand(-1, -1, repeats, -1, -1).flatten(1, 2) for y in (key, value))
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(attended.transpose(1, 2).flatten(2))


class Llama(nn.Module):
    def __init__(self, layers: int, shape: Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.tokens, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(layers))
        self.norm = RmsNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.tokens, bias=False)
        self.half_head = shape.width // shape.heads // 2

    def forward(self, ids: Tensor) -> Tensor:
        frequency = 5e5 ** (-torch.arange(self.half_head) / self.half_head)
        angle = torch.arange(ids.shape[1])[:, None] * torch.cat([frequency, frequency])
        cos, sin = angle.cos(), angle.sin()
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


def loss_of(scores: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), target.flatten())


@dataclass(frozen=True)
class Figure:
    """A step on some sites: vertices of its graph, seconds of capture and of planning, and what the plan is to take."""

    layers: int
    sites: int
    vertices: int
    capture: float
    planning: float
    seconds: float
    wire_bytes: int


def measured(layers: int, sites: int, shape: Shape, batch: int, length: int) -> Figure:
    """Captures and plans a step; nothing runs."""
    joinsum.init(sites=sites, plan_cache=False)
    torch._dynamo.reset()
    with FakeTensorMode():
        model = Llama(layers, shape)
    step = joinsum.train_step(model, loss_of, torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9))
    ids = torch.zeros(batch, length, dtype=torch.int64)
    begin = time.perf_counter()
    runner = step.captured(ids, ids)
    captured = time.perf_counter()
    plan = joinsum.IaPlan(runner.planned.choice.plan)
    end = time.perf_counter()
    cost = joinsum.cost(plan)
    vertices = len(runner.recorded.vertices)
    return Figure(layers, sites, vertices, captured - begin, end - captured, cost.seconds, cost.wire_bytes)


def table(figures: Sequence[Figure]) -> str:
    header = (
        f"{'layers':>6} {'sites':>6} {'vertices':>9} {'capture s':>10} {'planning s':>11} {'step s':>9} {'wire GB':>9}"
    )
    rows = [
        f"{f.layers:>6} {f.sites:>6} {f.vertices:>9} {f.capture:>10.1f} {f.planning:>11.1f} {f.seconds:>9.2f} "
        f"{f.wire_bytes / 1e9:>9.1f}"
        for f in figures
    ]
    return "\n".join([header, *rows])


@click.command()
@click.option("--layers", type=int, multiple=True, default=(1, 2, 4, 32), show_default=True)
@click.option("--sites", type=int, multiple=True, default=(8, 64), show_default=True)
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write the figures to this file.")
def command(layers: tuple[int, ...], sites: tuple[int, ...], path: Path | None) -> None:
    """Measure, and exit with 1 where 32 layers take longer than they should."""
    figures = [measured(count, each, Shape(), BATCH, LENGTH) for count in layers for each in sites]
    click.echo(table(figures))
    if path is not None:
        path.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))
    if any(f.layers == 32 and (f.capture > CAPTURE_LIMIT or f.planning > PLANNING_LIMIT) for f in figures):
        raise SystemExit(f"beyond {CAPTURE_LIMIT:.0f} s of capture or {PLANNING_LIMIT:.0f} s of planning")


if __name__ == "__main__":
    command()
