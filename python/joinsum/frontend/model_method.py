"""Methods of models that are replaced while their parameters are distributed."""

from __future__ import annotations

import copy
import functools
from typing import Any, ClassVar, Self

import torch

__all__ = ["ModelMethod"]


class ModelMethod:
    """A model's own version of a method of its class, which `_original` is. A copied model gets one for itself.

    name   the method's
    """

    name: ClassVar[str]

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._original = getattr(type(model), self.name).__get__(model)
        functools.update_wrapper(self, self._original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the class's method."""
        raise NotImplementedError

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)(copy.deepcopy(self._model, memo))
