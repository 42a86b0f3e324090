"""Claims about the forward pass of a model whose parameters are on the sites: between steps, in evaluation, after a
copy, and that it takes the place of the model's own as it was."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import joinsum
import pytest
import torch
import torch.nn.functional as F
from joinsum import DistributedTensor
from joinsum.distributed.distributed_tensor import gathered
from models import CASES, batches, new_model
from torch import Tensor, nn
from training import CUTTING, divided, same, train_by_torch

LOSS = CASES["mlp"].loss


BOTH = pytest.mark.parametrize("sites", [1, 3], indirect=True)


@pytest.fixture(autouse=True)
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    """Three sites, or the number that a test says."""
    torch._dynamo.reset()
    joinsum.init(sites=getattr(request, "param", 3), cluster=CUTTING)
    yield joinsum.sites()
    joinsum.init()


def models() -> tuple[nn.Module, nn.Module]:
    return new_model("mlp", torch.float64), new_model("mlp", torch.float64)


def data(count: int) -> list[tuple[Tensor, Tensor]]:
    return batches("mlp", count, dtype=torch.float64)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


class Noisy(nn.Module):
    """Dropout and batch norm, which differ between train and eval mode; the head is always in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.body = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Sequential(nn.Linear(12, 3), nn.Dropout(0.9)).eval()

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return self.head(self.body(x)) * scale


@BOTH
def test_a_model_is_called_between_steps_as_a_plain_one(sites: int) -> None:
    plain, planned = models()
    one, other = sgd(plain), sgd(planned)
    step = joinsum.train_step(planned, LOSS, other)
    for x, y in data(3):
        train_by_torch(plain, LOSS, one, [(x, y)])
        step(x, y)
        if sites == 3:
            assert divided(planned)
        torch.testing.assert_close(planned(x), plain(x))
        with torch.no_grad():
            found = planned(x[:4])
            assert not found.requires_grad
            torch.testing.assert_close(found, plain(x[:4]))
    step.sync()
    same(planned, plain, 1e-12)


@BOTH
def test_a_loss_between_steps_is_backpropagated() -> None:
    plain, planned = models()
    step = joinsum.train_step(planned, LOSS, sgd(planned))
    (first, (x, y), last) = data(3)
    train_by_torch(plain, LOSS, one := sgd(plain), [first])
    step(*first)
    for model in (plain, planned):
        LOSS(model(x) * 2, y).backward()
    for p, q in zip(planned.parameters(), plain.parameters(), strict=True):
        assert isinstance(p.grad, DistributedTensor)
        torch.testing.assert_close(p.grad.full_tensor(), q.grad)
        p.grad = q.grad = None
    train_by_torch(plain, LOSS, one, [last])
    step(*last)
    step.sync()
    same(planned, plain, 1e-12)


def test_evaluation_has_no_dropout_and_leaves_modes_and_buffers() -> None:
    model = Noisy().double()
    ((x, y),) = data(1)
    step = joinsum.train_step(model, F.cross_entropy, sgd(model))
    step(x, y)
    modes = [module.training for module in model.modules()]
    buffers = {name: gathered(b).clone() for name, b in model.named_buffers()}
    found = step.evaluate(x, scale=2.0)
    assert [module.training for module in model.modules()] == modes
    assert not found.requires_grad
    for name, b in model.named_buffers():
        assert torch.equal(gathered(b), buffers[name])
    torch.testing.assert_close(step.evaluate(x, scale=2.0), found, rtol=0, atol=0)
    step(x, y)
    changed = step.evaluate(x, scale=2.0)
    step.sync()
    torch.testing.assert_close(changed, model.eval()(x, scale=2.0).detach())
    assert not torch.allclose(changed, found)


def test_evaluation_restores_the_mode_after_an_error() -> None:
    model = Noisy().double()
    ((x, y),) = data(1)
    step = joinsum.train_step(model, F.cross_entropy, sgd(model))
    step(x, y)
    modes = [module.training for module in model.modules()]
    with pytest.raises(joinsum.CaptureError):
        step.evaluate(x[:, :5])
    assert [module.training for module in model.modules()] == modes
    step(x, y)


