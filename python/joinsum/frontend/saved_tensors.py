"""Tensors that the forward pass saves for the backward pass and that share memory with inputs or results of the user.

If the user writes into such memory between the two passes, the backward pass raises the error that torch raises."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from joinsum.algebra.sources import is_sparse
from joinsum.base.errors import CaptureError
from joinsum.capture.recording.application import operator_name, place_of
from joinsum.distributed.distributed_tensor import DistributedTensor

__all__ = ["SavedForBackward", "check_elements", "check_unwritten", "memory_of", "separate_results"]

# Operators whose result shares its operand's memory, although their schema does not say so.
_VIEWS = ("aten::_unsafe_view", "aten::_reshape_alias")


class SavedForBackward:
    """Finds which saved results of a forward graph are views of its inputs or of its other results.

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

    def separate(self, written: Sequence[torch.Tensor], results: list[Any]) -> None:
        """Copies saved tensors that share memory with tensors which the forward pass is about to write into: a copy of
        an input that the graph makes is the input itself."""
        memory = memory_of(written)
        for i in self._saved:
            if isinstance(results[i], DistributedTensor) and not memory.isdisjoint(memory_of([results[i]])):
                results[i] = results[i].clone()

    def protect(self, inputs: Sequence[Any], results: list[Any]) -> None:
        """Records, on each saved view, the tensors through which the user may write into its memory. Copies any other
        saved tensor that shares the user's memory: eager torch would have allocated it separately."""
        own = [x for i, x in enumerate(results) if i not in self._saved]
        arguments = {id(x) for x in inputs}
        memory = memory_of([*inputs, *own])
        for i in self._saved:
            value = results[i]
            if not isinstance(value, DistributedTensor) or id(value) in arguments:
                continue
            seen = [inputs[self._input[i]]] if i in self._input else []
            seen += [results[j] for j in self._alike.get(i, ()) if isinstance(results[j], torch.Tensor)]
            if seen:
                # A detached tensor shares the version counter, and does not keep autograd's graph alive.
                value.written_with = tuple((x.detach(), x._version) for x in seen)
            elif not memory.isdisjoint(memory_of([value])):
                results[i] = value.clone()


def check_unwritten(saved: Sequence[Any]) -> None:
    """Raises RuntimeError, as torch does, if the user has written into memory that is saved for the backward pass."""
    for x in saved:
        if isinstance(x, DistributedTensor):
            for tensor, version in x.written_with:
                if tensor._version != version:
                    raise RuntimeError(
                        "one of the variables needed for gradient computation has been modified by an inplace "
                        f"operation: shape={list(tensor.shape)}, version={tensor._version}, expected={version}; write "
                        "into it after the backward pass, or give the forward pass a clone of it"
                    )


def check_elements(graph: Graph, saved: Collection[int], persistent: Collection[int]) -> None:
    """Raises CaptureError where a saved result of an empty batch has no elements: no block could hold it.

    persistent   positions of the inputs that are the model's
    """
    results: Any = graph.output_node().args[0]
    inputs = list(graph.find_nodes(op="placeholder"))
    own = {node for i, node in enumerate(inputs) if i in persistent}
    if not any(_is_empty(node) for node in inputs if node not in own):
        return  # what torch saves of operators that need nothing, as batch norm in evaluation mode, may be empty
    for node in (results[i] for i in sorted(saved)):
        if isinstance(node, Node) and node not in own and _is_empty(node):
            value = node.meta["val"]
            name = f"operator={operator_name(node.target)}, " if isinstance(node.target, torch._ops.OpOverload) else ""
            raise CaptureError(
                f"capture: a tensor has no elements: {name}shape={list(map(int, value.shape))}{place_of(node.meta)}; "
                "give batches of at least one element, or leave the backward pass out with torch.no_grad()"
            )


def _is_empty(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and 0 in value.shape


def separate_results(graph: Graph, saved: Collection[int], stay: Collection[int]) -> None:
    """Replaces results by copies, in place, where the user's result and a saved one must not be the same tensor.

    These are results that also stay distributed, because users get unsharded tensors; and views of saved results,
    because AOTAutograd hides from autograd that they are views, so it would not notice that the user writes into them.

    stay   positions of the saved results that stay on the sites
    """
    output = graph.output_node()
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    bases = {_viewed(results[i]) for i in saved if isinstance(results[i], Node)}
    bases = {node for node in bases if node.op != "placeholder"}  # autograd knows views of inputs
    staying = {results[i] for i in stay if isinstance(results[i], Node)}
    for i, node in enumerate(results):
        if i in saved or not isinstance(node, Node) or node.op == "placeholder":
            continue
        if node in staying or (_viewed(node) is not node and _viewed(node) in bases):
            with graph.inserting_before(output):
                results[i] = graph.call_function(torch.ops.aten.clone.default, (node,))
            results[i].meta = dict(node.meta)
    output.args = (tuple(results),)


def _viewed(node: Node) -> Node:
    """The node of which this one is a view, or the node itself."""
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
    """Addresses of the storages of the tensors among the values, or of the blocks of distributed ones."""
    tensors = [x for x in values if isinstance(x, torch.Tensor)]
    blocks = [block for x in tensors for block in (x.blocks() if isinstance(x, DistributedTensor) else [x])]
    return {block.untyped_storage().data_ptr() for block in blocks if block.numel() and not is_sparse(block)}
