"""Graphs of einsums, node by node: what depends on what, the same graph again, and for many samples at once."""

from __future__ import annotations

from collections.abc import Collection

from joinsum import _C

__all__ = ["batched_graph", "depending", "nodes_of"]


def depending(graph: _C.EinsumPlan, names: Collection[str]) -> set[str]:
    """Names of the nodes that depend on those inputs, which are among them.

    >>> import joinsum
    >>> graph = joinsum.EinsumPlan.parse("einsum\\ninput X: f32[4]\\noutput Z = einsum[i->; id; add](X)")
    >>> sorted(depending(graph.core, ["X"]))
    ['X', 't0']
    """
    reached = set(names)
    for name, inputs, *_ in graph.vertices:
        if not reached.isdisjoint(inputs):
            reached.add(name)
    return reached


def nodes_of(graph: _C.EinsumPlan) -> dict[str, _C.EinsumNode]:
    """The graph's nodes by name, made again."""
    return _made(graph, set(), [], 0)


def batched_graph(graph: _C.EinsumPlan, names: Collection[str], size: int) -> _C.EinsumPlan:
    """The graph for `size` samples at once: the inputs `names`, and what depends on them, have a first axis of samples.

    >>> import joinsum
    >>> graph = joinsum.EinsumPlan.parse("einsum\\ninput X: f32[4]\\noutput Z = einsum[i->; id; add](X)")
    >>> print(joinsum.EinsumPlan(batched_graph(graph.core, ["X"], 3)))
    einsum
    input X: f32[3,4]
    t0 = einsum[{sample}i->{sample}; id; add](X): f32[3]
    output Z = t0
    <BLANKLINE>
    """
    taken = {label for _, _, operands, result, *_ in graph.vertices for labels in (*operands, result) for label in labels}
    label = "sample"
    while label in taken:
        label += "_"
    nodes = _made(graph, depending(graph, names), [label], size)
    outputs = zip(graph.outputs, graph.output_nodes, strict=True)
    return _C.EinsumPlan.make([(name, nodes[node]) for (name, _), node in outputs])


def _made(graph: _C.EinsumPlan, batched: set[str], label: list[str], size: int) -> dict[str, _C.EinsumNode]:
    """The nodes, of which those in `batched` have one label more in front."""
    nodes = {
        name: _C.einsum_input(name, dtype, [size, *extents] if name in batched else extents)
        for name, (dtype, extents) in graph.inputs
    }
    for name, inputs, operands, result, join, aggregate, extents in graph.vertices:
        nodes[name] = _C.einsum_vertex(
            [nodes[each] for each in inputs],
            [label + labels if each in batched else labels for each, labels in zip(inputs, operands, strict=True)],
            label + result if name in batched else result,
            _C.Kernel(join),
            _C.Kernel(aggregate),
            extents,
        )
    return nodes
