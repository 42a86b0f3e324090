"""joinsum.einsum_plan takes dense and sparse operands, and says which options are whose."""

from __future__ import annotations

import joinsum
import pytest
import torch
from joinsum import PlanError, PlannedEinsum, SparseTensor
from joinsum.sparse import Plan
from torch._subclasses import FakeTensorMode


@pytest.fixture(autouse=True)
def one_site() -> None:
    joinsum.init(sites=1)


def test_operands_decide_which_plan_it_is() -> None:
    x = torch.eye(3)
    assert isinstance(joinsum.einsum_plan("ij,jk->ik", x, x), PlannedEinsum)
    assert isinstance(joinsum.einsum_plan("ij,jk->ik", x, (3, 4)), PlannedEinsum)
    for sparse in (SparseTensor.from_torch(x), x.to_sparse()):
        assert isinstance(joinsum.einsum_plan("ij,jk->ik", x, sparse), Plan)
        assert isinstance(joinsum.einsum_plan(x, [0, 1], sparse, [1, 2]), Plan)


def test_dense_operands_have_no_format() -> None:
    assert isinstance(joinsum.einsum_plan("ij->i", (3, 4), out_format="dense"), PlannedEinsum)
    with pytest.raises(PlanError, match="einsum_plan: dense operands give dense results: out_format='csr'"):
        joinsum.einsum_plan("ij->ji", (3, 4), out_format="csr")


def test_sparse_operands_have_data() -> None:
    x = SparseTensor.from_torch(torch.eye(3))
    with FakeTensorMode(), pytest.raises(PlanError, match="FakeTensorMode"):
        joinsum.einsum_plan("ij->i", x)
