"""Elementwise operators on tensors of which this process has one block each: torch's operator on the blocks.

Torch's way to an operator of a subclass takes longer than many an operator, and an optimizer calls about ten for each
parameter. So the methods that torch's optimizers call go to the blocks by themselves where autograd has no part in it,
and so do lists of tensors, at once. Whatever does not lie so simply takes torch's way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

if TYPE_CHECKING:
    from joinsum.frontend.distributed_tensor import DistributedTensor

__all__ = ["IN_PLACE", "NEW", "has_tensors", "on_blocks", "row_of", "rows_of"]

# Methods of torch.Tensor that write into it, and that give a new tensor of its shape: what torch's optimizers call.
IN_PLACE = ("add_", "addcdiv_", "addcmul_", "clamp_", "div_", "lerp_", "mul_", "neg_", "sqrt_", "sub_")
NEW = ("__add__", "__mul__", "__sub__", "__truediv__", "abs", "add", "div", "mul", "neg", "pow", "sign", "sqrt", "sub")


def row_of(like: DistributedTensor, args: Sequence[Any]) -> list[Any] | None:
    """The arguments with blocks in the place of tensors, if each of these lies as `like` does, in one block here. Plain
    tensors of one element are as numbers; on one site others are as blocks."""
    kind, own = type(like), like.stored
    row = []
    for x in args:
        if isinstance(x, Tensor):
            if type(x) is kind:
                stored = x.stored
                block = stored.only_block() if stored is own or stored.lies_as(own) else None
                if block is None:
                    return None
                x = block
            elif x.dim() > 0:
                block = own.only_block() if own.context.sites == 1 and x.shape == like.shape else None
                if block is None:
                    return None
                x = x.detach().reshape(block.shape)
        row.append(x)
    return row


def rows_of(leading: Sequence[Any], args: Sequence[Any]) -> list[Any] | None:
    """For an operator of lists, of which `leading` is the first: its arguments with blocks in the place of tensors, if
    every entry of a list lies as that of `leading` does, in one block here."""
    found: list[Any] = []
    for arg in args:
        if not isinstance(arg, (list, tuple)) or not arg:
            found.append(arg)
            continue
        if len(arg) != len(leading):
            return None
        entries: list[Any] = []
        for like, x in zip(leading, arg, strict=True):
            row = row_of(like, (x,)) if hasattr(like, "stored") else None
            if row is None:
                return None
            entries += row
        found.append(entries)
    return found


def has_tensors(kwargs: Mapping[str, Any]) -> bool:
    for x in kwargs.values():  # noqa: SIM110 - a generator takes longer than the few values
        if isinstance(x, Tensor):
            return True
    return False


def _row_without_gradient(like: DistributedTensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
    """The block of `like` and `row_of` the other arguments; None also where autograd has a part in it."""
    if torch.is_grad_enabled() or like.is_inference() or (kwargs and has_tensors(kwargs)):
        return None
    block = like.stored.only_block()
    row = None if block is None else row_of(like, args)
    return None if row is None else [block, *row]


def on_blocks(name: str) -> Callable[..., Any]:
    """The method of torch.Tensor for tensors of one block. One that writes into the tensor gives it back, and autograd
    sees that, as of any tensor; what another one makes lies as the tensor does."""
    native = getattr(Tensor, name)
    writes = name in IN_PLACE

    @functools.wraps(native)
    def method(self: DistributedTensor, *args: Any, **kwargs: Any) -> Any:
        row = _row_without_gradient(self, args, kwargs)
        if row is None:
            return native(self, *args, **kwargs)
        made = native(*row, **kwargs)
        if writes:
            increment_version(self)
            return self
        return made if made is NotImplemented else self.with_blocks([made])

    return method
