"""Norms: in one call where the axes that they mix are not divided, else of sums over shards of these axes.

The work of a decomposed norm is that of the undecomposed operator, divided among its calls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from joinsum.base.dtypes import accumulation_dtype
from joinsum.capture.operators.reduction import Over, summed
from joinsum.capture.recording.application import Application, TensorType
from joinsum.capture.recording.values import Value, axis_names
from joinsum.capture.rules.decomposed import decomposed_or, with_materialized_operands
from joinsum.capture.rules.form import Form
from joinsum.capture.rules.row import Entry, Results, Rule, Traits, rows

__all__ = ["ROWS"]

_JOINSUM = torch.ops.joinsum


_Step = tuple[torch._ops.OpOverload, Rule]  # an operator and how its axes belong together


def _applied(step: _Step, application: Application, arguments: Mapping[str, object], *kinds: TensorType) -> Results:
    operator, rule = step
    return rule(application.of(operator, arguments, *kinds))


def _gradients(application: Application, arguments: Mapping[str, object], to_input: _Step, to_affine: _Step) -> Results:
    """The requested ones of the gradients of input, weight and bias."""
    mask, input = application.numbers("output_mask"), application.value("input")
    gradients: list[Value | None] = [None, None, None]
    if mask[0]:
        gradients[0] = _applied(to_input, application, arguments, (input.shape, input.dtype))[0]
    if mask[1] or mask[2]:
        kind = next(kind for kind in application.results[1:] if kind is not None)
        gradients[1:] = _applied(to_affine, application, arguments, kind, kind)
    return [gradient if requested else None for gradient, requested in zip(gradients, mask, strict=True)]


def _of_sums(
    application: Application, dims: Sequence[int], squares: Form, norm: _Step, kinds: Sequence[TensorType]
) -> Results:
    """A norm of the sum over `dims` and of the sum of squares of the differences from the mean."""
    value = application.value("input")
    total = summed(value, Over(dims))
    arguments = application.arguments | {"total": total, "count": _count(value, dims), "dims": dims}
    sums = _applied((_JOINSUM.centred_squares.default, squares), application, arguments, (total.shape, total.dtype))
    arguments |= {"squares": sums[0], "statistics": kinds[1][1]}
    return _applied(norm, application, arguments, *kinds)


def _of_slopes(
    application: Application, arguments: Mapping[str, object], kind: TensorType, slopes: _Step, gradients: _Step
) -> Results:
    """Gradients of two sums of `kind`."""
    first, second = _applied(slopes, application, arguments, kind, kind)
    return _applied(gradients, application, {**arguments, "first": first, "second": second}, *application.types)


def _count(value: Value, dims: Sequence[int]) -> int:
    return math.prod(value.shape[dim] for dim in dims)


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
    norm, dims = (_JOINSUM.layer_norm_of.default, _LAYER_NORM_OF_SUMS), _normalized(application)
    results = _of_sums(application, dims, _LAYER_NORM_SQUARES, norm, application.types)
    return decomposed_or(undecomposed, results)


def _layer_norm_backward(application: Application) -> Results:
    arguments = application.arguments | {"grad": application.value("grad_out")}
    to_input = _JOINSUM.layer_norm_grad_input.default, _layer_norm_to_input
    to_affine = _JOINSUM.layer_norm_grad_affine.default, _LAYER_NORM_TO_AFFINE
    return _gradients(application, arguments, to_input, to_affine)


def _layer_norm_to_input(application: Application) -> Results:
    """joinsum::layer_norm_grad_input, of two sums."""
    application = with_materialized_operands(application)
    undecomposed = _LAYER_NORM_TO_INPUT(application)
    value, dims = application.value("input"), _normalized(application)
    sums = [1 if dim in dims else extent for dim, extent in enumerate(value.shape)]
    slopes = _JOINSUM.layer_norm_slopes.default, _LAYER_NORM_SLOPES
    gradient = _JOINSUM.layer_norm_grad_of.default, _LAYER_NORM_TO_INPUT_OF_SLOPES
    arguments = application.arguments | {"dims": dims, "count": _count(value, dims)}
    kind = sums, accumulation_dtype(value.dtype)
    return decomposed_or(undecomposed, _of_slopes(application, arguments, kind, slopes, gradient))


def _normalized(application: Application) -> list[int]:
    rank = len(application.value("input").axes)
    return list(range(rank - len(application.numbers("normalized_shape")), rank))


# --- RMS norm ---------------------------------------------------------------------------------------------------------

_RMS_NORM = Form("*a *n, *n -> *a *n, *a 1*n", "*n", sizes=_SHAPE, lists=_NORMED, flops="5 *a *n")
_RMS_NORM_SQUARES = Form("*a *n -> *a 1*n", reduce="*n=add", lists=_DIMS, flops="2 *a *n")
_RMS_NORM_OF_SQUARES = Form("*a *n, *a 1*n, *n -> *a *n, *a 1*n", same="*n", lists=_DIMS, flops="3 *a *n")
_RMS_NORM_TO_INPUT = Form("*a *n, *a *n, *a 1*n, *n -> *a *n", "*n", sizes=_SHAPE, lists=_NORMED, flops="9 *a *n")
_RMS_NORM_SLOPE = Form("*a *n, *a *n, *a 1*n, *n -> *a 1*n", reduce="*n=add", lists=_DIMS, flops="4 *a *n")
_RMS_NORM_TO_INPUT_OF_SLOPE = Form("*a *n, *a *n, *a 1*n, *n, *a 1*n -> *a *n", lists=_DIMS, flops="5 *a *n")
_RMS_NORM_TO_WEIGHT = Form("*a *n, *a *n, *a 1*n -> *n", reduce="*a=add", sizes=_SHAPE, lists=_NORMED, flops="3 *a *n")


def _rms_norm(application: Application) -> Results:
    """The root of a sum of squares."""
    application = with_materialized_operands(application)
    undecomposed = _RMS_NORM(application)
    dims, kinds = _normalized(application), application.types
    arguments = application.arguments | {"dims": dims, "count": _count(application.value("input"), dims)}
    squares = _applied((_JOINSUM.rms_norm_squares.default, _RMS_NORM_SQUARES), application, arguments, kinds[1])
    norm = _JOINSUM.rms_norm_of.default, _RMS_NORM_OF_SQUARES
    return decomposed_or(undecomposed, _applied(norm, application, {**arguments, "squares": squares[0]}, *kinds))


def _rms_norm_to_input(application: Application) -> Results:
    """The gradient of a sum."""
    application = with_materialized_operands(application)
    undecomposed = _RMS_NORM_TO_INPUT(application)
    dims, rstd = _normalized(application), application.value("rstd")
    arguments = application.arguments | {"dims": dims, "count": _count(application.value("input"), dims)}
    step = _JOINSUM.rms_norm_slope.default, _RMS_NORM_SLOPE
    slope = _applied(step, application, arguments, (rstd.shape, rstd.dtype))
    step = _JOINSUM.rms_norm_grad_of.default, _RMS_NORM_TO_INPUT_OF_SLOPE
    return decomposed_or(
        undecomposed, _applied(step, application, {**arguments, "slope": slope[0]}, *application.types)
    )


# --- group norm -------------------------------------------------------------------------------------------------------

# A site has whole groups, of which `k` channels each are not divided; `group` is the number of its own groups.
_GROUP_NORM = Form(
    "n (g k) *s, (g k), (g k) -> n (g k) *s, n g, n g",
    "k *s",
    sizes={"N": "n", "C": "(g k)"},
    counts={"group": "g"},
    flops="8 n g k *s",
)
_GROUP_NORM_TO_INPUT = Form(
    "n (g k) *s, n (g k) *s, n g, n g, (g k) -> n (g k) *s",
    "k *s",
    sizes={"n": "n", "c": "(g k)"},
    counts={"group": "g"},
    flops="12 n g k *s",
)
_GROUP_NORM_TO_AFFINE = Form(
    "n (g k) *s, n (g k) *s, n g, n g -> (g k), (g k)",
    "k *s",
    "n=add",
    sizes={"n": "n", "c": "(g k)"},
    counts={"group": "g"},
    flops="6 n g k *s",
)


def _group_norm_backward(application: Application) -> Results:
    sizes = {own: application.arguments[name] for own, name in (("n", "N"), ("c", "C"), ("s", "HxW"))}
    arguments = application.arguments | sizes | {"grad": application.value("grad_out")}
    to_input = _JOINSUM.group_norm_grad_input.default, _GROUP_NORM_TO_INPUT
    to_affine = _JOINSUM.group_norm_grad_affine.default, _GROUP_NORM_TO_AFFINE
    return _gradients(application, arguments, to_input, to_affine)


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
    operator = _JOINSUM.batch_norm_with.default
    # The saved statistics, which nothing reads in evaluation, are empty on the CPU, and one a channel on a GPU.
    results = _EVALUATION.apply(application, operator, application.arguments, application.type)
    kinds = [kind for kind in application.results[1:3] if kind]
    saved = [application.recorder.filled(shape, torch.zeros((), dtype=dtype)) for shape, dtype in kinds]
    statistics = [application.optional("running_mean"), application.optional("running_var")]
    return [*results, *saved, *statistics][: len(application.results)]


def _batch_norm_in_training(application: Application) -> Results:
    """Mean and deviation of two sums over batch and pixels."""
    application = with_materialized_operands(application)
    dims = [dim for dim in range(len(application.shape)) if dim != 1]
    norm, count = (_JOINSUM.batch_norm_of.default, _TRAINING_OF_SUMS), len(application.types)
    kinds = [*application.types, *application.types[1:3]][:5]
    whole = _JOINSUM.batch_norm_training.default, _TRAINING
    undecomposed = _applied(whole, application, application.arguments, *kinds)
    results = _of_sums(application, dims, _TRAINING_SQUARES, norm, kinds)
    return decomposed_or(undecomposed, results)[:count]


def _batch_norm_backward(application: Application) -> Results:
    grad, mask = application.value("grad_out"), application.numbers("output_mask")
    if application.arguments["train"]:
        value = application.value("input")
        channels = ((value.shape[1],), application.value("save_mean").dtype)
        arguments = application.arguments | {"running_mean": None, "running_var": None, "output_mask": [True] * 3}
        kinds = [(value.shape, value.dtype), channels, channels]
        gradients = _batch_norm_in_training_backward(application.of(application.operator, arguments, *kinds))
        return [gradient if requested else None for gradient, requested in zip(gradients, mask, strict=True)]
    statistics = {"mean": application.value("running_mean"), "variance": application.value("running_var")}
    to_input = _JOINSUM.batch_norm_with_grad_input.default, _EVALUATION_TO_INPUT
    to_affine = _JOINSUM.batch_norm_with_grad_affine.default, _EVALUATION_TO_AFFINE
    return _gradients(application, application.arguments | statistics | {"grad": grad}, to_input, to_affine)


def _batch_norm_in_training_backward(application: Application) -> Results:
    """All three gradients, of two sums over batch and pixels."""
    application = with_materialized_operands(application)
    undecomposed = _TRAINING_BACKWARD(application)
    value, mean = application.value("input"), application.value("save_mean")
    statistics = {"mean": mean, "rstd": application.value("save_invstd")}
    arguments = application.arguments | statistics | {"grad": application.value("grad_out")}
    arguments["count"] = math.prod(value.shape) // value.shape[1]
    slopes = _JOINSUM.batch_norm_slopes.default, _TRAINING_SLOPES
    gradients = _JOINSUM.batch_norm_grad_of.default, _TRAINING_BACKWARD_OF_SLOPES
    channels = mean.shape, accumulation_dtype(mean.dtype)
    return decomposed_or(undecomposed, _of_slopes(application, arguments, channels, slopes, gradients))


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
    Entry("joinsum::rms_norm", _rms_norm, f"`{_RMS_NORM.pattern}`; {_OF_SHARDS}"),
    Entry("joinsum::rms_norm_grad_input", _rms_norm_to_input, f"`{_RMS_NORM_TO_INPUT.pattern}`; {_OF_SHARDS}"),
    Entry("joinsum::rms_norm_grad_weight", _RMS_NORM_TO_WEIGHT),
    Entry("native_group_norm", _GROUP_NORM),
    Entry(
        "native_group_norm_backward",
        _group_norm_backward,
        "by batch and groups; the gradients of weight and bias reduce the batch",
    ),
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
