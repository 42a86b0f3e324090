"""Losses: of each element, summed, and of the scores of classes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from joinsum.capture.recording.application import Application
from joinsum.capture.recording.values import Value, axis_names
from joinsum.capture.recording.vertices import einsum, expanded, reshaped, scaled
from joinsum.capture.rules.form import Form, shard_of
from joinsum.capture.rules.pointwise import Pointwise
from joinsum.capture.rules.row import Entry, Results, rows

__all__ = ["ROWS"]

_EACH = Pointwise(4, equal=True)


def _total(value: Value) -> Value:
    return einsum([(value, axis_names(len(value.axes)))], [], "id")


# --- losses of each element -------------------------------------------------------------------------------------------


def _loss(application: Application) -> Results:
    """`reduction` is 0 for the losses of all elements, 1 for their mean, 2 for their sum."""
    reduction = application.number("reduction")
    (losses,) = _EACH(application.with_arguments({"reduction": 0}))
    assert losses is not None
    if reduction == 0:
        return [losses]
    return [scaled(_total(losses), _reciprocal(losses.shape)) if reduction == 1 else _total(losses)]


def _reciprocal(shape: Sequence[int]) -> float:
    """Of the number of elements; the mean of none is no number."""
    return 1 / math.prod(shape) if math.prod(shape) else math.nan


def _loss_backward(application: Application) -> Results:
    """The mean's derivative is the sum's over the number of elements."""
    if application.number("reduction") != 1:
        return _EACH(application)
    gradient = scaled(application.value("grad_output"), _reciprocal(application.shape))
    return _EACH(application.with_arguments({"reduction": 2, "grad_output": gradient}))


# --- the negative log-likelihood --------------------------------------------------------------------------------------

_SCORES = Form("n c *s, n *s, c -> n *s, n *s", reduce="c=add", shards=shard_of("c"), flops="2 n *s")
_NLL_BACKWARD = Form("n c *s, n *s, n *s, c -> n c *s", shards=shard_of("c"), flops="2 n *s")


def _classes(application: Application) -> tuple[Value, Value, dict[str, object]]:
    """Scores, targets, and all arguments that the loss and its gradient share. A single sample becomes a batch."""
    score, target = application.value("self"), application.value("target")
    if len(score.axes) == 1:
        score, target = reshaped(score, (1, *score.shape)), reshaped(target, (1,))
    options = {"weight": application.arguments["weight"], "ignored": application.arguments["ignore_index"]}
    return score, target, {"score": score, "input": score, "target": target, **options}


def _of_targets(application: Application, target: Value, arguments: dict[str, object]) -> list[Value]:
    """The scores of the targets and their weights."""
    kind = target.shape, application.dtype
    return _SCORES.apply(application, torch.ops.joinsum.class_scores.default, arguments, kind, kind)


def _reduced(application: Application, losses: Value, weights: Value) -> list[Value]:
    """Losses of targets as `reduction` says, 1 for their mean over the weights; and the sum of the weights."""
    reduction = application.number("reduction")
    if reduction == 0:
        return [losses, application.recorder.constant(torch.zeros((), dtype=losses.dtype))]
    total, weight = _total(losses), _total(weights)
    return [einsum([(total, ()), (weight, ())], (), "div") if reduction == 1 else total, weight]


def _slopes(application: Application, grad: Value, total: Value, shape: Sequence[int]) -> Value:
    """The gradient of the loss of each target, before its weight."""
    if application.number("reduction") == 1:
        grad = einsum([(grad, ()), (total, ())], (), "div")
    return grad if grad.shape == tuple(shape) else expanded(reshaped(grad, ()), shape)


def _nll_forward(application: Application) -> Results:
    """The scores of the targets, reduced over classes, times their weights."""
    _, target, arguments = _classes(application)
    scores, weights = _of_targets(application, target, arguments)
    names = axis_names(len(target.axes))
    losses = scaled(einsum([(scores, names), (weights, names)], names, "mul"), -1.0)
    loss, weight = _reduced(application, losses, weights)
    return [reshaped(loss, application.shape), weight]


def _nll_backward(application: Application) -> Results:
    score, target, arguments = _classes(application)
    grad = _slopes(application, application.value("grad_output"), application.value("total_weight"), target.shape)
    operator = torch.ops.joinsum.nll_backward_shard.default
    (gradient,) = _NLL_BACKWARD.apply(application, operator, {**arguments, "grad": grad}, (score.shape, score.dtype))
    return [reshaped(gradient, application.shape)]


# --- the cross entropy ------------------------------------------------------------------------------------------------

_LSE = Form("n c *s -> n *s", reduce="c=logaddexp", flops="5 n c *s")
_CROSS_ENTROPY_OF = Form("n *s, n *s, n *s -> n *s", flops="3 n *s")
_CROSS_ENTROPY_GRAD = Form("n c *s, n *s, n *s, n *s -> n c *s", shards=shard_of("c"), flops="6 n c *s")


def _cross_entropy(application: Application) -> Results:
    """The scores of the targets less the logarithms of sums of exponentials."""
    score, target = application.value("input"), application.value("target")
    operators, kind = torch.ops.joinsum, (target.shape, score.dtype)
    (lse,) = _LSE.apply(application, operators.class_lse.default, {"input": score}, (target.shape, torch.float64))
    scores, weights = _of_targets(application, target, application.arguments)
    arguments = {"lse": lse, "score": scores, "share": weights}
    (losses,) = _CROSS_ENTROPY_OF.apply(application, operators.cross_entropy_of.default, arguments, kind)
    return [*_reduced(application, losses, weights), weights, lse]


def _cross_entropy_backward(application: Application) -> Results:
    target, share = application.value("target"), application.value("share")
    grad = _slopes(application, application.value("grad"), application.value("total"), target.shape)
    names = axis_names(len(target.axes))
    arguments = {**application.arguments, "slope": einsum([(grad, names), (share, names)], names, "mul")}
    operator = torch.ops.joinsum.cross_entropy_grad.default
    return _CROSS_ENTROPY_GRAD.apply(application, operator, arguments, application.type)


ROWS = rows(
    "losses",
    Entry("mse_loss smooth_l1_loss huber_loss binary_cross_entropy", _loss, "each element, then a sum"),
    Entry("binary_cross_entropy_with_logits soft_margin_loss", _loss, "each element, then a sum"),
    Entry(
        "mse_loss_backward smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward "
        "soft_margin_loss_backward",
        _loss_backward,
        "each element by itself, the gradient over the number of elements",
    ),
    Entry("nll_loss_forward nll_loss2d_forward", _nll_forward, "the picked scores, reduced over classes by add"),
    Entry("nll_loss_backward nll_loss2d_backward", _nll_backward, "each target by itself; classes may be divided"),
    Entry(
        "joinsum::cross_entropy",
        _cross_entropy,
        "log softmax and loss: sums of exponentials are reduced over classes by logaddexp, picked scores by add",
    ),
    Entry("joinsum::cross_entropy_backward", _cross_entropy_backward, "all labels may be divided"),
)
