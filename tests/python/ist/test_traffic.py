"""Formulas against the table of the thesis's setting (its figure 2.2), and against exchanges that were counted."""

from __future__ import annotations

import math

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
from torch.utils.flop_counter import FlopCounterMode
from weight_locations import Locations, owners, stack

WIDTHS = (1000, 4000, 4000, 4000, 200)
# For 1 to 8 sites, with batches of 512 and rounds of 10 steps: 1e6 floats a step, and GFLOP.
DATA_PARALLEL = (36.8, 73.6, 110.4, 147.2, 184.0, 220.8, 257.6, 294.4)
LOCAL_SGD = (3.68, 7.36, 11.04, 14.72, 18.40, 22.08, 25.76, 29.44)
SUBNETS = (3.68, 2.08, 1.547, 1.28, 1.12, 1.013, 0.937, 0.88)
GFLOP = (75.4, 42.6, 31.7, 26.2, 22.9, 20.8, 19.2, 18.0)

# The same setting with a hundredth of the neurons: weights, floats and flops are a ten-thousandth.
SCALED = tuple(width // 100 for width in WIDTHS)
SCALE = 10_000


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


def test_local_sgd_of_eight_sites() -> None:
    """A ring all-reduce of the model."""
    joinsum.init(sites=8)
    model = stack(SCALED, bare=True)
    report = joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1)).explain()
    assert report.local_sgd_bytes / 4 * SCALE == 515.2e6
    assert report.local_sgd_bytes / 4 * SCALE / 8 == 64.4e6


@pytest.mark.parametrize("sites", range(1, 9))
def test_steps_of_subnets_take_the_flops_that_the_thesis_counts_and_gradients_of_inputs(sites: int) -> None:
    joinsum.init(sites=sites)
    model = stack(SCALED, bare=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    joinsum.IST(model, optimizer, every=None)
    forward = total = 0
    for _ in range(sites):
        with FlopCounterMode(display=False) as counter:
            scores = model(torch.randn(512, SCALED[0]))
        forward += counter.get_total_flops()
        total += counter.get_total_flops()
        with FlopCounterMode(display=False) as counter:
            scores.square().mean().backward()
        total += counter.get_total_flops()
        optimizer.step()
    # A weight takes 2 flops for the output, 2 for its gradient, and, past the first layer, 2 for that of its input.
    counted = 2 * forward
    assert total == 3 * forward - 2 * 512 * SCALED[0] * SCALED[1]
    # Where n does not divide 40, the sites' blocks are not of one size.
    even = SCALED[1] % sites == 0
    assert math.isclose(counted, subnet_flops(SCALED, sites, 512), rel_tol=0 if even else 0.005)
    assert math.isclose(counted * SCALE / 1e9, GFLOP[sites - 1], abs_tol=0.05 if even else 0.15)


@pytest.mark.parametrize(("sites", "homes"), [(2, "migrating"), (4, "migrating"), (8, "migrating"), (8, "fixed")])
def test_exchanges_move_what_the_formula_says_on_average(sites: int, homes: str) -> None:
    """With homes twice as much. At eight sites the formula's figures are those of the notes: 7.7 million floats, of
    which the busiest site sends or receives 0.96 million; 15.4 million through homes, as through a server."""
    joinsum.init(sites=sites)
    model = stack(SCALED, bare=True)
    ist = joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.0), every=None, homes=homes)
    before = owners(ist, SCALED)
    places = Locations(SCALED, sites, before, fixed=homes == "fixed", bare=True)
    between, rounds = torch.zeros(sites, sites), 120 // sites
    for _ in range(rounds):
        ist.end_round()
        after = owners(ist, SCALED)
        moved = places.exchange(before, after).weights
        before = after
        assert sum(entry.bytes_sent for entry in joinsum.trace()) == 4 * int(moved.sum())
        between += moved / rounds
    expected = moved_floats(SCALED, sites) * (2 if homes == "fixed" else 1)
    assert math.isclose(between.sum(), expected, rel_tol=0.08)
    busiest = max(between.sum(0).max(), between.sum(1).max())
    assert math.isclose(busiest, expected / sites, rel_tol=0.15)
    if sites == 8:
        assert math.isclose(expected * SCALE, 15.4e6 if homes == "fixed" else 7.7e6)
