"""Key-value caches of transformers among the arguments of a call: objects whose tensors a forward pass reads and
replaces, or writes in place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from joinsum.distributed.distributed_tensor import DistributedTensor

__all__ = ["KeyValueCaches"]

_LIBRARY = "transformers.cache_utils"

# Types of most attributes.
_ATTRIBUTES = frozenset({torch.Tensor, DistributedTensor, torch.dtype, torch.device, bool, int, type(None)})


class KeyValueCaches:
    """The caches among arguments, as they are before a call.

    Source: transformers, `cache_utils.py`: a cache has layers, and each layer its tensors as attributes.
    """

    def __init__(self, arguments: Any) -> None:
        library = sys.modules.get(_LIBRARY)
        self._caches = [] if library is None else list(_found(arguments, library.Cache))
        self._before = [(held, held.copy()) for held in self._holders()]

    def __bool__(self) -> bool:
        return bool(self._caches)

    def tensors(self) -> list[torch.Tensor]:
        """The tensors that they hold now."""
        return [x for held in self._holders() for x in _values(held) if isinstance(x, torch.Tensor)]

    def replace(self, new: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Replaces each tensor that they hold now."""
        for held in self._holders():
            for key, value in list(enumerate(held) if isinstance(held, list) else held.items()):
                if isinstance(value, torch.Tensor):
                    held[key] = new(value)

    def restore(self) -> None:
        """Undoes what has been assigned since this was made."""
        for held, before in self._before:
            if isinstance(held, list):
                held[:] = before
            else:
                held.clear()
                held.update(before)

    def _holders(self) -> Iterator[Any]:
        """The dictionaries of attributes of caches and layers, and the lists and dictionaries in them."""
        waiting: list[Any] = [*self._caches]
        while waiting:
            each = waiting.pop()
            held = each if isinstance(each, (dict, list)) else vars(each)
            yield held
            waiting += [x for x in _values(held) if isinstance(x, (dict, list)) or _has_attributes(type(x))]


def _found(tree: Any, kind: type) -> Iterator[Any]:
    """The caches in nested lists, tuples and dictionaries, most of whose leaves are tensors."""
    if isinstance(tree, kind):
        yield tree
    elif isinstance(tree, (list, tuple, dict)):
        for each in tree.values() if isinstance(tree, dict) else tree:
            if not isinstance(each, torch.Tensor):
                yield from _found(each, kind)


def _values(held: Any) -> list[Any]:
    return list(held.values()) if isinstance(held, dict) else list(held)


def _has_attributes(kind: type) -> bool:
    """Whether a type is one of caches or of their layers."""
    return kind not in _ATTRIBUTES and any(base.__module__ == _LIBRARY for base in kind.__mro__)
