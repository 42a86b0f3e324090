"""Calls that Dynamo leaves to Python, between its graphs. Importing this imports Dynamo."""

from __future__ import annotations

from collections.abc import Callable

import torch

from joinsum.execution.einsum import einsum
from joinsum.execution.relation import Relation
from joinsum.sparse import SparseTensor

__all__ = ["einsum_outside_of_graphs"]

_Results = torch.Tensor | SparseTensor | Relation
_REASON = (
    "graphs do not read a joinsum.SparseTensor; call joinsum.einsum outside of the function, or give x.to_torch() to a "
    "model of joinsum.distribute or joinsum.train_step"
)

einsum_outside_of_graphs: Callable[..., _Results] = torch.compiler.disable(einsum, reason=_REASON)  # type: ignore[no-untyped-call]
