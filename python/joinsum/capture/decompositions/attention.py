"""Shapes of the results of the operators `joinsum::attention` and its gradient, for fake tensors; and these in place of
the operators that torch chooses for attention on GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from joinsum import _C
from joinsum.base.dtypes import accumulation_dtype
from joinsum.base.errors import CaptureError

__all__ = ["GPU_ATTENTION"]

assert _C  # whose library defines the operators

_ATEN = torch.ops.aten
_JOINSUM = torch.ops.joinsum


@torch.library.register_fake("joinsum::attention")  # type: ignore[untyped-decorator]
def _(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **keywords: Any) -> tuple[Tensor, Tensor]:
    # On all devices the results of one position are adjacent, as torch's kernels store them.
    samples, heads, length, _ = query.shape
    out = query.new_empty(samples, length, heads, value.shape[-1]).transpose(1, 2)
    return out, query.new_empty(samples, heads, length, dtype=accumulation_dtype(query.dtype))


@torch.library.register_fake("joinsum::attention_backward")  # type: ignore[untyped-decorator]
def _(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **keywords: Any) -> tuple[Tensor, ...]:
    by_position = ((x.shape[0], x.shape[2], x.shape[1], x.shape[3]) for x in (query, key, value))
    return tuple(query.new_empty(shape).transpose(1, 2) for shape in by_position)


def _forward(name: str) -> tuple[Any, Callable[..., Any]]:
    """An operator and what replaces it; of its results after the second, only lengths have meaning."""
    operator = getattr(_ATEN, name).default
    schema = operator._schema

    def run(*positional: Any, **keywords: Any) -> Any:
        given = _arguments(schema, positional, keywords)
        if given["dropout_p"] != 0:
            _refuse(name)
        query = given["query"]
        out, lse = _JOINSUM.attention(
            query, given["key"], given["value"], given.get("attn_bias"), given["is_causal"], given["scale"]
        )
        lengths = {"max_q": query.shape[2], "max_k": given["key"].shape[2]}
        rest = (lengths.get(each.name, query.new_empty((), dtype=torch.int64)) for each in schema.returns[2:])
        return (out, lse, *rest)

    return operator, run


def _backward(name: str) -> tuple[Any, Callable[..., Any]]:
    operator = getattr(_ATEN, name).default
    schema = operator._schema

    def run(*positional: Any, **keywords: Any) -> Any:
        given = _arguments(schema, positional, keywords)
        wanted = given.get("grad_input_mask", [True, True, True])
        if any(wanted[3:]):
            _refuse(name)
        grad = given["grad_out"] if "grad_out" in given else given["grad_out_"]
        mask = given.get("attn_bias")
        operands = (given[x] for x in ("query", "key", "value", "out", "logsumexp"))
        gradients = _JOINSUM.attention_backward(grad, *operands, mask, given["is_causal"], given["scale"])
        return (*gradients, *(None for _ in wanted[3:]))

    return operator, run


def _refuse(name: str) -> NoReturn:
    raise CaptureError(
        "capture: dropout inside of attention, and gradients of its mask, have no rule: choose SDPBackend.MATH: "
        f"operator=aten::{name}"
    )


def _arguments(schema: Any, positional: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
    given = {each.name: each.default_value for each in schema.arguments if each.has_default_value()}
    names = [each.name for each in schema.arguments if not each.kwarg_only]
    return given | dict(zip(names, positional, strict=False)) | keywords


_NAMES = ("flash", "efficient", "cudnn")

# The operators that torch chooses for attention on GPUs, forward and backward, by joinsum's.
GPU_ATTENTION: dict[Any, Callable[..., Any]] = dict(
    [_forward(f"_scaled_dot_product_{name}_attention") for name in _NAMES]
    + [_backward(f"_scaled_dot_product_{name}_attention_backward") for name in _NAMES]
)
