"""What the transports count in an exchange, against the count that follows from where each weight is."""

from __future__ import annotations

from typing import NamedTuple

import joinsum
import pytest
import torch
from torch import nn
from weight_locations import Locations, owners, stack


class Case(NamedTuple):
    sites: int
    widths: tuple[int, ...]
    homes: str = "migrating"
    buddy: bool = False
    wire: torch.dtype | None = None
    momentum: float = 0.0
    adam: bool = False
    statistics: bool = False

    def __str__(self) -> str:
        options = [name for name in ("buddy", "wire", "momentum", "adam", "statistics") if getattr(self, name)]
        return "-".join([str(self.sites), "x".join(map(str, self.widths)), self.homes, *options])


SMALL = (5, 13, 24, 3)
BF16 = torch.bfloat16
CASES = [
    *(Case(sites, SMALL, homes="fixed", momentum=0.9) for sites in (2, 3, 8)),
    *(Case(sites, SMALL, wire=BF16, momentum=0.9) for sites in (2, 3, 8)),
    *(Case(sites, SMALL, buddy=True) for sites in (2, 3, 8)),
    Case(3, SMALL, buddy=True, wire=BF16, momentum=0.9),
    Case(8, SMALL),
    # Three hidden layers, and chunks of two and three neurons.
    Case(2, (4, 40, 70, 33, 5), momentum=0.9),
    Case(2, (4, 40, 70, 33, 5), buddy=True, wire=BF16),
    Case(3, (4, 70, 100, 5), homes="fixed"),
    Case(3, SMALL, adam=True),
    Case(2, SMALL, wire=BF16, buddy=True, adam=True),
    *(Case(3, SMALL, homes=homes, statistics=True) for homes in ("fixed", "migrating")),
    Case(2, (4, 40, 70, 33, 5), wire=BF16, statistics=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_counters_are_what_follows_from_the_places_of_all_weights(case: Case) -> None:
    joinsum.init(sites=case.sites)
    torch.manual_seed(0)
    model = stack(case.widths, statistics=case.statistics)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=case.momentum)
    if case.adam:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    options = {"homes": case.homes, "buddy": case.buddy, "wire": case.wire}
    ist = joinsum.IST(model, optimizer, every=1, seed=2, **options)
    before = owners(ist, case.widths)
    places = Locations(case.widths, case.sites, before, fixed=case.homes == "fixed", statistics=case.statistics)
    tensors = 3 if case.adam else 2 if case.momentum else 1  # the optimizer's state has the places of its weights
    outputs = case.widths[-1]  # whose bias is averaged: the sum of all sites' changes goes to one, and to all
    for number in range(3):
        for site in range(case.sites):
            if number and site == case.sites - 1:
                predicted = ist.explain().round_bytes
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(torch.randn(6, case.widths[0])), torch.arange(6) % outputs).backward()
            optimizer.step()
        after = owners(ist, case.widths)
        moved = places.exchange(before, after)
        assert moved.weights.any()
        before = after
        expected = int(moved.weights.sum()) * tensors * (2 if case.wire else 4) + 4 * 2 * (case.sites - 1) * outputs
        if case.buddy:  # copies are not rounded
            expected += int(moved.copies.sum()) * tensors * 4
        sent = [entry.bytes_sent for entry in joinsum.trace()]
        assert sum(sent) == sum(entry.bytes_received for entry in joinsum.trace()) == expected
        if number:
            assert predicted == expected
