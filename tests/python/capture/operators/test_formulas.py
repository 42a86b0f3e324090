"""Formulas of elementwise operators against torch's own operators, at ordinary and at special values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from joinsum.capture import table
from joinsum.capture.fusion import fuse_elementwise
from joinsum.capture.operators import formulas
from torch.fx.experimental.proxy_tensor import make_fx

_ATEN = torch.ops.aten
_SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.0, -3.0, 21.0, -21.0, float("inf"), -float("inf"), float("nan")]
Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def _operands(dtype: torch.dtype) -> Operands:
    torch.manual_seed(0)
    count = len(_SPECIAL) ** 2
    special = torch.tensor(_SPECIAL, dtype=dtype)
    more = 5000 - count
    x = torch.cat([special.repeat(len(_SPECIAL)), torch.randn(more, dtype=dtype)])
    y = torch.cat([special.repeat_interleave(len(_SPECIAL)), torch.randn(more, dtype=dtype)])
    return x, y, torch.randn(5000, dtype=dtype), torch.randn(5000, dtype=dtype)


def _unary(name: str) -> Callable[[Operands], Any]:
    return lambda o: getattr(_ATEN, name).default(o[0])


def _binary(name: str, overload: str) -> Callable[[Operands], Any]:
    second: Callable[[Operands], Any] = (lambda o: 0.5) if overload == "Scalar" else (lambda o: o[1])
    return lambda o: getattr(getattr(_ATEN, name), overload)(o[0], second(o))


_UNIT = lambda x: (x.nan_to_num().clamp(-2, 2) + 2.25) / 4.5  # noqa: E731
_CALLS: dict[str, list[Callable[[Operands], Any]]] = {
    **{
        f"aten::{name}": [_unary(name)]
        for name in [
            "neg",
            "abs",
            "floor",
            "ceil",
            "trunc",
            "round",
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "sqrt",
            "reciprocal",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "tanh",
            "erf",
            "erfc",
            "sigmoid",
            "sgn",
            "sign",
            "rsqrt",
            "frac",
            "relu",
            "silu",
            "mish",
            "hardswish",
            "hardsigmoid",
            "isnan",
            "isinf",
        ]
    },
    **{
        f"aten::{name}.{overload}": [_binary(name, overload)]
        for name in ["add", "sub", "rsub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "fmod"]
        for overload in ("Tensor", "Scalar")
    },
    "aten::maximum": [lambda o: _ATEN.maximum(o[0], o[1])],
    "aten::minimum": [lambda o: _ATEN.minimum(o[0], o[1])],
    "aten::atan2": [lambda o: _ATEN.atan2(o[0], o[1])],
    "aten::pow.Tensor_Scalar": [
        lambda o, e=e: _ATEN.pow.Tensor_Scalar(o[0], e) for e in (2, 3, 0.5, 1, -0.5, -1, -2, 1.7)
    ],
    "aten::pow.Tensor_Tensor": [lambda o: _ATEN.pow.Tensor_Tensor(o[0], o[1])],
    "aten::pow.Scalar": [lambda o: _ATEN.pow.Scalar(2.5, o[0])],
    "aten::clamp": [
        lambda o: _ATEN.clamp(o[0], -0.5, 1.5),
        lambda o: _ATEN.clamp(o[0], None, 1.5),
        lambda o: _ATEN.clamp(o[0], -0.5),
    ],
    "aten::clamp.Tensor": [lambda o: _ATEN.clamp.Tensor(o[0], o[2] - 1, o[2] + 1)],
    "aten::clamp_min": [lambda o: _ATEN.clamp_min(o[0], 0.25)],
    "aten::clamp_min.Tensor": [lambda o: _ATEN.clamp_min.Tensor(o[0], o[1])],
    "aten::clamp_max": [lambda o: _ATEN.clamp_max(o[0], 0.25)],
    "aten::clamp_max.Tensor": [lambda o: _ATEN.clamp_max.Tensor(o[0], o[1])],
    "aten::lerp.Scalar": [lambda o, w=w: _ATEN.lerp.Scalar(o[2], o[2] * 2, w) for w in (0.3, 0.8)],
    "aten::lerp.Tensor": [lambda o: _ATEN.lerp.Tensor(o[2], o[2] * 2, _UNIT(o[0]))],
    "aten::addcmul": [
        lambda o: _ATEN.addcmul(o[2], o[0], o[1]),
        lambda o: _ATEN.addcmul(o[2], o[2], o[2], value=-2),
    ],
    "aten::addcdiv": [lambda o: _ATEN.addcdiv(o[2], o[2], o[2] + 9, value=3)],
    "aten::where.self": [lambda o: _ATEN.where.self(o[2] > 0, o[0], o[1])],
    "aten::masked_fill.Scalar": [lambda o: _ATEN.masked_fill.Scalar(o[0], o[2] > 0, -float("inf"))],
    "aten::masked_fill.Tensor": [lambda o: _ATEN.masked_fill.Tensor(o[0], o[2] > 0, o[2].new_tensor(7))],
    "aten::threshold": [lambda o: _ATEN.threshold(o[0], 0.5, 20)],
    "aten::threshold_backward": [lambda o: _ATEN.threshold_backward(o[2], o[0], 0.5)],
    "aten::sigmoid_backward": [lambda o: _ATEN.sigmoid_backward(o[2], _UNIT(o[0]))],
    "aten::tanh_backward": [lambda o: _ATEN.tanh_backward(o[2], _UNIT(o[0]))],
    "aten::silu_backward": [lambda o: _ATEN.silu_backward(o[2], o[0].clamp(-50, 50))],
    "aten::gelu": [lambda o, how=how: _ATEN.gelu(o[0].clamp(-9, 9), approximate=how) for how in ("none", "tanh")],
    "aten::gelu_backward": [
        lambda o, how=how: _ATEN.gelu_backward(o[2], o[0].clamp(-9, 9), approximate=how) for how in ("none", "tanh")
    ],
    "aten::softplus": [lambda o, b=b: _ATEN.softplus(o[0], b, 9) for b in (1, 0.5)],
    "aten::softplus_backward": [lambda o: _ATEN.softplus_backward(o[2], o[0], 2, 9)],
    "aten::elu": [lambda o: _ATEN.elu(o[0], 1.5, 2.0, 0.5)],
    "aten::elu_backward": [
        lambda o: _ATEN.elu_backward(o[2], 1.5, 2.0, 0.5, False, o[0]),
        lambda o: _ATEN.elu_backward(o[2], 1.5, 2.0, 0.5, True, o[0].clamp(-2)),
    ],
    "aten::leaky_relu": [lambda o: _ATEN.leaky_relu(o[0], 0.1)],
    "aten::leaky_relu_backward": [lambda o: _ATEN.leaky_relu_backward(o[2], o[0], 0.1, False)],
    "aten::hardtanh": [lambda o: _ATEN.hardtanh(o[0], -0.5, 2)],
    "aten::hardtanh_backward": [lambda o: _ATEN.hardtanh_backward(o[2], o[0], -0.5, 2.5)],
    "aten::hardswish_backward": [lambda o: _ATEN.hardswish_backward(o[2], o[0])],
    "aten::hardsigmoid_backward": [lambda o: _ATEN.hardsigmoid_backward(o[2], o[0])],
    "aten::mish_backward": [lambda o: _ATEN.mish_backward(o[2], o[0].clamp(-50, 50))],
    "aten::logical_and": [lambda o: _ATEN.logical_and(o[0] > 0, o[1] > 0)],
    "aten::logical_or": [lambda o: _ATEN.logical_or(o[0] > 0, o[1] > 0)],
    "aten::logical_xor": [lambda o: _ATEN.logical_xor(o[0] > 0, o[1] > 0)],
    "aten::logical_not": [lambda o: _ATEN.logical_not(o[0] > 0)],
    "aten::bitwise_and.Tensor": [lambda o: _ATEN.bitwise_and.Tensor(o[0] > 0, o[1] > 0)],
    "aten::bitwise_or.Tensor": [lambda o: _ATEN.bitwise_or.Tensor(o[0] > 0, o[1] > 0)],
    "aten::bitwise_xor.Tensor": [lambda o: _ATEN.bitwise_xor.Tensor(o[0] > 0, o[1] > 0)],
    "aten::bitwise_not": [lambda o: _ATEN.bitwise_not(o[0] > 0)],
    "aten::_to_copy": [
        lambda o: _ATEN._to_copy(o[0] > 0, dtype=o[0].dtype),
        lambda o: _ATEN._to_copy(o[0].nan_to_num(), dtype=torch.bool),
    ],
    "prims::convert_element_type": [lambda o: torch.ops.prims.convert_element_type(o[0] > 0, o[0].dtype)],
    "aten::sum": [lambda o: _ATEN.sum(o[2])],
    "aten::mean": [lambda o: _ATEN.mean(o[2])],
    **{
        f"aten::{name}": [lambda o, name=name, r=r: getattr(_ATEN, name)(o[2], o[3], r) for r in (0, 1, 2)]
        for name in ("mse_loss", "smooth_l1_loss", "huber_loss")
    },
    "aten::mse_loss_backward": [
        lambda o, r=r: _ATEN.mse_loss_backward(o[2] if r == 0 else o[2][0], o[2], o[3], r) for r in (0, 1, 2)
    ],
    "aten::smooth_l1_loss_backward": [
        lambda o, r=r: _ATEN.smooth_l1_loss_backward(o[2] if r == 0 else o[2][0], o[2], o[3], r, 0.7) for r in (0, 1, 2)
    ],
    "aten::huber_loss_backward": [
        lambda o, r=r: _ATEN.huber_loss_backward(o[2] if r == 0 else o[2][0], o[2], o[3], r, 0.7) for r in (0, 1, 2)
    ],
    "aten::binary_cross_entropy": [
        lambda o, r=r, w=w: _ATEN.binary_cross_entropy(_UNIT(o[0]), _UNIT(o[2]), o[2] if w else None, r)
        for r in (0, 1, 2)
        for w in (False, True)
    ],
    "aten::binary_cross_entropy_backward": [
        lambda o, r=r, w=w: _ATEN.binary_cross_entropy_backward(
            o[2] if r == 0 else o[2][0], _UNIT(o[0]), _UNIT(o[2]), o[2] if w else None, r
        )
        for r in (0, 1, 2)
        for w in (False, True)
    ],
}


def test_each_operator_has_a_call_here() -> None:
    assert set(_CALLS) == formulas._NAMES


def test_each_formula_is_of_an_operator_of_the_table() -> None:
    assert {row.name for row in table()} >= formulas._NAMES


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("name", sorted(_CALLS))
def test_a_formula_is_its_operator(name: str, dtype: torch.dtype) -> None:
    operands = _operands(dtype)
    for call in _CALLS[name]:

        def among_others(*given: torch.Tensor, call: Callable[[Operands], Any] = call) -> torch.Tensor:
            result = call(tuple(x * 2 for x in given))  # type: ignore[arg-type]
            return torch.where(result, given[0], given[2]) if result.dtype is torch.bool else result * 1.5

        traced = make_fx(among_others, tracing_mode="fake")(*operands)
        expected = traced(*operands)
        fuse_elementwise(traced.graph)
        traced.graph.lint()
        names = [_name(node) for node in traced.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
        assert "joinsum::fused" in names
        assert name == "aten::mul.Tensor" or name not in names
        traced.recompile()
        actual = traced(*operands)
        assert actual.dtype is expected.dtype
        assert actual.shape == expected.shape
        tolerance = 5e-6 if dtype is torch.float32 else 1e-12
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def _name(node: torch.fx.Node) -> str:
    overload = node.target._overloadname  # type: ignore[union-attr]
    return node.target._schema.name + ("" if overload == "default" else f".{overload}")  # type: ignore[union-attr]
