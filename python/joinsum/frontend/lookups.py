"""Gradients of tables of which a graph reads a few rows: those of what lookups found, instead of one as large as the
table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from joinsum.capture.recording.application import argument_of
from joinsum.capture.recording.symbolic_numbers import shape_of
from joinsum.distributed.distributed_tensor import gathered
from joinsum.distributed.sparse_tensors import packed

__all__ = ["Lookup", "SparseGradient", "lookups_of", "take_sparse_gradients"]

_ATEN = torch.ops.aten


class Lookup(NamedTuple):
    """The gradient [*b, d] of the rows that `rows` [*b] has looked up in a table [v, d]; row `padding` has none. Both
    are tensors, or their nodes in a graph."""

    gradient: Any
    rows: Any
    padding: int


def lookups_of(gradient: fx.Node, gradients: Sequence[fx.Node | None]) -> list[Lookup]:
    """The lookups whose gradient in a table this is. Empty where the table is read otherwise, or another one of the
    graph's `gradients` is the same or a part of it.

    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> def step(slope, index):
    ...     return torch.ops.aten.embedding_dense_backward(slope, index, 10, -1, False)
    >>> graph = make_fx(step, tracing_mode="fake")(torch.ones(3, 2), torch.tensor([1, 2, 1])).graph
    >>> (gradient,) = graph.find_nodes(op="call_function", target=torch.ops.aten.embedding_dense_backward.default)
    >>> lookups_of(gradient, [gradient])
    [Lookup(gradient=slope_1, rows=index_1, padding=-1)]
    """
    if any(each.op != "output" for each in gradient.users):
        return []
    terms: set[fx.Node] = set()
    found = _terms(gradient, terms)
    if sum(each in terms for each in gradients) > 1:
        return []
    return [Lookup(*[argument_of(each, name) for name in ("grad_output", "indices", "padding_idx")]) for each in found]


def _terms(node: fx.Node, seen: set[fx.Node]) -> list[fx.Node]:
    """The gradients of lookups whose sum a node is; all nodes of the sum are added to `seen`. Empty where it has other
    terms."""
    seen.add(node)
    if node.target is _ATEN.embedding_dense_backward.default:
        return [] if argument_of(node, "scale_grad_by_freq") else [node]
    if node.target is not _ATEN.add.Tensor or node.kwargs or len(node.args) != 2:
        return []
    alone = [isinstance(each, fx.Node) and len(each.users) == 1 for each in node.args]
    terms = [_terms(each, seen) for each in node.args] if all(alone) else [[]]  # type: ignore[arg-type]
    return [each for term in terms for each in term] if all(terms) else []


@dataclass(frozen=True)
class SparseGradient:
    """The gradient of a table as torch makes it with `sparse=True`: the rows of all lookups one after the other.

    position   its place among the results of a graph
    first      the place of the table's number of rows; for each lookup its gradient, rows and padding follow
    count      the number of lookups
    """

    position: int
    first: int
    count: int

    def of(self, results: Sequence[Any]) -> Tensor:
        """The gradient, by the graph's results."""
        slopes, rows = [], []
        for place in range(self.first + 1, self.first + 1 + 3 * self.count, 3):
            row, padding = gathered(results[place + 1]).reshape(-1).long(), int(results[place + 2])
            slope = gathered(results[place])
            slope = slope.reshape(row.numel(), slope.shape[-1])
            if padding >= 0:
                counts = row != padding
                slope, row = slope[counts], row[counts]
            slopes.append(slope)
            rows.append(row)
        row, slope = (each[0] if len(each) == 1 else torch.cat(each) for each in (rows, slopes))
        shape = (int(results[self.first]), slope.shape[1])
        return torch.sparse_coo_tensor(row[None], packed(slope), shape, check_invariants=False)


def take_sparse_gradients(graph: fx.Graph, tables: Collection[int]) -> list[SparseGradient]:
    """Those of a backward graph's results at positions `tables` that are gradients of lookups alone: the result becomes
    None, and what it consists of is added to the results."""
    output = graph.output_node()
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    taken = []
    for position in sorted(tables):
        gradient = results[position]
        lookups = lookups_of(gradient, results) if isinstance(gradient, fx.Node) else []
        if not lookups:
            continue
        taken.append(SparseGradient(position, len(results), len(lookups)))
        results[position] = None
        results.append(shape_of(gradient.meta["val"])[0])
        results += [part for each in lookups for part in each]
    output.args = (tuple(results),)
    return taken
