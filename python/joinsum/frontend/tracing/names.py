"""Names of a captured graph's tensors: of parameters those of `state_dict`, of inputs those of the arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from joinsum.base.trees import tree_paths

__all__ = ["argument_names"]


def argument_names(function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> dict[int, str]:
    """The name of each tensor among the arguments of a call, by the tensor's identity: the argument's name, then the
    keys and positions that lead to the tensor, `batch.ids`. A tensor that occurs twice has its first name.

    >>> def forward(x, batch, *others, mask=None): ...
    >>> x, ids, mask = torch.ones(1), torch.ones(1), torch.ones(1)
    >>> list(argument_names(forward, [x, {"ids": ids}, x], {"mask": mask}).values())
    ['x', 'batch.ids', 'mask']
    """
    names: dict[int, str] = {}
    for name, value in _bound(function, args, keywords):
        for path, leaf in tree_paths(value):
            if isinstance(leaf, torch.Tensor):
                names.setdefault(id(leaf), ".".join([name, *path]))
    return names


def _bound(
    function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]
) -> Iterator[tuple[str, object]]:
    """The arguments by their parameter names in the signature; `input.0` and so on where there is no signature."""
    try:
        signature = inspect.signature(function)
        arguments = signature.bind(*args, **keywords).arguments
    except (TypeError, ValueError):
        yield from (("input", list(args)), *keywords.items())
        return
    for name, value in arguments.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            yield from value.items()
        else:
            yield name, value
