"""Reductions of all elements of distributed tensors: each process reduces its blocks, and then all partial results. A
tensor that every process has is reduced by each for itself, without a message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from joinsum.base.dtypes import accumulation_dtype
from joinsum.base.errors import PlanError
from joinsum.distributed.block_tensor import BlockTensor, is_distributed

__all__ = ["REDUCTIONS", "is_everywhere", "is_norm_of_all", "vector_norm"]

_aten = torch.ops.aten
_INFINITY = float("inf")


def _own_arrays(x: BlockTensor) -> list[torch.Tensor]:
    """Arrays of which this process has the first replica; those of all processes are the tensor. All of a tensor that
    every process has."""
    current, type_ = x.context, x.physical_type
    if is_everywhere(x):
        return [array for _, array in x.stored.core().tuples()]
    local = set(current.local_sites)
    pairs = x.stored.core().tuples()
    return [array for key, array in pairs if type_.sites_of(key)[0] in local]


def is_everywhere(x: BlockTensor) -> bool:
    """Whether each process has the whole tensor."""
    return x.context.single_process or x.physical_type.placement.fully_replicated


def _text(x: BlockTensor) -> str:
    """What is reduced, for ranks that reduce something else."""
    return f"a tensor of shape={list(x.shape)}, dtype={x.dtype}"


def _reduction(combine: Callable[[torch.Tensor], torch.Tensor], identity: Any) -> Callable[..., torch.Tensor]:
    """Reduces all elements; partial results are combined in the same way."""

    def reduce(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
        (x,) = args[:1]
        if any(each not in (None, [], False) for each in args[1:]):
            raise PlanError(f"DistributedTensor: only all elements are reduced: operator={func}; give x.full_tensor()")
        neutral = torch.tensor(_identity(identity, x.dtype), dtype=x.dtype, device=x.device)
        partial = [func(array, **kwargs) for array in _own_arrays(x) if array.numel()]
        partial = partial or [func(neutral.reshape(1), **kwargs)]
        local = combine(torch.stack(partial))
        if is_everywhere(x):
            return local
        return combine(torch.stack(x.context.all_gather(str(func), local, _text(x))))

    return reduce


def _identity(identity: Any, dtype: torch.dtype) -> Any:
    """The identity as an element of the dtype: for infinity of integers and booleans, their greatest or least value."""
    if identity not in (_INFINITY, -_INFINITY) or dtype.is_floating_point:
        return identity
    if dtype is torch.bool:
        return identity > 0
    return torch.iinfo(dtype).max if identity > 0 else torch.iinfo(dtype).min


_sum = _reduction(torch.sum, 0)


def _mean(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    x, dtype = args[0], kwargs.get("dtype") or args[0].dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        raise PlanError(f"DistributedTensor: a mean is of floats or complex numbers: dtype={dtype}; give dtype=")
    total: torch.Tensor = _sum(_aten.sum.default, (x,), {"dtype": accumulation_dtype(dtype)})
    mean: torch.Tensor = (total / x.numel()).to(dtype)
    return mean


def _norms(xs: Sequence[Any], order: float, dtype: torch.dtype | None) -> list[torch.Tensor]:
    """Norms of all elements of each tensor, in one exchange between the ranks. The norm of order 0 is a count, whose
    partial results are added up."""
    dtypes = [(dtype or x.dtype).to_real() for x in xs]
    partial = [_partial_norm(x, order, accumulation_dtype(dtype or x.dtype)) for x in xs]
    divided = [place for place, x in enumerate(xs) if is_distributed(x) and not is_everywhere(x)]
    if divided:
        text = "\n".join([f"order={order}", *(_text(xs[place]) for place in divided)])
        own = torch.stack([partial[place] for place in divided])
        columns = torch.stack(xs[divided[0]].context.all_gather("norm", own, text))
        for place, norm in zip(divided, torch.linalg.vector_norm(columns, order or 1.0, dim=0), strict=True):
            partial[place] = norm
    return [norm.to(own) for norm, own in zip(partial, dtypes, strict=True)]


def _partial_norm(x: Any, order: float, dtype: torch.dtype) -> torch.Tensor:
    """The norm of this process's blocks of the tensor."""
    arrays = _own_arrays(x) if is_distributed(x) else [x]
    partial = [torch.linalg.vector_norm(array, order, dtype=dtype) for array in arrays if array.numel()]
    if not partial:
        return torch.full((), _INFINITY if order < 0 else 0.0, dtype=dtype.to_real(), device=x.device)
    norm: torch.Tensor = torch.linalg.vector_norm(torch.stack(partial), order or 1.0)
    return norm


def is_norm_of_all(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a norm is one number."""
    values = _norm_arguments(args, kwargs)
    x, dims = values["x"], values.get("dim")
    every = not dims or sorted(dim % max(x.dim(), 1) for dim in dims) == list(range(x.dim()))
    return every and not values.get("keepdim")


def vector_norm(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    """A norm of all elements."""
    values = _norm_arguments(args, kwargs)
    return _norms([values["x"]], values["order"], values.get("dtype"))[0]


def _norm_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Those of linalg_vector_norm and norm by name; the order as a number."""
    values = dict(zip(["x", "ord", "dim", "keepdim"], args, strict=False)) | dict(kwargs)
    order = values.get("ord", values.get("p", 2))
    return values | {"order": 2.0 if order is None else float(order)}


def _foreach_norm(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    order = args[1] if len(args) > 1 else kwargs.get("ord", 2)
    return _norms(args[0], float(order), kwargs.get("dtype"))


_max = _reduction(torch.max, -_INFINITY)


def _foreach_max(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    return [_max(_aten.max.default, (x,), {}) if is_distributed(x) else x.max() for x in args[0]]


REDUCTIONS: dict[Any, Callable[..., Any]] = {
    _aten.sum.default: _sum,
    _aten.mean.default: _mean,
    _aten.max.default: _max,
    _aten.min.default: _reduction(torch.min, _INFINITY),
    _aten.all.default: _reduction(torch.all, True),
    _aten.any.default: _reduction(torch.any, False),
    _aten._foreach_norm.Scalar: _foreach_norm,
    _aten._foreach_max.default: _foreach_max,
}
