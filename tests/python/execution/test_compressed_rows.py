"""Einsums of one matrix in compressed rows and dense operands, beside torch's of dense ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import joinsum
import pytest
import torch
from joinsum import SparseTensor
from joinsum.execution import paired_rows
from random_tensors import random_dense


@pytest.fixture(autouse=True)
def one_site() -> Iterator[None]:
    threads = torch.get_num_threads()
    joinsum.init(sites=1)
    yield
    joinsum.init()
    torch.set_num_threads(threads)


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
        "ij->",
        "ij,jk->kij",
        "ij,kj->ik",
        "ij,kj->ki",
        "ij,ki->jk",
        "ij,jkl->ikl",
        "ij,kjl->lik",
        "ij,lik->kjl",
        "k,ij,j->ik",
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


def test_matrices_in_compressed_columns_beside_dense_operands() -> None:
    dense = random_dense(1, 7, 5, density=0.4, dtype=torch.float64)
    matrix = SparseTensor.from_torch(dense, levels="csc")
    for equation in ("ij->", "ij->i", "ij->j", "ij,j->i", "ij,i->j", "ij,jk->ik", "ij,ik->kj", "ij,kil->kjl"):
        extents = {"i": 7, "j": 5, "k": 3, "l": 2}
        others = [
            random_dense(2, *(extents[label] for label in text), density=0.9, dtype=torch.float64)
            for text in equation.split("->")[0].split(",")[1:]
        ]
        for out_format in ("dense", "auto"):
            got = joinsum.einsum(equation, matrix, *others, out_format=out_format)
            assert torch.equal(dense_of(got), torch.einsum(equation, dense, *others)), (equation, out_format)


@pytest.mark.parametrize("levels", ["csr", "csc"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bool])
@pytest.mark.parametrize("equation", ["ij,j->i", "ij,i->j", "ij,jk->ik", "ij,kj->ik", "ij,ik->kj"])
def test_products_of_integers_and_truth_values(equation: str, dtype: torch.dtype, levels: str) -> None:
    dense = random_dense(1, 7, 5, density=0.4, dtype=torch.int64)
    extents = {"i": 7, "j": 5, "k": 3}
    others = [
        random_dense(2, *(extents[label] for label in text), density=0.6, dtype=torch.int64)
        for text in equation.split("->")[0].split(",")[1:]
    ]
    if dtype is torch.bool:
        dense, others = dense != 0, [x != 0 for x in others]
    else:  # products wrap around
        dense, others = (dense * (2**31 - 1)).to(dtype), [(x * (2**31 - 1)).to(dtype) for x in others]
    matrix = SparseTensor.from_torch(dense, levels=levels)
    agg = "any" if dtype is torch.bool else "sum"
    wanted = torch.einsum(equation, dense.to(torch.int64), *(x.to(torch.int64) for x in others))
    wanted = wanted != 0 if dtype is torch.bool else wanted.to(dtype)
    for out_format in ("dense", "auto"):
        for _ in range(2):
            got = dense_of(joinsum.einsum(equation, matrix, *others, agg=agg, out_format=out_format))
            assert got.dtype is dtype
            assert torch.equal(got, wanted), out_format
    joinsum.init(sites=2)
    assert torch.equal(dense_of(joinsum.einsum(equation, matrix, *others, agg=agg)), wanted)


def dense_of(found: Any) -> torch.Tensor:
    return found.to_dense() if isinstance(found, SparseTensor) else found


@pytest.mark.parametrize("levels", [("csr", "csr", "csr"), ("csc", "csr", "csc"), ("csr", "csc", "csc")])
@pytest.mark.parametrize(
    "equation",
    [
        *("ij,jk->ik", "ij,jk->ki", "ij,ik->jk", "ij,ik->kj", "ij,kj->ik", "ij,ki->kj", "ij,ki->jk"),
        *("ij,jk,ik->", "ij,jk,ki->", "ij,ik,jk->i", "ij,ik,jk->j", "ij,kj,ik->k", "ji,jk,ki->j"),
        *("ij,jk,ik->ik", "ij,jk,ki->ik", "ji,jk,ki->ik", "ij,jk,ik->ij", "ij,jk,ik->jk", "ij,jk,ik->kj"),
    ],
)
def test_products_of_sparse_matrices(equation: str, levels: tuple[str, ...]) -> None:
    extents = {"i": 8, "j": 5, "k": 6}
    texts, result = equation.split("->")
    dense = [
        random_dense(number, *(extents[label] for label in text), density=0.3, dtype=torch.float64)
        for number, text in enumerate(texts.split(","))
    ]
    operands = [SparseTensor.from_torch(x, levels=own) for x, own in zip(dense, levels, strict=False)]
    for out_format in ("csr", "dense", "auto") if len(result) == 2 else ("dense", "auto"):
        for _ in range(2):  # the second call is known
            got = joinsum.einsum(equation, *operands, out_format=out_format)
            assert torch.equal(dense_of(got), torch.einsum(equation, *dense)), out_format


@pytest.mark.parametrize("out_format", ["csr", "csc"])
@pytest.mark.parametrize("levels", [("csr", "csr"), ("csc", "csc"), ("csr", "csc"), ("csc", "csr")])
@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,jk->ki", "ji,jk->ik", "ij,kj->ki"])
def test_products_of_sparse_matrices_in_rows_or_columns(
    equation: str, levels: tuple[str, str], out_format: str
) -> None:
    extents = {"i": 8, "j": 5, "k": 6}
    dense = [
        random_dense(number, *(extents[label] for label in text), density=0.3, dtype=torch.float64)
        for number, text in enumerate(equation.split("->")[0].split(","))
    ]
    operands = [SparseTensor.from_torch(x, levels=own) for x, own in zip(dense, levels, strict=True)]
    assert joinsum.einsum_plan(equation, *operands, out_format=out_format).tried_first == "compressed rows"
    for _ in range(2):
        got = joinsum.einsum(equation, *operands, out_format=out_format)
        assert isinstance(got, SparseTensor)
        assert (got.levels, got.order) == (("dense", "sorted_list"), (0, 1) if out_format == "csr" else (1, 0))
        assert torch.equal(got.to_dense(), torch.einsum(equation, *dense))


def test_a_product_of_compressed_columns_has_compressed_columns() -> None:
    x = SparseTensor.from_torch(random_dense(0, 60, 60, density=0.02, dtype=torch.float64), levels="csc")
    got = joinsum.einsum("ij,jk->ik", x, x)
    assert isinstance(got, SparseTensor)
    assert got.order == (1, 0)
    assert torch.equal(got.to_dense(), x.to_dense() @ x.to_dense())


@pytest.mark.parametrize("out_format", ["auto", "coo", "sorted_list", "dense", "hash", "bytemap"])
@pytest.mark.parametrize("levels", ["csr", "csc", "coo"])
@pytest.mark.parametrize("equation", ["i,ij->j", "ij,i->j", "j,ij->i", "ij,j->i"])
@pytest.mark.parametrize("density", [0.0, 0.05, 0.9])
def test_products_of_a_sparse_vector_and_a_matrix(equation: str, levels: str, out_format: str, density: float) -> None:
    for seed, (rows, columns) in enumerate([(40, 30), (1, 5), (0, 3), (3, 0)]):
        matrix = random_dense(seed, rows, columns, density=0.2, dtype=torch.float64)
        along = rows if equation in ("i,ij->j", "ij,i->j") else columns
        vector = random_dense(seed + 10, along, density=density, dtype=torch.float64)
        dense = [vector, matrix] if equation.index(",") == 1 else [matrix, vector]
        operands = [SparseTensor.from_torch(x, levels=levels if x.dim() == 2 else "sorted_list") for x in dense]
        for _ in range(2):
            got = joinsum.einsum(equation, *operands, out_format=out_format)
            assert torch.equal(dense_of(got), torch.einsum(equation, *dense))
            if out_format not in ("auto", "dense"):
                assert isinstance(got, SparseTensor)
                assert got.levels == ("sorted_list" if out_format == "coo" else out_format,)


def test_a_product_with_a_sparse_vector_visits_the_rows_of_its_entries() -> None:
    matrix = SparseTensor.from_torch(random_dense(0, 50, 40, density=0.1, dtype=torch.float64), levels="csr")
    vector = SparseTensor.from_coordinates([[3, 30]], torch.tensor([2.0, -1.0], dtype=torch.float64), (50,))
    assert joinsum.einsum_plan("i,ij->j", vector, matrix).tried_first == "compressed rows"
    got = joinsum.einsum("i,ij->j", vector, matrix)
    assert isinstance(got, SparseTensor)
    dense = matrix.to_dense()
    assert torch.equal(got.to_dense(), 2 * dense[3] - dense[30])
    stored = (dense[3] != 0) | (dense[30] != 0)
    assert got.nnz == int(stored.sum())


def test_products_with_dense_operands_are_dense_where_half_of_the_rows_are_empty() -> None:
    matrix = random_dense(0, 2000, 300, density=0.05, dtype=torch.float64)
    matrix[torch.rand(2000) < 0.6] = 0
    sparse = SparseTensor.from_torch(matrix, levels="csr")
    for equation, x in [("ij,j->i", torch.rand(300).double()), ("ij,jk->ik", torch.rand(300, 4).double())]:
        assert joinsum.einsum_plan(equation, sparse, x).tried_first == "compressed rows"
        for _ in range(2):
            got = joinsum.einsum(equation, sparse, x)
            assert isinstance(got, torch.Tensor)
            torch.testing.assert_close(got, matrix @ x)


def test_a_product_of_a_skewed_graph_is_sparse_though_bounds_say_that_it_is_dense() -> None:
    """By the largest degrees of rows and columns, every element may be stored."""
    n = 2000
    at = torch.cat([torch.stack([torch.zeros(n).long(), torch.arange(n)]), torch.arange(n).repeat(2, 1)], 1)
    a = SparseTensor.from_coordinates(at.numpy(), torch.ones(2 * n, dtype=torch.float64), (n, n), fold="sum")
    a = a.with_levels("csr")
    square = joinsum.einsum("ij,jk->ik", a, a)
    assert isinstance(square, SparseTensor)
    assert square.nnz < 3 * n
    full = SparseTensor.from_torch(torch.ones(50, 50, dtype=torch.float64), levels="csr")
    assert isinstance(joinsum.einsum("ij,jk->ik", full, full), torch.Tensor)


@pytest.mark.parametrize("seed", range(150))
def test_chains_of_products_pair_by_pair(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a loop nest over all operands would be faster."""
    monkeypatch.setattr(paired_rows, "_GENERAL_CALL", 1e9)
    draw = random.Random(seed)
    extents = dict(zip("abcde", (3, 4, 2, 5, 3), strict=True))
    count = draw.randint(2, 5)
    texts = ["".join(draw.sample("abcde", draw.choice([0, 1, 1, 2, 2, 2, 3]))) for _ in range(count)]
    matrices = [place for place, text in enumerate(texts) if len(text) == 2]
    if not matrices:
        return
    sparse = {place: draw.choice(["csr", "csr", "csc", "coo"]) for place in matrices if draw.random() < 0.7}
    sparse.setdefault(matrices[0], "csr")
    known = sorted({*"".join(texts)})
    result = "".join(draw.sample(known, draw.randint(0, min(3, len(known)))))
    dense = [
        random_dense(seed + place, *(extents[label] for label in text), density=0.6, dtype=torch.float64)
        for place, text in enumerate(texts)
    ]
    operands = [SparseTensor.from_torch(x, levels=sparse[i]) if i in sparse else x for i, x in enumerate(dense)]
    equation = ",".join(texts) + "->" + result
    for out_format in ("dense", "auto"):
        for _ in range(2):
            got = joinsum.einsum(equation, *operands, out_format=out_format)
            assert torch.equal(dense_of(got), torch.einsum(equation, *dense)), (equation, out_format, sparse)


