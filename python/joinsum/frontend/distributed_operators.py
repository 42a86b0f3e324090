"""Operators of distributed tensors: elementwise ones run on the blocks, folds of all elements combine the blocks'."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from joinsum import _C
from joinsum.context import Context
from joinsum.errors import PlanError
from joinsum.frontend.one_block import has_tensors, row_of, rows_of

if TYPE_CHECKING:
    from joinsum.frontend.distributed_tensor import DistributedTensor

__all__ = ["dispatch", "over_ranks"]

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
    name = func._schema.name
    if (name.startswith("aten::_foreach_") and name not in _FOREACH_FOLDS) or name in _FUSED:
        return _foreach
    if name in _FILLS or (torch.Tag.pointwise in func.tags and torch.Tag.nondeterministic_seeded not in func.tags):
        return _elementwise
    if any(x.is_out for x in func._schema.arguments):
        return _refused("no out=", "use the result, or an operator in place")
    return _refused("no operator on blocks", "give x.full_tensor(), on every rank")


def _refused(what: str, remedy: str) -> Handler:
    def refuse(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        raise PlanError(f"DistributedTensor: {what}: operator={func}; {remedy}")

    return refuse


_FILLS = {"aten::zero_", "aten::fill_", "aten::masked_fill_", "aten::masked_fill"}
_FOREACH_FOLDS = {"aten::_foreach_norm", "aten::_foreach_max"}
# Whole updates, elementwise, on lists as those of _foreach_ operators.
_FUSED = {"aten::_fused_adam_", "aten::_fused_adamw_", "aten::_fused_sgd_", "aten::_fused_adagrad_"}


@functools.cache
def _kind() -> type[DistributedTensor]:
    from joinsum.frontend.distributed_tensor import DistributedTensor

    return DistributedTensor


def _is_distributed(x: object) -> bool:
    return isinstance(x, _kind())


# --- elementwise ------------------------------------------------------------------------------------------------------


def _blocks_like(func: Any, x: Any, like: DistributedTensor) -> list[Any]:
    """The operand for each block of `like`: a number as it is, a tensor in the same blocks."""
    if not isinstance(x, torch.Tensor):
        return [x] * len(like.blocks())
    if _is_distributed(x):
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
    found = next(x for x in (*args, *kwargs.values()) if _is_distributed(x))
    return found  # type: ignore[no-any-return]


def _same_memory(x: Any) -> Any:
    """Equal for two arguments that are one array."""
    return (x.data_ptr(), x.shape, x.stride(), x.dtype) if isinstance(x, torch.Tensor) else None


def _elementwise(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    written = func._schema.is_mutable
    row = row_of(args[0], args) if args and _is_distributed(args[0]) and not has_tensors(kwargs) else None
    if row is not None:
        made_of_row = func(*row, **kwargs)
        return args[0] if written else args[0].with_blocks([made_of_row])
    target = kwargs.get("out", args[0])
    like = target if _is_distributed(target) else _first(args, kwargs)
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
            return args[0] if func._schema.returns else None
        return [like.with_blocks([array]) for like, array in zip(leading, made, strict=True)]
    plan = []  # for each tensor of the leading list, which of its blocks are distinct arrays
    for x in leading:
        keys = [_same_memory(block) for block in x.blocks()] if _is_distributed(x) else [None]
        order = {key: i for i, key in reversed(list(enumerate(keys)))}
        plan.append((keys, order))
    spread = [_spread(func, arg, leading, plan) for arg in args]
    named = {key: _spread(func, arg, leading, plan) for key, arg in kwargs.items()}
    # A process may have no block of any of them, and torch takes no empty list.
    results = func(*spread, **named) if spread[0] else []
    if func._schema.is_mutable:
        return args[0] if func._schema.returns else None
    return _regrouped(leading, plan, results)


def _is_list(x: object) -> bool:
    return isinstance(x, (list, tuple))


def _spread(func: Any, arg: Any, leading: Sequence[Any], plan: Sequence[tuple[list[Any], dict[Any, int]]]) -> Any:
    if not _is_list(arg) or not arg:
        return arg
    entries = []
    for x, like, (keys, order) in zip(arg, leading, plan, strict=True):
        if not _is_distributed(like):
            if _is_distributed(x):
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
        out.append(like.with_blocks([made[order[key]] for key in keys]) if _is_distributed(like) else made[0])
    return out


# --- folds of all elements --------------------------------------------------------------------------------------------


def _own_arrays(x: DistributedTensor) -> list[torch.Tensor]:
    """Arrays of which this process keeps the first replica; those of all processes are the tensor."""
    here, type_ = x.context, x.physical_type
    local = set(here.local_sites)
    pairs = x.stored.core().tuples(here.store)
    return [array for key, array in pairs if type_.sites_of(key)[0] in local]


def over_ranks(here: Context, partial: torch.Tensor) -> list[torch.Tensor]:
    """Everyone's partial result, in the order of the ranks."""
    if here.whole:
        return [partial]
    gathered = [torch.empty_like(partial) for _ in range(here.sites)]
    dist.all_gather(gathered, partial.contiguous(), group=here.group)
    return gathered


