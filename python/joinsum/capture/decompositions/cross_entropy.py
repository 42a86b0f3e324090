"""Operators of torch's dispatcher for the cross entropy of scores of classes, of which each site has a shard.

Scores are [n, c, *s], targets [n, *s]. The logarithms of the sums of exponentials, `lse`, are of double precision:
losses are small differences from them. The gradient reads these and the scores alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from joinsum.base.dtypes import accumulation_dtype
from joinsum.capture.decompositions.lookups import local_targets

__all__ = ["class_lse", "cross_entropy", "cross_entropy_backward", "cross_entropy_grad", "cross_entropy_of"]

_SHARD = "SymInt[] offsets, SymInt[] local, SymInt[] extents"


@torch.library.custom_op("joinsum::class_lse", mutates_args=())
def class_lse(input: Tensor) -> Tensor:
    """log Σ exp(score) over the classes; the results of shards are reduced by logaddexp."""
    return input.double().logsumexp(1)


@torch.library.custom_op("joinsum::cross_entropy_of", mutates_args=())
def cross_entropy_of(lse: Tensor, score: Tensor, share: Tensor) -> Tensor:
    """The loss of each target, whose weight is `share`: (lse - score) share, zero of those without weight."""
    return torch.where(share == 0, 0, (lse - score) * share).to(score.dtype)


@torch.library.custom_op(
    "joinsum::cross_entropy_grad",
    mutates_args=(),
    schema=f"(Tensor input, Tensor target, Tensor lse, Tensor slope, {_SHARD}) -> Tensor",
)
def cross_entropy_grad(input: Tensor, target: Tensor, lse: Tensor, slope: Tensor, *shard: Sequence[int]) -> Tensor:
    """The gradient of a shard of the scores: slope (exp(score - lse) - [the class is the target's]).

    slope   the gradient of each target's loss times its weight; a target whose slope is zero may be no class
    """
    dtype = accumulation_dtype(input.dtype)
    high = lse.to(dtype)
    low = (lse - high).to(dtype)
    own = slope.to(dtype).unsqueeze(1)
    spread = ((input.to(dtype) - high.unsqueeze(1)) - low.unsqueeze(1)).exp_().mul_(own)
    found, present = local_targets(torch.where(slope == 0, -1, target), -1, *shard)
    less = torch.where(present.unsqueeze(1), -own, 0)
    return spread.scatter_add_(1, found.unsqueeze(1), less).to(input.dtype)


# --- all classes in one place -----------------------------------------------------------------------------------------


def _computed(operator: Any, arguments: Sequence[object], *results: Tensor) -> tuple[Tensor, ...]:
    """The results of an operator, which on a CPU are computed where they are to be."""
    if results[0].device.type != "cpu":
        found = operator.default(*arguments)
        return found if isinstance(found, tuple) else (found,)
    names = [each.name for each in operator.out._schema.arguments if each.alias_info is not None]
    operator.out(*arguments, **dict(zip(names, results, strict=True)))
    return results


def _all_classes(input: Tensor) -> tuple[list[int], list[int], list[int]]:
    return [0], [input.shape[1]], [input.shape[1]]


@torch.library.custom_op(
    "joinsum::cross_entropy",
    mutates_args=(),
    schema="(Tensor input, Tensor target, Tensor? weight, int reduction, SymInt ignored) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
)
def cross_entropy(input: Tensor, target: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss, the sum of the weights, the weight of each target, and `lse`.

    reduction   0 for the losses of all targets, 1 for their mean over the weights, 2 for their sum
    """
    weight, reduction, ignored = rest
    operators = torch.ops.joinsum
    empty = input.new_empty(target.shape)
    (lse,) = _computed(operators.class_lse, [input], empty.new_empty(empty.shape, dtype=torch.float64))
    arguments = [input, target, weight, ignored, *_all_classes(input)]
    score, share = _computed(operators.class_scores, arguments, empty, torch.empty_like(empty))
    (losses,) = _computed(operators.cross_entropy_of, [lse, score, share], torch.empty_like(empty))
    if reduction == 0:
        return losses, losses.new_zeros(()), share, lse
    total = share.sum()
    return losses.sum() / total if reduction == 1 else losses.sum(), total, share, lse


@cross_entropy.register_fake
def _(input: Tensor, target: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _, reduction, _ = rest
    total, share = input.new_empty(()), input.new_empty(target.shape)
    loss = torch.empty_like(total if reduction else share)
    return loss, total, share, share.new_empty(target.shape, dtype=torch.float64)


@torch.library.custom_op(
    "joinsum::cross_entropy_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor input, Tensor target, int reduction, Tensor total, Tensor share, Tensor lse) "
    "-> Tensor",
)
def cross_entropy_backward(grad: Tensor, input: Tensor, target: Tensor, *rest: Any) -> Tensor:
    """The gradient of the scores, of that of the loss and of what `cross_entropy` gave."""
    return _gradient_into(grad, input, target, *rest, input_out=torch.empty_like(input))


def _gradient_into(grad: Tensor, input: Tensor, target: Tensor, *rest: Any, input_out: Tensor) -> Tensor:
    reduction, total, share, lse = rest
    slope = (grad / total if reduction == 1 else grad) * share
    arguments = [input, target, lse, slope, *_all_classes(input)]
    return _computed(torch.ops.joinsum.cross_entropy_grad, arguments, input_out)[0]


_LIBRARY = torch.library.Library("joinsum", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(  # type: ignore[no-untyped-call]
    "cross_entropy_backward.out(Tensor grad, Tensor input, Tensor target, int reduction, Tensor total, Tensor share, "
    "Tensor lse, *, Tensor(a!) input_out) -> Tensor(a!)"
)
_LIBRARY.impl("cross_entropy_backward.out", _gradient_into, "CPU")  # type: ignore[no-untyped-call]


@cross_entropy_backward.register_fake
def _(grad: Tensor, input: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(input)
