"""Claims about the optimizers whose updates are part of a step: parameters and state are those of torch.optim."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import joinsum
import pytest
import torch
from joinsum.frontend.training.optimizers import UPDATES
from models import CASES, batches, new_model
from rounding import rounding
from torch import Tensor, nn
from training import CUTTING, Make, compare, note_graphs, same, train_by_torch

optim = torch.optim

# Each option that changes which operators there are, or which numbers they read. SGD and Adam: test_train_step.py.
VARIANTS: list[tuple[type[optim.Optimizer], dict[str, Any]]] = [
    (optim.RMSprop, {"lr": 0.01}),
    (optim.RMSprop, {"lr": 0.01, "centered": True, "momentum": 0.9, "maximize": True, "weight_decay": 0.1}),
    (optim.Adagrad, {"lr": 0.1, "lr_decay": 0.2, "initial_accumulator_value": 0.3, "weight_decay": 0.1}),
    (optim.Adadelta, {"lr": 1.0, "rho": 0.8, "weight_decay": 0.1, "maximize": True}),
    (optim.Adamax, {"lr": 0.02, "betas": (0.8, 0.9), "weight_decay": 0.1}),
    (optim.NAdam, {"lr": 0.01, "weight_decay": 0.1, "momentum_decay": 0.2}),
    (optim.NAdam, {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    (optim.RAdam, {"lr": 0.01, "weight_decay": 0.1}),  # the variance is known from the sixth step on
    (optim.RAdam, {"lr": 0.01, "betas": (0.8, 0.5), "weight_decay": 0.1, "decoupled_weight_decay": True}),  # never
    (optim.ASGD, {"lr": 0.1, "lambd": 0.1, "t0": 3, "weight_decay": 0.1}),  # averages from the fourth step on
    (optim.Rprop, {"lr": 0.01, "etas": (0.4, 1.5), "step_sizes": (0.008, 0.02)}),  # reaches both bounds
    (optim.Adafactor, {"lr": 0.05, "weight_decay": 0.1}),
    (optim.Adafactor, {"lr": 0.05, "d": 1.5, "eps": (0.02, 0.5), "beta2_decay": -0.5, "maximize": True}),
]
FIRST = dict(reversed(VARIANTS))

# torch rounds these optimizers' own numbers (`mu_product`; `eta` and `mu`) to single precision.
TOLERANCES = {optim.NAdam: 1e-8, optim.ASGD: 1e-8}


@pytest.fixture(autouse=True)
def three_sites() -> Iterator[None]:
    torch._dynamo.reset()
    joinsum.init(sites=3, cluster=CUTTING)
    yield
    joinsum.init()


def same_state(actual: optim.Optimizer, wanted: optim.Optimizer, tolerance: float) -> None:
    """Asserts that two optimizers have state of equal names, shapes, types and values, in equal order of parameters."""
    one, other = actual.state_dict()["state"], wanted.state_dict()["state"]
    assert one.keys() == other.keys()
    for index, state in other.items():
        assert one[index].keys() == state.keys()
        for name, value in state.items():
            found = one[index][name]
            assert type(found) is type(value), name
            if isinstance(value, Tensor):
                torch.testing.assert_close(found, value, rtol=tolerance, atol=tolerance)


def same_changes(actual: nn.Module, wanted: nn.Module, start: nn.Module, tolerance: float) -> None:
    """Asserts that parameters have changed equally, relative to the largest change of each."""
    for x, y, before in zip(*(m.state_dict().values() for m in (actual, wanted, start)), strict=True):
        largest = float((y - before).abs().max())
        torch.testing.assert_close(x - before, y - before, rtol=0, atol=tolerance * largest)


def test_every_optimizer_of_the_table_is_tested() -> None:
    assert {*FIRST, optim.Muon, optim.SGD, optim.Adam, optim.AdamW, optim.SparseAdam} == UPDATES.keys()


@pytest.mark.parametrize(
    ("kind", "options"), VARIANTS, ids=lambda x: "-".join(x) if isinstance(x, dict) else x.__name__
)
def test_parameters_and_losses_are_torchs(kind: type[optim.Optimizer], options: dict[str, Any]) -> None:
    compare("mlp", lambda p: kind(p, **options), torch.float64, TOLERANCES.get(kind, 1e-11))


@pytest.mark.parametrize("kind", [optim.Adadelta, optim.NAdam, optim.RAdam, optim.Adafactor])
def test_changes_of_parameters_in_single_precision_are_torchs(kind: type[optim.Optimizer]) -> None:
    start, plain, planned = (new_model("mlp") for _ in range(3))
    data, loss = batches("mlp", 7), CASES["mlp"].loss
    one, other = (kind(m.parameters(), **FIRST[kind]) for m in (plain, planned))
    train_by_torch(plain, loss, one, data)
    step = joinsum.train_step(planned, loss, other)
    for x, y in data:
        step(x, y)
    step.sync()
    same_changes(planned, plain, start, 1e-5)


Batches = list[tuple[Tensor, Tensor]]


@pytest.mark.parametrize(
    ("kind", "sites"),
    [*((kind, 1) for kind in FIRST), *((kind, 3) for kind in (optim.Adagrad, optim.ASGD, optim.Adafactor))],
)
def test_state_and_schedules_go_from_torch_to_the_sites_and_back(
    kind: type[optim.Optimizer], sites: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    joinsum.init(sites=sites, cluster=CUTTING)
    graphs = note_graphs(monkeypatch)
    plain, planned = new_model("mlp", torch.float64), new_model("mlp", torch.float64)
    data, loss = batches("mlp", 10, dtype=torch.float64), CASES["mlp"].loss
    one, other = (kind(m.parameters(), **FIRST[kind]) for m in (plain, planned))
    schedules = {each: optim.lr_scheduler.ExponentialLR(each, 0.7) for each in (one, other)}
    step, tolerance = joinsum.train_step(planned, loss, other), TOLERANCES.get(kind, 1e-11)

    def by_torch(model: nn.Module, optimizer: optim.Optimizer, data: Batches) -> None:
        for pair in data:
            train_by_torch(model, loss, optimizer, [pair])
            schedules[optimizer].step()

    def by_steps(data: Batches) -> None:
        for x, y in data:
            step(x, y)
            schedules[other].step()
        step.sync()

    by_torch(planned, other, data[:2])
    by_steps(data[2:6])
    by_torch(plain, one, data[:6])
    same(planned, plain, tolerance)
    same_state(other, one, 1e-6 if kind in TOLERANCES else tolerance)
    by_torch(planned, other, data[6:8])
    by_steps(data[8:])
    by_torch(plain, one, data[6:])
    same(planned, plain, tolerance)
    assert len(graphs) == 1


# --- Muon: matrices alone, orthogonal in half precision ---------------------------------------------------------------


class Matrices(nn.Module):
    """A wide and a tall matrix, in which results are linear: rounding does not add up over the steps."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.wide = nn.Parameter(torch.randn(6, 12, generator=generator, dtype=torch.float64))
        self.tall = nn.Parameter(torch.randn(12, 4, generator=generator, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x[:, :6] @ self.wide, x @ self.tall], 1)


