"""`IST.explain` against tensors that exist, places that are counted one by one, and an all-reduce that is run."""

from __future__ import annotations

from typing import Any

import joinsum
import pytest
import torch
from joinsum.ist.report import Report
from torch import nn
from weight_locations import Locations, owners, stack

WIDTHS = (5, 13, 24, 4)


def trained(sites: int, steps: int, make: Any = None, **options: Any) -> tuple[joinsum.IST, nn.Module, Any]:
    """After steps of each site, in rounds of three."""
    joinsum.init(sites=sites)
    torch.manual_seed(0)
    model = stack(WIDTHS)
    optimizer = (make or momentum)(model.parameters())
    ist = joinsum.IST(model, optimizer, every=3, **options)
    train(model, optimizer, steps * sites)
    return ist, model, optimizer


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.randn(6, WIDTHS[0])), torch.arange(6) % WIDTHS[-1]).backward()
        optimizer.step()


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def bytes_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Of all that training has: parameters, buffers and the optimizer's state."""
    states = [value for state in optimizer.state.values() for value in state.values()]
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers(), *states))


def all_reduce_bytes(sites: int, elements: int) -> int:
    """Between sites in an all-reduce of so many float32 elements, which is run and counted."""
    joinsum.init(sites=sites)
    own = joinsum.relation(torch.randn(sites, elements), parts=(sites, sites), name="own")
    total = joinsum.plan(total=own.aggregate(keep=[1], kernel="add"))
    ring = joinsum.lower(total, place={"own": [0] * len(joinsum.grid().axes)}, output_place={"total": "replicated"})
    joinsum.run(ring, {"own": own})
    return sum(entry.bytes_sent for entry in joinsum.trace())


def rows(report: Report) -> dict[str, str]:
    """The last column of each line, by the first."""
    cells = [line.rsplit("  ", 1) for line in str(report).splitlines() if "  " in line]
    return {name.strip(): value.strip() for name, value in cells}


@pytest.mark.parametrize("make", [momentum, adam])
@pytest.mark.parametrize("options", [{}, {"homes": "fixed"}, {"buddy": True}, {"state": "reset"}], ids=str)
def test_a_site_stores_its_tensors_what_rests_there_and_copies(options: dict[str, Any], make: Any) -> None:
    sites = 3
    ist, model, optimizer = trained(sites, 7, make, **options)
    assert ist.rounds == 2
    own, resting, full = ist.explain().site_bytes
    assert own == bytes_of(model, optimizer)
    before = owners(ist, WIDTHS)
    places = Locations(WIDTHS, sites, before)
    active = [at >= 0 for at in places.trained(before)]
    everything = [torch.ones_like(each) for each in active]
    chosen = everything if options.get("homes") == "fixed" else [~each for each in active]
    stored = int(places.counted(chosen, places.where).sum())
    if options.get("buddy"):
        stored += int(places.counted(everything, places.where).sum())
    moments = 0 if options.get("state") == "reset" else 2 if make is adam else 1
    assert resting == stored * 4 * (1 + moments) // sites
    plain = stack(WIDTHS)
    other = make(plain.parameters())
    train(plain, other, 1)
    assert full == bytes_of(plain, other)


@pytest.mark.parametrize("sites", [2, 3, 8])
def test_the_bytes_of_local_sgd_and_data_parallel_training_are_an_all_reduces(sites: int) -> None:
    ist, _, _ = trained(sites, 1)
    report = ist.explain()
    parameters = sum(parameter.numel() for parameter in stack(WIDTHS).parameters())
    one = all_reduce_bytes(sites, parameters)
    assert report.local_sgd_bytes == one
    assert report.data_parallel_bytes == 3 * one  # of a round's steps


def test_the_report_prints_what_it_has() -> None:
    ist, _, _ = trained(3, 4)
    report = ist.explain()
    found = rows(report)
    assert str(report).startswith("independent subnet training on 3 sites, steps a round: 3\n")
    lines = [line.split() for line in str(report).splitlines()]
    assert ["0", "13", "13", "4-5", "0,", "1,", "3"] in lines
    assert ["3", "24", "24", "8", "3,", "4,", "6"] in lines
    own, resting, full = report.site_bytes
    assert found["subnets"] == f"{report.round_bytes:,}"
    assert found["local SGD (all-reduce of the model)"] == f"{report.local_sgd_bytes:,}"
    assert found["data parallel (an all-reduce a step)"] == f"{3 * report.local_sgd_bytes:,}"
    assert found["its subnet"] == f"{own:,}"
    assert found["weights that rest"] == f"{resting:,}"
    assert found["the full model, as data parallel needs it"] == f"{full:,}"
    assert "not cut: 6: they reach the output\n" in str(report)
    assert "approximate: subnets train another objective than the full model's gradient" in str(report)
    assert f"plan of the next exchange\n{report.cost}" in str(report)
    assert repr(report) == str(report)


def test_one_site_moves_nothing_and_stores_the_model() -> None:
    ist, model, optimizer = trained(1, 4)
    report = ist.explain()
    assert (report.round_bytes, report.local_sgd_bytes, report.plan) == (0, 0, None)
    assert report.site_bytes == (bytes_of(model, optimizer), 0, bytes_of(model, optimizer))
    assert "plan of the next exchange" not in str(report)


def test_rounds_of_the_loops_own_length_are_compared_by_one_step() -> None:
    joinsum.init(sites=2)
    model = stack(WIDTHS)
    report = joinsum.IST(model, momentum(model.parameters()), every=None).explain()
    assert report.data_parallel_bytes == report.local_sgd_bytes
    assert "steps a round: as the loop says" in str(report)
