"""The options of plans of sparse programs, checked."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from joinsum import _C
from joinsum.base.arguments import integer, is_number, show
from joinsum.base.errors import PlanError

__all__ = ["checked_cutoffs", "plan_options"]

# Of one query.
MOST_INDICES = 64


def _is_finite(value: object) -> bool:
    return is_number(value) and abs(value) <= sys.float_info.max


def checked_cutoffs(who: str, cutoffs: object) -> tuple[float, float]:
    """The densities above which a level is a bytemap, and dense; raises PlanError for others."""
    if cutoffs is not None and not isinstance(cutoffs, Mapping):
        raise PlanError(f'{who}: cutoffs are numbers for "bytemap" and "dense": cutoffs={show(cutoffs)}')
    densities: dict[Any, Any] = {"bytemap": 0.05, "dense": 0.5} | dict(cutoffs or {})
    if set(densities) != {"bytemap", "dense"} or not all(map(_is_finite, densities.values())):
        raise PlanError(f'{who}: cutoffs are numbers for "bytemap" and "dense": cutoffs={show(cutoffs)}')
    return float(densities["bytemap"]), float(densities["dense"])


def plan_options(
    estimator: str = "chain",
    cost: tuple[float, float] = (1.0, 1.0),
    mode: str = "absorb",
    search: str = "greedy",
    cutoffs: Mapping[str, float] | None = None,
    distribute: bool = True,
    cover: bool = True,
    most_loops: int = 10,
    kernel_size: int = 128,
    dependencies: bool = False,
) -> _C.SparsePlanOptions:
    """The options of `Program.plan`, checked."""
    for name, value in (("estimator", estimator), ("mode", mode), ("search", search)):
        if not isinstance(value, str):
            raise PlanError(f"plan: {name} is a name: {name}={show(value)}")
    for name, switch in (("distribute", distribute), ("cover", cover), ("dependencies", dependencies)):
        if type(switch) is not bool:
            raise PlanError(f"plan: {name} is True or False: {name}={show(switch)}")
    most_loops = integer("plan", "most_loops", most_loops)
    if not 0 <= most_loops <= MOST_INDICES:
        raise PlanError(f"plan: most_loops is a number from 0 to {MOST_INDICES}: most_loops={show(most_loops)}")
    kernel_size = integer("plan", "kernel_size", kernel_size)
    if not 0 <= kernel_size < 2**31:
        raise PlanError(f"plan: kernel_size is a number that is not negative: kernel_size={show(kernel_size)}")
    if not isinstance(cost, (list, tuple)) or len(cost) != 2 or not all(map(_is_finite, cost)) or min(cost) < 0:
        raise PlanError(f"plan: cost is two finite numbers that are not negative: cost={show(cost)}")
    densities = checked_cutoffs("plan", cutoffs)
    options = _C.SparsePlanOptions(
        estimator,
        (float(cost[0]), float(cost[1])),
        mode,
        search,
        *densities,
        distribute,
        cover,
        most_loops,
        kernel_size,
    )
    options.dependencies = dependencies
    return options
