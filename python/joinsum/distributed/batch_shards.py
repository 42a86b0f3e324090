"""Batches of ranks: equal on all, or sharded over a process group along the first axis of each tensor."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import torch

from joinsum.base.arguments import show
from joinsum.base.errors import PlanError, TransportError
from joinsum.base.trees import tree_leaves, tree_map
from joinsum.cluster.context import Context, context
from joinsum.distributed.distributed_tensor import DistributedTensor, from_local_shards, sharded_type

__all__ = ["BatchShards"]

_Form = tuple[list[int], str]  # shape and dtype of a tensor

_PAD = "pad the batches of all ranks to one length, as with pad_to_multiple_of or padding='max_length'"


class BatchShards:
    """Assembles batches from the ranks' shards, and takes shards of results. `caller` opens error messages.

    data   "sharded"; or "whole", where every rank has the full batch and nothing is to be done
    """

    def __init__(self, caller: str, data: str) -> None:
        if data not in ("whole", "sharded"):
            raise PlanError(f"{caller}: batches are whole or sharded: data={show(data)}")
        self._caller = caller
        self._sharded = data == "sharded"
        self._counts: dict[int, list[int]] = {}  # by the first extent of a tensor of the last batch, that on each rank

    def joined(self, batch: Any) -> Any:
        """The global batch, for this rank's shard. Shards of one shape are the blocks of its tensors, and nothing
        moves; otherwise each rank gets the other shards. In a single process the shard is the batch."""
        if not self._sharded or context().single_process:
            return batch
        axes = [x for x in tree_leaves(batch) if _has_axes(x)]
        if any(x.requires_grad for x in axes):
            raise PlanError(f"{self._caller}: a rank's shard of a batch has no gradient; give x.detach()")
        counts = self._agreed_counts(axes)
        self._counts = {sum(each): each for each in counts}
        if all(len(set(each)) == 1 for each in counts):
            return tree_map(lambda x: from_local_shards(x) if _has_axes(x) else x, batch)
        each = iter(counts)
        return tree_map(lambda x: _concatenated(self._caller, x, next(each)) if _has_axes(x) else x, batch)

    def _agreed_counts(self, axes: Sequence[torch.Tensor]) -> list[list[int]]:
        """For each tensor its first extent on each rank. Raises TransportError where the other extents differ."""
        own = json.dumps([[list(x.shape), str(x.dtype)] for x in axes])
        ranks = [json.loads(text) for text in context().transport.gather_texts(self._caller, own)]
        for site, forms in enumerate(ranks):
            self._check_forms(ranks[0], site, forms)
        return [[shape[0] for shape, _ in column] for column in zip(*ranks, strict=True)]

    def _check_forms(self, first: Sequence[_Form], site: int, forms: Sequence[_Form]) -> None:
        """Raises TransportError where a site's shards do not fit those of site 0."""
        if len(forms) != len(first):
            raise TransportError(
                f"{self._caller}: the ranks passed batches of different numbers of tensors: site 0: {len(first)}, "
                f"site {site}: {len(forms)}"
            )
        for i, (a, b) in enumerate(zip(first, forms, strict=True)):
            same_axes, same_dtype = a[0][1:] == b[0][1:], a[1] == b[1]
            if same_axes and same_dtype:
                continue
            what = "different dtypes" if same_axes else "different lengths, beyond their first axis"
            remedy = "convert them to one dtype" if same_axes else _PAD
            raise TransportError(
                f"{self._caller}: the ranks passed shards of {what}: tensor {i} of the batch, site 0: {a[0]} {a[1]}, "
                f"site {site}: {b[0]} {b[1]}; {remedy}"
            )

    @property
    def extents(self) -> Collection[int]:
        """The first extents of the tensors of the last batch of `joined`; empty where the batch is whole."""
        return self._counts.keys()

    def own(self, results: Any) -> Any:
        """The results for the last batch of `joined`: of each tensor whose first axis is as long as the batch's, this
        rank's shard, in autograd; the others whole. Of distributed results with shards of one shape only shards
        travel."""
        current = context()
        if not self._sharded or current.single_process:
            return results

        def shard(x: Any) -> Any:
            counts = self._counts.get(x.shape[0]) if _has_axes(x) else None
            if isinstance(x, DistributedTensor):
                if counts is not None and len(set(counts)) == 1:
                    return _OwnBlock.apply(x, len(counts))  # type: ignore[no-untyped-call]
                x = x.full_tensor()
            return x if counts is None else _LocalShard.apply(x, current, self._caller, counts)  # type: ignore[no-untyped-call]

        return tree_map(shard, results)

    def own_shards(self, results: Any) -> Any:
        """Of distributed results for the last batch of `joined`, this rank's shards, as `own` has them, detached. Of
        shards of one shape only they travel. Others become unsharded tensors. All ranks call."""
        current = context()

        def shard(x: Any) -> Any:
            if not isinstance(x, DistributedTensor):
                return x
            counts = self._counts.get(x.shape[0]) if self._sharded and not current.single_process else None
            if counts is None:
                return x.unsharded()
            if len(set(counts)) > 1:
                return _shard_of(x.unsharded(), counts, current).clone()
            return _own_block(x)

        return tree_map(shard, results)


def _has_axes(x: object) -> bool:
    return isinstance(x, torch.Tensor) and x.dim() > 0


def _concatenated(caller: str, shard: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
    """The ranks' shards, of these first extents, along their first axis; on every rank."""
    padded = shard.new_zeros([max(counts), *shard.shape[1:]])
    padded[: shard.shape[0]] = shard
    shards = context().all_gather(caller, padded)
    return torch.cat([each[:count] for each, count in zip(shards, counts, strict=True)])


def _shard_of(full: torch.Tensor, counts: Sequence[int], current: Context) -> torch.Tensor:
    rank = current.local_sites[0]
    return full.narrow(0, sum(counts[:rank]), counts[rank])


def _own_block(x: DistributedTensor) -> torch.Tensor:
    """This rank's shard of a distributed tensor whose first axis the number of ranks divides."""
    (block,) = x.like(sharded_type(x.shape, x.dtype)).blocks()
    return block.reshape(-1, *x.shape[1:])


class _OwnBlock(torch.autograd.Function):
    """The same, a copy, in autograd. Its gradient is that of the mean of the ranks' results, and is distributed."""

    @staticmethod
    def forward(ctx: Any, x: DistributedTensor, ranks: int) -> torch.Tensor:
        ctx.ranks = ranks
        return _own_block(x).clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return from_local_shards(grad / ctx.ranks), None


class _LocalShard(torch.autograd.Function):
    """This rank's shard of an unsharded tensor. Its gradient is that of the mean of the ranks' results."""

    @staticmethod
    def forward(ctx: Any, full: torch.Tensor, current: Context, caller: str, counts: Sequence[int]) -> torch.Tensor:
        ctx.call = caller, counts
        return _shard_of(full, counts, current).clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        caller, counts = ctx.call
        return _concatenated(f"{caller}: gradient of a batch shard", grad, counts) / len(counts), None, None, None
