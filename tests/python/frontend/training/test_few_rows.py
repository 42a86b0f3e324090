"""Steps of norms on more sites than there are rows or columns, so that some have none."""

from __future__ import annotations

import copy

import joinsum
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training import CUTTING


@pytest.mark.parametrize(("sites", "rows", "width"), [(5, 3, 2), (5, 4, 3), (7, 6, 8), (13, 12, 10), (3, 2, 4)])
@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.LayerNorm, nn.RMSNorm])
def test_all_sites_have_the_state(norm: type[nn.Module], sites: int, rows: int, width: int) -> None:
    torch.manual_seed(0)
    wanted = nn.Sequential(nn.Linear(width, width), norm(width), nn.Linear(width, 5)).double()
    model = copy.deepcopy(wanted)
    optimizer = torch.optim.SGD(wanted.parameters(), lr=0.1)
    joinsum.init(sites=sites, cluster=CUTTING)
    step = joinsum.train_step(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(3):
        x, y = torch.randn(rows, width, dtype=torch.float64), torch.randint(0, 5, (rows,))
        optimizer.zero_grad()
        loss = F.cross_entropy(wanted(x), y)
        loss.backward()
        optimizer.step()
        assert float(step(x, y)) == pytest.approx(loss.item(), rel=1e-10)
    step.sync()
    for name, value in wanted.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-9, atol=1e-11)
