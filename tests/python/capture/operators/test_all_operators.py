"""Every operator that torch tests, also without a row: equal to torch, or refused. For nightly runs."""

from __future__ import annotations

import contextlib
import os

import joinsum
import pytest
import torch
from capture_by_torch import Captured
from joinsum.capture import table
from operator_samples import Tensors, compare, op_infos, samples_of
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

SAMPLES = int(os.environ.get("JOINSUM_OPERATOR_SAMPLES", "5"))
FEW = ["nn.functional.multi_head_attention_forward", "nn.functional.huber_loss", "linalg.inv", "nonzero", "tensordot"]
NAMES = sorted(op_infos()) if os.environ.get("JOINSUM_ALL_OPERATORS") else FEW

# How programs are refused; the last two are Dynamo's to refuse, for results whose shape or use depends on data.
REFUSED = (joinsum.Error, DataDependentOutputException, DynamicOutputShapeException)


# Operators that draw: a program with one of them gives other numbers than torch.
RANDOM = {row.name for row in table() if row.family == "random"}


def dense(tensors: Tensors) -> bool:
    return all(each.layout is torch.strided for each in tensors)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_operator_is_equal_to_torch_or_refused(name: str) -> None:
    if name.startswith(("empty", "new_empty", "jiterator")):
        pytest.skip("what it gives is what memory held, or it is for GPUs only")
    for function, given in samples_of(op_infos()[name], SAMPLES):
        if not dense([*given, *function(*given)]):
            continue
        captured = Captured()
        with contextlib.suppress(*REFUSED):
            try:
                compare(function, given, captured)
            except AssertionError:
                if not captured.operators & RANDOM:
                    raise
