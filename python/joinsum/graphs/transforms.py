"""Graphs derived from a graph of einsums: with numbered names, and for batches of samples."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from joinsum import _C
from joinsum.base.errors import PlanError

__all__ = ["batched_graph", "depending", "numbered"]


def depending(graph: _C.EinsumPlan, names: Collection[str]) -> set[str]:
    """Names of the nodes that depend on those inputs, which are among them.

    >>> import joinsum
    >>> graph = joinsum.Graph.parse("einsum\\ninput X: f32[4]\\noutput Z = einsum[i->; id; add](X)")
    >>> sorted(depending(graph.core, ["X"]))
    ['X', 't0']
    """
    reached = set(names)
    for name, _, inputs, *_ in graph.uses:
        if not reached.isdisjoint(inputs):
            reached.add(name)
    return reached


def numbered(graph: _C.EinsumPlan, inputs: Sequence[str]) -> _C.EinsumPlan:
    """The graph with its inputs called x0, x1, ..., in the order that `inputs` names them, and outputs z0, z1, .... It
    need not have all of these inputs. Its vertices are in the order of the graph's.

    >>> import joinsum
    >>> graph = joinsum.Graph.parse("einsum\\ninput d_Z: f32[4]\\noutput Z = einsum[i->; id; add](d_Z)")
    >>> print(numbered(graph.core, ["d_Z"]))
    einsum
    input x0: f32[4]
    t0 = einsum[i->; id; add](x0): f32[]
    output z0 = t0
    <BLANKLINE>
    """
    types = dict(graph.inputs)
    entries = graph.sparse_inputs
    nodes = {
        name: _C.einsum_input(f"x{i}", *types[name], entries.get(name))
        for i, name in enumerate(inputs)
        if name in types
    }
    _add_vertices(nodes, graph, set(), [])
    return _C.EinsumPlan.make([(f"z{i}", nodes[node]) for i, node in enumerate(graph.output_nodes)])


def batched_graph(graph: _C.EinsumPlan, names: Collection[str], size: int) -> _C.EinsumPlan:
    """The graph for `size` samples at once: the inputs `names`, and what depends on them, have a first axis of samples.

    >>> import joinsum
    >>> graph = joinsum.Graph.parse("einsum\\ninput X: f32[4]\\noutput Z = einsum[i->; id; add](X)")
    >>> print(batched_graph(graph.core, ["X"], 3))
    einsum
    input X: f32[3,4]
    t0 = einsum[{sample}i->{sample}; id; add](X): f32[3]
    output Z = t0
    <BLANKLINE>
    """
    taken = {
        label for _, _, operands, result, *_ in graph.vertices for labels in (*operands, result) for label in labels
    }
    label = "sample"
    while label in taken:
        label += "_"
    reached = depending(graph, names)
    entries = graph.sparse_inputs
    nodes = {
        name: _C.einsum_input(name, dtype, [size, *extents] if name in reached else extents, entries.get(name))
        for name, (dtype, extents) in graph.inputs
    }
    _add_vertices(nodes, graph, reached, [label])
    outputs = zip(graph.outputs, graph.output_nodes, strict=True)
    return _C.EinsumPlan.make([(name, nodes[node]) for (name, _), node in outputs])


def _add_vertices(nodes: dict[str, _C.EinsumNode], graph: _C.EinsumPlan, reached: set[str], first: list[str]) -> None:
    """Adds the graph's vertices to the inputs; of the nodes in `reached` the labels begin with `first`."""
    if len(graph.uses) > len(graph.vertices):
        function = next(function for _, function, *_ in graph.uses if function != "einsum")
        raise PlanError(f"graph: a graph that calls torch's operators cannot be rebuilt: operator={function}")
    for name, inputs, operands, result, join, aggregate, extents in graph.vertices:
        nodes[name] = _C.einsum_vertex(
            [nodes[each] for each in inputs],
            [first + labels if each in reached else labels for each, labels in zip(inputs, operands, strict=True)],
            first + result if name in reached else result,
            _C.Kernel(join),
            _C.Kernel(aggregate),
            extents,
        )
