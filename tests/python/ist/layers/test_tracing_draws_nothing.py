"""Tracing a model: in the mode in which it trains, and without drawing from random generators."""

from __future__ import annotations

import random
from collections.abc import Callable

import joinsum
import numpy
import pytest
import torch
from joinsum.ist.layers.discovery import find_layers
from torch import nn


def perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5))


class Auxiliary(nn.Module):
    """A head that reads the hidden neurons in training only."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.head, self.auxiliary = (
            *(nn.Linear(5, 8), nn.BatchNorm1d(8)),
            *(nn.Linear(8, 2), nn.Linear(8, 3)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        hidden = self.norm(self.first(x)).relu()
        return (self.head(hidden), self.auxiliary(hidden)) if self.training else self.head(hidden)


def test_readers_in_training_are_found_while_the_model_evaluates() -> None:
    joinsum.init(sites=2)
    model = Auxiliary().eval()
    model.head.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ist = joinsum.IST(model, optimizer, every=1)
    assert [each.module for each in ist.layers[0].consumers] == ["head", "auxiliary"]
    assert [each.training for each in model.modules()] == [False, False, False, True, False]
    model.train()
    for _ in range(4):
        sum(each.square().mean() for each in model(torch.randn(3, 5))).backward()
        optimizer.step()
    ist.gather()


class Drawing(nn.Module):
    """Leaves out a layer at random, by what `draw` gives."""

    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__()
        self.body, self.other, self.draw = perceptron(), perceptron(), draw
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = self.draw() + torch.rand(1, generator=self.generator).item() < 1
        return self.body(x + self.other(x) if kept else x)


DRAWS: dict[str, Callable[[], float]] = {
    "torch": lambda: torch.rand(1).item(),
    "random": random.random,
    "numpy": lambda: float(numpy.random.rand()),
}


@pytest.mark.parametrize("draw", list(DRAWS))
def test_one_site_trains_a_model_that_draws_as_plain_torch_to_the_bit(draw: str) -> None:
    joinsum.init(sites=1)
    results = []
    for subnets in (False, True):
        torch.manual_seed(0)
        random.seed(0)
        numpy.random.seed(0)
        model = Drawing(DRAWS[draw])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ist = joinsum.IST(model, optimizer, every=2) if subnets else None
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.randn(6, 5)).square().mean().backward()
            optimizer.step()
        if ist is not None:
            ist.gather()
        results.append(model.state_dict())
    assert all(torch.equal(results[1][name], wanted) for name, wanted in results[0].items())


def test_layers_that_training_leaves_out_at_random_are_found() -> None:
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm, self.head = nn.Linear(5, 6), nn.LayerNorm(6), nn.Linear(6, 2)
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 6)) for _ in range(8)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stem(x)
            for block in self.blocks:
                if not self.training or torch.rand(()).item() < 0.5:
                    x = x + block(x)
            return self.head(self.norm(x))

    found = find_layers(Dropped(), False, None)
    assert [each.name for each in found.layers] == [f"blocks.{place}.1" for place in range(8)]


@pytest.mark.parametrize("way", ["new_empty", "rand", "layer scale"])
def test_sums_that_are_dropped_or_weighted_before_they_join_a_residual_are_normed_later(way: str) -> None:
    class Paths(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.gamma, self.last = nn.Linear(5, 6), nn.Parameter(torch.ones(6)), nn.LayerNorm(6)
            self.norm, self.up, self.down, self.head = (
                *(nn.LayerNorm(6), nn.Linear(6, 9)),
                *(nn.Linear(9, 6), nn.Linear(6, 2)),
            )

        def path(self, y: torch.Tensor) -> torch.Tensor:
            if way == "layer scale":
                return y * self.gamma
            if way == "rand":
                return y.div(0.5) * (0.5 + torch.rand((y.shape[0], 1), dtype=y.dtype, device=y.device)).floor()
            return y * y.new_empty((y.shape[0],) + (1,) * (y.ndim - 1)).bernoulli_(0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stem(x)
            return self.head(self.last(x + self.path(self.down(self.up(self.norm(x)).relu()))))

    assert [(each.name, each.scaled) for each in find_layers(Paths(), False, None).layers] == [("up", True)]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n_heads = 2
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _ = random.random() + torch.rand(1).item() + numpy.random.rand()
        heads = [each(x).unflatten(-1, (-1, 4)).transpose(1, 2) for each in (self.q_proj, self.k_proj, self.v_proj)]
        return self.o_proj(nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


def test_trials_of_attention_draw_nothing() -> None:
    def drawn() -> list[float]:
        return [random.random(), torch.rand(1).item(), float(numpy.random.rand())]

    results = []
    for finds in (False, True):
        torch.manual_seed(0)
        random.seed(0)
        numpy.random.seed(0)
        model = nn.Sequential(Attention(), nn.LayerNorm(8), nn.Linear(8, 2))
        if finds:
            found = find_layers(model, False, None, torch.device("cpu"))
            assert [each.name for each in found.layers] == ["0.o_proj", "0"]
        results.append(drawn())
    assert results[0] == results[1]
