"""Training steps of a click model: the mean of a table's rows for each of many users, then two layers. The table's
gradients are sparse, `nn.Embedding(sparse=True)`; words are drawn as log-uniform numbers, so that few are frequent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from frame.contenders import Contender, Workload
from torch import Tensor, nn

from workloads.data_parallel import Training, by_torch, usual_contenders

__all__ = ["WORKLOAD"]

WIDTH, HIDDEN, CLASSES = 64, 128, 10


class Shape(NamedTuple):
    """Rows of the table, users of a batch, words of a user, and how the model is trained."""

    rows: int
    users: int
    words: int
    optimizer: Callable[[Sequence[Tensor]], torch.optim.Optimizer]


def sgd(parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def adagrad(parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(parameters, lr=0.01, eps=1e-3)


SIZES: Mapping[str, Shape] = {
    "1e5 sgd": Shape(100_000, 1024, 8, sgd),
    "1e6 sgd": Shape(1_000_000, 4096, 8, sgd),
    "1e6 adagrad": Shape(1_000_000, 4096, 8, adagrad),
}


class Clicks(nn.Module):
    def __init__(self, rows: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, WIDTH, sparse=True)
        self.layers = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))

    def forward(self, words: Tensor) -> Tensor:
        result: Tensor = self.layers(self.table(words).mean(1))
        return result


def training_of(shape: Shape) -> Training:
    generator = torch.Generator().manual_seed(1)
    drawn = torch.rand(shape.users, shape.words, generator=generator)
    words = (shape.rows**drawn).long() - 1
    target = torch.randint(CLASSES, (shape.users,), generator=generator)
    return Training(lambda: Clicks(shape.rows), F.cross_entropy, shape.optimizer, words, target)


def reference(size: str) -> Contender:
    return by_torch(training_of(SIZES[size]))


def contenders(size: str) -> dict[str, Callable[[], Contender]]:
    return usual_contenders(training_of(SIZES[size]))


WORKLOAD = Workload(list(SIZES), reference, contenders, checked_steps=3, tolerance=1e-4)
