"""Inputs whose elements repeat in memory: sites that have the same memory may be at other places of the tensor."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import joinsum
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from training import CUTTING


class Dropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(8, 5, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(F.dropout(x, 0.5)).square().mean()


class Causal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(8, 8, dtype=torch.float64)
        self.register_buffer("x", torch.randn(34, 8, dtype=torch.float64))

    def forward(self, query: Tensor) -> Tensor:
        key = self.key(self.x)[None, None]
        return F.scaled_dot_product_attention(query[None, None], key, key, is_causal=True).square().mean()


def losses(model: nn.Module, x: Tensor, sites: int) -> list[float]:
    joinsum.init(sites=sites, cluster=CUTTING if sites > 1 else None)
    model = copy.deepcopy(model)
    step: Callable[..., Any] = joinsum.train_step(model, None, torch.optim.SGD(model.parameters(), lr=0.3))
    torch.manual_seed(3)
    return [float(step(x)) for _ in range(2)]


@pytest.mark.parametrize("sites", [2, 8, 17])
@pytest.mark.parametrize("kind", [Dropped, Causal])
def test_sites_compute_at_their_own_places(kind: type[nn.Module], sites: int) -> None:
    torch.manual_seed(0)
    model, row = kind(), torch.randn(1, 8, dtype=torch.float64)
    wanted = losses(model, row.expand(34, 8).contiguous(), 1)
    assert losses(model, row.expand(34, 8), sites) == pytest.approx(wanted, rel=1e-10)
