"""Losses: of each element, summed, and of the scores of classes."""

from __future__ import annotations

import math

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
    return [scaled(_total(losses), 1 / math.prod(losses.shape)) if reduction == 1 else _total(losses)]


def _loss_backward(application: Application) -> Results:
    """The mean's derivative is the sum's over the number of elements."""
    if application.number("reduction") != 1:
        return _EACH(application)
    gradient = scaled(application.value("grad_output"), 1 / math.prod(application.shape))
    return _EACH(application.with_arguments({"reduction": 2, "grad_output": gradient}))


# --- the negative log-likelihood --------------------------------------------------------------------------------------

_NLL = Form("n c *s, n *s, c -> n *s, n *s", reduce="c=add", shards=shard_of("c"), flops="2 n *s")
_NLL_BACKWARD = Form("n c *s, n *s, n *s, c -> n c *s", shards=shard_of("c"), flops="2 n *s")


def _classes(application: Application) -> tuple[Value, Value, dict[str, object]]:
    """Scores, targets, and all arguments that the loss and its gradient share. A single sample becomes a batch."""
    score, target = application.value("self"), application.value("target")
    if len(score.axes) == 1:
        score, target = reshaped(score, (1, *score.shape)), reshaped(target, (1,))
    options = {"weight": application.arguments["weight"], "ignored": application.arguments["ignore_index"]}
    return score, target, {"score": score, "target": target, **options}


def _nll_forward(application: Application) -> Results:
    """The scores of the targets and their weights, each reduced; the mean is over the weights."""
    score, target, arguments = _classes(application)
    reduction, kind = application.number("reduction"), (target.shape, score.dtype)
    losses, weights = _NLL.apply(application, torch.ops.joinsum.nll_shard.default, arguments, kind, kind)
    if reduction == 0:
        losses = losses if len(application.value("self").axes) > 1 else reshaped(losses, ())
        return [losses, application.recorder.constant(torch.zeros((), dtype=score.dtype))]
    total, weight = _total(losses), _total(weights)
    return [einsum([(total, ()), (weight, ())], (), "div") if reduction == 1 else total, weight]


def _nll_backward(application: Application) -> Results:
    score, target, arguments = _classes(application)
    grad, reduction = application.value("grad_output"), application.number("reduction")
    shape = application.value("self").shape
    if reduction == 1:
        grad = einsum([(grad, ()), (application.value("total_weight"), ())], (), "div")
    if reduction != 0 or len(shape) == 1:
        grad = expanded(reshaped(grad, ()), target.shape)
    operator = torch.ops.joinsum.nll_backward_shard.default
    (gradient,) = _NLL_BACKWARD.apply(application, operator, {**arguments, "grad": grad}, (score.shape, score.dtype))
    return [reshaped(gradient, shape)]


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
)
