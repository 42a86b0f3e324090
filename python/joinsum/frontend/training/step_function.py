"""The function of which a training step is the graph: forward, loss, backward and update."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from joinsum.distributed.batch_shards import BatchShards
from joinsum.frontend.training.updated_graph import UpdateFunction

__all__ = ["LossFunction", "StepOptions", "in_single_precision", "step_function"]

LossFunction = Callable[..., Tensor]
_CLIPPING_GUARD = 1e-6  # torch.nn.utils.clip_grad_norm_'s


@dataclass(frozen=True)
class StepOptions:
    """The options of `joinsum.train_step`, which documents them."""

    loss_function: LossFunction | None
    shards: BatchShards
    max_norm: float | None = None
    accumulate: int = 1
    replicate: Collection[str] = ()


def step_function(model: torch.nn.Module, options: StepOptions) -> Callable[..., Any]:
    """The function that Dynamo traces: it takes a batch, parameters and sums of gradients, and returns the loss and
    what ends the graph, which takes the gradients of the update."""
    loss_function, max_norm, accumulate = options.loss_function, options.max_norm, options.accumulate

    def step(batch: Any, keywords: Any, arguments: tuple[Any, ...]) -> Any:
        places, sums, last = arguments
        if loss_function is None:
            result = model(*batch, **keywords)
            loss = result.loss if hasattr(result, "loss") else result
        else:
            loss = loss_function(model(*batch[:-1], **keywords), batch[-1])
        gradients = torch.autograd.grad(loss / accumulate, places, allow_unused=True)
        with torch.no_grad():
            if sums:
                gradients = [s if g is None else s + g for s, g in zip(sums, gradients, strict=True)]
            if last and max_norm is not None:
                gradients = _clipped(gradients, max_norm)
            return loss.detach(), torch.ops.joinsum.gradients(loss, gradients)

    return step


def in_single_precision(new: UpdateFunction) -> UpdateFunction:
    """The update `new` of a parameter and its state, in which half-precision parameters get single precision."""

    def update(p: Tensor, gradient: Tensor, state: Any, numbers: Any, traits: Any) -> Any:
        if p.dtype is torch.float32 or p.dtype is torch.float64:
            return new(p, gradient, state, numbers, traits)
        wide = {name: value.float() for name, value in state.items()}
        parameter, updated = new(p.float(), gradient.float(), wide, numbers, traits)
        return parameter.to(p.dtype), {name: value.to(p.dtype) for name, value in updated.items()}

    return update


def _clipped(gradients: Sequence[Tensor | None], max_norm: float) -> list[Tensor | None]:
    """The gradients, scaled so that their total norm is at most `max_norm`, as torch.nn.utils.clip_grad_norm_ does."""
    squares = [(g.float() if g.dtype is not torch.float64 else g).square().sum() for g in gradients if g is not None]
    total = squares[0]
    for square in squares[1:]:
        total = total + square
    scale = torch.clamp(max_norm / (total.sqrt() + _CLIPPING_GUARD), max=1.0)
    return [None if g is None else (g * scale).to(g.dtype) for g in gradients]
