"""Norms of halves with weights or statistics in single precision, as autocast on a CPU leaves them: computed in single
precision, as torch's kernels do. What torch says of their results' dtypes while it traces is another than what these
kernels give, so such norms reach the graph as norms of single precision between conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["MIXED_WIDTHS"]

_HALVES = (torch.float16, torch.bfloat16)
_aten = torch.ops.aten


def _wide(x: Any) -> Any:
    return x.float() if isinstance(x, torch.Tensor) and x.dtype in _HALVES else x


def _mixed(*tensors: torch.Tensor | None) -> bool:
    """Whether there are halves beside wider floats."""
    dtypes = {x.dtype for x in tensors if x is not None}
    return len(dtypes) > 1 and not dtypes.isdisjoint(_HALVES)


def _forward(operator: Any, batch: bool) -> Callable[..., Any]:
    def run(x: torch.Tensor, *others: Any, **keywords: Any) -> Any:
        running = others[2:4] if batch else ()
        operands = [each for each in (x, *others) if isinstance(each, torch.Tensor)]
        # A batch norm's running statistics are told to be wide even where all is halves.
        if not _mixed(*operands) and not (batch and x.dtype in _HALVES):
            return NotImplemented
        made = operator(_wide(x), *map(_wide, others), **keywords)
        results = [made[0].to(x.dtype), *made[1:3]]
        if len(made) == 5:
            results += [
                new.to(old.dtype) if old is not None else new for new, old in zip(made[3:], running, strict=True)
            ]
        return tuple(results)

    return run


def _backward(operator: Any, weight_at: int) -> Callable[..., Any]:
    """`weight_at` is the weight's place among the arguments; the gradients have the dtypes of input and weight."""

    def run(grad: torch.Tensor, x: torch.Tensor, *others: Any, **keywords: Any) -> Any:
        operands = [each for each in (grad, x, *others) if isinstance(each, torch.Tensor)]
        if not _mixed(*operands):
            return NotImplemented
        weight = (grad, x, *others)[weight_at]
        made = operator(_wide(grad), _wide(x), *map(_wide, others), **keywords)
        kept = x.dtype if weight is None else weight.dtype
        return tuple(
            each if each is None else each.to(dtype) for each, dtype in zip(made, (x.dtype, kept, kept), strict=True)
        )

    return run


def _rows() -> dict[Any, Callable[..., Any]]:
    norms = [_aten.native_layer_norm.default, _aten.native_group_norm.default]
    batch_norms = [
        _aten._native_batch_norm_legit_functional.default,
        _aten._native_batch_norm_legit_no_training.default,
        _aten._native_batch_norm_legit.no_stats,
    ]
    backward = {
        _aten.native_layer_norm_backward.default: 5,
        _aten.native_group_norm_backward.default: 4,
        _aten.native_batch_norm_backward.default: 2,
    }
    rows = {operator: _forward(operator, False) for operator in norms}
    rows |= {operator: _forward(operator, True) for operator in batch_norms}
    return rows | {operator: _backward(operator, weight_at) for operator, weight_at in backward.items()}


MIXED_WIDTHS = _rows()
