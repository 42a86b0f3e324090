"""Einsums of sparse tensors of any fill and dtype, beside the same einsum of dense ones."""

from __future__ import annotations

import math
from typing import Any

import joinsum
import numpy as np
import pytest
import torch
from joinsum import PlanError, SparseTensor
from joinsum.sparse import Program

INFINITY = math.inf


@pytest.fixture(autouse=True)
def one_site() -> None:
    joinsum.init(sites=1)


def sparse(*shape: int, fill: float, dtype: torch.dtype, seed: int, levels: str = "coo") -> SparseTensor:
    rng = np.random.default_rng(seed)
    dense = torch.full(shape, fill).to(dtype)
    stored = torch.from_numpy(rng.random(shape) < 0.3)
    dense[stored] = torch.from_numpy(rng.integers(1, 5, int(stored.sum()))).to(dtype)
    return SparseTensor.from_torch(dense, fill=fill, levels=levels)


def dense_of(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else result.to_dense()


def check(equation: str, *operands: Any, **operations: Any) -> None:
    expected = joinsum.einsum(equation, *(dense_of(x) for x in operands), **operations)
    for out_format in ("dense", "coo"):
        found = dense_of(joinsum.einsum(equation, *operands, out_format=out_format, **operations))
        assert found.dtype is expected.dtype
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=0, equal_nan=True)


@pytest.mark.parametrize("size", [2, 3, 7, 11])
@pytest.mark.parametrize("fill", [0.1, 0.3, 1.1])
@pytest.mark.parametrize(("dtype", "agg"), [(torch.float32, "sum"), (torch.float64, "sum"), (torch.float32, "prod")])
def test_chains_of_tensors_with_a_fill(dtype: torch.dtype, agg: str, fill: float, size: int) -> None:
    x = sparse(size, size, fill=fill, dtype=dtype, seed=1)
    if agg == "sum":
        return check("ij,jk,kl->il", x, x, x)
    a, b, c = (np.asarray(x.to_dense(), np.float64) for _ in range(3))
    expected = np.prod(a[:, :, None, None] * b[None, :, :, None] * c[None, None], axis=(1, 2))
    found = joinsum.einsum("ij,jk,kl->il", x, x, x, agg="prod", out_format="dense")
    fits = (expected < 1e37) & (expected > 1e-37)
    np.testing.assert_allclose(found.numpy()[fits], expected[fits], rtol=1e-4)


