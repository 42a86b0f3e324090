"""Operators of the dispatcher for attention whose queries [b, h, l, e] or keys [b, g, s, e] are divided.

A head of keys may serve several of the queries, which then follow each other.

`rows` and `columns` tell which queries l and keys s are at hand: offsets, local extents and whole extents of the
factors of the axis, one after another. Scores are worked out in single precision at least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from joinsum.capture.row_parts import wide

__all__ = ["attention_grad_keys", "attention_grad_query", "attention_lse", "attention_of", "places"]


def places(part: Sequence[int]) -> torch.Tensor:
    """Numbers of the elements at hand in the whole axis.

    >>> places([1, 0, 1, 3, 2, 3])  # the second of two thirds of an axis of 2 x 3
    tensor([3, 4, 5])
    """
    count = len(part) // 3
    offsets, local, extents = (part[each * count : (each + 1) * count] for each in range(3))
    made = torch.zeros((), dtype=torch.int64)
    for position, (offset, size) in enumerate(zip(offsets, local, strict=True)):
        step = math.prod(extents[position + 1 :])
        made = made.unsqueeze(-1) + (torch.arange(size) + offset) * step
    return made.flatten()


def _in_groups(value: torch.Tensor, groups: int) -> torch.Tensor:
    """[b, h, ...] as [b, groups, h / groups, ...]."""
    return value.reshape(value.shape[0], groups, value.shape[1] // groups, *value.shape[2:])


def _times(of_queries: torch.Tensor, of_keys: torch.Tensor) -> torch.Tensor:
    """Products [b, h, ...] of matrices [b, h, ...] and [b, g, ...], by heads."""
    groups = of_keys.shape[1]
    if of_queries.shape[1] == groups:
        return of_queries @ of_keys
    return (_in_groups(of_queries, groups) @ of_keys.unsqueeze(2)).flatten(1, 2)


def _of_groups(value: torch.Tensor, groups: int) -> torch.Tensor:
    """Sums [b, g, ...] of what heads of queries [b, h, ...] have for the keys that they share."""
    return value if value.shape[1] == groups else _in_groups(value, groups).sum(2)


def _scores(
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    rows: Sequence[int],
    columns: Sequence[int],
) -> tuple[torch.Tensor, float]:
    """What the softmax is of, and the factor of the products in it."""
    dtype = wide(query.dtype)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    made = _times(query.to(dtype) * factor, key.to(dtype).mT)
    if causal:
        later = places(columns) > places(rows).unsqueeze(-1)
        made.masked_fill_(later.to(made.device), -math.inf)
    if mask is not None:
        made = made.masked_fill_(~mask, -math.inf) if mask.dtype is torch.bool else made.add_(mask)
    return made, factor


def _weights(scores: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """The softmax, of which `lse` is the logarithm of the denominators; a row without keys has weights of zero."""
    return (scores - lse.masked_fill(lse == -math.inf, 0).to(scores.dtype).unsqueeze(-1)).exp_()


@torch.library.custom_op("joinsum::attention_lse", mutates_args=())
def attention_lse(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    rows: Sequence[int],
    columns: Sequence[int],
    dtype: torch.dtype,
) -> torch.Tensor:
    """log Σ exp(score) for each query [b, h, l]; those of parts of the keys add up as exponentials do."""
    scores, _ = _scores(query, key, mask, causal, scale, rows, columns)
    return scores.logsumexp(-1).to(dtype)


@torch.library.custom_op("joinsum::attention_of", mutates_args=())
def attention_of(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    lse: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    rows: Sequence[int],
    columns: Sequence[int],
) -> torch.Tensor:
    """The attention, where `lse` is that of all keys; those of parts of the keys add up."""
    scores, _ = _scores(query, key, mask, causal, scale, rows, columns)
    return _times(_weights(scores, lse), value.to(scores.dtype)).to(query.dtype)


def _slopes(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    rows: Sequence[int],
    columns: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights, and the gradient of the products of queries and keys."""
    scores, factor = _scores(query, key, mask, causal, scale, rows, columns)
    weights = _weights(scores, lse)
    own = grad.to(scores.dtype)
    change = _times(own, value.to(scores.dtype).mT) - (own * out).sum(-1, keepdim=True)
    return weights, change.mul_(weights).mul_(factor)


@torch.library.custom_op("joinsum::attention_grad_query", mutates_args=())
def attention_grad_query(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    rows: Sequence[int],
    columns: Sequence[int],
) -> torch.Tensor:
    """The gradient of the queries; those of parts of the keys add up."""
    _, slopes = _slopes(grad, query, key, value, out, lse, mask, causal, scale, rows, columns)
    return _times(slopes, key.to(slopes.dtype)).to(query.dtype)


@torch.library.custom_op("joinsum::attention_grad_keys", mutates_args=())
def attention_grad_keys(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    rows: Sequence[int],
    columns: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of keys and values; those of parts of the queries add up."""
    weights, slopes = _slopes(grad, query, key, value, out, lse, mask, causal, scale, rows, columns)
    made = [
        _of_groups(each, key.shape[1])
        for each in (slopes.mT @ query.to(slopes.dtype), weights.mT @ grad.to(slopes.dtype))
    ]
    return made[0].to(key.dtype), made[1].to(value.dtype)
