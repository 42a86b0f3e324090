"""Nested lists, tuples and dictionaries of tensors: torch's pytrees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

__all__ = ["tree_leaves", "tree_map", "tree_paths"]

tree_leaves: Callable[..., list[Any]] = pytree.tree_leaves

_LEAVES = frozenset({int, float, bool, str, type(None)})


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """`function` of every leaf, in the same structure: torch's `tree_map`, by a faster path for lists, tuples and
    dictionaries.

    >>> tree_map(lambda x: x + 1, {"a": [1, 2], "b": (3,)})
    {'a': [2, 3], 'b': (4,)}
    """
    kind = type(tree)
    if kind in _LEAVES or isinstance(tree, torch.Tensor):
        return function(tree)
    if kind is list:
        return [tree_map(function, each) for each in tree]
    if kind is tuple:
        return tuple([tree_map(function, each) for each in tree])
    if kind is dict:
        return {key: tree_map(function, each) for key, each in tree.items()}
    return pytree.tree_map(function, tree)


def tree_paths(tree: Any) -> list[tuple[tuple[str, ...], Any]]:
    """The leaves of a tree, each with the keys, positions and attributes that lead to it.

    >>> tree_paths({"a": [1, 2]})
    [(('a', '0'), 1), (('a', '1'), 2)]
    """
    leaves, _ = pytree.tree_flatten_with_path(tree)
    return [(tuple(map(_key_text, path)), leaf) for path, leaf in leaves]


def _key_text(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
