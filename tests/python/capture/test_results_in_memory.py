"""How results of operators lie in memory, and joinsum's own kernels for torch's operators."""

from __future__ import annotations

import joinsum
import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

own, aten = torch.ops.joinsum, torch.ops.aten


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_attention_copies_neither_heads_nor_positions(kv_heads: int) -> None:
    """Projections, attention and what follows it on a divided batch: no operator copies an array of their size."""

    grouped = kv_heads < 4

    def attended(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
        query, key, value = ((x @ w).unflatten(-1, (-1, 8)).transpose(1, 2) for w in (wq, wk, wv))
        out = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)
        return out.transpose(1, 2).flatten(2) @ wo

    torch.manual_seed(0)
    operands = [torch.randn(4, 16, 32)]
    operands += [torch.randn(32, 8 * heads, requires_grad=True) for heads in (4, kv_heads, kv_heads)]
    operands.append(torch.randn(32, 32, requires_grad=True))
    wanted = attended(*operands)
    gradients = torch.autograd.grad(wanted.sum(), operands[1:])
    joinsum.init(sites=2)
    compiled = joinsum.compile(attended)
    copied = {1: 0, 2: 0}
    for turn in copied:
        with torch.profiler.profile(record_shapes=True) as profile:
            found = compiled(*operands)
            found_gradients = torch.autograd.grad(found.sum(), operands[1:])
        shapes = [event.input_shapes[0] for event in profile.events() if event.name == "aten::copy_"]
        copied[turn] = sum(len(shape) == 4 and torch.Size(shape).numel() >= 2 * 16 * 8 * kv_heads for shape in shapes)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        for x, y in zip(found_gradients, gradients, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)
    assert copied[2] == 0


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_reads_heads_whose_elements_are_not_adjacent(which: int, dtype: torch.dtype) -> None:
    """Views, also `contiguous`, leave operands in the memory in which they are."""

    def attended(*operands: Tensor) -> Tensor:
        given = list(operands)
        given[which] = given[which].transpose(2, 3).contiguous()
        return scaled_dot_product_attention(*given).transpose(2, 3) * 2

    torch.manual_seed(3)
    operands = [torch.randn(2, 4, 16, 8, dtype=dtype) for _ in range(3)]
    operands[which] = operands[which].transpose(2, 3).contiguous()
    operands = [operand.requires_grad_() for operand in operands]
    above = torch.randn(2, 4, 8, 16, dtype=dtype)
    wanted = attended(*operands)
    gradients = torch.autograd.grad(wanted, operands, above)
    joinsum.init(sites=2)
    found = joinsum.compile(attended)(*operands)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
    for x, y in zip(torch.autograd.grad(found, operands, above), gradients, strict=True):
        torch.testing.assert_close(x, y, rtol=10 * tolerance, atol=10 * tolerance)


STRIDES = [
    lambda x: x,
    lambda x: x.transpose(0, 1),
    lambda x: x[:, ::2],
    lambda x: x.expand(3, *x.shape),
    lambda x: x[:0],
]


@pytest.mark.parametrize("view", STRIDES)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gelu_is_torchs_for_any_strides_and_types(view: object, approximate: str, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x, grad = (view(torch.randn(70, 1001, dtype=dtype) * 3) for _ in range(2))  # type: ignore[operator]
    options = {"approximate": approximate}
    exact = x.double(), grad.double()
    tolerance = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 0.1}[dtype]
    wanted = aten.gelu(exact[0], **options), aten.gelu_backward(exact[1], exact[0], **options)
    found = own.gelu(x, **options), own.gelu_backward(grad, x, **options)
    for mine, right in zip(found, wanted, strict=True):
        assert (mine.dtype, mine.shape) == (dtype, right.shape)
        torch.testing.assert_close(mine.double(), right, rtol=0, atol=tolerance)
    assert own.gelu(x, **options).stride() == aten.gelu(x, **options).stride()


@pytest.mark.parametrize("sites", [1, 2, 3])
def test_a_step_with_gelu_is_torchs(sites: int) -> None:
    torch.manual_seed(2)
    x, y = torch.randn(12, 20), torch.randn(12, 5)
    first, second = (torch.nn.Sequential(torch.nn.Linear(20, 9), torch.nn.GELU(), torch.nn.Linear(9, 5)) for _ in "ab")
    second.load_state_dict(first.state_dict())
    joinsum.init(sites=sites)
    loss = torch.nn.functional.mse_loss
    step = joinsum.train_step(second, loss, torch.optim.SGD(second.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(first.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        wanted = loss(first(x), y)
        wanted.backward()
        optimizer.step()
        torch.testing.assert_close(step(x, y), wanted.detach(), rtol=1e-5, atol=1e-6)
