"""Random numbers that depend on the seed and the global index of an element only: equal for every plan and site count.

Each element's counter goes through the finalizer of SplitMix64 twice, with 64-bit integers that wrap around. Source:
Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. Each draw of a program has another
`stream`; `offsets`, `local` and `extents` describe the shard of the tensor: one number for each factor of its axes,
row-major.

The C++ core implements the operators `joinsum::uniform`, `normal`, `integers` and `dropout` for CPUs; the functions of
this file are their reference, and implement them for other devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from joinsum import _C

__all__ = ["SEEDS", "bits", "dropout", "integers", "normal", "uniform"]

assert _C  # which defines the operators

SEEDS = 1 << 53  # of a run, from zero: integers that a double has, as sites compare them

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)


def _shifted(value: Tensor, count: int) -> Tensor:
    """A logical shift to the right of 64 bits."""
    return (value >> count) & ((1 << (64 - count)) - 1)


def _mixed(value: Tensor) -> Tensor:
    value = (value ^ _shifted(value, 30)) * _FIRST
    value = (value ^ _shifted(value, 27)) * _SECOND
    return value ^ _shifted(value, 31)


def bits(seed: Tensor, stream: int, offsets: Sequence[int], local: Sequence[int], extents: Sequence[int]) -> Tensor:
    """64 random bits for each element of a shard, as integers of the shape `local`.

    >>> full = bits(torch.tensor(7), 0, [0, 0], [4, 6], [4, 6])
    >>> torch.equal(bits(torch.tensor(7), 0, [1, 2], [2, 3], [4, 6]), full[1:3, 2:5])
    True
    """
    counter = torch.zeros((), dtype=torch.int64, device=seed.device)
    for position, (offset, size) in enumerate(zip(offsets, local, strict=True)):
        step = math.prod(extents[position + 1 :])
        counter = counter.unsqueeze(-1) + (torch.arange(size, device=seed.device) + offset) * step
    start = _mixed(_mixed(seed + _GOLDEN) + stream * 2 + 1)
    return _mixed(_mixed(counter * _GOLDEN + start) + start)


def _fraction(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Bits as a number in [0, 1), in steps that the dtype has exactly; halves in those of single precision."""
    count = 53 if dtype == torch.float64 else 24
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return _shifted(value, 64 - count).to(wide) * 2.0**-count


def uniform(seed: Tensor, stream: int, size: Sequence[int], *rest: Any) -> Tensor:
    """Uniform random numbers in [0, 1), of the shape `size`."""
    *shard, dtype = rest
    # A number below 1 must not be rounded to 1 in a half type.
    limit = 1 - torch.finfo(dtype).eps / 2
    return _fraction(bits(seed, stream, *shard), dtype).clamp(max=limit).to(dtype).reshape(tuple(size))


def normal(seed: Tensor, stream: int, size: Sequence[int], *rest: Any) -> Tensor:
    """Numbers of the normal distribution of mean 0 and variance 1, by Box and Muller, of the shape `size`."""
    *shard, dtype = rest
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    first, second = (_fraction(bits(seed, 2 * stream + each, *shard), wide) for each in range(2))
    radius = torch.sqrt(-2 * torch.log1p(-first))
    return (radius * torch.cos(2 * math.pi * second)).to(dtype).reshape(tuple(size))


def integers(seed: Tensor, stream: int, low: int, high: int, *rest: Any) -> Tensor:
    """Integers in [low, high), of a shape `size`."""
    size, *shard, dtype = rest
    return (_shifted(bits(seed, stream, *shard), 1) % (high - low) + low).to(dtype).reshape(tuple(size))


def dropout(input: Tensor, seed: Tensor, p: float, stream: int, *shard: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The input over 1 - p where the mask is true, zeros elsewhere; and the mask, true with probability 1 - p."""
    mask = (_fraction(bits(seed, stream, *shard), torch.float32) >= p).reshape(input.shape)
    return input * mask * (0.0 if p == 1 else 1 / (1 - p)), mask


for _name, _function in (("uniform", uniform), ("normal", normal), ("integers", integers), ("dropout", dropout)):
    for _key in ("CUDA", "Meta"):
        torch.library.impl(f"joinsum::{_name}", _key, _function)
