"""Batches of which each rank of a process group has a part: the first axis of each tensor runs through the ranks."""

from __future__ import annotations

from typing import Any

import torch

from joinsum.context import Context, context
from joinsum.errors import PlanError
from joinsum.frontend.distributed_folds import over_ranks
from joinsum.frontend.distributed_tensor import of_parts
from joinsum.frontend.torch_internals import tree_leaves, tree_map

__all__ = ["BatchParts"]


class BatchParts:
    """Batches from parts, and parts of results. `who` opens messages."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._agreed: set[str] = set()  # shapes of parts that all ranks have

    def joined(self, batch: Any) -> Any:
        """The batch whose parts the ranks have, for this rank's part; moves nothing. In a process with all sites the
        part is the batch."""
        if context().whole:
            return batch
        axes = [x for x in tree_leaves(batch) if _has_axes(x)]
        if any(x.requires_grad for x in axes):
            raise PlanError(f"{self._who}: a rank's part of a batch has no gradient; give x.detach()")
        told = "\n".join(f"part {i}: {list(x.shape)} {x.dtype}" for i, x in enumerate(axes))
        if told not in self._agreed:
            context().transport.agree(self._who, f"parts of a batch have one shape on every rank\n{told}")
            self._agreed.add(told)
        return tree_map(lambda x: of_parts(x) if _has_axes(x) else x, batch)

    def own(self, results: Any, batch: Any) -> Any:
        """Results for a batch that `joined` made: of each tensor whose first axis is as long as the batch's, this
        rank's part, in autograd; the others as they are."""
        here = context()
        if here.whole:
            return results
        extents = {x.shape[0] for x in tree_leaves(batch) if _has_axes(x)}

        def part(x: Any) -> Any:
            return _OwnPart.apply(x, here) if _has_axes(x) and x.shape[0] in extents else x  # type: ignore[no-untyped-call]

        return tree_map(part, results)


def _has_axes(x: object) -> bool:
    return isinstance(x, torch.Tensor) and x.dim() > 0


class _OwnPart(torch.autograd.Function):
    """This rank's part of a whole tensor. The gradient is that of the mean of what the ranks go on to compute."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, here: Context) -> torch.Tensor:
        ctx.here = here
        count = whole.shape[0] // here.sites
        return whole.narrow(0, here.local_sites[0] * count, count).clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return torch.cat(over_ranks(ctx.here, grad)) / ctx.here.sites, None
