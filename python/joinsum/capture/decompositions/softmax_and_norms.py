"""Operators of torch's dispatcher for softmax and norms whose mixed axes are sharded: sums of a shard, and results that
are computed of the sums of all shards. `input` is a shard. Half types are summed in single precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from joinsum.base.dtypes import accumulation_dtype

__all__ = [
    "batch_norm_grad_of",
    "batch_norm_of",
    "batch_norm_slopes",
    "centred_squares",
    "layer_norm_grad_of",
    "layer_norm_of",
    "layer_norm_slopes",
    "log_softmax_grad_of",
    "log_softmax_of",
    "softmax_grad_of",
    "softmax_of",
    "softmax_slope",
    "softmax_total",
]

# --- softmax ----------------------------------------------------------------------------------------------------------


@torch.library.custom_op("joinsum::softmax_total", mutates_args=())
def softmax_total(input: Tensor, most: Tensor, dim: int) -> Tensor:
    """Σ exp(input - most) along `dim`, which remains with one element; the results of shards are summed."""
    return (input.to(accumulation_dtype(input.dtype)) - most).exp_().sum(dim, keepdim=True)


@torch.library.custom_op("joinsum::softmax_of", mutates_args=())
def softmax_of(input: Tensor, most: Tensor, total: Tensor, dtype: torch.dtype) -> Tensor:
    """exp(input - most) / total, in `dtype`."""
    return (input.to(total.dtype) - most).exp_().div_(total).to(dtype)


@torch.library.custom_op("joinsum::log_softmax_of", mutates_args=())
def log_softmax_of(input: Tensor, most: Tensor, total: Tensor, dtype: torch.dtype) -> Tensor:
    """input - most - log(total), in `dtype`."""
    return (input.to(total.dtype) - most).sub_(total.log()).to(dtype)


@torch.library.custom_op("joinsum::softmax_slope", mutates_args=())
def softmax_slope(grad: Tensor, output: Tensor, dim: int) -> Tensor:
    """Σ grad · output along `dim`, which remains with one element; the results of shards are summed."""
    return (grad.to(accumulation_dtype(grad.dtype)) * output).sum(dim, keepdim=True)


@torch.library.custom_op("joinsum::softmax_grad_of", mutates_args=())
def softmax_grad_of(grad: Tensor, output: Tensor, slope: Tensor, dtype: torch.dtype) -> Tensor:
    """The gradient of a softmax's input: output · (grad - slope)."""
    return (grad.to(slope.dtype) - slope).mul_(output).to(dtype)


@torch.library.custom_op("joinsum::log_softmax_grad_of", mutates_args=())
def log_softmax_grad_of(grad: Tensor, output: Tensor, total: Tensor, dtype: torch.dtype) -> Tensor:
    """The gradient of a log softmax's input: grad - exp(output) · total, the sum of `grad`."""
    spread = output.to(total.dtype).exp().mul_(total)
    return torch.sub(grad.to(total.dtype), spread, out=spread).to(dtype)


# --- norms ------------------------------------------------------------------------------------------------------------


@torch.library.custom_op("joinsum::centred_squares", mutates_args=())
def centred_squares(input: Tensor, total: Tensor, count: int, dims: Sequence[int]) -> Tensor:
    """Σ (input - total / count)² along `dims`, which remain with one element; the results of shards are summed.

    total   the sum of all `count` elements along `dims`, over all shards
    """
    return (input.to(total.dtype) - total / count).square_().sum(list(dims), keepdim=True)


_SUMS = "Tensor input, Tensor total, Tensor squares, Tensor? weight, Tensor? bias"
_SLOPES = (
    "Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, Tensor first, Tensor second, SymInt count"
)


