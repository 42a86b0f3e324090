"""Sparse operands that are read again, on several sites: their blocks are kept, and never stale."""

from __future__ import annotations

import gc
import weakref

import joinsum
import pytest
import torch
from joinsum import SparseTensor
from joinsum.execution.sparse_blocks import block_of

EQUATIONS = ("ij,j->i", "ij,i->j", "ij,jk->ik")


def matrix(seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    dense = torch.rand(12, 9, generator=generator, dtype=torch.float64)
    return dense * (torch.rand(12, 9, generator=generator) < 0.3)


def other(equation: str) -> torch.Tensor:
    shape = {"j": (9,), "i": (12,), "jk": (9, 4)}[equation.split(",")[1].split("->")[0]]
    return torch.rand(shape, dtype=torch.float64)


@pytest.mark.parametrize("levels", ["csr", "csc", "coo", "dense"])
@pytest.mark.parametrize("equation", EQUATIONS)
def test_calls_with_other_operands_and_sites_are_right(equation: str, levels: str) -> None:
    dense = matrix()
    x = SparseTensor.from_torch(dense, levels=levels)
    for sites in (4, 3, 4):
        joinsum.init(sites=sites)
        for _ in range(2):
            y = other(equation)
            for agg in ("sum", "max"):
                found = joinsum.einsum(equation, x, y, agg=agg, out_format="dense")
                torch.testing.assert_close(found, joinsum.einsum(equation, dense, y, agg=agg))


def test_a_tensor_is_converted_once_and_freed_with_it() -> None:
    joinsum.init(sites=4)
    x = SparseTensor.from_torch(matrix())
    joinsum.einsum("ij,j->i", x, other("ij,j->i"), out_format="dense")
    kept = block_of(x)
    joinsum.einsum("ij,jk->ik", x, other("ij,jk->ik"), out_format="dense")
    assert block_of(x) is kept
    gone = weakref.ref(kept)
    del x, kept
    gc.collect()
    assert gone() is None


def test_values_that_are_written_to_are_read() -> None:
    joinsum.init(sites=3)
    pattern = SparseTensor.from_torch(matrix())
    values = torch.ones(pattern.nnz, dtype=torch.float64)
    x, y = pattern.with_values(values), other("ij,j->i")
    for _ in range(3):
        for equation in ("ij,j->i", "ij->i"):
            operands = [y] if "," in equation else []
            found = joinsum.einsum(equation, x, *operands, out_format="dense")
            torch.testing.assert_close(found, torch.einsum(equation, x.to_dense(), *operands))
        values.mul_(2)


def test_torchs_own_tensors_are_read_anew() -> None:
    joinsum.init(sites=3)
    x, y = matrix().to_sparse().coalesce(), other("ij,j->i")
    for _ in range(3):
        torch.testing.assert_close(joinsum.einsum("ij,j->i", x, y, out_format="dense"), x.to_dense() @ y)
        x._values().add_(1)


def test_gradients_are_those_of_the_kept_blocks() -> None:
    joinsum.init(sites=3)
    dense = matrix()
    x = SparseTensor.from_torch(dense)
    for _ in range(2):
        y = other("ij,jk->ik").requires_grad_()
        joinsum.einsum("ij,jk->ik", x, y).sin().sum().backward()
        wanted = y.detach().clone().requires_grad_()
        (dense @ wanted).sin().sum().backward()
        torch.testing.assert_close(y.grad, wanted.grad)


def test_inputs_of_a_plan_are_converted_once() -> None:
    joinsum.init(sites=4)
    graph = joinsum.Graph()
    a, y = graph.input("a", (12, 9), torch.float64, entries=30), graph.input("y", (9,), torch.float64)
    graph.output("z", graph.einsum("ij,j->i", a, y))
    plan = graph.plan()
    x = SparseTensor.from_torch(matrix())
    for _ in range(2):
        vector = other("ij,j->i")
        torch.testing.assert_close(plan(x, vector)["z"], matrix() @ vector)
    assert block_of(x) is block_of(x)


def test_one_tensor_in_two_places() -> None:
    joinsum.init(sites=4)
    dense = matrix() @ matrix().T
    x = SparseTensor.from_torch(dense)
    for _ in range(2):
        torch.testing.assert_close(joinsum.einsum("ij,jk->ik", x, x, out_format="dense"), dense @ dense)
