"""Einsums of matrices in compressed rows or columns element by element, and their largest and smallest elements, beside
torch's of dense ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import joinsum
import pytest
import torch
from joinsum import SparseTensor
from random_tensors import random_dense


@pytest.fixture(autouse=True)
def one_site() -> Iterator[None]:
    threads = torch.get_num_threads()
    joinsum.init(sites=1)
    yield
    joinsum.init()
    torch.set_num_threads(threads)


def dense_of(found: Any) -> torch.Tensor:
    return found.to_dense() if isinstance(found, SparseTensor) else found


SPECIAL = [0.0, -0.0, float("inf"), float("-inf"), float("nan")]


def special_dense(seed: int, *shape: int, density: float, dtype: torch.dtype) -> torch.Tensor:
    """Among the elements infinities, stored zeros and what is no number."""
    x = random_dense(seed, *shape, density=density, dtype=dtype)
    draw = random.Random(seed)
    for _ in range(x.numel() // 20):
        x[draw.randrange(shape[0]), draw.randrange(shape[1])] = draw.choice(SPECIAL)
    return x


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("agg", ["max", "min"])
@pytest.mark.parametrize("levels", ["csr", "csc"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_largest_and_smallest_elements(dtype: torch.dtype, levels: str, agg: str, threads: int) -> None:
    torch.set_num_threads(threads)
    reduce = torch.amax if agg == "max" else torch.amin
    for seed, (rows, columns, density) in enumerate([(9, 7, 0.3), (1, 30, 1.0), (40, 1, 0.5), (500, 600, 0.6)]):
        dense = special_dense(seed, rows, columns, density=density, dtype=dtype)
        x = SparseTensor.from_torch(dense, levels=levels)
        for equation, wanted in [("ij->i", reduce(dense, 1)), ("ij->j", reduce(dense, 0)), ("ij->", reduce(dense))]:
            for out_format in ("dense", "auto"):
                for _ in range(2):
                    got = dense_of(joinsum.einsum(equation, x, agg=agg, out_format=out_format))
                    torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)


def test_largest_elements_of_an_empty_matrix_and_of_other_fills() -> None:
    empty = SparseTensor.from_torch(torch.zeros(3, 4), levels="csr")
    assert torch.equal(joinsum.einsum("ij->i", empty, agg="max", out_format="dense"), torch.zeros(3))
    assert joinsum.einsum("ij->", empty, agg="min") == 0
    filled = SparseTensor.from_coordinates([[0], [1]], [2.0], (3, 4), levels="csr", fill=5.0)
    assert joinsum.einsum("ij->", filled, agg="max") == 5
    assert torch.equal(joinsum.einsum("ij->i", filled, agg="min", out_format="dense"), torch.tensor([2.0, 5, 5]))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("out_format", ["csr", "csc", "auto", "coo", "dense"])
@pytest.mark.parametrize("levels", [("csr", "csr"), ("csc", "csc"), ("csr", "csc")])
@pytest.mark.parametrize("join", ["add", "sub", "max", "min", "mul"])
def test_matrices_joined_element_by_element(join: str, levels: tuple[str, str], out_format: str, threads: int) -> None:
    torch.set_num_threads(threads)
    of_dense = {"add": torch.add, "sub": torch.sub, "max": torch.maximum, "min": torch.minimum, "mul": torch.mul}[join]
    for seed, (rows, columns, density) in enumerate([(9, 7, 0.3), (1, 30, 1.0), (5, 4, 0.0), (700, 500, 0.3)]):
        dense = [random_dense(seed + i, rows, columns, density=density, dtype=torch.float64) for i in range(2)]
        x, y = (SparseTensor.from_torch(each, levels=own) for each, own in zip(dense, levels, strict=True))
        for _ in range(2):
            got = joinsum.einsum("ij,ij->ij", x, y, join=join, out_format=out_format)
            assert torch.equal(dense_of(got), of_dense(*dense))
            turned = joinsum.einsum("ij,ji->ij", x, y.with_levels("csr"), join=join) if rows == columns else None
            assert turned is None or torch.equal(dense_of(turned), of_dense(dense[0], dense[1].T))
        if out_format in ("csr", "csc"):
            assert isinstance(got, SparseTensor)
            assert got.order == ((0, 1) if out_format == "csr" else (1, 0))


@pytest.mark.parametrize("join", ["max", "min"])
def test_what_is_no_number_is_none_beside_what_is_not_stored(join: str) -> None:
    x = SparseTensor.from_coordinates([[0, 1], [0, 1]], [float("nan"), 1.0], (2, 2), levels="csr")
    y = SparseTensor.from_coordinates([[0, 1], [1, 1]], [-2.0, float("nan")], (2, 2), levels="csr")
    got = dense_of(joinsum.einsum("ij,ij->ij", x, y, join=join, out_format="csr"))
    assert got.isnan().tolist() == [[True, False], [False, True]]


@pytest.mark.parametrize("join", ["mul", "add", "sub", "max", "min"])
def test_matrices_with_the_same_entries_are_joined_value_by_value(join: str) -> None:
    dense = random_dense(0, 30, 40, density=0.2, dtype=torch.float64)
    x = SparseTensor.from_torch(dense, levels="csr")
    y = x.with_values(torch.rand(x.nnz, dtype=torch.float64))
    for first, second in ((x, x), (x, y)):
        got = joinsum.einsum("ij,ij->ij", first, second, join=join, out_format="csr")
        wanted = joinsum.einsum("ij,ij->ij", first.with_levels("coo"), second.with_levels("coo"), join=join)
        torch.testing.assert_close(dense_of(got), dense_of(wanted))
    torch.testing.assert_close(joinsum.einsum("ij,ij->", x, y), (dense * y.to_dense()).sum())


@pytest.mark.parametrize("levels", ["csr", "csc", "coo", "dcsr"])
@pytest.mark.parametrize("out_format", ["csr", "csc", "coo", "auto", "dense"])
@pytest.mark.parametrize("join", ["abs", "negate", "relu", "sqrt", "square", "exp"])
def test_maps_of_a_matrix_keep_its_entries(join: str, out_format: str, levels: str) -> None:
    dense = random_dense(3, 20, 30, density=0.1, dtype=torch.float64).abs()
    of_dense = {"negate": torch.neg}.get(join) or getattr(torch, join)
    got = joinsum.einsum("ij->ij", SparseTensor.from_torch(dense, levels=levels), join=join, out_format=out_format)
    torch.testing.assert_close(dense_of(got), of_dense(dense))
    if out_format in ("csr", "csc"):
        assert isinstance(got, SparseTensor)
        assert (got.levels, got.order) == (("dense", "sorted_list"), (0, 1) if out_format == "csr" else (1, 0))


@pytest.mark.parametrize("out_format", ["csr", "auto"])
@pytest.mark.parametrize("equation", ["ij,ij->ij", "ij,ji->ij", "ji,ij->ij"])
def test_a_matrix_times_a_dense_one_element_by_element(equation: str, out_format: str) -> None:
    sparse = random_dense(0, 40, 40, density=0.1, dtype=torch.float64)
    dense = torch.rand(40, 80, dtype=torch.float64)[:, ::2]
    first = equation.startswith("ij,")
    given = [SparseTensor.from_torch(sparse, levels="csr"), dense]
    for _ in range(2):
        got = joinsum.einsum(equation, *(given if first else given[::-1]), out_format=out_format)
        assert isinstance(got, SparseTensor)
        assert torch.equal(got.to_dense(), sparse * (dense if equation == "ij,ij->ij" else dense.T))


def test_values_that_are_written_stay_in_their_levels() -> None:
    """As an optimizer writes them in each step."""
    x = SparseTensor.from_torch(random_dense(0, 30, 40, density=0.2, dtype=torch.float64), levels="csr")
    values = torch.rand(x.nnz, dtype=torch.float64, requires_grad=True)
    for levels in ("csr", "csc", "coo", "dcsr", "bsr"):
        each = x.with_levels(levels) if levels != "bsr" else x
        y = each.with_values(values)
        with torch.no_grad():
            values.mul_(-1)
        assert (y.levels, y.order) == (each.levels, each.order)
        dense = x.with_values(values.detach()).to_dense()
        assert torch.equal(y.to_dense().detach(), dense)
        assert torch.equal(dense[x.to_dense() != 0], values.detach())


@pytest.mark.parametrize("levels", ["csr", "csc"])
def test_extremes_along_a_label_that_repeats(levels: str) -> None:
    dense = random_dense(0, 4, 6, density=0.8, dtype=torch.float64)
    found = joinsum.einsum("ij->k", SparseTensor.from_torch(dense, levels=levels), agg="max", extents={"k": 3})
    assert torch.equal(dense_of(found), dense.max().expand(3))


def test_dense_operands_that_torch_negates_when_they_are_read() -> None:
    sparse = random_dense(0, 4, 4, density=0.8, dtype=torch.float64)
    x, y = SparseTensor.from_torch(sparse, levels="csr"), torch.rand(4, 4, dtype=torch.float64)
    negated = torch._neg_view(y)
    for equation, others, wanted in [
        ("ij,ij->ij", [negated], sparse * -y),
        ("ij,j->ij", [negated[0]], sparse * -y[0]),
        ("ij,ik,jk->ij", [negated, y], sparse * (-y @ y.T)),
        ("ij,jk->ik", [negated], sparse @ -y),
    ]:
        found = joinsum.einsum(equation, x, *others, out_format="dense" if "k->" not in equation else "auto")
        torch.testing.assert_close(dense_of(found), wanted)
        found = joinsum.einsum(equation, x, *others)
        torch.testing.assert_close(dense_of(found), wanted)
        if equation != "ij,jk->ik":
            found = joinsum.einsum(equation, x, *others, out_format="csr")
            torch.testing.assert_close(dense_of(found), wanted)
