"""Operators of the dispatcher that captured programs call and ATen lacks: parts of an operator, and gradients alone.

A letter that is folded may be divided because its part is told by offsets and extents: `offsets`, `local` and
`extents` have one number for each factor of the axis, row-major.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch

__all__ = [
    "batch_norm_with",
    "batch_norm_with_grad_affine",
    "batch_norm_with_grad_input",
    "checked",
    "convolution_grad_input",
    "convolution_grad_weight",
    "embedding_backward_part",
    "embedding_part",
    "group_norm_grad_affine",
    "group_norm_grad_input",
    "grouped_product",
    "layer_norm_grad_affine",
    "layer_norm_grad_input",
    "local_index",
    "nll_backward_part",
    "nll_part",
    "strided",
    "strided_scatter",
    "weight_norm",
    "weight_norm_backward",
]


def local_index(
    index: torch.Tensor, offsets: Sequence[int], local: Sequence[int], extents: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Where global indices of an axis are in its part, and whether they are there at all; elsewhere 0.

    Raises IndexError for one that is in no part; a GPU reports it as torch's own kernels do there.

    >>> local_index(torch.tensor([1, 4, 5, 7]), [4], [3], [8])
    (tensor([0, 0, 1, 0]), tensor([False,  True,  True, False]))
    """
    _check_range(index, math.prod(extents))
    here = torch.ones_like(index, dtype=torch.bool)
    found = torch.zeros_like(index)
    rest = index
    step = 1
    for offset, size, extent in zip(reversed(offsets), reversed(local), reversed(extents), strict=True):
        coordinate = rest % extent - offset
        rest = rest // extent
        here &= (coordinate >= 0) & (coordinate < size)
        found += coordinate * step
        step *= size
    return torch.where(here, found, 0), here


def _check_range(index: torch.Tensor, extent: int) -> None:
    inside = ((index >= 0) & (index < extent)).all()
    if index.device.type != "cpu":
        torch._assert_async(inside, "index out of range")  # without waiting for the device
    elif not inside:
        raise IndexError(
            f"capture: an index is out of range: least={int(index.min())}, greatest={int(index.max())}, extent={extent}"
        )


@torch.library.custom_op("joinsum::embedding_part", mutates_args=())
def embedding_part(
    table: torch.Tensor, index: torch.Tensor, offsets: Sequence[int], local: Sequence[int], extents: Sequence[int]
) -> torch.Tensor:
    """Rows of `table` [v, d] at `index`, zeros for those of other parts; parts add up to the lookup."""
    if list(local) == list(extents):
        whole: torch.Tensor = torch.ops.aten.embedding(table, index)
        return whole
    found, here = local_index(index, offsets, local, extents)
    return torch.where(here.unsqueeze(-1), table[found], 0)


@torch.library.custom_op("joinsum::embedding_backward_part", mutates_args=())
def embedding_backward_part(
    grad: torch.Tensor, index: torch.Tensor, rows: torch.Tensor, padding: int, extent: int
) -> torch.Tensor:
    """The gradient [v, d] of a part of a table's rows, which are `rows` [v] of `extent`, ascending; `grad` [*b, d] and
    `index` [*b] may be parts of the batch."""
    count = rows.numel()
    if count == extent:
        whole: torch.Tensor = torch.ops.aten.embedding_dense_backward(grad, index, extent, padding, False)
        return whole
    made = grad.new_zeros((count, grad.shape[-1]))
    if count == 0:
        return made
    wanted = index.reshape(-1).to(rows.dtype)
    found = torch.searchsorted(rows, wanted).clamp_(max=count - 1)
    here = (rows[found] == wanted) & (wanted != padding)
    return made.index_add_(0, found[here], grad.reshape(-1, grad.shape[-1])[here])