@pytest.mark.parametrize("sites", [1, 2])
@pytest.mark.parametrize("fill", [0, 1, 3, 200])
@pytest.mark.parametrize("join", ["add", "mul", "sub", "squared_difference", "abs_difference", "max", "min"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_fills_of_integers_wrap_around(dtype: torch.dtype, join: str, fill: int, sites: int) -> None:
    joinsum.init(sites=sites)
    x, y = (sparse(4, 5, fill=fill, dtype=dtype, seed=seed) for seed in (2, 3))
    check("ij,ij->ij", x, y, join=join)
    if join != "mul":
        check("ij,kj->ik", x, y, join=join)
    check("ij,kj->ik", x, y, join=join, agg="max")
    joinsum.init()


@pytest.mark.parametrize("sites", [1, 2, 3])
@pytest.mark.parametrize("fill", [-INFINITY, 0.0, 1.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_of_exponentials_are_those_of_dense_operands(dtype: torch.dtype, fill: float, sites: int) -> None:
    joinsum.init(sites=sites)
    x, y = (sparse(6, 6, fill=fill, dtype=dtype, seed=seed, levels="csr") for seed in (2, 3))
    start = torch.randn(6, generator=torch.Generator().manual_seed(1), dtype=dtype)
    check("ij->i", x, agg="logsumexp")
    check("ij->", x, agg="logsumexp")
    check("ij,jk->ik", x, y, join="add", agg="logsumexp")
    check("i,ij,jk->k", start, x, y, join="add", agg="logsumexp")
    check("ij,ij->ij", x, y, join="logaddexp")
    check("ij,k->i", x, start, join="sub", agg="logsumexp")
    joinsum.init()


def test_large_logarithms_neither_overflow_nor_vanish() -> None:
    values = torch.tensor([800.0, 801.0, -900.0, -901.0], dtype=torch.float64)
    x = SparseTensor.from_coordinates([[0, 0, 1, 1], [0, 2, 1, 2]], values, (3, 3), fill=-INFINITY)
    found = joinsum.einsum("ij->i", x, agg="logsumexp", out_format="dense")
    torch.testing.assert_close(found, torch.logsumexp(x.to_dense(), 1))


@pytest.mark.parametrize("sites", [1, 2])
def test_many_exponentials_are_summed_in_double_precision(sites: int) -> None:
    joinsum.init(sites=sites)
    count = 1_000_000
    values = torch.zeros(count, requires_grad=True)
    x = SparseTensor.from_torch(torch.zeros(1, count), levels="csr", fill=-INFINITY).with_values(values)
    found = joinsum.einsum("ij->i", x, agg="logsumexp", out_format="dense")
    assert isinstance(found, torch.Tensor)
    assert found.dtype is torch.float32
    assert found.item() == pytest.approx(math.log(count), rel=1e-6)
    found.sum().backward()
    assert values.grad is not None
    assert values.grad.double().sum().item() == pytest.approx(1, rel=1e-6)
    plan = joinsum.einsum_plan("ij->i", x, agg="logsumexp", out_format="dense")
    assert plan(x).item() == pytest.approx(math.log(count), rel=1e-6)
    folded = SparseTensor.from_coordinates([[0] * count], torch.zeros(count), (1,), fold="logsumexp")
    assert folded.values().item() == pytest.approx(math.log(count), rel=1e-6)
    joinsum.init()


@pytest.mark.parametrize("agg", ["max", "min"])
def test_extremes_of_sums_of_bytes_wrap_around(agg: str) -> None:
    x, y = (torch.tensor(each, dtype=torch.uint8) for each in ([200, 10], [100, 1]))
    operands = [SparseTensor.from_torch(each, levels="sorted_list") for each in (x, y)]
    check("i,j->", *operands, join="add", agg=agg)
    check("i,j->", *operands, join="x*2 + y", agg=agg)


def test_sums_of_exponentials_of_whole_numbers_raise() -> None:
    x = SparseTensor.from_edges([[0, 1]], 2, dtype=torch.int64)
    with pytest.raises(PlanError, match="the join gives no whole numbers"):
        joinsum.einsum("ij,ij->ij", x, x, join="logaddexp")
    with pytest.raises(PlanError, match="this fold gives no whole numbers"):
        SparseTensor.from_coordinates([[0, 0]], [1, 2], (1,), fold="logsumexp")
    total = {"name": "q", "expr": ["agg", "logaddexp", ["i", "j"], ["in", "A", ["i", "j"]]], "output": []}
    with pytest.raises(PlanError, match=r"it gives no whole numbers; choose dtype float64: .*operator=logaddexp"):
        Program({"dtype": "int64", "tensors": {"A": x}, "queries": [total]})
    with pytest.raises(PlanError, match=r"logsumexp is not defined on this dtype; .*dtype=torch\.int64"):
        joinsum.einsum("ij->i", SparseTensor.from_edges([[0, 1]], 2, dtype=torch.int64), agg="logsumexp")


def test_elements_of_equal_coordinates_are_folded_as_sums_of_exponentials() -> None:
    x = SparseTensor.from_coordinates([[1, 1]], torch.tensor([0.0, 1.0]), (3,), fill=-INFINITY, fold="logsumexp")
    assert x.values().tolist() == pytest.approx([math.log(1 + math.e)])


def test_products_of_many_integers_wrap_around() -> None:
    x = sparse(2, 20, fill=3, dtype=torch.int32, seed=4)
    check("ij,jk->ik", x, torch.ones(20, 2, dtype=torch.int32), agg="prod")


def test_a_fill_that_no_float64_is_raises() -> None:
    x, y = (SparseTensor.from_coordinates([[0]], torch.tensor([1]), (3,), fill=fill) for fill in (2**53, 1))
    with pytest.raises(PlanError, match="a whole number that no float64 is: fill=9007199254740993"):
        joinsum.einsum("i,i->i", x, y, join="add", out_format="dense")


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("agg", ["max", "min"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float32])
def test_extremes_of_nothing_are_those_of_the_dtype(dtype: torch.dtype, agg: str, sites: int) -> None:
    joinsum.init(sites=sites)
    nothing = SparseTensor.from_coordinates(torch.empty(2, 0, dtype=torch.int64), torch.empty(0, dtype=dtype), (2, 0))
    check("ij->i", nothing, agg=agg)
    joinsum.init()


@pytest.mark.parametrize(("fill", "agg"), [(INFINITY, "max"), (-INFINITY, "min")])
@pytest.mark.parametrize("equation", ["ij,kj->ik", "ij,kj->ijk"])
def test_an_infinite_fill_beside_finite_dense_operands_has_its_sign(equation: str, fill: float, agg: str) -> None:
    x = SparseTensor.from_coordinates([[0, 1], [0, 1]], [5.0, 2.0], (3, 2), levels="csr", fill=fill)
    check(equation, torch.ones(2, 2), x, join="add", agg=agg)
    check(equation, x, torch.ones(2, 2), join="add", agg=agg)


@pytest.mark.parametrize("first", [INFINITY, -INFINITY])
def test_of_opposite_infinite_fills_the_one_that_is_there_counts(first: float) -> None:
    x = SparseTensor.from_coordinates([[0, 1]], [1.0, 2.0], (2,), fill=first)
    nothing = SparseTensor.from_coordinates(torch.empty(1, 0, dtype=torch.int64), torch.empty(0), (2,), fill=-first)
    check("i,i->i", x, nothing, join="add")
    check("i,i->i", nothing, x, join="add")


def test_products_whose_factors_overflow_are_those_of_all_factors() -> None:
    x = SparseTensor.from_coordinates([[0]], [1.0], (40,))
    check("ij,j->i", torch.full((2, 40), 10.0), x, agg="prod")


@pytest.mark.parametrize("agg", ["any", "all"])
def test_truths_are_bools(agg: str) -> None:
    x = sparse(4, 5, fill=0, dtype=torch.int32, seed=5)
    check("ij->i", x, agg=agg)
    for _ in range(2):
        assert joinsum.einsum("ij->i", x, agg=agg, out_format="coo").dtype is torch.bool


@pytest.mark.parametrize("join", ["div", "pow", "x0 / x1", "x0 * 0.5 + x1", "sub | sqrt"])
def test_integers_have_no_joins_that_leave_them(join: str) -> None:
    x = sparse(4, fill=0, dtype=torch.int32, seed=6)
    with pytest.raises(PlanError, match="the join gives no whole numbers; convert the operands"):
        joinsum.einsum("i,i->i", x, x, join=join, out_format="dense")


@pytest.mark.parametrize("join", ["tanh", "plus"])
def test_unknown_joins_name_those_that_there_are(join: str) -> None:
    with pytest.raises(PlanError, match=f"cannot be joined by {join}; there are mul, add"):
        joinsum.einsum("i->i", sparse(4, fill=0, dtype=torch.float32, seed=7), join=join)


@pytest.mark.parametrize("join", ["squared_difference", "add", "sub", "abs_difference", "max"])
def test_pairs_of_all_rows_are_refused_unless_they_are_asked_for(join: str) -> None:
    size = 10_000
    x = SparseTensor.from_coordinates([[0, 5, 9], [1, 9, 0]], [1.0, 2.0, 3.0], (size, size))
    with pytest.raises(PlanError, match="so that all are visited"):
        joinsum.einsum("ij,kj->ik", x, x, join=join)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_autocast_leaves_the_dtype_of_sparse_operands(half: torch.dtype) -> None:
    x = sparse(4, 5, fill=0, dtype=torch.float32, seed=8)
    y = torch.arange(5.0)
    expected = x.to_dense() @ y
    with torch.autocast("cpu", dtype=half):
        for operand in (y, y.to(half)):
            found = joinsum.einsum("ij,j->i", x, operand)
            assert found.dtype is torch.float32
            torch.testing.assert_close(found, expected)
