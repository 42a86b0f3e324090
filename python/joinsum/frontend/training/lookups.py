"""Gradients of tables of which a step reads a few rows: those of what lookups found, instead of one as large as the
table."""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
from torch import fx

from joinsum.capture.recording.application import argument_of
from joinsum.capture.recording.symbolic_numbers import shape_of
from joinsum.frontend.training.update import Lookup

__all__ = ["take_lookups"]

_ATEN = torch.ops.aten
_NAMES = ("grad_output", "indices", "padding_idx")


def take_lookups(graph: fx.Graph, gradient: fx.Node, gradients: Collection[fx.Node | None]) -> list[Lookup]:
    """The lookups whose gradient in a table this is, all with one padding; the gradient is erased, which nothing reads.
    Empty, and nothing is changed, where the table is read otherwise, lookups read more rows than it has, or another one
    of the step's `gradients` is the same or a part of it.

    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> def step(slope, index):
    ...     return torch.ops.aten.embedding_dense_backward(slope, index, 10, -1, False)
    >>> graph = make_fx(step, tracing_mode="fake")(torch.ones(3, 2), torch.tensor([1, 2, 1])).graph
    >>> (gradient,) = graph.find_nodes(op="call_function", target=torch.ops.aten.embedding_dense_backward.default)
    >>> graph.output_node().args = (None,)
    >>> take_lookups(graph, gradient, [gradient])
    [Lookup(gradient=slope_1, rows=index_1, padding=-1)]
    """
    sums: list[fx.Node] = []
    found = _lookups_in(gradient, 0, sums)
    own = {*sums, *found}
    if not found or sum(each in own for each in gradients) > 1:
        return []
    lookups = [Lookup(*[argument_of(each, name) for name in _NAMES]) for each in found]
    read = sum(math.prod(shape_of(each.rows.meta["val"])) for each in lookups)
    rows, columns = shape_of(gradient.meta["val"])
    if read > rows or columns == 0 or len({each.padding for each in lookups}) > 1:
        return []
    for node in [*sums, *found]:
        graph.erase_node(node)
    return lookups


def _lookups_in(node: fx.Node, readers: int, sums: list[fx.Node]) -> list[fx.Node]:
    """The gradients of lookups whose sum a node with so many readers is; the additions are noted, from the last one.
    Empty where it has other terms."""
    if len(node.users) != readers:
        return []
    if node.target is _ATEN.embedding_dense_backward.default:
        return [] if argument_of(node, "scale_grad_by_freq") else [node]
    if node.target is not _ATEN.add.Tensor or node.kwargs or len(node.args) != 2:
        return []
    sums.append(node)
    terms = [_lookups_in(each, 1, sums) if isinstance(each, fx.Node) else [] for each in node.args]
    return [each for term in terms for each in term] if all(terms) else []
