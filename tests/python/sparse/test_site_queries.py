"""Sparse programs and einsums that sites divide: equal to dense evaluation, with partial results that are sparse."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from typing import Any

import joinsum
import numpy as np
import pytest
import torch
from joinsum import SparseTensor
from joinsum.execution.sparse_queries import SparseQueries
from joinsum.sparse import Program

from .reference.formats import in_drawn_levels
from .reference.programs import KINDS, VALUED_KINDS, random_program
from .reference.values import evaluate

LEVELS = ("coo", "csr", "csc", "dcsr", "bytemap", "hash")
# Moves cost nothing, so that whatever can be divided is.
DIVIDING = ("slow sites, fast links", 1e6, 1e12, 1e-9)


@pytest.fixture(autouse=True)
def _one_site_afterwards() -> Iterator[None]:
    yield
    joinsum.init()


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Operations of the plans that run."""
    found: list[str] = []
    run = SparseQueries.run

    def noting(self: SparseQueries, tensors: Any) -> Any:
        found.extend(step.operation for step in self.planned.steps)
        return run(self, tensors)

    monkeypatch.setattr(SparseQueries, "run", noting)
    return found


def divide(sites: int) -> None:
    joinsum.init(sites=sites, cluster=joinsum.Cluster(*DIVIDING))


