"""NaN in sparse tensors: it spreads as in torch, except where a fill annihilates."""

from __future__ import annotations

from typing import Any

import joinsum
import pytest
import torch
from joinsum import PlanError, SparseTensor
from joinsum.sparse import Program

NAN = float("nan")
STORED = torch.tensor([[True, True, False], [False, True, False], [False, False, True]])
VALUES = [NAN, 2.0, 3.0, 1.0]


def matrix(fill: float = 0.0) -> SparseTensor:
    return SparseTensor.from_coordinates(STORED.nonzero().T, VALUES, (3, 3), levels="csr", fill=fill)


def assert_equal(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted.to(found.dtype), equal_nan=True)


@pytest.mark.parametrize("agg", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("fill", [0.0, 2.5, NAN])
def test_what_meets_it_is_it(agg: str, fill: float) -> None:
    dense = matrix(fill).to_dense()
    wanted = {"sum": dense.sum, "prod": dense.prod, "min": dense.amin, "max": dense.amax}[agg](1)
    assert_equal(joinsum.einsum("ij->i", matrix(fill), agg=agg, out_format="dense"), wanted)


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
@pytest.mark.parametrize("operator", ["+", "*", "min", "max"])
def test_programs_agree(engine: str, operator: str) -> None:
    query: dict[str, Any] = {"name": "q", "expr": ["agg", operator, ["j"], ["in", "A", ["i", "j"]]], "output": ["i"]}
    program = Program({"tensors": {"A": matrix().to(torch.float64)}, "queries": [query]})
    dense = matrix().to_dense()
    wanted = {"+": dense.sum, "*": dense.prod, "min": dense.amin, "max": dense.amax}[operator](1)
    assert_equal(program.plan().run(engine=engine)["q"].to_dense(), wanted)


def test_a_zero_that_is_not_stored_wins() -> None:
    x = torch.tensor([1.0, NAN, NAN])
    products = torch.where(STORED, matrix().to_dense() * x, torch.tensor(0.0))
    assert_equal(joinsum.einsum("ij,j->i", matrix(), x), products.sum(1))
    assert not products.sum(1).equal(matrix().to_dense() @ x)
    eye = SparseTensor.from_torch(torch.eye(3), levels="csr")
    undefined = SparseTensor.from_coordinates([[0], [1]], [2.0], (3, 3), levels="csr", fill=NAN)
    wanted = torch.diag(torch.full((3,), NAN))
    found = joinsum.einsum("ij,ij->ij", undefined, eye)
    assert isinstance(found, SparseTensor)
    assert_equal(found.to_dense(), wanted)


def test_an_infinity_that_is_not_stored_wins() -> None:
    """Paths of two edges, one of unknown length: what no edge leads to stays infinite."""
    infinity = float("inf")
    found = joinsum.einsum("ij,jk->ik", matrix(infinity), matrix(infinity), join="add", agg="min", out_format="dense")
    wanted = torch.full((3, 3), infinity)
    wanted[0, :2], wanted[1, 1], wanted[2, 2] = NAN, 6.0, 2.0
    assert_equal(found, wanted)


def test_a_literal_of_a_program_is_refused() -> None:
    with pytest.raises(PlanError, match="NaN is no value"):
        Program({"tensors": {}, "queries": [{"name": "q", "expr": ["lit", NAN], "output": []}]})
