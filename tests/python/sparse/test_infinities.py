"""Infinities in sparse einsums and programs: zeros that are not stored annihilate them, however dense the rest is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import joinsum
import pytest
import torch
from joinsum import SparseTensor
from joinsum.sparse import Program

INFINITY = float("inf")
LEVELS = ["coo", "csr", "csc", "dcsr", ["bytemap", "hash"], ["sorted_list", "bytemap"]]


@pytest.fixture(autouse=True, params=[1, 2, 3])
def _sites(request: pytest.FixtureRequest) -> Iterator[None]:
    joinsum.init(sites=request.param)
    yield
    joinsum.init()


def corner(levels: Any, fill: float = 0.0) -> SparseTensor:
    """All elements but the last one are 1."""
    return SparseTensor.from_coordinates([[0, 0, 1], [0, 1, 0]], torch.ones(3), (2, 2), fill=fill).with_levels(levels)


@pytest.mark.parametrize("levels", LEVELS, ids=str)
def test_sums_and_maps_do_not_depend_on_levels(levels: Any) -> None:
    matrix = corner(levels)
    infinite = torch.tensor([1.0, INFINITY])
    assert joinsum.einsum("ij,j->i", matrix, infinite, out_format="dense").tolist() == [INFINITY, 1.0]
    mapped = joinsum.einsum("ij,ij->ij", matrix, torch.full((2, 2), INFINITY), out_format="coo")
    assert mapped.to_dense().tolist() == [[INFINITY, INFINITY], [INFINITY, 0.0]]


@pytest.mark.parametrize("levels", LEVELS, ids=str)
def test_of_minima_of_sums_the_fill_is_infinite(levels: Any) -> None:
    least = joinsum.einsum(
        "ij,j->i", corner(levels, INFINITY), torch.tensor([1.0, -INFINITY]), join="add", agg="min", out_format="dense"
    )
    assert least.tolist() == [-INFINITY, 2.0]


@pytest.mark.parametrize("count", range(1, 9))
def test_results_do_not_depend_on_density(count: int) -> None:
    places = [[k // 3 for k in range(count)], [k % 3 for k in range(count)]]
    matrix = SparseTensor.from_coordinates(places, torch.ones(count), (3, 3))
    scaled = joinsum.einsum("ij,i->ij", matrix, torch.full((3,), INFINITY), out_format="coo").to_dense()
    assert scaled.flatten().tolist() == [INFINITY] * count + [0.0] * (9 - count)


def test_zeros_that_are_stored_make_no_numbers() -> None:
    stored = SparseTensor.from_coordinates([[0, 1]], [0.0, 2.0], (3,))
    product = joinsum.einsum("i,i->i", stored, torch.tensor([INFINITY, 1.0, INFINITY]), out_format="coo").to_dense()
    torch.testing.assert_close(product, torch.tensor([float("nan"), 2.0, 0.0]), equal_nan=True)
    nothing = SparseTensor.from_coordinates([], torch.empty(0), ())
    none = joinsum.einsum(",i->i", nothing, torch.tensor([INFINITY, 1.0]), out_format="coo")
    assert none.to_dense().tolist() == [0.0, 0.0]


@pytest.mark.parametrize("values", [(1, 2), (-1, 2)])
def test_programs_with_infinities_are_planned_as_written(values: tuple[int, int]) -> None:
    tensors = {
        "A": {"shape": [1], "coo": [[0, "-inf"]]},
        "B": {"shape": [1, 3], "coo": [[0, 1, values[0]], [0, 2, values[1]]]},
    }
    read_a, read_b = ["in", "A", ["k"]], ["in", "B", ["k", "j"]]
    whole = ["agg", "+", ["k"], ["map", "*", [read_a, ["agg", "+", ["j"], read_b]]]]
    each = ["map", "*", [read_a, read_b]]
    queries = [{"name": "s", "expr": whole, "output": []}, {"name": "m", "expr": each, "output": ["k", "j"]}]
    found = Program({"tensors": tensors, "queries": queries}).run()
    assert found["s"].item() == -INFINITY
    assert found["m"].to_dense().tolist() == [[0.0, -INFINITY * values[0], -INFINITY]]


def test_zeros_between_that_nothing_stores_annihilate() -> None:
    joinsum.init(sites=1)  # on several, results between are dense
    draw = torch.Generator().manual_seed(0)
    a, b, c = (torch.rand(20, 20, generator=draw) * (torch.rand(20, 20, generator=draw) < 0.3) for _ in range(3))
    a[3] = 0
    c[5, 7] = INFINITY
    left, middle, right = (SparseTensor.from_torch(x.double()).with_levels("coo") for x in (a, b, c))
    product = joinsum.einsum("ij,jk->ik", left, middle, out_format="coo")
    wanted = joinsum.einsum("ij,jk->ik", product, right, out_format="dense")
    found = joinsum.einsum("ij,jk,kl->il", left, middle, right, out_format="dense")
    torch.testing.assert_close(found, wanted)
    assert not found.isnan().any()
