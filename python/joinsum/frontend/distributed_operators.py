"""Operators of distributed tensors: elementwise ones run on the blocks; others copy, view, or raise."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import increment_version

from joinsum import _C
from joinsum.errors import PlanError
from joinsum.frontend.distributed_folds import FOLDS, is_distributed, over_ranks
from joinsum.frontend.one_block import has_tensors, row_of, rows_of

if TYPE_CHECKING:
    from joinsum.frontend.distributed_tensor import DistributedTensor

__all__ = ["dispatch"]

_aten = torch.ops.aten

Handler = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]


def dispatch(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Runs an ATen operator of which an argument is a DistributedTensor; raises PlanError for one that is not here."""
    return _handler_of(func)(func, args, kwargs)


@functools.cache
def _handler_of(func: Any) -> Handler:
    handler = _HANDLERS.get(func)
    if handler is not None:
        return handler
    if func._schema.name in _FUSED or _is_foreach_elementwise(func):
        return _foreach
    if _is_elementwise(func):
        return _elementwise
    if any(x.is_out for x in func._schema.arguments):
        return _refused("no out=", "use the result, or an operator in place")
    if func._schema.is_mutable:
        return _refused("no operator on blocks", "write into y = x.full_tensor(), on every rank, then x.copy_(y)")
    return _refused("no operator on blocks", "give x.full_tensor(), on every rank")


def _is_elementwise(func: Any) -> bool:
    """Whether torch says so, of an operator or of its form that is not in place, which alone may carry the tag."""
    forms = [func]
    if func._opname.endswith("_"):
        packet = getattr(_aten, func._opname[:-1], None)
        forms.append(getattr(packet, func._overloadname, func))
    if any(torch.Tag.nondeterministic_seeded in form.tags for form in forms) or len(func._schema.returns) != 1:
        return False
    return func._schema.name in _FILLS or any(torch.Tag.pointwise in form.tags for form in forms)


def _is_foreach_elementwise(func: Any) -> bool:
    """Whether this is an operator of lists whose operator of one tensor is elementwise."""
    if not func._opname.startswith("_foreach_"):
        return False
    single = func._opname.removeprefix("_foreach_").removesuffix("_")
    packet = getattr(_aten, single, None)
    return single in ("copy", "zero") or (
        packet is not None
        and any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads())
    )


