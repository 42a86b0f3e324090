"""The operators of a batch norm on divided batches: their parts give torch's batch norm."""

from __future__ import annotations

import joinsum  # noqa: F401  # defines the operators
import pytest
import torch

OPERATORS = torch.ops.joinsum
EPS = 1e-5


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("mean", [0.0, 1000.0])
def test_shards_of_the_batch_give_torchs_gradients(dtype: torch.dtype, tolerance: float, mean: float) -> None:
    torch.manual_seed(1)
    x, grad = torch.randn(7, 3, 4, 5, dtype=torch.float64) + mean, torch.randn(7, 3, 4, 5, dtype=torch.float64)
    weight = torch.randn(3, dtype=torch.float64)
    leaves = [each.clone().requires_grad_() for each in (x, weight, torch.zeros_like(weight))]
    out = torch.nn.functional.batch_norm(leaves[0], None, None, leaves[1], leaves[2], training=True, eps=EPS)
    wanted = torch.autograd.grad(out, leaves, grad)
    means, rstds = x.mean([0, 2, 3]), torch.rsqrt(x.var([0, 2, 3], correction=0) + EPS)
    moments = means.to(dtype), rstds.to(dtype)
    shards = [(grad[i:j].to(dtype), x[i:j].to(dtype)) for i, j in ((0, 4), (4, 4), (4, 7))]

    slopes = [OPERATORS.batch_norm_slopes(g, part, *moments) for g, part in shards]
    first, second = (sum(each) for each in zip(*slopes, strict=True))
    count = x.numel() // 3
    parts = [
        OPERATORS.batch_norm_grad_of(g, part, *moments, weight.to(dtype), first, second, count) for g, part in shards
    ]

    # Rounding the input moves it by a share of its mean, in torch, too.
    scale = max(1.0, mean)
    found = torch.cat([each[0] for each in parts]), parts[0][1], parts[0][2]
    for own, other in zip(found, wanted, strict=True):
        largest = other.abs().max() * scale
        assert (own.to(torch.float64) - other).abs().max() <= tolerance * largest


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("shape", [(6, 3, 8, 8), (2, 5, 70, 130), (4, 3, 40), (3, 2, 4, 5, 6), (9, 4, 2, 2), (8, 6)])
@pytest.mark.parametrize("mean", [0.0, 1000.0])
@pytest.mark.parametrize("runs", [True, False])
def test_a_whole_batch_gives_torchs_results(
    dtype: torch.dtype, tolerance: float, shape: tuple[int, ...], mean: float, runs: bool
) -> None:
    torch.manual_seed(1)
    wide = torch.randn(shape, dtype=torch.float64) + mean
    weight, bias, first, second = (torch.rand(shape[1], dtype=torch.float64) + 0.5 for _ in range(4))
    for x in (wide, wide.transpose(0, 2).contiguous().transpose(0, 2) if wide.dim() > 2 else wide):
        given = [each.to(dtype) for each in (x, weight, bias, first, second)]
        statistics = given[3:] if runs else [None, None]
        found = OPERATORS.batch_norm_training(*given[:3], *statistics, 0.3, EPS)
        if runs:
            aten = torch.ops.aten._native_batch_norm_legit_functional
            wanted = aten(x, weight, bias, first, second, True, 0.3, EPS)
        else:
            wanted = torch.ops.aten._native_batch_norm_legit.no_stats(x, weight, bias, True, 0.3, EPS)
            found = found[:3]
        scale = max(1.0, mean)  # rounding the input moves it by a share of its mean
        for own, other in zip(found, wanted, strict=True):
            assert own.dtype is dtype
            assert (own.double() - other).abs().max() <= tolerance * scale * other.abs().max()
