"""Operators of softmaxes, losses, norms and lookups that compute into given memory, beside their functional forms."""

from typing import Any

import joinsum  # noqa: F401  # defines the operators
import pytest
import torch
from joinsum.base.dtypes import accumulation_dtype

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(70, 33), (3, 20_000)], ids=str)
def test_steps_on_divided_rows(shape: tuple[int, int], dtype: torch.dtype) -> None:
    """Results that are named after an operand are written over it."""
    wide, n = accumulation_dtype(dtype), shape[1]
    x, grad = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    weight = torch.randn(n).to(dtype)
    most, rstd = x.amax(1, keepdim=True).to(wide), torch.rand(shape[0], 1).to(wide)
    sums = x.to(wide).sum(1, keepdim=True)
    norm = (sums, rstd, weight, weight, n, 1e-5, wide)
    slopes = (grad, x, sums / n, rstd, weight, [1])
    calls = [
        ("softmax_of", (x, most, rstd, dtype), "input"),
        ("softmax_slope", (grad, x, 1), "slope"),
        ("softmax_grad_of", (grad, x, sums, dtype), "grad"),
        ("centred_squares", (x, sums, n, [1]), "squares"),
        ("layer_norm_of", (x, *norm), "input mean rstd"),
        ("layer_norm_slopes", slopes, "first second"),
        ("layer_norm_grad_of", (*slopes[:-1], sums, rstd, n), "grad"),
        ("rms_norm_squares", (x, [1]), "squares"),
        ("rms_norm_of", (x, rstd, weight, n, 1e-5), "input rstd"),
        ("rms_norm_slope", (grad, x, rstd, weight, [1]), "slope"),
        ("rms_norm_grad_of", (grad, x, rstd, weight, sums, n), "grad"),
    ]
    for name, arguments, results in calls:
        operator = getattr(ops, name)
        wanted = operator(*arguments)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        own = list(arguments)
        given = {
            f"{result}_out": torch.full_like(each, 7) for result, each in zip(results.split(), wanted, strict=True)
        }
        if results.split()[0] in ("input", "grad"):
            own[0] = arguments[0].clone()
            given[f"{results.split()[0]}_out"] = own[0]
        operator.out(*own, **given)
        for found, each in zip(given.values(), wanted, strict=True):
            assert torch.equal(found, each), name


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
    target = torch.arange(12).reshape(6, 2) % 10
    target[0, 0] = -100
    weight = torch.rand(5) if weighted else None
    rest = (target, weight, -100, [5], [5], [10])
    wanted = ops.nll_backward_shard(score, grad, *rest)
    given = torch.full_like(score, 7)
    assert torch.equal(ops.nll_backward_shard.out(score, grad, *rest, result_out=given), wanted)
    assert torch.equal(given, wanted)
    assert wanted.abs().sum() > 0


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("shape", [(5, 7), (3, 4, 256), (2, 100), (40, 70)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_layer_norm_and_its_gradients(shape: tuple[int, ...], dtype: torch.dtype, affine: bool) -> None:
    n = shape[-1]
    x, grad = (torch.randn(shape) * 3 + 5).to(dtype), torch.randn(shape).to(dtype)
    weight, bias = (torch.randn(n).to(dtype) for _ in range(2)) if affine else (None, None)
    wanted = torch.native_layer_norm(x, [n], weight, bias, 1e-5)
    found = [torch.full_like(each, 7) for each in wanted]
    named = dict(zip(("input_out", "mean_out", "rstd_out"), found, strict=True))
    ops.native_layer_norm.out(x, [n], weight, bias, 1e-5, **named)
    torch.testing.assert_close(tuple(found), wanted)

    _, mean, rstd = wanted
    to_input = ops.layer_norm_grad_input(grad, x, [n], mean, rstd, weight)
    over = grad.clone()
    assert ops.layer_norm_grad_input.out(over, x, [n], mean, rstd, weight, grad_out=over) is over
    torch.testing.assert_close(
        over,
        to_input,
        rtol=None if dtype is torch.bfloat16 else 1e-5,
        atol=1e-5 if dtype is not torch.bfloat16 else None,
    )
    to_affine = ops.layer_norm_grad_affine(grad, x, [n], mean, rstd)
    given = [torch.full_like(each, 7) for each in to_affine]
    ops.layer_norm_grad_affine.out(grad, x, [n], mean, rstd, weight_out=given[0], bias_out=given[1])
    torch.testing.assert_close(tuple(given), to_affine)


def composed(operator: Any, *arguments: object) -> Any:
    """What runs on devices that the operator has no kernel for."""
    return operator.default._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *arguments)


SHARDS = [([0], [10], [10]), ([3], [4], [10]), ([1, 0], [1, 5], [2, 5])]


def rows_of(shard: tuple[list[int], ...]) -> torch.Tensor:
    """The numbers of the rows in a shard of ten."""
    offsets, local, _ = shard
    begin = offsets[0] if len(offsets) == 1 else offsets[0] * 5
    return torch.arange(begin, begin + torch.tensor(local).prod())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shard", SHARDS, ids=str)
def test_lookups_of_rows(shard: tuple[list[int], ...], dtype: torch.dtype) -> None:
    rows = rows_of(shard)
    table, index = torch.randn(10, 6).to(dtype), torch.tensor([[0, 6, 6], [9, 3, 4]])
    inside = ((index >= rows[0]) & (index <= rows[-1])).unsqueeze(-1)
    wanted = torch.where(inside, table[index], 0)
    given = torch.full_like(wanted, 7)
    ops.embedding_shard.out(table[rows], index, *shard, result_out=given)
    assert torch.equal(given, wanted)
    strided = table.repeat_interleave(2, 1)[rows, ::2]
    for found in (
        ops.embedding_shard(strided, index.int(), *shard),
        composed(ops.embedding_shard, strided, index, *shard),
    ):
        assert torch.equal(found, wanted)

    grad, given = torch.randn(2, 3, 6).to(dtype), torch.full((len(rows), 6), 7.0).to(dtype)
    arguments = (grad, index, rows, 4, 10)
    ops.embedding_backward_shard.out(*arguments, result_out=given)
    wanted = torch.ops.aten.embedding_dense_backward(grad, index, 10, 4, False)
    torch.testing.assert_close(given, wanted[rows])
    assert torch.equal(ops.embedding_backward_shard(*arguments), given)
    torch.testing.assert_close(composed(ops.embedding_backward_shard, *arguments), given)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shard", SHARDS, ids=str)
def test_scores_of_classes_and_their_gradients(shard: tuple[list[int], ...], weighted: bool) -> None:
    own = rows_of(shard)
    scores, target = torch.randn(3, 10, 2), torch.tensor([[0, 6], [-100, 3], [9, 4]])
    weight = torch.rand(10) if weighted else None
    inside = (target >= own[0]) & (target <= own[-1])
    some = target.clamp(min=0)
    weights = torch.ones(3, 2) if weight is None else weight[some]
    wanted = [torch.where(inside, each, 0) for each in (scores.gather(1, some.unsqueeze(1)).squeeze(1), weights)]
    rest = (target, None if weight is None else weight[own], -100, *shard)
    grad = torch.randn(3, 2)
    slopes = torch.zeros(3, 10, 2).scatter_(1, some.unsqueeze(1), -(grad * wanted[1]).unsqueeze(1))[:, own]
    for call in (lambda operator, *arguments: operator(*arguments), composed):
        torch.testing.assert_close(list(call(ops.class_scores, scores[:, own], *rest)), wanted, rtol=0, atol=0)
        torch.testing.assert_close(call(ops.nll_backward_shard, scores[:, own], grad, *rest), slopes, rtol=0, atol=0)


def test_a_row_out_of_range_is_named() -> None:
    table, rest = torch.ones(10, 2), ([0], [10], [10])
    for index in (torch.tensor([1, 12]), torch.tensor([-1])):
        named = rf"an index is out of range: index={index[-1]}, extent=10"
        with pytest.raises(IndexError, match=named):
            ops.embedding_shard.out(table, index, *rest, result_out=torch.empty(len(index), 2))
        with pytest.raises(IndexError, match=named):
            ops.embedding_shard(table, index, *rest)
        with pytest.raises(RuntimeError, match="index out of range"):
            composed(ops.embedding_shard, table[:4], index, [0], [4], [10])
