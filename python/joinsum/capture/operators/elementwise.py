"""Operators that do the same to each element. What is linear becomes einsums, so that pending sums pass through."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from joinsum.capture.application import Application
from joinsum.capture.axes import fresh
from joinsum.capture.operators.along import Along
from joinsum.capture.operators.form import Form, call_arguments, tensor_names
from joinsum.capture.operators.row import Made, Row, rows
from joinsum.capture.recorder import Arguments, Names, Recorder, Value
from joinsum.dtypes import dtype_name

__all__ = ["ROWS", "Pointwise", "as_dtype", "expanded", "right_aligned", "summed_up"]


@dataclass(frozen=True)
class Pointwise:
    """A rule: result[i] = f(operands[i]), shapes broadcast, all labels free.

    flops   for each element
    equal   whether the operator takes operands of one shape only: repeated elements are stored first
    """

    flops: int = 1
    equal: bool = False

    def __call__(self, recorder: Recorder, application: Application) -> Made:
        """The results of the operator."""
        given = dict(application.arguments)
        for name in tensor_names(application):
            if isinstance(given[name], (int, float)):
                given[name] = _constant(recorder, application, application.scalar(name))
        names = [name for name, value in given.items() if isinstance(value, Value)]
        values = [value for value in given.values() if isinstance(value, Value)]
        if self.equal:
            values = [recorder.stored(value) for value in values]
        dtypes = [made[1] for made in application.results if made is not None]

        def arguments(shown: Sequence[object]) -> Arguments:
            return call_arguments(application, {**given, **dict(zip(names, shown, strict=True))})

        return list(recorder.pointwise(application.name, values, dtypes, arguments, self.flops))


def _constant(recorder: Recorder, application: Application, number: float) -> Value:
    """A number in the place of a tensor, of the dtype in which it takes part without changing the others'."""
    values = [value for _, value in application.tensors() if value.dtype is not torch.bool]
    promoted = functools.reduce(torch.promote_types, [value.dtype for value in values], torch.bool)
    alike = [value for value in values if value.dtype.is_floating_point == promoted.is_floating_point]
    dtype = None
    if torch.result_type(torch.empty((), dtype=promoted), number) == promoted and not any(x.axes for x in alike):
        dtype = promoted  # tensors of no axes do not outrank a number that is one
    elif isinstance(number, float):
        wide = promoted in (torch.float64, torch.complex128)
        dtype = torch.float64 if wide else torch.float32
    return recorder.constant(torch.tensor(number, dtype=dtype))


def right_aligned(values: Sequence[Value]) -> tuple[list[Names], Names]:
    """Names of the axes of operands whose shapes broadcast, and of the result's."""
    rank = max(len(value.axes) for value in values)
    order = [f"a{position}" for position in range(rank)]
    return [order[rank - len(value.axes) :] for value in values], order


def as_dtype(recorder: Recorder, value: Value, dtype: torch.dtype) -> Value:
    """The same values in another dtype."""
    return value if value.dtype is dtype else recorder.mapped(value, f"cast[{dtype_name('capture', dtype)}]", dtype)


def _linear(recorder: Recorder, application: Application, kernel: str, other: str = "other") -> Made:
    """⊗ of two tensors as an einsum where they are floats; a number scales."""
    dtype = application.dtype
    left, right = application.arguments["self"], application.arguments[other]
    if not isinstance(left, Value) or not dtype.is_floating_point:
        return Pointwise()(recorder, application)
    if isinstance(right, (int, float)):
        return _by_number(recorder, application, kernel, left, float(right))
    assert isinstance(right, Value)
    alpha = application.arguments.get("alpha", 1)
    values = [as_dtype(recorder, value, dtype) for value in (left, right)]
    if alpha != 1:
        assert isinstance(alpha, (int, float))
        values[1] = recorder.scaled(values[1], float(alpha))
    return [_joined(recorder, values, kernel)]


def _joined(recorder: Recorder, values: Sequence[Value], kernel: str) -> Value:
    names, order = right_aligned(values)
    return recorder.einsum(list(zip(values, names, strict=True)), order, kernel)


def _by_number(recorder: Recorder, application: Application, kernel: str, left: Value, number: float) -> Made:
    if kernel in ("mul", "div") and not (kernel == "div" and number == 0):
        factor = number if kernel == "mul" else 1 / number
        return [recorder.scaled(as_dtype(recorder, left, application.dtype), factor)]
    return Pointwise()(recorder, application)


def _add(recorder: Recorder, application: Application) -> Made:
    return _linear(recorder, application, "add")


def _sub(recorder: Recorder, application: Application) -> Made:
    return _linear(recorder, application, "sub")


def _mul(recorder: Recorder, application: Application) -> Made:
    return _linear(recorder, application, "mul")


def _div(recorder: Recorder, application: Application) -> Made:
    return _linear(recorder, application, "div")


def _neg(recorder: Recorder, application: Application) -> Made:
    value = application.value("self")
    if not value.dtype.is_floating_point:
        return Pointwise()(recorder, application)
    return [recorder.mapped(value, "negate")]


def _same(recorder: Recorder, application: Application) -> Made:
    value = next(value for _, value in application.tensors())
    return [value]


def _to_copy(recorder: Recorder, application: Application) -> Made:
    ((_, value),) = application.tensors()
    return [value] if value.dtype is application.dtype else Pointwise()(recorder, application)


