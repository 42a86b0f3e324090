"""Operators of the dispatcher for softmax and norms whose mixed axes are divided: what parts fold, and what is made of
the folds. `input` is a part; folds are those of the whole. Halves are folded in single precision.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

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
    "wide",
]


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which numbers of a dtype are folded.

    >>> wide(torch.bfloat16), wide(torch.float64)
    (torch.float32, torch.float64)
    """
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


# --- softmax ----------------------------------------------------------------------------------------------------------


@torch.library.custom_op("joinsum::softmax_total", mutates_args=())
def softmax_total(input: torch.Tensor, most: torch.Tensor, dim: int) -> torch.Tensor:
    """Σ exp(input - most) along `dim`, which stays with one element; those of parts add up."""
    return (input.to(wide(input.dtype)) - most).exp_().sum(dim, keepdim=True)


@torch.library.custom_op("joinsum::softmax_of", mutates_args=())
def softmax_of(input: torch.Tensor, most: torch.Tensor, total: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """exp(input - most) / total, in `dtype`."""
    return (input.to(total.dtype) - most).exp_().div_(total).to(dtype)


@torch.library.custom_op("joinsum::log_softmax_of", mutates_args=())
def log_softmax_of(input: torch.Tensor, most: torch.Tensor, total: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """input - most - log(total), in `dtype`."""
    return (input.to(total.dtype) - most).sub_(total.log()).to(dtype)


@torch.library.custom_op("joinsum::softmax_slope", mutates_args=())
def softmax_slope(grad: torch.Tensor, output: torch.Tensor, dim: int) -> torch.Tensor:
    """Σ grad · output along `dim`, which stays with one element; those of parts add up."""
    return (grad.to(wide(grad.dtype)) * output).sum(dim, keepdim=True)


@torch.library.custom_op("joinsum::softmax_grad_of", mutates_args=())
def softmax_grad_of(grad: torch.Tensor, output: torch.Tensor, slope: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The gradient of a softmax's input: output · (grad - slope)."""
    return ((grad.to(slope.dtype) - slope) * output).to(dtype)


@torch.library.custom_op("joinsum::log_softmax_grad_of", mutates_args=())
def log_softmax_grad_of(
    grad: torch.Tensor, output: torch.Tensor, total: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """The gradient of a log softmax's input: grad - exp(output) · total, the sum of `grad`."""
    return (grad.to(total.dtype) - output.to(total.dtype).exp() * total).to(dtype)


# --- norms ------------------------------------------------------------------------------------------------------------


@torch.library.custom_op("joinsum::centred_squares", mutates_args=())
def centred_squares(input: torch.Tensor, total: torch.Tensor, count: int, dims: Sequence[int]) -> torch.Tensor:
    """Σ (input - total / count)² along `dims`, which stay with one element; those of parts add up.

    total   the sum of all `count` elements along `dims`, parts taken together
    """
    return (input.to(total.dtype) - total / count).square_().sum(list(dims), keepdim=True)


@torch.library.custom_op("joinsum::layer_norm_of", mutates_args=())
def layer_norm_of(
    input: torch.Tensor,
    total: torch.Tensor,
    squares: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    count: int,
    eps: float,
    kept: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A layer norm, its mean, and one over its deviation, these in the dtype `kept`."""
    mean, rstd = total / count, torch.rsqrt(squares / count + eps)
    made = (input.to(total.dtype) - mean) * rstd
    made = made if weight is None else made * weight
    made = made if bias is None else made + bias
    return made.to(input.dtype), mean.to(kept), rstd.to(kept)


@torch.library.custom_op("joinsum::layer_norm_slopes", mutates_args=())
def layer_norm_slopes(
    grad: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    dims: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Σ g and Σ g · normed along `dims`, where g is the gradient of what is normed; those of parts add up."""
    own = grad.to(wide(grad.dtype))
    own = own if weight is None else own * weight
    normed = (input.to(own.dtype) - mean) * rstd
    return own.sum(list(dims), keepdim=True), (own * normed).sum(list(dims), keepdim=True)


@torch.library.custom_op("joinsum::layer_norm_grad_of", mutates_args=())
def layer_norm_grad_of(
    grad: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    first: torch.Tensor,
    second: torch.Tensor,
    count: int,
) -> torch.Tensor:
    """The gradient of a layer norm's input, of the two slopes."""
    own = grad.to(first.dtype)
    own = own if weight is None else own * weight
    normed = (input.to(first.dtype) - mean) * rstd
    return ((own - (first + normed * second) / count) * rstd).to(input.dtype)


@torch.library.custom_op("joinsum::batch_norm_of", mutates_args=())
def batch_norm_of(
    input: torch.Tensor,
    total: torch.Tensor,
    squares: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    count: int,
    momentum: float,
    eps: float,
    kept: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A batch norm in training of [n, c, *s], the batch's mean, one over its deviation, and the new running statistics,
    which are the batch's where there are none. `total` and `squares` have an axis for each of the input's; the
    statistics of the batch are given in the dtype `kept`.
    """
    mean, variance = total / count, squares / count
    rstd = torch.rsqrt(variance + eps)
    spread = (1, -1, *(1,) * (input.dim() - 2))
    made = (input.to(total.dtype) - mean) * rstd
    made = made if weight is None else made * weight.view(spread)
    made = made if bias is None else made + bias.view(spread)
    mean, unbiased = mean.flatten(), squares.flatten() / max(count - 1, 1)
    if running_mean is not None and running_var is not None:
        mean_now = (running_mean + momentum * (mean - running_mean)).to(running_mean.dtype)
        variance_now = (running_var + momentum * (unbiased - running_var)).to(running_var.dtype)
    else:
        mean_now, variance_now = mean.to(kept, copy=True), unbiased.to(kept)
    return made.to(input.dtype), mean.to(kept), rstd.flatten().to(kept), mean_now, variance_now


@torch.library.custom_op("joinsum::batch_norm_slopes", mutates_args=())
def batch_norm_slopes(
    grad: torch.Tensor, input: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """For each channel Σ grad and Σ grad · normed; those of parts add up."""
    spread = (1, -1, *(1,) * (input.dim() - 2))
    dims = [0, *range(2, grad.dim())]
    own = grad.to(wide(mean.dtype))
    normed = (input.to(own.dtype) - mean.view(spread)) * rstd.view(spread)
    return own.sum(dims), (own * normed).sum(dims)


@torch.library.custom_op("joinsum::batch_norm_grad_of", mutates_args=())
def batch_norm_grad_of(
    grad: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    first: torch.Tensor,
    second: torch.Tensor,
    count: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of a batch norm's input, weight and bias in training, of the two slopes."""
    spread = (1, -1, *(1,) * (input.dim() - 2))
    normed = (input.to(first.dtype) - mean.view(spread)) * rstd.view(spread)
    scale = rstd if weight is None else rstd * weight
    made = (grad.to(first.dtype) - (first.view(spread) + normed * second.view(spread)) / count) * scale.view(spread)
    return made.to(input.dtype), second.to(mean.dtype, copy=True), first.to(mean.dtype, copy=True)