def product(result: Tensor, target: Tensor) -> Tensor:
    return (result * target).sum()


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("options", [{}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.5}])
def test_matrices_by_muon_are_torchs_up_to_its_half_precision(options: dict[str, Any], sites: int) -> None:
    joinsum.init(sites=sites, cluster=CUTTING)
    start, plain, planned = (Matrices() for _ in range(3))
    generator = torch.Generator().manual_seed(5)
    data = [torch.randn(16, 28, generator=generator, dtype=torch.float64).split([12, 16], 1) for _ in range(4)]
    one, other = (optim.Muon(m.parameters(), lr=0.1, **options) for m in (plain, planned))
    train_by_torch(plain, product, one, data)
    step = joinsum.train_step(planned, product, other)
    for x, y in data:
        step(x, y)
    step.sync()
    same_state(other, one, 1e-12)
    # Each of five iterations rounds several times, and magnifies small singular values 3.4 times.
    same_changes(planned, plain, start, rounding(torch.bfloat16, terms=16, roundings=12))


# --- subclasses -------------------------------------------------------------------------------------------------------


class Quick(optim.RMSprop):
    """Changes numbers alone."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.02, momentum=0.5)


class Doubled(optim.RMSprop):
    """Has a step of its own."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        super().step(closure)
        return super().step(closure)


