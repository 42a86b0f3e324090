"""Calls that Dynamo leaves to Python, between its graphs. Importing this imports Dynamo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["called_outside_of_graphs"]

_REASON = (
    "graphs do not read sparse tensors; call joinsum.einsum outside of the function, or give x.to_torch('csr') to a "
    "model of joinsum.distribute or joinsum.train_step"
)


def _called(function: Callable[..., Any], *arguments: object, **options: object) -> Any:
    return function(*arguments, **options)


# Calls a function with arguments; one graph is refused with the reason.
called_outside_of_graphs: Callable[..., Any] = torch.compiler.disable(_called, reason=_REASON)  # type: ignore[no-untyped-call]
