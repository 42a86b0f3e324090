"""Einsums with sparse operands beside torch's of dense ones."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import joinsum
import numpy as np
import pytest
import torch
from joinsum import PlanError, SparseTensor
from joinsum.sparse import Program
from random_tensors import random_dense
from torch._subclasses.fake_tensor import FakeTensorMode

INFINITY = math.inf
LAYOUTS = ("coo", "csr", "csc", "dcsr", "bytemap", "hash")


@pytest.fixture(autouse=True)
def one_site() -> None:
    joinsum.init(sites=1)


def dense_of(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else result.to_dense()


@pytest.mark.parametrize("levels", LAYOUTS)
@pytest.mark.parametrize(
    "equation", ["ij,jk->ik", "ij,kj->ik", "ij,jk->", "ij,jk->ki", "ij,ij->j", "ij,ij", "ji,jk->jik"]
)
def test_products_are_torchs(equation: str, levels: str) -> None:
    x, y = random_dense(1, 6, 6), random_dense(2, 6, 6)
    expected = torch.einsum(equation, x, y)
    for operands in (
        (SparseTensor.from_torch(x, levels=levels), y),
        (SparseTensor.from_torch(x, levels=levels), SparseTensor.from_torch(y, levels=levels)),
        (x, SparseTensor.from_torch(y, levels=levels)),
    ):
        assert torch.equal(dense_of(joinsum.einsum(equation, *operands)), expected)


def test_torchs_sparse_tensors_are_operands() -> None:
    x, y = random_dense(3, 5, 7), random_dense(4, 7, 4)
    for sparse in (x.to_sparse(), x.to_sparse_csr(), x.to_sparse_csc()):
        assert torch.equal(dense_of(joinsum.einsum("ij,jk->ik", sparse, y)), x @ y)


def test_random_products_of_many_operands_are_torchs() -> None:
    random = np.random.default_rng(0)
    for number in range(150):
        count = int(random.integers(1, 5))
        labels = ["".join(random.choice(list("abcd"), size=int(random.integers(0, 4)))) for _ in range(count)]
        used = sorted(set("".join(labels)))
        result = "".join(random.permutation([label for label in used if random.random() < 0.5]).tolist())
        extents = {label: int(random.integers(1, 5)) for label in used}
        dense = [random_dense(number * 9 + i, *(extents[each] for each in own)) for i, own in enumerate(labels)]
        # No axis is repeated: extents of a label are one.
        operands = [
            SparseTensor.from_torch(x, levels="sorted_list") if i == 0 or random.random() < 0.6 else x
            for i, x in enumerate(dense)
        ]
        equation = ",".join(labels) + "->" + result
        found = dense_of(joinsum.einsum(equation, *operands))
        assert torch.equal(found, torch.einsum(equation, *dense)), equation


@pytest.mark.parametrize(
    ("join", "agg", "fill"), [("add", "min", INFINITY), ("add", "max", -INFINITY), ("mul", "sum", 0)]
)
def test_semirings_keep_their_fill(join: str, agg: str, fill: float) -> None:
    x, y = random_dense(5, 5, 6), random_dense(6, 6, 4)
    x, y = torch.where(x == 0, fill, x), torch.where(y == 0, fill, y)
    expected = joinsum.einsum("ij,jk->ik", x, y, join=join, agg=agg)
    a, b = (SparseTensor.from_torch(each, levels="csr", fill=fill) for each in (x, y))
    found = joinsum.einsum("ij,jk->ik", a, b, join=join, agg=agg, out_format="csr")
    assert isinstance(found, SparseTensor)
    assert found.fill == fill
    assert torch.equal(found.to_dense(), expected)
    assert torch.equal(dense_of(joinsum.einsum("ij,jk->ik", a, y, join=join, agg=agg)), expected)


@pytest.mark.parametrize(
    "join", ["sub", "squared_difference", "abs_difference", "max", "min", "sub | square", "exp(x - y) * 2"]
)
@pytest.mark.parametrize("agg", ["sum", "max", "min"])
def test_other_operations_count_what_is_not_stored(join: str, agg: str) -> None:
    x, y = random_dense(7, 4, 5), random_dense(8, 5, 3)
    expected = joinsum.einsum("ij,jk->ik", x, y, join=join, agg=agg)
    operands = [SparseTensor.from_torch(each, levels="csr") for each in (x, y)]
    found = joinsum.einsum("ij,jk->ik", *operands, join=join, agg=agg, out_format="dense")
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool])
def test_dtypes_are_torchs(dtype: torch.dtype) -> None:
    x, y = (random_dense(seed, 5, 5).abs().to(dtype) for seed in (9, 10))
    found = dense_of(joinsum.einsum("ij,jk->ik", SparseTensor.from_torch(x, levels="csr"), y))
    expected = (
        torch.einsum("ij,jk->ik", x.long(), y.long()).bool() if dtype is torch.bool else torch.einsum("ij,jk->ik", x, y)
    )
    assert found.dtype is expected.dtype
    assert torch.equal(found, expected)


def test_labels_of_the_result_alone_repeat() -> None:
    x = random_dense(11, 3)
    found = joinsum.einsum("i->ij", SparseTensor.from_torch(x, levels="sorted_list"), extents={"j": 2})
    assert torch.equal(dense_of(found), x[:, None].expand(3, 2))


def test_the_result_has_the_levels_that_were_asked_for() -> None:
    x = SparseTensor.from_torch(random_dense(12, 6, 6), levels="csr")
    assert joinsum.einsum("ij,jk->ik", x, x, out_format="dcsr").levels == ("sorted_list", "sorted_list")  # type: ignore[union-attr]
    assert isinstance(joinsum.einsum("ij,jk->ik", x, x, out_format="dense"), torch.Tensor)
    few = SparseTensor.from_coordinates([[3], [4]], [2.0], (1000, 1000), levels="csr")
    found = joinsum.einsum("ij,jk->ik", few, few)
    assert isinstance(found, SparseTensor)
    assert found.nnz == 0


# --- calls that are made again ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("out_format", ["auto", "dense", "coo"])
def test_calls_that_are_made_again_take_their_own_operands(out_format: str) -> None:
    """Others of equal traits and of other ones: values, entries, dtypes, strides, gradients, threads of autograd."""
    equation, inf = "ij,jk,j->ik", math.inf
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        dtype = torch.float64 if seed % 4 == 3 else torch.float32
        x = torch.randint(0, 4, (5, 6), generator=generator).to(dtype)
        y = torch.randint(0, 4, (6, 7), generator=generator).to(dtype)
        w = torch.randint(0, 4, (12,), generator=generator).to(dtype)[:: 2 if seed % 2 else 1][:6]
        w = w.requires_grad_() if seed % 3 == 2 else w
        x[torch.rand(x.shape, generator=generator) < 0.7] = inf
        sparse = SparseTensor.from_torch(x, levels="csr" if seed < 9 else "csc", fill=inf)
        found = joinsum.einsum(equation, sparse, y, w, join="add", agg="min", out_format=out_format)
        found = found.to_dense() if isinstance(found, SparseTensor) else found
        wanted = (x[:, :, None] + y + w[:, None]).amin(1)
        assert found.dtype is dtype
        assert torch.equal(found, wanted)
        assert found.requires_grad == w.requires_grad


@pytest.mark.parametrize("agg", ["any", "max", "sum"])
def test_truth_values_that_are_false_are_not_visited_and_count(agg: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand((40, 50), generator=generator) < 0.1
    sparse = SparseTensor.from_torch(x, levels="csr")
    for seed in range(4):
        y = torch.rand((50, 30), generator=generator) < (0.05, 0.9, 0.0, 1.0)[seed]
        y = y if seed % 2 else y.T.contiguous().T
        wanted = (x[:, :, None] & y).any(1)
        for _ in range(2):
            assert torch.equal(joinsum.einsum("ij,jk->ik", sparse, y, agg=agg, out_format="dense"), wanted)


@pytest.mark.parametrize("sites", [1, 3])
def test_calls_that_are_made_again_with_infinities_are_torchs(sites: int) -> None:
    """Squares of differences are planned as sums of products, of which infinities would make no numbers."""
    joinsum.init(sites=sites)
    x, y = random_dense(1, 40, 50, density=0.1), torch.rand(60, 50, dtype=torch.float64)
    infinite = x.clone()
    row, column = infinite.nonzero()[3].tolist()
    infinite[row, column] = INFINITY
    for operand in (x, infinite, x, infinite):
        pattern = SparseTensor.from_torch(operand.to_sparse())
        values = pattern.values().clone().requires_grad_()
        sparse, expected = pattern.with_values(values), operand.clone().requires_grad_()
        found = joinsum.einsum("ik,jk->ij", sparse, y, join="(x - y) * (x - y)", out_format="dense")
        wanted = (expected[:, None] - y).square().sum(-1)
        torch.testing.assert_close(found, wanted)
        found.sum().backward()
        wanted.sum().backward()
        torch.testing.assert_close(values.grad, expected.grad[operand != 0])
        with torch.no_grad():
            again = joinsum.einsum("ik,jk->ij", sparse, y, join="(x - y) * (x - y)", out_format="dense")
        torch.testing.assert_close(again, wanted)


def test_a_call_that_was_refused_is_refused_again() -> None:
    x, y = SparseTensor.from_edges([[0, 1]], 5000), torch.ones(5000, 5000)
    for _ in range(2):
        with pytest.raises(PlanError, match="all are visited"):
            joinsum.einsum("ij,ij->i", x, y, join="add", agg="min")


# --- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,ij->i", "ij,jk,k->i", "ij,k->ik", "ij,j->"])
def test_gradients_of_sums_of_products_are_torchs(equation: str) -> None:
    extents = {"i": 4, "j": 5, "k": 3}
    labels = equation.split("->")[0].split(",")
    dense = [random_dense(20 + i, *(extents[label] for label in own)) for i, own in enumerate(labels)]
    leaves = [x.clone().requires_grad_() for x in dense]
    result = torch.einsum(equation, *leaves)
    weights = random_dense(30, *result.shape, density=1)
    (result * weights).sum().backward()
    sparse = SparseTensor.from_torch(dense[0], levels="csr")
    values = sparse.values().requires_grad_()
    others = [x.clone().requires_grad_() for x in dense[1:]]
    found = joinsum.einsum(equation, sparse.with_values(values), *others)
    assert torch.equal(found.detach(), result.detach())  # type: ignore[union-attr]
    (found * weights).sum().backward()  # type: ignore[operator]
    rows, columns = sparse.coordinates()
    assert torch.equal(values.grad, leaves[0].grad[rows, columns])  # type: ignore[arg-type, index]
    for other, leaf in zip(others, leaves[1:], strict=True):
        assert torch.equal(other.grad, leaf.grad)  # type: ignore[arg-type]


def test_a_sparse_layer_trains_as_a_masked_dense_one() -> None:
    mask = (random_dense(40, 6, 5) != 0).double()
    x, y = random_dense(41, 8, 5, density=1), random_dense(42, 8, 6, density=1)
    dense = random_dense(43, 6, 5, density=1).requires_grad_()
    pattern = SparseTensor.from_torch(mask, levels="csr")
    rows, columns = pattern.coordinates()
    values = dense.detach()[rows, columns].clone().requires_grad_()
    for _ in range(5):
        ((x @ (dense * mask).T - y) ** 2).mean().backward()
        out = joinsum.einsum("oi,bi->bo", pattern.with_values(values), x)
        ((out - y) ** 2).mean().backward()  # type: ignore[operator]
        with torch.no_grad():
            dense -= 0.01 * dense.grad
            values -= 0.01 * values.grad
        dense.grad = values.grad = None
    torch.testing.assert_close(values.detach(), dense.detach()[rows, columns], rtol=1e-12, atol=1e-12)


# --- errors -----------------------------------------------------------------------------------------------------------


def test_what_would_become_dense_is_refused_until_it_is_asked_for() -> None:
    edges = SparseTensor.from_coordinates([[0], [1]], [1.0], (2000, 2000), levels="csr")
    with pytest.raises(PlanError, match=r"does not store count here.*labels=\['i'.*out_format"):
        joinsum.einsum("ij,jk->ik", edges, edges, join="add", agg="min")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: joinsum.einsum("ij,jk->ik", s, torch.ones(4, 2)), "extents of a label differ"),
        (lambda s: joinsum.einsum("ij,j->i", s, torch.ones(1)), "not repeated along an axis of one element"),
        (
            lambda s: joinsum.einsum("ij,j->i", s, [1, 2, 3]),
            "is a tensor; give torch.as_tensor\\(x\\): operand=1, type=list",
        ),
        (lambda s: joinsum.einsum("ij->i", s, agg="argmax"), "reduced by agg='argmax'"),
        (lambda s: joinsum.einsum("ij,ij->i", s, s, join="atan2"), "atan2"),
        (lambda s: joinsum.einsum("ij->i", s, out=torch.ones(3)), "no out="),
        (lambda s: joinsum.einsum("ij,j->i", s, torch.ones(3, dtype=torch.float64)), "dtypes of the operands differ"),
        (lambda s: joinsum.einsum("ij,j->i", s, torch.ones(3).requires_grad_(), agg="prod"), "gradients of sparse"),
        (lambda s: joinsum.einsum("ij->i", torch.ones(3, 3), out_format="csr"), "dense operands give dense results"),
    ],
)
def test_what_cannot_be_done_says_so(call: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        call(SparseTensor.from_torch(torch.eye(3), levels="csr"))


@pytest.mark.parametrize("equation", ["ij,j->i", "ij->i"])
def test_operands_without_data_and_transforms_are_refused(equation: str) -> None:
    matrix = SparseTensor.from_torch(random_dense(1, 4, 4), levels="csr")
    operands = (torch.ones(4, dtype=torch.float64),) if "," in equation else ()
    joinsum.einsum(equation, matrix, *operands)
    with FakeTensorMode(allow_non_fake_inputs=True), pytest.raises(PlanError, match="FakeTensorMode"):
        joinsum.einsum(equation, matrix, *operands)
    if operands:
        with pytest.raises(PlanError, match=r"torch\.func"):
            torch.func.vmap(lambda x: joinsum.einsum(equation, matrix, x))(torch.ones(2, 4, dtype=torch.float64))


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">=", "==", "!="])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_comparisons(sign: str, dtype: torch.dtype) -> None:
    a, b = (torch.randint(0, 3, (6, 5), generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in (1, 2))
    if dtype is torch.float32:
        a[0, 0] = b[0, 0] = a[1, 1] = float("nan")
    sparse = [SparseTensor.from_torch(x, levels="csr") for x in (a, b)]
    for operands in ((sparse[0], sparse[1]), (sparse[0], b)):
        found = joinsum.einsum("ij,ij->ij", *operands, join=f"x0{sign}x1", out_format="dense")
        wanted = {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}[sign]
        assert torch.equal(found, wanted.to(dtype))


def test_the_format_is_that_asked_for_in_every_mode_of_torchs_functions() -> None:
    eye = SparseTensor.from_torch(torch.eye(4), levels="csr")
    with torch.device("cpu"):
        assert isinstance(joinsum.einsum("ij,jk->ik", eye, eye, out_format="dense"), torch.Tensor)
        assert joinsum.einsum("ij,jk->ik", eye, eye, out_format="dcsr").levels == ("sorted_list", "sorted_list")
        with pytest.raises(PlanError, match="nonsense"):
            joinsum.einsum("ij,jk->ik", eye, eye, out_format="nonsense")


@pytest.mark.parametrize("sites", [1, 3])
def test_distributed_operands_are_refused_with_the_remedy(sites: int) -> None:
    joinsum.init(sites=sites)
    model = torch.nn.Linear(4, 4)
    step = joinsum.train_step(model, torch.nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    step(torch.ones(3, 4), torch.ones(3, 4))
    eye = SparseTensor.from_torch(torch.eye(4), levels="csr")
    pattern = SparseTensor.from_coordinates([[0, 1, 2, 3]], torch.ones(4), (4,))
    for call in (
        lambda: joinsum.einsum("ij,jk->ik", eye, model.weight),
        lambda: SparseTensor.from_torch(model.weight.detach(), levels="csr"),
        lambda: SparseTensor.from_coordinates([[0, 1, 2, 3]], model.bias.detach(), (4,)),
        lambda: pattern.with_values(model.bias.detach()),
    ):
        with pytest.raises(PlanError, match=r"full_tensor\(\)"):
            call()
    whole = model.weight.full_tensor()
    assert torch.allclose(joinsum.einsum("ij,jk->ik", eye, whole, out_format="dense"), whole)


@pytest.mark.parametrize("agg", ["any", "all"])
def test_truth_of_what_is_not_reduced_is_a_truth_value(agg: str) -> None:
    stored = SparseTensor.from_torch(torch.tensor([0.0, 2.0, 0.0]), levels=["sorted_list"])
    found = joinsum.einsum("i->i", stored, agg=agg, out_format="dense")
    assert found.dtype is torch.bool
    assert found.tolist() == [False, True, False]


def test_sums_of_truth_values_and_unknown_aggregations_are_refused() -> None:
    truths = SparseTensor.from_torch(torch.tensor([True, True, False]))
    assert joinsum.einsum("i->", truths).item() == 2
    assert joinsum.einsum("i,i->", truths, truths).item() is True
    for join in ("max", "min", "add"):
        with pytest.raises(PlanError, match=r'"any".*int64'):
            joinsum.einsum("i,i->", truths, truths, join=join)
    with pytest.raises(PlanError, match="argmax"):
        joinsum.einsum("i->i", SparseTensor.from_torch(torch.ones(3)), agg="argmax")


def test_a_result_without_memory_says_so() -> None:
    script = (
        "import resource, torch, joinsum\n"
        "from joinsum import SparseTensor\n"
        "ones = SparseTensor.from_torch(torch.ones(100_000), levels=['sorted_list'])\n"
        "joinsum.einsum('i,i->', ones, ones)\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)\n"
        "try:\n"
        "    joinsum.einsum('i,j->ij', ones, ones, out_format='coo')\n"
        "except joinsum.PlanError as error:\n"
        "    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert "no memory for the result" in run.stdout


@pytest.mark.parametrize("agg", ["any", "max", "sum"])
@pytest.mark.parametrize("out_format", ["auto", "csr", "hash", "dense"])
def test_products_beside_dense_operands_visit_what_these_have(agg: str, out_format: str) -> None:
    """More elements than there are entries, but none that is not stored counts."""
    generator = torch.Generator().manual_seed(0)
    dense = [torch.rand(shape, generator=generator) < 0.1 for shape in ((130, 90), (90, 90), (90, 64))]
    wanted = torch.einsum("ij,jk,kl->il", *(x.double() for x in dense))
    if agg != "any":
        dense = [x.double() for x in dense]
    sparse = SparseTensor.from_torch(dense[2], levels="coo")
    found = joinsum.einsum("ij,jk,kl->il", dense[0], dense[1], sparse, agg=agg, out_format=out_format)
    found = found.to_dense() if isinstance(found, SparseTensor) else found
    assert torch.equal(found.double(), wanted if agg == "sum" else (wanted > 0).double())


def test_a_map_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    x = SparseTensor.from_torch(torch.eye(3), levels="csr")
    with pytest.raises(joinsum.PlanError, match="the maps abs, exp, log, negate, relu, sigmoid, sqrt, square"):
        joinsum.einsum("ij->ij", x, join="tanh")


@pytest.mark.parametrize("sites", [1, 2])
def test_tensors_of_inference_mode_are_operands_outside(sites: int) -> None:
    joinsum.init(sites=sites)
    with torch.inference_mode():
        matrix = torch.eye(3).to_sparse()
    assert joinsum.einsum("ij,j->i", matrix, torch.arange(3.0)).tolist() == [0.0, 1.0, 2.0]
    joinsum.init()


@pytest.mark.parametrize("sites", [1, 2])
def test_the_elements_of_a_sparse_result_do_not_depend_on_levels_of_operands(sites: int) -> None:
    joinsum.init(sites=sites)
    matrix = SparseTensor.from_coordinates([[0, 1], [0, 1]], [1.0, 2.0], (3, 3))
    assert joinsum.einsum("ii->i", matrix, out_format="coo").nnz == 2
    ones = SparseTensor.from_coordinates([[0]], [1.0], (3,), fill=1)
    filled = SparseTensor.from_coordinates([[0, 1], [0, 1]], [1.0, 2.0], (3, 3), fill=1)
    assert [joinsum.einsum("ij,j->ij", filled, ones, out_format=each).fill for each in ("csc", "csr")] == [1.0, 1.0]
    joinsum.init()


def test_products_of_skewed_matrices_have_no_places_for_all_elements() -> None:
    """The bound of their entries, made of the largest degrees, is ten times what they have."""
    n = 10_000
    draw = torch.Generator().manual_seed(0)
    places = (torch.rand(2, 50_000, generator=draw) ** 3 * n).long()
    matrix = SparseTensor.from_coordinates(places, torch.ones(50_000), (n, n), levels="csr", fold="sum")
    read = [["in", "A", ["i", "j"]], ["in", "A", ["j", "k"]]]
    query = {"name": "q", "expr": ["agg", "+", ["j"], ["map", "*", read]], "output": ["i", "k"]}
    plan = Program({"dtype": "float32", "tensors": {"A": matrix}, "queries": [query]}).plan()
    assert plan.physical[-1]["formats"][-1] in ("hash", "sorted_list")


@pytest.mark.parametrize("operator", [abs, lambda x: x > 1, lambda x: x | x, lambda x: ~x])
def test_operators_of_python_name_einsums(operator: Any) -> None:
    with pytest.raises(TypeError, match="operators are einsums"):
        operator(SparseTensor.from_edges([[0, 1]], 2))


@pytest.mark.parametrize("density", [0.002, 0.05, 0.6])
@pytest.mark.parametrize("levels", ["csr", "csc"])
@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,kj->ik", "ij,jk,ik->ik", "ij,j->i", "ij,ij->ij"])
def test_results_are_of_one_kind_on_one_site_and_on_several(equation: str, levels: str, density: float) -> None:
    chosen = torch.Generator().manual_seed(0)
    operands = []
    for own in equation.split("->")[0].split(","):
        shape = [{"i": 60, "j": 50, "k": 40}[label] for label in own]
        x = torch.rand(shape, generator=chosen, dtype=torch.float64)
        x[torch.rand(shape, generator=chosen) > density] = 0
        operands.append(SparseTensor.from_torch(x.to_sparse(), levels=levels if len(shape) == 2 else "coo"))
    alone = joinsum.einsum(equation, *operands)
    joinsum.init(sites=3)
    divided = joinsum.einsum(equation, *operands)
    assert isinstance(divided, SparseTensor) == isinstance(alone, SparseTensor)
    torch.testing.assert_close(dense_of(divided), dense_of(alone), rtol=0, atol=1e-10)


def test_recordings_of_torch_are_refused_also_of_calls_that_were_made_before() -> None:
    graph, x = SparseTensor.from_edges([[0, 1], [1, 2]], 3), torch.ones(3, 2)
    for _ in range(2):
        with pytest.raises(PlanError, match=r"torch\.jit\.trace cannot record"):
            torch.jit.trace(lambda x: joinsum.einsum("ij,jk->ik", graph, x), (x,), check_trace=False)
        joinsum.einsum("ij,jk->ik", graph, x)


def test_matrices_of_scipy_are_refused_with_what_takes_them() -> None:
    scipy_sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(PlanError, match=r"give SparseTensor\.from_scipy\(x\): got=csr_array"):
        joinsum.einsum("ij,jk->ik", scipy_sparse.csr_array((2, 3)), torch.ones(3, 2))
