"""Softmax, norms and the likelihood loss: whole operators, with free labels wherever they do not mix."""

from __future__ import annotations

import torch

from joinsum.capture.application import Application
from joinsum.capture.operators import cut_forms
from joinsum.capture.operators.along import Along
from joinsum.capture.operators.elementwise import expanded, summed_up
from joinsum.capture.operators.form import Form
from joinsum.capture.operators.row import Made, Row, rows
from joinsum.capture.recorder import Recorder, Value

__all__ = ["ROWS"]

# --- layer norm -------------------------------------------------------------------------------------------------------

_NORMED = {"n": "normalized_shape"}
_LAYER_NORM = Form(
    "*a *n, *n, *n -> *a *n, *a 1*n, *a 1*n",
    whole="*n",
    sizes={"normalized_shape": "*n"},
    lists=_NORMED,
    flops="8 *a *n",
)
_LAYER_NORM_TO_INPUT = Form(
    "*a *n, *a *n, *a 1*n, *a 1*n, *n -> *a *n",
    whole="*n",
    sizes={"normalized_shape": "*n"},
    lists=_NORMED,
    flops="12 *a *n",
)
_LAYER_NORM_TO_AFFINE = Form(
    "*a *n, *a *n, *a 1*n, *a 1*n -> *n, *n",
    fold="*a=add",
    sizes={"normalized_shape": "*n"},
    lists=_NORMED,
    flops="6 *a *n",
)


def _layer_norm(recorder: Recorder, application: Application) -> Made:
    return cut_forms.layer_norm(recorder, application, _LAYER_NORM)


def _layer_norm_backward(recorder: Recorder, application: Application) -> Made:
    """The input's gradient divides the batch; the others add up over it."""
    mask = application.arguments["output_mask"]
    assert isinstance(mask, list)
    value = application.value("input")
    names = ("input", "normalized_shape", "mean", "rstd")
    shared = {"grad": application.value("grad_out"), **{name: application.arguments[name] for name in names}}
    made: list[Value | None] = [None, None, None]
    if mask[0]:
        given = {**shared, "weight": application.arguments["weight"]}
        operator = torch.ops.joinsum.layer_norm_grad_input.default
        alone = application.of(operator, given, [(value.shape, value.dtype)])
        made[0] = cut_forms.layer_norm_grad_input(recorder, alone, _LAYER_NORM_TO_INPUT)[0]
    if mask[1] or mask[2]:
        kind = next(each for each in application.results[1:] if each is not None)
        operator = torch.ops.joinsum.layer_norm_grad_affine.default
        made[1:] = _LAYER_NORM_TO_AFFINE(recorder, application.of(operator, shared, [kind, kind]))
    return [value if each else None for value, each in zip(made, mask, strict=True)]


# --- group norm and batch norm ----------------------------------------------------------------------------------------

_GROUP_NORM = Form(
    "n c *s, c, c -> n c *s, n g, n g",
    whole="c *s g",
    sizes={"N": "n"},
    flops="8 n c *s",
)
_GROUP_NORM_TO_INPUT = Form("n c *s, n c *s, n g, n g, c -> n c *s", "c *s g", sizes={"n": "n"}, flops="12 n c *s")
_GROUP_NORM_TO_AFFINE = Form("n c *s, n c *s, n g, n g -> c, c", "c *s g", "n=add", sizes={"n": "n"}, flops="6 n c *s")
_TRAINING = Form(
    "n c *s, c, c, c, c -> n c *s, c, c, c, c",
    whole="n *s",
    flops="8 n c *s",
)
_TRAINING_BACKWARD = Form("n c *s, n c *s, c, c, c, c, c -> n c *s, c, c", whole="n *s", flops="12 n c *s")


def _group_norm_backward(recorder: Recorder, application: Application) -> Made:
    mask = application.arguments["output_mask"]
    assert isinstance(mask, list)
    value = application.value("input")
    sizes = {"n": application.arguments["N"], "c": application.arguments["C"], "s": application.arguments["HxW"]}
    shared = {name: application.arguments[name] for name in ("input", "mean", "rstd", "group")}
    shared |= {"grad": application.value("grad_out"), **sizes}
    made: list[Value | None] = [None, None, None]
    if mask[0]:
        given = {**shared, "weight": application.arguments["weight"]}
        operator = torch.ops.joinsum.group_norm_grad_input.default
        made[0] = _GROUP_NORM_TO_INPUT(recorder, application.of(operator, given, [(value.shape, value.dtype)]))[0]
    if mask[1] or mask[2]:
        kind = next(each for each in application.results[1:] if each is not None)
        operator = torch.ops.joinsum.group_norm_grad_affine.default
        made[1:] = _GROUP_NORM_TO_AFFINE(recorder, application.of(operator, shared, [kind, kind]))
    return [value if each else None for value, each in zip(made, mask, strict=True)]


