"""Plans of whole training steps against closed forms: what each must move, and what a run moved.

An all-reduce of e elements on s sites sends 2 (s - 1) e of them, whichever way the sites share it.
"""

from __future__ import annotations

import joinsum
import pytest
import torch
from closed_forms import BYTES, CLUSTER, all_reduces, layers
from torch import nn
from training import train_by_torch


def moved(model: nn.Module, batch: int, sites: int) -> tuple[int, int]:
    """Bytes that the plan of a step is to send, and that a step from where that leaves the parameters sent."""
    joinsum.init(sites=sites, cluster=CLUSTER, plan_cache=False)
    torch._dynamo.reset()
    step = joinsum.train_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    x = torch.rand(batch, model[0].in_features)
    y = torch.rand(batch, model[-1].out_features)
    planned = joinsum.cost(joinsum.IaPlan(step.captured(x, y).planned.choice.plan)).wire_bytes
    step(x, y)
    step(x, y)
    return planned, joinsum.trace().bytes_sent


@pytest.mark.parametrize("sites", [2, 3, 4])
def test_two_layers_with_a_large_batch_all_reduce_the_weights_gradients_alone(sites):
    model = layers(48, 36, 24)
    planned, sent = moved(model, 6144, sites)
    weights = sum(p.numel() for p in model.parameters())
    # The loss is the sum of a scalar for each block, at most sites * sites of them, which all sites get.
    assert planned == sent
    assert 0 <= planned - all_reduces(weights, sites) <= (sites - 1) * sites * sites * BYTES


@pytest.mark.parametrize("sites", [2, 3])
@pytest.mark.parametrize("count", [2, 4])
def test_wide_layers_with_a_small_batch_all_reduce_one_activation_less_than_there_are_layers(sites, count):
    width, batch = 768, 6
    planned, sent = moved(layers(*[width] * (count + 1)), batch, sites)
    activations = all_reduces((count - 1) * batch * width, sites)
    # The loss is on every site, or its partial sums go there.
    assert planned == sent
    assert 0 <= planned - activations <= (sites - 1) * sites * sites * BYTES


class Twice(nn.Sequential):
    """One layer that is run twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (layer,) = self
        return layer(torch.tanh(layer(x)))


class NormedTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv, self.out = nn.BatchNorm2d(2), nn.Conv2d(2, 2, 3, padding=1), nn.Linear(32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(self.conv(torch.relu(self.norm(self.conv(x))))).flatten(1))


@pytest.mark.parametrize("sites", [2, 3, 5])
def test_sites_without_rows_have_no_partial_sums_to_add(sites):
    joinsum.init(sites=sites, cluster=joinsum.Cluster("fast links", 1e6, 1e12, 1e-9), plan_cache=False)
    torch._dynamo.reset()
    torch.manual_seed(0)
    plain, model = NormedTwice().double(), NormedTwice().double()
    model.load_state_dict(plain.state_dict())
    x, y = torch.randn(2, 2, 4, 4, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    step = joinsum.train_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    wanted = train_by_torch(plain, nn.functional.mse_loss, optimizer, [(x, y)] * 2)
    torch.testing.assert_close(torch.stack([step(x, y) for _ in wanted]), torch.tensor(wanted, dtype=x.dtype))


@pytest.mark.parametrize("sites", [2, 3, 4])
def test_a_layer_that_is_run_twice_all_reduces_one_gradient(sites):
    """Each site adds up its parts of both gradients, as Σ a + Σ b = Σ (a + b), before they are reduced."""
    torch.manual_seed(0)
    model = Twice(nn.Linear(32, 32))
    planned, sent = moved(model, 6144, sites)
    weights = sum(p.numel() for p in model.parameters())
    assert planned == sent
    assert 0 <= planned - all_reduces(weights, sites) <= (sites - 1) * sites * sites * BYTES

    torch.manual_seed(0)
    expected = Twice(nn.Linear(32, 32))
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)
    x, y = torch.rand(6144, 32), torch.rand(6144, 32)
    train_by_torch(expected, nn.functional.mse_loss, optimizer, [(x, y)] * 2)
    for actual, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-5, atol=1e-6)
