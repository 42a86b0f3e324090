"""What autograd and fake tensors need of csrc/kernels/torch_call/resize.cpp: gradients, and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__: list[str] = []

Options = tuple[str, bool, Sequence[float] | None]


def _empty(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Of the layout that results of the operators have: images with channels last give such ones."""
    last = like.dim() == 4 and like.is_contiguous(memory_format=torch.channels_last) and not like.is_contiguous()
    layout = torch.channels_last if last else torch.contiguous_format
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=layout)


@torch.library.register_fake("joinsum::resize")  # type: ignore[untyped-decorator]
def _(x: Tensor, size: Sequence[int], mode: str, align_corners: bool, scales: Sequence[float] | None) -> Tensor:
    return _empty(x, (*x.shape[:2], *size))


@torch.library.register_fake("joinsum::resize_backward")  # type: ignore[untyped-decorator]
def _(grad: Tensor, sizes: Sequence[int], mode: str, align_corners: bool, scales: Sequence[float] | None) -> Tensor:
    return _empty(grad, sizes)


def _setup(ctx: Any, inputs: tuple[Tensor, Sequence[int], str, bool, Sequence[float] | None], output: Tensor) -> None:
    x, _, *ctx.options = inputs
    ctx.sizes = x.shape


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
    return torch.ops.joinsum.resize_backward(grad, list(ctx.sizes), *ctx.options), None, None, None, None


def _setup_backward(
    ctx: Any, inputs: tuple[Tensor, Sequence[int], str, bool, Sequence[float] | None], output: Tensor
) -> None:
    grad, _, *ctx.options = inputs
    ctx.size = grad.shape[2:]


def _backward_of_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
    """The gradient is linear, and its transpose is the operator itself."""
    return torch.ops.joinsum.resize(grad, list(ctx.size), *ctx.options), None, None, None, None


torch.library.register_autograd("joinsum::resize", _backward, setup_context=_setup)
torch.library.register_autograd("joinsum::resize_backward", _backward_of_backward, setup_context=_setup_backward)
