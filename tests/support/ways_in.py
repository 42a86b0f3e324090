"""The ways in which users give joinsum a model, as calls with one batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import joinsum
import torch
from torch import Tensor, nn

__all__ = ["OUTPUTS", "WAYS", "Layer", "step_of"]

OUTPUTS = 6


class Layer(nn.Module):
    """A linear layer of four inputs, and a function of its outputs."""

    def __init__(self, then: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.then = nn.Linear(4, OUTPUTS), then

    def forward(self, x: Tensor) -> Tensor:
        return self.then(self.layer(x))


def step_of(model: nn.Module, x: Tensor) -> Any:
    step = joinsum.train_step(model, lambda out, _: out.sum(), torch.optim.SGD(model.parameters(), lr=0.1))
    return step(x, x)


WAYS: dict[str, Callable[[nn.Module, Tensor], Any]] = {
    "train_step": step_of,
    "distribute": lambda model, x: joinsum.distribute(model, x)(x),
    "compile": lambda model, x: joinsum.compile(model)(x),
}