@torch.library.custom_op("joinsum::nll_part", mutates_args=())
def nll_part(
    score: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    ignored: int,
    offsets: Sequence[int],
    local: Sequence[int],
    extents: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Minus the weighted score of each target, and its weight; zeros where the class is of another part or ignored.

    `score` [n, c] or [n, c, *s], `target` [n, *s], `weight` [c].
    """
    valid = target != ignored
    found, here = local_index(torch.where(valid, target, 0), offsets, local, extents)
    here &= valid
    picked = score.gather(1, found.unsqueeze(1)).squeeze(1)
    weights = torch.ones_like(picked) if weight is None else weight[found]
    return torch.where(here, -picked * weights, 0), torch.where(here, weights, 0)


@torch.library.custom_op("joinsum::nll_backward_part", mutates_args=())
def nll_backward_part(
    score: torch.Tensor,
    grad: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    ignored: int,
    offsets: Sequence[int],
    local: Sequence[int],
    extents: Sequence[int],
) -> torch.Tensor:
    """The gradient [n, c, *s] of a part of the scores, of which only the shape is read, where each target's loss has
    the gradient `grad` [n, *s]."""
    valid = target != ignored
    found, here = local_index(torch.where(valid, target, 0), offsets, local, extents)
    weights = grad if weight is None else grad * weight[found]
    values = torch.where(here & valid, -weights, 0).unsqueeze(1)
    made = grad.new_zeros(score.shape)
    return made.scatter_(1, found.unsqueeze(1), values)


@torch.library.custom_op("joinsum::layer_norm_grad_input", mutates_args=())
def layer_norm_grad_input(
    grad: torch.Tensor,
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
) -> torch.Tensor:
    """The gradient of a layer norm's input."""
    mask = [True, False, False]
    # ATen reads the statistics as if they were contiguous.
    made: torch.Tensor = torch.ops.aten.native_layer_norm_backward(
        grad, input, normalized_shape, mean.contiguous(), rstd.contiguous(), weight, None, mask
    )[0]
    return made


@torch.library.custom_op("joinsum::layer_norm_grad_affine", mutates_args=())
def layer_norm_grad_affine(
    grad: torch.Tensor, input: torch.Tensor, normalized_shape: Sequence[int], mean: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of a layer norm's weight and bias; those of parts of the batch add up."""
    weight = grad.new_ones(tuple(normalized_shape))
    bias = torch.zeros_like(weight)
    _, for_weight, for_bias = torch.ops.aten.native_layer_norm_backward(
        grad, input, normalized_shape, mean.contiguous(), rstd.contiguous(), weight, bias, [False, True, True]
    )
    return for_weight, for_bias


@torch.library.custom_op("joinsum::weight_norm", mutates_args=())
def weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """ATen's weight norm, which reads its operands as if they were contiguous: the weight, and the norms."""
    made: tuple[torch.Tensor, torch.Tensor] = torch.ops.aten._weight_norm_interface(v.contiguous(), g.contiguous(), dim)
    return made


@torch.library.custom_op("joinsum::weight_norm_backward", mutates_args=())
def weight_norm_backward(
    grad: torch.Tensor, v: torch.Tensor, g: torch.Tensor, norms: torch.Tensor, dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of a weight norm's direction and length."""
    operands = [each.contiguous() for each in (grad, v, g, norms)]
    made: tuple[torch.Tensor, torch.Tensor] = torch.ops.aten._weight_norm_interface_backward(*operands, dim)
    return made


@torch.library.custom_op("joinsum::group_norm_grad_affine", mutates_args=())
def group_norm_grad_affine(
    grad: torch.Tensor, input: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor, n: int, c: int, s: int, group: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of a group norm's weight and bias; those of parts of the batch add up."""
    weight = grad.new_ones((c,))
    _, for_weight, for_bias = torch.ops.aten.native_group_norm_backward(
        grad.contiguous(), input.contiguous(), mean, rstd, weight, n, c, s, group, [False, True, True]
    )
    return for_weight, for_bias


@torch.library.custom_op("joinsum::group_norm_grad_input", mutates_args=())
def group_norm_grad_input(
    grad: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    n: int,
    c: int,
    s: int,
    group: int,
) -> torch.Tensor:
    """The gradient of a group norm's input."""
    made: torch.Tensor = torch.ops.aten.native_group_norm_backward(
        grad.contiguous(), input.contiguous(), mean, rstd, weight, n, c, s, group, [True, False, False]
    )[0]
    return made


@torch.library.custom_op("joinsum::batch_norm_with", mutates_args=())
def batch_norm_with(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    """A batch norm of [n, c, *s] with given statistics, as in evaluation."""
    return torch.nn.functional.batch_norm(input, running_mean, running_var, weight, bias, False, 0.0, eps)


@torch.library.custom_op("joinsum::batch_norm_with_grad_input", mutates_args=())
def batch_norm_with_grad_input(
    grad: torch.Tensor, weight: torch.Tensor | None, variance: torch.Tensor, eps: float
) -> torch.Tensor:
    """The gradient of the input of a batch norm with given statistics."""
    scale = torch.rsqrt(variance + eps) * (1 if weight is None else weight)
    return (grad * scale.view(-1, *(1,) * (grad.dim() - 2))).to(grad.dtype)


@torch.library.custom_op("joinsum::batch_norm_with_grad_affine", mutates_args=())
def batch_norm_with_grad_affine(
    grad: torch.Tensor, input: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of weight and bias of a batch norm with given statistics; those of parts of the batch add up."""
    spread = (-1, *(1,) * (grad.dim() - 2))
    normed = (input - mean.view(spread)) * torch.rsqrt(variance + eps).view(spread)
    dims = [0, *range(2, grad.dim())]
    return (grad * normed).sum(dims).to(mean.dtype), grad.sum(dims, dtype=mean.dtype)


@torch.library.custom_op("joinsum::convolution_grad_input", mutates_args=())
def convolution_grad_input(
    grad: torch.Tensor,
    weight: torch.Tensor,
    input_sizes: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """The gradient of a convolution's input; those of parts of the output channels add up."""
    # Of the input only the shape is read; oneDNN takes no repeated elements.
    input = grad.new_empty(tuple(input_sizes))
    options = (stride, padding, dilation, transposed, output_padding, groups, [True, False, False])
    made: torch.Tensor = torch.ops.aten.convolution_backward(grad, input, weight, None, *options)[0]
    return made


@torch.library.custom_op("joinsum::convolution_grad_weight", mutates_args=())
def convolution_grad_weight(
    grad: torch.Tensor,
    input: torch.Tensor,
    weight_sizes: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """The gradient of a convolution's weight; those of parts of the batch add up."""
    weight = grad.new_empty(tuple(weight_sizes))
    options = (stride, padding, dilation, transposed, output_padding, groups, [False, True, False])
    made: torch.Tensor = torch.ops.aten.convolution_backward(grad, input, weight, None, *options)[1]
    return made


@torch.library.custom_op("joinsum::grouped_product", mutates_args=())
def grouped_product(left: torch.Tensor, right: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """A product of matrices for each group g, from `ends[g - 1]` to `ends[g]` along the axis t; zeros behind the last.

    [t, k] and [g, k, n] give [t, n], [g, m, k] and [k, t] give [m, t], [m, t] and [t, n] give [g, m, n]. ATen's
    `_grouped_mm` takes only strides of 16 bytes, which parts of a tensor need not have.
    """
    bounds = [0, *ends.tolist()]
    groups = list(enumerate(pairwise(bounds)))
    if left.dim() == right.dim():
        return torch.stack([left[:, begin:end] @ right[begin:end] for _, (begin, end) in groups])
    if left.dim() == 2:
        made = left.new_zeros((left.shape[0], right.shape[2]))
        for group, (begin, end) in groups:
            made[begin:end] = left[begin:end] @ right[group]
        return made
    made = left.new_zeros((left.shape[1], right.shape[1]))
    for group, (begin, end) in groups:
        made[:, begin:end] = left[group] @ right[:, begin:end]
    return made


@torch.library.custom_op("joinsum::strided", mutates_args=())
def strided(input: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> torch.Tensor:
    """A copy of what `as_strided` sees of the elements of `input`, row-major."""
    return input.contiguous().as_strided(tuple(size), tuple(stride), offset).clone()


@torch.library.custom_op("joinsum::strided_scatter", mutates_args=())
def strided_scatter(
    input: torch.Tensor, source: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int
) -> torch.Tensor:
    """A row-major copy of `input` with `source` where `as_strided` sees its elements."""
    made = input.contiguous().clone()
    made.as_strided(tuple(size), tuple(stride), offset).copy_(source)
    return made


@torch.library.custom_op("joinsum::checked", mutates_args=())
def checked(condition: torch.Tensor, message: str) -> torch.Tensor:
    """The condition, a tensor of no axes, as a truth value; raises RuntimeError with the message where it is false."""
    if not bool(condition):
        raise RuntimeError(message)
    return condition.to(torch.bool, copy=True)


@checked.register_fake
def _(condition: torch.Tensor, message: str) -> torch.Tensor:
    return condition.new_empty((), dtype=torch.bool)
