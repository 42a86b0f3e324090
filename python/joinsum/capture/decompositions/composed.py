"""Operators of torch without a rule that torch itself composes of operators with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions

__all__ = ["COMPOSED"]

_NAMES = """
block_diag dist isin.Scalar_Tensor isin.Tensor_Scalar linalg_cross linspace.Scalar_Tensor linspace.Tensor_Scalar
linspace.Tensor_Tensor logspace max_unpool2d max_unpool3d mvlgamma nansum norm.Scalar norm.ScalarOpt_dim_dtype
norm.ScalarOpt_dtype renorm rrelu_with_noise_backward special_entr special_xlog1py special_xlog1py.other_scalar
special_xlog1py.self_scalar xlogy.Scalar_Other xlogy.Scalar_Self
"""


def _operator(name: str) -> torch._ops.OpOverload:
    packet, _, overload = name.partition(".")
    found: torch._ops.OpOverload = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return found


def _affine_grid(theta: torch.Tensor, size: Sequence[int], align_corners: bool) -> torch.Tensor:
    """The grid of `torch.affine_grid_generator`, whose gradient torch does not compute for symbolic sizes: coordinates
    in the input `[N, *extents, axes]` for matrices `[N, axes, axes + 1]`. The first coordinate is along the last
    extent."""
    if theta.shape[0] != size[0]:
        raise RuntimeError(f"affine_grid: {theta.shape[0]} matrices for a batch of {size[0]}")
    axes = len(size) - 2
    matrices = theta.float() if theta.dtype in (torch.float16, torch.bfloat16) else theta
    columns = matrices.view(size[0], *[1] * axes, axes, axes + 1)
    grid = columns[..., axes]
    for axis, extent in enumerate(size[:1:-1]):
        along = _centers(extent, align_corners, matrices).view(extent, *[1] * (axis + 1))
        grid = grid + along * columns[..., axis]
    return grid.to(theta.dtype)


def _centers(extent: int, align_corners: bool, like: torch.Tensor) -> torch.Tensor:
    """Where an axis's elements are, with the axis from -1 to 1: it ends at the centers of the outer elements, or at
    their outer edges."""
    if extent <= 1:
        return torch.zeros(extent, dtype=like.dtype, device=like.device)
    centers = torch.linspace(-1, 1, extent, dtype=like.dtype, device=like.device)
    return centers if align_corners else centers * ((extent - 1) / extent)


COMPOSED: dict[Any, Callable[..., Any]] = get_decompositions(list(map(_operator, _NAMES.split())))
COMPOSED[torch.ops.aten.affine_grid_generator.default] = _affine_grid
