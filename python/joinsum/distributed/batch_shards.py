"""Batches of ranks: equal on all, or sharded over a process group along the first axis of each tensor."""

from __future__ import annotations

from typing import Any

import torch

from joinsum.base.arguments import show
from joinsum.base.errors import PlanError
from joinsum.base.trees import tree_leaves, tree_map
from joinsum.cluster.context import Context, context
from joinsum.distributed.distributed_tensor import DistributedTensor, from_local_shards, sharded_type

__all__ = ["BatchShards"]


class BatchShards:
    """Assembles batches from the ranks' shards, and takes shards of results. `caller` opens error messages.

    data   "sharded"; or "whole", where every rank has the full batch and nothing is to be done
    """

    def __init__(self, caller: str, data: str) -> None:
        if data not in ("whole", "sharded"):
            raise PlanError(f"{caller}: batches are whole or sharded: data={show(data)}")
        self._caller = caller
        self._sharded = data == "sharded"
        self._agreed: set[str] = set()  # shapes of shards that all ranks are known to have

    def joined(self, batch: Any) -> Any:
        """The global batch, for this rank's shard; moves nothing. In a single process the shard is the batch."""
        if not self._sharded or context().single_process:
            return batch
        axes = [x for x in tree_leaves(batch) if _has_axes(x)]
        if any(x.requires_grad for x in axes):
            raise PlanError(f"{self._caller}: a rank's shard of a batch has no gradient; give x.detach()")
        shapes = "\n".join(f"shard {i}: {list(x.shape)} {x.dtype}" for i, x in enumerate(axes))
        if shapes not in self._agreed:
            context().transport.agree(self._caller, f"shards of a batch have one shape on every rank\n{shapes}")
            self._agreed.add(shapes)
        return tree_map(lambda x: from_local_shards(x) if _has_axes(x) else x, batch)

    def own(self, results: Any, batch: Any) -> Any:
        """The results for a batch of `joined`: of each tensor whose first axis is as long as the batch's, this rank's
        shard, in autograd; the others unchanged."""
        current = context()
        if not self._sharded or current.single_process:
            return results
        extents = _batch_extents(batch)

        def shard(x: Any) -> Any:
            return _LocalShard.apply(x, current) if _has_axes(x) and x.shape[0] in extents else x  # type: ignore[no-untyped-call]

        return tree_map(shard, results)

    def own_shards(self, results: Any, batch: Any) -> Any:
        """Of distributed results for a batch of `joined`, this rank's shards, as `own` has them, detached; only they
        travel. Others become unsharded tensors. All ranks call."""
        current = context()
        extents = _batch_extents(batch)

        def shard(x: Any) -> Any:
            if not isinstance(x, DistributedTensor):
                return x
            if current.single_process or not self._sharded or x.shape[0] not in extents:
                return x.unsharded()
            (block,) = x.like(sharded_type(x.shape, x.dtype)).blocks()
            return block.reshape(-1, *x.shape[1:])

        return tree_map(shard, results)


def _has_axes(x: object) -> bool:
    return isinstance(x, torch.Tensor) and x.dim() > 0


def _batch_extents(batch: Any) -> set[int]:
    """How long the first axes of a batch's tensors are."""
    return {x.shape[0] for x in tree_leaves(batch) if _has_axes(x)}


class _LocalShard(torch.autograd.Function):
    """This rank's shard of an unsharded tensor. Its gradient is that of the mean of the ranks' results."""

    @staticmethod
    def forward(ctx: Any, full: torch.Tensor, current: Context) -> torch.Tensor:
        ctx.context = current
        count = full.shape[0] // current.sites
        return full.narrow(0, current.local_sites[0] * count, count).clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return torch.cat(ctx.context.all_gather("gradient of a batch shard", grad)) / ctx.context.sites, None