def _refused(what: str, remedy: str) -> Handler:
    def refuse(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        raise PlanError(f"DistributedTensor: {what}: operator={func}; {remedy}")

    return refuse


_FILLS = {"aten::zero_", "aten::fill_", "aten::masked_fill_", "aten::masked_fill"}
# Whole updates, elementwise, on lists as those of _foreach_ operators.
_FUSED = {"aten::_fused_adam_", "aten::_fused_adamw_", "aten::_fused_sgd_", "aten::_fused_adagrad_"}


# --- elementwise ------------------------------------------------------------------------------------------------------


def _blocks_like(func: Any, x: Any, like: DistributedTensor) -> list[Any]:
    """The operand for each block of `like`: a number as it is, a tensor in the same blocks."""
    if not isinstance(x, torch.Tensor):
        return [x] * len(like.blocks())
    if is_distributed(x):
        if not _lies_as(x, like):
            raise PlanError(
                f"DistributedTensor: operands lie differently: operator={func}, first={like.physical_type}, "
                f"other={x.physical_type}; "  # type: ignore[attr-defined]
                "give other.like(first.physical_type), or full_tensor() of both"
            )
        return x.blocks()  # type: ignore[attr-defined,no-any-return]
    if x.dim() == 0:
        return [x] * len(like.blocks())
    if x.shape != like.shape:
        raise PlanError(
            f"DistributedTensor: operands are not broadcast: operator={func}, shape={list(like.shape)}, "
            f"other={list(x.shape)}; expand the other one"
        )
    here = like.context
    placed = _C.place_tensor(x.detach(), _retyped(like.physical_type, x.dtype), here.local_sites, here.store, False)
    return placed.blocks(here.store)


def _lies_as(x: Any, like: DistributedTensor) -> bool:
    own, other = x.physical_type, like.physical_type
    if x.context is not like.context:
        raise PlanError(f"DistributedTensor: kept by the sites of another init: type={own}; give its full_tensor()")
    return own == other or _retyped(own, like.dtype) == other


def _retyped(type_: _C.PhysicalType, dtype: torch.dtype) -> _C.PhysicalType:
    from joinsum.frontend.distributed_tensor import retyped

    return retyped(type_, dtype)


def _first(args: Sequence[Any], kwargs: Mapping[str, Any]) -> DistributedTensor:
    found = next(x for x in (*args, *kwargs.values()) if is_distributed(x))
    return found  # type: ignore[no-any-return]


def _same_memory(x: Any) -> Any:
    """Equal for two arguments that are one array."""
    return (x.data_ptr(), x.shape, x.stride(), x.dtype) if isinstance(x, torch.Tensor) else None


def _elementwise(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    written = func._schema.is_mutable
    row = row_of(args[0], args) if args and is_distributed(args[0]) and not has_tensors(kwargs) else None
    if row is not None:
        made_of_row = func(*row, **kwargs)
        if written:
            increment_version(row[0])  # below autograd torch does not, and there are views of the block
            return args[0]
        return args[0].with_blocks([made_of_row])
    target = kwargs.get("out", args[0])
    like = target if is_distributed(target) else _first(args, kwargs)
    if written and target is not like:
        raise PlanError(
            f"DistributedTensor: a plain tensor is written from blocks: operator={func}; give x.full_tensor(), or, if "
            "this is an optimizer's state, build the optimizer after the model is distributed"
        )
    columns = [_blocks_like(func, x, like) for x in args]
    named = {key: _blocks_like(func, x, like) for key, x in kwargs.items()}
    made: dict[Any, torch.Tensor] = {}
    results = []
    for i in range(len(like.blocks())):
        row = [column[i] for column in columns]
        # Sites that share an array share the work; what is written in place is written once.
        others = {name: column[i] for name, column in named.items()}
        key = _same_memory(others.get("out", row[0])) if written else tuple(map(_same_memory, row))
        if key not in made:
            made[key] = func(*row, **others)
        results.append(made[key])
    if written:
        return target
    if results:
        return like.with_blocks(results)
    # Also a process without blocks knows the dtype.
    empty = func(*map(_emptied, args), **{name: _emptied(x) for name, x in kwargs.items()})
    return like.with_blocks([], empty.dtype)


def _emptied(x: Any) -> Any:
    """An operand of no elements in the place of a tensor that has any axes."""
    return torch.empty(0, dtype=x.dtype, device=x.device) if isinstance(x, torch.Tensor) and x.dim() else x


def _foreach(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The operator on the lists of all blocks: every list of tensors or numbers has an entry for each block."""
    leading = list(args[0])
    rows = None if has_tensors(kwargs) or any(map(_is_list, kwargs.values())) else rows_of(leading, args)
    if rows is not None:
        made = func(*rows, **kwargs)
        if func._schema.is_mutable:
            _written(func, rows)
            return _written(func, args)
        return [like.with_blocks([array]) for like, array in zip(leading, made, strict=True)]
    plan = []  # for each tensor of the leading list, which of its blocks are distinct arrays
    for x in leading:
        keys = [_same_memory(block) for block in x.blocks()] if is_distributed(x) else [None]
        order = {key: i for i, key in reversed(list(enumerate(keys)))}
        plan.append((keys, order))
    spread = [_spread(func, arg, leading, plan) for arg in args]
    named = {key: _spread(func, arg, leading, plan) for key, arg in kwargs.items()}
    # A process may have no block of any of them, and torch takes no empty list.
    results = func(*spread, **named) if spread[0] else []
    if func._schema.is_mutable:
        return _written(func, args)
    return _regrouped(leading, plan, results)


def _written(func: Any, args: Sequence[Any]) -> Any:
    """The result of an operator that has written into its lists, which autograd is told."""
    for given, argument in zip(args, func._schema.arguments, strict=False):
        if argument.is_write:
            increment_version(given)
    return args[0] if func._schema.returns else None


def _is_list(x: object) -> bool:
    return isinstance(x, (list, tuple))


def _spread(func: Any, arg: Any, leading: Sequence[Any], plan: Sequence[tuple[list[Any], dict[Any, int]]]) -> Any:
    if not _is_list(arg) or not arg:
        return arg
    entries = []
    for x, like, (keys, order) in zip(arg, leading, plan, strict=True):
        if not is_distributed(like):
            if is_distributed(x):
                raise PlanError(
                    f"DistributedTensor: a plain tensor is written from blocks: operator={func}; give x.full_tensor(), "
                    "or, if this is an optimizer's state, build the optimizer after the model is distributed"
                )
            entries.append(x)
            continue
        column = _blocks_like(func, x, like)
        entries += [column[i] for i in sorted(order[key] for key in set(keys))]
    return entries


def _regrouped(leading: Sequence[Any], plan: Sequence[tuple[list[Any], dict[Any, int]]], results: Any) -> list[Any]:
    out: list[Any] = []
    remaining = iter(results)
    for like, (keys, order) in zip(leading, plan, strict=True):
        made = {i: next(remaining) for i in sorted(order[key] for key in set(keys))}
        out.append(like.with_blocks([made[order[key]] for key in keys]) if is_distributed(like) else made[0])
    return out


# --- operators with rules of their own --------------------------------------------------------------------------------


def _unscale(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """What a GradScaler does to gradients: `found_inf` becomes 1 where an element of any of them, on any rank, is no
    number."""
    gradients, found, inverse = args
    plan = [([_same_memory(block) for block in x.blocks()] if is_distributed(x) else [None]) for x in gradients]
    spread = _spread(func, gradients, gradients, [(keys, {key: i for i, key in enumerate(keys)}) for keys in plan])
    if spread:
        func(spread, found, inverse)
    everywhere = over_ranks(next(x.context for x in gradients if is_distributed(x)), found)
    found.copy_(torch.stack(everywhere).amax(0))
    increment_version(gradients)


def _index_put(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """x[mask] = number"""
    target, (mask, *others), value = args[:3]
    if others or len(args) > 3 or kwargs or mask.dtype is not torch.bool or value.dim() or mask.shape != target.shape:
        raise PlanError(
            f"DistributedTensor: only a number is written where a mask of the same shape is true: operator={func}; "
            "give x.full_tensor(), on every rank"
        )
    return _elementwise(_aten.masked_fill_.Tensor, (target, mask, value), {})


# --- copies and views of the whole ------------------------------------------------------------------------------------


def _alias(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> DistributedTensor:
    made: DistributedTensor = args[0].alias()
    return made


def _same_shape(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> DistributedTensor:
    """A view of the same shape."""
    if tuple(args[1]) != tuple(args[0].shape):
        raise PlanError(
            f"DistributedTensor: no views in another shape: operator={func}, shape={list(args[0].shape)}, "
            f"asked={list(args[1])}; give x.full_tensor(), on every rank"
        )
    return _alias(func, args, kwargs)


def _each_block(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> DistributedTensor:
    """A new tensor from each block: clone, conversions of the dtype, tensors like this one."""
    device = kwargs.get("device")
    if device is not None and torch.device(device).type != args[0].device.type:
        raise PlanError(
            f"DistributedTensor: blocks stay on the sites' device: operator={func}, device={device}, "
            f"sites={args[0].device}; give x.full_tensor().to(device)"
        )
    options = {key: value for key, value in kwargs.items() if key not in ("memory_format", "device", "layout")}
    made: dict[Any, torch.Tensor] = {}
    for block in args[0].blocks():
        if _same_memory(block) not in made:
            made[_same_memory(block)] = func(block, *args[1:], **options)
    if not made:
        empty: DistributedTensor = args[0].with_blocks([], func(_emptied(args[0]), *args[1:], **options).dtype)
        return empty
    result: DistributedTensor = args[0].with_blocks([made[_same_memory(block)] for block in args[0].blocks()])
    return result


def _new_like(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    """new_empty, new_zeros, ...: of this shape in blocks, of any other a plain tensor."""
    x, shape = args[0], tuple(args[1])
    dtype = kwargs.get("dtype") or x.dtype
    if shape != tuple(x.shape):
        filled = {_aten.new_zeros.default: 0, _aten.new_ones.default: 1}
        return torch.full(shape, filled.get(func, 0), dtype=dtype, device=x.device)
    makers = {_aten.new_zeros.default: torch.zeros_like, _aten.new_ones.default: torch.ones_like}
    make = makers.get(func, torch.empty_like)
    return make(x, dtype=dtype)


def _copy(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """copy_: also from blocks that lie otherwise, and into a plain tensor; that is what copying is for."""
    into, source = args[:2]
    if not is_distributed(into):
        return into.copy_(source.whole())
    if source.shape != into.shape:
        source = source.full_tensor() if is_distributed(source) else source
        source = source.expand(into.shape)
    if is_distributed(source) and not source.stored.lies_as(into.stored):
        source = source.like(_retyped(into.physical_type, source.dtype))
    return _elementwise(func, (into, source), {})


def _item(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return func(args[0].whole())


def _equal(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    whole = [x.whole() if is_distributed(x) else x for x in args]
    return bool(torch.equal(*whole))


_HANDLERS: dict[Any, Handler] = {
    _aten.detach.default: _alias,
    _aten.alias.default: _alias,
    _aten.lift_fresh.default: _alias,
    _aten.view.default: _same_shape,
    _aten.expand.default: _same_shape,
    _aten.clone.default: _each_block,
    _aten._to_copy.default: _each_block,
    _aten.empty_like.default: _each_block,
    _aten.zeros_like.default: _each_block,
    _aten.ones_like.default: _each_block,
    _aten.full_like.default: _each_block,
    _aten.new_empty.default: _new_like,
    _aten.new_empty_strided.default: _new_like,
    _aten.new_zeros.default: _new_like,
    _aten.new_ones.default: _new_like,
    _aten.copy_.default: _copy,
    _aten.index_put_.default: _index_put,
    _aten._amp_foreach_non_finite_check_and_unscale_.default: _unscale,
    _aten._local_scalar_dense.default: _item,
    _aten.equal.default: _equal,
    **FOLDS,
}
