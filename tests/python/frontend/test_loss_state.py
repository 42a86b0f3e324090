"""Claims about parameters and buffers that a training step's loss function owns: they change as in plain torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joinsum
import pytest
import torch
from joinsum.distributed.distributed_tensor import DistributedTensor
from joinsum.frontend.training.optimizers import UPDATES
from torch import Tensor, nn

Make = Callable[[list[Tensor]], torch.optim.Optimizer]
# A model, a loss function, and the tensors that the steps change.
Parts = tuple[nn.Module, Callable[..., Any], list[Tensor]]


@pytest.fixture(autouse=True, params=[1, 3])
def sites(request: pytest.FixtureRequest) -> int:
    torch._dynamo.reset()
    joinsum.init(sites=request.param)
    return request.param  # type: ignore[no-any-return]


class Centers(nn.Module):
    """A loss with a parameter, a running mean in place, one that is assigned anew, and a counter."""

    running: Tensor
    assigned: Tensor
    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.centers = nn.Parameter(torch.randn(4, 4))
        self.register_buffer("running", torch.zeros(4))
        self.register_buffer("assigned", torch.zeros(4))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, result: Tensor, target: Tensor) -> Tensor:
        shifted = result - self.running - self.assigned
        loss = nn.functional.cross_entropy(result, target) + (shifted - self.centers[target]).square().mean()
        with torch.no_grad():
            self.running.mul_(0.9).add_(result.mean(0), alpha=0.1)
            self.assigned = self.assigned * 0.9 + result.mean(0) * 0.1
            self.steps += 1
        return loss

    def method(self, result: Tensor, target: Tensor) -> Tensor:
        return self(result, target)  # type: ignore[no-any-return]


class Owner:
    """An object that is no module and has one."""

    def __init__(self, centers: Centers) -> None:
        self.centers = centers

    def __call__(self, result: Tensor, target: Tensor) -> Tensor:
        return self.centers(result, target)  # type: ignore[no-any-return]


def in_two_functions(centers: Centers) -> Callable[..., Any]:
    def inner(result: Tensor, target: Tensor) -> Any:
        return centers(result, target)

    return lambda result, target: inner(result, target)


FORMS: dict[str, Callable[[Centers], Callable[..., Any]]] = {
    "module": lambda centers: centers,
    "bound method": lambda centers: centers.method,
    "closure": lambda centers: lambda result, target: centers(result, target),
    "closure of a closure": in_two_functions,
    "partial": lambda centers: functools.partial(lambda loss, result, target: loss(result, target), centers),
    "object": Owner,
    "method of an object": lambda centers: Owner(centers).__call__,
}


def with_centers(form: str) -> Parts:
    torch.manual_seed(0)
    model, centers = nn.Linear(8, 4), Centers()
    return model, FORMS[form](centers), [*model.parameters(), *centers.parameters()]


def with_variables() -> Parts:
    """A loss whose parameters are plain variables, one without axes and one that it does not use."""
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    centers, temperature, unused = (nn.Parameter(torch.randn(shape)) for shape in [(4, 4), (), (3,)])
    variables = [centers, temperature]

    def loss(result: Tensor, target: Tensor) -> Tensor:
        scaled = result * variables[1].exp()
        return nn.functional.cross_entropy(scaled, target) + (result - centers[target]).square().mean()

    return model, loss, [*model.parameters(), centers, temperature, unused]


def batches(count: int = 4) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(5)
    return [
        (torch.randn(6, 8, generator=generator), torch.randint(0, 4, (6,), generator=generator)) for _ in range(count)
    ]


def sgd(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def trained(parts: Parts, optimizer: Make, accumulate: int = 1) -> list[Tensor]:
    """The losses of plain torch, and then what its steps change."""
    model, loss_function, tensors = parts
    update, losses = optimizer(tensors), []
    for i, (x, y) in enumerate(batches()):
        loss = loss_function(model(x), y)
        (loss / accumulate).backward()
        losses.append(loss.detach())
        if (i + 1) % accumulate == 0:
            update.step()
            update.zero_grad()
    return [*losses, *_state(tensors, loss_function)]


def planned(parts: Parts, optimizer: Make, accumulate: int = 1) -> list[Tensor]:
    """The same by steps of joinsum."""
    model, loss_function, tensors = parts
    step = joinsum.train_step(model, loss_function, optimizer(tensors), accumulate=accumulate)
    losses = [step(x, y) for x, y in batches()]
    step.sync()
    return [*losses, *_state(tensors, loss_function)]


def _state(tensors: list[Tensor], loss_function: Any) -> list[Tensor]:
    buffers = loss_function.buffers() if isinstance(loss_function, nn.Module) else ()
    return [x.detach().clone() for x in (*tensors, *buffers)]


def same(actual: list[Tensor], wanted: list[Tensor]) -> None:
    torch.testing.assert_close(actual, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_parameters_of_a_loss_are_trained(form: str) -> None:
    same(planned(with_centers(form), sgd), trained(with_centers(form), sgd))


def test_parameters_that_no_module_holds_are_trained_and_stay_plain() -> None:
    parts = with_variables()
    same(planned(parts, sgd), trained(with_variables(), sgd))
    assert all(type(p) is nn.Parameter for p in parts[2])


def test_gradients_of_a_loss_are_accumulated() -> None:
    same(planned(with_centers("module"), sgd, 2), trained(with_centers("module"), sgd, 2))
    same(planned(with_variables(), sgd, 2), trained(with_variables(), sgd, 2))


ELEMENTWISE = [kind for kind in UPDATES if kind not in (torch.optim.SGD, torch.optim.Muon, torch.optim.SparseAdam)]


@pytest.mark.parametrize("kind", ELEMENTWISE)
def test_every_optimizer_trains_them(kind: type[torch.optim.Optimizer], sites: int) -> None:
    if sites == 1:
        pytest.skip("the update is the same on one site")

    def optimizer(parameters: list[Tensor]) -> torch.optim.Optimizer:
        return kind(parameters, lr=0.05)  # type: ignore[call-arg]

    torch.testing.assert_close(
        planned(with_centers("closure"), optimizer), trained(with_centers("closure"), optimizer), rtol=1e-4, atol=1e-5
    )


def test_parameters_that_a_model_holds_in_a_list_are_trained() -> None:
    class Hidden(nn.Linear):
        def __init__(self) -> None:
            super().__init__(8, 4)
            self.scales = [nn.Parameter(torch.ones(4))]

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * self.scales[0]

    def parts() -> Parts:
        torch.manual_seed(0)
        model = Hidden()
        return model, nn.functional.cross_entropy, [*model.parameters(), *model.scales]

    same(planned(parts(), sgd), trained(parts(), sgd))


def test_parameters_that_take_no_part_do_not_change() -> None:
    model, other = nn.Linear(8, 4), nn.Parameter(torch.ones(3))
    step = joinsum.train_step(model, nn.functional.cross_entropy, sgd([*model.parameters(), other]))
    for x, y in batches():
        step(x, y)
    assert torch.equal(other, torch.ones(3))


def test_a_loss_may_share_parameters_with_the_model_and_hold_it() -> None:
    class Decay(nn.Module):
        def __init__(self, model: nn.Linear) -> None:
            super().__init__()
            self.model, self.weight, self.scale = model, model.weight, nn.Parameter(torch.tensor(2.0))

        def forward(self, result: Tensor, target: Tensor) -> Tensor:
            others = self.model(torch.ones(1, 8)).square().mean()
            return nn.functional.cross_entropy(result * self.scale, target) + self.weight.square().mean() + others  # type: ignore[no-any-return]

    def parts() -> Parts:
        torch.manual_seed(0)
        model = nn.Linear(8, 4)
        loss = Decay(model)
        return model, loss, [*model.parameters(), loss.scale]

    same(planned(parts(), sgd), trained(parts(), sgd))


def test_between_steps_a_losss_tensors_are_distributed_under_their_names() -> None:
    model, centers, tensors = with_centers("module")
    assert isinstance(centers, Centers)
    step = joinsum.train_step(model, centers, sgd(tensors))
    for x, y in batches(2):
        step(x, y)
    assert all(isinstance(x, DistributedTensor) for x in (centers.centers, centers.running, centers.steps))
    assert list(model.state_dict()) == ["weight", "bias"]
    assert list(step.state_dict()["loss"]) == ["centers", "running", "assigned", "steps"]
    assert "loss.centers" in str(step.explain())
    step.sync()
    assert type(centers.centers) is nn.Parameter
    assert centers.steps.item() == 2


def test_a_child_of_the_model_may_be_called_loss() -> None:
    def parts() -> Parts:
        torch.manual_seed(0)
        model, centers = nn.Sequential(), Centers()
        model.add_module("loss", nn.Linear(8, 4))
        return model, centers, [*model.parameters(), *centers.parameters()]

    same(planned(parts(), sgd), trained(parts(), sgd))


def test_a_checkpoint_of_model_and_loss_continues(tmp_path: Path) -> None:
    wanted = trained(with_centers("module"), sgd)
    model, centers, tensors = with_centers("module")
    assert isinstance(centers, Centers)
    optimizer = sgd(tensors)
    step = joinsum.train_step(model, centers, optimizer)
    for x, y in batches()[:2]:
        step(x, y)
    joinsum.save_checkpoint(tmp_path, nn.ModuleDict({"model": model, "loss": centers}), optimizer)
    model, centers, tensors = with_centers("module")
    assert isinstance(centers, Centers)
    optimizer = sgd(tensors)
    joinsum.load_checkpoint(tmp_path, nn.ModuleDict({"model": model, "loss": centers}), optimizer)
    step = joinsum.train_step(model, centers, optimizer)
    losses = [step(x, y) for x, y in batches()[2:]]
    step.sync()
    same([*losses, *_state(tensors, centers)], wanted[2:])


def test_a_tensor_that_the_loss_counts_in_stays_plain() -> None:
    count = torch.zeros(())

    def loss(result: Tensor, target: Tensor) -> Tensor:
        count.add_(1)
        return nn.functional.cross_entropy(result, target)

    model = nn.Linear(8, 4)
    step = joinsum.train_step(model, loss, sgd(list(model.parameters())))
    for x, y in batches():
        step(x, y)
    assert type(count) is Tensor
    assert count == 4


def test_a_parameter_that_capture_cannot_reach_is_refused() -> None:
    scale = nn.Parameter(torch.ones(4))

    @torch._dynamo.allow_in_graph  # type: ignore[untyped-decorator]
    def hidden(x: Tensor) -> Tensor:
        return x * scale

    model = nn.Linear(8, 4)
    step = joinsum.train_step(
        model, lambda x, y: nn.functional.cross_entropy(hidden(x), y), sgd([*model.parameters(), scale])
    )
    with pytest.raises(joinsum.CaptureError, match=r"neither an input nor the model's .*make it a parameter of the"):
        step(*batches(1)[0])
