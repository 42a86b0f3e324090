"""Products of matrices, attention and gelu in graphs that torch runs, by the fastest kernels there are."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from joinsum import _C
from joinsum.capture.recording.application import argument_of

__all__ = ["use_products"]

assert _C  # its library defines the operators

_ATEN = torch.ops.aten
_JOINSUM = torch.ops.joinsum
_OPERATORS = {
    _ATEN.mm.default: _JOINSUM.matrix_product.default,
    _ATEN.bmm.default: _JOINSUM.matrix_product.default,
    _ATEN.addmm.default: _JOINSUM.add_matrix_product.default,
    _ATEN.baddbmm.default: _JOINSUM.add_matrix_product.default,
    _ATEN.addmm_.default: _JOINSUM.add_matrix_product_.default,
    _ATEN.baddbmm_.default: _JOINSUM.add_matrix_product_.default,
    _ATEN.gelu.default: _JOINSUM.gelu.default,
    _ATEN.gelu_backward.default: _JOINSUM.gelu_backward.default,
}
_OPERANDS = ("query", "key", "value")
_BACKWARD_OPERANDS = ("grad_out", *_OPERANDS, "out", "logsumexp")
_ATTENTION = {
    _ATEN._scaled_dot_product_flash_attention_for_cpu.default: _JOINSUM.attention.default,
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default: _JOINSUM.attention_backward.default,
}


def use_products(graph: fx.Graph) -> int:
    """Puts joinsum's operators in the place of torch's for products, attention and gelu in single precision on the
    CPU: the same results, by oneDNN where it is faster than MKL. Gives the number of these operators.

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> graph = make_fx(lambda x, y: x @ y + 1, tracing_mode="fake")(torch.ones(2, 3), torch.ones(3, 4)).graph
    >>> use_products(graph)
    1
    """
    count = 0
    for node in graph.nodes:
        if node.op != "call_function" or not _is_single(node.meta.get("val")):
            continue
        if node.target in _OPERATORS:
            node.target = _OPERATORS[node.target]
            count += 1
        elif node.target in _ATTENTION:
            count += _use_attention(node, _ATTENTION[node.target])
    return count


def _is_single(value: Any) -> bool:
    """Whether a result, or the first of several, has single precision and is on the CPU."""
    first = value[0] if isinstance(value, tuple) else value
    return isinstance(first, torch.Tensor) and first.dtype == torch.float32 and first.is_cpu


def _use_attention(node: fx.Node, replacement: torch._ops.OpOverload) -> bool:
    if argument_of(node, "dropout_p") != 0:
        return False
    names = _BACKWARD_OPERANDS if replacement is _JOINSUM.attention_backward.default else _OPERANDS
    node.args = tuple(argument_of(node, name) for name in (*names, "attn_mask", "is_causal", "scale"))
    node.kwargs, node.target = {}, replacement
    return True
