"""Random operators of a graph: joinsum's own, whose numbers csrc/kernels/torch_call/random.cpp makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from joinsum.capture.recording.application import operator_name
from joinsum.capture.recording.symbolic_numbers import shape_of, with_shape

__all__ = ["RandomNodes", "RandomRule", "with_random_operators"]

# Makes the node that replaces a random operator; None where the operator draws nothing.
RandomRule = Callable[["RandomNodes", fx.Node], fx.Node | None]


def with_random_operators(
    graph: fx.Graph, rule_of: Callable[[str], RandomRule | None]
) -> tuple[fx.Graph, fx.Node | None]:
    """A copy of the graph in which joinsum's operators replace torch's random ones, each with a stream of its own; and
    the placeholder of the seed that they read, which is the last one. None without random operators.

    rule_of   the rule of an operator by its name; None of operators that are not random

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> from joinsum.capture.operators.table import random_rule_of
    >>> gm = make_fx(lambda x: x + torch.rand_like(x), tracing_mode="fake")(torch.ones(2, 3))
    >>> gm.graph, seed = with_random_operators(gm.graph, random_rule_of)
    >>> drawn = torch.ops.joinsum.uniform(torch.tensor(7), 0, [6], [0], [6], [6], torch.float32)
    >>> torch.equal(gm(torch.zeros(2, 3), torch.tensor(7)).flatten(), drawn)
    True
    """
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph, {}))
    nodes = RandomNodes(copy)
    for node in list(copy.nodes):
        if isinstance(node.target, torch._ops.OpOverload):
            rule = rule_of(operator_name(node.target))
            if rule is not None:
                nodes.replace(node, rule)
    return copy, nodes.placeholder


class RandomNodes:
    """The random nodes of a graph, and the seed that they read."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.streams = 0
        self.placeholder: fx.Node | None = None

    @property
    def seed(self) -> fx.Node:
        """The placeholder of the seed, which follows all others."""
        if self.placeholder is None:
            last = list(self.graph.find_nodes(op="placeholder"))[-1:]
            with self.graph.inserting_after(last[0]) if last else self.graph.inserting_before(None):
                self.placeholder = self.graph.placeholder("seed")
        return self.placeholder

    def replace(self, node: fx.Node, rule: RandomRule) -> None:
        """Replaces `node` by the node that `rule` makes, with the next stream."""
        with self.graph.inserting_before(node):
            new = rule(self, node)
        if new is None:
            return
        node.replace_all_uses_with(new)
        self.graph.erase_node(node)
        self.streams += 1

    def argument(self, node: fx.Node, name: str) -> Any:
        """An argument by its name in the schema."""
        assert isinstance(node.target, torch._ops.OpOverload)
        for place, each in enumerate(node.target._schema.arguments):
            if each.name == name:
                value = node.args[place] if place < len(node.args) and not each.kwarg_only else each.default_value
                return node.kwargs.get(name, value)
        return None

    def call(
        self,
        node: fx.Node,
        operator: torch._ops.OpOverload,
        arguments: tuple[Any, ...],
        dtype: torch.dtype | None = None,
    ) -> fx.Node:
        """A node of another operator, whose result is like that of `node`, or has another dtype."""
        called = self.graph.call_function(operator, arguments)
        called.meta = dict(node.meta)
        if dtype is not None:
            value = node.meta["val"]
            called.meta["val"] = with_shape(value.to(dtype), shape_of(value))
        return called

    def random(self, node: fx.Node, name: str, dtype: torch.dtype, *more: Any) -> fx.Node:
        """The node of `joinsum::name` that gives random numbers of the shape of `node`."""
        shape = list(shape_of(node.meta["val"]))
        operator = getattr(torch.ops.joinsum, name).default
        arguments = (self.seed, self.streams, *more, shape, [0] * len(shape), shape, shape, dtype)
        return self.call(node, operator, arguments, dtype)
