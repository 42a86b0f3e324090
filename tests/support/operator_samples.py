"""Samples of torch's own OpInfos as functions of tensors, and their comparison with torch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from capture_by_torch import Captured
from rounding import assert_rounded
from torch.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["Tensors", "compare", "op_infos", "samples_of"]

Tensors = list[torch.Tensor]
_DTYPES = (torch.float32, torch.int64, torch.bool)


@functools.cache
def op_infos() -> dict[str, Any]:
    """All OpInfos by name; those of a variant as `name/variant`."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {"/".join(filter(None, (op.name, op.variant_test_name))): op for op in op_db}


def samples_of(op: Any, count: int) -> Iterator[tuple[Callable[..., Tensors], Tensors]]:
    """At most `count` samples of the first dtype that the operator has of float32, int64 and bool: a function of the
    tensors of each, and these. Those with tensors without elements are left out."""
    dtype = next((each for each in _DTYPES if each in op.supported_dtypes("cpu")), None)
    if dtype is None:
        return
    torch.manual_seed(0)
    needs = op.supports_autograd and dtype.is_floating_point
    for sample in islice(op.sample_inputs("cpu", dtype, requires_grad=needs), count):
        flat, spec = tree_flatten(((sample.input, *sample.args), sample.kwargs))
        places = [place for place, each in enumerate(flat) if isinstance(each, torch.Tensor)]

        def function(*tensors: torch.Tensor, flat: Any = flat, spec: Any = spec, places: Any = places) -> Tensors:
            filled = list(flat)
            for place, tensor in zip(places, tensors, strict=True):
                filled[place] = tensor
            positional, named = tree_unflatten(filled, spec)
            results = tree_flatten(op.op(*positional, **named))[0]
            return [each for each in results if isinstance(each, torch.Tensor)]

        operands = [flat[place] for place in places]
        if all(each.numel() for each in [*operands, *function(*operands)]):
            yield function, operands


def compare(function: Callable[..., Tensors], operands: Tensors, captured: Captured) -> set[str]:
    """Runs the function by torch and captured, forward and backward; the operators that occurred."""
    ours, theirs = ([each.detach().clone().requires_grad_(each.requires_grad) for each in operands] for _ in range(2))
    expected = function(*theirs)
    found = captured.of(function)(*ours)
    close = functools.partial(torch.testing.assert_close, equal_nan=True, rtol=1e-4, atol=1e-5)
    if any(each.dtype is torch.bfloat16 for each in operands):
        longest = max(max(each.shape, default=1) for each in operands)
        close = functools.partial(assert_rounded, dtype=torch.bfloat16, terms=longest)
    close(found, expected)
    pairs = [pair for pair in zip(found, expected, strict=True) if pair[1].requires_grad]
    if not pairs:
        return captured.operators
    seeds = [torch.rand_like(each) for _, each in pairs]
    mine = torch.autograd.grad([a for a, _ in pairs], [x for x in ours if x.requires_grad], seeds, allow_unused=True)
    true = torch.autograd.grad([b for _, b in pairs], [x for x in theirs if x.requires_grad], seeds, allow_unused=True)
    for a, b in zip(mine, true, strict=True):
        if b is not None:
            close(a, b)
    return captured.operators
