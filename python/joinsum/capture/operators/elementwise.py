"""Operators that do the same to each element. Linear ones become einsums, whose partial sums stay pending."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from joinsum.capture.recording.application import Application
from joinsum.capture.recording.symbolic_numbers import NUMBERS
from joinsum.capture.recording.values import Arguments, Names, Value, axis_names
from joinsum.capture.recording.vertices import as_dtype, einsum, expanded, mapped, pointwise, scaled
from joinsum.capture.rules.along import Along
from joinsum.capture.rules.form import Form, call_arguments, form_of
from joinsum.capture.rules.pointwise import Pointwise
from joinsum.capture.rules.row import Entry, Results, Rule, Traits, rows

__all__ = ["EACH_ELEMENT", "ROWS", "right_aligned"]


def right_aligned(values: Sequence[Value]) -> tuple[list[tuple[Value, Names]], Names]:
    """Operands whose shapes broadcast with names of their axes, and the names of the result's axes."""
    order = axis_names(max(len(value.axes) for value in values))
    return [(value, order[len(order) - len(value.axes) :]) for value in values], order


def _linear(kernel: str) -> Rule:
    """⊗ of two tensors: an einsum where they are floats; a product with a number scales."""

    def rule(application: Application) -> Results:
        dtype = application.dtype
        left, right = application.arguments["self"], application.arguments["other"]
        if not isinstance(left, Value) or not dtype.is_floating_point:
            return Pointwise()(application)
        if isinstance(right, NUMBERS):
            if kernel not in ("mul", "div") or (kernel == "div" and right == 0):
                return Pointwise()(application)
            return [scaled(as_dtype(left, dtype), right * 1.0 if kernel == "mul" else 1 / right)]
        assert isinstance(right, Value)
        values = [as_dtype(left, dtype), as_dtype(right, dtype)]
        alpha = application.arguments.get("alpha", 1)
        if alpha != 1:
            values[1] = scaled(values[1], application.scalar("alpha") * 1.0)
        return [einsum(*right_aligned(values), kernel)]

    return rule


def _neg(application: Application) -> Results:
    value = application.value("self")
    if value.dtype.is_floating_point:
        return [mapped(value, "negate")]
    return Pointwise()(application.of(torch.ops.aten.neg.default, {"self": value}, application.type))


def _same(application: Application) -> Results:
    return [next(value for _, value in application.tensors())]


def _to_copy(application: Application) -> Results:
    ((_, value),) = application.tensors()
    return [value] if value.dtype is application.dtype else Pointwise()(application)


def _copy(application: Application) -> Results:
    source = application.arguments.get("src", application.arguments.get("value"))
    assert isinstance(source, Value)
    return [expanded(as_dtype(source, application.dtype), application.shape)]


def _fused(application: Application) -> Results:
    """A program of functions; those that are as fast as memory take nothing beside it."""
    program = application.arguments["program"]
    assert isinstance(program, str)
    steps = [step.split()[0] for step in program.partition("->")[0].split(";")]

    def arguments(blocks: Sequence[object]) -> Arguments:
        return call_arguments(application, {"operands": list(blocks)})

    dtypes = [dtype for _, dtype in application.types]
    simple = _SIMPLE.split()
    flops = max(1, 8 * sum(step not in simple for step in steps))
    return pointwise(application.name, application.values("operands"), dtypes, arguments, flops)


def _glu_backward(application: Application) -> Results:
    """The gradient has half of the extent along the axis that the gate halves."""
    names = axis_names(len(application.shape))
    dim = application.dim("dim", len(names))
    half = [*names[:dim], "half", *names[dim + 1 :]]
    return form_of([half, names], [names], [names[dim], "half"])(application)


