"""Evaluation of the full model where a site has no room for a whole tensor."""

from __future__ import annotations

from collections.abc import Iterator

import joinsum
import pytest
import torch
from torch import nn

SITES = 4


@pytest.fixture(autouse=True)
def one_site_afterwards() -> Iterator[None]:
    yield
    joinsum.init()


def evaluated(limit: int | None) -> tuple[torch.Tensor, int]:
    """What the full model computes, and the most bytes that a site had."""
    joinsum.init(sites=SITES, cluster=joinsum.Cluster(memory_bytes=limit))
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Linear(64, 1024), nn.BatchNorm1d(1024), nn.ReLU()),
        *(nn.Linear(1024, 1024), nn.BatchNorm1d(1024), nn.ReLU()),
        nn.Linear(1024, 16),
    )
    inputs = torch.randn(1024, 64)
    ist = joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1), every=2)
    with ist.full() as full, torch.no_grad():
        found = full(inputs)
    return found, max(each.site_bytes for each in joinsum.trace())


def test_a_plan_of_the_full_model_has_no_tensor_whole_where_a_site_has_no_room_for_it():
    limit = 7_000_000
    wanted, without_limit = evaluated(None)
    found, most = evaluated(limit)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    assert most <= limit < without_limit
