"""`joinsum::sparse_mm` and its shards, against dense matrices."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from joinsum.capture.decompositions.sparse_products import sparse_mm
from torch import Tensor

ops = torch.ops.joinsum
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int64]


def entries(count: int, shape: tuple[int, int], dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """In no order, with repeats."""
    generator = torch.Generator().manual_seed(0)
    rows, columns = (torch.randint(extent, (count,), generator=generator) for extent in shape)
    return rows, columns, torch.randint(-3, 4, (count,), generator=generator).to(dtype)


def dense_of(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.zeros(shape, dtype=values.dtype).index_put((rows, columns), values, accumulate=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(("count", "shape", "width"), [(0, (3, 4), 2), (50, (7, 5), 3), (20_000, (300, 200), 40)])
def test_products(count: int, shape: tuple[int, int], width: int, ordered: bool, dtype: torch.dtype) -> None:
    rows, columns, values = entries(count, shape, dtype)
    if ordered:
        order = rows.sort(stable=True).indices
        rows, columns, values = rows[order], columns[order], values[order]
    y = torch.randint(-3, 4, (shape[1], width)).to(dtype)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    wanted = dense_of(rows, columns, values.to(wide), shape) @ y.to(wide)
    torch.testing.assert_close(sparse_mm(rows, columns, values, y, shape[0]).to(wide), wanted, rtol=1e-2, atol=0)
    assert sparse_mm(rows.int(), columns.int(), values, y.T.contiguous().T, shape[0]).dtype is dtype


@pytest.mark.parametrize("row_parts", [1, 2, 3])
@pytest.mark.parametrize("column_parts", [1, 2])
def test_shards_add_up(row_parts: int, column_parts: int) -> None:
    shape = (12, 10)
    rows, columns, values = entries(60, shape)
    y, grad = torch.randn(10, 4, dtype=torch.float64), torch.randn(12, 4, dtype=torch.float64)
    height, inner = 12 // row_parts, 10 // column_parts
    total, to_values = torch.zeros(12, 4, dtype=torch.float64), torch.zeros(60, dtype=torch.float64)
    for i in range(row_parts):
        for j in range(column_parts):
            shard = ([i * height], [height], [12], [j * inner], [inner], [10])
            here, there = slice(i * height, (i + 1) * height), slice(j * inner, (j + 1) * inner)
            total[here] += ops.sparse_mm_shard(rows, columns, values, y[there], *shard)
            to_values += ops.sparse_mm_values_shard(rows, columns, grad[here], y[there], *shard)
    torch.testing.assert_close(total, sparse_mm(rows, columns, values, y, 12))
    torch.testing.assert_close(to_values, ops.sparse_mm_values(rows, columns, grad, y))
    torch.testing.assert_close(to_values, (grad[rows] * y[columns]).sum(1))


def test_gradients_have_gradients() -> None:
    rows, columns, values = entries(9, (4, 5))
    values, y = values.requires_grad_(), torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v, y: sparse_mm(rows, columns, v, y, 4), (values, y))
    assert torch.autograd.gradgradcheck(lambda v, y: sparse_mm(rows, columns, v, y, 4), (values, y))


def test_fake_tensors_have_the_results_shapes() -> None:
    torch.library.opcheck(ops.sparse_mm.default, (*entries(9, (4, 5)), torch.randn(5, 2, dtype=torch.float64), 4))
    rows, columns, _ = entries(9, (4, 5))
    torch.library.opcheck(ops.sparse_mm_values.default, (rows, columns, torch.randn(4, 2), torch.randn(5, 2)))


@pytest.mark.parametrize("bad", [-1, 4])
def test_entries_out_of_range_are_refused(bad: int) -> None:
    rows, columns = torch.tensor([0, bad]), torch.tensor([0, 1])
    with pytest.raises(IndexError, match=f"index={bad}, extent=4"):
        sparse_mm(rows, columns, torch.ones(2), torch.ones(2, 3), 4)
    with pytest.raises(IndexError, match=f"index={bad}, extent=4"):
        ops.sparse_mm_values(rows, columns, torch.ones(4, 3), torch.ones(2, 3))


def test_complex_gradients_have_gradients() -> None:
    rows, columns = torch.tensor([0, 2, 1, 1]), torch.tensor([1, 0, 1, 0])
    values, dense = (torch.randn(shape, dtype=torch.complex128, requires_grad=True) for shape in [(4,), (2, 3)])
    product = partial(sparse_mm, rows, columns, extent=3)
    assert torch.autograd.gradcheck(lambda v, x: product(values=v, dense=x), (values, dense))
    assert torch.autograd.gradgradcheck(lambda v, x: product(values=v, dense=x), (values, dense))


@pytest.mark.parametrize(
    ("values", "dense", "said"),
    [
        (torch.ones(1), torch.ones(2, 4), "each entry has a value"),
        (torch.ones(3, dtype=torch.float64), torch.ones(2, 4), "each entry has a value"),
        (torch.ones(3), torch.ones(2), "a dense operand is a matrix"),
    ],
)
def test_what_does_not_fit_is_refused(values: torch.Tensor, dense: torch.Tensor, said: str) -> None:
    rows, columns = torch.tensor([0, 2, 1]), torch.tensor([1, 0, 1])
    with pytest.raises(RuntimeError, match=said):
        sparse_mm(rows, columns, values, dense, 3)
    with pytest.raises(RuntimeError, match="a row and a column"):
        sparse_mm(rows, columns[:1], torch.ones(3), torch.ones(2, 4), 3)
