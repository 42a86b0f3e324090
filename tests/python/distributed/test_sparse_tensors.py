"""Sparse tensors that are added to distributed ones, or mask them, as torch's optimizers do with sparse gradients."""

from __future__ import annotations

from collections.abc import Iterator

import joinsum
import pytest
import torch
from joinsum import DistributedTensor
from torch import Tensor

SHAPE = (7, 4)
LAYOUTS = {
    "rows": {"parts": (3, 1)},
    "columns": {"parts": (1, 2)},
    "both": {"parts": (2, 2)},
    "more tiles than sites": {"parts": (7, 1)},
    "one site": {"parts": (1, 1)},
    "replicated": {"place": "replicated"},
}


@pytest.fixture(autouse=True, params=[1, 4])
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    joinsum.init(sites=request.param)
    yield request.param
    joinsum.init()


def stored(x: Tensor, layout: str) -> DistributedTensor:
    return DistributedTensor.of(x, **LAYOUTS[layout])


def some_rows(dtype: torch.dtype = torch.float64) -> Tensor:
    """Row 5 twice."""
    values = torch.arange(16.0, dtype=dtype).reshape(4, 4)
    return torch.sparse_coo_tensor(torch.tensor([[5, 0, 5, 3]]), values, SHAPE, check_invariants=True)


def some_elements() -> Tensor:
    places = torch.tensor([[6, 0, 0, 2], [3, 1, 1, 0]])
    return torch.sparse_coo_tensor(places, torch.tensor([1.0, 2, 3, 4], dtype=torch.float64), SHAPE)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("make", [some_rows, some_elements])
def test_sparse_tensors_are_added(layout: str, make: object) -> None:
    x, y = torch.randn(SHAPE, dtype=torch.float64), make()  # type: ignore[operator]
    found = stored(x, layout)
    alias = found.detach()
    version = found._version
    assert found.add_(y, alpha=-0.5) is found
    torch.testing.assert_close(found.full_tensor(), x.clone().add_(y, alpha=-0.5))
    torch.testing.assert_close(alias.full_tensor(), found.full_tensor())
    assert found._version > version
    for block in found.blocks():  # replicas, too
        assert block.shape != torch.Size(SHAPE) or torch.equal(block, found.full_tensor())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("make", [some_rows, some_elements])
def test_elements_are_read_where_a_sparse_tensor_has_entries(layout: str, make: object) -> None:
    x, mask = torch.randn(SHAPE, dtype=torch.float64), make().coalesce()  # type: ignore[operator]
    found = stored(x, layout).sparse_mask(mask)
    expected = x.sparse_mask(mask)
    assert found.is_coalesced()
    assert torch.equal(found.indices(), expected.indices())
    assert torch.equal(found.values(), expected.values())


def test_tables_of_several_factors() -> None:
    """Rows of the table are a product of two axes of the relation, of which the inner one is cut."""
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.sparse_coo_tensor([[4, 1]], torch.ones(2, 4).double(), (6, 4))
    heads = joinsum.relation(x.reshape(2, 3, 4), parts=(1, 3, 1)).stored()
    found = DistributedTensor(heads, (6, 4))
    expected = x + y  # before: the relation shares the memory of x
    found.add_(y)
    torch.testing.assert_close(found.full_tensor(), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sums_differences_and_products(layout: str) -> None:
    x, y = torch.randn(SHAPE, dtype=torch.float64), some_rows()
    found = stored(x, layout)
    torch.testing.assert_close((found + y).full_tensor(), x + y)
    torch.testing.assert_close(torch.add(found, y, alpha=3).full_tensor(), x + 3 * y)
    torch.testing.assert_close((found - y).full_tensor(), x - y.to_dense())
    torch.testing.assert_close((y * found).to_dense(), y.to_dense() * x)
    torch.testing.assert_close((found * y).to_dense(), y.to_dense() * x)
    torch.testing.assert_close(found.full_tensor(), x)
    torch.testing.assert_close(found.sub_(y, alpha=2).full_tensor(), x - 2 * y.to_dense())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_entry_of_which_a_block_has_a_part(layout: str) -> None:
    """A view of one row is contiguous to torch, whatever its stride."""
    for row in [*range(7), 3]:
        x, y = torch.randn(SHAPE), torch.sparse_coo_tensor([[row]], torch.randn(1, 4), SHAPE)
        found = stored(x, layout).add_(y, alpha=-0.5)
        torch.testing.assert_close(found.full_tensor(), x.add(y, alpha=-0.5))


def test_what_does_not_fit_is_refused() -> None:
    x = stored(torch.ones(SHAPE), "rows")
    with pytest.raises(joinsum.PlanError, match=r"of its shape: .*shapes=\[7, 4\] and \[7, 5\]"):
        x.add_(torch.sparse_coo_tensor([[1]], torch.ones(1, 5), (7, 5)))
    with pytest.raises(joinsum.PlanError, match="added to a distributed one"):
        some_rows(torch.float32).add_(x)
    with pytest.raises(joinsum.PlanError, match="a mask is a sparse tensor"):
        torch.ones(SHAPE).sparse_mask(x)
