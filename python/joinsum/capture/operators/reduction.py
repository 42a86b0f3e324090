"""Operators that reduce axes. Sums, means, extremes and truth values are einsums, whose results may stay pending."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from joinsum.base.dtypes import accumulation_dtype
from joinsum.capture.recording.application import Application
from joinsum.capture.recording.values import Value, axis_names
from joinsum.capture.recording.vertices import as_dtype, cast_kernel, einsum, mapped, materialized, scaled
from joinsum.capture.rules.along import Along
from joinsum.capture.rules.row import Entry, Results, Rule, rows
from joinsum.capture.rules.undivided import undivided

__all__ = ["ROWS", "Over", "reduced", "summed"]


class Over(NamedTuple):
    """The axes that are reduced, all of them if there are none; and whether they remain, with one element."""

    dims: Sequence[int]
    keepdim: bool = True

    @staticmethod
    def of(application: Application) -> Over:
        """As the operator's arguments `dim` and `keepdim` say."""
        rank = len(application.value("self").axes)
        dims = application.dims("dim", rank) if "dim" in application.arguments else []
        return Over(dims, bool(application.arguments.get("keepdim", False)))


def reduced(value: Value, over: Over, kernel: str, aggregate: str, dtype: torch.dtype) -> Value:
    """The map `kernel` of each element, aggregated over axes."""
    names = axis_names(len(value.axes))
    lost = set(over.dims) if over.dims else set(range(len(names)))
    remaining = [name for position, name in enumerate(names) if position not in lost]
    result = einsum([(value, names)], remaining, kernel, aggregate, dtype)
    if not over.keepdim:
        return result
    axes = iter(result.axes)
    return Value(result.producer, tuple(() if position in lost else next(axes) for position in range(len(names))))


def summed(value: Value, over: Over) -> Value:
    """The sum over axes, in the dtype in which torch accumulates."""
    dtype = accumulation_dtype(value.dtype)
    return reduced(value, over, cast_kernel(value, dtype), "add", dtype)


def _by(*aggregates: str) -> Rule:
    """The elements, in the dtype of the results, aggregated in each of these ways."""

    def rule(application: Application) -> Results:
        value, dtype, over = application.value("self"), application.dtype, Over.of(application)
        value = materialized(value) if "mul" in aggregates else value
        return [reduced(value, over, cast_kernel(value, dtype), aggregate, dtype) for aggregate in aggregates]

    return rule


def _mean(application: Application) -> Results:
    value, wide = application.value("self"), accumulation_dtype(application.dtype)
    over = Over.of(application)
    total = reduced(value, over, cast_kernel(value, wide), "add", wide)
    count = math.prod(value.shape[dim] for dim in (over.dims or range(len(value.axes))))
    return [as_dtype(scaled(total, 1 / count), application.dtype)]


def _any_or_all(application: Application) -> Results:
    """Bool; uint8 of uint8, as in torch."""
    aggregate = "max" if "any" in application.name else "min"
    truth = reduced(application.value("self"), Over.of(application), "cast[bool]", aggregate, torch.bool)
    return [as_dtype(truth, application.dtype)]


def _count(application: Application) -> Results:
    """How many elements are not zero."""
    truth = as_dtype(application.value("self"), torch.bool)
    return [reduced(truth, Over.of(application), "cast[i64]", "add", torch.int64)]


def _vector_norm(application: Application) -> Results:
    """The root of a sum of squares; for norms of another order the axes are undivided."""
    value, dtype = application.value("self"), application.dtype
    order = application.arguments.get("ord", application.arguments.get("p", 2))
    if order not in (2, None) or not value.dtype.is_floating_point:
        return Along()(application)
    wide = accumulation_dtype(dtype)
    squares = reduced(as_dtype(value, wide), Over.of(application), "square", "add", wide)
    return [as_dtype(mapped(squares, "sqrt"), dtype)]


_ALONG = "along `dim`, which is undivided; all other labels may be divided"

ROWS = [
    *rows(
        "reductions",
        Entry("sum sum.dim_IntList", _by("add"), "an einsum reduced by add"),
        Entry("mean mean.dim", _mean, "an einsum reduced by add, over the number of elements"),
        Entry("prod prod.dim_int", _by("mul"), "an einsum reduced by mul"),
        Entry("amax max", _by("max"), "an einsum reduced by max"),
        Entry("amin min", _by("min"), "an einsum reduced by min"),
        Entry("any any.dim any.dims all all.dim all.dims", _any_or_all, "an einsum of truth values"),
        Entry("aminmax", _by("min", "max"), "two einsums, reduced by min and max"),
        Entry("count_nonzero count_nonzero.dim_IntList", _count, "an einsum of truth values reduced by add"),
        Entry(
            "linalg_vector_norm norm.ScalarOpt_dim",
            _vector_norm,
            "2: the root of an einsum reduced by add; else axes undivided",
        ),
        Entry(
            "argmax argmin max.dim min.dim logsumexp var.correction var_mean.correction std.correction "
            "std_mean.correction median.dim nanmedian.dim mode",
            Along(),
            _ALONG,
        ),
        Entry("histc median nanmedian trace", undivided, "all labels undivided"),
    ),
    *rows(
        "scans",
        Entry(
            "cumsum cumprod logcumsumexp cummax cummin sort sort.stable topk kthvalue",
            Along(flops=4),
            _ALONG,
        ),
    ),
]
