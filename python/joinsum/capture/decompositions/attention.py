"""Operators of torch's dispatcher for attention of queries [b, h, l, e] and keys [b, g, s, e] that may be sharded.

A head of keys may serve several adjacent heads of queries. `rows` and `columns` describe the shards of queries l and
keys s: offsets, local extents and global extents of the factors of the axis, one list after another. Scores are
computed in single precision at least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from joinsum import _C
from joinsum.base.dtypes import accumulation_dtype

__all__ = ["attention_lse", "attention_of", "shard_indices"]

assert _C  # its library defines the operators


def shard_indices(shard: Sequence[int]) -> Tensor:
    """Global indices of the elements of a shard of an axis.

    >>> shard_indices([1, 0, 1, 3, 2, 3])  # the second half of an axis of 2 x 3
    tensor([3, 4, 5])
    """
    count = len(shard) // 3
    offsets, local, extents = (shard[each * count : (each + 1) * count] for each in range(3))
    indices = torch.zeros((), dtype=torch.int64)
    for position, (offset, size) in enumerate(zip(offsets, local, strict=True)):
        step = math.prod(extents[position + 1 :])
        indices = indices.unsqueeze(-1) + (torch.arange(size) + offset) * step
    return indices.flatten()


def _in_groups(value: Tensor, groups: int) -> Tensor:
    """[b, h, ...] as [b, groups, h / groups, ...]."""
    return value.reshape(value.shape[0], groups, value.shape[1] // groups, *value.shape[2:])


def _times(of_queries: Tensor, of_keys: Tensor) -> Tensor:
    """Products [b, h, ...] of matrices [b, h, ...] and [b, g, ...], head by head."""
    groups = of_keys.shape[1]
    if of_queries.shape[1] == groups:
        return of_queries @ of_keys
    return (_in_groups(of_queries, groups) @ of_keys.unsqueeze(2)).flatten(1, 2)


class _Options(NamedTuple):
    mask: Tensor | None
    causal: bool
    scale: float | None
    rows: Sequence[int]
    columns: Sequence[int]

    def factor(self, query: Tensor) -> float:
        """What the products of queries and keys are multiplied by."""
        return query.shape[-1] ** -0.5 if self.scale is None else self.scale

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """The operand of the softmax."""
        dtype = accumulation_dtype(query.dtype)
        scores = _times(query.to(dtype) * self.factor(query), key.to(dtype).mT)
        if self.causal:
            later = shard_indices(self.columns) > shard_indices(self.rows).unsqueeze(-1)
            scores.masked_fill_(later.to(scores.device), -math.inf)
        if self.mask is not None:
            boolean = self.mask.dtype is torch.bool
            scores = scores.masked_fill_(~self.mask, -math.inf) if boolean else scores.add_(self.mask)
        return scores


def _weights(scores: Tensor, lse: Tensor) -> Tensor:
    """The softmax, of which `lse` is the logarithm of the denominators; a row without keys has weights of zero."""
    return (scores - lse.masked_fill(lse == -math.inf, 0).to(scores.dtype).unsqueeze(-1)).exp_()


@torch.library.impl("joinsum::attention_lse", "CUDA")
def attention_lse(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Tensor:
    """log Σ exp(score) for each query [b, h, l]; the results of shards of the keys are reduced by logaddexp."""
    *options, dtype = rest
    return _Options(*options).scores(query, key).logsumexp(-1).to(dtype)


@torch.library.impl("joinsum::attention_of", "CUDA")
def attention_of(query: Tensor, key: Tensor, value: Tensor, lse: Tensor, *options: Any) -> Tensor:
    """The attention, where `lse` is that of all keys; the results of shards of the keys are summed."""
    scores = _Options(*options).scores(query, key)
    return _times(_weights(scores, lse), value.to(scores.dtype)).to(query.dtype)
