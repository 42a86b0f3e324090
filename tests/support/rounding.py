"""How far two results of one floating type may differ: by the type's epsilon and the lengths of the sums."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["assert_rounded", "rounding"]


def rounding(dtype: torch.dtype, terms: int = 1, roundings: int = 1) -> float:
    """The relative difference of two results that were rounded to `dtype` `roundings` times, each after sums of `terms`
    terms in any order. Sums of half types are computed in single precision. Relative means: to the same computation on
    absolute values."""
    sums = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    return roundings * (torch.finfo(dtype).eps + terms * torch.finfo(sums).eps)


def assert_rounded(actual: Any, wanted: Any, dtype: torch.dtype, terms: int = 1, roundings: int = 1) -> None:
    """Asserts that tensors differ by `rounding` at most, relative to the largest element of each wanted one."""
    if not isinstance(wanted, torch.Tensor):
        for a, b in zip(actual, wanted, strict=True):
            assert_rounded(a, b, dtype, terms, roundings)
        return
    tolerance = rounding(dtype, terms, roundings)
    largest = float(wanted.abs().nan_to_num(0, 0, 0).max()) if wanted.numel() else 0.0
    torch.testing.assert_close(actual, wanted, rtol=tolerance, atol=tolerance * largest, equal_nan=True)
