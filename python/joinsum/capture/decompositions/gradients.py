"""Operators of torch's dispatcher that ATen lacks: gradients alone, and operators that take operands of any strides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "checked",
    "convolution_gradient",
    "group_norm_grad_affine",
    "group_norm_grad_input",
    "grouped_product",
    "layer_norm_grad_affine",
    "layer_norm_grad_input",
    "strided",
    "strided_scatter",
    "weight_norm",
    "weight_norm_backward",
]


@torch.library.custom_op("joinsum::layer_norm_grad_input", mutates_args=())
def layer_norm_grad_input(
    grad: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
) -> Tensor:
    """The gradient of a layer norm's input."""
    mask = [True, False, False]
    # ATen reads the statistics as if they were contiguous.
    gradient: Tensor = torch.ops.aten.native_layer_norm_backward(
        grad, input, normalized_shape, mean.contiguous(), rstd.contiguous(), weight, None, mask
    )[0]
    return gradient


@torch.library.custom_op("joinsum::layer_norm_grad_affine", mutates_args=())
def layer_norm_grad_affine(
    grad: Tensor, input: Tensor, normalized_shape: Sequence[int], mean: Tensor, rstd: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of a layer norm's weight and bias; the results of shards of the batch are summed."""
    weight = grad.new_ones(tuple(normalized_shape))
    bias = torch.zeros_like(weight)
    _, for_weight, for_bias = torch.ops.aten.native_layer_norm_backward(
        grad, input, normalized_shape, mean.contiguous(), rstd.contiguous(), weight, bias, [False, True, True]
    )
    return for_weight, for_bias


@torch.library.custom_op("joinsum::weight_norm", mutates_args=())
def weight_norm(v: Tensor, g: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """ATen's weight norm, which reads its operands as if they were contiguous: the weight, and the norms."""
    result: tuple[Tensor, Tensor] = torch.ops.aten._weight_norm_interface(v.contiguous(), g.contiguous(), dim)
    return result


@torch.library.custom_op("joinsum::weight_norm_backward", mutates_args=())
def weight_norm_backward(grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The gradients of a weight norm's direction and length."""
    operands = [each.contiguous() for each in (grad, v, g, norms)]
    result: tuple[Tensor, Tensor] = torch.ops.aten._weight_norm_interface_backward(*operands, dim)
    return result


_GROUPS = "SymInt n, SymInt c, SymInt s, SymInt group"


@torch.library.custom_op(
    "joinsum::group_norm_grad_affine",
    mutates_args=(),
    schema=f"(Tensor grad, Tensor input, Tensor mean, Tensor rstd, {_GROUPS}) -> (Tensor, Tensor)",
)
def group_norm_grad_affine(grad: Tensor, input: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """The gradients of a group norm's weight and bias; the results of shards of the batch are summed."""
    mean, rstd, n, c, s, group = rest
    operands = (grad.contiguous(), input.contiguous(), mean, rstd, grad.new_ones((c,)))
    mask = [False, True, True]
    _, weight, bias = torch.ops.aten.native_group_norm_backward(*operands, n, c, s, group, mask)
    return weight, bias


@torch.library.custom_op(
    "joinsum::group_norm_grad_input",
    mutates_args=(),
    schema=f"(Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, {_GROUPS}) -> Tensor",
)
def group_norm_grad_input(grad: Tensor, input: Tensor, *rest: Any) -> Tensor:
    """The gradient of a group norm's input."""
    mask = [True, False, False]
    gradient: Tensor = torch.ops.aten.native_group_norm_backward(grad.contiguous(), input.contiguous(), *rest, mask)[0]
    return gradient


@torch.library.custom_op(
    "joinsum::convolution_gradient",
    mutates_args=(),
    schema="(Tensor grad, Tensor? input, Tensor? weight, SymInt[] sizes, SymInt[] stride, SymInt[] padding, "
    "SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor",
)
def convolution_gradient(
    grad: Tensor, input: Tensor | None, weight: Tensor | None, sizes: Sequence[int], *options: Any
) -> Tensor:
    """The gradient of a convolution's input or weight: of that which is None, whose shape is `sizes`.

    The input's of shards of the output channels are summed, the weight's of shards of the batch.
    """
    # ATen reads only the shape of what the gradient is of; oneDNN refuses an expanded tensor.
    operands = [grad.new_empty(tuple(sizes)) if each is None else each for each in (input, weight)]
    mask = [input is None, weight is None, False]
    gradients = torch.ops.aten.convolution_backward(grad, *operands, None, *options, mask)
    gradient: Tensor = gradients[mask.index(True)]
    return gradient


@torch.library.custom_op("joinsum::grouped_product", mutates_args=())
def grouped_product(left: Tensor, right: Tensor, ends: Tensor) -> Tensor:
    """A product of matrices for each group g, from `ends[g - 1]` to `ends[g]` along the axis t; zeros after the last.

    [t, k] and [g, k, n] give [t, n], [g, m, k] and [k, t] give [m, t], [m, t] and [t, n] give [g, m, n]. ATen's
    `_grouped_mm` takes only strides of 16 bytes, which shards of a tensor need not have.
    """
    bounds = [0, *ends.tolist()]
    groups = list(enumerate(pairwise(bounds)))
    if left.dim() == right.dim():
        return torch.stack([left[:, begin:end] @ right[begin:end] for _, (begin, end) in groups])
    if left.dim() == 2:
        result = left.new_zeros((left.shape[0], right.shape[2]))
        for group, (begin, end) in groups:
            result[begin:end] = left[begin:end] @ right[group]
        return result
    result = left.new_zeros((left.shape[1], right.shape[1]))
    for group, (begin, end) in groups:
        result[:, begin:end] = left[group] @ right[:, begin:end]
    return result


@torch.library.custom_op("joinsum::strided", mutates_args=())
def strided(input: Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> Tensor:
    """A copy of what `as_strided` sees of the elements of `input`, row-major."""
    return input.contiguous().as_strided(tuple(size), tuple(stride), offset).clone()


@torch.library.custom_op("joinsum::strided_scatter", mutates_args=())
def strided_scatter(input: Tensor, source: Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> Tensor:
    """A row-major copy of `input` with `source` where `as_strided` sees its elements."""
    result = input.contiguous().clone()
    result.as_strided(tuple(size), tuple(stride), offset).copy_(source)
    return result


@torch.library.custom_op("joinsum::checked", mutates_args=())
def checked(condition: Tensor, message: str) -> Tensor:
    """The condition, a tensor of no axes, as a truth value; raises RuntimeError with the message where it is false."""
    if not bool(condition):
        raise RuntimeError(message)
    return condition.to(torch.bool, copy=True)


@checked.register_fake
def _(condition: Tensor, message: str) -> Tensor:
    return condition.new_empty((), dtype=torch.bool)