def _batch_norm(recorder: Recorder, application: Application) -> Made:
    """In training the statistics are the whole batch's; in evaluation each element is by itself."""
    if application.arguments.get("training", False):
        return cut_forms.batch_norm(recorder, application, _TRAINING)
    names = ("input", "weight", "bias", "running_mean", "running_var", "eps")
    given = {name: application.arguments[name] for name in names}
    operator = torch.ops.joinsum.batch_norm_with.default
    (made,) = _EVALUATION(recorder, application.of(operator, given, [(application.shape, application.dtype)]))
    empty = [recorder.constant(torch.empty(0, dtype=each[1])) for each in application.results[1:3] if each]
    return [made, *empty, application.optional("running_mean"), application.optional("running_var")][
        : len(application.results)
    ]


_EVALUATION = Form("n c *s, c, c, c, c -> n c *s", flops="4 n c *s")
_EVALUATION_BACKWARD = Form("n c *s, c, c -> n c *s", flops="2 n c *s")
_EVALUATION_TO_AFFINE = Form("n c *s, n c *s, c, c -> c, c", fold="n=add *s=add", flops="4 n c *s")


def _batch_norm_backward(recorder: Recorder, application: Application) -> Made:
    mask = application.arguments["output_mask"]
    assert isinstance(mask, list)
    value = application.value("input")
    if application.arguments["train"]:
        given = {**application.arguments, "running_mean": None, "running_var": None, "output_mask": [True] * 3}
        channels = ((value.shape[1],), application.value("save_mean").dtype)
        results = [(value.shape, value.dtype), channels, channels]
        alone = application.of(application.operator, given, results)
        found = cut_forms.batch_norm_backward(recorder, alone, _TRAINING_BACKWARD)
        return [each if needed else None for each, needed in zip(found, mask, strict=True)]
    grad, eps = application.value("grad_out"), application.arguments["eps"]
    mean, variance = application.value("running_mean"), application.value("running_var")
    made: list[Value | None] = [None, None, None]
    if mask[0]:
        given = {"grad": grad, "weight": application.arguments["weight"], "variance": variance, "eps": eps}
        operator = torch.ops.joinsum.batch_norm_with_grad_input.default
        made[0] = _EVALUATION_BACKWARD(recorder, application.of(operator, given, [(value.shape, value.dtype)]))[0]
    if mask[1] or mask[2]:
        kind = next(each for each in application.results[1:] if each is not None)
        given = {"grad": grad, "input": value, "mean": mean, "variance": variance, "eps": eps}
        operator = torch.ops.joinsum.batch_norm_with_grad_affine.default
        made[1:] = _EVALUATION_TO_AFFINE(recorder, application.of(operator, given, [kind, kind]))
    return [value if each else None for value, each in zip(made, mask, strict=True)]


def _weight_norm(recorder: Recorder, application: Application) -> Made:
    """Each slice of `dim`, the first axis or the last, by itself."""
    values = [value for _, value in application.tensors()]
    rank = len(values[0].axes)
    dim = application.dim("dim", rank)
    names = [f"a{axis}" for axis in range(rank)]
    full, scale = " ".join(names), " ".join(name if axis == dim else "1" for axis, name in enumerate(names))
    mixed = " ".join(name for axis, name in enumerate(names) if axis != dim)
    given = list(application.arguments.values())
    results = [each for each in application.results if each is not None]
    if len(values) == 2:
        form = Form(f"{full}, {scale} -> {full}, {scale}", mixed, flops=f"4 {full}")
        operator = torch.ops.joinsum.weight_norm.default
    else:
        form = Form(f"{full}, {full}, {scale}, {scale} -> {full}, {scale}", mixed, flops=f"8 {full}")
        operator = torch.ops.joinsum.weight_norm_backward.default
    named = dict(zip([each.name for each in operator._schema.arguments], given, strict=True))
    return form(recorder, application.of(operator, named, results))


# --- the likelihood loss ----------------------------------------------------------------------------------------------

_NLL = Form(
    "n c *s, n *s, c -> n *s, n *s",
    fold="c=add",
    parts={"offsets": "offset c", "local": "local c", "extents": "extent c"},
    flops="2 n *s",
)
_NLL_BACKWARD = Form(
    "n c *s, n *s, n *s, c -> n c *s",
    parts={"offsets": "offset c", "local": "local c", "extents": "extent c"},
    flops="2 n *s",
)


