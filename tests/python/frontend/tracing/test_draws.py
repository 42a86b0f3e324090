"""Claims about random draws that are not supported: the errors name the operator and the user's line."""

from __future__ import annotations

from collections.abc import Callable

import joinsum
import pytest
import torch
from joinsum.frontend.tracing.draws import check_draws
from torch import Tensor, distributions, fx, nn
from ways_in import WAYS, step_of


@pytest.fixture(autouse=True)
def two_sites() -> None:
    torch._dynamo.reset()
    joinsum.init(sites=2)


class Layer(nn.Module):
    def __init__(self, draw: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.draw = nn.Linear(4, 3), draw

    def forward(self, x: Tensor) -> Tensor:
        return self.draw(self.layer(x).exp())


def gamma(x: Tensor) -> Tensor:
    return distributions.Gamma(x, 1.0).rsample()


def beta(x: Tensor) -> Tensor:
    return distributions.Beta(x, x).rsample()


def dirichlet(x: Tensor) -> Tensor:
    return distributions.Dirichlet(x).rsample()


def student(x: Tensor) -> Tensor:
    return distributions.StudentT(x).rsample()


def poisson(x: Tensor) -> Tensor:
    return torch.poisson(x) * x


OPERATORS = {
    gamma: "aten::_standard_gamma",
    beta: "aten::_sample_dirichlet",
    dirichlet: "aten::_sample_dirichlet",
    student: "aten::_standard_gamma",
    poisson: "aten::poisson",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("draw", OPERATORS, ids=lambda draw: draw.__name__)
def test_a_draw_without_a_rule_is_refused_at_the_users_line(draw: Callable[[Tensor], Tensor], way: str) -> None:
    with pytest.raises(joinsum.CaptureError) as caught:
        WAYS[way](Layer(draw), torch.ones(2, 4))
    text = str(caught.value)
    assert text.startswith(f"capture: such random draws are not supported: operator={OPERATORS[draw]}: at ")
    assert "test_draws.py:" in text
    assert f" in {draw.__name__}, code=return " in text
    assert "draw with torch.rand, torch.randn or torch.randint" in text


def test_an_operator_that_torch_cannot_trace_is_named() -> None:
    def binomial(x: Tensor) -> Tensor:
        return torch.binomial(x.detach(), torch.sigmoid(x).detach()) * x

    with pytest.raises(joinsum.CaptureError, match=r"torch cannot trace this operator: operator=aten::binomial: at .*"):
        step_of(Layer(binomial), torch.ones(2, 4))


def test_draws_with_a_rule_of_the_users_are_not_refused() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.poisson, (x,)))
    gm = fx.GraphModule(nn.Module(), graph)
    with pytest.raises(joinsum.CaptureError, match=r"operator=aten::poisson; draw with"):
        check_draws(gm)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("joinsum.frontend.tracing.draws.rule_of", lambda _: object())
        check_draws(gm)


def test_torch_traces_gradients_of_draws() -> None:
    with torch._subclasses.FakeTensorMode():
        x = torch.ones(2, 3, requires_grad=True)
        (slope,) = torch.autograd.grad(torch._standard_gamma(x).sum(), x)
        assert slope.shape == (2, 3)
