"""What a loss function, or a model that computes its loss, gives: the loss, and the entries beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from joinsum.base.errors import PlanError

__all__ = ["detached", "loss_of"]


def loss_of(result: Any) -> Tensor:
    """The loss: the result itself, its entry or attribute `loss`, or the first entry of a tuple or dictionary."""
    loss = result
    if not isinstance(result, Tensor):
        if getattr(result, "loss", None) is not None:
            loss = result.loss
        elif isinstance(result, Mapping):
            loss = result["loss"] if "loss" in result else next(iter(result.values()), None)
        elif isinstance(result, (tuple, list)):
            loss = result[0] if result else None
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        shape = list(loss.shape) if isinstance(loss, Tensor) else None
        raise PlanError(
            f"train_step: no loss of one element: result={type(result).__name__}, shape={shape}; give a loss, a tuple "
            "whose first entry it is, or a dictionary with the entry loss (Hugging Face's models compute one if labels "
            "are given)"
        )
    return loss


def detached(result: Any) -> Any:
    """The result without gradients: tensors in tuples, lists and dictionaries detached, numbers and texts unchanged.
    Of a Hugging Face result the tensors and tuples of tensors; other objects, as caches, become None."""
    if isinstance(result, Tensor):
        return result.detach()
    if isinstance(result, Mapping):
        return {name: detached(x) for name, x in result.items()}
    if isinstance(result, (tuple, list)):
        return tuple([detached(x) for x in result])
    return result if isinstance(result, (int, float, str)) else None
