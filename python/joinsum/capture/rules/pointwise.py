"""The rule of operators that do the same to each element."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from joinsum.capture.recording import vertices
from joinsum.capture.recording.application import Application
from joinsum.capture.recording.symbolic_numbers import NUMBERS, plain
from joinsum.capture.recording.values import Arguments, Value
from joinsum.capture.rules.form import call_arguments
from joinsum.capture.rules.row import Results

__all__ = ["Pointwise"]


@dataclass(frozen=True)
class Pointwise:
    """A rule: result[i] = f(operands[i]); shapes broadcast, and all labels may be divided.

    flops   for each element
    equal   whether the operator takes operands of one shape only: operands whose elements repeat are copied first
    """

    flops: int = 1
    equal: bool = False

    def __call__(self, application: Application) -> Results:
        """The results of the operator."""
        tensors = dict(application.tensors())
        for name in application.tensor_arguments():
            if isinstance(application.arguments[name], NUMBERS):
                tensors[name] = _constant(application, application.scalar(name))
        names = [name for name in application.arguments if name in tensors]
        values = [vertices.materialized(tensors[name]) if self.equal else tensors[name] for name in names]
        dtypes = [dtype for _, dtype in application.types]

        def arguments(blocks: Sequence[object]) -> Arguments:
            return call_arguments(application, dict(zip(names, blocks, strict=True)))

        return vertices.pointwise(application.name, values, dtypes, arguments, self.flops)


def _constant(application: Application, number: float) -> Value:
    """A number as a tensor, of a dtype that leaves the dtype of the result as torch promotes it."""
    values = [value for _, value in application.tensors() if value.dtype is not torch.bool]
    promoted = functools.reduce(torch.promote_types, [value.dtype for value in values], torch.bool)
    alike = [value for value in values if value.dtype.is_floating_point == promoted.is_floating_point]
    dtype = None
    if torch.result_type(torch.empty((), dtype=promoted), plain(number)) == promoted and not any(x.axes for x in alike):
        dtype = promoted  # tensors of no axes do not outrank a number that is one
    elif isinstance(plain(number), float):
        wide = promoted in (torch.float64, torch.complex128)
        dtype = torch.float64 if wide else torch.float32
    return application.recorder.scalar(number, dtype)
