"""Claims about training steps with a GradScaler, and about how the batches of an update combine: parameters and scale
are those of torch's loop."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import joinsum
import pytest
import torch
from joinsum.frontend.training.loss_scale import LossScale
from torch import Tensor, nn
from training import CUTTING, same

LOSS = nn.functional.mse_loss


@pytest.fixture(autouse=True, params=[1, 3])
def sites(request: pytest.FixtureRequest) -> Iterator[None]:
    joinsum.init(sites=request.param, cluster=CUTTING)
    yield
    joinsum.init()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3))


def batches(count: int, endless: int = -1) -> list[tuple[Tensor, Tensor]]:
    """Batches of several sizes, one of them with an infinite element."""
    numbers = torch.Generator().manual_seed(1)
    found = [
        (torch.randn(4 + i % 3, 6, generator=numbers), torch.randn(4 + i % 3, 3, generator=numbers))
        for i in range(count)
    ]
    if endless >= 0:
        found[endless][0][0, 0] = math.inf
    return found


def scaler(**options: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2, **options)


OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
}


@pytest.mark.parametrize(("optimizer", "accumulate", "max_norm"), [("AdamW", 1, None), ("SGD", 2, 0.1)])
def test_a_scaled_step_is_that_of_torchs_loop(optimizer: str, accumulate: int, max_norm: float | None) -> None:
    plain, planned = network(), network()
    one, other = (OPTIMIZERS[optimizer](each.parameters()) for each in (plain, planned))
    theirs, ours = scaler(), scaler()
    step = joinsum.train_step(planned, LOSS, other, scaler=ours, accumulate=accumulate, max_norm=max_norm)
    skipped = []
    for i, (x, y) in enumerate(batches(8, endless=5)):
        used = theirs.get_scale()
        theirs.scale(LOSS(plain(x), y) / accumulate).backward()
        step(x, y)
        assert step.metrics["loss_scale"] == used
        if (i + 1) % accumulate:
            continue
        theirs.unscale_(one)
        if max_norm is not None:
            nn.utils.clip_grad_norm_(plain.parameters(), max_norm)
        theirs.step(one)
        theirs.update()
        one.zero_grad()
        skipped.append(step.metrics["skipped"])
        assert ours.state_dict() == theirs.state_dict()
    assert skipped == [i == 5 // accumulate for i in range(8 // accumulate)]
    step.sync()
    same(planned, plain, 1e-6)
    if optimizer == "AdamW":
        assert all(state["step"] == 8 // accumulate - 1 for state in other.state.values())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_first_update_that_is_skipped_begins_no_state(optimizer: str) -> None:
    plain, planned = network(), network()
    one, other = (OPTIMIZERS[optimizer](each.parameters()) for each in (plain, planned))
    theirs = scaler()
    step = joinsum.train_step(planned, LOSS, other, scaler=scaler())
    for x, y in batches(4, endless=0):
        theirs.scale(LOSS(plain(x), y)).backward()
        theirs.step(one)
        theirs.update()
        one.zero_grad()
        step(x, y)
        assert [sorted(each) for each in other.state.values() if each] == [sorted(x) for x in one.state.values() if x]
    step.sync()
    same(planned, plain, 1e-6)


def test_half_precision_needs_the_scale() -> None:
    plain, planned = network(), network()
    optimizers = [torch.optim.SGD(each.parameters(), lr=1.0) for each in (plain, planned)]
    step = joinsum.train_step(planned, LOSS, optimizers[1], scaler=scaler(), autocast=torch.float16)
    theirs = scaler()
    for x, y in batches(4):
        with torch.autocast("cpu", torch.float16):
            loss = LOSS(plain(x), y)
        theirs.scale(loss).backward()
        theirs.step(optimizers[0])
        theirs.update()
        optimizers[0].zero_grad()
        torch.testing.assert_close(step(x, y).float(), loss.detach().float(), rtol=5e-3, atol=5e-3)


def test_a_scaler_that_is_off_does_nothing() -> None:
    planned = network()
    off = torch.amp.GradScaler("cpu", enabled=False)
    step = joinsum.train_step(planned, LOSS, torch.optim.SGD(planned.parameters(), lr=0.1), scaler=off)
    step(*batches(1)[0])
    assert "loss_scale" not in step.metrics


def test_a_sum_of_gradients_weighs_batches_by_their_losses() -> None:
    plain, planned = network(), network()
    one, other = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (plain, planned))
    parts = batches(3)
    samples = sum(len(x) for x, _ in parts)

    def share(result: Tensor, target: Tensor) -> Tensor:
        return (result - target).square().sum() / (3 * samples)

    step = joinsum.train_step(planned, share, other, accumulate=3, reduction="sum")
    for x, y in parts:
        step(x, y)
    LOSS(plain(torch.cat([x for x, _ in parts])), torch.cat([y for _, y in parts])).backward()
    one.step()
    step.sync()
    same(planned, plain, 1e-6)


def test_others_than_scalers_and_reductions_are_refused() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(joinsum.PlanError, match=r"a scaler is a torch\.amp\.GradScaler"):
        joinsum.train_step(model, LOSS, optimizer, scaler=2.0)  # type: ignore[arg-type]
    with pytest.raises(joinsum.PlanError, match="mean or a sum: reduction='max'"):
        joinsum.train_step(model, LOSS, optimizer, reduction="max")  # type: ignore[arg-type]


def test_a_scale_never_becomes_infinite() -> None:
    largest = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1)
    theirs = copy.deepcopy(largest)
    scale = LossScale(largest)
    scale.update(skipped=False)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    theirs.scale(0.0 * model(torch.zeros(1, 6)).sum()).backward()
    theirs.step(optimizer)
    theirs.update()
    assert largest.get_scale() == theirs.get_scale() == 2.0**127
