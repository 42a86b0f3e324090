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


def test_a_first_call_in_inference_mode_serves_calls_with_gradients() -> None:
    joinsum.init(sites=2)
    dense = matrix()
    x = SparseTensor.from_torch(dense, levels="csr")
    with torch.inference_mode():
        joinsum.einsum("ij,jk->ik", x, other("ij,jk->ik"), out_format="dense")
    y = other("ij,jk->ik").requires_grad_()
    joinsum.einsum("ij,jk->ik", x, y, out_format="dense").sum().backward()
    torch.testing.assert_close(y.grad, dense.sum(0)[:, None].expand(9, 4))


@pytest.mark.parametrize("equation", ["ij,j->i", "ij,jk->ik", "ij,j,jk->ik"])
def test_autocast_leaves_dtypes_in_any_order_of_calls(equation: str) -> None:
    dense = matrix().float()
    operands = [torch.rand(9), torch.rand(9, 4)]
    operands = operands if equation.count(",") == 2 else [operands["k" in equation]]
    wanted = torch.einsum(equation, dense, *operands)
    for sites in (1, 2):
        joinsum.init(sites=sites)
        x = SparseTensor.from_torch(dense)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(joinsum.einsum(equation, x, *operands, out_format="dense"), wanted)
        torch.testing.assert_close(joinsum.einsum(equation, x, *operands, out_format="dense"), wanted)


def test_other_sites_keep_no_blocks_of_those_before() -> None:
    before = joinsum.init(sites=4)
    x = SparseTensor.from_torch(matrix())
    joinsum.einsum("ij,j->i", x, other("ij,j->i"), out_format="dense")
    assert before.bytes > 0
    joinsum.init(sites=2)
    assert before.bytes == 0


@pytest.mark.parametrize("levels", ["csr", "csc", "coo", "dense"])
@pytest.mark.parametrize("sites", [1, 3])
def test_fused_optimizers_train_as_others_do(levels: str, sites: int) -> None:
    joinsum.init(sites=sites)
    pattern = SparseTensor.from_torch(torch.eye(4), levels=levels)
    for kind in (torch.optim.SGD, torch.optim.AdamW):
        losses = []
        for fused in (False, True):
            values = torch.nn.Parameter(pattern.values())
            x, optimizer = pattern.with_values(values), kind([values], lr=0.1, fused=fused)
            losses.append([])
            for _ in range(3):
                optimizer.zero_grad()
                loss = joinsum.einsum("ij,j->i", x, torch.ones(4)).pow(2).sum()
                loss.backward()
                optimizer.step()
                losses[-1].append(loss.item())
        assert losses[1] == pytest.approx(losses[0], rel=1e-5)
        assert losses[1][2] < losses[1][1] < losses[1][0]


def test_values_in_other_memory_are_read() -> None:
    joinsum.init()
    values = torch.ones(4)
    for levels in ("csr", "csc", "coo"):
        x = SparseTensor.from_torch(torch.eye(4), levels=levels).with_values(values)
        joinsum.einsum("ij,j->i", x, torch.ones(4))
        torch.nn.utils.vector_to_parameters(torch.arange(4.0), [values])
        torch.testing.assert_close(joinsum.einsum("ij,j->i", x, torch.ones(4), out_format="dense"), torch.arange(4.0))
        torch.testing.assert_close(x.to_dense().diag(), torch.arange(4.0))
        values.data = torch.ones(4)


@pytest.mark.parametrize("levels", ["csr", "csc", "coo", "bytemap", "dense"])
def test_other_levels_do_not_follow_what_is_written_to_the_values(levels: str) -> None:
    joinsum.init()
    values = torch.ones(3)
    x = SparseTensor.from_torch(torch.eye(3), levels="csr").with_values(values).with_levels(levels)
    y = torch.ones(3, 32)
    for value in (1, 2):
        values.fill_(value)
        for equation in ("ij,jk->ik", "ij,ik->jk"):
            torch.testing.assert_close(joinsum.einsum(equation, x, y, out_format="dense"), y)
        torch.testing.assert_close(x.to_dense(), torch.eye(3))
