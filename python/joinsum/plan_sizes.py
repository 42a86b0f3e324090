"""One plan for a range of sizes: a graph that is a known one but for the extent of its batch may take its plan."""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from joinsum import _C
from joinsum.cluster import Cluster
from joinsum.context import Context
from joinsum.errors import InternalError, PlanError
from joinsum.plan import TraPlan, verifying

__all__ = ["MOST_LOSS", "Asked", "Carried", "Planned", "Sizes", "sizes_of"]

MOST_LOSS = 0.10
"""The modelled loss up to which the plan of another size is taken."""

_KEPT = 8  # planned sizes of one graph: the last ones
_NUMBER = re.compile(r"\d[\d.]*(?:e[+-]?\d+)?")
_log = logging.getLogger("joinsum")


@dataclass(frozen=True)
class Asked:
    """A graph that needs a plan on the sites of a cluster.

    graph     in einsums of at most two operands
    program   the same over tuples
    starts    placements that inputs have to start at, by name; others start anywhere at no cost
    """

    graph: _C.EinsumPlan
    program: TraPlan
    starts: Mapping[str, _C.Placement]
    cluster: Cluster
    sites: int

    @cached_property
    def floor(self) -> float:
        """Seconds of all the work, each value computed once and shared evenly by all sites, at the cluster's flat
        rates: no plan takes less."""
        alone = self.program.core.lower(_C.Grid.of_sites(1), {}).with_uncut_calls()
        flat = replace(self.cluster, memory_bytes=None, profile=None)
        return _C.cost(alone, flat.core()).seconds / self.sites


@dataclass(frozen=True)
class Planned:
    """A graph with the plan that was searched for it."""

    asked: Asked
    plan: _C.IaPlan

    @cached_property
    def seconds(self) -> float:
        """What the plan is modelled to take."""
        return _C.cost(self.plan, self.asked.cluster.core()).seconds


@dataclass(frozen=True)
class Carried:
    """The plan of another size, made again for this one.

    told   from which size it is, and what it may lose
    """

    plan: _C.IaPlan
    told: str


@dataclass(frozen=True)
class _Known:
    """A planned graph beside the one that is asked for: its size where the asked one has 1."""

    planned: Planned
    scaling: _C.Scaling

    @property
    def size(self) -> float:
        return self.scaling.known / self.scaling.asked

    def __str__(self) -> str:
        if self.scaling.known == self.scaling.asked:
            return "the plan of the same sizes"
        return f"the plan of batch {self.scaling.known}"


class Sizes:
    """Planned graphs that differ in the extent of one axis, the batch, and in constants alone.

    The plan of another size is taken where it is modelled to lose at most `MOST_LOSS` against the best plan, whose
    cost is bounded without a search: the cost of one plan is affine in the batch, up to the rounding of parts, so that
    of the best is the least of affine functions, concave, as long as they are those that were considered.
    """

    def __init__(self) -> None:
        self._planned: list[Planned] = []

    def add(self, planned: Planned) -> None:
        """Makes a plan known that was searched for its own size."""
        self._planned = [*self._planned[1 - _KEPT :], planned]

    def carried(self, asked: Asked) -> Carried | str:
        """The plan of a known size for `asked`. Else why it has to be planned; nothing where no size is known. Says so
        to the logger `joinsum`."""
        known = list(self._comparable(asked))
        if not known:
            return ""
        best: tuple[float, _C.IaPlan, _Known] | None = None
        reason = ""
        for each in _nearest(known):
            made = _made_again(each, asked)
            if isinstance(made, str):
                reason = f"{each} cannot be carried over: {made}"
            elif best is None or made[0] < best[0]:
                best = *made, each
        if best is None:
            return self._anew(known[0], reason)
        seconds, plan, source = best
        loss = max(0.0, seconds / _least_seconds(known, asked) - 1)
        if loss > MOST_LOSS:
            return self._anew(source, f"{source} would lose up to {_percent(loss)}")
        told = f"{source}, modelled loss at most {_percent(loss)}"
        _log.debug("a plan is carried over to batch %d: %s", source.scaling.asked, told)
        return Carried(plan, told)

    def _anew(self, known: _Known, reason: str) -> str:
        _log.info("planning anew for batch %d: %s", known.scaling.asked, reason)
        return reason

    def _comparable(self, asked: Asked) -> Iterator[_Known]:
        """Known graphs that are `asked` but for its size, and of which as much or less was demanded."""
        for planned in reversed(self._planned):
            if all(asked.starts.get(name) == place for name, place in planned.asked.starts.items()):
                scaling = _C.scaling(planned.asked.graph, asked.graph)
                if not scaling.difference:
                    yield _Known(planned, scaling)


def sizes_of(here: Context, graph: _C.EinsumPlan, free: Collection[str]) -> Sizes:
    """What is known of graphs like `graph`, whose outputs `free` end anywhere, in this process."""
    text = "\n".join([_NUMBER.sub("#", str(graph)), *sorted(free)])
    return here.remembered(("sizes", hashlib.sha256(text.encode()).digest()), Sizes)


def _least_seconds(known: Sequence[_Known], asked: Asked) -> float:
    """A bound from below of what the best plan of `asked` costs, with c(x) the cost of the best at x times its size:

    - from a smaller size x, the work that is added has to be done: c(1) >= c(x) + floor(1) - floor(x)
    - from a larger size x, what does not depend on the size stays: c(1) >= c(x) / x + (1 - 1 / x) floor(0)
    - between two sizes c is concave: c(1) is at least the line through both
    """
    bounds = [asked.floor]
    below = [each for each in known if each.size <= 1]
    above = [each for each in known if each.size > 1]
    bounds += [each.planned.seconds + max(0.0, asked.floor - each.planned.asked.floor) for each in below]
    for each in above:
        slope = (each.planned.asked.floor - asked.floor) / (each.size - 1)
        fixed = max(0.0, asked.floor - max(0.0, slope))
        bounds.append((each.planned.seconds + (each.size - 1) * fixed) / each.size)
    bounds += [
        (low.planned.seconds * (high.size - 1) + high.planned.seconds * (1 - low.size)) / (high.size - low.size)
        for low in below
        for high in above
    ]
    return max(bounds)


def _nearest(known: Sequence[_Known]) -> list[_Known]:
    """The closest of the sizes up to the asked one, and of those beyond it."""
    below = [each for each in known if each.size <= 1]
    above = [each for each in known if each.size > 1]
    near = [max(below, key=lambda each: each.size)] if below else []
    return near + ([min(above, key=lambda each: each.size)] if above else [])


def _made_again(known: _Known, asked: Asked) -> tuple[float, _C.IaPlan] | str:
    """A known plan for the asked size, with its modelled seconds; or why it cannot be."""
    try:
        plan = _C.carried(known.planned.plan, known.planned.asked.program.core, asked.program.core)
        for name, type_ in plan.inputs:
            if name in asked.starts and type_.placement != asked.starts[name]:
                return f"it has input {name} elsewhere"
        seconds = _C.cost(plan, asked.cluster.core()).seconds
    except PlanError as error:
        return str(error)
    if verifying():
        verdict = _C.verify(plan, asked.program.core, 0, 4)
        if verdict.kind not in ("proved", "tested"):
            raise InternalError(f"carried: the verifier does not accept a plan: {verdict.kind}: {verdict.reason}")
    return seconds, plan


def _percent(loss: float) -> str:
    return f"{math.ceil(100 * loss)} %"
