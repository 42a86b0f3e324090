"""Gradients of tables of which a graph reads a few rows: those of what lookups found, instead of one as large as the
table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from joinsum.capture.recording.application import argument_of
from joinsum.distributed.distributed_tensor import gathered

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
    first      the place of the first lookup's gradient; after each gradient are its rows
    paddings   for each lookup the row without a gradient, or -1
    shape      the table's
    """

    position: int
    first: int
    paddings: tuple[int, ...]
    shape: tuple[int, int]

    def of(self, results: Sequence[Tensor]) -> Tensor:
        """The gradient, by the graph's results."""
        slopes, rows = [], []
        for i, padding in enumerate(self.paddings):
            slope = gathered(results[self.first + 2 * i]).reshape(-1, self.shape[1])
            row = gathered(results[self.first + 2 * i + 1]).reshape(-1).long()
            counts = row != padding
            slopes.append(slope if padding < 0 else slope[counts])
            rows.append(row if padding < 0 else row[counts])
        row, slope = (each[0] if len(each) == 1 else torch.cat(each) for each in (rows, slopes))
        return torch.sparse_coo_tensor(row[None], slope, self.shape, check_invariants=False)


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
        rows, columns = map(int, gradient.meta["val"].shape)
        taken.append(SparseGradient(position, len(results), tuple(each.padding for each in lookups), (rows, columns)))
        results[position] = None
        results += [node for each in lookups for node in (each.gradient, each.rows)]
    output.args = (tuple(results),)
    return taken
