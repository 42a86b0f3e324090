"""Products of captured graphs, by the faster of torch's libraries."""

from __future__ import annotations

import pytest
import torch
from joinsum.capture.fusion import fuse_elementwise
from joinsum.capture.in_place import overwrite_operands
from joinsum.capture.products import accumulate_products, use_products
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import scaled_dot_product_attention

X = torch.randn(96, 128)
W = torch.randn(128, 144)
BATCHES = torch.randn(3, 96, 128)
WEIGHTS = torch.randn(3, 144, 128)


def product_and_sums(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    y = x @ w
    bias = w.sum(0)
    return [
        y,
        torch.addmm(bias, x, w),
        torch.addmm(bias, x, w, beta=0.5, alpha=-2),
        torch.addmm(torch.full_like(bias, float("nan")), x, w, beta=0),
        torch.ops.aten.addmm_(y.clone(), x, w, alpha=-0.1),
    ]


def batches(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    y = torch.bmm(x, w.transpose(1, 2))
    return [y, torch.baddbmm(y[:1], x, w.transpose(1, 2), beta=2), torch.baddbmm(y, x, w.transpose(1, 2), alpha=3)]


def captured(function: object, *examples: torch.Tensor) -> fx.GraphModule:
    return make_fx(function, tracing_mode="fake")(*examples)


def test_products_and_sums_are_torchs() -> None:
    gm = captured(product_and_sums, X, W)
    assert use_products(gm.graph) == 5
    gm.recompile()
    torch.testing.assert_close(gm(X, W), product_and_sums(X, W), rtol=1e-5, atol=1e-4)


def test_products_of_batches_are_torchs() -> None:
    gm = captured(batches, BATCHES, WEIGHTS)
    assert use_products(gm.graph) == 3
    gm.recompile()
    torch.testing.assert_close(gm(BATCHES, WEIGHTS), batches(BATCHES, WEIGHTS), rtol=1e-5, atol=1e-4)


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
    plain = scaled_dot_product_attention(query, key, value, is_causal=True, scale=0.2)
    masked = scaled_dot_product_attention(query, key, value, attn_mask=mask)
    gradients = torch.autograd.grad((plain * plain).sum() + masked.sum(), (query, key, value))
    return [plain, masked, *gradients]


def test_attention_and_its_gradients_are_torchs() -> None:
    operands = [torch.randn(2, 3, 100, 64, requires_grad=True) for _ in range(3)]
    operands.append(torch.rand(100, 100) > 0.5)
    gm = captured(attention, *operands)
    assert use_products(gm.graph) == 4
    gm.recompile()
    torch.testing.assert_close(gm(*operands), attention(*operands), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("causal", "keys"), [(False, 100), (True, 100), (True, 150), (True, 60), (False, 150)])
@pytest.mark.parametrize("layout", ["heads", "rows", "packed"])
def test_results_of_attention_lie_in_memory_as_torchs(layout: str, causal: bool, keys: int) -> None:
    """Views of them in a graph rely on it."""

    def heads(rows: int) -> torch.Tensor:
        if layout == "heads":
            return torch.randn(2, 3, rows, 64)
        if layout == "rows":
            return torch.randn(2, rows, 3, 64).transpose(1, 2)
        return torch.randn(2, rows, 4, 3, 64)[:, :, 1].transpose(1, 2)

    query, key, value, grad = heads(100), heads(keys), heads(keys), heads(100)
    aten = torch.ops.aten
    wanted = aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, causal)
    found = torch.ops.joinsum.attention(query, key, value, None, causal)
    assert [x.stride() for x in found] == [x.stride() for x in wanted]
    wanted = aten._scaled_dot_product_flash_attention_for_cpu_backward(grad, query, key, value, *wanted, 0.0, causal)
    found = torch.ops.joinsum.attention_backward(grad, query, key, value, *found, None, causal)
    assert [x.stride() for x in found] == [x.stride() for x in wanted]


def test_attention_with_dropout_stays() -> None:
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    gm = captured(lambda x: kernel(x, x, x, 0.5)[0], torch.ones(1, 2, 100, 64))
    assert use_products(gm.graph) == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
def test_products_of_other_types_stay(dtype: torch.dtype) -> None:
    gm = captured(lambda x, w: x @ w, X.to(dtype), W.to(dtype))
    assert use_products(gm.graph) == 0


def test_a_sum_in_place_writes_its_operand() -> None:
    gm = captured(lambda y, x, w: torch.ops.aten.addmm_(y, x, w), torch.ones(96, 144), X, W)
    use_products(gm.graph)
    gm.recompile()
    y = torch.ones(96, 144)
    before = y._version
    gm(y, X, W)
    assert y._version > before
    torch.testing.assert_close(y, 1 + X @ W, rtol=1e-5, atol=1e-4)


def test_products_are_added_to_their_total() -> None:
    x, w = torch.randn(64, 96), torch.randn(96, 64)

    def function(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        read = w @ x
        total = x @ w + (x * 2) @ w
        return [(x + 1) @ w + total, read + w @ (x - 1), read.exp(), x @ w + total.sum(), x[:64, :64] + x @ w]

    gm = captured(function, x, w)
    # What is read besides, broadcasts, or is no total of products, stays a sum of its own.
    assert accumulate_products(gm.graph) == 1
    gm.graph.lint()
    gm.recompile()
    torch.testing.assert_close(gm(x, w), function(x, w), rtol=1e-5, atol=1e-4)


def test_totals_of_products_are_added_up_in_their_memory() -> None:
    x, weights = torch.randn(64, 64), [torch.randn(64, 64) for _ in range(5)]

    def function(x: torch.Tensor, *weights: torch.Tensor) -> list[torch.Tensor]:
        total = torch.tanh(x @ weights[0] * 2 + 1)
        for w in weights[1:]:
            total = x @ w + total
        return [total]

    gm = captured(function, x, *weights)
    expected = gm(x, *weights)
    assert accumulate_products(gm.graph) == 4
    fuse_elementwise(gm.graph)
    overwrite_operands(gm.graph, [])
    targets = [node.target for node in gm.graph.nodes if node.op == "call_function"]
    assert targets.count(torch.ops.aten.addmm_.default) == 4
    gm.recompile()
    torch.testing.assert_close(gm(x, *weights), expected, rtol=1e-5, atol=1e-4)