def dense_of(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else result.to_dense()


def moves_of(operations: list[str]) -> list[str]:
    return [each for each in operations if each.startswith(("broadcast", "shuffle"))]


@pytest.mark.parametrize("sites", range(2, 9))
@pytest.mark.parametrize("kind", VALUED_KINDS)
def test_programs_on_sites_have_the_values_of_dense_evaluation(kind: str, sites: int, operations: list[str]) -> None:
    divide(sites)
    for number in range(1000 * sites, 1000 * sites + 7):
        value = random_program(kind, number)
        results = Program(in_drawn_levels(value, number)).run()
        for name, (array, fill) in evaluate(value).items():
            label = f"{name}: {kind} {number}"
            np.testing.assert_allclose(float(results[name].fill), fill, rtol=1e-9, err_msg=label)
            np.testing.assert_allclose(results[name].to_dense().numpy(), array, rtol=1e-9, atol=1e-9, err_msg=label)
    assert len(moves_of(operations)) > 1  # some are divided


def drawn(seed: random.Random) -> tuple[str, list[torch.Tensor], list[SparseTensor | torch.Tensor]]:
    """An einsum with its operands, dense and as they are given; labels of an operand may repeat."""
    count = seed.randint(1, 4)
    labels = ["".join(seed.choices("abcd", k=seed.randint(1, 3))) for _ in range(count)]
    used = sorted(set("".join(labels)))
    result = "".join(seed.sample([each for each in used if seed.random() < 0.6] or used[:1], k=1))
    result = "".join(each for each in used if seed.random() < 0.6) if seed.random() < 0.8 else result
    extents = {label: seed.randint(1, 9) for label in used}
    generator = torch.Generator().manual_seed(seed.randrange(2**31))
    dense, given = [], []
    for number, own in enumerate(labels):
        shape = [extents[each] for each in own]
        x = torch.randint(-4, 5, shape, generator=generator).double()
        x *= torch.rand(shape, generator=generator) < seed.choice([0.05, 0.3, 0.9])
        levels = seed.choice(LEVELS if len(own) == 2 else ("sorted_list", "hash", "bytemap"))
        dense.append(x)
        given.append(SparseTensor.from_torch(x, levels=levels) if number == 0 or seed.random() < 0.7 else x)
    return ",".join(labels) + "->" + result, dense, given


@pytest.mark.parametrize("sites", range(1, 9))
def test_random_einsums_are_torchs(sites: int, operations: list[str]) -> None:
    divide(sites)
    seed = random.Random(sites)
    for _ in range(60):
        equation, dense, given = drawn(seed)
        to_scalar = equation.endswith("->")
        out_format = seed.choice(["auto", "dense"] if to_scalar else ["auto", "dense", "coo", "hash"])
        found = dense_of(joinsum.einsum(equation, *given, out_format=out_format))
        assert torch.equal(found, torch.einsum(equation, *dense)), (equation, out_format)
    if sites > 1:
        assert len(moves_of(operations)) > 20


@pytest.mark.parametrize("sites", [2, 3, 5, 6, 7])
@pytest.mark.parametrize(
    ("join", "agg", "fill"),
    [("add", "min", math.inf), ("add", "max", -math.inf), ("mul", "sum", 0), ("add", "min", 3), ("mul", "max", 2)],
)
def test_partial_results_of_semirings_are_folded(join: str, agg: str, fill: float, sites: int) -> None:
    divide(sites)
    generator = torch.Generator().manual_seed(sites)
    x, y = (torch.randint(1, 9, shape, generator=generator).double() for shape in ((7, 30), (30, 6)))
    x, y = (torch.where(torch.rand(each.shape, generator=generator) < 0.7, fill, each) for each in (x, y))
    a, b = (SparseTensor.from_torch(each, levels="csr", fill=fill) for each in (x, y))
    found = joinsum.einsum("ij,jk->ik", a, b, join=join, agg=agg, out_format="csr")
    joinsum.init()
    assert isinstance(found, SparseTensor)
    assert torch.equal(found.to_dense(), dense_of(joinsum.einsum("ij,jk->ik", x, y, join=join, agg=agg)))
    alone = joinsum.einsum("ij,jk->ik", a, b, join=join, agg=agg, out_format="csr")
    assert isinstance(alone, SparseTensor)
    assert found.fill == alone.fill


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,ij->", "ij->j"])
def test_dtypes(dtype: torch.dtype, equation: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = ((torch.randint(0, 4, (12, 12), generator=generator) % 3).to(dtype) for _ in range(2))
    operands = [SparseTensor.from_torch(each) for each in (x, y)[: equation.count(",") + 1]]
    alone = joinsum.einsum(equation, *operands)
    divide(4)
    found = joinsum.einsum(equation, *operands)
    assert found.dtype is alone.dtype
    assert torch.equal(dense_of(found), dense_of(alone))


def test_sums_along_a_long_axis_are_partial_and_sparse(operations: list[str]) -> None:
    """The product of a wide and a tall matrix: only what is summed is worth dividing."""
    divide(4)
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(1, 4, (6, 4000), generator=generator).double() * (torch.rand(6, 4000, generator=generator) < 0.02)
    y = torch.randint(1, 4, (4000, 6), generator=generator).double() * (torch.rand(4000, 6, generator=generator) < 0.02)
    a, b = SparseTensor.from_torch(x, levels="csr"), SparseTensor.from_torch(y, levels="csr")
    found = joinsum.einsum("ij,jk->ik", a, b, out_format="csr")
    assert torch.equal(dense_of(found), x @ y)
    (call,) = [each for each in operations if "sparse_query" in each]
    assert "reduce" in call
    assert "sparse{" in call
    assert moves_of(operations)


def test_bytes_of_a_divided_query_are_counted_by_entries() -> None:
    """Two sites; the result is 40 entries of a diagonal, of which each site computes half and sends it to the other."""
    divide(2)
    eye = SparseTensor.from_torch(torch.eye(40, dtype=torch.float64), levels="csr")
    found = joinsum.einsum("ij,jk->ik", eye, eye, out_format="csr")
    assert torch.equal(dense_of(found), torch.eye(40, dtype=torch.float64))
    moved = [entry for entry in joinsum.trace() if entry.operation.startswith("broadcast")]
    assert [entry.bytes_sent for entry in moved] == [2 * 8 + 40 * (2 * 8 + 8)]


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,ij->i", "ij,jk,kl->il", "ij,jk,ik->"])
def test_gradients_of_values_are_torchs_on_sites(equation: str) -> None:
    divide(4)
    generator = torch.Generator().manual_seed(3)
    count = equation.count(",") + 1
    dense = [torch.randint(1, 5, (8, 8), generator=generator).double() for _ in range(count)]
    dense = [x * (torch.rand(8, 8, generator=generator) < 0.4) for x in dense]
    patterns = [SparseTensor.from_torch(x, levels="csr") for x in dense]
    values = [x.values().clone().requires_grad_() for x in patterns]
    result = joinsum.einsum(equation, *(x.with_values(v) for x, v in zip(patterns, values, strict=True)))
    plain = [x.clone().requires_grad_() for x in dense]
    wanted = torch.einsum(equation, *plain)
    assert isinstance(result, torch.Tensor)
    assert torch.equal(result, wanted)
    result.square().sum().backward()
    wanted.square().sum().backward()
    for pattern, value, x in zip(patterns, values, plain, strict=True):
        assert value.grad is not None
        assert x.grad is not None
        assert torch.equal(value.grad, x.grad[tuple(pattern.coordinates())])


def test_a_program_whose_queries_read_a_results_diagonal_is_computed_by_each_process() -> None:
    divide(4)
    shifted = {"name": "p", "expr": ["map", "exp", [["in", "A", ["i", "j"]]]], "output": ["i", "j"]}
    trace = {"name": "q", "expr": ["agg", "+", ["i"], ["in", "p", ["i", "i"]]], "output": []}
    a = {"shape": [3, 3], "coo": [[0, 0, 1.0], [1, 2, 2.0]]}
    results = Program({"tensors": {"A": a}, "queries": [shifted, trace]}).run()
    assert results["q"].item() == pytest.approx(math.e + 2)


def test_plans_are_kept_and_follow_the_sites() -> None:
    value = random_program(KINDS[0], 3)
    program = Program.from_json(json.dumps(value))
    expected = {name: array for name, (array, _) in evaluate(value).items()}
    for sites in (4, 2, 1, 4):
        divide(sites)
        for _ in range(2):
            for name, result in program.run().items():
                np.testing.assert_allclose(result.to_dense().numpy(), expected[name], rtol=1e-9, atol=1e-9)


def test_operands_of_one_shape_may_be_dense_in_one_call_and_sparse_in_the_next() -> None:
    divide(4)
    generator = torch.Generator().manual_seed(5)
    y = torch.rand(6, 6, generator=generator, dtype=torch.float64)
    b, c = SparseTensor.from_torch(y * (y < 0.4), levels="csr"), SparseTensor.from_torch(y, levels="dense")
    for other in (c, y, c):
        found = joinsum.einsum("ij,jk->ik", b, other, out_format="coo")
        torch.testing.assert_close(dense_of(found), b.to_dense() @ y, rtol=1e-12, atol=1e-12)


def test_fills_that_hardly_differ_have_plans_of_their_own() -> None:
    divide(4)
    for fill in (0.1234567, 0.1234568):
        x = SparseTensor.from_coordinates([[0, 2], [1, 3]], [1.0, 2.0], (6, 6), fill=fill)
        found = joinsum.einsum("ij,j->i", x.to(torch.float64), torch.ones(6, dtype=torch.float64), out_format="dense")
        torch.testing.assert_close(found, x.to_dense().double().sum(1), rtol=1e-6, atol=0)


def test_results_of_more_elements_than_64_bits_count_are_computed_by_each_process() -> None:
    u = SparseTensor.from_coordinates([[0, 5]], [1.0, 2.0], (2**40,))
    divide(4)
    found = joinsum.einsum("i,j->ij", u, u, out_format="coo")
    assert isinstance(found, SparseTensor)
    assert found.values().tolist() == [1.0, 2.0, 2.0, 4.0]


def test_each_input_keeps_its_number_of_entries() -> None:
    """Moves of two sparse inputs of one shape cost what each has."""
    joinsum.init(sites=4)
    tensors = {"A": {"shape": [400, 400], "nnz": 800}, "M": {"shape": [400, 400], "nnz": 16_000}}
    body = ["map", "*", [["in", "A", ["i", "j"]], ["in", "M", ["i", "j"]]]]
    planned = Program({"tensors": tensors, "queries": [{"name": "q", "expr": body, "output": ["i", "j"]}]}).plan()
    assert planned.site_plan is not None
    entries = [type_.relation.entries for _, type_ in planned.site_plan.plan.core.inputs]
    assert entries == [1024, 16384]
    joinsum.init()
