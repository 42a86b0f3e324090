"""Claims about complex parameters in training steps: they are updated as in plain torch, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import joinsum
import pytest
import torch
from torch import Tensor, nn, optim


@pytest.fixture(autouse=True, params=[1, 2])
def _sites(request: pytest.FixtureRequest) -> None:
    torch._dynamo.reset()
    joinsum.init(sites=request.param)


class Complex(nn.Module):
    """Complex and real parameters, which one group has."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(4, 3, dtype=torch.complex64))
        self.bias = nn.Parameter(torch.randn(3, dtype=torch.complex64))
        self.scale = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.scale) @ self.weight + self.bias


def loss(result: Tensor, target: Tensor) -> Tensor:
    return (result - target).abs().square().mean()


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    for _ in range(4):
        yield (
            torch.randn(6, 4, dtype=torch.complex64, generator=generator),
            torch.randn(6, 3, dtype=torch.complex64, generator=generator),
        )


Make = Callable[[Any], optim.Optimizer]
# Gradients of products need the conjugate, which has no rule.
REPLICATE = ["aten::_conj"]

OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: optim.SGD(p, 0.1),
    "nesterov": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    "dampened": lambda p: optim.SGD(p, 0.1, momentum=0.9, dampening=0.5, maximize=True),
    "adam": lambda p: optim.Adam(p, 0.1, weight_decay=0.1),
    "adamw": lambda p: optim.AdamW(p, 0.1, amsgrad=True, maximize=True),
    "rmsprop": lambda p: optim.RMSprop(p, 0.1, momentum=0.9, centered=True, weight_decay=0.1),
    "adagrad": lambda p: optim.Adagrad(p, 0.1, initial_accumulator_value=0.1, lr_decay=0.1),
    "adadelta": lambda p: optim.Adadelta(p, 0.1),
    "adamax": lambda p: optim.Adamax(p, 0.1),
    "nadam": lambda p: optim.NAdam(p, 0.1),
    "radam": lambda p: optim.RAdam(p, 0.1),
    "asgd": lambda p: optim.ASGD(p, 0.1),
    "rprop": lambda p: optim.Rprop(p, 0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_of_complex_parameters_and_their_state_are_torchs(name: str) -> None:
    compare(OPTIMIZERS[name])


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, float("inf")])
def test_complex_gradients_are_clipped_by_their_norm(norm_type: float) -> None:
    compare(OPTIMIZERS["sgd"], max_norm=0.3, norm_type=norm_type)


def compare(make: Make, **clipping: float) -> None:
    plain, planned = Complex(), Complex()
    one, other = make(plain.parameters()), make(planned.parameters())
    step = joinsum.train_step(planned, loss, other, replicate=REPLICATE, **clipping)
    for x, y in batches():
        wanted = loss(plain(x), y)
        one.zero_grad()
        wanted.backward()
        if clipping:
            nn.utils.clip_grad_norm_(plain.parameters(), *clipping.values())
        one.step()
        torch.testing.assert_close(step(x, y), wanted.detach(), rtol=1e-5, atol=1e-5)
    step.sync()
    torch.testing.assert_close(planned.state_dict(), plain.state_dict(), rtol=1e-5, atol=1e-5)
    pairs = zip(planned.parameters(), plain.parameters(), strict=True)
    for state, expected in ((other.state[p], one.state[q]) for p, q in pairs):
        assert {name: value for name, value in expected.items() if name not in state and value is not None} == {}
        torch.testing.assert_close({name: state[name] for name in expected if name in state}, dict(expected))


def test_optimizers_without_complex_updates_are_refused_as_by_torch() -> None:
    model = Complex()
    step = joinsum.train_step(model, loss, optim.Adafactor(model.parameters()))
    with pytest.raises(joinsum.PlanError, match=r"does not update complex parameters: parameter=weight, .*such as SGD"):
        step(*next(batches()))


@pytest.mark.parametrize("option", ["max_value", "scaler"])
def test_options_that_torch_refuses_for_complex_gradients_are_refused(option: str) -> None:
    model, value = Complex(), {"max_value": 0.1, "scaler": torch.amp.GradScaler("cpu")}[option]
    options: dict[str, Any] = {option: value}
    step = joinsum.train_step(model, loss, OPTIMIZERS["sgd"](model.parameters()), **options)
    with pytest.raises(joinsum.PlanError, match=rf"parameter=weight, option={option}; .*max_norm"):
        step(*next(batches()))
