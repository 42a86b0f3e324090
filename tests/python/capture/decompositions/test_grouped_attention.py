"""Attention in which a head of keys and values serves several heads of the queries."""

from __future__ import annotations

from typing import Any

import joinsum
import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from training import CUTTING


def masks(kind: str, heads: int) -> dict[str, Any]:
    if kind == "causal":
        return {"is_causal": True}
    shape = {"for all": (5, 5), "of samples": (2, 1, 5, 5), "of heads": (1, heads, 5, 5)}[kind]
    return {"attn_mask": torch.randn(shape, generator=torch.Generator().manual_seed(2))}


@pytest.mark.parametrize("sites", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["causal", "for all", "of samples", "of heads"])
@pytest.mark.parametrize(("heads", "groups"), [(4, 2), (6, 1), (6, 3)])
def test_values_and_gradients_are_torchs(sites: int, kind: str, heads: int, groups: int) -> None:
    joinsum.init(sites=sites, cluster=CUTTING, plan_cache=False)
    torch._dynamo.reset()
    generator = torch.Generator().manual_seed(1)
    shapes = [(2, heads, 5, 8), (2, groups, 5, 8), (2, groups, 5, 8)]
    given = [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]
    weights = torch.randn(shapes[0], generator=generator)

    options = masks(kind, heads)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return scaled_dot_product_attention(query, key, value, enable_gqa=True, **options)

    wanted, result = attend(*given), joinsum.compile(attend)(*given)
    torch.testing.assert_close(result, wanted)
    gradients = [torch.autograd.grad((each * weights).sum(), given) for each in (result, wanted)]
    for own, torchs in zip(*gradients, strict=True):
        torch.testing.assert_close(own, torchs)