_SIMPLE = "add sub mul div neg abs sign floor ceil round trunc max min where eq ne lt le gt ge unit"
_LOGIC = """
eq.Scalar eq.Tensor ne.Scalar ne.Tensor lt.Scalar lt.Tensor le.Scalar le.Tensor gt.Scalar gt.Tensor ge.Scalar ge.Tensor
logical_and logical_or logical_xor logical_not bitwise_and.Tensor bitwise_and.Scalar bitwise_or.Tensor bitwise_or.Scalar
bitwise_xor.Tensor bitwise_xor.Scalar bitwise_not isnan isinf isposinf isneginf signbit
where.self masked_fill.Scalar masked_fill.Tensor
"""
_ARITHMETIC = """
abs sign sgn ceil floor round trunc frac clamp clamp.Tensor clamp_min clamp_max clamp_min.Tensor clamp_max.Tensor
add.Scalar sub.Scalar rsub.Scalar rsub.Tensor maximum minimum fmax fmin fmod.Scalar fmod.Tensor remainder.Scalar
remainder.Tensor div.Tensor_mode div.Scalar_mode floor_divide floor_divide.Scalar reciprocal copysign.Tensor
copysign.Scalar
bitwise_left_shift.Tensor bitwise_right_shift.Tensor nan_to_num round.decimals heaviside nextafter gcd lcm
deg2rad rad2deg ldexp.Tensor
prims::fma lerp.Scalar lerp.Tensor addcmul addcdiv
"""
_FUNCTIONS = """
exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh asinh acosh atanh atan2 erf erfc
erfinv lgamma digamma pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar xlogy.Tensor logaddexp logaddexp2 hypot sinc i0
polygamma special_i0e special_i1 special_i1e special_erfcx special_ndtri special_log_ndtr
special_zeta special_zeta.other_scalar special_zeta.self_scalar frexp.Tensor
igamma igammac
"""
_ACTIVATIONS = """
relu gelu gelu_backward silu silu_backward sigmoid sigmoid_backward tanh tanh_backward threshold threshold_backward
softplus softplus_backward elu elu_backward leaky_relu leaky_relu_backward hardtanh hardtanh_backward hardswish
hardswish_backward hardsigmoid hardsigmoid_backward mish mish_backward log_sigmoid_forward log_sigmoid_backward
logit logit_backward celu
"""

EACH_ELEMENT = "each element by itself; shapes broadcast, all labels may be divided"
_CONVERTED = "the same value, or each element converted"

ROWS = [
    *rows(
        "arithmetic",
        Entry("add.Tensor", _linear("add"), "floats: an einsum joined by add; else each element by itself"),
        Entry("sub.Tensor", _linear("sub"), "floats: an einsum joined by sub; else each element by itself"),
        Entry("mul.Tensor mul.Scalar", _linear("mul"), "floats: an einsum joined by mul, or scaled by a number"),
        Entry("div.Tensor div.Scalar", _linear("div"), "floats: an einsum joined by div, or scaled by a number"),
        Entry("neg _neg_view", _neg, "floats: an einsum with the map negate"),
        Entry(_ARITHMETIC, Pointwise(), EACH_ELEMENT),
    ),
    *rows(
        "logic",
        Entry(_LOGIC, Pointwise(), EACH_ELEMENT),
        Entry("joinsum::checked", Form("->"), "`_assert_async`: raises where the condition is false"),
        Entry(
            "joinsum::checked_factors",
            Form("*b ->", "*b"),
            "`_linalg_check_errors`: raises where a matrix has no factors",
        ),
    ),
    *rows("functions", Entry(_FUNCTIONS, Pointwise(8), EACH_ELEMENT)),
    *rows(
        "activations",
        Entry(_ACTIVATIONS, Pointwise(8, equal=True), EACH_ELEMENT),
        Entry("_prelu_kernel _prelu_kernel_backward", Pointwise(2), EACH_ELEMENT),
        Entry("glu", Along(flops=8), "along `dim`, which is undivided"),
        Entry("glu_backward", _glu_backward, "along `dim`, which is undivided"),
    ),
    *rows(
        "programs", Entry("joinsum::fused", _fused, "several of these operators in one pass; all labels may be divided")
    ),
    *rows("updates", Entry("joinsum::adam_update joinsum::amsgrad_update", Pointwise(16), EACH_ELEMENT)),
    *rows(
        "copies",
        Entry("clone detach alias lift_fresh_copy", _same, "the same value"),
        Entry("_to_copy", _to_copy, _CONVERTED, Traits(may_alias=True)),
        Entry("prims::convert_element_type", _to_copy, _CONVERTED),
        Entry("copy fill.Tensor", _copy, "the source, converted and repeated to the shape of the target"),
    ),
]
