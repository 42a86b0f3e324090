"""The local fast path: elementwise operators on tensors of which this process has one block each.

Torch's dispatch to a subclass takes longer than many operators, and an optimizer calls about ten for each parameter.
So the methods that torch's optimizers call run on the blocks directly where autograd is not involved, and so do
operators of lists of tensors. Everything else goes through torch's dispatch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from joinsum.distributed.block_tensor import BlockTensor

__all__ = ["IN_PLACE", "NEW", "has_tensors", "on_blocks", "row_of", "rows_of"]

# Methods of torch.Tensor that write into it, and that give a new tensor of its shape: what torch's optimizers call.
IN_PLACE = ("add_", "addcdiv_", "addcmul_", "clamp_", "div_", "lerp_", "mul_", "neg_", "sqrt_", "sub_")
NEW = ("__add__", "__mul__", "__sub__", "__truediv__", "abs", "add", "div", "mul", "neg", "pow", "sign", "sqrt", "sub")


def row_of(like: BlockTensor, args: Sequence[Any]) -> list[Any] | None:
    """The arguments with tensors replaced by their blocks, if each tensor has shape and layout of `like` and one block
    in this process; else None. Plain tensors without axes count as numbers; on a single site others count as blocks."""
    kind, own = type(like), like.stored
    row = []
    for x in args:
        if isinstance(x, Tensor):
            if type(x) is kind:
                stored = x.stored
                same = (stored is own or stored.has_layout_of(own)) and (x is like or x.form[0] == like.form[0])
                block = stored.only_block() if same else None
                if block is None:
                    return None
                x = block
            elif x.dim() > 0:
                block = own.only_block() if own.context.sites == 1 and x.shape == like.shape else None
                if block is None or x.layout is not torch.strided:
                    return None
                x = x.detach().reshape(block.shape)
        row.append(x)
    return row


def rows_of(leading: Sequence[Any], args: Sequence[Any]) -> list[Any] | None:
    """For an operator of lists, of which `leading` is the first: its arguments with tensors replaced by their blocks,
    if every entry has the layout of the same entry of `leading` and one block in this process; else None."""
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


def _row_without_gradient(like: BlockTensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
    """The block of `like` and `row_of` the other arguments; None also where autograd is involved."""
    if torch.is_grad_enabled() or like.is_inference() or (kwargs and has_tensors(kwargs)):
        return None
    block = like.stored.only_block()
    row = None if block is None else row_of(like, args)
    return None if row is None else [block, *row]


def on_blocks(name: str) -> Callable[..., Any]:
    """The method of torch.Tensor for tensors of one block. An in-place method returns the tensor and advances its
    version counter; the result of any other has the tensor's layout."""
    native = getattr(Tensor, name)
    writes = name in IN_PLACE

    @functools.wraps(native)
    def method(self: BlockTensor, *args: Any, **kwargs: Any) -> Any:
        row = _row_without_gradient(self, args, kwargs)
        if row is None:
            return native(self, *args, **kwargs)
        result = native(*row, **kwargs)
        if writes:
            increment_version(self)
            return self
        return result if result is NotImplemented else self.with_blocks([result])

    return method
