"""Values of sparse tensors in autograd: in other levels, dtypes and layouts, and after they were written to."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import joinsum
import numpy as np
import pytest
import torch
from joinsum import PlanError, SparseTensor

LEVELS = ("csr", "csc", "coo", "dcsr", "hash", "bytemap", "dense")


@pytest.fixture(autouse=True)
def one_site() -> None:
    joinsum.init(sites=1)


def graph(levels: str = "csr") -> SparseTensor:
    return SparseTensor.from_edges([[0, 1], [0, 2], [1, 2], [2, 0]], 3, levels=levels)


def weighted(levels: str = "csr") -> tuple[SparseTensor, torch.Tensor]:
    x = graph(levels)
    weights = torch.arange(1.0, x.nnz + 1).requires_grad_()
    return x.with_values(weights), weights


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("stride", [1, 2])
def test_einsums_have_the_values_that_an_optimizer_wrote(levels: str, stride: int) -> None:
    x = graph(levels)
    places, ones = tuple(x.coordinates()), torch.ones(3)

    def losses(loss_of: Callable[[torch.Tensor], Callable[[], torch.Tensor]]) -> list[float]:
        store = torch.zeros(x.nnz * stride)
        weights = store[::stride].copy_(torch.arange(1.0, x.nnz + 1)).requires_grad_()
        optimizer, loss, found = torch.optim.SGD([weights], lr=0.01), loss_of(weights), []
        for _ in range(4):
            optimizer.zero_grad()
            value = loss()
            value.backward()
            optimizer.step()
            found.append(value.item())
        return found

    def sparse_loss(weights: torch.Tensor) -> Callable[[], torch.Tensor]:
        tensor = x.with_values(weights)
        return lambda: joinsum.einsum("ij,j->i", tensor, ones).pow(2).sum()

    def dense_loss(weights: torch.Tensor) -> Callable[[], torch.Tensor]:
        return lambda: torch.zeros(3, 3).index_put(places, weights).sum(1).pow(2).sum()

    np.testing.assert_allclose(losses(sparse_loss), losses(dense_loss), rtol=1e-5)


@pytest.mark.parametrize("levels", LEVELS)
def test_all_ways_have_the_values_that_were_written(levels: str) -> None:
    x = graph(levels)
    values = torch.ones(x.nnz)
    tensor = x.with_values(values)
    assert joinsum.einsum("ij->", tensor).item() == x.nnz
    joinsum.einsum("ij,j->i", tensor, torch.ones(3))
    values.mul_(3)
    assert joinsum.einsum("ij->", tensor).item() == 3 * x.nnz
    assert joinsum.einsum("ij,j->i", tensor, torch.ones(3)).sum().item() == 3 * x.nnz
    assert tensor.to_dense().sum().item() == 3 * x.nnz
    assert tensor.with_levels("csc").values().sum().item() == 3 * x.nnz


@pytest.mark.parametrize("levels", LEVELS)
def test_gradients_pass_through_conversions(levels: str) -> None:
    factor = torch.arange(1.0, 10).reshape(3, 3)
    for other in LEVELS:
        x, weights = weighted(levels)
        found = joinsum.einsum("ij,ij->", x.with_levels(other), factor)
        (gradient,) = torch.autograd.grad(found, weights)
        assert torch.equal(gradient, factor[tuple(x.coordinates())])
    ways: list[Callable[[SparseTensor], torch.Tensor]] = [
        lambda x: x.to_dense(),
        lambda x: x.to(torch.float64).to_dense(),
        lambda x: x.to_torch(),
        lambda x: x.to_torch("coo").to_dense(),
        lambda x: x.to_torch("csr").to_dense(),
        lambda x: x.to_torch("csc").to_dense(),
        lambda x: x.to_torch("bsr", blocksize=(3, 3)).to_dense(),
    ]
    for way in ways:
        x, weights = weighted(levels)
        made = way(x)
        assert torch.equal(made.detach().float(), graph(levels).with_values(weights.detach()).to_dense())
        (gradient,) = torch.autograd.grad((made * factor).sum(), weights)
        assert torch.equal(gradient, factor[tuple(x.coordinates())])


def test_a_scalar_has_its_gradient() -> None:
    value = torch.tensor([2.0], requires_grad=True)
    x = SparseTensor.from_coordinates([], [1.0], ()).with_values(value)
    (gradient,) = torch.autograd.grad(x.to_dense() * 3, value)
    assert gradient.item() == 3


def test_copies_require_gradients_of_their_own() -> None:
    x, weights = weighted()
    buffer = io.BytesIO()
    torch.save(x, buffer)
    buffer.seek(0)
    for made in (copy.deepcopy(x), torch.load(buffer, weights_only=False)):
        assert made.requires_grad
        joinsum.einsum("ij->", made).backward()
        assert made.values().grad is not None
        assert weights.grad is None


def test_values_are_lists_and_arrays_too() -> None:
    x = graph()
    assert x.with_values([1.0, 2.0, 3.0, 4.0]).values().tolist() == [1, 2, 3, 4]
    assert x.with_values(np.arange(4, dtype=np.float32)).values().tolist() == [0, 1, 2, 3]
    with pytest.raises(PlanError, match="one value for each stored element"):
        x.with_values([1.0])


def test_values_of_a_tensor_without_entries_stay_in_autograd() -> None:
    values = torch.zeros(0, requires_grad=True)
    empty = SparseTensor.from_coordinates([torch.zeros(0, dtype=torch.int64)], torch.zeros(0), (3,)).with_values(values)
    dense = empty.with_levels("dense")
    assert dense.requires_grad
    dense.values().sum().backward()
    assert values.grad is not None
    assert values.grad.shape == (0,)
