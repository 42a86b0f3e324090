"""Products of matrices, attention and gelu in graphs that torch runs, by the fastest kernels there are, and sums of
products."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from joinsum import _C
from joinsum.capture.in_place import alike
from joinsum.capture.recording.application import argument_of

__all__ = ["accumulate_products", "use_products"]

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


def accumulate_products(graph: fx.Graph) -> int:
    """Replaces `total + a @ b` by `addmm(total, a, b)`, where nothing else reads the product, in the product's place if
    the total is there by then: gradients of a weight that is read several times are added up without a pass for each.
    Gives the number of these products.

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> example = torch.ones(2, 2)
    >>> graph = make_fx(lambda x, y: x @ x + y @ y + x @ y, tracing_mode="fake")(example, example).graph
    >>> accumulate_products(graph)
    2
    """
    places = {node: place for place, node in enumerate(graph.nodes)}
    count = 0
    for node in list(graph.nodes):
        if node.target is not _ATEN.add.Tensor or node.kwargs:
            continue
        for total, product in (node.args, reversed(node.args)):
            if not _accumulates(total, product, node) or places[total] > places[product]:
                continue
            with graph.inserting_before(product):
                new = graph.call_function(_ATEN.addmm.default, (total, *product.args))
            new.meta = dict(node.meta)
            places[new] = places[product]
            node.replace_all_uses_with(new)
            graph.erase_node(node)
            graph.erase_node(product)
            count += 1
            break
    return count


def _accumulates(total: Any, product: Any, node: fx.Node) -> bool:
    """Whether a node adds a product, which nothing else reads, to a total that nothing else reads, of its shape."""
    if not isinstance(total, fx.Node) or not isinstance(product, fx.Node) or total is product:
        return False
    if product.target is not _ATEN.mm.default or len(product.users) != 1 or len(total.users) != 1:
        return False
    one: Any = total.meta.get("val")
    other: torch.Tensor = node.meta["val"]
    same = alike(one, other) and one.device == other.device
    return same and total.op == "call_function" and other.is_floating_point()


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
