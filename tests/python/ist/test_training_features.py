"""What users put into loops that train subnets, on loopback sites: beside reference subnets in plain torch; and which
optimizers are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import joinsum
import pytest
import torch
import torch.distributed.checkpoint as dcp
from joinsum.ist.alternative import subnet_alternative
from reference_subnets import ReferenceSubnets
from subnet_loops import (
    AUTOCAST,
    LION,
    SCALED,
    SCHEDULED,
    Batch,
    Compiled,
    Loop,
    adam,
    batches,
    compare,
    network,
    plain_begin,
    plain_step,
)
from torch import nn
from training import takes_long

Optimizer = torch.optim.Optimizer


@pytest.mark.parametrize("sites", [2, 3])
@pytest.mark.parametrize(
    "loop", [SCHEDULED, AUTOCAST, LION], ids=["groups, a schedule and clipping", "autocast", "another's optimizer"]
)
def test_loops_train_as_plain_torch_does(loop: Loop, sites: int) -> None:
    joinsum.init(sites=sites)
    compare(loop, rounds=3, every=2)


def test_a_step_that_a_scaler_skips_is_no_step() -> None:
    joinsum.init(sites=2)
    compare(SCALED, 4, 3, (0, 7, 17), free=True)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=takes_long)])
def test_a_compiled_model_is_not_compiled_in_later_rounds(backend: str, early: bool) -> None:
    joinsum.init(sites=3)
    compiled = Compiled(backend, early)
    compare(compiled.loop(), rounds=4, every=1)
    assert 1 <= compiled.graphs[2] == compiled.graphs[-1] <= 2 + early, compiled.graphs


# --- one site ---------------------------------------------------------------------------------------------------------


def convolutions() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 7)), nn.Conv1d(1, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(40, 12), nn.LayerNorm(12), nn.GELU(), nn.Linear(12, 4)),
    )


def attention() -> nn.Module:
    torch.manual_seed(1)
    block = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Linear(7, 48), nn.Unflatten(1, (3, 16)), block, nn.Flatten(), nn.Linear(48, 4))


def matrices() -> nn.Module:
    torch.manual_seed(1)
    norm = nn.LayerNorm(12, elementwise_affine=False)
    return nn.Sequential(nn.Linear(7, 12, bias=False), norm, nn.ReLU(), nn.Linear(12, 4, bias=False))


ONE_SITE: dict[str, tuple[Callable[[], nn.Module], Callable[..., Optimizer], dict[str, Any]]] = {
    "convolutions": (convolutions, torch.optim.Adam, {}),
    "scaled": (partial(network, {}), torch.optim.Adam, {"scaled": True}),
    "buddy": (partial(network, {}), torch.optim.Adam, {"buddy": True}),
    "wire": (partial(network, {}), torch.optim.Adam, {"wire": torch.bfloat16}),
    "homes": (partial(network, {}), torch.optim.Adam, {"homes": "fixed"}),
    "attention": (attention, torch.optim.Adam, {"attention_heads": True}),
    "Adafactor": (matrices, torch.optim.Adafactor, {}),
    "Muon": (matrices, torch.optim.Muon, {}),
}


@pytest.mark.parametrize("case", ONE_SITE)
def test_one_site_trains_as_plain_torch_to_the_bit(case: str) -> None:
    joinsum.init(sites=1)
    make, optimize, options = ONE_SITE[case]
    model, plain = make(), make()
    own, other = optimize(model.parameters(), lr=0.01), optimize(plain.parameters(), lr=0.01)
    dtype = next(model.parameters()).dtype
    with joinsum.IST(model, own, every=2, **options) as ist:
        for number, batch in enumerate(batches(7, dtype)):
            plain_step(model, own, Batch(number, *batch))
            plain_step(plain, other, Batch(number, *batch))
    assert ist.rounds == 3
    for name, wanted in plain.state_dict().items():
        assert torch.equal(model.state_dict()[name], wanted), name
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        assert own.state[p].keys() == other.state[q].keys()
        assert all(torch.equal(own.state[p][key], wanted) for key, wanted in other.state[q].items())


# --- optimizers that are not elementwise ------------------------------------------------------------------------------


class Trusting(Optimizer):
    """SGD with the step of a tensor in proportion to its norm, as LARS has it; without state."""

    def __init__(self, params: Iterable[nn.Parameter]) -> None:
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            p -= 0.1 * p.grad * p.norm() / (p.grad.norm() + 1e-8)


class Wrapper(Optimizer):
    """Has another optimizer inside, which it steps."""

    def __init__(self, params: Iterable[nn.Parameter]) -> None:
        parameters = list(params)
        super().__init__(parameters, {"lr": 0.1})
        self.inner = torch.optim.SGD(parameters, lr=0.1)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.inner.step()


class LambdaAdam(torch.optim.Adam):
    """An elementwise optimizer, whatever its name."""


class Rows(Optimizer):
    """Adagrad with one sum for each row."""

    def __init__(self, params: Iterable[nn.Parameter]) -> None:
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            rows = self.state[p].setdefault("rows", p.new_zeros(p.shape[0]))
            rows += p.grad.reshape(p.shape[0], -1).square().mean(1)
            p -= 0.1 * p.grad / (rows.sqrt() + 1e-8).reshape(-1, *[1] * (p.dim() - 1))


class Averaged(Optimizer):
    """SGD from a sequence of its own, of which parameters are the mean, as schedule-free optimizers have it."""

    def __init__(self, params: Iterable[nn.Parameter]) -> None:
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            if not self.state[p]:
                self.state[p]["z"] = p.clone()
            self.state[p]["z"] -= 0.1 * p.grad
            p.lerp_(self.state[p]["z"], 0.1)


REFUSED: dict[str, tuple[Callable[..., Optimizer], str]] = {
    "Muon": (torch.optim.Muon, "not elementwise.*optimizer=Muon;"),
    "Trusting": (Trusting, "not elementwise.*optimizer=Trusting;"),
    "Adafactor": (torch.optim.Adafactor, r"not elementwise.*optimizer=Adafactor, state=row_var, shape=\[2, 1\]"),
    "Rows": (Rows, r"not elementwise.*optimizer=Rows, state=rows, shape=\[2\]"),
    "Averaged": (Averaged, "the parameter's own value.*optimizer=Averaged, state=z"),
}


@pytest.mark.parametrize("optimize", [Wrapper, LambdaAdam])
def test_trying_an_optimizer_steps_no_parameter(optimize: Callable[..., Optimizer]) -> None:
    joinsum.init(sites=2)
    model = matrices()
    optimizer = optimize(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with joinsum.IST(model, optimizer):
        pass
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_an_optimizer_is_tried_although_a_warm_up_begins_at_zero() -> None:
    joinsum.init(sites=2)
    model = matrices()
    with pytest.raises(joinsum.PlanError, match=r"not elementwise.*optimizer=Muon;"):
        joinsum.IST(model, torch.optim.Muon(model.parameters(), lr=0.0))


@pytest.mark.parametrize("case", REFUSED)
def test_optimizers_that_are_not_elementwise_are_refused_before_anything_changes(case: str) -> None:
    joinsum.init(sites=2)
    model, optimize = matrices(), REFUSED[case][0]
    with pytest.raises(joinsum.PlanError, match=REFUSED[case][1]) as why:
        joinsum.IST(model, optimize(model.parameters()))
    assert 'state="reset"' in str(why.value)
    assert model[0].weight.shape == (12, 7)
    with joinsum.init_empty():
        empty = matrices()
    with pytest.raises(joinsum.PlanError, match=REFUSED[case][1]):
        joinsum.IST(empty, optimize(empty.parameters()))


def matrices_of(widths: Any) -> nn.Module:
    width = widths.get("0", 12)
    norm = nn.LayerNorm(width, elementwise_affine=False)
    return nn.Sequential(nn.Linear(7, width, bias=False), norm, nn.ReLU(), nn.Linear(width, 4, bias=False))


@pytest.mark.parametrize("case", REFUSED)
def test_with_states_that_are_reset_they_train_subnets_as_models_of_their_own(case: str) -> None:
    sites, every = 2, 3
    joinsum.init(sites=sites)
    model, optimize = matrices(), REFUSED[case][0]
    optimizer = optimize(model.parameters())
    cut = {"0.weight": {0: ("0", 1)}, "3.weight": {1: ("0", 1)}}
    reference = ReferenceSubnets(model, matrices_of, cut, optimize, sites)
    ist = joinsum.IST(model, optimizer, every=every, state="reset", seed=3)
    data = [Batch(number, *batch) for number, batch in enumerate(batches(4 * every * sites, torch.float32))]
    for start in range(0, len(data), every * sites):
        mine, full = data[start : start + every * sites], reference.full
        reference = ReferenceSubnets(model, matrices_of, cut, optimize, sites)  # without states
        reference.full = full
        reference.round(ist, [mine[site::sites] for site in range(sites)], plain_step)
        for batch in mine:
            plain_step(model, optimizer, batch)
    assert ist.rounds == 4
    ist.gather()
    reference.assert_equal(model, 1e-5)
    assert not torch.equal(model[0].weight, matrices()[0].weight)


@pytest.mark.parametrize("fused", [False, True])
def test_a_reset_leaves_no_state_of_any_parameter(fused: bool) -> None:
    joinsum.init(sites=2)
    model = nn.Sequential(nn.Linear(7, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=fused)
    left = []
    with joinsum.IST(model, optimizer, every=2, state="reset") as ist:
        for number, batch in enumerate(batches(12, torch.float32)):
            plain_step(model, optimizer, Batch(number, *batch))
            left.append(len(optimizer.state))
        assert ist.rounds == 3
    # As many as parameters after a site's first step of a round, and none of the other site's that follows.
    assert left == [0, 6, 6, 0] * 3
    assert not optimizer.state
    plain_step(model, optimizer, Batch(12, *batches(1, torch.float32)[0]))


@pytest.mark.parametrize("state", ["carry", "reset"])
def test_an_optimizer_with_one_state_for_all_parameters_is_refused(state: Any) -> None:
    joinsum.init(sites=2)
    model = matrices()
    with pytest.raises(joinsum.PlanError, match=r"one state for all parameters.*optimizer=LBFGS"):
        joinsum.IST(model, torch.optim.LBFGS(model.parameters()), state=state)


class OwnAdam(torch.optim.Adam):
    """A subclass that changes nothing."""


@pytest.mark.parametrize(
    "make",
    [
        lambda p: OwnAdam(p, lr=0.01, eps=1e-3, weight_decay=1.0),
        lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=1.0, dampening=0.0),
        lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01), eps=1e-3),
        lambda p: torch.optim.AdamW(p, lr=0.01, eps=1e-3, fused=True),
    ],
    ids=["a subclass", "decay in a momentum", "a rate that is a tensor", "fused"],
)
def test_elementwise_optimizers_in_other_forms_are_not_refused(make: Callable[..., Optimizer]) -> None:
    joinsum.init(sites=3)
    compare(Loop(make, plain_begin, plain_step), rounds=3, every=1)


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_torch_reads_a_checkpoint_by_plain_names(tmp_path: Path) -> None:
    joinsum.init(sites=3)
    model = network({})
    ist = joinsum.IST(model, adam(model.parameters()), every=2, seed=5)
    for number, batch in enumerate(batches(7, torch.float64)):
        plain_step(model, ist.optimizer, Batch(number, *batch))
    ist.save_checkpoint(tmp_path, {"epoch": 1})
    note = json.loads((tmp_path / "current.json").read_text())
    assert note["extra"] == {"joinsum.IST": {"round": 2, "step": 2, "seed": 5}, "extra": {"epoch": 1}}
    ist.gather()
    plain = {f"model.{name}": torch.zeros_like(x) for name, x in model.state_dict().items()}
    states = {f"optimizer.{name}.exp_avg": torch.zeros_like(p) for name, p in model.named_parameters()}
    dcp.load({**plain, **states}, checkpoint_id=tmp_path / note["data"], no_dist=True)
    for name, wanted in model.state_dict().items():
        assert torch.equal(plain[f"model.{name}"], wanted), name
    for name, p in model.named_parameters():
        assert torch.equal(states[f"optimizer.{name}.exp_avg"], ist.optimizer.state[p]["exp_avg"]), name


# --- beside a planned step --------------------------------------------------------------------------------------------


def unnormalised() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


def narrow() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (unnormalised, "a hidden layer without a norm .*: producer=0, consumer=2"),
        (narrow, "fewer neurons than sites: layer=0, neurons=3, sites=4"),
    ],
)
def test_the_alternative_says_why_subnets_are_refused(make: Callable[[], nn.Module], reason: str) -> None:
    joinsum.init(sites=4)
    model = make()
    text = str(subnet_alternative(model, 4))
    assert re.search(f"none, as joinsum.IST\\(model, ...\\) refuses this model: {reason}", text), text
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(joinsum.PlanError, match=reason):
        joinsum.IST(model, optimizer)
    if make is unnormalised:  # which is planned sooner
        step = joinsum.train_step(model, nn.functional.mse_loss, optimizer)
        assert text in str(step.explain(torch.ones(8, 6), torch.ones(8, 2), baselines=True))
