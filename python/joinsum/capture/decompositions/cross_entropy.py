"""Shapes of the results of the operators `joinsum::cross_entropy` and its gradient, for fake tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from joinsum import _C

__all__: list[str] = []

assert _C  # whose library defines the operators


@torch.library.register_fake("joinsum::cross_entropy")  # type: ignore[untyped-decorator]
def _(input: Tensor, target: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _, reduction, _ = rest
    total, share = input.new_empty(()), input.new_empty(target.shape)
    loss = torch.empty_like(total if reduction else share)
    return loss, total, share, share.new_empty(target.shape, dtype=torch.float64)


@torch.library.register_fake("joinsum::cross_entropy_backward")  # type: ignore[untyped-decorator]
def _(grad: Tensor, input: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(input)
