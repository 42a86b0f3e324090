"""The inputs of a program being recorded: arguments, constants and the seed of random operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from joinsum.capture.recording.axes import fresh
from joinsum.capture.recording.symbolic_numbers import is_symbolic, plain
from joinsum.capture.recording.values import InputDraft, Producer, Recipe, Value, computed

__all__ = ["SEED", "Recorder", "is_uniform"]

# A tensor of equal elements up to this size is recognised and repeats a single element.
_LARGEST_COMPARED = 1 << 16
SEED = "joinsum.seed"  # the input that random operators read


class Recorder:
    """Collects the inputs of a program."""

    def __init__(self) -> None:
        self.inputs: list[Producer] = []
        # Constants of equal elements that depend on symbolic numbers: their elements do not.
        self.uniform: list[tuple[Recipe, torch.Tensor]] = []
        self._scalars: dict[tuple[torch.dtype, str], Value] = {}

    def input(
        self, name: str, position: int | None, shape: Sequence[int], dtype: torch.dtype, entries: int | None = None
    ) -> Value:
        """A tensor that is an argument of each run; a sparse one has `entries`, about."""
        return self._input(InputDraft(name, position, tuple(shape), entries=entries), dtype)

    def _input(self, draft: InputDraft, dtype: torch.dtype) -> Value:
        axes = tuple(fresh(extent) for extent in draft.shape)
        producer = Producer(draft, tuple(dim for axis in axes for dim in axis), dtype)
        self.inputs.append(producer)
        return Value(producer, axes)

    def constant(self, tensor: torch.Tensor, shape: Sequence[int] | None = None, recipe: Recipe | None = None) -> Value:
        """A constant of the program; one of equal elements is stored as a single element, which repeats.

        shape, recipe   of a tensor that depends on symbolic numbers
        """
        tensor = tensor.detach()
        shape = tuple(tensor.shape if shape is None else shape)
        if 0 in shape:
            empty = self.filled(shape, torch.zeros((), dtype=tensor.dtype))
            return replace(empty, constant=tensor, recipe=recipe)
        compared = math.prod(shape) <= _LARGEST_COMPARED
        if compared and is_uniform(tensor) and (shape or recipe is None):
            element = tensor.reshape(-1)[0].clone()
            if recipe is not None:
                self.uniform.append((recipe, element))
            return replace(self.filled(shape, element), constant=tensor, recipe=recipe)
        name = f"constant.{len(self.inputs)}"
        value = self._input(InputDraft(name, None, shape, tensor.contiguous(), recipe), tensor.dtype)
        return replace(value, constant=tensor if compared else None, recipe=recipe)

    def computed(self, shape: Sequence[int], function: Callable[..., torch.Tensor], *numbers: Any) -> Value:
        """The tensor that a function of numbers gives, as a constant."""
        recipe = (lambda values: function(*computed(numbers, values))) if is_symbolic(*shape, *numbers) else None
        return self.constant(function(*plain(numbers)), shape, recipe)

    def scalar(self, number: Any, dtype: torch.dtype | None = None) -> Value:
        """A number as a tensor without axes."""
        return self.computed((), lambda each: torch.tensor(each, dtype=dtype), number)

    def filled(self, shape: Sequence[int], element: torch.Tensor) -> Value:
        """The element of a tensor without axes, repeated along all axes of `shape`."""
        key = (element.dtype, repr(element.tolist()))
        if key not in self._scalars:
            draft = InputDraft(f"constant.{len(self.inputs)}", None, (), element)
            self._scalars[key] = replace(self._input(draft, element.dtype), constant=element)
        scalar = self._scalars[key]
        return Value(scalar.producer, tuple(fresh(extent) for extent in shape), None if shape else element)


def is_uniform(tensor: torch.Tensor) -> bool:
    """Whether all elements are one number; 0 and -0 are two."""
    if tensor.is_complex():
        return is_uniform(tensor.real) and is_uniform(tensor.imag)
    first = tensor.reshape(-1)[0]
    same = tensor == first
    return bool((same & (tensor.signbit() == first.signbit()) if tensor.is_floating_point() else same).all())