def _fold(combine: Callable[[torch.Tensor], torch.Tensor], identity: Any) -> Callable[..., torch.Tensor]:
    """A fold of all elements that is the same fold of partial results."""

    def fold(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
        (x,) = args[:1]
        if any(each not in (None, [], False) for each in args[1:]):
            raise PlanError(f"DistributedTensor: only all elements are folded: operator={func}; give x.full_tensor()")
        neutral = torch.tensor(_identity(identity, x.dtype), dtype=x.dtype, device=x.device)
        parts = [func(array, **kwargs) for array in _own_arrays(x) if array.numel()]
        parts = parts or [func(neutral.reshape(1), **kwargs)]
        whole = combine(torch.stack(parts))
        return combine(torch.stack(over_ranks(x.context, whole)))

    return fold


def _identity(identity: Any, dtype: torch.dtype) -> Any:
    if identity not in (float("inf"), float("-inf")) or dtype.is_floating_point:
        return identity
    limits = torch.iinfo(dtype) if dtype is not torch.bool else None
    if limits is None:
        return identity > 0
    return limits.max if identity > 0 else limits.min


def _mean(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    total: torch.Tensor = _HANDLERS[_aten.sum.default](_aten.sum.default, args, kwargs)
    count: int = args[0].numel()
    return total / count


def _norms(xs: Sequence[Any], order: float, dtype: torch.dtype | None) -> list[torch.Tensor]:
    """Norms of all elements of each tensor, in one exchange between the ranks."""
    if order == 0:
        raise PlanError("DistributedTensor: the norm of order 0 is a count; give (x != 0).sum()")
    partial = []
    for x in xs:
        arrays = _own_arrays(x) if _is_distributed(x) else [x]
        parts = [torch.linalg.vector_norm(array, order, dtype=dtype) for array in arrays if array.numel()]
        zero = torch.zeros((), dtype=dtype or x.dtype, device=x.device)
        partial.append(torch.linalg.vector_norm(torch.stack(parts), order) if parts else zero)
    here = next(x.context for x in xs if _is_distributed(x))
    if here.whole:
        return partial
    plain = {i for i, x in enumerate(xs) if not _is_distributed(x)}
    columns = torch.stack(over_ranks(here, torch.stack(partial)))
    whole = torch.linalg.vector_norm(columns, order, dim=0)
    return [partial[i] if i in plain else norm for i, norm in enumerate(whole)]


def _vector_norm(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    values = dict(zip(["x", "ord", "dim", "keepdim"], args, strict=False)) | dict(kwargs)
    if values.get("dim") is not None or values.get("keepdim"):
        raise PlanError(f"DistributedTensor: only norms of all elements: operator={func}; give x.full_tensor()")
    order = values.get("ord", values.get("p", 2))
    return _norms([args[0]], 2.0 if order is None else float(order), values.get("dtype"))[0]


def _foreach_norm(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    order = args[1] if len(args) > 1 else kwargs.get("ord", 2)
    return _norms(args[0], float(order), kwargs.get("dtype"))


def _unscale(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """What a GradScaler does to gradients: `found_inf` becomes 1 where an element of any of them, on any rank, is no
    number."""
    gradients, found, inverse = args
    plan = [([_same_memory(block) for block in x.blocks()] if _is_distributed(x) else [None]) for x in gradients]
    spread = _spread(func, gradients, gradients, [(keys, {key: i for i, key in enumerate(keys)}) for keys in plan])
    if spread:
        func(spread, found, inverse)
    everywhere = over_ranks(next(x.context for x in gradients if _is_distributed(x)), found)
    found.copy_(torch.stack(everywhere).amax(0))


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
    if not _is_distributed(into):
        return into.copy_(source.whole())
    if source.shape != into.shape:
        source = source.full_tensor() if _is_distributed(source) else source
        source = source.expand(into.shape)
    if _is_distributed(source) and not source.stored.lies_as(into.stored):
        source = source.like(_retyped(into.physical_type, source.dtype))
    return _elementwise(func, (into, source), {})


def _item(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return func(args[0].whole())


def _equal(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    whole = [x.whole() if _is_distributed(x) else x for x in args]
    return bool(torch.equal(*whole))


_INFINITY = float("inf")
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
    _aten.sum.default: _fold(torch.sum, 0),
    _aten.mean.default: _mean,
    _aten.max.default: _fold(torch.max, -_INFINITY),
    _aten.min.default: _fold(torch.min, _INFINITY),
    _aten.all.default: _fold(torch.all, True),
    _aten.any.default: _fold(torch.any, False),
    _aten.linalg_vector_norm.default: _vector_norm,
    _aten.norm.Scalar: _vector_norm,
    _aten._foreach_norm.Scalar: _foreach_norm,
}
