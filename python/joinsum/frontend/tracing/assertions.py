"""Assertions about a tensor's value, as `assert mask.any().item()` or `torch._check_tensor_all(mask)`. Traces have them
as numbers that are not known before the run; here they are assertions of tensors, which are checked in the run."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

__all__ = ["assert_tensors"]

_CONDITIONAL = torch.sym_ite


def _either(condition: Any, one: Any, other: Any) -> Any:
    return torch.where(condition, one, other)


def _not(x: Any) -> torch.Tensor:
    return torch.logical_not(x)


# What is computed of numbers between, and how the same is computed of tensors of no axes.
_OF_TENSORS: dict[Any, Callable[..., Any]] = {
    **{each: each for each in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)},
    **{each: each for each in (operator.add, operator.sub, operator.mul, operator.truediv, operator.neg)},
    **{each: each for each in (operator.and_, operator.or_)},
    _CONDITIONAL: _either,
    torch.sym_not: _not,
    operator.not_: _not,
}
_ASSERT = torch.ops.aten._assert_scalar.default


def assert_tensors(gm: GraphModule) -> None:
    """Replaces assertions of numbers that are read of tensors in a graph of Dynamo's, in place, where the graph uses
    these numbers for nothing else."""
    reads = [*gm.graph.find_nodes(op="call_method", target="item")]
    changed = False
    for read in reads:
        between = _only_asserted(read)
        if between is not None:
            _replace(gm.graph, read, between)
            changed = True
    if changed:
        gm.recompile()


def _only_asserted(read: Node) -> list[Node] | None:
    """What depends on a number, in the order of the graph, if all of it ends in assertions; else None. Numbers of one
    tensor only."""
    found, left = {read}, [read]
    while left:
        for user in left.pop().users:
            if user.target is not _ASSERT and (user.op != "call_function" or user.target not in _OF_TENSORS):
                return None
            if user not in found:
                found.add(user)
                left.append(user)
    if len(found) == 1 or any(each not in found for node in found - {read} for each in node.all_input_nodes):
        return None
    return [node for node in read.graph.nodes if node in found][1:]


def _replace(graph: Graph, read: Node, between: list[Node]) -> None:
    with graph.inserting_before(read):
        tensors: dict[Node, Any] = {read: graph.call_function(_wide, (read.args[0],))}
    for node in between:
        with graph.inserting_before(node):
            if node.target is _ASSERT:
                condition = torch.fx.map_arg(node.args[0], lambda each: tensors[each])
                made = graph.call_function(_checked, (condition,))
            else:
                args = torch.fx.map_arg(node.args, lambda each: tensors[each])
                made = graph.call_function(_OF_TENSORS[node.target], args)
        if "stack_trace" in node.meta:
            made.meta["stack_trace"] = node.meta["stack_trace"]
        tensors[node] = made
    for node in [*reversed(between), read]:
        graph.erase_node(node)


def _wide(x: torch.Tensor) -> torch.Tensor:
    """As wide as Python's numbers are."""
    return x if x.dtype is torch.bool else x.double() if x.is_floating_point() else x.long()


def _checked(condition: torch.Tensor) -> None:
    torch._assert_async(condition, "an assertion of a tensor does not hold")
