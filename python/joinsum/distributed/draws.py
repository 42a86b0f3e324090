"""Random numbers and identity matrices written into distributed tensors, as `torch.nn.init` writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from joinsum.base.errors import PlanError
from joinsum.distributed.block_tensor import is_distributed
from joinsum.distributed.first_values import first_rank_draw

__all__ = ["DRAWS", "check_shape_of_out"]

_aten = torch.ops.aten


def _random(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Random numbers in place: torch's for the unsharded tensor, drawn on every rank, which stores its own blocks."""
    into, *others = args
    plain = [x.unsharded() if is_distributed(x) else x for x in others]
    if not is_distributed(into):
        return func(into, *plain, **kwargs)
    full = torch.empty(into.shape, dtype=into.dtype, device=into.device)
    func(full, *plain, **kwargs)
    return into.copy_(first_rank_draw(full))


def _eye(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """torch.eye with out=."""
    out = kwargs["out"]
    full = torch.eye(*args, dtype=out.dtype, device=out.device)
    check_shape_of_out(func, [full], out)
    return out.copy_(full)


def check_shape_of_out(func: Any, args: Sequence[Any], out: torch.Tensor) -> None:
    """Raises PlanError where torch would give `out=` another shape, that to which the operands broadcast."""
    operands = [x.shape for x in args if isinstance(x, torch.Tensor)]
    shape = torch.broadcast_shapes(*operands)  # type: ignore[no-untyped-call]
    if operands and shape != out.shape:
        raise PlanError(
            f"DistributedTensor: out= has another shape than the result: operator={func}, out={list(out.shape)}, "
            f"result={list(shape)}"
        )


_RANDOM = (
    _aten.bernoulli_.float,
    _aten.bernoulli_.Tensor,
    _aten.cauchy_.default,
    _aten.exponential_.default,
    _aten.geometric_.default,
    _aten.log_normal_.default,
    _aten.normal_.default,
    _aten.random_.default,
    getattr(_aten.random_, "from"),
    _aten.random_.to,
    _aten.uniform_.default,
)

DRAWS: dict[Any, Callable[..., Any]] = {
    _aten.eye.out: _eye,
    _aten.eye.m_out: _eye,
    **dict.fromkeys(_RANDOM, _random),
}
