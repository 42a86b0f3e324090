"""An operator of which every label is whole: each site computes all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from joinsum.capture.application import Application
from joinsum.capture.operators.form import call_arguments
from joinsum.capture.operators.row import Made
from joinsum.capture.recorder import Arguments, Labels, Recorder, Result, Shown, Value

__all__ = ["whole"]


def whole(recorder: Recorder, application: Application) -> Made:
    """A call in which all labels are whole; a rule for whatever mixes everything."""
    values = application.met()
    names = [[f"{number}.{axis}" for axis in range(len(value.axes))] for number, value in enumerate(values)]
    results = []
    for number, made in enumerate(application.results):
        if made is None:
            application.refuse("one of its results is no tensor")
        own = [f"r{number}.{axis}" for axis in range(len(made[0]))]
        results.append(Result(made[1], [[name] for name in own], dict(zip(own, made[0], strict=True))))
    every = [name for own in names for name in own]
    every += [name for result in results for axes in result.axes for name in axes]

    def arguments(labels: Labels) -> Arguments:
        blocks = [Shown(number, tuple(labels.axis(name) for name in own)) for number, own in enumerate(names)]
        return call_arguments(application, _shown(application.arguments, values, blocks))

    return list(recorder.call(application.name, list(zip(values, names, strict=True)), results, arguments, every))


def _shown(arguments: Mapping[str, object], values: Sequence[Value], blocks: Sequence[Shown]) -> dict[str, object]:
    """The arguments with blocks in the place of values."""

    def shown(value: object) -> object:
        if isinstance(value, Value):
            return next(block for each, block in zip(values, blocks, strict=True) if each is value)
        return [shown(each) for each in value] if isinstance(value, list) else value

    return {name: shown(value) for name, value in arguments.items()}
