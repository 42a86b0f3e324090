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


LOOPS: dict[str, Optimizers] = OPTIMIZERS | {
    "momentum": lambda m: [torch.optim.SGD(m.parameters(), lr=0.3, momentum=0.9)],
}


class Bags(nn.Module):
    """Scores by bags of several lengths, one of them empty."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(WORDS, WIDTH, sparse=True, mode=mode, dtype=torch.float64)
        self.scores = nn.Linear(WIDTH, 5, dtype=torch.float64)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.scores(self.table(words.reshape(-1), torch.tensor([0, 2, 2, 7])))
        return scores


MODELS: dict[str, Callable[[], nn.Module]] = {
    "rows": lambda: Model(False),
    "bags": lambda: Model(True),
    "sums": lambda: Bags("sum"),
    "means": lambda: Bags("mean"),
}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("sites", [1, 3])
def test_a_distributed_table_has_a_sparse_gradient_and_trains_alike(sites: int, model: str, name: str) -> None:
    torch.manual_seed(0)
    plain = MODELS[model]()
    planned = copy.deepcopy(plain)
    wanted = trained_by_torch(plain, LOOPS[name](plain))
    joinsum.init(sites=sites, cluster=CUTTING if sites > 1 else None)
    distributed = joinsum.distribute(planned, next(iter(batches()))[0])
    found = trained_by_torch(distributed, LOOPS[name](distributed))
    assert found == pytest.approx(wanted, rel=1e-10)
    assert distributed.table.weight.grad.is_sparse
    joinsum.gather(distributed)
    assert distributed.table.weight.grad.is_sparse
    for x, y in zip(distributed.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("sites", [1, 3])
def test_compiled_models_have_torchs_sparse_gradients(sites: int, model: str) -> None:
    torch.manual_seed(0)
    plain = MODELS[model]()
    planned = copy.deepcopy(plain)
    joinsum.init(sites=sites, cluster=CUTTING if sites > 1 else None)
    compiled = joinsum.compile(planned)
    for x, y in batches():
        for each, called in ((plain, plain), (planned, compiled)):
            nn.functional.cross_entropy(called(x), y).backward()  # accumulates
            assert each.table.weight.grad.is_sparse
        mine, torchs = planned.table.weight.grad.coalesce(), plain.table.weight.grad.coalesce()
        assert torch.equal(mine.indices(), torchs.indices())
        torch.testing.assert_close(mine.values(), torchs.values(), rtol=1e-10, atol=1e-12)


def test_calls_without_a_module_have_sparse_gradients_too() -> None:
    joinsum.init(sites=2)
    table = torch.randn(WORDS, WIDTH, dtype=torch.float64, requires_grad=True)
    words = torch.tensor([[3, 1], [3, 2]])

    @joinsum.compile
    def lookup(table: torch.Tensor) -> torch.Tensor:
        return nn.functional.embedding(words, table, padding_idx=2, sparse=True).sum(1).square()

    lookup(table).sum().backward()
    (expected,) = torch.autograd.grad(
        nn.functional.embedding(words, table, padding_idx=2).sum(1).square().sum(), [table]
    )
    assert table.grad is not None
    assert table.grad.is_sparse
    assert table.grad.coalesce().indices().tolist() == [[1, 3]]
    torch.testing.assert_close(table.grad.to_dense(), expected)


@pytest.mark.parametrize("sites", [1, 3])
def test_tables_that_are_read_otherwise_have_dense_gradients(sites: int) -> None:
    """As in torch, where a sparse and a dense gradient are added."""

    class Tied(Model):
        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return self.table(words).mean(1) @ self.table.weight.t()

    torch.manual_seed(0)
    plain = Tied(False)
    planned = copy.deepcopy(plain)
    joinsum.init(sites=sites, cluster=CUTTING if sites > 1 else None)
    words, classes = next(iter(batches()))
    distributed = joinsum.distribute(planned, words)
    for each in (plain, distributed):
        nn.functional.cross_entropy(each(words), classes).backward()
    joinsum.gather(distributed)
    torch.testing.assert_close(distributed.table.weight.grad, plain.table.weight.grad.to_dense())


@pytest.mark.parametrize("sites", [1, 3])
def test_a_loss_may_read_the_table_outside_of_the_model(sites: int) -> None:
    torch.manual_seed(0)
    plain = Model(False)
    planned = copy.deepcopy(plain)
    joinsum.init(sites=sites, cluster=CUTTING if sites > 1 else None)
    words, classes = next(iter(batches()))
    distributed = joinsum.distribute(planned, words)
    for each in (plain, distributed):
        loss = nn.functional.cross_entropy(each(words), classes)
        (loss + each.table.weight.square().sum()).backward()
        nn.functional.cross_entropy(each(words), classes).backward()
        each.table.weight.square().sum().backward()
    joinsum.gather(distributed)
    torch.testing.assert_close(distributed.table.weight.grad, plain.table.weight.grad)


@pytest.mark.parametrize("sites", [1, 2])
@pytest.mark.parametrize("padding", [None, -1])
def test_a_compiled_lookup_takes_tables_of_any_size(sites: int, padding: int | None) -> None:
    joinsum.init(sites=sites)

    def twice(table: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        return nn.functional.embedding(words, table, padding_idx=padding, sparse=True) * 2

    compiled = joinsum.compile(twice)
    for rows, columns in ((10, 4), (20, 4), (33, 4), (7, 5), (9, 3)):
        words = torch.randint(0, rows, (6,))
        words[0] = rows - 1
        tables = [torch.ones(rows, columns, requires_grad=True) for _ in range(2)]
        for table, function in zip(tables, (twice, compiled), strict=True):
            function(table, words).square().sum().backward()
        assert tables[1].grad is not None
        assert tables[1].grad.is_sparse
        torch.testing.assert_close(tables[1].grad.to_dense(), tables[0].grad.to_dense())


@pytest.mark.parametrize("sites", [1, 2])
def test_a_dense_lookup_makes_the_gradient_dense(sites: int) -> None:
    """As in torch, which adds the gradients of two modules that share a table."""

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.other = nn.Embedding(WORDS, WIDTH, sparse=True), nn.Embedding(WORDS, WIDTH)
            self.other.weight = self.table.weight

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return self.table(words) * self.other(words.flip(0))

    torch.manual_seed(0)
    plain = Shared()
    planned = copy.deepcopy(plain)
    joinsum.init(sites=sites)
    words = next(iter(batches()))[0]
    distributed = joinsum.distribute(planned, words)
    for each in (plain, distributed):
        each(words).square().sum().backward()
    joinsum.gather(distributed)
    torch.testing.assert_close(distributed.table.weight.grad, plain.table.weight.grad)


def test_the_attribute_decides_at_each_call() -> None:
    joinsum.init(sites=2)
    table = nn.Embedding(WORDS, WIDTH, sparse=True)
    words = next(iter(batches()))[0]
    joinsum.distribute(table, words)
    for sparse in (True, False, True):
        table.sparse, table.weight.grad = sparse, None
        table(words).square().sum().backward()
        assert table.weight.grad.is_sparse == sparse


def test_sparse_momentum_is_not_written_into_a_checkpoint(tmp_path: object) -> None:
    joinsum.init(sites=2)
    table = nn.Embedding(WORDS, WIDTH, sparse=True)
    words = next(iter(batches()))[0]
    joinsum.distribute(table, words)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1, momentum=0.9)
    table(words).square().sum().backward()
    optimizer.step()
    with pytest.raises(joinsum.CheckpointError, match="sparse tensors are not written: first=optimizer"):
        joinsum.save_checkpoint(str(tmp_path), table, optimizer)
