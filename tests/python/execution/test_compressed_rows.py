"""Einsums of one matrix in compressed rows and dense operands, beside torch's of dense ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import joinsum
import pytest
import torch
from joinsum import SparseTensor


@pytest.fixture(autouse=True)
def one_site() -> Iterator[None]:
    joinsum.init(sites=1)
    yield
    joinsum.init()


def random_dense(seed: int, *shape: int, density: float, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-4, 5, shape, generator=generator).to(dtype)
    return values * (torch.rand(shape, generator=generator) < density)


@pytest.mark.parametrize("shape", [(7, 5), (1, 4), (40, 30), (3, 1), (4, 4), (0, 3), (3, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "equation",
    [
        "ij->i",
        "ij->j",
        "ij,i->j",
        "ij,ik->jk",
        "ij,j->i",
        "ij,jk->ijk",
        "ij,jk->ik",
        "ij,jk->ki",
        "ij,i->ij",
        "j,ij->ij",
        "ij,j->ij",
        "ij,ij->ij",
        "ij,i->ji",
        "ij,ik,jk->ij",
        "jk,ik,ij->ij",
        "ki,ij,kj->ij",
        "ij,ki,jk->ij",
        "ij,kj,ik->ij",
        "ij,ik,jl->ij",
        "ij,jk->ij",
        "ij,ik,jk->ik",
        "ij,i,j->ij",
        "ij,ik,jk->ji",
        "ij,->ij",
    ],
)
def test_matrices_in_compressed_rows_beside_dense_operands(
    equation: str, dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    extents = {"i": shape[0], "j": shape[1], "k": 6, "l": 2}
    inputs, result = equation.split("->")
    texts = inputs.split(",")
    dense = [
        random_dense(5 + number, *(extents[label] for label in text), density=0.9, dtype=dtype)
        for number, text in enumerate(texts)
    ]
    place = texts.index("ij")
    dense[place] = random_dense(1, *shape, density=0.3, dtype=dtype)
    operands: list[Any] = list(dense)
    operands[place] = SparseTensor.from_torch(dense[place], levels="csr")
    for out_format in ("csr", "dense") if len(result) == 2 else ("dense",):
        got = joinsum.einsum(equation, *operands, out_format=out_format)
        if isinstance(got, SparseTensor):
            assert got.levels == ("dense", "sorted_list")
        assert (out_format == "csr") == isinstance(got, SparseTensor)
        dense_result = got.to_dense() if isinstance(got, SparseTensor) else got
        assert torch.equal(dense_result, torch.einsum(equation, *dense)), out_format


def test_results_that_are_chosen_are_sparse_where_the_planner_makes_them_so() -> None:
    indices = torch.stack([torch.arange(5) * 40_000, torch.arange(5)])
    matrix = torch.sparse_coo_tensor(indices, torch.ones(5), (200_000, 50), check_invariants=False)
    results = [
        joinsum.einsum("ij,jk->ik", SparseTensor.from_torch(matrix, levels=levels), torch.ones(50, 300))
        for levels in ("csr", "coo")
    ]
    assert all(isinstance(result, SparseTensor) and result.nnz == 1500 for result in results)


@pytest.mark.parametrize("out_format", ["dense", "auto"])
@pytest.mark.parametrize("equation", ["ij,j->i", "ij,jk->ik", "ij,i->j", "ij->i"])
def test_a_call_that_is_made_again_looks_at_its_operands(equation: str, out_format: str) -> None:
    dense = random_dense(1, 9, 9, density=0.4, dtype=torch.float64)
    matrix = SparseTensor.from_torch(dense, levels="csr")
    shape = (9, 4) if "k" in equation else (9,)
    operands = () if "," not in equation else (torch.ones(shape, dtype=torch.float64),)

    def call(*others: torch.Tensor) -> Any:
        return joinsum.einsum(equation, matrix, *others, out_format=out_format)

    for factor in (1.0, 2.0, 3.0):
        others = [x * factor for x in operands]
        assert torch.equal(call(*others), torch.einsum(equation, dense, *others))
    for sites in (3, 1):
        joinsum.init(sites=sites)
        assert torch.equal(call(*operands), torch.einsum(equation, dense, *operands))
    if not operands:
        return
    (x,) = operands
    smooth = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(call(smooth).sum(), smooth)
    (wanted,) = torch.autograd.grad(torch.einsum(equation, dense, smooth).sum(), smooth)
    assert torch.equal(found, wanted)
    with torch.no_grad():
        assert not call(smooth).requires_grad
    for wrong, message in (
        (torch.ones((8, *shape[1:]), dtype=torch.float64), "extents of a label differ"),
        (torch.ones((*shape, 2), dtype=torch.float64), "subscripts and axes differ"),
        (torch.ones(shape, dtype=torch.int64), "dtypes of the operands differ"),
    ):
        with pytest.raises(joinsum.PlanError, match=message):
            call(wrong)
    single = SparseTensor.from_torch(dense.float(), levels="csr")
    expected = joinsum.einsum(equation, single, x.float(), out_format=out_format)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(joinsum.einsum(equation, single, x.float(), out_format=out_format), expected)


def test_a_known_call_is_not_taken_for_another_one() -> None:
    dense = random_dense(2, 6, 6, density=0.5, dtype=torch.float64)
    a, x = SparseTensor.from_torch(dense, levels="csr"), random_dense(3, 6, 6, density=1, dtype=torch.float64)
    for out_format in ("auto", "dense"):
        for first, second in ((a, x), (x, a), (a, a), (a, x)):
            found = joinsum.einsum("ij,jk->ik", first, second, out_format=out_format)
            wanted = (dense if first is a else x) @ (dense if second is a else x)
            assert torch.equal(found if isinstance(found, torch.Tensor) else found.to_dense(), wanted)
    weights = torch.arange(1.0, a.nnz + 1, dtype=torch.float64, requires_grad=True)
    trained = a.with_values(weights)
    with torch.no_grad():
        assert not joinsum.einsum("ij,jk->ik", trained, x, out_format="dense").requires_grad
    assert joinsum.einsum("ij,jk->ik", trained, x, out_format="dense").requires_grad
    with pytest.raises(joinsum.PlanError, match="join"):
        joinsum.einsum("ij,jk->ik", a, x, join=["mul"])  # type: ignore[arg-type]


def test_products_with_very_many_columns_take_no_memory_for_each() -> None:
    left = SparseTensor.from_coordinates([[0, 3], [2, 9]], [1.0, 2.0], (4, 1 << 10), levels="csr")
    right = SparseTensor.from_coordinates([[2, 9], [5, 1 << 39]], [3.0, 4.0], (1 << 10, 1 << 40), levels="csr")
    found = joinsum.einsum("ij,jk->ik", left, right, out_format="csr")
    assert isinstance(found, SparseTensor)
    assert found.values().tolist() == [3.0, 8.0]
