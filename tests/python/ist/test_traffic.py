"""Formulas against the table of the thesis's setting (its figure 2.2), and against exchanges that were counted."""

from __future__ import annotations

import joinsum
import pytest
import torch
from joinsum.ist.traffic import (
    data_parallel_floats,
    local_sgd_floats,
    moved_floats,
    round_floats,
    subnet_floats,
    subnet_flops,
)
from torch import nn

WIDTHS = (1000, 4000, 4000, 4000, 200)
# For 1 to 8 sites, with batches of 512 and rounds of 10 steps: 1e6 floats a step, and GFLOP.
DATA_PARALLEL = (36.8, 73.6, 110.4, 147.2, 184.0, 220.8, 257.6, 294.4)
LOCAL_SGD = (3.68, 7.36, 11.04, 14.72, 18.40, 22.08, 25.76, 29.44)
SUBNETS = (3.68, 2.08, 1.547, 1.28, 1.12, 1.013, 0.937, 0.88)
GFLOP = (75.4, 42.6, 31.7, 26.2, 22.9, 20.8, 19.2, 18.0)


@pytest.mark.parametrize("sites", range(1, 9))
def test_the_setting_of_figure_2_2(sites: int) -> None:
    row = sites - 1
    assert round(data_parallel_floats(WIDTHS, sites) / 1e6, 1) == DATA_PARALLEL[row]
    assert round(local_sgd_floats(WIDTHS, sites, 10) / 1e6, 2) == LOCAL_SGD[row]
    assert round(subnet_floats(WIDTHS, sites, 10) / 1e6, 3) == SUBNETS[row]
    assert round(subnet_flops(WIDTHS, sites, 512) / 1e9, 1) == GFLOP[row]


def test_a_migrating_round_of_eight_sites() -> None:
    assert round_floats(WIDTHS, 8) == 8.8e6
    assert moved_floats(WIDTHS, 8) == 7.7e6


@pytest.mark.parametrize("sites", [2, 4, 8])
def test_exchanges_move_what_the_formula_says_on_average(sites: int) -> None:
    joinsum.init(sites=sites)
    widths = (12, 64, 64, 64, 5)
    modules: list[nn.Module] = []
    for number in range(3):
        modules += [
            nn.Linear(widths[number], widths[number + 1], bias=False),
            nn.LayerNorm(widths[number + 1], elementwise_affine=False),
            nn.ReLU(),
        ]
    model = nn.Sequential(*modules, nn.Linear(64, 5, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    ist = joinsum.IST(model, optimizer, every=1)
    moved, rounds = 0, 30
    for number in range(rounds * sites):
        optimizer.zero_grad()
        model(torch.ones(1, 12)).sum().backward()
        optimizer.step()
        if (number + 1) % sites == 0:
            moved += sum(entry.bytes_sent for entry in joinsum.trace())
    assert ist.rounds == rounds
    assert abs(moved / rounds / 4 / moved_floats(widths, sites) - 1) < 0.05
