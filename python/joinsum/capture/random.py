"""Random numbers that depend on the seed and the global index of an element only: equal for every plan and site count.

Each element's counter goes through the finalizer of SplitMix64 twice, with 64-bit integers that wrap around. Source:
Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. `stream` tells the draws of one
program apart, `offsets`, `local` and `extents` the part of the whole tensor, for each factor of its axes, row-major.

`joinsum::uniform`, `normal`, `integers` and `dropout` are operators of the C++ core on the processor; the functions
here say what they give, and are these operators on other devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from joinsum import _C

__all__ = ["SEEDS", "bits", "dropout", "integers", "normal", "uniform"]

assert _C  # which defines the operators

SEEDS = 1 << 53  # of a run, from zero: integers that a double has, as sites compare them

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)


def _shifted(value: torch.Tensor, count: int) -> torch.Tensor:
    """A logical shift to the right of 64 bits."""
    return (value >> count) & ((1 << (64 - count)) - 1)


def _mixed(value: torch.Tensor) -> torch.Tensor:
    value = (value ^ _shifted(value, 30)) * _FIRST
    value = (value ^ _shifted(value, 27)) * _SECOND
    return value ^ _shifted(value, 31)


def bits(
    seed: torch.Tensor, stream: int, offsets: Sequence[int], local: Sequence[int], extents: Sequence[int]
) -> torch.Tensor:
    """64 random bits for each element of a part, as integers of the shape `local`.

    >>> whole = bits(torch.tensor(7), 0, [0, 0], [4, 6], [4, 6])
    >>> torch.equal(bits(torch.tensor(7), 0, [1, 2], [2, 3], [4, 6]), whole[1:3, 2:5])
    True
    """
    counter = torch.zeros((), dtype=torch.int64, device=seed.device)
    for position, (offset, size) in enumerate(zip(offsets, local, strict=True)):
        step = math.prod(extents[position + 1 :])
        index = (torch.arange(size, device=seed.device) + offset) * step
        counter = counter.unsqueeze(-1) + index
    start = _mixed(_mixed(seed + _GOLDEN) + stream * 2 + 1)
    return _mixed(_mixed(counter * _GOLDEN + start) + start)


def _fraction(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Bits as a number in [0, 1), in steps that the dtype has exactly; halves in those of single precision."""
    count = 53 if dtype == torch.float64 else 24
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return _shifted(value, 64 - count).to(wide) * 2.0**-count


def uniform(
    seed: torch.Tensor,
    stream: int,
    size: Sequence[int],
    offsets: Sequence[int],
    local: Sequence[int],
    extents: Sequence[int],
    dtype: torch.dtype,
) -> torch.Tensor:
    """Numbers of equal chance in [0, 1), of the shape `size`."""
    # A half's rounding must not give 1.
    limit = 1 - torch.finfo(dtype).eps / 2
    drawn = _fraction(bits(seed, stream, offsets, local, extents), dtype)
    return drawn.clamp(max=limit).to(dtype).reshape(tuple(size))


def normal(
    seed: torch.Tensor,
    stream: int,
    size: Sequence[int],
    offsets: Sequence[int],
    local: Sequence[int],
    extents: Sequence[int],
    dtype: torch.dtype,
) -> torch.Tensor:
    """Numbers of the normal distribution of mean 0 and variance 1, by Box and Muller, of the shape `size`."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    first = _fraction(bits(seed, 2 * stream, offsets, local, extents), wide)
    second = _fraction(bits(seed, 2 * stream + 1, offsets, local, extents), wide)
    radius = torch.sqrt(-2 * torch.log1p(-first))
    return (radius * torch.cos(2 * math.pi * second)).to(dtype).reshape(tuple(size))


def integers(
    seed: torch.Tensor,
    stream: int,
    low: int,
    high: int,
    size: Sequence[int],
    offsets: Sequence[int],
    local: Sequence[int],
    extents: Sequence[int],
    dtype: torch.dtype,
) -> torch.Tensor:
    """Integers in [low, high), of the shape `size`."""
    drawn = _shifted(bits(seed, stream, offsets, local, extents), 1) % (high - low) + low
    return drawn.to(dtype).reshape(tuple(size))


def dropout(
    input: torch.Tensor,
    seed: torch.Tensor,
    p: float,
    stream: int,
    offsets: Sequence[int],
    local: Sequence[int],
    extents: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """The input where the mask holds, over 1 - p; zeros elsewhere. And the mask, which holds with chance 1 - p."""
    drawn = _fraction(bits(seed, stream, offsets, local, extents), torch.float32)
    mask = (drawn >= p).reshape(input.shape)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return input * mask * scale, mask


for _name, _function in (("uniform", uniform), ("normal", normal), ("integers", integers), ("dropout", dropout)):
    torch.library.impl(f"joinsum::{_name}", "CUDA", _function)
