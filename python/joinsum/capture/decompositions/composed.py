"""Operators of torch without a rule that torch itself composes of operators with one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import get_decompositions

__all__ = ["COMPOSED"]

_NAMES = """
block_diag dist isin.Scalar_Tensor isin.Tensor_Scalar linalg_cross linspace.Scalar_Tensor
linspace.Tensor_Scalar linspace.Tensor_Tensor logspace max_unpool2d max_unpool3d mvlgamma nansum norm.Scalar
norm.ScalarOpt_dim_dtype norm.ScalarOpt_dtype renorm
rrelu_with_noise_backward special_entr special_xlog1py special_xlog1py.other_scalar special_xlog1py.self_scalar
xlogy.Scalar_Other xlogy.Scalar_Self
"""


def _operator(name: str) -> torch._ops.OpOverload:
    packet, _, overload = name.partition(".")
    found: torch._ops.OpOverload = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return found


COMPOSED: dict[Any, Callable[..., Any]] = get_decompositions(list(map(_operator, _NAMES.split())))
