"""The inputs of a program being recorded: arguments, constants and the seed of random operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from joinsum.capture.recording.axes import fresh
from joinsum.capture.recording.values import InputDraft, Producer, Value

__all__ = ["SEED", "Recorder"]

# A tensor of equal elements up to this size is recognised and repeats a single element.
_LARGEST_COMPARED = 1 << 16
SEED = "joinsum.seed"  # the input that random operators read


class Recorder:
    """Collects the inputs of a program."""

    def __init__(self) -> None:
        self.inputs: list[Producer] = []
        self._scalars: dict[tuple[torch.dtype, str], Value] = {}

    def input(self, name: str, position: int | None, shape: Sequence[int], dtype: torch.dtype) -> Value:
        """A tensor that is an argument of each run."""
        return self._input(InputDraft(name, position, tuple(shape)), dtype)

    def _input(self, draft: InputDraft, dtype: torch.dtype) -> Value:
        axes = tuple(fresh(extent) for extent in draft.shape)
        producer = Producer(draft, tuple(dim for axis in axes for dim in axis), dtype)
        self.inputs.append(producer)
        return Value(producer, axes)

    def constant(self, tensor: torch.Tensor) -> Value:
        """A constant of the program; one of equal elements is stored as a single element, which repeats."""
        tensor = tensor.detach()
        if not tensor.numel():
            return replace(self.filled(tensor.shape, torch.zeros((), dtype=tensor.dtype)), constant=tensor)
        if tensor.numel() <= _LARGEST_COMPARED and _uniform(tensor):
            element = tensor.reshape(-1)[0].clone()
            return replace(self.filled(tensor.shape, element), constant=tensor)
        name = f"constant.{len(self.inputs)}"
        value = self._input(InputDraft(name, None, tuple(tensor.shape), tensor.contiguous()), tensor.dtype)
        return replace(value, constant=tensor if tensor.numel() <= _LARGEST_COMPARED else None)

    def filled(self, shape: Sequence[int], element: torch.Tensor) -> Value:
        """The element of a tensor without axes, repeated along all axes of `shape`."""
        key = (element.dtype, repr(element.tolist()))
        if key not in self._scalars:
            draft = InputDraft(f"constant.{len(self.inputs)}", None, (), element)
            self._scalars[key] = replace(self._input(draft, element.dtype), constant=element)
        scalar = self._scalars[key]
        return Value(scalar.producer, tuple(fresh(extent) for extent in shape), None if shape else element)


def _uniform(tensor: torch.Tensor) -> bool:
    """Whether all elements are one number; 0 and -0 are two."""
    if tensor.is_complex():
        return _uniform(tensor.real) and _uniform(tensor.imag)
    first = tensor.reshape(-1)[0]
    same = tensor == first
    return bool((same & (tensor.signbit() == first.signbit()) if tensor.is_floating_point() else same).all())
