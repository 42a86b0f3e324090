"""Claims about operators without rules: one error names all of them, with the user's lines, also of gradients."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import joinsum
import pytest
import torch
from joinsum.capture.missing_rules import refuse_missing_rules
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

FORWARD = ["aten::special_bessel_j0", "aten::segment_reduce", "aten::_pdist_forward"]
BACKWARD = ["aten::_pdist_backward", "aten::_segment_reduce_backward"]


@pytest.fixture(autouse=True, params=[1, 2])
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    torch._dynamo.reset()
    joinsum.init(sites=request.param)
    yield request.param
    joinsum.init()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        waves = torch.special.bessel_j0(self.layer.weight.detach())
        segments = torch.segment_reduce(self.layer(x), "sum", lengths=torch.tensor([1, 2]))
        distances = nn.functional.pdist(self.layer(x))
        return waves.sum() + segments.sum() + distances.sum()


SEGMENTS = 'torch.segment_reduce(self.layer(x), "sum", lengths=torch.tensor([1, 2]))'
LINES = {
    "aten::special_bessel_j0": "torch.special.bessel_j0(self.layer.weight.detach())",
    "aten::segment_reduce": SEGMENTS,
    "aten::_segment_reduce_backward": SEGMENTS,
    "aten::_pdist_forward": "nn.functional.pdist(self.layer(x))",
    "aten::_pdist_backward": "nn.functional.pdist(self.layer(x))",
}


def step(model: nn.Module, x: Tensor, replicate: list[str]) -> None:
    joinsum.train_step(model, None, torch.optim.SGD(model.parameters(), lr=0.1), replicate=replicate)(x)


def distributed(model: nn.Module, x: Tensor, replicate: list[str]) -> None:
    joinsum.distribute(model, x, replicate=replicate)(x).backward()


def compiled(model: nn.Module, x: Tensor, replicate: list[str]) -> None:
    joinsum.compile(model, replicate=replicate)(x).backward()


WAYS = [step, distributed, compiled]


def check(raised: pytest.ExceptionInfo[joinsum.CaptureError], names: list[str]) -> None:
    first, *lines, remedy = str(raised.value).splitlines()
    assert first == f"capture: there are no rules for these operators: count={len(names)}"
    found = {line.split(",")[0].removeprefix("  operator="): line for line in lines}
    assert found.keys() == set(names)
    for name, line in found.items():
        assert re.search(rf"shapes=\[\[\d.*test_missing_rules\.py.*{re.escape(LINES[name])}$", line)
    assert set(re.findall(r'"(aten::\w+)"', remedy.split("replicate=")[1])) == set(names)


@pytest.mark.parametrize("way", WAYS)
def test_all_operators_of_a_graph_without_rules_are_named_at_once(
    way: Callable[[nn.Module, Tensor, list[str]], None],
) -> None:
    with pytest.raises(joinsum.CaptureError) as raised:
        way(Model(), torch.rand(3, 4), [])
    check(raised, [*FORWARD, *BACKWARD] if way is step else FORWARD)


@pytest.mark.parametrize("way", WAYS)
def test_operators_of_the_backward_pass_have_the_line_of_the_forward_operator(
    way: Callable[[nn.Module, Tensor, list[str]], None],
) -> None:
    with pytest.raises(joinsum.CaptureError) as raised:
        way(Model(), torch.rand(3, 4), FORWARD)
    check(raised, BACKWARD)


@pytest.mark.parametrize("way", WAYS)
def test_replicated_operators_run(way: Callable[[nn.Module, Tensor, list[str]], None]) -> None:
    model, plain, x = Model(), Model(), torch.rand(3, 4)
    way(model, x, [*FORWARD, *BACKWARD])
    plain(x).backward()
    if way is step:
        torch.optim.SGD(plain.parameters(), lr=0.1).step()
    joinsum.gather(model)
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-5, atol=1e-5)
        if way is not step:
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-5)


def test_operators_of_constants_and_without_elements_need_no_rules() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.special.bessel_j0(torch.eye(3)) * x + torch.special.bessel_j0(x.new_zeros(0, 3)).sum()

    graph = make_fx(function, tracing_mode="fake")(torch.ones(3, 3)).graph
    refuse_missing_rules(graph.nodes)
