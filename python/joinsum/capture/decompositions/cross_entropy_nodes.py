"""Cross entropies of a graph: one operator where torch has a log softmax and a loss, and one for their gradients."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from joinsum.capture.recording.application import argument_of
from joinsum.capture.recording.symbolic_numbers import plain, shape_of, with_shape

__all__ = ["use_cross_entropies"]


_ATEN = torch.ops.aten
_FORWARD = (_ATEN.nll_loss_forward.default, _ATEN.nll_loss2d_forward.default)
_BACKWARD = (_ATEN.nll_loss_backward.default, _ATEN.nll_loss2d_backward.default)


def use_cross_entropies(graph: fx.Graph) -> int:
    """Puts `joinsum::cross_entropy` in the place of a log softmax whose only reader is a negative log-likelihood, and
    `joinsum::cross_entropy_backward` in the place of their gradients; gives how many there were. Then neither the log
    softmax nor the gradient by it, which is zero nearly everywhere, is computed.

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> def loss(x, y):
    ...     return torch.nn.functional.cross_entropy(x, y)
    >>> gm = make_fx(loss, tracing_mode="fake")(torch.ones(3, 4), torch.tensor([0, 3, 1]))
    >>> use_cross_entropies(gm.graph)
    1
    """
    count = 0
    for scores in graph.find_nodes(op="call_function", target=_ATEN._log_softmax.default):
        _read_directly(graph, scores)
        loss = _loss_of(scores)
        if loss is None:
            continue
        _Replacement(graph, scores, loss).run()
        count += 1
    return count


def _read_directly(graph: fx.Graph, node: fx.Node) -> None:
    """Lets the readers of detached forms of a node read the node itself: gradients are part of the graph."""
    for user in list(node.users):
        if user.target is _ATEN.detach.default:
            _read_directly(graph, user)
            user.replace_all_uses_with(node)
            graph.erase_node(user)


def _loss_of(scores: fx.Node) -> fx.Node | None:
    """The loss of which a log softmax over classes is a step alone; None where it is read by others."""
    input, dim, widened = scores.args
    assert isinstance(input, fx.Node)
    rank = input.meta["val"].dim()
    if rank < 2 or dim not in (1, 1 - rank) or widened or input.meta["val"].dtype != scores.meta["val"].dtype:
        return None
    losses = [user for user in scores.users if user.target in _FORWARD]
    if len(losses) != 1:
        return None
    known = (losses[0], *_gradients(scores, losses[0]))
    return losses[0] if all(user in known for user in scores.users) else None


def _gradients(scores: fx.Node, loss: fx.Node) -> list[fx.Node]:
    """The loss's gradient and that of the log softmax, where they are there and only for each other."""
    found = [user for user in scores.users if user.target in _BACKWARD]
    same = ("target", "weight", "reduction", "ignore_index")
    if len(found) != 1 or any(argument_of(found[0], name) != argument_of(loss, name) for name in same):
        return []
    readers = list(found[0].users)
    if len(readers) != 1 or readers[0].target is not _ATEN._log_softmax_backward_data.default:
        return []
    grad, output = readers[0].args[:2]
    return [found[0], readers[0]] if grad is found[0] and output is scores else []


class _Replacement:
    """Nodes that compute the cross entropy in the place of `scores` and `loss`."""

    def __init__(self, graph: fx.Graph, scores: fx.Node, loss: fx.Node) -> None:
        self.graph, self.scores, self.loss = graph, scores, loss
        self.gradients = _gradients(scores, loss)
        self.input = scores.args[0]

    def run(self) -> None:
        target = argument_of(self.loss, "target")
        reduction = argument_of(self.loss, "reduction")
        options = [argument_of(self.loss, name) for name in ("weight", "reduction", "ignore_index")]
        value, total = self.loss.meta["val"]
        shape = shape_of(target.meta["val"])
        share = with_shape(self.scores.meta["val"].new_empty(plain(shape)), shape)
        lse = with_shape(share.to(torch.float64, copy=True), shape)
        with self.graph.inserting_before(self.loss):
            arguments = (self.input, target, *options)
            call = self._call(torch.ops.joinsum.cross_entropy.default, arguments, self.loss)
            call.meta["val"] = (value, total, share, lse)
            parts = [self._part(call, number) for number in range(4)]
        for user in list(self.loss.users):
            user.replace_all_uses_with(parts[user.args[1]])  # type: ignore[index]
            self.graph.erase_node(user)
        if self.gradients:
            self._backward(target, reduction, parts)
        self.graph.erase_node(self.loss)
        self.graph.erase_node(self.scores)

    def _backward(self, target: fx.Node, reduction: int, parts: list[fx.Node]) -> None:
        by_scores, by_input = self.gradients
        arguments = (argument_of(by_scores, "grad_output"), self.input, target, reduction, *parts[1:])
        with self.graph.inserting_before(by_input):
            call = self._call(torch.ops.joinsum.cross_entropy_backward.default, arguments, by_input)
        by_input.replace_all_uses_with(call)
        self.graph.erase_node(by_input)
        self.graph.erase_node(by_scores)

    def _call(self, target: torch._ops.OpOverload, arguments: tuple[Any, ...], place: fx.Node) -> fx.Node:
        node = self.graph.call_function(target, arguments)
        node.meta = dict(place.meta)
        return node

    def _part(self, call: fx.Node, number: int) -> fx.Node:
        part = self.graph.call_function(operator.getitem, (call, number))
        part.meta = {**call.meta, "val": call.meta["val"][number]}
        return part
