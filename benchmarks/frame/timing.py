"""Contenders in turns: each turn runs some steps of every one, for about as long, so that other load hits all alike."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

__all__ = ["Spread", "of_all_ranks", "ratio", "spread", "steps_of_a_turn", "take_turns"]

Step = Callable[[], object]
# Seconds that a turn should take: a barrier's jitter is then below a percent.
TURN_SECONDS = 0.25
MOST_STEPS = 50


class Spread(NamedTuple):
    """Median and quartiles of seconds, or of ratios."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles.

    >>> spread([3.0, 1.0, 2.0, 4.0, 5.0])
    Spread(median=3.0, low=2.0, high=4.0)
    """
    if len(values) < 2:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high)


def ratio(seconds: Sequence[float], others: Sequence[float]) -> Spread:
    """How many times faster than `others` something is: the spread of the ratios within each turn.

    >>> ratio([1.0, 2.0], [2.0, 4.0]).median
    2.0
    """
    return spread([other / own for own, other in zip(seconds, others, strict=True)])


def of_all_ranks(number: float, operation: dist.ReduceOp.RedOpType = dist.ReduceOp.MAX) -> float:
    """The numbers of all ranks as one, by default the largest; collective."""
    if not dist.is_initialized():
        return number
    tensor = torch.tensor(number, dtype=torch.float64)
    dist.all_reduce(tensor, operation)
    return float(tensor)


def _turn(step: Step, steps: int) -> float:
    """Seconds of a step on the slowest rank, from a moment at which all ranks are ready."""
    if dist.is_initialized():
        dist.barrier()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return of_all_ranks(time.perf_counter() - start) / steps


def steps_of_a_turn(seconds: float) -> int:
    """How many steps a turn has of a contender whose step takes that long.

    >>> steps_of_a_turn(0.1), steps_of_a_turn(10.0)
    (3, 1)
    """
    return max(1, min(MOST_STEPS, math.ceil(TURN_SECONDS / seconds)))


def take_turns(steps: Mapping[str, Step], turns: int) -> tuple[dict[str, int], dict[str, list[float]]]:
    """For each contender its steps in a turn, and the seconds of a step in every turn; collective.

    A first turn warms up and says how long a step takes. Each turn begins with another contender, so that none always
    follows the same one.
    """
    counts = {name: steps_of_a_turn(_turn(step, 1)) for name, step in steps.items()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    for turn in range(turns):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            seconds[name].append(_turn(steps[name], counts[name]))
    return counts, seconds
