"""Convolutions: batch and channels may be divided, places may not."""

from __future__ import annotations

import torch

from joinsum.capture.application import Application
from joinsum.capture.operators.form import Form
from joinsum.capture.operators.row import Made, Row, rows
from joinsum.capture.recorder import Recorder, Value, axis_names

__all__ = ["ROWS"]

_COUNTS = {"groups": "g"}
_FLOPS = "2 n g o c *k *t"
_FORWARD = Form("n (g c) *s, (g o) c *k -> n (g o) *t", "*s *k *t", "c=add", {}, _COUNTS, _FLOPS)
_TRANSPOSED = Form("n (g c) *s, (g c) o *k -> n (g o) *t", "*s *k *t", "c=add", {}, _COUNTS, _FLOPS)
_SHARED = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")

# By whether it is transposed: gradients of the input, and of the weight.
_TO_INPUT = {
    False: Form("n (g o) *t, (g o) c *k -> n (g c) *s", "*s *k *t", "o=add", {"input_sizes": "n (g c) *s"}, _COUNTS),
    True: Form("n (g o) *t, (g c) o *k -> n (g c) *s", "*s *k *t", "o=add", {"input_sizes": "n (g c) *s"}, _COUNTS),
}
_TO_WEIGHT = {
    False: Form("n (g o) *t, n (g c) *s -> (g o) c *k", "*s *k *t", "n=add", {"weight_sizes": "(g o) c *k"}, _COUNTS),
    True: Form("n (g o) *t, n (g c) *s -> (g c) o *k", "*s *k *t", "n=add", {"weight_sizes": "(g c) o *k"}, _COUNTS),
}


def _convolution(recorder: Recorder, application: Application) -> Made:
    """The bias is added once, however the channels that are summed are divided."""
    form = _TRANSPOSED if application.arguments["transposed"] else _FORWARD
    bias = application.optional("bias")
    (made,) = form(recorder, application.with_arguments({"bias": None}))
    assert made is not None
    if bias is None:
        return [made]
    names = axis_names(made)
    return [recorder.einsum([(made, names), (bias, names[1:2])], names, "add")]


def _backward(recorder: Recorder, application: Application) -> Made:
    """Each gradient by itself: the input's is summed over output channels, the weight's over the batch."""
    mask = application.arguments["output_mask"]
    assert isinstance(mask, list)
    grad, given, weight = (application.value(name) for name in ("grad_output", "input", "weight"))
    transposed = bool(application.arguments["transposed"])
    shared = {name: application.arguments[name] for name in _SHARED}
    made: list[Value | None] = [None, None, None]
    if mask[0]:
        operator = torch.ops.joinsum.convolution_grad_input.default
        arguments = {"grad": grad, "weight": weight, "input_sizes": list(given.shape), **shared}
        made[0] = _TO_INPUT[transposed](recorder, application.of(operator, arguments, [(given.shape, grad.dtype)]))[0]
    if mask[1]:
        operator = torch.ops.joinsum.convolution_grad_weight.default
        arguments = {"grad": grad, "input": given, "weight_sizes": list(weight.shape), **shared}
        made[1] = _TO_WEIGHT[transposed](recorder, application.of(operator, arguments, [(weight.shape, grad.dtype)]))[0]
    if mask[2]:
        names = axis_names(grad)
        made[2] = recorder.einsum([(grad, names)], names[1:2], "id")
    return made


ROWS: list[Row] = [
    *rows("convolutions", "convolution", _convolution, f"`{_FORWARD.text}`, folded over c by add; then the bias"),
    *rows("convolutions", "convolution_backward", _backward, "a call for each gradient, folded over what is summed"),
]
