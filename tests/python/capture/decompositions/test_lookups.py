"""Claims about the gradient of embeddings whose table is cut by row: each site makes its rows, and they are torch's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import joinsum
import pytest
import torch
import torch.nn.functional as F
from joinsum.cluster.context import Context
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

ROWS, WIDTH, PADDING = 4096, 16, 3


@pytest.fixture(autouse=True, params=[3, 4])
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    slow_network = joinsum.Cluster("described", 1e9, 1e6, 0.0)
    joinsum.init(sites=request.param, cluster=slow_network, plan_cache=False)
    yield request.param
    joinsum.init()


class Largest(TorchDispatchMode):
    """Notes the greatest number of elements of a tensor that an operator makes."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        results = result if isinstance(result, (list, tuple)) else [result]
        self.elements = max([self.elements, *(x.numel() for x in results if isinstance(x, Tensor))])
        return result


class Tied(nn.Module):
    """Scores of words by the table that they are looked up in."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.table = nn.Embedding(ROWS, WIDTH, padding_idx=PADDING)

    def forward(self, words: Tensor) -> Tensor:
        return F.linear(self.table(words), self.table.weight)


def loss(scores: Tensor, words: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), words.flatten())


def batch() -> Tensor:
    """Words of which some occur twice, and some are padding."""
    words = torch.randint(ROWS, (2, 3), generator=torch.Generator().manual_seed(5))
    words[0, 1], words[1, 2] = PADDING, words[0, 0]
    return words


@pytest.fixture
def largest(monkeypatch: pytest.MonkeyPatch) -> Largest:
    """Of what plans make."""
    noted, execute = Largest(), Context.execute

    def counted(*args: Any, **kwargs: Any) -> Any:
        with noted:
            return execute(*args, **kwargs)

    monkeypatch.setattr(Context, "execute", counted)
    return noted


def test_a_site_computes_the_gradient_of_its_rows_only(sites: int, largest: Largest) -> None:
    plain, model = Tied(), Tied()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    step = joinsum.train_step(model, loss, torch.optim.SGD(model.parameters(), lr=0.5))
    words = batch()
    step(words, words)  # places the table
    largest.elements = 0
    step(words, words)
    for _ in range(2):
        optimizer.zero_grad()
        loss(plain(words), words).backward()
        optimizer.step()
    table = model.table.weight
    assert isinstance(table, joinsum.DistributedTensor)
    assert max(block.shape[0] for block in table.blocks()) == -(-ROWS // sites)
    assert largest.elements == WIDTH * -(-ROWS // sites)
    torch.testing.assert_close(table.full_tensor(), plain.table.weight.detach())


@pytest.mark.parametrize("padding", [-1, 0, 6])
@pytest.mark.parametrize("cuts", [[0, 10], [0, 4, 10], [0, 1, 6, 6, 10]])
def test_gradients_of_shards_of_the_rows_are_shards_of_torchs(cuts: list[int], padding: int) -> None:
    grad = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(1))
    index = torch.tensor([[0, 6, 6, 9, 3, 4], [6, 0, 5, 9, 9, 1]])
    whole = torch.ops.aten.embedding_dense_backward(grad, index, 10, padding, False)
    rows = torch.arange(10)
    parts = [
        torch.ops.joinsum.embedding_backward_shard(grad, index, rows[begin:end], padding, 10)
        for begin, end in pairwise(cuts)
    ]
    assert [len(part) for part in parts] == [end - begin for begin, end in pairwise(cuts)]
    torch.testing.assert_close(torch.cat(parts), whole)
