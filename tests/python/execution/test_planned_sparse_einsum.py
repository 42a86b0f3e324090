"""joinsum.einsum_plan of sparse operands: the plan that joinsum.einsum takes."""

from __future__ import annotations

import json
from typing import Any

import joinsum
import pytest
import torch
from joinsum import PlanError, SparseTensor
from joinsum.execution.planned_sparse_einsum import PlannedSparseEinsum
from joinsum.sparse import Plan, Program, plan_cache_clear, plan_cache_info

SIZE = 40


@pytest.fixture(autouse=True)
def one_site() -> None:
    joinsum.init(sites=1)
    plan_cache_clear()


def matrix(seed: int = 0, levels: str = "coo", density: float = 0.1) -> SparseTensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(SIZE, SIZE, generator=generator)
    return SparseTensor.from_torch(torch.where(x < density, x + 1, 0)).with_levels(levels)


def planned(*arguments: Any, **options: Any) -> PlannedSparseEinsum:
    plan = joinsum.einsum_plan(*arguments, **options)
    assert isinstance(plan, PlannedSparseEinsum)
    return plan


def test_the_plan_is_that_of_the_program_of_one_query() -> None:
    a, b = matrix(0), matrix(1)
    plan = planned("ij,jk->ik", a, b)
    expr = ["agg", "+", ["j"], ["map", "*", [["in", "x0", ["i", "j"]], ["in", "x1", ["j", "k"]]]]]
    query = {"name": "z", "expr": expr, "output": ["i", "k"]}
    program = Program({"tensors": {"x0": a, "x1": b}, "queries": [query], "dtype": "float32"})
    expected = program.plan(search="branch_and_bound")
    assert isinstance(plan, Plan)
    for field in ("logical", "cost", "orders", "physical", "classes"):
        assert getattr(plan, field) == getattr(expected, field), field
    assert str(plan) == f"ij,jk->ik\n{expected}"
    assert plan.seconds["plan"] > 0
    assert (plan.seconds["compile"], plan.seconds["run"]) == (0, 0)


@pytest.mark.parametrize("levels", ["coo", "csr", "csc", "hash"])
@pytest.mark.parametrize("sites", [1, 3, 4])
def test_calls_compute_the_einsum(levels: str, sites: int) -> None:
    joinsum.init(sites=sites)
    a, b = matrix(0, levels), matrix(1, levels)
    plan = planned("ij,jk->ik", a, b, out_format="dense")
    torch.testing.assert_close(plan(a, b), a.to_dense() @ b.to_dense())
    c = matrix(2, levels, density=0.4)  # other entries, planned anew
    torch.testing.assert_close(plan(c, b), c.to_dense() @ b.to_dense())


def test_einsum_takes_the_plan_that_was_shown() -> None:
    a, b = matrix(0), matrix(1)
    plan = planned("ij,jk->ik", a, b)
    before = plan_cache_info()
    joinsum.einsum("ij,jk->ik", a, b)
    assert (before.misses, plan_cache_info().misses) == (1, 1)
    assert planned("ij,jk->ik", a, b).handle is plan.handle
    assert planned("ij,jk->ik", a, b, cache=False).handle is not plan.handle
    assert plan_cache_info().misses == 1


def test_a_run_shows_true_entries_of_this_plan_alone() -> None:
    a, b = matrix(0), matrix(1)
    plan, same = planned("ij,jk->ik", a, b), planned("ij,jk->ik", a, b)
    joinsum.einsum("ij,jk->ik", a, b)
    assert plan.true_entries == {}
    assert joinsum.explain(plan, analyze=True) is plan
    product = a.to_dense() @ b.to_dense()
    assert plan.true_entries == {"z": int(product.count_nonzero())}
    assert f"(true {int(product.count_nonzero())})" in str(plan)
    assert "seconds: plan " in str(plan)
    assert (same.true_entries, "(true" in str(same)) == ({}, False)
    torch.testing.assert_close(plan.run()["z"].to_dense(), product)


@pytest.mark.parametrize(
    ("equation", "levels", "options", "tried"),
    [
        ("ij,j->i", ["csr", None], {}, "compressed rows"),
        ("ij,j->i", ["coo", None], {}, None),
        ("ij,jk->ik", ["csr", "csr"], {"out_format": "csr"}, "compressed rows"),
        ("ij,j->i", ["csr", None], {"join": "add", "agg": "min", "out_format": "dense"}, None),
    ],
)
def test_loops_of_compressed_rows_are_named(
    equation: str, levels: list[str | None], options: dict[str, Any], tried: str | None
) -> None:
    texts = equation.split("->")[0].split(",")
    operands = [
        torch.ones((SIZE,) * len(text)) if form is None else matrix(i, form)
        for i, (text, form) in enumerate(zip(texts, levels, strict=True))
    ]
    plan = planned(equation, *operands, **options)
    assert plan.tried_first == tried
    assert ("tried first: " in str(plan)) == (tried is not None)
    assert json.loads(plan.to_json())["tried_first"] == tried


