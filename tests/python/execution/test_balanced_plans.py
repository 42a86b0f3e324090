"""Plans of graphs with sparse inputs whose entries lie unevenly: sites get about equal work, and results stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import joinsum
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from joinsum import PlanError, SparseTensor
from joinsum.execution.balanced_plans import entry_sample
from joinsum.execution.planned_graph import PlannedGraph


@pytest.fixture(autouse=True)
def _one_site_afterwards() -> Iterator[None]:
    yield
    joinsum.init()


def power_law(rows: int, columns: int, entries: int, seed: int = 0) -> torch.Tensor:
    """Rows and columns with a low index have most entries, which are small whole numbers."""
    draw = np.random.default_rng(seed)
    places = np.floor(draw.random((2, entries)) ** 4 * [[rows], [columns]]).astype(np.int64)
    places = np.unique(places, axis=1)
    values = torch.from_numpy(draw.integers(1, 5, places.shape[1]).astype(np.float64))
    return torch.sparse_coo_tensor(torch.from_numpy(places), values, (rows, columns)).coalesce()


def planned(rows: int, columns: int, entries: int) -> PlannedGraph:
    g = joinsum.Graph()
    a, x = (
        g.input("A", (rows, columns), dtype=torch.float64, entries=entries),
        g.input("X", (columns, 8), torch.float64),
    )
    g.output("Z", g.einsum("ij,jk->ik", a, x))
    return g.plan(cache=False)


def busiest(run: PlannedGraph, a: torch.Tensor) -> float:
    """Of how many parts' worth the busiest part of A's rows has entries."""
    cuts = dict(run.last_plan.core.inputs)["A"].relation.axes[0].cuts
    counts = np.histogram(a.indices()[0].numpy(), cuts)[0]
    return float(counts.max() / counts.mean())


@pytest.mark.parametrize("sites", [2, 3, 4, 8])
def test_parts_of_a_power_law_graph_have_equal_work_within_a_fifth(sites: int) -> None:
    joinsum.init(sites=sites)
    a, x = power_law(3000, 2000, 200_000), torch.randint(-4, 5, (2000, 8)).double()
    run = planned(3000, 2000, 100_000)
    assert busiest(run, a) > 1.5  # by even cuts
    assert torch.equal(run(A=a, X=x)["Z"], a.to_dense() @ x)
    assert busiest(run, a) < 1.2


def test_other_entries_get_other_cuts_and_known_ones_their_plan() -> None:
    joinsum.init(sites=4)
    x = torch.randint(-4, 5, (500, 8)).double()
    low = power_law(600, 500, 20_000)
    high = torch.sparse_coo_tensor(
        torch.stack([599 - low.indices()[0], low.indices()[1]]), low.values(), (600, 500)
    ).coalesce()
    run, plans = planned(600, 500, 10_000), []
    for a in (low, high, low, high, power_law(600, 500, 20_000, seed=1)):
        assert torch.equal(run(A=a, X=x)["Z"], a.to_dense() @ x)
        assert busiest(run, a) < 1.25
        plans.append(run.last_plan.core)
    assert plans[0] is plans[2] is plans[4]
    assert plans[1] is plans[3]
    assert plans[0] is not plans[1]


def test_a_plan_that_cannot_be_rebuilt_is_searched_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PlanError("no")

    joinsum.init(sites=4)
    a, x = power_law(600, 500, 20_000), torch.randint(-4, 5, (500, 8)).double()
    run = planned(600, 500, 10_000)
    monkeypatch.setattr("joinsum.planner.plan_choice.rebuilt", refuse)
    assert torch.equal(run(A=a, X=x)["Z"], a.to_dense() @ x)
    assert busiest(run, a) < 1.25


def test_gradients_and_costs_of_balanced_plans() -> None:
    joinsum.init(sites=4)
    a = power_law(600, 500, 20_000)
    x = torch.randint(-4, 5, (500, 8)).double().requires_grad_()
    run = planned(600, 500, 10_000)
    before = run.cost.wire_bytes
    run(A=a, X=x)["Z"].square().sum().backward()
    assert torch.equal(x.grad, 2 * (a.to_dense().T @ (a.to_dense() @ x.detach())))
    assert run.cost.wire_bytes == before


EQUATIONS = ["ij,jk->ik", "ij,jk->ki", "ij,kj->ik", "ij,jk,ik->", "ij,ij->j", "ij,jk,kl->il", "ij,j->i", "ij->i"]


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[Any], int, bool]:
    equation = draw(st.sampled_from(EQUATIONS))
    extents = {letter: draw(st.integers(1, 40)) for letter in "ijkl"}
    operands: list[Any] = []
    for letters in equation.partition("->")[0].split(","):
        shape = [extents[letter] for letter in letters]
        if len(shape) == 1:
            operands.append(torch.randint(1, 5, shape).double())
        else:
            operands.append(power_law(*shape, draw(st.integers(0, 300)), draw(st.integers(0, 9))))
    return equation, operands, draw(st.integers(2, 8)), draw(st.booleans())


@settings(max_examples=100, deadline=None)
@given(case=cases())
def test_einsums_of_uneven_operands_have_the_values_of_dense_ones(case: tuple[str, list[Any], int, bool]) -> None:
    equation, operands, sites, twice = case
    joinsum.init(sites=sites)
    wanted = torch.einsum(equation, *(x.to_dense() for x in operands))
    given_ = [SparseTensor.from_torch(x) if x.is_sparse else x for x in operands]
    for _ in range(1 + twice):
        assert torch.equal(joinsum.einsum(equation, *given_, out_format="dense"), wanted)


def test_a_sample_has_the_distribution_of_all_indices() -> None:
    a = power_law(5000, 4000, 400_000)
    sample = entry_sample(a)
    assert sample.shape == (2, 1024)
    assert np.array_equal(sample, entry_sample(a.clone()))
    for found, indices in zip(sample, a.indices().numpy(), strict=True):
        for share in (0.1, 0.25, 0.5, 0.9):
            at = np.quantile(indices, share)
            assert abs((found < at).mean() - (indices < at).mean()) < 0.02


def test_a_sample_of_few_entries_is_all_of_them() -> None:
    a = torch.tensor([[0.0, 1.0], [2.0, 3.0]]).to_sparse()
    assert entry_sample(a).tolist() == [[0, 1, 1], [0, 1, 1]]
    assert entry_sample(torch.zeros(2, 3).to_sparse()).shape == (2, 0)


def test_operands_of_more_elements_than_torch_counts_are_computed_whole() -> None:
    joinsum.init(sites=2)
    extent = 2**30
    places = torch.stack([torch.arange(0, extent, extent // 8), torch.arange(8)])
    a = SparseTensor.from_coordinates(places, torch.arange(1.0, 9.0).double(), (extent, extent))
    assert joinsum.einsum("ij,ij->", a, a).item() == 204.0
    with pytest.raises(PlanError, match="a tensor of 2\\^63 bytes or more"):
        joinsum.relation(a, parts=(2, 2))