def test_a_known_chain_looks_at_its_operands() -> None:
    dense = random_dense(1, 40, 30, density=0.3, dtype=torch.float32)
    matrix, x = SparseTensor.from_torch(dense, levels="csr"), torch.ones(40, 8)
    joinsum.einsum("ij,ik->k", matrix, x)
    for wrong in (x[:1], x[:20], x.double(), x.long(), x.to("meta"), x[:, 0]):
        with pytest.raises(joinsum.PlanError):
            joinsum.einsum("ij,ik->k", matrix, wrong)
    assert torch.equal(dense_of(joinsum.einsum("ij,ik->k", matrix, x.to_sparse())), dense.sum() * torch.ones(8))
    smooth = x.clone().requires_grad_()
    found = joinsum.einsum("ij,ik->k", matrix, smooth)
    with pytest.raises(joinsum.PlanError, match="create_graph"):
        torch.autograd.grad(found.sum(), smooth, create_graph=True)


def test_values_that_require_gradients_later_get_them() -> None:
    dense = random_dense(1, 6, 5, density=0.4, dtype=torch.float64)
    for equation in ("ij->", "ij->i", "ij->j", "ij,ik->k", "ij,jk->ik"):
        values = SparseTensor.from_torch(dense, levels="csr").values().clone()
        matrix = SparseTensor.from_torch(dense, levels="csr").with_values(values)
        others = [torch.ones(6 if "ik->" in equation else 5, 2, dtype=torch.float64)] if "," in equation else []
        joinsum.einsum(equation, matrix, *others)
        values.requires_grad_()
        assert joinsum.einsum(equation, matrix, *others).requires_grad, equation


