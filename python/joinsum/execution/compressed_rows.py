"""Einsums of one matrix in compressed rows that torch computes faster than joinsum's kernels do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch

from joinsum.sparse import SparseTensor
from joinsum.sparse.conversions import compressed

__all__ = ["by_torch"]

# Products of entries with elements of a row above which joinsum's kernel is faster than MKL's
# (`benchmarks/sparse_kernels.py`).
_MOST_PRODUCTS = 1 << 25


def by_torch(
    labels: Sequence[Sequence[str]],
    result: Sequence[str],
    dtype: torch.dtype,
    operands: Sequence[SparseTensor | torch.Tensor],
    out_format: object,
) -> torch.Tensor | SparseTensor | None:
    """The sum of products, where the only sparse operand A is a matrix in compressed rows and the rest X, Y are dense:
    A X, A x and the sums of A's rows as dense tensors; in A's own format A with scaled rows or columns, and A
    multiplied by X Yᵀ element by element. None for anything else."""
    sparse = [number for number, operand in enumerate(operands) if isinstance(operand, SparseTensor)]
    if len(sparse) != 1 or len(operands) > 3 or dtype not in (torch.float32, torch.float64):
        return None
    matrix, own = cast(SparseTensor, operands[sparse[0]]), list(labels[sparse[0]])
    of_rows = matrix.levels == ("dense", "sorted_list") and matrix.order == (0, 1) and matrix.fill == 0
    if not of_rows or matrix.dtype is not dtype or own[0] == own[1]:
        return None
    others: list[tuple[list[str], torch.Tensor]] = []
    for number, operand in enumerate(operands):
        if isinstance(operand, SparseTensor):
            continue
        plain = operand.layout is torch.strided and operand.device.type == "cpu" and operand.dtype is dtype
        if not plain or len(set(labels[number])) < len(labels[number]):
            return None
        others.append((list(labels[number]), operand.detach()))
    if out_format == "csr":
        return _sampled(matrix, own, others) if list(result) == own else None
    return _product(matrix, own, list(result), others) if out_format == "dense" else None


def _product(
    matrix: SparseTensor, own: list[str], result: list[str], others: list[tuple[list[str], torch.Tensor]]
) -> torch.Tensor | None:
    if not others:
        if result != own[:1]:
            return None
        return matrix.compressed_rows() @ torch.ones(matrix.shape[1], dtype=matrix.dtype, device="cpu")
    (other, dense), *more = others
    if more or len(other) > 2 or other[:1] != own[1:] or own[0] in other or result != [own[0], *other[1:]]:
        return None
    if len(other) == 2 and matrix.nnz * dense.shape[1] > _MOST_PRODUCTS:
        return None
    return matrix.compressed_rows() @ dense


def _sampled(matrix: SparseTensor, own: list[str], others: list[tuple[list[str], torch.Tensor]]) -> SparseTensor | None:
    rows = matrix.compressed_rows()
    if len(others) == 1 and others[0][0] in (own[:1], own[1:]):
        factors = others[0][1]
        if others[0][0] == own[1:]:
            values = rows.values() * factors[rows.col_indices()]
        else:
            values = rows.values() * factors.repeat_interleave(
                rows.crow_indices().diff(), output_size=len(rows.values())
            )
    elif len(others) == 2:
        ((first, x), (second, y)) = others if own[0] in others[0][0] else others[::-1]
        summed = set(first) - set(own)
        if len(first) != 2 or len(second) != 2 or len(summed) != 1 or set(second) - set(own) != summed:
            return None
        if own[0] not in first or own[1] not in second:
            return None
        x = x if first[0] == own[0] else x.T
        y = y.T if second[0] == own[1] else y
        values = torch.sparse.sampled_addmm(rows, x, y, beta=0.0).values() * rows.values()
    else:
        return None
    offsets, indices = rows.crow_indices(), rows.col_indices()
    return SparseTensor.of_handle(compressed("einsum", matrix.shape, offsets, indices, values, by_columns=False))
