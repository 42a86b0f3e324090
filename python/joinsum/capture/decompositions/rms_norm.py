"""Operators of torch's dispatcher for RMS norms: the gradient of whole rows, which are computed in
csrc/kernels/torch_call, and sums and results of rows of which each site has a shard. Half types are summed in single
precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from joinsum.base.dtypes import accumulation_dtype

__all__ = ["rms_norm_grad_of", "rms_norm_of", "rms_norm_slope", "rms_norm_squares"]


# --- whole rows -------------------------------------------------------------------------------------------------------


@torch.library.register_fake("joinsum::rms_norm")  # type: ignore[untyped-decorator]
def _(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    kept = input.shape[: input.dim() - len(normalized_shape)]
    dtype = accumulation_dtype(input.dtype)
    rstd = input.new_empty((*kept, *(1,) * len(normalized_shape)), dtype=dtype)
    return input.new_empty(input.shape), rstd


@torch.library.register_fake("joinsum::rms_norm_grad_input")  # type: ignore[untyped-decorator]
def _(grad: Tensor, input: Tensor, normalized_shape: Sequence[int], rstd: Tensor, weight: Tensor | None) -> Tensor:
    return input.new_empty(input.shape)


@torch.library.register_fake("joinsum::rms_norm_grad_weight")  # type: ignore[untyped-decorator]
def _(grad: Tensor, input: Tensor, normalized_shape: Sequence[int], rstd: Tensor) -> Tensor:
    return grad.new_empty(tuple(normalized_shape))


def _setup(ctx: Any, inputs: tuple[Tensor, Sequence[int], Tensor | None, float], output: tuple[Tensor, Tensor]) -> None:
    input, ctx.normalized_shape, weight, ctx.eps = inputs
    ctx.save_for_backward(input, weight, output[1])
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, None, Tensor | None, None]:
    input, weight, rstd = ctx.saved_tensors
    shape = list(ctx.normalized_shape)
    if torch.is_grad_enabled():
        gradients = _differentiable_gradients(grad, input, weight, len(shape), ctx.eps)
        return gradients[0], None, gradients[1], None
    operators = torch.ops.joinsum
    to_input = operators.rms_norm_grad_input(grad, input, shape, rstd, weight) if ctx.needs_input_grad[0] else None
    to_weight = operators.rms_norm_grad_weight(grad, input, shape, rstd) if ctx.needs_input_grad[2] else None
    return to_input, None, to_weight, None


def _differentiable_gradients(
    grad: Tensor, input: Tensor, weight: Tensor | None, rank: int, eps: float
) -> tuple[Tensor, Tensor | None]:
    """The gradients by operators that have gradients themselves."""
    dims = list(range(-rank, 0))
    rstd = torch.rsqrt(input.square().mean(dims, keepdim=True) + eps)
    normed = input * rstd
    own = grad if weight is None else grad * weight
    to_input = (own - normed * (own * normed).mean(dims, keepdim=True)) * rstd
    return to_input, None if weight is None else (grad * normed).sum_to_size(weight.shape)


torch.library.register_autograd("joinsum::rms_norm", _backward, setup_context=_setup)


# --- shards of rows ---------------------------------------------------------------------------------------------------


@torch.library.custom_op("joinsum::rms_norm_squares", mutates_args=())
def rms_norm_squares(input: Tensor, dims: Sequence[int]) -> Tensor:
    """Σ input² along `dims`, which remain with one element; the results of shards are summed."""
    return input.to(accumulation_dtype(input.dtype)).square().sum(list(dims), keepdim=True)


@torch.library.custom_op(
    "joinsum::rms_norm_of",
    mutates_args=(),
    schema="(Tensor input, Tensor squares, Tensor? weight, SymInt count, float eps) -> (Tensor, Tensor)",
)
def rms_norm_of(input: Tensor, squares: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """An RMS norm, and one over the root of the mean square; `squares` is the sum of all `count` squares."""
    weight, count, eps = rest
    rstd = torch.rsqrt(squares / count + eps)
    normed = input.to(squares.dtype) * rstd
    return (normed if weight is None else normed * weight).to(input.dtype), rstd


@torch.library.custom_op("joinsum::rms_norm_slope", mutates_args=())
def rms_norm_slope(grad: Tensor, input: Tensor, rstd: Tensor, weight: Tensor | None, dims: Sequence[int]) -> Tensor:
    """Σ g · normed along `dims`, for the gradient g of the normed input; the results of shards are summed."""
    own = grad.to(rstd.dtype) if weight is None else grad.to(rstd.dtype) * weight
    return (own * (input * rstd)).sum(list(dims), keepdim=True)


@torch.library.custom_op(
    "joinsum::rms_norm_grad_of",
    mutates_args=(),
    schema="(Tensor grad, Tensor input, Tensor rstd, Tensor? weight, Tensor slope, SymInt count) -> Tensor",
)
def rms_norm_grad_of(grad: Tensor, input: Tensor, rstd: Tensor, *rest: Any) -> Tensor:
    """The gradient of an RMS norm's input, of the slope."""
    weight, slope, count = rest
    own = grad.to(rstd.dtype) if weight is None else grad.to(rstd.dtype) * weight
    gradient: Tensor = (own - input * rstd * (slope / count)) * rstd
    return gradient.to(input.dtype)
