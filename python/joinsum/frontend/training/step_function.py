"""The function of which a training step is the graph: forward, loss, backward and update."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from joinsum.cluster.context import context
from joinsum.distributed.batch_shards import BatchShards
from joinsum.frontend.tracing.computed_weights import detach_weights
from joinsum.frontend.training.step_results import detached, loss_of

__all__ = ["LossFunction", "Outputs", "StepOptions", "step_function"]

LossFunction = Callable[..., Any]
Outputs = Literal["gathered", "sharded", "local"]
_CLIPPING_GUARD = 1e-6  # torch.nn.utils.clip_grad_norm_'s


@dataclass(frozen=True)
class StepOptions:
    """The options of `joinsum.train_step`, which documents them."""

    loss_function: LossFunction | None
    shards: BatchShards
    max_norm: float | None = None
    norm_type: float = 2.0
    max_value: float | None = None
    accumulate: int = 1
    reduction: Literal["mean", "sum"] = "mean"
    scaler: torch.amp.GradScaler | None = None
    outputs: Outputs | None = None
    autocast: torch.dtype | None = None
    replicate: Collection[str] = ()


def step_function(
    model: torch.nn.Module, options: StepOptions, weights: list[tuple[torch.nn.Module, str]]
) -> Callable[..., Any]:
    """The function that Dynamo traces: it takes a batch, parameters, hooks of their gradients and sums of gradients,
    and returns the loss, the gradients' norm, whether they are not finite, what the loss function gives besides, and
    what ends the graph, which takes the gradients of the update.

    weights   those of `computed_weights`, which leave autograd
    """
    loss_function, parts = options.loss_function, options.accumulate if options.reduction == "mean" else 1
    device, narrow = context().device.type, options.autocast

    def step(batch: Any, keywords: Any, arguments: tuple[Any, ...]) -> Any:
        places, hooks, sums, last, scale = arguments
        with nullcontext() if narrow is None else torch.autocast(device, narrow):
            if loss_function is None:
                result = model(*batch, **keywords)
            else:
                result = loss_function(model(*batch[:-1], **keywords), batch[-1])
        loss = loss_of(result)
        part = loss / parts
        gradients = torch.autograd.grad(part if scale is None else part * scale, places, allow_unused=True)
        with torch.no_grad():
            detach_weights(weights)
            if hooks:
                gradients = [_hooked(g, each) for g, each in zip(gradients, hooks, strict=True)]
            if sums:
                pairs = zip(sums, gradients, strict=True)
                gradients = [s if g is None else g if s is None else s + g for s, g in pairs]
            norm = skipped = None
            if last and scale is not None:
                gradients, skipped = _unscaled(gradients, scale)
            if last and options.max_norm is not None:
                gradients, norm = _clipped(gradients, options.max_norm, options.norm_type)
            if last and options.max_value is not None:
                bound = options.max_value
                gradients = [None if g is None else g.clamp(-bound, bound) for g in gradients]
            given = options.outputs is not None or (loss_function is not None and loss is not result)
            others = detached(result) if given else None
            return loss.detach(), norm, skipped, others, torch.ops.joinsum.gradients(loss, gradients, skipped)

    return step


def _unscaled(gradients: Sequence[Tensor | None], scale: Tensor) -> tuple[list[Tensor | None], Tensor]:
    """The gradients of the loss, from those of the loss times `scale`, and whether an element of them is not finite, as
    torch.amp.GradScaler has it."""
    inverse = scale.double().reciprocal().float()
    found = [None if g is None else g * inverse.to(g.dtype) for g in gradients]
    return found, torch.stack([g.isfinite().logical_not().any() for g in found if g is not None]).any()


def _hooked(gradient: Tensor | None, hooks: Sequence[Callable[[Tensor], Any]]) -> Tensor | None:
    """The gradient after the hooks of its parameter, each of which may replace it."""
    if gradient is not None:
        for hook in hooks:
            replaced = hook(gradient)
            gradient = gradient if replaced is None else replaced
    return gradient


def _clipped(
    gradients: Sequence[Tensor | None], max_norm: float, norm_type: float
) -> tuple[list[Tensor | None], Tensor]:
    """The gradients, scaled so that their total norm is at most `max_norm`, as torch.nn.utils.clip_grad_norm_ does, and
    the norm before."""
    exact = (torch.float64, torch.complex64, torch.complex128)
    wide = [g if g.dtype in exact else g.float() for g in gradients if g is not None]
    total = _total_norm(wide, norm_type)
    scale = torch.clamp(max_norm / (total + _CLIPPING_GUARD), max=1.0)
    return [None if g is None else (g * scale).to(g.dtype) for g in gradients], total


def _total_norm(gradients: Sequence[Tensor], norm_type: float) -> Tensor:
    """The norm of all elements."""
    if norm_type == math.inf:
        total = gradients[0].abs().max()
        for g in gradients[1:]:
            total = torch.maximum(total, g.abs().max())
        return total
    gradients = [g.abs() if g.is_complex() else g for g in gradients]
    powers = [g.square() if norm_type == 2 else g.abs() if norm_type == 1 else g.abs() ** norm_type for g in gradients]
    total = powers[0].sum()
    for power in powers[1:]:
        total = total + power.sum()
    return total.sqrt() if norm_type == 2 else total if norm_type == 1 else total ** (1 / norm_type)