def _batched(recorder: Recorder, value: Value, rank: int) -> Value:
    """With a batch of one where the operator is given a single sample."""
    return value if len(value.axes) == rank else recorder.reshaped(value, (1, *value.shape))


def _nll_forward(recorder: Recorder, application: Application) -> Made:
    """The picked scores and their weights, each folded; the mean is over the weights."""
    score, target = application.value("self"), application.value("target")
    single = len(score.axes) == 1
    score = _batched(recorder, score, max(2, len(score.axes)))
    target = _batched(recorder, target, max(1, len(score.axes) - 1))
    given = {"score": score, "target": target, "weight": application.arguments["weight"]}
    given["ignored"] = application.arguments["ignore_index"]
    kind = (target.shape, score.dtype)
    operator = torch.ops.joinsum.nll_part.default
    losses, weights = _NLL(recorder, application.of(operator, given, [kind, kind]))
    assert losses is not None
    assert weights is not None
    reduction = application.number("reduction")
    if reduction == 0:
        losses = recorder.reshaped(losses, ()) if single else losses
        zero = recorder.constant(torch.zeros((), dtype=score.dtype))
        return [losses, zero]
    total, weight = summed_up(recorder, losses, 2), summed_up(recorder, weights, 2)
    if reduction == 1:
        return [recorder.einsum([(total, ()), (weight, ())], (), "div"), weight]
    return [total, weight]


def _nll_backward(recorder: Recorder, application: Application) -> Made:
    score, target = application.value("self"), application.value("target")
    shape = score.shape
    score = _batched(recorder, score, max(2, len(score.axes)))
    target = _batched(recorder, target, max(1, len(score.axes) - 1))
    grad = application.value("grad_output")
    if application.number("reduction") == 1:
        grad = recorder.einsum([(grad, ()), (application.value("total_weight"), ())], (), "div")
    if application.number("reduction") != 0 or len(shape) == 1:
        grad = expanded(recorder.reshaped(grad, ()), target.shape)
    given = {"score": score, "grad": grad, "target": target, "weight": application.arguments["weight"]}
    given["ignored"] = application.arguments["ignore_index"]
    operator = torch.ops.joinsum.nll_backward_part.default
    (made,) = _NLL_BACKWARD(recorder, application.of(operator, given, [(score.shape, score.dtype)]))
    assert made is not None
    return [recorder.reshaped(made, shape)]


_IN_PARTS = "at once where its axes are not divided, else in parts, folded by add"

ROWS: list[Row] = [
    *rows("softmax", "_safe_softmax", Along(flops=10), "along `dim`, which is whole; all other labels free"),
    *rows(
        "softmax",
        "_softmax _log_softmax",
        cut_forms.softmax,
        "along `dim`: at once where it is not divided, else of partial maxima and sums; all other labels free",
    ),
    *rows(
        "softmax",
        "_softmax_backward_data _log_softmax_backward_data",
        cut_forms.softmax_backward,
        "along `dim`: at once where it is not divided, else of partial sums; all other labels free",
    ),
    *rows("norms", "native_layer_norm", _layer_norm, f"`{_LAYER_NORM.text}`; {_IN_PARTS}"),
    *rows(
        "norms",
        "native_layer_norm_backward",
        _layer_norm_backward,
        f"the input's gradient {_IN_PARTS}; the others fold the batch",
    ),
    *rows("norms", "native_group_norm", _GROUP_NORM, _GROUP_NORM.described),
    *rows(
        "norms", "native_group_norm_backward", _group_norm_backward, "the input's gradient; the others fold the batch"
    ),
    *rows(
        "norms",
        "_native_batch_norm_legit_functional _native_batch_norm_legit.no_stats _native_batch_norm_legit_no_training",
        _batch_norm,
        f"in training {_IN_PARTS} over batch and places; in evaluation all labels are free",
    ),
    *rows(
        "norms",
        "native_batch_norm_backward",
        _batch_norm_backward,
        f"in training {_IN_PARTS} over batch and places; in evaluation the gradients of weight and bias fold them",
    ),
    *rows(
        "norms",
        "_weight_norm_interface _weight_norm_interface_backward",
        _weight_norm,
        "all labels but that of `dim` are whole",
    ),
    *rows(
        "losses", "nll_loss_forward nll_loss2d_forward", _nll_forward, "the picked scores, folded over classes by add"
    ),
    *rows(
        "losses",
        "nll_loss_backward nll_loss2d_backward",
        _nll_backward,
        "each target by itself; classes may be divided",
    ),
]
