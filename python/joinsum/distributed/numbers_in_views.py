"""Numbers written into views of distributed tensors: `w[0] = 0`, `w[2:4].fill_(1)`.

A view is a copy, so the number is written into the tensor itself, where a mask says so, and into the copy.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from joinsum.distributed.block_tensor import BlockTensor, is_distributed

__all__ = ["remember_base", "write_number"]

_aten = torch.ops.aten


class _Origin(NamedTuple):
    """What a view was made of, and how. The reference is weak: a view keeps no blocks of its tensor."""

    base: weakref.ref[BlockTensor]
    func: Any
    others: Sequence[Any]
    kwargs: Mapping[str, Any]


def remember_base(view: Any, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Notes of the result of a view's operator what it is a view of."""
    if getattr(view, "read_only", False) and args and is_distributed(args[0]):
        view.origin = _Origin(weakref.ref(args[0]), func, args[1:], kwargs)


def write_number(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Runs an operator that writes one number into all elements of a view; false, having written nothing, for any other
    operator, where autograd is involved, where the tensor does not exist any more, and where its elements are not
    adjacent in it: of such a view torch's `contiguous` is a copy, and ours is not. All ranks call."""
    view: Any = args[0] if args else None
    if getattr(view, "origin", None) is None or (torch.is_grad_enabled() and view.requires_grad):
        return False
    number = _number(func, args, kwargs)
    tensors = _chain(view)
    mask = None if number is None or tensors is None else _mask(tensors)
    if mask is None or tensors is None:
        return False
    with torch.no_grad():
        tensors[-1].masked_fill_(mask, torch.as_tensor(number, dtype=view.dtype, device=view.device))
        view.read_only = False
        view.fill_(number)
        view.read_only = True
    return True


def _number(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What an operator writes into every element; None for others."""
    if func is _aten.zero_.default:
        return 0
    if kwargs or func not in (_aten.fill_.Scalar, _aten.fill_.Tensor, _aten.copy_.default):
        return None
    plain = not isinstance(args[1], torch.Tensor) or (args[1].dim() == 0 and not is_distributed(args[1]))
    return args[1] if plain else None


def _chain(view: Any) -> list[Any] | None:
    """The view, what it is a view of, and so on, to a tensor that is no view; None if one does not exist any more."""
    tensors = [view]
    while getattr(tensors[-1], "origin", None) is not None:
        base = tensors[-1].origin.base()
        if base is None:
            return None
        tensors.append(base)
    return None if tensors[-1].read_only else tensors


def _mask(tensors: Sequence[Any]) -> torch.Tensor | None:
    """Where the last of a view's tensors has the elements of the view; None where they are not adjacent."""
    mask = torch.zeros(tensors[-1].shape, dtype=torch.bool, device=tensors[-1].device)
    selected = mask
    for each in reversed(tensors[:-1]):
        selected = each.origin.func(selected, *each.origin.others, **each.origin.kwargs)
        if not selected.is_contiguous():
            return None
    selected.fill_(True)
    return mask
