"""Claims about errors of capture: what in the user's code is at fault, where, and what to do, in joinsum's words."""

from __future__ import annotations

import inspect
import pickle
import random
import re
import threading
from collections.abc import Callable
from typing import Any

import joinsum
import pytest
import torch
from joinsum.capture.record import _Tracer
from joinsum.frontend.tracing import errors
from torch import Tensor, nn


@pytest.fixture(autouse=True)
def two_sites() -> None:
    torch._dynamo.reset()
    joinsum.init(sites=2)


class Layer(nn.Module):
    def __init__(self, then: Callable[[Tensor, Layer], Any]) -> None:
        super().__init__()
        self.layer, self.then = nn.Linear(4, 4), then

    def forward(self, x: Tensor) -> Any:
        return self.then(self.layer(x), self)


def raising(x: Tensor, _: Layer) -> Tensor:
    if x.dim() == 2:
        raise ValueError("one of 'a' and \"b\"")
    return x


def other_arguments(x: Tensor, model: Layer) -> Any:
    return model.layer(x, scale=2)


def other_shape(x: Tensor, _: Layer) -> Tensor:
    return x @ torch.ones(3, 3)


def other_dtype(x: Tensor, _: Layer) -> Tensor:
    return nn.functional.embedding(x, x)


def branching(x: Tensor, _: Layer) -> Tensor:
    return x if x.sum() > 0 else -x


def printing(x: Tensor, _: Layer) -> Tensor:
    print(x.shape)
    return x


def missing_attribute(x: Tensor, model: Layer) -> Any:
    return model.nothing(x)


def missing_name(x: Tensor, _: Layer) -> Any:
    return nowhere(x)  # type: ignore[name-defined]  # noqa: F821 - as users err


def saving(x: Tensor, _: Layer) -> Tensor:
    torch.save(x, "/dev/null")
    return x


def reading(x: Tensor, _: Layer) -> Any:
    return x.tolist()


def locking(x: Tensor, _: Layer) -> Tensor:
    with threading.Lock():
        return x


def by_class(x: Tensor, model: Layer) -> Tensor:
    return x if type(model.layer.weight).__module__.startswith("torch") else -x


@torch.compiler.disable
def plain(x: Tensor) -> Tensor:
    return x + 1


def disabled(x: Tensor, _: Layer) -> Tensor:
    return plain(x)


def defining(x: Tensor, _: Layer) -> Tensor:
    class Own:
        pass

    return x


def storing(x: Tensor, _: Layer) -> Any:
    return x.storage().size() + x


def drawing(x: Tensor, _: Layer) -> Tensor:
    return x if random.random() < 0.5 else -x


def freezing(x: Tensor, _: Layer) -> Tensor:
    x.requires_grad = False
    return x


SAID = {
    raising: ("the code raises ValueError: one of 'a' and \"b\"", "raise ValueError", False),
    other_arguments: ("a call does not fit the arguments of the function: forward", "scale=2", False),
    other_shape: ("RuntimeError: a and b must have same reduction dim, but got [", "@", False),
    other_dtype: ("'indices' to have one of the following scalar types: Long, Int", "embedding(x, x)", False),
    branching: ("a branch depends on a tensor's value", "x.sum() > 0", True),
    printing: ("a call is no tensor operation: print", "print(x.shape)", True),
    missing_attribute: ("the code raises AttributeError: 'Layer' object has no attribute 'nothing'", "", False),
    missing_name: ("a name is not defined: nowhere", "return nowhere(x)", False),
    saving: ("a call is no tensor operation: torch.serialization.save", "torch.save(x", True),
    reading: ("a tensor's values are read: tolist", "x.tolist()", True),
    locking: ("a call is no tensor operation: _thread.allocate_lock", "threading.Lock()", True),
    disabled: ("a function is marked with torch.compiler.disable", "plain(x)", True),
    defining: ("a class is defined in the captured code", "class Own", True),
    storing: ("a call returns no tensor: storage", "x.storage()", True),
    drawing: ("a call is no tensor operation: Random.random", "random.random()", True),
    freezing: ("a tensor's requires_grad is changed", "x.requires_grad = False", True),
    by_class: ("a method cannot be captured: str.startswith", "startswith", True),
}


def step_of(model: Layer) -> Callable[[Tensor], object]:
    step = joinsum.train_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    return lambda x: step(x, x)


