"""The rule of operators whose labels may not be divided: each site computes all of it."""

from __future__ import annotations

from joinsum.capture.recording.application import Application
from joinsum.capture.recording.values import Arguments, Result, Value
from joinsum.capture.recording.vertices import CallRule, Labels, call_operator
from joinsum.capture.rules.form import call_arguments
from joinsum.capture.rules.row import Results

__all__ = ["undivided"]


def undivided(application: Application) -> Results:
    """A call of which no label may be divided."""
    values = application.all_tensors()
    names = [[f"{number}.{axis}" for axis in range(len(value.axes))] for number, value in enumerate(values)]
    results = []
    for number, kind in enumerate(application.results):
        if kind is None:
            application.refuse("one of its results is no tensor")
        shape, dtype = kind
        own = [f"r{number}.{axis}" for axis in range(len(shape))]
        results.append(Result(dtype, [[name] for name in own], dict(zip(own, shape, strict=True))))
    every = [name for own in names for name in own]
    every += [name for result in results for axes in result.axes for name in axes]

    def arguments(labels: Labels) -> Arguments:
        blocks: dict[int, object] = {}
        for number, value in enumerate(values):
            blocks.setdefault(id(value), labels.block(number, value, names[number]))

        def replaced(value: object) -> object:
            if isinstance(value, Value):
                return blocks[id(value)]
            return [replaced(each) for each in value] if isinstance(value, list) else value

        return call_arguments(application, {name: replaced(value) for name, value in application.arguments.items()})

    operands = list(zip(values, names, strict=True))
    return call_operator(application.name, operands, results, arguments, CallRule(undivided=every))
