"""What subnets would move, beside a planned step's baselines."""

from __future__ import annotations

import joinsum
import pytest
import torch
from joinsum.ist.alternative import subnet_alternative
from torch import nn


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Linear(12, 64), nn.BatchNorm1d(64), nn.ReLU()),
        *(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()),
        nn.Linear(64, 5),
    )


@pytest.mark.parametrize("sites", [2, 4])
def test_the_expected_bytes_are_those_of_exchanges_on_average(sites: int) -> None:
    expected = subnet_alternative(network(), sites, every=1).wire_bytes
    joinsum.init(sites=sites)
    model = network()
    for module in model:
        if isinstance(module, nn.BatchNorm1d):
            module.track_running_stats, module.running_mean, module.running_var = False, None, None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    ist = joinsum.IST(model, optimizer, every=1)
    moved, rounds = 0, 40
    for number in range(rounds * sites):
        optimizer.zero_grad()
        model(torch.randn(3, 12)).sum().backward()
        optimizer.step()
        if (number + 1) % sites == 0:
            moved += sum(entry.bytes_sent for entry in joinsum.trace())
    assert ist.rounds == rounds
    assert abs(moved / rounds / expected - 1) < 0.05


def test_a_steps_baselines_name_it_and_the_plan_stays_another() -> None:
    joinsum.init(sites=4)
    model = network()
    step = joinsum.train_step(model, nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    batch = torch.randn(8, 12), torch.randint(0, 5, (8,))
    text = str(step.explain(*batch, baselines=True))
    assert "approximate, another training: independent subnets (joinsum.IST, docs/ist.md): " in text
    assert "in rounds of 10 steps" in text
    assert "independent subnets" not in str(step.explain(*batch))


def test_a_model_without_layers_to_cut_says_why() -> None:
    found = subnet_alternative(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), 2)
    assert found.reason is not None
    assert "a hidden layer without a norm" in found.reason
    assert "none, as joinsum.IST(model, ...) refuses this model" in str(found)
