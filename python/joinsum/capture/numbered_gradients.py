"""`torch.autograd.grad` in a traced graph, whose operators get the sequence numbers of the forward operators that they
are the gradients of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.autograd.graph import Node
from torch.fx import traceback

__all__ = ["numbered_gradients"]


def numbered_gradients(outputs: Any, *args: Any, **kwargs: Any) -> Any:
    """As `torch.autograd.grad`. While AOTAutograd traces it, each operator gets the number of its forward operator as
    `seq_nr`, as those of a backward pass of its own do.

    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> numbered_gradients(x * x, x)
    (tensor(6.),)
    """
    if traceback.has_preserved_node_meta():
        for node in _nodes(outputs if isinstance(outputs, Sequence) else [outputs]):
            node.register_prehook(_numbers(node._sequence_nr()))
            node.register_hook(_ends)
    return torch.autograd.grad(outputs, *args, **kwargs)


def _nodes(outputs: Sequence[torch.Tensor]) -> Iterator[Node]:
    """The nodes of autograd that outputs come from, each once."""
    found = dict.fromkeys(each.grad_fn for each in outputs if each.grad_fn is not None)
    queue = list(found)
    for node in queue:
        for other, _ in node.next_functions:
            if other is not None and other not in found:
                found[other] = None
                queue.append(other)
    yield from queue


def _numbers(number: int) -> Callable[..., None]:
    return lambda *_: traceback.set_grad_fn_seq_nr(number)


def _ends(*_: Any) -> None:
    traceback.reset_grad_fn_seq_nr()
