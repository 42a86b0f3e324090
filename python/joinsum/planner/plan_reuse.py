"""One plan for a range of sizes: a graph that is a known one but for the extent of its batch may take its plan."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from joinsum import _C
from joinsum.algebra.plan import TraPlan, check_verified
from joinsum.base.errors import PlanError
from joinsum.cluster.cluster import Cluster
from joinsum.cluster.context import Context
from joinsum.planner.cost import seconds_of_work

__all__ = ["MOST_LOSS", "PlannedSize", "PlannedSizes", "ReusedPlan", "SizedGraph", "planned_sizes", "rebuilt"]

MOST_LOSS = 0.10
"""The modelled loss up to which the plan of another size is taken."""

_MOST_SIZES = 8  # planned sizes of one graph: the last ones
_log = logging.getLogger("joinsum")


@dataclass(frozen=True)
class SizedGraph:
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
        """Seconds of all the work, shared evenly: no plan takes less."""
        return seconds_of_work(self.graph, self.cluster, self.sites)


@dataclass(frozen=True)
class PlannedSize:
    """A graph with the plan that was searched for it, and the seconds that the search took."""

    graph: SizedGraph
    plan: _C.IaPlan
    search_seconds: float

    @cached_property
    def seconds(self) -> float:
        """What the plan is modelled to take."""
        return _C.cost(self.plan, self.graph.cluster.core()).seconds


@dataclass(frozen=True)
class ReusedPlan:
    """The plan of another size, rebuilt for this one.

    origin           from which size it is, and what it may lose
    search_seconds   of the plan of the other size
    """

    plan: _C.IaPlan
    origin: str
    search_seconds: float


@dataclass(frozen=True)
class _Known:
    """A planned graph beside the requested one, whose size is 1.

    ratio   its size
    even    the least size from it on that all sites may share evenly
    """

    planned: PlannedSize
    scaling: _C.Scaling

    @property
    def ratio(self) -> float:
        return self.scaling.planned / self.scaling.requested

    @property
    def even(self) -> float:
        sites = self.planned.graph.sites
        return -(-self.scaling.planned // sites) * sites / self.scaling.requested

    def work(self, requested: SizedGraph) -> tuple[float, float]:
        """Seconds of all the work that any plan does: those that do not depend on the size, and those at size 1 that
        are in proportion to it."""
        grows = max(0.0, (self.planned.graph.floor - requested.floor) / (self.ratio - 1))
        return max(0.0, requested.floor - grows), grows

    def __str__(self) -> str:
        if self.scaling.planned == self.scaling.requested:
            return "the plan of the same sizes"
        return f"the plan of batch {self.scaling.planned}"


class PlannedSizes:
    """Planned graphs that differ in the extent of one axis, the batch, and in constants alone.

    The plan of another size is taken where it is modelled to lose at most `MOST_LOSS` against the best plan, whose
    cost is bounded without a search (`_least_seconds`). What counts is the model: a search that stops early, and
    measured rates that are no straight lines, make the bound as good as they are.
    """

    def __init__(self) -> None:
        self._planned: list[PlannedSize] = []

    def add(self, planned: PlannedSize) -> None:
        """Makes a plan known that was searched for its own size."""
        self._planned = [*self._planned[1 - _MOST_SIZES :], planned]

    def reused(self, requested: SizedGraph) -> ReusedPlan | str:
        """The plan of a known size for `requested`. Otherwise the reason to plan it anew, which is empty where no size
        is known. Reports to the logger `joinsum`."""
        known = list(self._comparable(requested))
        if not known:
            return ""
        best: tuple[float, _C.IaPlan, _Known] | None = None
        reason = ""
        for each in _nearest(known):
            rebuilt = _rebuilt(each, requested)
            if isinstance(rebuilt, str):
                reason = f"{each} cannot be reused: {rebuilt}"
            elif best is None or rebuilt[0] < best[0]:
                best = *rebuilt, each
        if best is None:
            return self._anew(known[0], reason)
        seconds, plan, source = best
        loss = _loss(seconds, _least_seconds(known, requested))
        if loss > MOST_LOSS:
            return self._anew(source, f"{source} would lose up to {_percent(loss)}")
        origin = f"{source}, modelled loss at most {_percent(loss)}"
        _log.debug("a plan is reused for batch %d: %s", source.scaling.requested, origin)
        return ReusedPlan(plan, origin, source.planned.search_seconds)

    def _anew(self, known: _Known, reason: str) -> str:
        _log.info("planning anew for batch %d: %s", known.scaling.requested, reason)
        return reason

    def _comparable(self, requested: SizedGraph) -> Iterator[_Known]:
        """Known graphs that differ from `requested` in size alone, and whose inputs had to start at no other places."""
        for planned in reversed(self._planned):
            starts, same_machine = planned.graph.starts.items(), planned.graph.cluster == requested.cluster
            if same_machine and all(requested.starts.get(name) == place for name, place in starts):
                scaling = _C.scaling(planned.graph.graph, requested.graph)
                if not scaling.difference:
                    yield _Known(planned, scaling)


def planned_sizes(current: Context, graph: _C.EinsumPlan, free: Collection[str]) -> PlannedSizes:
    """What is known of graphs like `graph`, whose outputs `free` end anywhere, in this process."""
    inputs = [(name, dtype, len(extents)) for name, (dtype, extents) in graph.inputs]
    structure = repr((inputs, graph.uses, graph.output_nodes, sorted(graph.ties.items()), sorted(free)))
    return current.cached(("sizes", hashlib.sha256(structure.encode()).digest()), PlannedSizes)


def _least_seconds(known: Sequence[_Known], requested: SizedGraph) -> float:
    """A bound from below of what the best plan of `requested` costs.

    What a plan costs is affine in the size where its parts are even, and at least that elsewhere. So l(x), the least
    that any plan costs at x times the requested size were parts always even, is concave; the best plan costs at least
    l(1), and l of the next even size is at least what the best plan of a size costs. With c of a known plan, at its
    even x:

    - from x <= 1, the work that is added has to be done: l(1) >= c + (1 - x) times the work that grows
    - from x > 1, what does not depend on the size stays: l(1) >= c / x + (1 - 1 / x) times the work that does not
    - between two sizes l(1) is at least the line through both
    """
    bounds = [requested.floor, *(each.planned.seconds for each in known if each.ratio == 1)]
    others = [each for each in known if each.ratio != 1]
    below = [(each.even, each.planned.seconds) for each in others if each.even <= 1]
    above = [(each.even, each.planned.seconds) for each in others if each.even > 1]
    for each in others:
        x, seconds, (fixed, grows) = each.even, each.planned.seconds, each.work(requested)
        bounds.append(seconds + (1 - x) * grows if x <= 1 else (seconds + (x - 1) * fixed) / x)
    bounds += [(c * (y - 1) + d * (1 - x)) / (y - x) for x, c in below for y, d in above]
    return max(bounds)


def _nearest(known: Sequence[_Known]) -> list[_Known]:
    """The closest of the sizes up to the requested one, and of those beyond it."""
    below = [each for each in known if each.ratio <= 1]
    above = [each for each in known if each.ratio > 1]
    near = [max(below, key=lambda each: each.ratio)] if below else []
    return near + ([min(above, key=lambda each: each.ratio)] if above else [])


def rebuilt(plan: _C.IaPlan, planned: TraPlan, requested: TraPlan) -> _C.IaPlan:
    """The plan that does for the program `requested` what `plan` does for `planned`; their extents and numbers may
    differ. Raises PlanError where there is none."""
    found = _C.reused(plan, planned.core, requested.core)
    check_verified("plan reuse", found, requested.core)
    return found


def _rebuilt(known: _Known, requested: SizedGraph) -> tuple[float, _C.IaPlan] | str:
    """A known plan for the requested size, with its modelled seconds; or why it cannot be."""
    try:
        plan = rebuilt(known.planned.plan, known.planned.graph.program, requested.program)
        for name, type_ in plan.inputs:
            if name in requested.starts and type_.placement != requested.starts[name]:
                return f"it has input {name} elsewhere"
        seconds = _C.cost(plan, requested.cluster.core()).seconds
    except PlanError as error:
        return str(error)
    return seconds, plan


def _loss(seconds: float, least: float) -> float:
    """The share that is lost; plans that cost nothing lose nothing.

    >>> _loss(1.5, 1.0), _loss(1.0, 2.0), _loss(0.0, 0.0), _loss(1.0, 0.0)
    (0.5, 0.0, 0.0, inf)
    """
    if seconds <= least:
        return 0.0
    return seconds / least - 1 if least > 0 else math.inf


def _percent(loss: float) -> str:
    return f"{math.ceil(100 * loss)} %" if math.isfinite(loss) else "all of it"