def test_evaluation_before_the_first_step_and_after_sync_is_the_models() -> None:
    plain, planned = models()
    ((x, y),) = data(1)
    step = joinsum.train_step(planned, LOSS, sgd(planned))
    torch.testing.assert_close(step.evaluate(x), plain(x).detach())
    step(x, y)
    step.sync()
    torch.testing.assert_close(step.evaluate(x), planned(x).detach())


@BOTH
def test_after_sync_the_models_own_forward_is_back_and_steps_go_on() -> None:
    plain, planned = models()
    one, other = sgd(plain), sgd(planned)
    step = joinsum.train_step(planned, LOSS, other)
    pairs = data(3)
    train_by_torch(plain, LOSS, one, pairs)
    for i, (x, y) in enumerate(pairs):
        step(x, y)
        planned(x)
        if i < 2:
            step.sync()
            assert "forward" not in planned.__dict__
            assert planned.forward.__func__ is type(planned).forward
            assert not any(isinstance(p, DistributedTensor) for p in planned.parameters())
            planned(x)
    step.sync()
    same(planned, plain, 1e-12)


# --- a forward of the instance ----------------------------------------------------------------------------------------


def patched(model: nn.Module) -> Callable[..., Any]:
    """Assigns a forward to the model, as accelerate does, and returns it."""
    original = model.forward

    def forward(x: Tensor) -> Tensor:
        return original(x * 2) + 1

    model.forward = forward
    return forward


def test_a_patched_forward_is_the_one_that_is_distributed() -> None:
    plain, model = models()
    patched(plain)
    forward = patched(model)
    ((x, y),) = data(1)
    joinsum.distribute(model, x)
    for each in (plain, model):
        LOSS(each(x), y).backward()
    torch.testing.assert_close(model(x), plain(x))
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(gathered(p.grad), q.grad)
    joinsum.gather(model)
    assert model.forward is forward
    torch.testing.assert_close(model(x), plain(x))


@BOTH
def test_a_patched_forward_is_the_one_that_is_trained() -> None:
    plain, model = models()
    patched(plain)
    forward = patched(model)
    one, other = sgd(plain), sgd(model)
    step = joinsum.train_step(model, LOSS, other)
    for x, y in data(3):
        train_by_torch(plain, LOSS, one, [(x, y)])
        step(x, y)
        torch.testing.assert_close(model(x), plain(x))
    step.sync()
    assert model.forward is forward
    same(model, plain, 1e-12)


# --- copies -----------------------------------------------------------------------------------------------------------


@BOTH
def test_a_copy_of_a_trained_model_is_a_model_of_its_own() -> None:
    plain, planned = models()
    first, second = data(2)
    step = joinsum.train_step(planned, LOSS, sgd(planned))
    train_by_torch(plain, LOSS, one := sgd(plain), [first])
    step(*first)
    average = copy.deepcopy(planned)
    before = plain(first[0]).detach()
    train_by_torch(plain, LOSS, one, [second])
    step(*second)
    torch.testing.assert_close(average(first[0]), before)
    torch.testing.assert_close(planned(first[0]), plain(first[0]))
    with torch.no_grad():
        for p, q in zip(average.parameters(), planned.parameters(), strict=True):
            p.copy_(q)
    torch.testing.assert_close(average(first[0]), plain(first[0]))
    joinsum.gather(average)
    assert all(type(p) is nn.Parameter for p in average.parameters())
    assert divided(planned) or joinsum.sites() == 1
    same(average, plain, 1e-12)
    step.sync()
    same(planned, plain, 1e-12)


def test_a_copy_of_a_patched_model_has_the_patch() -> None:
    plain, planned = models()
    patched(plain)
    planned.forward = _Doubled(planned)
    ((x, y),) = data(1)
    step = joinsum.train_step(planned, LOSS, sgd(planned))
    step(x, y)
    twin = copy.deepcopy(planned)
    with torch.no_grad():
        for p in planned.parameters():
            p.zero_()
    joinsum.gather(twin)
    assert isinstance(twin.forward, _Doubled)
    assert twin.forward.model is twin
    assert twin(x).abs().sum() > 0


