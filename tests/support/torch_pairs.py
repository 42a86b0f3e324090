"""What einsums of two operands are combined and folded by, as torch's operators on the joined tensor, whose second axis
is folded."""

from __future__ import annotations

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
FOLDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: x.sum(1, dtype=x.dtype),
    "prod": lambda x: x.prod(1, dtype=x.dtype),
    "max": lambda x: x.amax(1),
    "min": lambda x: x.amin(1),
    "logsumexp": lambda x: x.logsumexp(1),
}