def _affine(normed: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    normed = normed if weight is None else normed * weight
    return normed if bias is None else normed + bias


@torch.library.custom_op(
    "joinsum::layer_norm_of",
    mutates_args=(),
    schema=f"({_SUMS}, SymInt count, float eps, ScalarType statistics) -> (Tensor, Tensor, Tensor)",
)
def layer_norm_of(input: Tensor, total: Tensor, squares: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    """A layer norm, its mean, and one over its deviation, these in the dtype `statistics`."""
    weight, bias, count, eps, statistics = rest
    mean, rstd = total / count, torch.rsqrt(squares / count + eps)
    result = _affine((input.to(total.dtype) - mean) * rstd, weight, bias)
    return result.to(input.dtype), mean.to(statistics), rstd.to(statistics)


@torch.library.custom_op("joinsum::layer_norm_slopes", mutates_args=())
def layer_norm_slopes(
    grad: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    dims: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Σ g and Σ g · normed along `dims`, for the gradient g of the normed input; the results of shards are summed."""
    own = grad.to(accumulation_dtype(grad.dtype))
    own = own if weight is None else own * weight
    normed = (input.to(own.dtype) - mean) * rstd
    return own.sum(list(dims), keepdim=True), (own * normed).sum(list(dims), keepdim=True)


@torch.library.custom_op("joinsum::layer_norm_grad_of", mutates_args=(), schema=f"({_SLOPES}) -> Tensor")
def layer_norm_grad_of(grad: Tensor, input: Tensor, mean: Tensor, rstd: Tensor, *rest: Any) -> Tensor:
    """The gradient of a layer norm's input, of the two slopes."""
    weight, first, second, count = rest
    own = _affine(grad.to(first.dtype), weight, None)
    normed = (input.to(first.dtype) - mean) * rstd
    gradient: Tensor = (own - (first + normed * second) / count) * rstd
    return gradient.to(input.dtype)


def _channels(input: Tensor) -> tuple[int, ...]:
    """The shape in which statistics [c] broadcast with an input [n, c, *s]."""
    return (1, -1, *(1,) * (input.dim() - 2))


def _normed_channels(
    input: Tensor, moments: tuple[Tensor, Tensor], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """(input - mean) / sqrt(variance + eps) · weight + bias in one pass, for numbers [c] of an input [n, c, *s]."""
    return torch.nn.functional.batch_norm(input, *moments, weight, bias, False, 0.0, eps)


@torch.library.custom_op(
    "joinsum::batch_norm_of",
    mutates_args=(),
    schema=f"({_SUMS}, Tensor? running_mean, Tensor? running_var, SymInt count, float momentum, float eps, "
    "ScalarType statistics) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def batch_norm_of(input: Tensor, total: Tensor, squares: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """A batch norm in training of [n, c, *s], the batch's mean, one over its deviation, and the new running statistics,
    which are the batch's where there are none. `total` and `squares` have an axis for each of the input's; the
    statistics of the batch are of the dtype `statistics`.
    """
    weight, bias, running_mean, running_var, count, momentum, eps, statistics = rest
    mean, variance = total / count, squares / count
    mean, variance, unbiased = mean.flatten(), variance.flatten(), squares.flatten() / max(count - 1, 1)
    rstd = torch.rsqrt(variance + eps)
    weight, bias = (None if each is None else each.to(total.dtype) for each in (weight, bias))
    result = _normed_channels(input.to(total.dtype), (mean, variance), weight, bias, eps)
    if running_mean is not None and running_var is not None:
        mean_now = (running_mean + momentum * (mean - running_mean)).to(running_mean.dtype)
        variance_now = (running_var + momentum * (unbiased - running_var)).to(running_var.dtype)
    else:
        mean_now, variance_now = mean.to(statistics, copy=True), unbiased.to(statistics)
    return result.to(input.dtype), mean.to(statistics), rstd.to(statistics), mean_now, variance_now


@torch.library.custom_op("joinsum::batch_norm_slopes", mutates_args=())
def batch_norm_slopes(grad: Tensor, input: Tensor, mean: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    """For each channel Σ grad and Σ grad · normed; the results of shards are summed."""
    dtype = accumulation_dtype(mean.dtype)
    mean, rstd = mean.to(dtype), rstd.to(dtype)
    if input.numel() == 0:  # torch's operator divides by the number of elements
        return torch.zeros_like(mean), torch.zeros_like(mean)
    # Without the gradient of the input, the operator sums over each shard as if it were the batch.
    _, second, first = torch.ops.aten.native_batch_norm_backward(
        grad.to(dtype), input.to(dtype), torch.ones_like(mean), None, None, mean, rstd, True, 0.0, [False, True, True]
    )
    return first, second


@torch.library.custom_op(
    "joinsum::batch_norm_grad_of", mutates_args=(), schema=f"({_SLOPES}) -> (Tensor, Tensor, Tensor)"
)
def batch_norm_grad_of(grad: Tensor, input: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of a batch norm's input, weight and bias in training, of the two slopes."""
    mean, rstd, weight, first, second, count = rest
    dtype = first.dtype
    scale = _affine(rstd.to(dtype), None if weight is None else weight.to(dtype), None)
    spread = _channels(input)
    slope, offset = -scale * rstd * second / count, -scale * first / count
    # Centred first: where the mean is far larger than the deviation, the product would cancel otherwise.
    result = input.to(dtype) - mean.to(dtype).view(spread)
    torch.addcmul(offset.view(spread), result, slope.view(spread), out=result)
    result.addcmul_(grad.to(dtype), scale.view(spread))
    return result.to(input.dtype), second.to(mean.dtype, copy=True), first.to(mean.dtype, copy=True)