@pytest.mark.parametrize("out_format", ["csr", "csc", "coo", "dcsr"])
def test_stored_zeros_have_gradients_in_every_format(out_format: str) -> None:
    values = torch.tensor([0.0, 2.0, 0.0], dtype=torch.float64, requires_grad=True)
    at = SparseTensor.from_coordinates([[0, 1, 2], [1, 0, 2]], torch.ones(3, dtype=torch.float64), (3, 3))
    x = torch.tensor([3.0, 5.0, 7.0], dtype=torch.float64)
    found = joinsum.einsum("i,ij->ij", x, at.with_values(values), out_format=out_format)
    found.values().sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [3, 5, 7]


def test_chains_give_the_format_that_is_asked_for() -> None:
    dense = random_dense(1, 20, 20, density=0.3, dtype=torch.float64)
    matrix, x = SparseTensor.from_torch(dense, levels="csr"), torch.ones(20, 3, dtype=torch.float64)
    for equation, operands in (("ij,jk,kl->il", (matrix, x, x[:3])), ("i,ij,j->", (x[:, 0], matrix, x[:, 0]))):
        wanted = torch.einsum(equation, *(dense_of(each) for each in operands))
        for out_format in ("coo", "csc") if wanted.dim() else ("coo",):
            found = joinsum.einsum(equation, *operands, out_format=out_format)
            assert isinstance(found, SparseTensor)
            assert torch.equal(found.to_dense(), wanted)
    with pytest.raises(joinsum.PlanError, match="another rank"):
        joinsum.einsum("i,ij,j->", x[:, 0], matrix, x[:, 0], out_format="csr")


