"""Claims about assertions of a tensor's value in captured code: they are checked in each run, as torch does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import joinsum
import pytest
import torch
from asserting import CHECKS, rounded
from joinsum.frontend.tracing.assertions import assert_tensors
from torch import Tensor, nn


@pytest.fixture(autouse=True)
def two_sites() -> Iterator[None]:
    torch._dynamo.reset()
    joinsum.init(sites=2)
    yield
    joinsum.init()


class Checked(nn.Module):
    def __init__(self, check: Callable[[Tensor], None]) -> None:
        super().__init__()
        self.layer, self.check = nn.Linear(2, 3), check

    def forward(self, x: Tensor) -> Tensor:
        self.check(x)
        return self.layer(x)


@pytest.mark.parametrize("check", CHECKS)
def test_they_hold_or_stop_the_step(check: Callable[[Tensor], None]) -> None:
    model, x = Checked(check), torch.rand(4, 2) + 0.1
    step = joinsum.train_step(model, lambda y, t: (y - t).square().sum(), torch.optim.SGD(model.parameters(), 0.1))
    wanted = (model.layer(x) - 1).square().sum()
    torch.testing.assert_close(step(x, torch.ones(4, 3)), wanted.detach())
    before = joinsum.full_state_dict(model)
    x[2, 1] = -0.5
    with pytest.raises((joinsum.KernelError, RuntimeError), match="assertion"):
        step(x, torch.ones(4, 3))
    torch.testing.assert_close(joinsum.full_state_dict(model), before, rtol=0, atol=0)


@pytest.mark.parametrize("check", CHECKS)
def test_they_hold_or_stop_a_distributed_model(check: Callable[[Tensor], None]) -> None:
    x = torch.rand(4, 2) + 0.1
    model = Checked(check)
    wanted = model.layer(x).detach()
    joinsum.distribute(model, x)
    torch.testing.assert_close(model(x).detach(), wanted)
    x[2, 1] = -0.5
    with pytest.raises((joinsum.KernelError, RuntimeError), match="assertion"):
        model(x)


def test_numbers_that_are_used_otherwise_are_left() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    number = graph.call_method("item", (graph.call_function(torch.max, (x,)),))
    graph.call_function(
        torch.ops.aten._assert_scalar.default, (graph.call_function(torch.ops.aten.add, (number, 1)), "")
    )
    graph.output((number,))
    gm = torch.fx.GraphModule({}, graph)
    before = str(gm.graph)
    assert_tensors(gm)
    assert str(gm.graph) == before


def test_numbers_are_as_wide_as_pythons() -> None:
    """A tenth in single precision is another number."""
    model = Checked(rounded)
    joinsum.distribute(model, torch.ones(4, 2))
    assert model(torch.ones(4, 2)).shape == (4, 3)
