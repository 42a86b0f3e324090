"""Operators that mix the elements along the axes that an argument names, and do the same everywhere else."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from joinsum.capture.application import Application
from joinsum.capture.operators.form import call_arguments
from joinsum.capture.operators.row import Made
from joinsum.capture.recorder import Arguments, Labels, Recorder, Result, Shown, axis_names

__all__ = ["Along"]


@dataclass(frozen=True)
class Along:
    """A rule: tensors have the same axes, those that `argument` names are whole, all of them where it names none.

    Results have the same axes too; one that is mixed may be gone, of one element, or of another extent.

    flops   for each element
    """

    argument: str | None = "dim"
    flops: int = 1

    def __call__(self, recorder: Recorder, application: Application) -> Made:
        """The results of the operator."""
        values = list(application.tensors())
        rank = max(len(value.axes) for _, value in values)
        mixed = self._mixed(application, rank)
        names = axis_names(next(value for _, value in values if len(value.axes) == rank))
        if any(len(value.axes) != rank for _, value in values):
            application.refuse("its tensors differ in the number of axes")
        operands = [(value, names) for _, value in values]
        known = dict(zip(names, values[0][1].shape, strict=True))
        results = [_result(application, made, known, mixed) for made in application.results]

        def arguments(labels: Labels) -> Arguments:
            shown: dict[str, object] = {}
            for number, (name, value) in enumerate(values):
                axes = zip(names, value.shape, strict=True)
                shown[name] = Shown(number, tuple(labels.axis(axis) if extent > 1 else () for axis, extent in axes))
            return call_arguments(application, shown)

        whole = [names[axis] for axis in mixed]
        whole += [name for result in results for axes in result.axes for name in axes if name not in known]
        return list(recorder.call(application.name, operands, results, arguments, whole, None, [(self.flops, names)]))

    def _mixed(self, application: Application, rank: int) -> list[int]:
        value = application.arguments[self.argument] if self.argument is not None else None
        if value is None or value == []:
            return list(range(rank))
        return application.dims(self.argument or "", rank)


def _result(
    application: Application,
    made: tuple[tuple[int, ...], torch.dtype] | None,
    known: dict[str, int],
    mixed: list[int],
) -> Result:
    """The axes of a result, by the extents that are left of those of the operands."""
    if made is None:
        application.refuse("one of its results is no tensor")
    shape, dtype = made
    names = list(known)
    if len(shape) != len(names):
        names = [name for position, name in enumerate(names) if position not in mixed]
        if len(shape) != len(names):
            application.refuse(f"a result has unexpected axes: result={list(shape)}")
    axes: list[list[str]] = []
    extents: dict[str, int] = {}
    for name, extent in zip(names, shape, strict=True):
        if extent == known[name]:
            axes.append([name])
        elif extent == 1:
            axes.append([])
        else:
            axes.append([f"{name}.new"])
            extents[f"{name}.new"] = extent
    return Result(dtype, axes, extents)
