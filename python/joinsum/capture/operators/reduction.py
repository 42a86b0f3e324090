"""Operators that fold axes. Sums, means, extremes and truth values are einsums, so that they may stay pending."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from joinsum.capture.application import Application
from joinsum.capture.operators.along import Along
from joinsum.capture.operators.elementwise import as_dtype
from joinsum.capture.operators.row import Made, Row, rows
from joinsum.capture.operators.whole import whole
from joinsum.capture.recorder import Recorder, Value, axis_names
from joinsum.dtypes import dtype_name

__all__ = ["ROWS", "folded"]

_HALF = (torch.float16, torch.bfloat16)


def folded(
    recorder: Recorder,
    value: Value,
    dims: Sequence[int],
    keepdim: bool,
    kernel: str,
    aggregate: str,
    dtype: torch.dtype,
) -> Value:
    """The map `kernel` of each element, folded over the axes `dims`; over all of them where there are none."""
    names = axis_names(value)
    lost = set(dims) if dims else set(range(len(names)))
    kept = [name for position, name in enumerate(names) if position not in lost]
    made = recorder.einsum([(value, names)], kept, kernel, aggregate, dtype)
    if not keepdim:
        return made
    rest = iter(made.axes)
    return Value(made.source, tuple(() if position in lost else next(rest) for position in range(len(names))))


def _over(application: Application) -> tuple[list[int], bool]:
    """The axes that are folded, and whether they stay with one element."""
    rank = len(application.value("self").axes)
    dims = application.dims("dim", rank) if "dim" in application.arguments else []
    return dims, bool(application.arguments.get("keepdim", False))


def _sum(recorder: Recorder, application: Application) -> Made:
    value, dtype = application.value("self"), application.dtype
    kernel = "id" if value.dtype is dtype else f"cast[{dtype_name('capture', dtype)}]"
    return [folded(recorder, value, *_over(application), kernel, "add", dtype)]


def _mean(recorder: Recorder, application: Application) -> Made:
    """Halves are summed in single precision."""
    value, dtype = application.value("self"), application.dtype
    wide = torch.float32 if dtype in _HALF else dtype
    kernel = "id" if value.dtype is wide else f"cast[{dtype_name('capture', wide)}]"
    dims, keepdim = _over(application)
    total = folded(recorder, value, dims, keepdim, kernel, "add", wide)
    count = math.prod(value.shape[dim] for dim in (dims or range(len(value.axes))))
    return [as_dtype(recorder, recorder.scaled(total, 1 / count), dtype)]


def _prod(recorder: Recorder, application: Application) -> Made:
    value = application.value("self")
    if value.repeated():
        value = recorder.stored(value)
    kernel = "id" if value.dtype is application.dtype else f"cast[{dtype_name('capture', application.dtype)}]"
    return [folded(recorder, value, *_over(application), kernel, "mul", application.dtype)]


def _extreme(recorder: Recorder, application: Application) -> Made:
    aggregate = "max" if "max" in application.name else "min"
    value = application.value("self")
    return [folded(recorder, value, *_over(application), "id", aggregate, value.dtype)]


def _truth(recorder: Recorder, application: Application) -> Made:
    aggregate = "max" if "any" in application.name else "min"
    value = application.value("self")
    return [folded(recorder, value, *_over(application), "cast[bool]", aggregate, torch.bool)]


def _both_extremes(recorder: Recorder, application: Application) -> Made:
    value = application.value("self")
    dims, keepdim = _over(application)
    return [folded(recorder, value, dims, keepdim, "id", kernel, value.dtype) for kernel in ("min", "max")]


def _count(recorder: Recorder, application: Application) -> Made:
    """How many elements are not zero."""
    truth = as_dtype(recorder, application.value("self"), torch.bool)
    return [folded(recorder, truth, *_over(application), "cast[i64]", "add", torch.int64)]


def _vector_norm(recorder: Recorder, application: Application) -> Made:
    """The root of a sum of squares; other norms fold whole axes."""
    value, dtype = application.value("self"), application.dtype
    order = application.arguments.get("ord", application.arguments.get("p", 2))
    if order not in (2, None) or value.dtype not in (torch.float32, torch.float64, *_HALF):
        return Along()(recorder, application)
    wide = torch.float32 if dtype in _HALF else dtype
    squares = folded(recorder, as_dtype(recorder, value, wide), *_over(application), "square", "add", wide)
    return [as_dtype(recorder, recorder.mapped(squares, "sqrt"), dtype)]


ROWS: list[Row] = [
    *rows("reductions", "sum sum.dim_IntList", _sum, "an einsum folded by add"),
    *rows("reductions", "mean mean.dim", _mean, "an einsum folded by add, over the number of elements"),
    *rows("reductions", "prod prod.dim_int", _prod, "an einsum folded by mul"),
    *rows("reductions", "amax amin max min", _extreme, "an einsum folded by max or min"),
    *rows("reductions", "any any.dim any.dims all all.dim all.dims", _truth, "an einsum of truth values"),
    *rows("reductions", "aminmax", _both_extremes, "two einsums, folded by min and max"),
    *rows("reductions", "count_nonzero count_nonzero.dim_IntList", _count, "an einsum of truth values folded by add"),
    *rows(
        "reductions",
        "linalg_vector_norm norm.ScalarOpt_dim",
        _vector_norm,
        "2: the root of an einsum folded by add; else axes whole",
    ),
    *rows(
        "reductions",
        "argmax argmin max.dim min.dim logsumexp var.correction var_mean.correction std.correction std_mean.correction "
        "median.dim nanmedian.dim mode",
        Along(),
        "along `dim`, which is whole; all other labels free",
    ),
    *rows(
        "scans",
        "cumsum cumprod logcumsumexp cummax cummin sort sort.stable topk kthvalue",
        Along(flops=4),
        "along `dim`, which is whole; all other labels free",
    ),
    *rows("reductions", "histc", whole, "all labels whole"),
    *rows("reductions", "median nanmedian trace", whole, "all labels whole"),
]