def expanded(value: Value, shape: Sequence[int]) -> Value:
    """`value` with its elements repeated along new axes in front, and along axes of one element."""
    missing = len(shape) - len(value.axes)
    axes = [fresh(extent) for extent in shape[:missing]]
    for axis, own, extent in zip(value.axes, value.shape, shape[missing:], strict=True):
        axes.append(axis if own == extent or extent == -1 else fresh(extent))
    return Value(value.source, tuple(axes))


def _copy(recorder: Recorder, application: Application) -> Made:
    source = application.arguments.get("src", application.arguments.get("value"))
    assert isinstance(source, Value)
    return [expanded(as_dtype(recorder, source, application.dtype), application.shape)]


def summed_up(recorder: Recorder, value: Value, reduction: int) -> Value:
    """What torch's losses make of their elements: 0 all of them, 1 the mean, 2 the sum."""
    if reduction == 0:
        return value
    names = [f"a{position}" for position in range(len(value.axes))]
    total = recorder.einsum([(value, names)], [], "id")
    elements = 1
    for extent in value.shape:
        elements *= extent
    return recorder.scaled(total, 1 / elements) if reduction == 1 else total


def _loss(recorder: Recorder, application: Application) -> Made:
    """A loss of each element, then its sum or mean."""
    reduction = application.number("reduction")
    alone = application.with_arguments({"reduction": 0})
    (made,) = Pointwise(4, equal=True)(recorder, alone)
    assert made is not None
    return [summed_up(recorder, made, reduction)]


def _loss_backward(recorder: Recorder, application: Application) -> Made:
    """The mean's derivative is the sum's over the number of elements."""
    if application.number("reduction") != 1:
        return Pointwise(4, equal=True)(recorder, application)
    elements = 1
    for extent in application.shape:
        elements *= extent
    gradient = recorder.scaled(application.value("grad_output"), 1 / elements)
    return Pointwise(4, equal=True)(recorder, application.with_arguments({"reduction": 2, "grad_output": gradient}))


def _glu_backward(recorder: Recorder, application: Application) -> Made:
    """The gradient has half of the extent along the axis that the gate halves."""
    rank = len(application.shape)
    dim = application.dim("dim", rank)
    names = [f"a{axis}" for axis in range(rank)]
    half = [*names[:dim], "half", *names[dim + 1 :]]
    form = Form(f"{' '.join(half)}, {' '.join(names)} -> {' '.join(names)}", f"{names[dim]} half")
    return form(recorder, application)


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
bitwise_left_shift.Tensor bitwise_right_shift.Tensor nan_to_num round.decimals heaviside nextafter gcd lcm
deg2rad rad2deg ldexp.Tensor
prims::fma lerp.Scalar lerp.Tensor addcmul addcdiv
"""
_FUNCTIONS = """
exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh asinh acosh atanh atan2 erf erfc
erfinv lgamma digamma pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar xlogy.Tensor logaddexp logaddexp2 hypot sinc i0
polygamma special_i0e special_i1 special_i1e special_erfcx special_ndtri special_log_ndtr
igamma igammac
"""
_ACTIVATIONS = """
relu gelu gelu_backward silu silu_backward sigmoid sigmoid_backward tanh tanh_backward threshold threshold_backward
softplus softplus_backward elu elu_backward leaky_relu leaky_relu_backward hardtanh hardtanh_backward hardswish
hardswish_backward hardsigmoid hardsigmoid_backward mish mish_backward log_sigmoid_forward log_sigmoid_backward
logit logit_backward celu
"""

_EVERY = "each element by itself; shapes broadcast, all labels free"

ROWS: list[Row] = [
    *rows("arithmetic", "add.Tensor", _add, "floats: an einsum joined by add; else each element by itself"),
    *rows("arithmetic", "sub.Tensor", _sub, "floats: an einsum joined by sub; else each element by itself"),
    *rows("arithmetic", "mul.Tensor mul.Scalar", _mul, "floats: an einsum joined by mul, or scaled by a number"),
    *rows("arithmetic", "div.Tensor div.Scalar", _div, "floats: an einsum joined by div, or scaled by a number"),
    *rows("arithmetic", "neg", _neg, "floats: an einsum with the map negate"),
    *rows("arithmetic", _ARITHMETIC, Pointwise(), _EVERY),
    *rows("logic", _LOGIC, Pointwise(), _EVERY),
    *rows("functions", _FUNCTIONS, Pointwise(8), _EVERY),
    *rows("activations", _ACTIVATIONS, Pointwise(8, equal=True), _EVERY),
    *rows("activations", "_prelu_kernel _prelu_kernel_backward", Pointwise(2), _EVERY),
    *rows("activations", "glu", Along(flops=8), "along `dim`, which is whole"),
    *rows("activations", "glu_backward", _glu_backward, "along `dim`, which is whole"),
    *rows("copies", "clone detach alias lift_fresh_copy", _same, "the same value"),
    *rows("copies", "_to_copy prims::convert_element_type", _to_copy, "the same value, or each element converted"),
    *rows("copies", "copy fill.Tensor", _copy, "the source, converted and repeated to the shape of the target"),
    *rows("losses", "mse_loss smooth_l1_loss huber_loss binary_cross_entropy", _loss, "each element, then a sum"),
    *rows("losses", "binary_cross_entropy_with_logits soft_margin_loss", _loss, "each element, then a sum"),
    *rows(
        "losses",
        "mse_loss_backward smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward "
        "soft_margin_loss_backward",
        _loss_backward,
        "each element by itself, the gradient over the number of elements",
    ),
    *rows("logic", "joinsum::checked", Form("->"), "`_assert_async`: raises where the condition is false"),
    *rows("random", "native_dropout_backward", Pointwise(2), _EVERY),
]
