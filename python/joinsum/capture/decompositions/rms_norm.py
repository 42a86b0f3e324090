"""What autograd and fake tensors need of the RMS norms of csrc/kernels/torch_call: their gradients, and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from joinsum.base.dtypes import accumulation_dtype

__all__: list[str] = []


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