WAYS: dict[str, Callable[[Layer], Callable[[Tensor], object]]] = {
    "train_step": step_of,
    "distribute": lambda model: lambda x: joinsum.distribute(model, x),
    "compile": joinsum.compile,  # type: ignore[dict-item]
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("then", SAID, ids=lambda then: then.__name__)
def test_it_says_what_in_the_users_code_is_at_fault(then: Callable[[Tensor, Layer], Any], way: str) -> None:
    what, code, remedy = SAID[then]
    with pytest.raises(joinsum.CaptureError) as caught:
        WAYS[way](Layer(then))(torch.ones(2, 4))
    text = str(caught.value)
    assert text.startswith(f"{way}: ")
    assert what in text
    assert "\n" not in text
    assert not any(word in text for word in ("Dynamo", "graph break", "FakeTensor", "inline"))
    assert ("the function must be one graph" in text) == remedy
    if code:
        first = inspect.getsourcelines(then)[1]
        place = text.partition("test_errors.py:")[2]
        assert first < int(place.partition(" ")[0]) <= first + 3
        assert code in place.partition("code=")[2]
    assert caught.value.__cause__ is not None  # torch's own account


def test_a_refusal_that_is_not_known_has_the_line_and_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_SENTENCES", ())
    with pytest.raises(joinsum.CaptureError) as caught:
        joinsum.compile(Layer(printing))(torch.ones(2, 4))
    assert re.fullmatch(
        r"compile: torch cannot capture what this line does: refusal=.+: at \S+test_errors\.py:\d+ in printing, "
        r"code=print\(x\.shape\); the function must be one graph: .*",
        str(caught.value),
    )


FAILING: dict[str, Callable[[Layer], Callable[[Tensor], Any]]] = {
    **WAYS,
    "distribute": lambda model: joinsum.distribute(model, torch.ones(2, 4)),
    "torch.compile": lambda model: torch.compile(model, backend="joinsum", fullgraph=True),
}


def doubling(x: Tensor, _: Layer) -> Tensor:
    return x.tanh() * 2


@pytest.mark.parametrize("way", FAILING)
def test_a_failure_of_ours_is_an_error_of_capture_with_line_operator_and_cause(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = AttributeError("'Slot' object has no attribute 'detach'")
    recorded = _Tracer._called

    def failing(tracer: Any, node: torch.fx.Node) -> Any:
        if node.target is torch.ops.aten.tanh.default:
            raise broken
        return recorded(tracer, node)

    monkeypatch.setattr(_Tracer, "_called", failing)
    with pytest.raises(joinsum.CaptureError) as caught:
        FAILING[way](Layer(doubling))(torch.ones(2, 4))
    assert re.fullmatch(
        r"\w+: no program can be made of the captured code: cause=AttributeError: 'Slot' object has no attribute "
        r"'detach', operator=aten\.tanh\.default, at=File \"\S+test_errors\.py\", line \d+, in doubling: "
        r"return x\.tanh\(\) \* 2; the code may be right, .* report it with this message; .*",
        str(caught.value),
    )
    assert caught.value.__cause__ is broken


def test_torchs_compiler_raises_our_errors_without_its_own_around_them() -> None:
    run = torch.compile(lambda x: torch.special.bessel_j0(x) + 1, backend="joinsum", fullgraph=True)
    with pytest.raises(joinsum.CaptureError) as caught:
        run(torch.eye(3))
    assert re.fullmatch(
        r"capture: there is no rule for this operator: operator=aten::special_bessel_j0.*", str(caught.value)
    )
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (joinsum.CaptureError, str(caught.value))
    with pytest.raises(joinsum.PlanError, match=r"^compile: the backend has one option, replicate"):
        torch.compile(torch.tanh, backend="joinsum", options={"other": 1})(torch.eye(3))


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))


PLANNED: dict[str, Callable[[Any], Any]] = {
    "distribute": lambda model: joinsum.distribute(model, torch.ones(6, 8)),
    "compile": joinsum.compile,
}


@pytest.mark.parametrize("way", PLANNED)
def test_second_derivatives_name_the_way_that_works(way: str) -> None:
    planned, x = PLANNED[way](small()), torch.randn(6, 8, requires_grad=True)
    (slope,) = torch.autograd.grad(planned(x).sum(), x, create_graph=True)
    (wanted,) = torch.autograd.grad(small()(x).sum(), x)
    torch.testing.assert_close(slope, wanted)
    with pytest.raises(joinsum.CaptureError, match=r"^backward: gradients of .*joinsum\.train_step, with x\.clone\(\)"):
        slope.square().sum().backward()


def test_a_penalty_on_gradients_is_part_of_a_training_step() -> None:
    def penalised(model: nn.Module, x: Tensor) -> Tensor:
        x = x.clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return (slope.square().sum(1) - 1).square().mean()

    class Penalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = small()

        def forward(self, x: Tensor) -> Tensor:
            return penalised(self.model, x)

    plain, planned, x = small(), Penalised(), torch.randn(6, 8)
    one, other = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (plain, planned))
    step = joinsum.train_step(planned, None, other)
    for _ in range(3):
        loss = penalised(plain, x)
        one.zero_grad()
        loss.backward()
        one.step()
        torch.testing.assert_close(step(x), loss.detach(), rtol=1e-5, atol=1e-6)


TRANSFORMED: dict[str, Callable[[Callable[[Tensor], Tensor], Tensor], Any]] = {
    "jacrev": lambda f, x: torch.func.jacrev(f)(x),
    "grad": lambda f, x: torch.func.grad(lambda x: f(x).sum())(x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x,)),
    "vmap": lambda f, x: torch.func.vmap(f)(x[None]),
}


@pytest.mark.parametrize("way", PLANNED)
@pytest.mark.parametrize("transform", TRANSFORMED)
def test_transforms_of_what_runs_as_a_plan_name_the_way_that_works(transform: str, way: str) -> None:
    planned, x = PLANNED[way](small()), torch.randn(6, 8)
    with pytest.raises(joinsum.CaptureError, match=rf"^{way}: transforms of .*torch\.autograd\.functional\.jacobian"):
        TRANSFORMED[transform](planned, x)
    wanted = torch.func.jacrev(small())(x)
    torch.testing.assert_close(torch.autograd.functional.jacobian(planned, x), wanted)


def test_gradients_of_each_sample_of_a_distributed_model_name_the_way_that_works() -> None:
    model, x = PLANNED["distribute"](small()), torch.randn(6, 8)

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        result: Tensor = torch.func.functional_call(model, parameters, (x[None],))
        return result.sum()

    of_each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
    with pytest.raises(joinsum.CaptureError, match=r"distribute: transforms of torch\.func"):
        of_each(dict(model.named_parameters()), x)


def test_batched_gradients_name_the_way_that_works() -> None:
    planned, x = joinsum.distribute(small(), torch.ones(6, 8)), torch.randn(6, 8)
    with pytest.raises(joinsum.CaptureError, match=r"backward: batched gradients .*without vectorize"):
        torch.autograd.functional.jacobian(planned, x, vectorize=True)
