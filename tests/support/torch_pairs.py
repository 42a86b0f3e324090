"""What einsums of two operands are combined and reduced by, as torch's operators on the joined tensor, whose second
axis is reduced."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch

JOINS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mul": torch.mul,
    "add": torch.add,
    "sub": torch.sub,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
    "squared_difference": lambda a, b: (a - b) * (a - b),
    "abs_difference": lambda a, b: (
        torch.maximum(a, b) - torch.minimum(a, b) if a.dtype == torch.uint8 else (a - b).abs()
    ),
}
REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: x.sum(1, dtype=x.dtype),
    "prod": lambda x: x.prod(1, dtype=x.dtype),
    "max": lambda x: x.amax(1),
    "min": lambda x: x.amin(1),
    "logsumexp": lambda x: x.logsumexp(1),
}
# All of them but torch.einsum's own.
PAIRS = [pair for pair in itertools.product(JOINS, REDUCTIONS) if pair != ("mul", "sum")]


def wanted(join: str, agg: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`ij,jk->ik` through the joined tensor; halves are summed in single precision."""
    wide = a.dtype in (torch.float16, torch.bfloat16)
    x, y = (a.float(), b.float()) if wide else (a, b)
    return REDUCTIONS[agg](JOINS[join](x[:, :, None], y[None])).to(a.dtype)
