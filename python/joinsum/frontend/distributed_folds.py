"""Folds of all elements of distributed tensors: each process folds its blocks, then what all have made."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from joinsum.context import Context
from joinsum.errors import PlanError

if TYPE_CHECKING:
    from joinsum.frontend.distributed_tensor import DistributedTensor

__all__ = ["FOLDS", "is_distributed", "over_ranks"]

_aten = torch.ops.aten
_INFINITY = float("inf")


@functools.cache
def _kind() -> type[DistributedTensor]:
    from joinsum.frontend.distributed_tensor import DistributedTensor

    return DistributedTensor


def is_distributed(x: object) -> bool:
    """Whether it is a DistributedTensor."""
    return isinstance(x, _kind())


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


_sum = _fold(torch.sum, 0)


def _mean(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    x, dtype = args[0], kwargs.get("dtype") or args[0].dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        raise PlanError(f"DistributedTensor: a mean is of floats or complex numbers: dtype={dtype}; give dtype=")
    total: torch.Tensor = _sum(_aten.sum.default, (x,), {"dtype": _wide(dtype)})
    made: torch.Tensor = (total / x.numel()).to(dtype)
    return made


def _norms(xs: Sequence[Any], order: float, dtype: torch.dtype | None) -> list[torch.Tensor]:
    """Norms of all elements of each tensor, in one exchange between the ranks."""
    if order == 0:
        raise PlanError("DistributedTensor: the norm of order 0 is a count; give (x != 0).sum()")
    dtypes = [(dtype or x.dtype).to_real() for x in xs]
    partial = [_partial_norm(x, order, _wide(dtype or x.dtype)) for x in xs]
    here = next(x.context for x in xs if is_distributed(x))
    if not here.whole:
        columns = torch.stack(over_ranks(here, torch.stack(partial)))
        whole = torch.linalg.vector_norm(columns, order, dim=0)
        partial = [norm if is_distributed(x) else own for x, own, norm in zip(xs, partial, whole, strict=True)]
    return [norm.to(own) for norm, own in zip(partial, dtypes, strict=True)]


def _partial_norm(x: Any, order: float, dtype: torch.dtype) -> torch.Tensor:
    """The norm of what this process has of the tensor."""
    arrays = _own_arrays(x) if is_distributed(x) else [x]
    parts = [torch.linalg.vector_norm(array, order, dtype=dtype) for array in arrays if array.numel()]
    if not parts:
        return torch.full((), _INFINITY if order < 0 else 0.0, dtype=dtype.to_real(), device=x.device)
    made: torch.Tensor = torch.linalg.vector_norm(torch.stack(parts), order)
    return made


def _wide(dtype: torch.dtype) -> torch.dtype:
    """What partial results of halves are kept in: their range and precision are torch's own for its kernels."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _vector_norm(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    values = dict(zip(["x", "ord", "dim", "keepdim"], args, strict=False)) | dict(kwargs)
    dims = values.get("dim")
    all_elements = dims is None or sorted(dim % args[0].dim() for dim in dims) == list(range(args[0].dim()))
    if not all_elements or values.get("keepdim"):
        raise PlanError(f"DistributedTensor: only norms of all elements: operator={func}; give x.full_tensor()")
    order = values.get("ord", values.get("p", 2))
    return _norms([args[0]], 2.0 if order is None else float(order), values.get("dtype"))[0]


def _foreach_norm(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    order = args[1] if len(args) > 1 else kwargs.get("ord", 2)
    return _norms(args[0], float(order), kwargs.get("dtype"))


_max = _fold(torch.max, -_INFINITY)


def _foreach_max(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    return [_max(_aten.max.default, (x,), {}) if is_distributed(x) else x.max() for x in args[0]]


FOLDS: dict[Any, Callable[..., Any]] = {
    _aten.sum.default: _sum,
    _aten.mean.default: _mean,
    _aten.max.default: _max,
    _aten.min.default: _fold(torch.min, _INFINITY),
    _aten.all.default: _fold(torch.all, True),
    _aten.any.default: _fold(torch.any, False),
    _aten.linalg_vector_norm.default: _vector_norm,
    _aten.norm.Scalar: _vector_norm,
    _aten._foreach_norm.Scalar: _foreach_norm,
    _aten._foreach_max.default: _foreach_max,
}
