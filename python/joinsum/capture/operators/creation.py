"""Tensors that do not depend on inputs: small ones are constants, others repeat one element."""

from __future__ import annotations

import torch

from joinsum.capture.application import Application
from joinsum.capture.operators.row import Made, Row, rows
from joinsum.capture.operators.whole import whole
from joinsum.capture.recorder import Recorder

__all__ = ["ROWS"]


def _filled(recorder: Recorder, application: Application) -> Made:
    """One element, repeated; what is called empty is zero."""
    name = application.operator._opname
    number = application.arguments.get("fill_value", application.arguments.get("value"))
    if number is None:
        number = 1 if "ones" in name else 0
    assert isinstance(number, (int, float))
    return [recorder.filled(application.shape, torch.tensor(number, dtype=application.dtype))]


ROWS: list[Row] = [
    *rows(
        "creation",
        "full full_like new_full zeros zeros_like new_zeros ones ones_like new_ones fill.Scalar scalar_tensor "
        "empty.memory_format empty_like empty_permuted empty_strided new_empty new_empty_strided _efficientzerotensor",
        _filled,
        "a constant element that repeats; what is called empty is zero",
    ),
    *rows(
        "creation",
        "arange arange.start arange.start_step linspace eye eye.m",
        whole,
        "a constant up to 65536 elements; else a call with all labels whole",
    ),
]
