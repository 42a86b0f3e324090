"""Claims about gradients inside of a traced graph: their operators know the forward operators."""

from __future__ import annotations

import torch
from joinsum.capture.numbered_gradients import numbered_gradients
from torch import Tensor
from torch.fx import traceback
from torch.fx.experimental.proxy_tensor import make_fx


def slope(x: Tensor) -> Tensor:
    return numbered_gradients(torch.tanh(x).exp().sum(), x)[0]


def test_they_are_torchs() -> None:
    x = torch.randn(4, requires_grad=True)
    (wanted,) = torch.autograd.grad(torch.tanh(x).exp().sum(), x)
    torch.testing.assert_close(slope(x), wanted, rtol=0, atol=0)


def test_second_gradients_are_torchs() -> None:
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    (first,) = numbered_gradients([torch.tanh(x).sum(), x.exp().sum()], [x], create_graph=True)
    (second,) = numbered_gradients(first.sum(), x)
    torch.testing.assert_close(second, -2 * torch.tanh(x) * (1 - torch.tanh(x) ** 2) + x.exp(), rtol=1e-10, atol=1e-10)


def test_an_operator_of_the_gradient_has_the_number_of_its_forward_operator() -> None:
    with traceback.preserve_node_meta():
        graph = make_fx(slope)(torch.randn(4, requires_grad=True)).graph
    numbers = {str(node.target): node.meta["seq_nr"] for node in graph.nodes if node.op == "call_function"}
    assert numbers["aten.tanh_backward.default"] == numbers["aten.tanh.default"]
    assert numbers["aten.expand.default"] == numbers["aten.sum.default"]
    assert len({numbers[f"aten.{name}.default"] for name in ("tanh", "exp", "sum")}) == 3
