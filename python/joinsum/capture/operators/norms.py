"""Norms: in one call where the axes that they mix are not divided, else of sums over shards of these axes.

The work of a decomposed norm is that of the undecomposed operator, divided among its calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from joinsum.base.dtypes import accumulation_dtype
from joinsum.capture.operators.reduction import Over, summed
from joinsum.capture.recording.application import Application, TensorType
from joinsum.capture.recording.values import Value, axis_names
from joinsum.capture.rules.decomposed import decomposed_or, with_materialized_operands
from joinsum.capture.rules.form import Form
from joinsum.capture.rules.row import Entry, Results, Traits, rows

__all__ = ["ROWS"]

_JOINSUM = torch.ops.joinsum


def _gradients(
    application: Application,
    to_input: Callable[[TensorType], Sequence[Value | None]],
    to_affine: Callable[[TensorType], Sequence[Value | None]],
) -> Results:
    """The requested ones of the gradients of input, weight and bias.

    to_input    the gradient of a type
    to_affine   the gradients of weight and bias of a type
    """
    mask, input = application.numbers("output_mask"), application.value("input")
    gradients: list[Value | None] = [None, None, None]
    if mask[0]:
        gradients[0] = to_input((input.shape, input.dtype))[0]
    if mask[1] or mask[2]:
        gradients[1:] = to_affine(next(kind for kind in application.results[1:] if kind is not None))
    return [gradient if requested else None for gradient, requested in zip(gradients, mask, strict=True)]


def _named(application: Application, names: str) -> dict[str, object]:
    """Arguments of the operator, by names that are separated by white space; None of those that it does not have."""
    return {name: application.arguments.get(name) for name in names.split()}


def _sum_shape(value: Value, dims: Sequence[int]) -> list[int]:
    """The shape of a sum over `dims`, which remain with one element."""
    return [1 if dim in dims else extent for dim, extent in enumerate(value.shape)]


# --- layer norm -------------------------------------------------------------------------------------------------------

_SHAPE = {"normalized_shape": "*n"}
_NORMED = {"n": "normalized_shape"}
_DIMS = {"n": "dims"}
_LAYER_NORM = Form("*a *n, *n, *n -> *a *n, *a 1*n, *a 1*n", "*n", sizes=_SHAPE, lists=_NORMED, flops="8 *a *n")
_LAYER_NORM_SQUARES = Form("*a *n, *a 1*n -> *a 1*n", reduce="*n=add", lists=_DIMS, flops="3 *a *n")
_LAYER_NORM_OF_SUMS = Form(
    "*a *n, *a 1*n, *a 1*n, *n, *n -> *a *n, *a 1*n, *a 1*n", same="*n", lists=_DIMS, flops="5 *a *n"
)
_LAYER_NORM_TO_INPUT = Form(
    "*a *n, *a *n, *a 1*n, *a 1*n, *n -> *a *n", "*n", sizes=_SHAPE, lists=_NORMED, flops="12 *a *n"
)
_LAYER_NORM_SLOPES = Form(
    "*a *n, *a *n, *a 1*n, *a 1*n, *n -> *a 1*n, *a 1*n", reduce="*n=add", lists=_DIMS, flops="7 *a *n"
)
_LAYER_NORM_TO_INPUT_OF_SLOPES = Form(
    "*a *n, *a *n, *a 1*n, *a 1*n, *n, *a 1*n, *a 1*n -> *a *n", lists=_DIMS, flops="7 *a *n"
)
_LAYER_NORM_TO_AFFINE = Form(
    "*a *n, *a *n, *a 1*n, *a 1*n -> *n, *n", reduce="*a=add", sizes=_SHAPE, lists=_NORMED, flops="6 *a *n"
)


def _layer_norm(application: Application) -> Results:
    """Mean and deviation of two sums."""
    application = with_materialized_operands(application)
    undecomposed = _LAYER_NORM(application)
    value, kinds = application.value("input"), application.types
    dims = _normalized(application, value)
    total = summed(value, Over(dims))
    arguments: dict[str, object] = {"input": value, "total": total, "count": _count(value, dims), "dims": dims}
    operator = _JOINSUM.centred_squares.default
    (squares,) = _LAYER_NORM_SQUARES.apply(application, operator, arguments, (total.shape, total.dtype))
    arguments |= _named(application, "weight bias eps") | {"squares": squares, "statistics": kinds[1][1]}
    results = _LAYER_NORM_OF_SUMS.apply(application, _JOINSUM.layer_norm_of.default, arguments, *kinds)
    return decomposed_or(undecomposed, results)


def _layer_norm_backward(application: Application) -> Results:
    shared = _named(application, "input normalized_shape mean rstd") | {"grad": application.value("grad_out")}

    def to_input(kind: TensorType) -> Results:
        operator = _JOINSUM.layer_norm_grad_input.default
        return _layer_norm_to_input(application.of(operator, {**shared, **_named(application, "weight")}, kind))

    def to_affine(kind: TensorType) -> Results:
        return _LAYER_NORM_TO_AFFINE.apply(application, _JOINSUM.layer_norm_grad_affine.default, shared, kind, kind)

    return _gradients(application, to_input, to_affine)


def _layer_norm_to_input(application: Application) -> Results:
    """joinsum::layer_norm_grad_input, of two sums."""
    application = with_materialized_operands(application)
    undecomposed = _LAYER_NORM_TO_INPUT(application)
    value = application.value("input")
    dims = _normalized(application, value)
    arguments = _named(application, "grad input mean rstd weight") | {"dims": dims}
    kind = (_sum_shape(value, dims), accumulation_dtype(value.dtype))
    operator = _JOINSUM.layer_norm_slopes.default
    first, second = _LAYER_NORM_SLOPES.apply(application, operator, arguments, kind, kind)
    arguments |= {"first": first, "second": second, "count": _count(value, dims)}
    operator = _JOINSUM.layer_norm_grad_of.default
    return decomposed_or(
        undecomposed, _LAYER_NORM_TO_INPUT_OF_SLOPES.apply(application, operator, arguments, application.type)
    )


def _normalized(application: Application, value: Value) -> list[int]:
    rank = len(value.axes)
    return list(range(rank - len(application.numbers("normalized_shape")), rank))


def _count(value: Value, dims: Sequence[int]) -> int:
    return math.prod(value.shape[dim] for dim in dims)


# --- group norm -------------------------------------------------------------------------------------------------------

_GROUP_NORM = Form("n c *s, c, c -> n c *s, n g, n g", "c *s g", sizes={"N": "n"}, flops="8 n c *s")
_GROUP_NORM_TO_INPUT = Form("n c *s, n c *s, n g, n g, c -> n c *s", "c *s g", sizes={"n": "n"}, flops="12 n c *s")
_GROUP_NORM_TO_AFFINE = Form("n c *s, n c *s, n g, n g -> c, c", "c *s g", "n=add", sizes={"n": "n"}, flops="6 n c *s")


def _group_norm_backward(application: Application) -> Results:
    sizes = {own: application.arguments[name] for own, name in (("n", "N"), ("c", "C"), ("s", "HxW"))}
    shared = _named(application, "input mean rstd group") | {"grad": application.value("grad_out"), **sizes}

    def to_input(kind: TensorType) -> Results:
        arguments = shared | _named(application, "weight")
        return _GROUP_NORM_TO_INPUT.apply(application, _JOINSUM.group_norm_grad_input.default, arguments, kind)

    def to_affine(kind: TensorType) -> Results:
        return _GROUP_NORM_TO_AFFINE.apply(application, _JOINSUM.group_norm_grad_affine.default, shared, kind, kind)

    return _gradients(application, to_input, to_affine)


# --- batch norm -------------------------------------------------------------------------------------------------------

_TRAINING = Form("n c *s, c, c, c, c -> n c *s, c, c, c, c", "n *s", flops="8 n c *s")
_TRAINING_SQUARES = Form("n c *s, 1 c 1*s -> 1 c 1*s", reduce="n=add *s=add", flops="3 n c *s")
_TRAINING_OF_SUMS = Form("n c *s, 1 c 1*s, 1 c 1*s, c, c, c, c -> n c *s, c, c, c, c", same="n *s", flops="5 n c *s")
_TRAINING_BACKWARD = Form("n c *s, n c *s, c, c, c, c, c -> n c *s, c, c", "n *s", flops="12 n c *s")
_TRAINING_SLOPES = Form("n c *s, n c *s, c, c -> c, c", reduce="n=add *s=add", flops="6 n c *s")
_TRAINING_BACKWARD_OF_SLOPES = Form("n c *s, n c *s, c, c, c, c, c -> n c *s, c, c", same="n *s", flops="8 n c *s")
_EVALUATION = Form("n c *s, c, c, c, c -> n c *s", flops="4 n c *s")
_EVALUATION_TO_INPUT = Form("n c *s, c, c -> n c *s", flops="2 n c *s")
_EVALUATION_TO_AFFINE = Form("n c *s, n c *s, c, c -> c, c", reduce="n=add *s=add", flops="4 n c *s")


def _batch_norm(application: Application) -> Results:
    """In training the statistics are those of the global batch; in evaluation each element is by itself."""
    if application.arguments.get("training", False):
        return _batch_norm_in_training(application)
    arguments = _named(application, "input weight bias running_mean running_var eps")
    results = _EVALUATION.apply(application, _JOINSUM.batch_norm_with.default, arguments, application.type)
    empty = [application.recorder.constant(torch.empty(0, dtype=kind[1])) for kind in application.results[1:3] if kind]
    statistics = [application.optional("running_mean"), application.optional("running_var")]
    return [*results, *empty, *statistics][: len(application.results)]


def _batch_norm_in_training(application: Application) -> Results:
    """Mean and deviation of two sums over batch and pixels."""
    application = with_materialized_operands(application)
    undecomposed = _TRAINING(application)
    value, kinds = application.value("input"), application.types
    dims = [dim for dim in range(len(value.axes)) if dim != 1]
    total = summed(value, Over(dims))
    arguments: dict[str, object] = {"input": value, "total": total, "count": _count(value, dims), "dims": dims}
    operator = _JOINSUM.centred_squares.default
    (squares,) = _TRAINING_SQUARES.apply(application, operator, arguments, (total.shape, total.dtype))
    arguments |= _named(application, "weight bias running_mean running_var momentum eps")
    arguments |= {"squares": squares, "statistics": kinds[1][1]}
    operator = _JOINSUM.batch_norm_of.default
    results = _TRAINING_OF_SUMS.apply(application, operator, arguments, *[*kinds, *kinds[1:3]][:5])
    return decomposed_or(undecomposed, results[: len(kinds)])


def _batch_norm_backward(application: Application) -> Results:
    grad, value, mask = application.value("grad_out"), application.value("input"), application.numbers("output_mask")
    if application.arguments["train"]:
        channels = ((value.shape[1],), application.value("save_mean").dtype)
        arguments = application.arguments | {"running_mean": None, "running_var": None, "output_mask": [True] * 3}
        kinds = [(value.shape, value.dtype), channels, channels]
        gradients = _batch_norm_in_training_backward(application.of(application.operator, arguments, *kinds))
        return [gradient if requested else None for gradient, requested in zip(gradients, mask, strict=True)]
    mean, variance = application.value("running_mean"), application.value("running_var")
    shared = {"grad": grad, "variance": variance, "eps": application.arguments["eps"]}

    def to_input(kind: TensorType) -> Results:
        arguments = shared | _named(application, "weight")
        return _EVALUATION_TO_INPUT.apply(application, _JOINSUM.batch_norm_with_grad_input.default, arguments, kind)

    def to_affine(kind: TensorType) -> Results:
        operator = _JOINSUM.batch_norm_with_grad_affine.default
        return _EVALUATION_TO_AFFINE.apply(application, operator, {**shared, "input": value, "mean": mean}, kind, kind)

    return _gradients(application, to_input, to_affine)


def _batch_norm_in_training_backward(application: Application) -> Results:
    """All three gradients, of two sums over batch and pixels."""
    application = with_materialized_operands(application)
    undecomposed = _TRAINING_BACKWARD(application)
    value, mean = application.value("input"), application.value("save_mean")
    arguments = {"grad": application.value("grad_out"), "input": value, "mean": mean}
    arguments["rstd"] = application.value("save_invstd")
    channels = (mean.shape, accumulation_dtype(mean.dtype))
    operator = _JOINSUM.batch_norm_slopes.default
    first, second = _TRAINING_SLOPES.apply(application, operator, arguments, channels, channels)
    options = {"first": first, "second": second, "count": math.prod(value.shape) // value.shape[1]}
    operator = _JOINSUM.batch_norm_grad_of.default
    arguments_of_slopes = {**arguments, **_named(application, "weight"), **options}
    results = _TRAINING_BACKWARD_OF_SLOPES.apply(application, operator, arguments_of_slopes, *application.types)
    return decomposed_or(undecomposed, results)


# --- weight norm ------------------------------------------------------------------------------------------------------


def _weight_norm(application: Application) -> Results:
    """Each slice of `dim`, the first axis or the last, by itself."""
    values = [value for _, value in application.tensors()]
    names = axis_names(len(values[0].axes))
    dim = application.dim("dim", len(names))
    full, scale = " ".join(names), " ".join(name if axis == dim else "1" for axis, name in enumerate(names))
    mixed = " ".join(name for axis, name in enumerate(names) if axis != dim)
    if len(values) == 2:
        form = Form(f"{full}, {scale} -> {full}, {scale}", mixed, flops=f"4 {full}")
        operator = _JOINSUM.weight_norm.default
    else:
        form = Form(f"{full}, {full}, {scale}, {scale} -> {full}, {scale}", mixed, flops=f"8 {full}")
        operator = _JOINSUM.weight_norm_backward.default
    names_of_arguments = [each.name for each in operator._schema.arguments]
    arguments = dict(zip(names_of_arguments, application.arguments.values(), strict=True))
    return form.apply(application, operator, arguments, *application.types)


_OF_SHARDS = "in one call where its axes are not divided, else on shards, reduced by add"

ROWS = rows(
    "norms",
    Entry("native_layer_norm", _layer_norm, f"`{_LAYER_NORM.pattern}`; {_OF_SHARDS}"),
    Entry(
        "native_layer_norm_backward",
        _layer_norm_backward,
        f"the input's gradient {_OF_SHARDS}; the others reduce the batch",
    ),
    Entry("native_group_norm", _GROUP_NORM),
    Entry("native_group_norm_backward", _group_norm_backward, "the input's gradient; the others reduce the batch"),
    Entry(
        "_native_batch_norm_legit_functional _native_batch_norm_legit.no_stats _native_batch_norm_legit_no_training",
        _batch_norm,
        f"in training {_OF_SHARDS} over batch and pixels; in evaluation all labels may be divided",
        Traits(without_elements=True),
    ),
    Entry(
        "native_batch_norm_backward",
        _batch_norm_backward,
        f"in training {_OF_SHARDS} over batch and pixels; in evaluation the gradients of weight and bias reduce them",
        Traits(without_elements=True),
    ),
    Entry(
        "_weight_norm_interface _weight_norm_interface_backward",
        _weight_norm,
        "all labels but that of `dim` are undivided",
    ),
)
