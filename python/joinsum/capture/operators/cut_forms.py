"""Softmax and norms in parts, so that the axes which they mix may be divided: partial folds, and what is made of them.
Where a plan does not divide these axes, the operator runs at once; the work of the parts is counted as its.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from joinsum.capture.application import Application
from joinsum.capture.operators.along import Along
from joinsum.capture.operators.form import Form
from joinsum.capture.operators.reduction import folded
from joinsum.capture.operators.row import Made
from joinsum.capture.recorder import CallDraft, Recorder, Value, axis_names
from joinsum.capture.row_parts import wide
from joinsum.dtypes import dtype_name

__all__ = [
    "batch_norm",
    "batch_norm_backward",
    "either",
    "layer_norm",
    "layer_norm_grad_input",
    "softmax",
    "softmax_backward",
    "stored",
]

_JOINSUM = torch.ops.joinsum


def either(parts: Made, once: Made, first: int = 0) -> Made:
    """Results of one call, which reads folds of parts; where they need not be apart it runs as `once`, of whose results
    the parts have those from `first` on.

    `once` alone where it has no axis to divide, or reads an operand in another layout than the parts do.
    """
    draft = next(value for value in parts if value is not None).source.draft
    whole = next(value for value in once if value is not None).source.draft
    assert isinstance(draft, CallDraft)
    assert isinstance(whole, CallDraft)
    if not whole.whole or any(source not in draft.inputs for source in whole.inputs):
        return once[first:]
    draft.uncut, draft.uncut_first = whole, first
    return parts


def stored(recorder: Recorder, application: Application) -> Application:
    """The same with operands that all its calls share, in which no elements repeat."""
    return application.with_arguments({name: recorder.stored(value) for name, value in application.tensors()})


def _total(recorder: Recorder, value: Value, dims: Sequence[int], keepdim: bool) -> Value:
    dtype = wide(value.dtype)
    kernel = "id" if value.dtype is dtype else f"cast[{dtype_name('capture', dtype)}]"
    return folded(recorder, value, dims, keepdim, kernel, "add", dtype)


def _kept(value: Value, dims: Sequence[int]) -> tuple[int, ...]:
    """The shape in which `dims` have one element."""
    return tuple(1 if dim in dims else extent for dim, extent in enumerate(value.shape))


# --- softmax ----------------------------------------------------------------------------------------------------------


def _rows(value: Value, dim: int) -> tuple[str, str, str]:
    """Names of all axes, of those with one element in the place of `dim`, and of `dim`."""
    names = axis_names(value)
    return " ".join(names), " ".join("1" if axis == dim else name for axis, name in enumerate(names)), names[dim]


def softmax(recorder: Recorder, application: Application) -> Made:
    """Softmax and log softmax: the greatest element, the sum of exponentials below it, and the quotient."""
    application = stored(recorder, application)
    once = Along(flops=10)(recorder, application)
    value = application.value("self")
    if not value.axes:
        return once
    dim = application.dim("dim", len(value.axes))
    full, kept, name = _rows(value, dim)
    shape, dtype = _kept(value, [dim]), wide(value.dtype)
    most = folded(recorder, value, [dim], True, "id", "max", value.dtype)
    sums = application.of(_JOINSUM.softmax_total.default, {"input": value, "most": most, "dim": dim}, [(shape, dtype)])
    (total,) = Form(f"{full}, {kept} -> {kept}", fold=f"{name}=add", flops=f"5 {full}")(recorder, sums)
    operator = _JOINSUM.log_softmax_of if "log" in application.name else _JOINSUM.softmax_of
    given = {"input": value, "most": most, "total": total, "dtype": application.dtype}
    made = application.of(operator.default, given, [(application.shape, application.dtype)])
    return either(Form(f"{full}, {kept}, {kept} -> {full}", flops=f"4 {full}")(recorder, made), once)


def softmax_backward(recorder: Recorder, application: Application) -> Made:
    """The gradients of both: a sum along the rows, and each element by itself."""
    application = stored(recorder, application)
    once = Along(flops=10)(recorder, application)
    grad, output = application.value("grad_output"), application.value("output")
    if not grad.axes:
        return once
    dim = application.dim("dim", len(grad.axes))
    full, kept, name = _rows(grad, dim)
    log = "log" in application.name
    if log:
        slope = _total(recorder, grad, [dim], True)
    else:
        given: dict[str, object] = {"grad": grad, "output": output, "dim": dim}
        sums = application.of(_JOINSUM.softmax_slope.default, given, [(_kept(grad, [dim]), wide(grad.dtype))])
        (found,) = Form(f"{full}, {full} -> {kept}", fold=f"{name}=add", flops=f"2 {full}")(recorder, sums)
        assert found is not None
        slope = found
    operator = _JOINSUM.log_softmax_grad_of if log else _JOINSUM.softmax_grad_of
    given = {"grad": grad, "output": output, "total" if log else "slope": slope, "dtype": application.dtype}
    made = application.of(operator.default, given, [(application.shape, application.dtype)])
    return either(Form(f"{full}, {full}, {kept} -> {full}", flops=f"6 {full}")(recorder, made), once)


# --- layer norm -------------------------------------------------------------------------------------------------------

_SQUARES = Form("*a *n, *a 1*n -> *a 1*n", fold="*n=add", lists={"n": "dims"}, flops="3 *a *n")
_LAYER_NORM = Form(
    "*a *n, *a 1*n, *a 1*n, *n, *n -> *a *n, *a 1*n, *a 1*n", same="*n", lists={"n": "dims"}, flops="5 *a *n"
)
_SLOPES = Form(
    "*a *n, *a *n, *a 1*n, *a 1*n, *n -> *a 1*n, *a 1*n", fold="*n=add", lists={"n": "dims"}, flops="7 *a *n"
)
_LAYER_NORM_GRAD = Form(
    "*a *n, *a *n, *a 1*n, *a 1*n, *n, *a 1*n, *a 1*n -> *a *n", lists={"n": "dims"}, flops="7 *a *n"
)


def layer_norm(recorder: Recorder, application: Application, form: Form) -> Made:
    """Mean and deviation of two sums; `form` says the operator at once."""
    application = stored(recorder, application)
    once = form(recorder, application)
    value, kinds = application.value("input"), application.results
    assert kinds[0] is not None
    assert kinds[1] is not None
    dims = _last(value, len(application.numbers("normalized_shape")))
    count = math.prod(value.shape[dim] for dim in dims)
    total = _total(recorder, value, dims, True)
    given: dict[str, object] = {"input": value, "total": total, "count": count, "dims": dims}
    sums = application.of(_JOINSUM.centred_squares.default, given, [(_kept(value, dims), total.dtype)])
    (squares,) = _SQUARES(recorder, sums)
    given |= {name: application.arguments[name] for name in ("weight", "bias", "eps")}
    given |= {"squares": squares, "kept": kinds[1][1]}
    made = application.of(_JOINSUM.layer_norm_of.default, given, [kind for kind in kinds if kind is not None])
    return either(_LAYER_NORM(recorder, made), once)


def layer_norm_grad_input(recorder: Recorder, application: Application, form: Form) -> Made:
    """The gradient of the input, of two sums; `application` is joinsum::layer_norm_grad_input."""
    application = stored(recorder, application)
    once = form(recorder, application)
    value = application.value("input")
    dims = _last(value, len(application.numbers("normalized_shape")))
    names = ("grad", "input", "mean", "rstd", "weight")
    given: dict[str, object] = {name: application.arguments[name] for name in names}
    given["dims"] = dims
    kind = (_kept(value, dims), wide(value.dtype))
    first, second = _SLOPES(recorder, application.of(_JOINSUM.layer_norm_slopes.default, given, [kind, kind]))
    given |= {"first": first, "second": second, "count": math.prod(value.shape[dim] for dim in dims)}
    made = application.of(_JOINSUM.layer_norm_grad_of.default, given, [(value.shape, value.dtype)])
    return either(_LAYER_NORM_GRAD(recorder, made), once)


def _last(value: Value, count: int) -> list[int]:
    return list(range(len(value.axes) - count, len(value.axes)))


# --- batch norm -------------------------------------------------------------------------------------------------------

_CHANNEL_SQUARES = Form("n c *s, 1 c 1*s -> 1 c 1*s", fold="n=add *s=add", flops="3 n c *s")
_BATCH_NORM = Form("n c *s, 1 c 1*s, 1 c 1*s, c, c, c, c -> n c *s, c, c, c, c", same="n *s", flops="5 n c *s")
_CHANNEL_SLOPES = Form("n c *s, n c *s, c, c -> c, c", fold="n=add *s=add", flops="6 n c *s")
_BATCH_NORM_GRAD = Form("n c *s, n c *s, c, c, c, c, c -> n c *s, c, c", same="n *s", flops="8 n c *s")


def batch_norm(recorder: Recorder, application: Application, form: Form) -> Made:
    """Training: mean and deviation of two sums over batch and places; `form` says the operator at once."""
    application = stored(recorder, application)
    once = form(recorder, application)
    value = application.value("input")
    dims = [dim for dim in range(len(value.axes)) if dim != 1]
    count = math.prod(value.shape[dim] for dim in dims)
    total = _total(recorder, value, dims, True)
    given: dict[str, object] = {"input": value, "total": total, "count": count, "dims": dims}
    sums = application.of(_JOINSUM.centred_squares.default, given, [(total.shape, total.dtype)])
    (squares,) = _CHANNEL_SQUARES(recorder, sums)
    names = ("weight", "bias", "running_mean", "running_var", "momentum", "eps")
    kinds = [kind for kind in application.results if kind is not None]
    given |= {name: application.arguments.get(name) for name in names} | {"squares": squares, "kept": kinds[1][1]}
    made = application.of(_JOINSUM.batch_norm_of.default, given, [*kinds, *kinds[1:3]][:5])
    return either(_BATCH_NORM(recorder, made)[: len(kinds)], once)


def batch_norm_backward(recorder: Recorder, application: Application, form: Form) -> Made:
    """Training: all three gradients, of two sums over batch and places."""
    application = stored(recorder, application)
    once = form(recorder, application)
    value, mean = application.value("input"), application.value("save_mean")
    given: dict[str, object] = {"grad": application.value("grad_out"), "input": value, "mean": mean}
    given["rstd"] = application.value("save_invstd")
    channels = (mean.shape, wide(mean.dtype))
    operator = _JOINSUM.batch_norm_slopes.default
    first, second = _CHANNEL_SLOPES(recorder, application.of(operator, given, [channels, channels]))
    count = math.prod(value.shape) // value.shape[1]
    given |= {"weight": application.arguments["weight"], "first": first, "second": second, "count": count}
    kinds = [kind for kind in application.results if kind is not None]
    made = application.of(_JOINSUM.batch_norm_grad_of.default, given, kinds)
    return either(_BATCH_NORM_GRAD(recorder, made), once)
