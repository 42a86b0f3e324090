"""The rule of operators that mix the elements along the axes that an argument names, and are elementwise otherwise."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from joinsum.capture.recording.application import Application, TensorType
from joinsum.capture.recording.values import Arguments, Result, axis_names
from joinsum.capture.recording.vertices import CallRule, Labels, call_operator
from joinsum.capture.rules.form import call_arguments
from joinsum.capture.rules.row import Results

__all__ = ["Along"]


@dataclass(frozen=True)
class Along:
    """A rule: all tensors have the same axes; those that `argument` names, or all if it names none, are never divided.

    Results have the same axes; a mixed axis may be removed, or have one element or another extent.

    flops   for each element
    """

    argument: str = "dim"
    flops: int = 1

    def __call__(self, application: Application) -> Results:
        """The results of the operator."""
        values = list(application.tensors())
        rank = max(len(value.axes) for _, value in values)
        mixed = application.dims(self.argument, rank) if application.arguments[self.argument] is not None else []
        mixed = mixed or list(range(rank))
        if any(len(value.axes) != rank for _, value in values):
            application.refuse("its tensors differ in the number of axes")
        names = axis_names(rank)
        known = dict(zip(names, values[0][1].shape, strict=True))
        undivided = [names[axis] for axis in mixed]
        results = [_result(application, kind, known, undivided) for kind in application.results]

        def arguments(labels: Labels) -> Arguments:
            blocks = {name: labels.block(number, value, names) for number, (name, value) in enumerate(values)}
            return call_arguments(application, blocks)

        undivided += [name for result in results for axes in result.axes for name in axes if name not in known]
        operands = [(value, names) for _, value in values]
        rule = CallRule(undivided=undivided, flops=[(self.flops, names)])
        return call_operator(application.name, operands, results, arguments, rule)


def _result(
    application: Application, kind: TensorType | None, known: Mapping[str, int], mixed: Collection[str]
) -> Result:
    """The axes of a result, found by comparing its extents with those of the operands."""
    if kind is None:
        application.refuse("one of its results is no tensor")
    shape, dtype = kind
    names = list(known)
    if len(shape) != len(names):
        names = [name for name in names if name not in mixed]
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
