"""What autograd and fake tensors need of the products of a sparse matrix in csrc/kernels/torch_call: `sparse_mm` of the
rows, columns and values of its entries with a dense matrix, and its gradient for the values. Each has the other's as
its gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["sparse_mm"]


def sparse_mm(rows: Tensor, columns: Tensor, values: Tensor, dense: Tensor, extent: int) -> Tensor:
    """The product [extent, k] of the sparse matrix [extent, j] with these entries and a dense one [j, k].

    >>> rows, columns, values = torch.tensor([0, 2]), torch.tensor([1, 0]), torch.tensor([3., 4.])
    >>> sparse_mm(rows, columns, values, torch.tensor([[1.], [2.]]), 3)
    tensor([[6.],
            [0.],
            [4.]])
    """
    result: Tensor = torch.ops.joinsum.sparse_mm(rows, columns, values, dense, extent)
    return result


@torch.library.register_fake("joinsum::sparse_mm")  # type: ignore[untyped-decorator]
def _(rows: Tensor, columns: Tensor, values: Tensor, dense: Tensor, extent: int) -> Tensor:
    return dense.new_empty((extent, dense.shape[1]))


@torch.library.register_fake("joinsum::sparse_mm_values")  # type: ignore[untyped-decorator]
def _(rows: Tensor, columns: Tensor, grad: Tensor, dense: Tensor) -> Tensor:
    return dense.new_empty(rows.shape)


def _setup(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor, int], output: Tensor) -> None:
    *tensors, ctx.extent = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor | None, Tensor | None, None]:
    rows, columns, values, dense = ctx.saved_tensors
    operators = torch.ops.joinsum
    to_values = operators.sparse_mm_values(rows, columns, grad, dense.conj()) if ctx.needs_input_grad[2] else None
    to_dense = None
    if ctx.needs_input_grad[3]:
        to_dense = operators.sparse_mm(columns, rows, values.conj(), grad, dense.shape[0])
    return None, None, to_values, to_dense, None


def _setup_values(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward_values(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor | None, Tensor | None]:
    rows, columns, left, right = ctx.saved_tensors
    operators = torch.ops.joinsum
    to_left = to_right = None
    if ctx.needs_input_grad[2]:
        to_left = operators.sparse_mm(rows, columns, grad, right.conj(), left.shape[0])
    if ctx.needs_input_grad[3]:
        to_right = operators.sparse_mm(columns, rows, grad, left.conj(), right.shape[0])
    return None, None, to_left, to_right


torch.library.register_autograd("joinsum::sparse_mm", _backward, setup_context=_setup)
torch.library.register_autograd("joinsum::sparse_mm_values", _backward_values, setup_context=_setup_values)
