"""Operators without a rule that torch composes: values and gradients are torch's on several sites."""

from __future__ import annotations

from collections.abc import Callable

import joinsum
import pytest
import torch
from torch import Tensor
from torch.nn import functional

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "block_diag": lambda x: torch.block_diag(x[0], x[1]),
    "cross": lambda x: torch.linalg.cross(x[..., :3], x[..., 1:]),
    "dist": lambda x: torch.dist(x, x * 2, 3),
    "entr": lambda x: torch.special.entr(x.abs()),
    "isin": lambda x: torch.isin((x * 3).long(), 1) * x,
    "linspace": lambda x: torch.linspace(x.detach()[0, 0, 0], 2, 4) * x,
    "max_unpool1d": lambda x: functional.max_unpool1d(*functional.max_pool1d(x, 2, return_indices=True), 2),
    "max_unpool2d": lambda x: functional.max_unpool2d(*functional.max_pool2d(x[:, :4], 2, return_indices=True), 2),
    "mvlgamma": lambda x: torch.mvlgamma(x.abs() + 3, 2),
    "nanmean": lambda x: torch.nanmean(x.masked_fill(x > 0.5, torch.nan), 1),
    "nansum": lambda x: torch.nansum(x.masked_fill(x > 0.5, torch.nan), 1),
    "norm": lambda x: x.norm(3),
    "norm in float64": lambda x: torch.norm(x, dtype=torch.float64).float(),
    "renorm": lambda x: torch.renorm(x, 2, 0, 1.0),
    "xlog1py": lambda x: torch.special.xlog1py(x, x.abs()),
}


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_torchs(name: str, sites: int) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    joinsum.init(sites=sites, plan_cache=False)
    base = torch.randn(6, 5, 4)

    def outcome(function: Callable[[Tensor], Tensor]) -> list[Tensor]:
        x = base.clone().requires_grad_()
        value = function(x)
        weights = torch.linspace(1, 2, value.numel()).reshape(value.shape)
        return [value.detach(), *torch.autograd.grad((value * weights).sum(), x)]

    try:
        found = outcome(torch.compile(FUNCTIONS[name], backend="joinsum", fullgraph=True))
    finally:
        joinsum.init()
    for one, other in zip(found, outcome(FUNCTIONS[name]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * max(1.0, float(other.abs().max())))
