"""Values of sparse tensors in autograd, carried into other levels and layouts."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from joinsum.base.errors import PlanError

__all__ = ["carried", "in_dense", "in_layout", "notice_fused_steps", "version_of"]


def version_of(values: torch.Tensor) -> tuple[int, int]:
    """How often a tensor was written to, and where its memory is."""
    return 0 if values.is_inference() else values._version, values.data_ptr()


_GIVEN = "_joinsum_given"


def notice_fused_steps(values: torch.Tensor) -> None:
    """Lets steps of torch's fused optimizers, which do not count as writes, count as writes to these values."""
    if values.is_leaf and values.requires_grad:
        setattr(values, _GIVEN, True)
        _count_fused_steps()


@functools.cache
def _count_fused_steps() -> None:
    register_optimizer_step_post_hook(_count_fused_step)


def _count_fused_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"] if group.get("fused") else ():
            if hasattr(parameter, _GIVEN):
                torch.autograd.graph.increment_version(parameter)


def _places(who: str, coordinates: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Row-major positions of coordinates, of shape (rank, entries)."""
    if math.prod(shape) >= 2**63:
        raise PlanError(
            f"{who}: values in autograd of a tensor of 2^63 elements or more; detach them: shape={list(shape)}"
        )
    place = torch.zeros(coordinates.shape[1], dtype=torch.int64)
    for each, extent in zip(coordinates, shape, strict=True):
        place = place * extent + each
    return place


def carried(
    who: str, values: torch.Tensor, at: torch.Tensor, to: torch.Tensor, shape: Sequence[int], fill: float
) -> torch.Tensor:
    """Values at coordinates `at` as they are at coordinates `to`, both ascending: the fill where `at` lacks one.

    >>> values = torch.tensor([5., 7.], requires_grad=True)
    >>> carried("", values, torch.tensor([[0, 2]]), torch.tensor([[0, 1, 2]]), [3], 0.0).tolist()
    [5.0, 0.0, 7.0]
    """
    if torch.equal(at, to):
        return values
    mine, wanted = _places(who, at, shape), _places(who, to, shape)
    if not len(mine):
        return values.new_full((len(wanted),), fill) + values.sum()  # the sum of none, which is in autograd
    found = torch.searchsorted(mine, wanted).clamp_(max=len(mine) - 1)
    return torch.where(mine[found] == wanted, values[found], fill)


def in_dense(dense: torch.Tensor, values: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """All elements, of which those at the coordinates are the values."""
    if not len(at):
        return values.reshape(()) if values.numel() else dense
    return dense.index_put(tuple(at), values)


def in_layout(
    layout: torch.layout, values: torch.Tensor, at: torch.Tensor, shape: Sequence[int], blocksize: Sequence[int] | None
) -> torch.Tensor:
    """The values at ascending coordinates, zeros elsewhere, in a sparse layout of torch's."""
    coo = torch.sparse_coo_tensor(at, values, list(shape), is_coalesced=True, check_invariants=False)
    if layout is torch.sparse_coo:
        return coo
    return coo.to_sparse(layout=layout, blocksize=None if blocksize is None else tuple(blocksize))