def test_products_two_at_a_time_are_named() -> None:
    size, entries = 2000, 40_000  # enough for them to be the faster ones
    places = torch.randperm(size * size, generator=torch.Generator().manual_seed(0))[:entries]
    x = SparseTensor.from_coordinates([places // size, places % size], torch.ones(entries), (size, size), levels="csr")
    v = torch.ones(size)
    assert planned("i,ij,j,j->i", v, x, v, v).tried_first == "pairs"


def test_torchs_sparse_tensors_and_dense_ones_are_operands() -> None:
    x, y = matrix(0).to_dense(), torch.ones(SIZE, 3)
    for operand in (x.to_sparse(), x.to_sparse_csr(), x.to_sparse_csc()):
        plan = planned("ij,jk->ik", operand, y, out_format="dense")
        torch.testing.assert_close(plan(operand, y), x @ y)
        assert plan.run()["z"].to_dense().allclose(x @ y)


def test_other_operations_and_formats_are_planned() -> None:
    roads = SparseTensor.from_coordinates([[0, 1], [1, 2]], [1.0, 2.0], (3, 3), fill=float("inf"))
    plan = planned("ij,jk->ik", roads, roads, join="add", agg="min", out_format="dense")
    assert (plan.logical[0]["op"], plan.physical[0]["formats"]) == ("min", ["dense", "dense"])
    assert plan(roads, roads)[0, 2] == 3.0
    assert planned("ij->ji", matrix(), out_format="coo").physical[0]["formats"] == ["sorted_list", "sorted_list"]


def test_gradients_pass_through_calls() -> None:
    a, x = matrix(), torch.ones(SIZE, requires_grad=True)
    planned("ij,j->i", a, x)(a, x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, a.to_dense().sum(0))


@pytest.mark.parametrize("dense", [True, False])
def test_on_sites_the_plan_says_how_they_divide_it(dense: bool) -> None:
    joinsum.init(sites=4)
    a = matrix(0, "csr")
    b = torch.ones(SIZE, 8) if dense else matrix(1, "csr")
    plan = planned("ij,jk->ik", a, b, cache=False)
    assert plan.site_plan is not None
    assert plan.site_plan.plan.grid.sites == 4
    assert str(plan).endswith(str(plan.site_plan))
    assert joinsum.parse(plan.data()["site_plan"]) == plan.site_plan.plan
    assert bool(joinsum.explain(plan.site_plan).queries) != dense  # one sparse operand is contracted with dense ones
    joinsum.init(sites=1)
    assert planned("ij,jk->ik", a, b).site_plan is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda a, v: planned("ij,j->i", a, (SIZE,)),
            "beside sparse ones is a tensor; give torch.as_tensor\\(x\\): operand=1",
        ),
        (lambda a, v: planned("ij,j->i", a, v.to("meta")), "einsum: sparse operands lie on the CPU"),
        (lambda a, v: planned("ij,k->i", a), "einsum"),
        (lambda a, v: planned("ij,j->i", a, v, agg="argmax"), "argmax"),
        (lambda a, v: planned("ij,j->i", a, v)(a), "plan: another number of operands: planned=2, given=1"),
        (lambda a, v: planned("ij,j->i", a, v)(v, a), "plan: an operand was planned sparse: operand=0, given=Tensor"),
        (
            lambda a, v: planned("ij,j->i", a, v)(a, v[:3]),
            "plan: an operand has another shape or dtype than planned: operand=1",
        ),
        (
            lambda a, v: planned("ij,j->i", a, v)(a, v.double()),
            "plan: an operand has another shape or dtype than planned",
        ),
    ],
)
def test_what_is_wrong_is_named(call: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        call(matrix(), torch.ones(SIZE))


def test_what_einsum_refuses_has_no_plan() -> None:
    edges = SparseTensor.from_coordinates([[0], [1]], [1.0], (2000, 2000), levels="csr")
    for call in (joinsum.einsum, joinsum.einsum_plan):
        with pytest.raises(PlanError, match=r"does not store count here.*out_format"):
            call("ij,jk->ik", edges, edges, join="add", agg="min")
        with pytest.raises(PlanError, match="gradients of sparse einsums are those of sum, max, min and logsumexp"):
            call("ij,j->i", matrix(), torch.ones(SIZE).requires_grad_(), agg="prod")
    assert planned("ij,jk->ik", edges, edges, join="add", agg="min", out_format="dense").site_plan is None


def test_a_plan_is_for_the_sites_that_it_was_made_for() -> None:
    a = matrix()
    plan = planned("ij->i", a)
    joinsum.init(sites=2)
    with pytest.raises(PlanError, match="plan: it was made for other sites; plan again"):
        plan(a)
