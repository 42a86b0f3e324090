"""Operators of torch's dispatcher that look up rows of a table or scores of classes, of which each site has a shard.

`offsets`, `local` and `extents` describe a shard: one number for each factor of the axis, row-major.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

__all__ = [
    "class_scores",
    "embedding_backward_shard",
    "embedding_shard",
    "local_index",
    "local_targets",
    "nll_backward_shard",
]


def local_index(
    index: torch.Tensor, offsets: Sequence[int], local: Sequence[int], extents: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices in a shard of an axis for global ones, 0 for indices of other shards; and which are in this shard.

    Raises IndexError for an index out of range; on a GPU a device assertion fails, as in torch's own kernels.

    >>> local_index(torch.tensor([1, 4, 5, 7]), [4], [3], [8])
    (tensor([0, 0, 1, 0]), tensor([False,  True,  True, False]))
    """
    _check_range(index, math.prod(extents))
    present = torch.ones_like(index, dtype=torch.bool)
    found = torch.zeros_like(index)
    rest = index
    step = 1
    for offset, size, extent in zip(reversed(offsets), reversed(local), reversed(extents), strict=True):
        coordinate = rest % extent - offset
        rest = rest // extent
        present &= (coordinate >= 0) & (coordinate < size)
        found += coordinate * step
        step *= size
    return torch.where(present, found, 0), present


def _check_range(index: torch.Tensor, extent: int) -> None:
    inside = ((index >= 0) & (index < extent)).all()
    if index.device.type != "cpu":
        torch._assert_async(inside, "index out of range")  # without waiting for the device
    elif not inside:
        raise IndexError(
            f"capture: an index is out of range: least={int(index.min())}, greatest={int(index.max())}, extent={extent}"
        )


@torch.library.custom_op("joinsum::embedding_shard", mutates_args=())
def embedding_shard(
    table: torch.Tensor, index: torch.Tensor, offsets: Sequence[int], local: Sequence[int], extents: Sequence[int]
) -> torch.Tensor:
    """Rows of a shard of `table` [v, d] at `index`, zeros for rows of other shards; the results of all are summed."""
    if list(local) == list(extents):
        full: torch.Tensor = torch.ops.aten.embedding(table, index)
        return full
    found, present = local_index(index, offsets, local, extents)
    return torch.where(present.unsqueeze(-1), table[found], 0)


@torch.library.custom_op("joinsum::embedding_backward_shard", mutates_args=())
def embedding_backward_shard(
    grad: torch.Tensor, index: torch.Tensor, rows: torch.Tensor, padding: int, extent: int
) -> torch.Tensor:
    """The gradient [v, d] of a shard of a table with `extent` rows; `rows` [v] has the numbers of its rows, ascending.
    `grad` [*b, d] and `index` [*b] may be shards of the batch, whose results are summed."""
    count = rows.numel()
    if count == extent:
        full: torch.Tensor = torch.ops.aten.embedding_dense_backward(grad, index, extent, padding, False)
        return full
    gradient = grad.new_zeros((count, grad.shape[-1]))
    if count == 0:
        return gradient
    wanted = index.reshape(-1).to(rows.dtype)
    found = torch.searchsorted(rows, wanted).clamp_(max=count - 1)
    present = (rows[found] == wanted) & (wanted != padding)
    return gradient.index_add_(0, found[present], grad.reshape(-1, grad.shape[-1])[present])


_NLL = "Tensor target, Tensor? weight, SymInt ignored, SymInt[] offsets, SymInt[] local, SymInt[] extents"


def local_targets(target: torch.Tensor, ignored: int, *shard: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The classes of targets in a shard of the classes, and which targets are in it and not ignored."""
    valid = target != ignored
    found, present = local_index(torch.where(valid, target, 0), *shard)
    return found, present & valid


@torch.library.custom_op("joinsum::class_scores", mutates_args=(), schema=f"(Tensor input, {_NLL}) -> (Tensor, Tensor)")
def class_scores(
    input: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, ignored: int, *shard: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The score of each target, and its weight; zeros for ignored targets and classes of other shards.

    `input` [n, c] or [n, c, *s], `target` [n, *s], `weight` [c].
    """
    found, present = local_targets(target, ignored, *shard)
    scores = input.gather(1, found.unsqueeze(1)).squeeze(1)
    weights = torch.ones_like(scores) if weight is None else weight[found].to(scores.dtype)
    return torch.where(present, scores, 0), torch.where(present, weights, 0)


@torch.library.custom_op(
    "joinsum::nll_backward_shard", mutates_args=(), schema=f"(Tensor score, Tensor grad, {_NLL}) -> Tensor"
)
def nll_backward_shard(
    score: torch.Tensor, grad: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, *rest: Any
) -> torch.Tensor:
    """The gradient [n, c, *s] of a shard of the scores, of which only the shape is read; `grad` [n, *s] is the gradient
    of each target's loss."""
    found, present = local_targets(target, *rest)
    weights = grad if weight is None else grad * weight[found]
    values = torch.where(present, -weights, 0).unsqueeze(1)
    return grad.new_zeros(score.shape).scatter_(1, found.unsqueeze(1), values)