class Started(optim.RMSprop):
    """Has state of its own."""

    def _init_group(self, *args: Any) -> Any:
        return super()._init_group(*args)


def test_subclasses_that_change_numbers_are_as_their_base() -> None:
    compare("mlp", Quick, torch.float64, 1e-11)


@pytest.mark.parametrize("make", [Doubled, Started])
def test_subclasses_with_a_step_of_their_own_are_refused(make: Make) -> None:
    model = new_model("mlp")
    with pytest.raises(joinsum.PlanError, match=r"optimizer=\w+, supported=\['SGD'.*joinsum.distribute"):
        joinsum.train_step(model, CASES["mlp"].loss, make(model.parameters()))


def two_kinds(model: nn.Module) -> list[optim.Optimizer]:
    matrices = [p for p in model.parameters() if p.dim() == 2]
    rest = [p for p in model.parameters() if p.dim() != 2]
    return [
        optim.RMSprop(matrices, lr=0.01, momentum=0.5),
        optim.AdamW([{"params": rest[:1]}, {"params": rest[1:], "lr": 0.02}], lr=0.01),
    ]


def test_several_optimizers_update_their_own_parameters() -> None:
    plain, planned, start = (new_model("mlp").double() for _ in range(3))
    data = [(x.double(), y) for x, y in batches("mlp", 4)]
    loss, (one, other) = CASES["mlp"].loss, (two_kinds(plain), two_kinds(planned))
    schedules = [optim.lr_scheduler.StepLR(each[1], 2, gamma=0.1) for each in (one, other)]
    step = joinsum.train_step(planned, loss, other, max_norm=0.5)
    assert repr(step) == f"<TrainStep of {type(planned).__name__} with RMSprop, AdamW>"
    for x, y in data:
        value = loss(plain(x), y)
        for each in one:
            each.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        for each in one:
            each.step()
        torch.testing.assert_close(step(x, y), value.detach(), rtol=1e-10, atol=1e-10)
        for schedule in schedules:
            schedule.step()
    assert step.metrics["learning_rate"] == pytest.approx([0.01, 0.001, 0.002])  # of the last step
    states = step.state_dict()["optimizer"]
    assert [each["param_groups"] for each in states] == [each.state_dict()["param_groups"] for each in one]
    step.sync()
    same_changes(planned, plain, start, 1e-10)
    for each, wanted in zip(other, one, strict=True):
        same_state(each, wanted, 1e-10)


def test_lists_of_optimizers_that_fit_no_step_are_refused() -> None:
    model = new_model("mlp")
    lists: list[tuple[Any, str]] = [
        ([], "at least one optimizer"),
        (
            [optim.SGD(model.parameters(), lr=0.1), optim.Adam(model.parameters())],
            "two optimizers update one parameter",
        ),
        ([optim.SGD(model.parameters(), lr=0.1), "adam"], "an optimizer is a torch.optim.Optimizer: got=str"),
        ([optim.LBFGS(model.parameters())], "no such optimizer in a graph: optimizer=LBFGS"),
    ]
    for given, message in lists:
        with pytest.raises(joinsum.PlanError, match=message):
            joinsum.train_step(model, None, given)


class _Repeated(nn.Module):
    """The gradient of its parameter is one element, or one row, that repeats."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.arange(6.0).reshape(3, 2) / 10)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.p, x)


@pytest.mark.parametrize("make", [optim.Adam, optim.AdamW, lambda p: optim.Adam(p, amsgrad=True), *FIRST])
@pytest.mark.parametrize(
    "function", [lambda p, x: p.sum() * x.sum(), lambda p, x: (p.mean(0) * x[0] + p.sum(1)[:2]).square().sum()]
)
def test_gradients_that_repeat_reach_every_element(make: Make, function: Callable[..., Tensor]) -> None:
    x = torch.linspace(-1, 1, 6).reshape(3, 2)
    reference = _Repeated(function)
    optimizer = make(reference.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        reference(x).backward()
        optimizer.step()
    for sites in (2, 4):
        joinsum.init(sites=sites)
        model = _Repeated(function)
        step = joinsum.train_step(model, None, make(model.parameters()))
        for _ in range(2):
            step(x)
        step.sync()
        torch.testing.assert_close(model.p, reference.p)
