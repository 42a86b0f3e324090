"""What the forward pass keeps on the sites for the backward pass, in memory that the user has too: blocks of inputs and
of results. Where torch would see that the user has written there, the backward pass raises as torch's does."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from joinsum.frontend.distributed_tensor import DistributedTensor

__all__ = ["KeptForBackward", "check_unwritten", "memory_of", "separate_results"]

# Operators whose result is their operand's memory, though their schema does not say so.
_VIEWS = ("aten::_unsafe_view", "aten::_reshape_alias")


class KeptForBackward:
    """Of a forward graph: which of the results that are kept are views of its inputs and of its other results.

    saved   positions of the results that only the backward pass reads
    """

    def __init__(self, graph: Graph, saved: Collection[int]) -> None:
        self._saved = sorted(saved)
        results = list(graph.output_node().args[0])  # type: ignore[arg-type]
        inputs = {node: i for i, node in enumerate(graph.find_nodes(op="placeholder"))}
        roots = [_viewed(x) if isinstance(x, Node) else None for x in results]
        self._input = {i: inputs[roots[i]] for i in saved if roots[i] in inputs}
        self._alike = {
            i: [j for j, root in enumerate(roots) if j not in saved and root is roots[i]]
            for i in saved
            if roots[i] is not None
        }

    def protect(self, inputs: Sequence[Any], results: list[Any]) -> None:
        """Lets kept views know what the user may write into. What else lies in memory of the user's becomes a copy:
        torch has made one there, of which the plan has made none."""
        own = [x for i, x in enumerate(results) if i not in self._saved]
        given = {id(x) for x in inputs}
        memory = memory_of([*inputs, *own])
        for i in self._saved:
            value = results[i]
            if not isinstance(value, DistributedTensor) or id(value) in given:
                continue
            seen = [inputs[self._input[i]]] if i in self._input else []
            seen += [results[j] for j in self._alike.get(i, ()) if isinstance(results[j], torch.Tensor)]
            if seen:
                # A detached tensor has the version of its own, and keeps no graph of autograd alive.
                value.written_with = tuple((x.detach(), x._version) for x in seen)
            elif not memory.isdisjoint(memory_of([value])):
                results[i] = value.clone()


def check_unwritten(kept: Sequence[Any]) -> None:
    """Raises RuntimeError as torch does, where the user has written into memory that the forward pass has kept."""
    for x in kept:
        if isinstance(x, DistributedTensor):
            for tensor, version in x.written_with:
                if tensor._version != version:
                    raise RuntimeError(
                        "one of the variables needed for gradient computation has been modified by an inplace "
                        f"operation: shape={list(tensor.shape)}, version={tensor._version}, expected={version}; write "
                        "into it after the backward pass, or give the forward pass a clone of it"
                    )


def separate_results(graph: Graph, saved: Collection[int], stay: Collection[int]) -> None:
    """Makes results copies, in place: those that are what stays on the sites, for what users get is whole; and those
    that are views of what is kept, which AOTAutograd hides from autograd, so that users may write into them, and with
    that what they have written.

    stay   positions of the kept results that stay on the sites
    """
    output = graph.output_node()
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    kept = {_viewed(results[i]) for i in saved if isinstance(results[i], Node)}
    kept = {node for node in kept if node.op != "placeholder"}  # views of inputs are shown to be that
    staying = {results[i] for i in stay if isinstance(results[i], Node)}
    for i, node in enumerate(results):
        if i in saved or not isinstance(node, Node) or node.op == "placeholder":
            continue
        if node in staying or (_viewed(node) is not node and _viewed(node) in kept):
            with graph.inserting_before(output):
                results[i] = graph.call_function(torch.ops.aten.clone.default, (node,))
            results[i].meta = dict(node.meta)
    output.args = (tuple(results),)


def _viewed(node: Node) -> Node:
    """The node that this one is a view of; itself where it is none."""
    while True:
        source = node
        if node.target is operator.getitem and isinstance(node.args[0], Node):
            source = node.args[0]
        target = source.target
        if not isinstance(target, torch._ops.OpOverload) or not source.args or not isinstance(source.args[0], Node):
            return node
        schema = target._schema
        if schema.name not in _VIEWS and not any(each.alias_info for each in schema.returns):
            return node
        node = source.args[0]


def memory_of(values: Sequence[Any]) -> set[int]:
    """Where the tensors among the values lie, or their blocks."""
    tensors = [x for x in values if isinstance(x, torch.Tensor)]
    blocks = [block for x in tensors for block in (x.blocks() if isinstance(x, DistributedTensor) else [x])]
    return {block.untyped_storage().data_ptr() for block in blocks if block.numel()}
