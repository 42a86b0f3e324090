"""Decompositions of norms in mixed precision: half-precision inputs with weights or statistics in single precision, as
autocast on a CPU produces them.

torch's kernels compute such norms in single precision. The dtypes that torch reports for them while it traces differ
from those of its kernels, so here the graph gets the norm in single precision, between conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["MIXED_PRECISION"]

_HALVES = (torch.float16, torch.bfloat16)
_aten = torch.ops.aten


def _wide(x: Any) -> Any:
    return x.float() if isinstance(x, torch.Tensor) and x.dtype in _HALVES else x


def _mixed(*tensors: torch.Tensor | None) -> bool:
    """Whether some tensors are of half precision and others wider."""
    dtypes = {x.dtype for x in tensors if x is not None}
    return len(dtypes) > 1 and not dtypes.isdisjoint(_HALVES)


def _forward(operator: Any, batch: bool) -> Callable[..., Any]:
    def run(x: torch.Tensor, *others: Any, **keywords: Any) -> Any:
        running = others[2:4] if batch else ()
        operands = [each for each in (x, *others) if isinstance(each, torch.Tensor)]
        # torch reports a batch norm's running statistics in single precision even where all else is half.
        if not _mixed(*operands) and not (batch and x.dtype in _HALVES):
            return NotImplemented
        computed = operator(_wide(x), *map(_wide, others), **keywords)
        results = [computed[0].to(x.dtype), *computed[1:3]]
        if len(computed) == 5:
            results += [
                new.to(old.dtype) if old is not None else new for new, old in zip(computed[3:], running, strict=True)
            ]
        return tuple(results)

    return run


def _backward(operator: Any, weight_at: int) -> Callable[..., Any]:
    """`weight_at` is the weight's position among the arguments; gradients have the dtypes of input and weight."""

    def run(grad: torch.Tensor, x: torch.Tensor, *others: Any, **keywords: Any) -> Any:
        operands = [each for each in (grad, x, *others) if isinstance(each, torch.Tensor)]
        if not _mixed(*operands):
            return NotImplemented
        weight = (grad, x, *others)[weight_at]
        gradients = operator(_wide(grad), _wide(x), *map(_wide, others), **keywords)
        weight_dtype = x.dtype if weight is None else weight.dtype
        dtypes = (x.dtype, weight_dtype, weight_dtype)
        return tuple(g if g is None else g.to(dtype) for g, dtype in zip(gradients, dtypes, strict=True))

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


MIXED_PRECISION = _rows()
