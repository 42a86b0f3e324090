"""Operators of distributed tensors: elementwise ones run on the blocks; others copy, view, or raise."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd.graph import increment_version

from joinsum import _C
from joinsum.base.errors import PlanError
from joinsum.distributed.block_tensor import BlockTensor, is_distributed, retyped
from joinsum.distributed.draws import DRAWS, check_shape_of_out
from joinsum.distributed.local_fast_path import has_tensors, row_of, rows_of
from joinsum.distributed.numbers_in_views import remember_base, write_number
from joinsum.distributed.reductions import REDUCTIONS, is_norm_of_all, vector_norm
from joinsum.distributed.sparse_tensors import is_sparse_operand, sparse_mask, with_sparse

__all__ = ["dispatch", "plan_other_operators"]

_aten = torch.ops.aten

Handler = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]


def dispatch(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Runs an ATen operator of which an argument is a DistributedTensor: by its handler, or as a plan of its own."""
    if not func._schema.is_mutable:
        if torch.is_inference_mode_enabled():
            # Where the operand is no inference tensor, torch lets a view of it be none.
            with torch.inference_mode(False), torch.no_grad():
                return _handler_of(func)(func, args, kwargs)
        return _handler_of(func)(func, args, kwargs)
    if any(map(_is_read_only, _written_arguments(func, args, kwargs))):
        if write_number(func, args, kwargs):
            return args[0]
        raise PlanError(
            f"DistributedTensor: a view of distributed tensors is a copy, which is not written: operator={func}; write "
            "into the tensor itself, with a mask, or into y = x.full_tensor(), then x.copy_(y)"
        )
    result = _handler_of(func)(func, args, kwargs)
    if args and getattr(args[0], "lacking_values", ()):
        args[0].lacking_values.clear()
    return result


