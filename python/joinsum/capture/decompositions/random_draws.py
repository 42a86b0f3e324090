"""Random operators of torch as functions of uniform and normal numbers, which joinsum draws by the global index."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["RANDOM_DRAWS"]

_aten = torch.ops.aten


def _exponential(x: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """By inversion; never 0, so that it divides."""
    return (-torch.log1p(-torch.rand_like(x))).clamp(min=torch.finfo(x.dtype).tiny) / lambd


def _uniform(x: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Tensor:
    return low + (high - low) * torch.rand_like(x)


def _normal(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    return mean + std * torch.randn_like(x)


def _log_normal(x: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> Tensor:
    return (mean + std * torch.randn_like(x)).exp()


def _cauchy(x: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None) -> Tensor:
    return median + sigma * torch.tan(torch.pi * (torch.rand_like(x) - 0.5))


def _geometric(x: Tensor, p: float, *, generator: Any = None) -> Tensor:
    drawn = torch.rand(x.shape, dtype=torch.float32, device=x.device)
    return ((-drawn).log1p() / math.log1p(-p)).ceil().clamp(min=1).to(x.dtype)


def _normal_of(mean: Tensor | float, std: Tensor | float = 1.0, *, generator: Any = None) -> Tensor:
    both = mean + std  # of the shape that they broadcast to
    assert isinstance(both, Tensor)
    return mean + std * torch.randn_like(both)


def _normal_of_size(mean: float, std: float, size: Any, *, generator: Any = None, **keywords: Any) -> Tensor:
    return mean + std * torch.randn(size, **keywords)


def _integers_like(x: Tensor, *bounds: int, generator: Any = None, dtype: Any = None, **keywords: Any) -> Tensor:
    low, high = bounds if len(bounds) == 2 else (0, *bounds)
    device = keywords.get("device") or x.device
    return torch.randint(low, high, x.shape, dtype=dtype or x.dtype, device=device)


def _multinomial(weights: Tensor, count: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
    """Without replacement the first to arrive, of exponential times at these rates."""
    if replacement and count > 1:
        shares = weights.cumsum(-1)
        drawn = torch.rand((*weights.shape[:-1], count), dtype=weights.dtype, device=weights.device)
        return torch.searchsorted(shares, drawn * shares[..., -1:], right=True).clamp(max=weights.shape[-1] - 1)
    return torch.topk(weights / _exponential(weights), count, dim=-1).indices


def _permutation(
    n: int,
    *,
    generator: Any = None,
    dtype: Any = torch.int64,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> Tensor:
    return torch.rand(n, dtype=torch.float64, device=device).argsort().to(dtype or torch.int64)


def _randomized_relu(
    x: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> tuple[Tensor, Tensor]:
    """Slopes of negative elements between the bounds, in training; else the mean of the bounds."""
    if not training:
        return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise
    slopes = torch.where(x <= 0, lower + (upper - lower) * torch.rand_like(x), 1.0)
    return x * slopes, slopes


RANDOM_DRAWS: dict[Any, Callable[..., Any]] = {
    _aten.cauchy.default: _cauchy,
    _aten.exponential.default: _exponential,
    _aten.geometric.default: _geometric,
    _aten.log_normal.default: _log_normal,
    _aten.multinomial.default: _multinomial,
    _aten.normal.Tensor_Tensor: _normal_of,
    _aten.normal.Tensor_float: _normal_of,
    _aten.normal.float_Tensor: _normal_of,
    _aten.normal.float_float: _normal_of_size,
    _aten.normal_functional.default: _normal,
    _aten.randint_like.default: _integers_like,
    _aten.randint_like.low_dtype: _integers_like,
    _aten.randperm.default: _permutation,
    _aten.randperm.generator: _permutation,
    _aten.rrelu_with_noise_functional.default: _randomized_relu,
    _aten.uniform.default: _uniform,
}
