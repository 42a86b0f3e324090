"""Margin losses of several labels are those of torch's kernels, which count no label after the first -1."""

from __future__ import annotations

from collections.abc import Iterator

import joinsum
import pytest
import torch
from torch import Tensor, nn

LABELS = torch.tensor([[0, 2, -1, 1, 3], [4, -1, 0, 0, 0], [-1, 0, 1, 2, 3], [3, 1, 0, 4, 2]])


@pytest.fixture(autouse=True, params=[1, 3])
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    torch._dynamo.reset()
    joinsum.init(sites=request.param, plan_cache=False)
    yield request.param
    joinsum.init()


def outcome(loss: nn.Module, scores: Tensor, labels: Tensor) -> list[Tensor]:
    leaf = scores.clone().requires_grad_()
    value = loss(leaf, labels)
    (value * torch.linspace(1, 2, value.numel()).reshape(value.shape)).sum().backward()
    assert leaf.grad is not None
    return [value.detach(), leaf.grad]


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("batch", [True, False])
def test_values_and_gradients_are_those_of_torchs_kernel(reduction: str, batch: bool) -> None:
    torch.manual_seed(0)
    scores = torch.randn(4, 5)
    loss = nn.MultiLabelMarginLoss(reduction=reduction)
    given = (scores, LABELS) if batch else (scores[0], LABELS[0])
    found = outcome(torch.compile(loss, backend="joinsum", fullgraph=True), *given)  # type: ignore[arg-type]
    for one, other in zip(found, outcome(loss, *given), strict=True):
        torch.testing.assert_close(one, other)


def test_a_model_trains_as_with_torchs_kernel() -> None:
    torch.manual_seed(0)
    x, model, plain = torch.randn(4, 6), nn.Linear(6, 5), nn.Linear(6, 5)
    plain.load_state_dict(model.state_dict())
    loss = nn.MultiLabelMarginLoss()
    step = joinsum.train_step(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(3):
        wanted = loss(plain(x), LABELS)
        optimizer.zero_grad()
        wanted.backward()
        optimizer.step()
        torch.testing.assert_close(step(x, LABELS), wanted.detach())