def _written_arguments(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The tensors, and lists of tensors, that an operator writes into."""
    written = _names_of_written(func)
    found = [x for x, name in zip(args, written, strict=False) if name]
    return found + [kwargs[name] for name in written if name in kwargs] if kwargs else found


@functools.cache
def _names_of_written(func: Any) -> tuple[str, ...]:
    """For each argument of an operator its name, if the operator writes into it, else an empty one."""
    return tuple(x.name if x.is_write else "" for x in func._schema.arguments)


def _is_read_only(x: Any) -> bool:
    return any(map(_is_read_only, x)) if _is_list(x) else getattr(x, "read_only", False)


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
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
        return _decomposed  # below autograd, which has not done it: in inference mode, and in handlers
    if func._schema.is_mutable:
        return _refused("no operator on blocks", "write into y = x.full_tensor(), on every rank, then x.copy_(y)")
    return _other


def _decomposed(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return func.decompose(*args, **kwargs)


def plan_other_operators(run: Handler) -> None:
    """Sets what runs operators without a handler: as plans, which are made in a room above this one."""
    global _planned
    _planned = run


_planned: Handler


def _other(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    result = _planned(func, args, kwargs)
    remember_base(result, func, args, kwargs)
    return result


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
# Updates of optimizers, elementwise, on lists as those of _foreach_ operators.
_FUSED = {"aten::_fused_adam_", "aten::_fused_adamw_", "aten::_fused_sgd_", "aten::_fused_adagrad_"}


# --- elementwise ------------------------------------------------------------------------------------------------------


def _blocks_like(func: Any, x: Any, like: BlockTensor) -> list[Any]:
    """The operand for each block of `like`: a number itself, a tensor in the same blocks, a smaller one broadcast."""
    if not isinstance(x, torch.Tensor):
        return [x] * len(like.blocks())
    if is_distributed(x):
        _check_sites(x, like)
        if x.shape == like.shape:
            return _blocks_of_same_layout(func, x, like)
        x = x.unsharded()  # type: ignore[attr-defined]
    if x.dim() == 0:
        return [x] * len(like.blocks())
    if x.shape != like.shape:
        x = _expanded(func, x, like)
    current = like.context
    stored = _C.place_tensor(
        x.detach(), retyped(like.physical_type, x.dtype), current.local_sites, current.store, False
    )
    return stored.blocks()


def _expanded(func: Any, x: torch.Tensor, like: BlockTensor) -> torch.Tensor:
    """The operand with the shape of `like`, as a view that repeats its elements."""
    try:
        return x.detach().expand(like.shape)
    except RuntimeError:
        raise PlanError(
            f"DistributedTensor: an operand does not broadcast to the tensor: operator={func}, "
            f"shape={list(like.shape)}, operand={list(x.shape)}; reduce or reshape the operand"
        ) from None


def _check_sites(x: Any, like: BlockTensor) -> None:
    if x.context is not like.context:
        raise PlanError(
            f"DistributedTensor: stored on the sites of another init: type={x.physical_type}; give its full_tensor()"
        )


def _blocks_of_same_layout(func: Any, x: Any, like: BlockTensor) -> list[Any]:
    own, other = x.physical_type, like.physical_type
    if own != other and retyped(own, like.dtype) != other:
        raise PlanError(
            f"DistributedTensor: operands have different layouts: operator={func}, first={other}, other={own}; "
            "give other.like(first.physical_type), or full_tensor() of both"
        )
    blocks: list[Any] = x.blocks()
    return blocks


def _first(args: Sequence[Any], kwargs: Mapping[str, Any]) -> BlockTensor:
    found = next(x for x in (*args, *kwargs.values()) if is_distributed(x))
    return found  # type: ignore[no-any-return]


def _same_memory(x: Any) -> Any:
    """Equal for two arguments that are one array."""
    return (x.data_ptr(), x.shape, x.stride(), x.dtype) if isinstance(x, torch.Tensor) else None


def _elementwise(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    written = func._schema.is_mutable
    row = row_of(args[0], args) if args and is_distributed(args[0]) and not has_tensors(kwargs) else None
    if row is not None:
        result = func(*row, **kwargs)
        if written:
            increment_version(row[0])  # below autograd torch does not, and there are views of the block
            return args[0]
        return args[0].with_blocks([result])
    target = kwargs.get("out", args[0])
    like = target if is_distributed(target) else _first(args, kwargs)
    if written and target is not like:
        return func(*map(_unsharded, args), **{name: _unsharded(x) for name, x in kwargs.items()})
    if not written and any(_is_broadcast(x, like) for x in (*args, *kwargs.values())):
        return _planned(func, args, kwargs)
    if "out" in kwargs:
        check_shape_of_out(func, args, target)
    columns = [_blocks_like(func, x, like) for x in args]
    named = {key: _blocks_like(func, x, like) for key, x in kwargs.items()}
    computed: dict[Any, torch.Tensor] = {}
    results = []
    for i in range(len(like.blocks())):
        row = [column[i] for column in columns]
        # Sites that share an array share the work; an array is written once.
        others = {name: column[i] for name, column in named.items()}
        key = _same_memory(others.get("out", row[0])) if written else tuple(map(_same_memory, row))
        if key not in computed:
            computed[key] = func(*row, **others)
        results.append(computed[key])
    if written:
        return target
    if results:
        return like.with_blocks(results)
    # A process without blocks needs the dtype too.
    empty = func(*map(_emptied, args), **{name: _emptied(x) for name, x in kwargs.items()})
    return like.with_blocks([], empty.dtype)


def _is_broadcast(x: Any, like: BlockTensor) -> bool:
    return isinstance(x, torch.Tensor) and x.dim() > 0 and x.shape != like.shape


def _emptied(x: Any) -> Any:
    """An operand without elements that replaces a tensor with axes."""
    return torch.empty(0, dtype=x.dtype, device=x.device) if isinstance(x, torch.Tensor) and x.dim() else x


def _foreach(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The operator on the lists of all blocks: every list of tensors or numbers has an entry for each block."""
    leading = list(args[0])
    rows = None if has_tensors(kwargs) or any(map(_is_list, kwargs.values())) else rows_of(leading, args)
    if rows is not None:
        results = func(*rows, **kwargs)
        if func._schema.is_mutable:
            _written(func, rows)
            return _written(func, args)
        return [like.with_blocks([array]) for like, array in zip(leading, results, strict=True)]
    distinct = [_first_blocks(x) for x in leading]
    spread = [_spread(func, arg, leading, distinct) for arg in args]
    named = {key: _spread(func, arg, leading, distinct) for key, arg in kwargs.items()}
    # A process may have no block of any of them, and torch takes no empty list.
    results = func(*spread, **named) if spread[0] else []
    return _written(func, args) if func._schema.is_mutable else _regrouped(leading, distinct, results)


def _first_blocks(x: Any) -> list[int]:
    """For each block of a tensor the number of the first block that is the same array."""
    keys = [_same_memory(block) for block in x.blocks()] if is_distributed(x) else [None]
    return [keys.index(key) for key in keys]


def _written(func: Any, args: Sequence[Any]) -> Any:
    """The result of an operator that has written into its lists; advances the version counters of these."""
    for each, argument in zip(args, func._schema.arguments, strict=False):
        if argument.is_write:
            increment_version(each)
    return args[0] if func._schema.returns else None


def _is_list(x: object) -> bool:
    return isinstance(x, (list, tuple))


def _spread(func: Any, arg: Any, leading: Sequence[Any], distinct: Sequence[list[int]]) -> Any:
    """A list of tensors or numbers, with an entry for each distinct block of the leading list; other values as is."""
    if not _is_list(arg) or not arg:
        return arg
    entries = []
    for x, like, first in zip(arg, leading, distinct, strict=True):
        if is_distributed(like):
            column = _blocks_like(func, x, like)
            entries += [column[i] for i in sorted(set(first))]
        else:
            entries.append(_unsharded(x))
    return entries


def _regrouped(leading: Sequence[Any], distinct: Sequence[list[int]], results: Any) -> list[Any]:
    """A tensor for each of the leading list, of results for each distinct block."""
    out: list[Any] = []
    remaining = iter(results)
    for like, first in zip(leading, distinct, strict=True):
        blocks = {i: next(remaining) for i in sorted(set(first))}
        out.append(like.with_blocks([blocks[i] for i in first]) if is_distributed(like) else blocks[0])
    return out


def _unsharded(x: Any) -> Any:
    return x.unsharded() if is_distributed(x) else x


# --- operators with rules of their own --------------------------------------------------------------------------------


def _unscale(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """A GradScaler's unscaling: `found_inf` becomes 1 where an element of any gradient, on any rank, is not finite."""
    gradients, found, inverse = args
    spread = _spread(func, gradients, gradients, [_first_blocks(x) for x in gradients])
    if spread:
        func(spread, found, inverse)
    current = next(x.context for x in gradients if is_distributed(x))
    found.copy_(torch.stack(current.all_gather("unscale gradients", found, "found_inf")).amax(0))
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


def _arithmetic(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A sum, difference or product, also of a sparse tensor."""
    return (with_sparse if any(map(is_sparse_operand, args)) else _elementwise)(func, args, kwargs)


# --- copies and views of all blocks -----------------------------------------------------------------------------------


def _alias(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BlockTensor:
    alias: BlockTensor = args[0].alias()
    return alias


def _same_shape(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BlockTensor:
    """A view; of the same shape it has the same blocks."""
    view: BlockTensor = (
        _alias(func, args, kwargs) if tuple(args[1]) == tuple(args[0].shape) else _other(func, args, kwargs)
    )
    return view


def _each_block(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BlockTensor:
    """A new tensor from each block: clone, conversions of the dtype, tensors like this one."""
    device = kwargs.get("device")
    if device is not None and torch.device(device).type != args[0].device.type:
        raise PlanError(
            f"DistributedTensor: blocks stay on the sites' device: operator={func}, device={device}, "
            f"sites={args[0].device}; give x.full_tensor().to(device)"
        )
    options = {key: value for key, value in kwargs.items() if key not in ("memory_format", "device", "layout")}
    result: BlockTensor = _elementwise(func, args, options)
    return result


def _new_like(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    """new_empty, new_zeros, ...: of this shape in blocks, of any other a plain tensor."""
    x, shape = args[0], tuple(args[1])
    dtype = kwargs.get("dtype") or x.dtype
    if shape != tuple(x.shape):
        return torch.full(shape, int("ones" in func._opname), dtype=dtype, device=x.device)
    like = {_aten.new_zeros.default: torch.zeros_like, _aten.new_ones.default: torch.ones_like}
    return like.get(func, torch.empty_like)(x, dtype=dtype)


def _copy(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """copy_: also from blocks of another layout, and into a plain tensor."""
    into, source = args[:2]
    if not is_distributed(into):
        return into.copy_(source.unsharded())
    if source.shape != into.shape:
        source = source.full_tensor() if is_distributed(source) else source
        source = source.expand(into.shape)
    if is_distributed(source) and not source.stored.has_layout_of(into.stored):
        source = source.like(retyped(into.physical_type, source.dtype))
    return _elementwise(func, (into, source), {})


def _item(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return func(args[0].unsharded())


def _norm(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Of all elements each process reduces its blocks; along some axes it is a plan."""
    return (vector_norm if is_norm_of_all(args, kwargs) else _planned)(func, args, kwargs)


def _equal(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return bool(torch.equal(*map(_unsharded, args)))


def _all_close(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """torch.allclose, compared on the blocks; all ranks get the same answer."""
    x, y, *tolerances = args
    if is_distributed(x) and is_distributed(y) and x.shape == y.shape:
        y = y.like(retyped(x.physical_type, y.dtype))
    return bool(torch.isclose(x, y, *tolerances, **kwargs).all())


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
    **dict.fromkeys([_aten.add.Tensor, _aten.add_.Tensor, _aten.sub.Tensor, _aten.sub_.Tensor], _arithmetic),
    _aten.mul.Tensor: _arithmetic,
    _aten.sparse_mask.default: sparse_mask,
    _aten.copy_.default: _copy,
    _aten.index_put_.default: _index_put,
    _aten._amp_foreach_non_finite_check_and_unscale_.default: _unscale,
    _aten._local_scalar_dense.default: _item,
    _aten.equal.default: _equal,
    _aten.allclose.default: _all_close,
    _aten.linalg_vector_norm.default: _norm,
    _aten.norm.Scalar: _norm,
    **DRAWS,
    **REDUCTIONS,
}
