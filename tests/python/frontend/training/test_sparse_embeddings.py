"""Tables whose gradients torch makes sparse: steps and loops train them as torch does."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import joinsum
import pytest
import torch
from torch import nn
from training import CUTTING

WORDS, WIDTH = 30, 8

Optimizers = Callable[[nn.Module], list[torch.optim.Optimizer]]


class Model(nn.Module):
    def __init__(self, bags: bool) -> None:
        super().__init__()
        kind = nn.EmbeddingBag if bags else nn.Embedding
        self.table = kind(WORDS, WIDTH, sparse=True, padding_idx=2, dtype=torch.float64)
        self.scores = nn.Linear(WIDTH, 5, dtype=torch.float64)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        found = self.table(words)
        return self.scores(found if found.dim() == 2 else found.mean(1))


def batches() -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    """Each batch reads few words of the table."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        yield torch.randint(0, WORDS, (4, 3), generator=generator), torch.randint(0, 5, (4,), generator=generator)


OPTIMIZERS: dict[str, Optimizers] = {
    "SGD": lambda m: [torch.optim.SGD(m.parameters(), lr=0.3)],
    "SGD maximize": lambda m: [torch.optim.SGD(m.parameters(), lr=0.3, maximize=True)],
    "Adagrad": lambda m: [torch.optim.Adagrad(m.parameters(), lr=0.3)],
    "SparseAdam": lambda m: [
        torch.optim.SparseAdam(list(m.table.parameters()), lr=0.1),
        torch.optim.Adam(m.scores.parameters(), lr=0.1),
    ],
}


def trained_by_torch(model: Model, optimizers: list[torch.optim.Optimizer]) -> list[float]:
    losses = []
    for x, y in batches():
        loss = nn.functional.cross_entropy(model(x), y)
        for each in optimizers:
            each.zero_grad()
        loss.backward()
        for each in optimizers:
            each.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("bags", [False, True], ids=["rows", "bags"])
@pytest.mark.parametrize("sites", [1, 3])
def test_steps_are_torchs(sites: int, bags: bool, name: str) -> None:
    torch.manual_seed(0)
    plain = Model(bags)
    planned = copy.deepcopy(plain)
    wanted = trained_by_torch(plain, OPTIMIZERS[name](plain))
    joinsum.init(sites=sites, cluster=CUTTING if sites > 1 else None)
    step = joinsum.train_step(planned, nn.functional.cross_entropy, OPTIMIZERS[name](planned))
    assert [float(step(x, y)) for x, y in batches()] == pytest.approx(wanted, rel=1e-10)
    step.sync()
    assert planned.table.sparse
    for x, y in zip(planned.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["SGD", "Adagrad"])
def test_a_distributed_table_has_a_dense_gradient_and_trains_alike(name: str) -> None:
    torch.manual_seed(0)
    plain = Model(False)
    planned = copy.deepcopy(plain)
    wanted = trained_by_torch(plain, OPTIMIZERS[name](plain))
    joinsum.init(sites=3, cluster=CUTTING)
    model = joinsum.distribute(planned, next(iter(batches()))[0])
    found = trained_by_torch(model, OPTIMIZERS[name](model))
    assert found == pytest.approx(wanted, rel=1e-10)
