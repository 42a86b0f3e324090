"""Steps that read few rows of a table update these rows alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import joinsum
import pytest
import torch
from torch import Tensor, nn
from training import CUTTING

WORDS, WIDTH = 40, 6

Optimizer = Callable[[Any], torch.optim.Optimizer]
SGD: Optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.3)  # noqa: E731


class Words(nn.Module):
    """Scores by the mean of a table's rows, which `read` looks up."""

    def __init__(self, read: Callable[[nn.Embedding, Tensor], Tensor], **options: Any) -> None:
        super().__init__()
        self._read = read
        self.table = nn.Embedding(WORDS, WIDTH, dtype=torch.float64, **options)
        self.scores = nn.Linear(WIDTH, 5, dtype=torch.float64)

    def forward(self, words: Tensor) -> Tensor:
        return self.scores(self._read(self.table, words))


def once(table: nn.Embedding, words: Tensor) -> Tensor:
    return table(words).mean(1)


def thrice(table: nn.Embedding, words: Tensor) -> Tensor:
    return table(words).mean(1) + table(words[:, :1]).sum(1) * table(words[:, 1])


def two_paddings(table: nn.Embedding, words: Tensor) -> Tensor:
    return table(words).mean(1) + nn.functional.embedding(words[:, 0], table.weight, 3)


def tied(table: nn.Embedding, words: Tensor) -> Tensor:
    found = table(words).mean(1)
    return torch.softmax(found @ table.weight.t(), 1) @ table.weight


def many(table: nn.Embedding, words: Tensor) -> Tensor:
    return table(words.repeat(1, 12)).mean(1)


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randint(0, WORDS, (4, 3), generator=generator), torch.randint(0, 5, (4,), generator=generator))
        for _ in range(count)
    ]


def updates_rows(model: nn.Module, optimizer: Optimizer, sites: int = 1) -> bool:
    """Whether the step updates single rows; it trains as torch does."""
    wanted = copy.deepcopy(model)
    own = optimizer(wanted.parameters())
    joinsum.init(sites=sites, cluster=CUTTING if sites > 1 else None)
    step = joinsum.train_step(model, nn.functional.cross_entropy, optimizer(model.parameters()))
    for x, y in batches(3):
        own.zero_grad()
        loss = nn.functional.cross_entropy(wanted(x), y)
        loss.backward()
        own.step()
        assert float(step(x, y)) == pytest.approx(loss.item(), rel=1e-10)
    step.sync()
    for x, y in zip(model.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-10)
    return "lookup_update" in str(joinsum.explain(step, *batches(1)[0]))


@pytest.mark.parametrize("sites", [1, 3, 4])
@pytest.mark.parametrize("read", [once, thrice])
@pytest.mark.parametrize("options", [{}, {"sparse": True}, {"padding_idx": 2}], ids=str)
def test_what_is_looked_up_alone_is_updated(options: dict[str, Any], read: Any, sites: int) -> None:
    torch.manual_seed(0)
    assert updates_rows(Words(read, **options), SGD, sites)


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("read", [two_paddings, tied, many])
def test_other_gradients_are_those_of_whole_tables(read: Any, sites: int) -> None:
    torch.manual_seed(0)
    assert not updates_rows(Words(read, padding_idx=2), SGD, sites)


OTHERS: dict[str, Optimizer] = {
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.3, momentum=0.9),
    "decay": lambda parameters: torch.optim.SGD(parameters, lr=0.3, weight_decay=0.1),
    "adagrad with decay": lambda parameters: torch.optim.Adagrad(parameters, lr=0.3, weight_decay=0.1),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1),
}


@pytest.mark.parametrize("name", OTHERS)
def test_rows_that_move_without_a_gradient_are_updated(name: str) -> None:
    torch.manual_seed(0)
    assert not updates_rows(Words(once), OTHERS[name])


def test_gradients_by_frequency_are_those_of_whole_tables() -> None:
    torch.manual_seed(0)
    assert not updates_rows(Words(once, scale_grad_by_freq=True), SGD)


@pytest.mark.parametrize("kind", ["accumulated", "clipped"])
def test_gradients_that_others_read_are_those_of_whole_tables(kind: str) -> None:
    torch.manual_seed(0)
    model = Words(once)
    wanted = copy.deepcopy(model)
    own = SGD(wanted.parameters())
    joinsum.init(sites=1)
    options: dict[str, Any] = {"accumulate": 2} if kind == "accumulated" else {"max_norm": 0.1}
    step = joinsum.train_step(model, nn.functional.cross_entropy, SGD(model.parameters()), **options)
    for number, (x, y) in enumerate(batches(4)):
        loss = nn.functional.cross_entropy(wanted(x), y)
        (loss / 2 if kind == "accumulated" else loss).backward()
        assert float(step(x, y)) == pytest.approx(loss.item(), rel=1e-10)
        if kind == "clipped":
            nn.utils.clip_grad_norm_(wanted.parameters(), 0.1)
        if kind == "clipped" or number % 2 == 1:
            own.step()
            own.zero_grad()
    step.sync()
    torch.testing.assert_close(model.table.weight, wanted.table.weight, rtol=1e-10, atol=1e-10)


def test_batches_of_any_size_share_a_step() -> None:
    torch.manual_seed(0)
    model = Words(once)
    wanted = copy.deepcopy(model)
    own = SGD(wanted.parameters())
    joinsum.init(sites=3, cluster=CUTTING)
    step = joinsum.train_step(model, nn.functional.cross_entropy, SGD(model.parameters()))
    for rows in (2, 4, 3, 1, 30):
        x, y = torch.randint(0, WORDS, (rows, 3)), torch.randint(0, 5, (rows,))
        own.zero_grad()
        nn.functional.cross_entropy(wanted(x), y).backward()
        own.step()
        step(x, y)
    step.sync()
    torch.testing.assert_close(model.table.weight, wanted.table.weight, rtol=1e-10, atol=1e-10)


class Sums(nn.Module):
    """Lookups in a sum of two tables, whose gradients are the same, and in one of them."""

    def __init__(self, partial: bool) -> None:
        super().__init__()
        self.partial = partial
        self.first = nn.Parameter(torch.randn(WORDS, WIDTH, dtype=torch.float64))
        self.second = nn.Parameter(torch.randn(WORDS, WIDTH, dtype=torch.float64))
        self.scores = nn.Linear(WIDTH, 5, dtype=torch.float64)

    def forward(self, words: Tensor) -> Tensor:
        found = nn.functional.embedding(words, self.first + self.second).mean(1)
        if self.partial:
            found = found + nn.functional.embedding(words, self.first).sum(1)
        return self.scores(found)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("sites", [1, 3])
def test_gradients_that_tables_share_are_those_of_whole_tables(sites: int, partial: bool, momentum: float) -> None:
    torch.manual_seed(0)
    model = Sums(partial)

    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        first, *rest = parameters
        return torch.optim.SGD([{"params": [first]}, {"params": rest, "momentum": momentum}], lr=0.3)

    assert not updates_rows(model, optimizer, sites)
