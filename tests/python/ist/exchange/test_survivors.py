"""What survivors go on with, beyond the weights that layers cut."""

from __future__ import annotations

from pathlib import Path

import joinsum
import torch
from torch import nn


def new() -> tuple[nn.Sequential, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 3))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    inputs = torch.randn(12, 6, generator=torch.Generator().manual_seed(number))
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()


def momentum(model: nn.Sequential, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """Of the output's bias, which every site has."""
    found: torch.Tensor = optimizer.state[model[3].bias]["momentum_buffer"]
    return found.clone()


def test_each_site_goes_on_with_its_own_moments_of_what_all_sites_have(tmp_path: Path) -> None:
    joinsum.init(sites=3)
    model, optimizer = new()
    own: list[torch.Tensor] = []
    optimizer.register_step_post_hook(lambda *_: own.append(momentum(model, optimizer)))  # of the site that stepped
    ist = joinsum.IST(model, optimizer, every=4, buddy=True)
    for number in range(3 * 2):
        train(model, optimizer, number)
    before = own[-3:]
    assert not torch.equal(before[0], before[2])
    ist.save_survivor(tmp_path)
    (tmp_path / "site_1.pt").unlink()
    joinsum.init(sites=2)
    again, other = new()
    resumed = joinsum.IST(again, other, every=4, buddy=True)
    resumed.load_survivors(tmp_path)
    for site in (0, 1):
        assert resumed.site == site
        assert torch.equal(momentum(again, other), before[2 * site])
        train(again, other, site)
