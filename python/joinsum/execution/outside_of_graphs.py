"""Calls that Dynamo leaves to Python, between its graphs. Importing this imports Dynamo."""

from __future__ import annotations

from collections.abc import Callable

import torch

from joinsum.execution.einsum import einsum
from joinsum.execution.relation import Relation
from joinsum.sparse import SparseTensor

__all__ = ["einsum_outside_of_graphs"]

einsum_outside_of_graphs: Callable[..., torch.Tensor | SparseTensor | Relation] = torch.compiler.disable(  # type: ignore[no-untyped-call]
    einsum,
    reason="graphs do not read a joinsum.SparseTensor; call joinsum.einsum outside of the function, or give x.to_torch() "
    "to a model of joinsum.distribute or joinsum.train_step",
)
