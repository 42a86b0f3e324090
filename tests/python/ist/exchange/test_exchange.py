"""What an exchange moves: bytes, rounding, copies and parts."""

from __future__ import annotations

from typing import Any

import joinsum
import pytest
import torch
from stacked_subnets import batches, mlp, step
from torch import nn


def owners(ist: joinsum.IST, layer: str, neurons: int, sites: int) -> list[int]:
    """The site that trains each neuron; each is on one."""
    found = [-1] * neurons
    for site in range(sites):
        for neuron in ist.neurons(layer, site):
            assert found[neuron] == -1
            found[neuron] = site
    assert -1 not in found
    return found


@pytest.mark.parametrize(("sites", "homes"), [(2, "migrating"), (3, "migrating"), (4, "migrating"), (4, "fixed")])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_wire_carries_what_follows_from_the_locations_to_the_byte(sites: int, homes: Any, momentum: float) -> None:
    joinsum.init(sites=sites)
    widths = (5, 13, 24, 3)
    model = mlp(*widths, norm=nn.LayerNorm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    ist = joinsum.IST(model, optimizer, every=1, seed=2, homes=homes)
    where: dict[tuple[int, int], int] = {}
    first, second = (owners(ist, layer, widths[1 + number], sites) for number, layer in enumerate(("0", "3")))
    home = [
        [site for site in range(sites) for _ in range(-(-site * n // sites), -(-(site + 1) * n // sites))]
        for n in widths[1:3]
    ]
    for i in range(widths[2]):
        for j in range(widths[1]):
            where[i, j] = second[i] if second[i] == first[j] else home[1][i]
    copies = 1 + (momentum > 0)
    for number, batch in enumerate(batches(5 * sites, 5, 3)):
        before = (first, second)
        if (number + 1) % sites == 0:
            predicted = ist.explain().round_bytes if number >= sites else None
        step(model, optimizer, batch)
        if (number + 1) % sites:
            continue
        first, second = (owners(ist, layer, widths[1 + n], sites) for n, layer in enumerate(("0", "3")))
        floats = 0
        for old, new, at, width in ((before[0], first, home[0], 5 + 3), (before[1], second, home[1], 3 + 3)):
            for was, now, its in zip(old, new, at, strict=True):
                floats += width * ((was != now) if homes == "migrating" else (was != its) + (its != now))
        for (i, j), was in where.items():
            trained_before, trained_next = before[1][i] == before[0][j], second[i] == first[j]
            if homes == "migrating":
                rests = before[1][i] if trained_before else was
                floats += trained_next and rests != second[i]
                where[i, j] = second[i] if trained_next else rests
            else:
                floats += (trained_before and before[1][i] != home[1][i]) + (trained_next and home[1][i] != second[i])
        shared = 2 * (sites - 1) * 3  # the output's bias: a reduce-scatter and an all-gather
        sent = sum(entry.bytes_sent for entry in joinsum.trace())
        assert sent == 4 * (copies * floats + shared)
        if predicted is not None:
            assert predicted == sent


@pytest.mark.parametrize("buddy", [False, True])
def test_what_moves_is_rounded_and_what_stays_is_not(buddy: bool) -> None:
    """Without learning, a weight that has moved is its bfloat16 value, and one that has never moved is as it was."""
    sites = 3
    joinsum.init(sites=sites)
    model, plain = mlp(6, 9, 20, 3, norm=nn.LayerNorm), mlp(6, 9, 20, 3, norm=nn.LayerNorm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    ist = joinsum.IST(model, optimizer, every=1, wire=torch.bfloat16, buddy=buddy)
    moved = torch.zeros(9, dtype=torch.bool)
    where = torch.tensor(owners(ist, "0", 9, sites))
    sent = []
    for number, batch in enumerate(batches(2 * sites, 6, 3)):
        predicted = ist.explain().round_bytes
        step(model, optimizer, batch)
        if (number + 1) % sites == 0:
            after = torch.tensor(owners(ist, "0", 9, sites))
            moved |= after != where
            where = after
            sent.append(sum(entry.bytes_sent for entry in joinsum.trace()))
            assert sent[-1] == predicted
    ist.gather()
    wanted = plain[0].weight.detach()
    assert moved.any()
    assert torch.equal(model[0].weight[moved], wanted[moved].bfloat16().float())
    assert torch.equal(model[0].weight[~moved], wanted[~moved])
    middle = model[3].weight.detach()
    assert torch.equal(torch.where(middle == plain[3].weight, middle, plain[3].weight.bfloat16().float()), middle)


def test_resting_weights_stay_balanced_over_the_sites() -> None:
    sites, worst = 4, 1.0
    joinsum.init(sites=sites)
    model = mlp(2, 64, 64, 2, norm=nn.LayerNorm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    ist = joinsum.IST(model, optimizer, every=1)
    x = torch.randn(2, 2)
    for number in range(40 * sites):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        if (number + 1) % (8 * sites) == 0:
            plan = ist.explain().plan
            assert plan is not None
            (resting,) = (type_ for name, type_ in plan.inputs.items() if name.endswith("_rest"))
            (active,) = (plan.inputs[name.removesuffix("_rest")] for name in plan.inputs if name.endswith("_rest"))
            held = [resting.bytes(site) + active.bytes(site) for site in range(sites)]
            assert sum(held) == 4 * 64 * 64
            worst = max(worst, max(held) * sites / sum(held))
    assert worst <= 1.3


@pytest.mark.parametrize("sites", [2, 4])
def test_copies_cost_less_than_the_weights_that_are_trained(sites: int) -> None:
    joinsum.init(sites=sites)
    moved = {}
    for buddy in (False, True):
        model = mlp(5, 32, 32, 3, norm=nn.LayerNorm)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ist = joinsum.IST(model, optimizer, every=1, buddy=buddy)
        moved[buddy] = 0
        for number, batch in enumerate(batches(10 * sites, 5, 3)):
            step(model, optimizer, batch)
            if (number + 1) % sites == 0:
                moved[buddy] += sum(entry.bytes_sent for entry in joinsum.trace())
        assert ist.rounds == 10
    trained = 10 * 4 * (32 * (5 + 3) + 32 * 32 / sites + 32 * (3 + 3))
    assert moved[False] < moved[True] < moved[False] + trained


@pytest.mark.parametrize("limit", [1, 4096])
def test_weights_travel_in_parts_where_they_are_large(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    joinsum.init(sites=3)
    results, sent = [], []
    for most in (1 << 40, limit):
        monkeypatch.setattr("joinsum.ist.exchange.grouping.TOGETHER_BYTES", most)
        model = mlp(6, 9, 20, 3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        ist = joinsum.IST(model, optimizer, every=2)
        for batch in batches(15, 6, 3):
            step(model, optimizer, batch)
            if ist.rounds == 2 and len(sent) == len(results):  # the exchange that has just ended
                sent.append((sum(entry.bytes_sent for entry in joinsum.trace()), len(joinsum.trace())))
        results.append(ist.gather().state_dict())
    assert sent[0][0] == sent[1][0]
    assert sent[0][1] <= sent[1][1]
    for name, wanted in results[0].items():
        assert torch.equal(results[1][name], wanted), name
