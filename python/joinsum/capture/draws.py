"""Random operators of a graph that torch runs: the numbers are those of `joinsum.capture.random`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from joinsum.capture import random
from joinsum.capture.application import operator_name

__all__ = ["draw_by_counter"]

_Draw = Callable[["_Draws", fx.Node], fx.Node]
assert random.SEEDS  # whose operators these are


def draw_by_counter(graph: fx.Graph) -> bool:
    """Puts joinsum's random operators in the place of torch's, each with the stream that recording gives it; the seed
    is a new last placeholder. Whether there are any.

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> gm = make_fx(lambda x: x + torch.rand_like(x), tracing_mode="fake")(torch.ones(2, 3))
    >>> draw_by_counter(gm.graph)
    True
    >>> _ = gm.recompile()
    >>> drawn = torch.ops.joinsum.uniform(torch.tensor(7), 0, [6], [0], [6], [6], torch.float32)
    >>> torch.equal(gm(torch.zeros(2, 3), torch.tensor(7)).flatten(), drawn)
    True
    """
    draws = _Draws(graph)
    for node in list(graph.nodes):
        if isinstance(node.target, torch._ops.OpOverload):
            rule = _RULES.get(operator_name(node.target))
            if rule is not None and not (rule is _dropout and draws.argument(node, "train") is False):
                draws.replace(node, rule)
    return draws.seed is not None


class _Draws:
    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.seed: fx.Node | None = None
        self.streams = 0

    def replace(self, node: fx.Node, rule: _Draw) -> None:
        if self.seed is None:
            last = list(self.graph.find_nodes(op="placeholder"))[-1:]
            with self.graph.inserting_after(last[0]) if last else self.graph.inserting_before(None):
                self.seed = self.graph.placeholder("seed")
        with self.graph.inserting_before(node):
            new = rule(self, node)
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        self.graph.erase_node(node)
        self.streams += 1

    def argument(self, node: fx.Node, name: str) -> Any:
        """An argument by its name in the schema."""
        assert isinstance(node.target, torch._ops.OpOverload)
        for place, each in enumerate(node.target._schema.arguments):
            if each.name == name:
                given = node.args[place] if place < len(node.args) and not each.kwarg_only else each.default_value
                return node.kwargs.get(name, given)
        return None

    def drawn(self, node: fx.Node, name: str, dtype: torch.dtype, *more: Any) -> fx.Node:
        """Numbers of the node's shape."""
        shape = list(node.meta["val"].shape)
        operator = getattr(torch.ops.joinsum, name).default
        arguments = (self.seed, self.streams, *more, shape, [0] * len(shape), shape, shape, dtype)
        return self.graph.call_function(operator, arguments)


def _dropout(draws: _Draws, node: fx.Node) -> fx.Node:
    value, p = node.args[0], draws.argument(node, "p")
    shape = list(node.meta["val"][0].shape)
    arguments = (value, draws.seed, p, draws.streams, [0] * len(shape), shape, shape)
    return draws.graph.call_function(torch.ops.joinsum.dropout.default, arguments)


def _uniform(draws: _Draws, node: fx.Node) -> fx.Node:
    return draws.drawn(node, "uniform", node.meta["val"].dtype)


def _normal(draws: _Draws, node: fx.Node) -> fx.Node:
    return draws.drawn(node, "normal", node.meta["val"].dtype)


def _integers(draws: _Draws, node: fx.Node) -> fx.Node:
    low = draws.argument(node, "low") or 0
    return draws.drawn(node, "integers", node.meta["val"].dtype, low, draws.argument(node, "high"))


def _bernoulli(draws: _Draws, node: fx.Node) -> fx.Node:
    chance = draws.argument(node, "p")
    drawn = draws.drawn(node, "uniform", torch.float32)
    if chance is None:
        below = draws.graph.call_function(torch.ops.aten.lt.Tensor, (drawn, node.args[0]))
    else:
        below = draws.graph.call_function(torch.ops.aten.lt.Scalar, (drawn, float(chance)))
    return draws.graph.call_function(torch.ops.aten._to_copy.default, (below,), {"dtype": node.meta["val"].dtype})


_RULES: dict[str, _Draw] = {
    "aten::native_dropout": _dropout,
    "aten::rand": _uniform,
    "aten::rand_like": _uniform,
    "aten::randn": _normal,
    "aten::randn_like": _normal,
    "aten::randint": _integers,
    "aten::randint.low": _integers,
    "aten::bernoulli": _bernoulli,
    "aten::bernoulli.p": _bernoulli,
}
