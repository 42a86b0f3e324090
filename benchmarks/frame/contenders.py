"""What a workload consists of: contenders that do the same work, and the result that all must have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["Absent", "Contender", "Workload", "check_equal", "own_rows", "rank", "ranks", "whole"]


class Absent(Exception):
    """A contender cannot take part here; the text says why. All ranks raise it, or none."""


@dataclass(frozen=True)
class Contender:
    """A way to do a workload's work.

    step     does it once; a step of training changes the model
    result   what all contenders must agree on after equally many steps, equal on all ranks; collective, not timed
    figures  numbers for the file of results, asked after the last turn
    """

    step: Callable[[], object]
    result: Callable[[], Sequence[Tensor]]
    figures: Callable[[], Mapping[str, float]] = field(default=dict)


@dataclass(frozen=True)
class Workload:
    """Work in several sizes.

    sizes          their names
    reference      for a size, plain torch in one process, with which all are compared before anything is timed
    contenders     for a size, how to prepare each, by name; `joinsum` is one of them
    checked_steps  after which results are compared
    tolerance      of the results, relative to their norm
    """

    sizes: Sequence[str]
    reference: Callable[[str], Contender]
    contenders: Callable[[str], dict[str, Callable[[], Contender]]]
    checked_steps: int
    tolerance: float


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def ranks() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def own_rows(x: Tensor, dim: int = 0) -> Tensor:
    """This rank's shard of an axis."""
    return x.tensor_split(ranks(), dim)[rank()]


def whole(shard: Tensor, like: Tensor, dim: int = 0) -> Tensor:
    """The tensor of which every rank has its `own_rows`; collective."""
    full = torch.zeros_like(like)
    own_rows(full, dim).copy_(shard)
    if dist.is_initialized():
        dist.all_reduce(full)
    return full


def check_equal(name: str, result: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float) -> None:
    """Raises AssertionError unless all tensors together differ by at most `tolerance`, relative to their norm."""
    shapes = [tuple(x.shape) for x in result]
    assert shapes == [tuple(x.shape) for x in expected], f"{name}: results of other shapes: shapes={shapes}"
    squares = [float((x.double() - y.double()).square().sum()) for x, y in zip(result, expected, strict=True)]
    norm = sum(float(y.double().square().sum()) for y in expected)
    error = (sum(squares) / norm) ** 0.5
    assert error <= tolerance, f"{name}: another result than plain torch: relative error={error:.2e}"
