"""Random operators: what is drawn depends on the seed and on the global index of each element only."""

from __future__ import annotations

import torch

from joinsum.capture.application import Application
from joinsum.capture.operators.elementwise import Pointwise, as_dtype
from joinsum.capture.operators.form import Form
from joinsum.capture.operators.row import Made, Row, rows
from joinsum.capture.recorder import Recorder, Value

__all__ = ["ROWS"]

_PLACE = {"offsets": "offset *a", "local": "local *a", "extents": "extent *a"}
_DROPOUT = Form("*a, -> *a, *a", parts=_PLACE, flops="20 *a")
_DRAWN = Form(", -> *a", sizes={"size": "*a"}, lists={"a": "size"}, parts=_PLACE, flops="20 *a")


def _stream(recorder: Recorder) -> int:
    """A number of its own for each draw of the program."""
    recorder.streams += 1
    return recorder.streams - 1


def _dropout(recorder: Recorder, application: Application) -> Made:
    value = application.value("input")
    if application.arguments["train"] is False:
        return [value, recorder.filled(value.shape, torch.tensor(True))]
    given = {"input": value, "seed": recorder.seed(), "p": application.scalar("p"), "stream": _stream(recorder)}
    operator = torch.ops.joinsum.dropout.default
    return _DROPOUT(recorder, application.of(operator, given, [(value.shape, value.dtype), (value.shape, torch.bool)]))


def _drawn(recorder: Recorder, application: Application, name: str, dtype: torch.dtype, **more: object) -> Value:
    """Numbers of the result's shape by `joinsum::name`."""
    operator = getattr(torch.ops.joinsum, name).default
    given = {"seed": recorder.seed(), "stream": _stream(recorder), "size": list(application.shape), "dtype": dtype}
    (made,) = _DRAWN(recorder, application.of(operator, {**given, **more}, [(application.shape, dtype)]))
    assert made is not None
    return made


def _uniform(recorder: Recorder, application: Application) -> Made:
    return [_drawn(recorder, application, "uniform", application.dtype)]


def _normal(recorder: Recorder, application: Application) -> Made:
    return [_drawn(recorder, application, "normal", application.dtype)]


def _integers(recorder: Recorder, application: Application) -> Made:
    low = application.arguments.get("low", 0)
    drawn = _drawn(recorder, application, "integers", application.dtype, low=low, high=application.number("high"))
    return [drawn]


def _bernoulli(recorder: Recorder, application: Application) -> Made:
    """True with the chance that the number or the tensor says."""
    chance = application.arguments.get("p", application.arguments["self"])
    drawn = _drawn(recorder, application, "uniform", torch.float32)
    if not isinstance(chance, Value):
        assert isinstance(chance, (int, float))
        chance = recorder.constant(torch.tensor(float(chance)))
    below = application.of(
        torch.ops.aten.lt.Tensor, {"self": drawn, "other": chance}, [(application.shape, torch.bool)]
    )
    (made,) = Pointwise()(recorder, below)
    assert made is not None
    return [as_dtype(recorder, made, application.dtype)]


ROWS: list[Row] = [
    *rows(
        "random", "native_dropout", _dropout, "joinsum::dropout: all labels free, the mask is that of the whole tensor"
    ),
    *rows("random", "rand rand_like", _uniform, "joinsum::uniform: all labels free"),
    *rows("random", "randn randn_like", _normal, "joinsum::normal: all labels free"),
    *rows("random", "randint randint.low", _integers, "joinsum::integers: all labels free"),
    *rows("random", "bernoulli bernoulli.p", _bernoulli, "joinsum::uniform below the chance: all labels free"),
]
