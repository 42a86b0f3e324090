"""Elementwise operators of torch as formulas of their arguments, for programs that compute several of them at once."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["arguments_in", "formula_of", "has_formula", "reduction_of"]

Arguments = Mapping[str, Any]
_TANH_GELU = f"{math.sqrt(2 / math.pi)!r}*(self + 0.044715*self*self*self)"
_NORMAL_DENSITY = repr(1 / math.sqrt(2 * math.pi))


def _gelu(given: Arguments) -> str:
    if given["approximate"] == "tanh":
        return f"0.5*self*(1 + tanh({_TANH_GELU}))"
    return "self*ndtr(self)"


def _gelu_backward(given: Arguments) -> str:
    if given["approximate"] == "tanh":
        t = f"tanh({_TANH_GELU})"
        slope = f"{math.sqrt(2 / math.pi)!r}*(1 + {3 * 0.044715!r}*self*self)"
        return f"grad_output*(0.5*(1 + {t}) + 0.5*self*(1 - {t}*{t})*({slope}))"
    return f"grad_output*(ndtr(self) + self*exp(-0.5*self*self)*{_NORMAL_DENSITY})"


def _power(given: Arguments) -> str:
    """As torch computes small powers."""
    exponent = given["exponent"]
    if not isinstance(exponent, (int, float)):
        return "pow(self, exponent)"
    known = {
        0.5: "sqrt(self)",
        1: "self",
        2: "self*self",
        3: "self*self*self",
        -0.5: "reciprocal(sqrt(self))",
        -1: "reciprocal(self)",
        -2: "reciprocal(self*self)",
    }
    return known.get(exponent, "pow(self, exponent)")


def _clamp(given: Arguments) -> str:
    low = "self" if given["min"] is None else "max(min, self)"
    return low if given["max"] is None else f"min(max, {low})"


def _elu_backward(given: Arguments) -> str:
    if given["is_result"]:
        below = "input_scale*(self_or_result + alpha*scale)"
    else:
        below = "input_scale*alpha*scale*exp(self_or_result*input_scale)"
    return f"where(self_or_result > 0, grad_output*scale, grad_output*({below}))"


def _lerp(given: Arguments) -> str:
    return "self + weight*(end - self)" if given["weight"] < 0.5 else "end - (end - self)*(1 - weight)"


def _normalised(given: Arguments) -> float:
    """What the gradient of a loss is multiplied by for its mean."""
    return 1 / max(1, given["elements"]) if given["reduction"] == 1 else 1.0


def _bce_backward(given: Arguments) -> str:
    weight = "" if given["weight"] is None else "*weight"
    slope = f"(self - target)/max((1 - self)*self, 1e-12){weight}"
    return f"grad_output*({slope})*{_normalised(given)!r}"


def _smooth_l1_backward(given: Arguments) -> str:
    slope = "where(self - target <= -beta, -1, where(self - target >= beta, 1, (self - target)/beta))"
    return f"grad_output*{_normalised(given)!r}*{slope}"


def _huber_backward(given: Arguments) -> str:
    return f"grad_output*{_normalised(given)!r}*min(max(self - target, -delta), delta)"


def _bce(given: Arguments) -> str:
    weight = "" if given["weight"] is None else "*weight"
    return f"((target - 1)*max(log1p(-unit(self)), -100) - target*max(log(unit(self)), -100)){weight}"


_SIXTH = "0.1666666716337204"  # torch's has single precision
_SIGMOID_GATE = "max(min(self + 3, 6), 0)/6"
_BETWEEN = "where(min(self > {0}, self < {1}), grad_output{2}, 0)"

# Results are numbers. An operand may be a truth value, which is 1 or 0. Of equal arguments, as of zeros of both signs,
# `max` and `min` give the second one.
_NUMBERS: dict[str, str | Callable[[Arguments], str]] = {
    **{
        f"aten::{name}": f"{name}(self)"
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
        ]
    },
    "aten::sgn": "sign(self)",
    "aten::sign": "sign(self)",
    "aten::rsqrt": "reciprocal(sqrt(self))",
    "aten::frac": "self - trunc(self)",
    "aten::add.Tensor": "self + other*alpha",
    "aten::add.Scalar": "self + other*alpha",
    "aten::sub.Tensor": "self - other*alpha",
    "aten::sub.Scalar": "self - other*alpha",
    "aten::rsub.Tensor": "other - self*alpha",
    "aten::rsub.Scalar": "other - self*alpha",
    "aten::mul.Tensor": "self*other",
    "aten::mul.Scalar": "self*other",
    "aten::div.Tensor": "self/other",
    "aten::div.Scalar": "self/other",
    "aten::maximum": "max(self, other)",
    "aten::minimum": "min(self, other)",
    "aten::atan2": "atan2(self, other)",
    "aten::fmod.Scalar": "fmod(self, other)",
    "aten::fmod.Tensor": "fmod(self, other)",
    "aten::pow.Tensor_Scalar": _power,
    "aten::pow.Tensor_Tensor": "pow(self, exponent)",
    "aten::pow.Scalar": "pow(self, exponent)",
    "aten::clamp": _clamp,
    "aten::clamp.Tensor": _clamp,
    "aten::clamp_min": "max(min, self)",
    "aten::clamp_min.Tensor": "max(min, self)",
    "aten::clamp_max": "min(max, self)",
    "aten::clamp_max.Tensor": "min(max, self)",
    "aten::lerp.Scalar": _lerp,
    "aten::lerp.Tensor": "where(abs(weight) < 0.5, self + weight*(end - self), end - (end - self)*(1 - weight))",
    "aten::addcmul": "self + tensor1*tensor2*value",
    "aten::addcdiv": "self + tensor1/tensor2*value",
    "aten::where.self": "where(condition, self, other)",
    "aten::masked_fill.Scalar": "where(mask, value, self)",
    "aten::masked_fill.Tensor": "where(mask, value, self)",
    "aten::relu": "max(0, self)",
    "aten::threshold": "where(self <= threshold, value, self)",
    "aten::threshold_backward": "where(self <= threshold, 0, grad_output)",
    "aten::sigmoid_backward": "grad_output*(1 - output)*output",
    "aten::tanh_backward": "grad_output*(1 - output*output)",
    "aten::silu": "self*sigmoid(self)",
    "aten::silu_backward": "grad_output*sigmoid(self)*(1 + self*(1 - sigmoid(self)))",
    "aten::gelu": _gelu,
    "aten::gelu_backward": _gelu_backward,
    "aten::softplus": "where(self*beta > threshold, self, log1p(exp(self*beta))/beta)",
    "aten::softplus_backward": "where(self*beta > threshold, grad_output, "
    "grad_output*exp(self*beta)/(exp(self*beta) + 1))",
    "aten::elu": "where(self <= 0, alpha*scale*expm1(self*input_scale), self*scale)",
    "aten::elu_backward": _elu_backward,
    "aten::leaky_relu": "where(self > 0, self, self*negative_slope)",
    "aten::leaky_relu_backward": "where(self > 0, grad_output, grad_output*negative_slope)",
    "aten::hardtanh": "min(max_val, max(min_val, self))",
    "aten::hardtanh_backward": _BETWEEN.format("min_val", "max_val", ""),
    "aten::hardswish": f"self*({_SIGMOID_GATE})",
    "aten::hardswish_backward": "where(self <= -3, 0, where(self >= 3, grad_output, grad_output*(self/3 + 0.5)))",
    "aten::hardsigmoid": _SIGMOID_GATE,
    "aten::hardsigmoid_backward": _BETWEEN.format("-3", "3", f"*{_SIXTH}"),
    "aten::mse_loss_backward": lambda given: f"grad_output*(self - target)*{2 * _normalised(given)!r}",
    "aten::binary_cross_entropy_backward": _bce_backward,
    "aten::smooth_l1_loss_backward": _smooth_l1_backward,
    "aten::huber_loss_backward": _huber_backward,
    "aten::mish": "self*tanh(log1p(exp(self)))",
    "aten::mish_backward": "grad_output*(tanh(log1p(exp(self))) + "
    "self*sigmoid(self)*(1 - tanh(log1p(exp(self)))*tanh(log1p(exp(self)))))",
}

# Results are sums or means of these, as the argument `reduction` says, or as they are.
_LOSSES: dict[str, str | Callable[[Arguments], str]] = {
    "aten::mse_loss": "(self - target)*(self - target)",
    "aten::binary_cross_entropy": _bce,
    "aten::smooth_l1_loss": "where(abs(self - target) < beta, 0.5*(self - target)*(self - target)/beta, "
    "abs(self - target) - 0.5*beta)",
    "aten::huber_loss": "where(abs(self - target) <= delta, 0.5*(self - target)*(self - target), "
    "delta*(abs(self - target) - 0.5*delta))",
}
_REDUCTIONS = ("", "mean", "sum")  # as `reduction` numbers them

# Results are truth values, and so are the operands of those that combine them.
_COMPARISONS: dict[str, str] = {
    **{
        f"aten::{name}.{kind}": f"self {sign} other"
        for name, sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items()
        for kind in ("Scalar", "Tensor")
    },
    "aten::isnan": "self != self",
    "aten::isinf": "abs(self) == inf",
}
_LOGIC: dict[str, str] = {
    "aten::logical_and": "self*other",
    "aten::bitwise_and.Tensor": "self*other",
    "aten::logical_or": "max(self, other)",
    "aten::bitwise_or.Tensor": "max(self, other)",
    "aten::logical_xor": "self != other",
    "aten::bitwise_xor.Tensor": "self != other",
    "aten::logical_not": "self == 0",
    "aten::bitwise_not": "self == 0",
}
_CONVERSIONS = ("aten::_to_copy", "prims::convert_element_type")


_SUMS = ("aten::sum", "aten::mean")
_NAMES = frozenset([*_NUMBERS, *_LOSSES, *_COMPARISONS, *_LOGIC, *_CONVERSIONS, *_SUMS])


def has_formula(name: str) -> bool:
    """Whether some calls of an operator, `aten::add.Tensor`, have a formula."""
    return name in _NAMES


def formula_of(name: str, given: Arguments, *, truth: bool, all_truth: bool) -> ast.expr | None:
    """The formula of an operator, `aten::add.Tensor`, in the names of its arguments; None where there is none. Of one
    that reduces, that of each element.

    given       the arguments; `elements` is how many the operands have together
    truth       whether its result is truth values
    all_truth   whether all of its operands are

    >>> ast.unparse(formula_of("aten::relu", {}, truth=False, all_truth=False))
    'max(0, self)'
    """
    if name in _SUMS:
        return _parsed("self") if given["dtype"] is None and not truth and not all_truth else None
    if name in _CONVERSIONS:
        operand = "self" if name == "aten::_to_copy" else "a"
        return _parsed(f"{operand} != 0" if truth and not all_truth else operand)
    if truth:
        text = _LOGIC.get(name) if all_truth else _COMPARISONS.get(name)
        return None if text is None else _parsed(text)
    formula = _NUMBERS.get(name) or _LOSSES.get(name)
    if formula is None:
        return None
    return _parsed(formula if isinstance(formula, str) else formula(given))


@functools.cache
def arguments_in(formula: ast.expr) -> frozenset[str]:
    """The names of the arguments that a formula reads.

    >>> sorted(arguments_in(ast.parse("min(max(self, min), inf)", mode="eval").body))
    ['min', 'self']
    """
    called = {id(each.func) for each in ast.walk(formula) if isinstance(each, ast.Call)}
    names = (each for each in ast.walk(formula) if isinstance(each, ast.Name) and id(each) not in called)
    return frozenset(each.id for each in names) - {"inf"}


def reduction_of(name: str, given: Arguments) -> str:
    """What an operator does to the elements of its formula: `sum`, `mean`, or nothing, "".

    >>> reduction_of("aten::mse_loss", {"reduction": 1})
    'mean'
    """
    if name in _SUMS:
        return name.removeprefix("aten::")
    return _REDUCTIONS[given["reduction"]] if name in _LOSSES else ""


@functools.cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