class _Doubled:
    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __call__(self, x: Tensor) -> Tensor:
        return type(self.model).forward(self.model, x) * 2


# --- how samples and arguments are given ------------------------------------------------------------------------------


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor, *, mask: Tensor | None = None, scale: float = 1.0) -> dict[str, Tensor]:
        result = self.layer(x) * scale
        return {"result": result if mask is None else result * mask[:, None]}


@pytest.mark.parametrize(
    "sample",
    [
        lambda x, mask: ({"x": x, "mask": mask, "scale": 2.0}, None),
        lambda x, mask: ({"x": x}, {"mask": mask, "scale": 2.0}),
        lambda x, mask: (x, {"mask": mask, "scale": 2.0}),
        lambda x, mask: ((x,), {"mask": mask, "scale": 2.0}),
    ],
)
def test_a_sample_is_a_tensor_a_tuple_or_a_dictionary(
    sample: Callable[..., tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Named()
    x, mask = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)), torch.tensor([1.0, 0.0, 1.0, 1.0])
    model = joinsum.distribute(copy.deepcopy(plain), *sample(x, mask))
    assert all(isinstance(p, DistributedTensor) for p in model.parameters())
    monkeypatch.setattr(
        "joinsum.frontend.tracing.torch_internals.aot_autograd", None
    )  # the sample's graph is the call's
    for each in (plain, model):
        each(x, mask=mask, scale=2.0)["result"].square().sum().backward()
    torch.testing.assert_close(model(x=x, mask=mask, scale=2.0), plain(x=x, mask=mask, scale=2.0))
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(gathered(p.grad), q.grad)


def test_signature_name_and_documentation_of_forward_are_the_models() -> None:
    wanted = inspect.signature(Named().forward)
    x = torch.ones(2, 6)
    distributed = joinsum.distribute(Named(), x)
    trained = Named()
    joinsum.train_step(trained, lambda result, y: result["result"].sum(), sgd(trained))(x, x)
    for model in (distributed, trained):
        assert inspect.signature(model.forward) == wanted
        assert model.forward.__name__ == "forward"
        assert model.forward.__doc__ == Named.forward.__doc__
    assert inspect.signature(Named.forward) != wanted  # which has `self` besides


@pytest.mark.parametrize("backend", ["eager", "joinsum"])
def test_torch_compile_around_a_planned_model_leaves_it_as_it_is(backend: str) -> None:
    plain = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    model, x = copy.deepcopy(plain), torch.randn(6, 4)
    joinsum.distribute(model, x)
    torch.testing.assert_close(torch.compile(model, backend=backend)(x), plain(x))
    with pytest.raises(joinsum.PlanError, match="runs as plans already"):
        joinsum.compile(lambda y: model(y) * 2)(x)


def test_operators_know_the_modules_that_compute_them() -> None:
    """Also products with a bias, and those of a model of torch's own class, whose method Dynamo traces."""
    x = torch.ones(6, 10)
    model = joinsum.distribute(nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 4)), x)
    executable = model.forward.graph_for((x,), {}).programs[0].executable  # type: ignore[operator]
    modules = [each for each in executable.recorded.modules if each]
    assert modules == ["0", "0", "1", "2", "2"]  # a product and a sum for each layer


def test_a_planned_model_is_not_compiled_again() -> None:
    model, wanted = models()
    step = joinsum.train_step(model, LOSS, sgd(model))
    (x, y), *_ = data(1)
    step(x, y)
    with pytest.raises(joinsum.PlanError, match="its calls are planned already; call it as it is, or take"):
        joinsum.compile(model)
    step.sync()
    train_by_torch(wanted, LOSS, sgd(wanted), [(x, y)])
    torch.testing.assert_close(joinsum.compile(model)(x), wanted(x))
