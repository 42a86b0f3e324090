"""Models that were initialised differently on the ranks of a process group: all take the first rank's values."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping

import torch

from joinsum import _C
from joinsum.base.errors import PlanError
from joinsum.cluster.context import context
from joinsum.execution.operands import checksum

__all__ = ["first_rank_draw", "first_rank_value", "take_first_rank_values"]


def take_first_rank_values(who: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """Writes the first rank's elements into plain tensors that differ between the ranks, and warns of it there; all
    ranks call. Raises PlanError where their names, shapes or dtypes differ."""
    current = context()
    if current.single_process or not tensors:
        return
    forms = [f"{name}: {list(x.shape)} {x.dtype}" for name, x in tensors.items()]
    sums = [str(checksum(x.detach())) for x in tensors.values()]
    own = "\n".join([hashlib.sha256("\n".join(forms).encode()).hexdigest(), *sums])
    ranks = [text.split("\n") for text in current.transport.gather_texts(who, own)]
    if any(each[0] != ranks[0][0] for each in ranks):
        current.transport.agree(who, "\n".join(["one model on every rank", *forms]))  # raises with the first difference
        raise PlanError(f"{who}: ranks have different models")
    different = [
        place for place, each in enumerate(zip(*(each[1:] for each in ranks), strict=True)) if len({*each}) > 1
    ]
    names = list(tensors)
    for place in different:
        x = tensors[names[place]]
        with torch.no_grad():
            x.copy_(_broadcast(who, x))
    if different and 0 in current.local_sites:
        warnings.warn(
            f"{who}: ranks have different parameters, as after torch.manual_seed with different numbers; all take "
            f"those of rank 0: first={names[different[0]]}, count={len(different)}",
            stacklevel=3,
        )


def first_rank_draw(drawn: torch.Tensor) -> torch.Tensor:
    """The first rank's random numbers, of those that each rank drew; it warns where they differ. All ranks call with
    one shape."""
    first = first_rank_value("random numbers", drawn)
    if first is not drawn and 0 in context().local_sites:
        warnings.warn(
            "random numbers: the ranks' generators differ, and distributed tensors take the numbers of rank 0; give "
            "all ranks one number with torch.manual_seed, and draw alike",
            stacklevel=2,
        )
    return first


def first_rank_value(who: str, value: torch.Tensor) -> torch.Tensor:
    """The first rank's tensor, which is sent only if another rank's differs; all ranks call with one shape."""
    current = context()
    if current.single_process:
        return value
    sums = current.transport.gather_texts(who, str(checksum(value.detach())))
    return value if len({*sums}) == 1 else _broadcast(who, value)


def _broadcast(who: str, x: torch.Tensor) -> torch.Tensor:
    current = context()
    (found,) = current.transport.broadcast(who, _C.SubGrids.all(current.sites), 0, [x.detach().contiguous()])
    first: torch.Tensor = found
    return first
