"""Operators of divided softmaxes and losses that compute into given memory, beside their functional forms."""

import pytest
import torch
from joinsum.base.dtypes import accumulation_dtype
from joinsum.capture.decompositions import lookups, softmax_and_norms  # noqa: F401  (they register the operators)

ops = torch.ops.joinsum
SHAPES = [((700, 333), 1), ((3, 70_000), 1), ((5, 70, 33), 2), ((5, 70, 33), 0), ((1, 9), 1), ((0, 4), 1), ((4, 0), 1)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_log_softmax_and_its_gradient(shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    x, grad = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    most = x.amax(dim, keepdim=True) if x.numel() else x.sum(dim, keepdim=True)
    most = most.to(accumulation_dtype(dtype))
    total = ops.softmax_total(x, most, dim)
    given = torch.full_like(total, 7)
    torch.testing.assert_close(ops.softmax_total.out(x, most, dim, total_out=given), total)
    torch.testing.assert_close(given, total)

    scores = ops.log_softmax_of(x, most, total, dtype)
    over = x.clone()
    assert ops.log_softmax_of.out(over, most, total, dtype, input_out=over) is over
    assert torch.equal(over, scores)

    wanted = ops.log_softmax_grad_of(grad, scores, total, dtype)
    over = grad.clone()
    ops.log_softmax_grad_of.out(over, scores, total, dtype, grad_out=over)
    assert torch.equal(over, wanted)


def test_strided_operands() -> None:
    x = torch.randn(40, 300).t()
    most = x.amax(1, keepdim=True)
    total = ops.softmax_total(x, most, 1)
    torch.testing.assert_close(ops.softmax_total.out(x, most, 1, total_out=torch.empty(300, 1)), total)
    scores = ops.log_softmax_of.out(x, most, total, torch.float32, input_out=torch.empty(300, 40))
    torch.testing.assert_close(scores, x.log_softmax(1))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_of_a_loss_by_its_scores(weighted: bool) -> None:
    score, grad = torch.randn(6, 5, 2), torch.randn(6, 2)
    target = torch.randint(10, (6, 2))
    target[0, 0] = -100
    weight = torch.rand(5) if weighted else None
    rest = (target, weight, -100, [5], [5], [10])
    wanted = ops.nll_backward_shard(score, grad, *rest)
    given = torch.full_like(score, 7)
    assert torch.equal(ops.nll_backward_shard.out(score, grad, *rest, result_out=given), wanted)
    assert torch.equal(given, wanted)
    assert wanted.abs().sum() > 0