def test_chains_with_new_and_with_many_labels() -> None:
    dense = random_dense(1, 4, 3, density=0.7, dtype=torch.float64)
    matrix, x = SparseTensor.from_torch(dense, levels="csr"), torch.ones(3, 2, dtype=torch.float64)
    for equation in ("ij,jk->in", "ij,jk,k->in"):
        operands = (x, x[0])[: equation.count(",")]
        found = joinsum.einsum(equation, matrix, *operands, extents={"n": 3})
        wanted = torch.einsum(equation.replace("n", ""), dense, *operands)
        assert torch.equal(dense_of(found), wanted[:, None].expand(4, 3))
    many = "abcdefghklmnopqrs"
    y = torch.ones(3, *[1] * len(many), dtype=torch.float64)
    found = joinsum.einsum(f"ij,j{many}->i{many}", matrix, y)
    assert torch.equal(dense_of(found).flatten(), dense.sum(1))


def test_what_is_not_stored_annihilates_infinities_in_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a graph is normalised by degrees of which some are zero."""
    monkeypatch.setattr(paired_rows, "_GENERAL_CALL", 1e9)
    edges = torch.tensor([[0.0, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=torch.float64)
    matrix, x = SparseTensor.from_torch(edges, levels="csr"), torch.tensor([1.0, 2, 3], dtype=torch.float64)
    scale = edges.sum(1).rsqrt()
    assert scale[2] == torch.inf
    for _ in range(2):
        found = joinsum.einsum("i,ij,j,j->i", scale, matrix, scale, x)
        assert dense_of(found).tolist() == [2, 1, 0]


@pytest.mark.parametrize("equation", ["i,ij,j->j", "j,i,ij->i", "i,ij,jk->ik", "i,ij,jk,k->k", "ij,j->", "i,j,ij->"])
def test_chains_of_truth_values_pair_by_pair(equation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paired_rows, "_GENERAL_CALL", 1e9)
    extents = {"i": 7, "j": 5, "k": 6}
    texts = equation.split("->")[0].split(",")
    dense = [
        random_dense(place, *(extents[label] for label in text), density=0.4, dtype=torch.float64) != 0
        for place, text in enumerate(texts)
    ]
    operands = [SparseTensor.from_torch(x, levels="csr") if x.dim() == 2 else x for x in dense]
    wanted = torch.einsum(equation, *(x.double() for x in dense)) != 0
    for out_format in ("dense", "auto"):
        found = joinsum.einsum(equation, *operands, agg="any", out_format=out_format)
        assert torch.equal(dense_of(found), wanted)


@pytest.mark.parametrize("out_format", ["dense", "csr"])
def test_a_known_call_records_gradients(out_format: str) -> None:
    """Of a call that was made without."""
    dense = random_dense(1, 6, 6, density=0.4, dtype=torch.float64)
    matrix = SparseTensor.from_torch(dense, levels="csr")
    x = torch.arange(1.0, 7.0, dtype=torch.float64)
    joinsum.einsum("i,ij,j->ij", x, matrix, x, out_format=out_format)
    smooth = x.clone().requires_grad_()
    found = joinsum.einsum("i,ij,j->ij", smooth, matrix, x, out_format=out_format)
    values = found.values() if isinstance(found, SparseTensor) else found
    (gradient,) = torch.autograd.grad(values.sum(), smooth)
    assert torch.allclose(gradient, dense @ x)


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


@pytest.mark.parametrize("entries", [4000, 100_000])
def test_sums_of_all_elements_do_not_depend_on_the_number_of_threads(entries: int) -> None:
    draw = torch.Generator().manual_seed(0)
    places, values = torch.randint(0, 20_000, (2, entries), generator=draw), torch.randn(entries, generator=draw)
    matrix = SparseTensor.from_coordinates(places, values, (20_000, 20_000), levels="csr", fold="sum")
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(
            [
                joinsum.einsum(equation, *operands).item()
                for equation, *operands in (("ij->", matrix), ("ij,ij->", matrix, matrix))
            ]
        )
    assert found[0] == found[1] == found[2]
    exact = matrix.values().double()
    torch.testing.assert_close(
        torch.tensor(found[0]).double(), torch.stack([exact.sum(), exact.square().sum()]), rtol=1e-4, atol=1e-2
    )
