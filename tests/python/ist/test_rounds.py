"""Rounds against their definition: subnets cut, trained and put back by plain torch."""

from __future__ import annotations

from typing import Any

import joinsum
import pytest
import torch
from stacked_subnets import OPTIMIZERS, Optimizer, Reference, batches, mlp, step, train_both
from torch import nn


@pytest.mark.parametrize("homes", ["migrating", "fixed"])
@pytest.mark.parametrize(
    ("optimizer", "sites", "widths"),
    [
        *((name, 3, (7, 10, 12, 4)) for name in OPTIMIZERS),
        ("momentum", 2, (7, 9, 4)),
        ("adam", 4, (5, 37, 8, 33, 3)),
    ],
)
def test_subnets_train_as_plain_torch_trains_their_blocks(
    optimizer: str, sites: int, widths: tuple[int, ...], homes: Any
) -> None:
    joinsum.init(sites=sites)
    make, rounds, every = OPTIMIZERS[optimizer], 4, 3
    model = mlp(*widths, dtype=torch.float64, bias=optimizer != "rprop")  # which takes the sign of rounding errors
    reference = Reference(model, make, sites)
    own = make(model.parameters())
    reference.take(model, own)  # Adagrad has one
    ist = joinsum.IST(model, own, every=every, seed=3, homes=homes)
    data = batches(rounds * every * sites, widths[0], widths[-1], torch.float64)
    train_both(reference, ist, model, own, data, every)


@pytest.mark.parametrize("sites", [2, 3])
@pytest.mark.parametrize("optimizer", ["momentum", "adam", "rmsprop"])
def test_plain_training_that_has_begun_goes_on_with_its_states(optimizer: str, sites: int) -> None:
    joinsum.init(sites=sites)
    make = OPTIMIZERS[optimizer]

    def warmed() -> tuple[nn.Sequential, Optimizer]:
        model = mlp(7, 10, 12, 4, dtype=torch.float64)
        own = make(model.parameters())
        for batch in batches(3, 7, 4, torch.float64):
            step(model, own, batch)
        return model, own

    (model, own), (plain, other) = warmed(), warmed()
    ist = joinsum.IST(model, own, every=2, seed=3)
    assert own.state[model[0].weight].keys() == other.state[plain[0].weight].keys()
    ist.gather()
    for (name, p), q in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(p, q)
        assert own.state[p].keys() == other.state[q].keys()
        rounding = 1e-15 if name == "6.bias" else 0.0  # of a mean of equal moments
        for key, wanted in other.state[q].items():
            torch.testing.assert_close(own.state[p][key], wanted, rtol=rounding, atol=0.0, msg=f"{name}.{key}")
    reference = Reference(plain, make, sites)
    reference.take(plain, other)
    ist = joinsum.IST(plain, other, every=2, seed=3)
    train_both(reference, ist, plain, other, batches(6 * sites, 7, 4, torch.float64), 2)


def test_weights_that_have_rested_start_with_the_state_of_new_parameters() -> None:
    joinsum.init(sites=2)
    groups = mlp(6, 8, 12, 3, norm=nn.LayerNorm)
    optimizer = torch.optim.Rprop(
        [{"params": groups[:3].parameters()}, {"params": groups[3:].parameters(), "lr": 0.03}], lr=0.01
    )
    ist = joinsum.IST(groups, optimizer, every=1)

    def whole() -> torch.Tensor:
        with ist.full() as full:
            return joinsum.full_state_dict(full)["3.weight"].clone()

    def active() -> torch.Tensor:
        found = torch.zeros(12, 8, dtype=torch.bool)
        for site in range(2):
            rows, columns = (torch.tensor(ist.neurons(layer, site)) for layer in ("3", "0"))
            found[rows[:, None], columns[None, :]] = True
        return found

    data, rested = batches(12, 6, 3), torch.ones(12, 8, dtype=torch.bool)
    news = 0
    for first in range(0, 12, 2):
        before, new = whole(), active() & rested
        rested &= ~active()
        for batch in data[first : first + 2]:
            step(groups, optimizer, batch)
        moved = (whole() - before)[new].abs()
        moved = moved[moved > 0]  # a ReLU may pass no gradient
        assert torch.allclose(moved, torch.tensor(0.03))
        news += len(moved) if first else 0
    assert news > 20


def test_sites_that_have_taken_no_step_yet_come_back_too() -> None:
    joinsum.init(sites=3)
    for end in ("gather", "end_round"):
        model, plain = mlp(6, 9, 20, 3), mlp(6, 9, 20, 3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
        ist = joinsum.IST(model, optimizer, every=5)
        step(model, optimizer, batches(1, 6, 3)[0])
        getattr(ist, end)()
        if end == "end_round":
            for batch in batches(15, 6, 3):
                step(model, optimizer, batch)
            ist.gather()
        assert all(
            torch.equal(found, wanted) for found, wanted in zip(model.parameters(), plain.parameters(), strict=True)
        )


# --- oracles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", [2, 3, 4, 7, 8])
@pytest.mark.parametrize("state", ["carry", "reset"])
def test_rounds_without_learning_leave_the_model_to_the_bit(sites: int, state: Any) -> None:
    joinsum.init(sites=sites)
    model, plain = mlp(6, 9, 20, 11, 3), mlp(6, 9, 20, 11, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    with joinsum.IST(model, optimizer, every=2, state=state) as ist:
        for batch in batches(6 * sites, 6, 3):
            step(model, optimizer, batch)
    assert ist.rounds == 3
    for (name, found), wanted in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(found, wanted), name


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_one_site_trains_as_plain_torch_to_the_bit(optimizer: str) -> None:
    joinsum.init(sites=1)
    model, plain = mlp(6, 9, 20, 3), mlp(6, 9, 20, 3)
    own, other = OPTIMIZERS[optimizer](model.parameters()), OPTIMIZERS[optimizer](plain.parameters())
    with joinsum.IST(model, own, every=2) as ist:
        for batch in batches(7, 6, 3):
            step(model, own, batch)
            step(plain, other, batch)
    assert ist.rounds == 3
    for name, wanted in plain.state_dict().items():
        assert torch.equal(model.state_dict()[name], wanted), name
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        assert own.state[p].keys() == other.state[q].keys()
        for key, wanted in other.state[q].items():
            assert torch.equal(torch.as_tensor(own.state[p][key]), torch.as_tensor(wanted)), key
