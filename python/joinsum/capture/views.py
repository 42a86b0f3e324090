"""Graphs without operators that change nothing: a view of a tensor as it is, and the same view twice."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import fx

__all__ = ["merge_views"]

_ATEN = torch.ops.aten
_SHAPES = (_ATEN.view.default, _ATEN._unsafe_view.default, _ATEN.reshape.default)
_VIEWS = (*_SHAPES, _ATEN.t.default, _ATEN.transpose.int, _ATEN.permute.default, _ATEN.unsqueeze.default)


def merge_views(graph: fx.Graph) -> int:
    """Removes views that show a tensor as it is (`x.detach()`, `x.t().t()`, a view of `x`'s own shape), views of views
    of contiguous tensors, and views that there are already; gives the number of operators that are gone. Results stay
    tensors of their own, and nothing in the graph writes into a tensor.

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> graph = make_fx(lambda x: [x.t().t().detach().exp(), x.view(6).view(3, 2).exp()], tracing_mode="fake")
    >>> merge_views(graph(torch.ones(2, 3)).graph)
    4
    """
    before = len(graph.nodes)
    seen: dict[Hashable, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or node.kwargs or any(user.op == "output" for user in node.users):
            continue
        if node.target in _SHAPES:
            _skip_view_below(node)
        operand = _shown_as_it_is(node)
        if operand is None and node.target in _VIEWS:
            key = (node.target, *(tuple(each) if isinstance(each, list) else each for each in node.args))
            operand = seen.setdefault(key, node)
        if operand is not None and operand is not node:
            node.replace_all_uses_with(operand)
            graph.erase_node(node)
    graph.eliminate_dead_code(lambda node: node.target not in (*_VIEWS, _ATEN.detach.default))
    return before - len(graph.nodes)


def _skip_view_below(node: fx.Node) -> None:
    """Makes a view of a view of a contiguous tensor one of that tensor."""
    below: Any = node.args[0]
    if below.target in _SHAPES and below.args[0].meta["val"].is_contiguous():
        node.args = (below.args[0], *node.args[1:])


def _shown_as_it_is(node: fx.Node) -> Any:
    """The tensor that the node shows with the same shape and strides; None if it is another view, or no view."""
    operand: Any = node.args[0] if node.args else None
    if node.target is _ATEN.detach.default:
        return operand
    if node.target in (_ATEN.t.default, _ATEN.transpose.int) and operand.target is node.target:
        dims, below = [sorted(_dims(each)) for each in (node, operand)]
        return operand.args[0] if dims == below else None
    if node.target in _SHAPES and _layout(node) == _layout(operand):
        return operand
    return None


def _dims(node: fx.Node) -> list[Any]:
    rank = node.meta["val"].dim()
    return [dim % max(rank, 1) for dim in node.args[1:]]


def _layout(node: fx.Node) -> Any:
    value = node.meta["val"]
    return value.shape, value.stride()
