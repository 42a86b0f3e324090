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


def _cov(
    self: torch.Tensor,
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    """`torch.cov` of `[variables, observations]`, which torch does not trace, as it warns where the divisor is not
    positive."""
    if self.dim() > 2:
        raise RuntimeError(f"cov: a matrix of variables and observations, not of {self.dim()} axes")
    if self.dtype is torch.bool:
        raise RuntimeError("cov: bool dtype is not supported for input")
    whole = not (self.is_floating_point() or self.is_complex())
    x = self.to(torch.get_default_dtype()) if whole else self
    x = x if x.dim() == 2 else x.reshape(1, -1)
    weights = []
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        if given.dim() > 1 or given.numel() != x.shape[1] or given.is_floating_point() == (name == "fweights"):
            kind = "whole numbers" if name == "fweights" else "floats"
            raise RuntimeError(f"cov: {name} are {kind}, one for each observation: {list(given.shape)}, {given.dtype}")
        weights.append(given.to(x.real.dtype))
    each = weights[0] * weights[-1] if len(weights) == 2 else weights[0] if weights else None
    total: Any = x.shape[1] if each is None else each.sum()
    mean = x.mean(1, keepdim=True) if each is None else (x * each).sum(1, keepdim=True) / total
    if each is not None and aweights is not None and correction != 0:
        divisor = total - correction * (each * weights[-1]).sum() / total
    else:
        divisor = total - correction
    centered = x - mean
    others = (centered if each is None else centered * each).T
    divisor = divisor.clamp(min=0) if isinstance(divisor, torch.Tensor) else torch.sym_max(divisor, 0)  # type: ignore[no-untyped-call]
    return (centered @ (others.conj() if x.is_complex() else others) / divisor).squeeze()


def _euclidean_distances(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    """The distances of many rows, [*b, n, d] and [*b, m, d], which `torch.cdist` computes by a product of matrices."""
    squares = x1.square().sum(-1).unsqueeze(-1) + x2.square().sum(-1).unsqueeze(-2)
    return (squares - 2 * (x1 @ x2.mT)).clamp(min=0).sqrt()


def _centers(extent: int, align_corners: bool, like: torch.Tensor) -> torch.Tensor:
    """Where an axis's elements are, with the axis from -1 to 1: it ends at the centers of the outer elements, or at
    their outer edges."""
    if extent <= 1:
        return torch.zeros(extent, dtype=like.dtype, device=like.device)
    centers = torch.linspace(-1, 1, extent, dtype=like.dtype, device=like.device)
    return centers if align_corners else centers * ((extent - 1) / extent)


COMPOSED: dict[Any, Callable[..., Any]] = get_decompositions(list(map(_operator, _NAMES.split())))
COMPOSED[torch.ops.aten.affine_grid_generator.default] = _affine_grid
COMPOSED[torch.ops.aten._is_all_true.default] = torch.all
COMPOSED[torch.ops.aten._is_any_true.default] = torch.any
COMPOSED[torch.ops.aten.cov.default] = _cov
COMPOSED[torch.ops.aten._euclidean_dist.default] = _euclidean_distances
