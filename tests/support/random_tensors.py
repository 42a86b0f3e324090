"""Random tensors of small whole numbers, many of which are 0."""

from __future__ import annotations

import torch

__all__ = ["random_dense"]


def random_dense(seed: int, *shape: int, density: float = 0.3, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """From -4 to 4; `density` is the part of the elements that are drawn, the others are 0."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-4, 5, shape, generator=generator).to(dtype)
    return values * (torch.rand(shape, generator=generator) < density)
