"""Choosing the plan of a graph of einsums: order, cuts and placements; or taking the one that is cached."""

from __future__ import annotations

import json
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from joinsum import _C
from joinsum.algebra.plan import TraPlan, verifying
from joinsum.base.errors import Error, PlanError
from joinsum.cluster.cluster import Cluster
from joinsum.cluster.context import Context
from joinsum.graphs.contraction_order import Order, best_orders
from joinsum.planner.plan_cache import CacheKey, PlanCache, RejectedPlan, user_plan_cache
from joinsum.planner.plan_reuse import PlannedSize, ReusedPlan, SizedGraph, planned_sizes, rebuilt
from joinsum.planner.search import SearchOptions, from_first_site, search_in_process

__all__ = [
    "Baselines",
    "Ends",
    "PlanChoice",
    "PlanRequest",
    "choice_for",
    "choose",
    "logical_program",
    "recut",
    "search_options",
]

_log = logging.getLogger("joinsum")

# The part up to which a plan for coarse rates is preferred to it.
_ABOUT = 1.05


@dataclass(frozen=True)
class PlanChoice:
    """A graph's plan, and what it was computed from.

    orders         of vertices of more than two operands, by name, where there is one to choose
    binary         the graph in einsums of two operands, in the order that they are joined
    program_text   the logical plan
    plan           the physical plan; outputs are on every site
    origin         where it comes from: planned here, the plan of another size, or the file that it was cached in
    reuse          from which other size its plan is, and what it may lose; empty where it was planned for its own
    search_seconds  that the search for the plan, or for that of the other size, took
    """

    orders: dict[str, Order]
    binary: _C.EinsumPlan
    program_text: str
    plan: _C.IaPlan
    origin: str
    reuse: str = ""
    search_seconds: float = 0.0

    @cached_property
    def program(self) -> TraPlan:
        """The logical plan."""
        return TraPlan(_C.TraPlan.parse(self.program_text, {}))


@dataclass(frozen=True)
class Ends:
    """Where inputs start and outputs end.

    starts   placements of inputs by name; others start anywhere at no cost
    free     outputs that end anywhere; others end on every site, and one that is tied to an input where that starts
    """

    starts: Mapping[str, _C.Placement] = field(default_factory=dict)
    free: frozenset[str] = frozenset()

    def text(self, graph: _C.EinsumPlan) -> str:
        """What a plan depends on besides its graph; empty where there is nothing else."""
        ranks = {name: list(range(len(extents))) for name, (_, extents) in graph.inputs}
        lines = [f"{name} starts at {place.text(ranks[name])}" for name, place in sorted(self.starts.items())]
        return "\n".join([*lines, *(f"{name} ends anywhere" for name in sorted(self.free))])


@dataclass(frozen=True)
class Baselines:
    """Parts of plans that a search also fills in: its own plan is no dearer than what they become.

    text       what they depend on besides the graph
    parts_of   the parts for a graph and its logical plan
    """

    text: str
    parts_of: Callable[[_C.EinsumPlan, TraPlan], Iterable[_C.PartialPlan]]


@dataclass(frozen=True)
class PlanRequest:
    """The graph that a plan is chosen for, and how.

    cache       whether its plan is looked for in the user's cache folder first, and stored there
    ends        where inputs start and outputs end
    reuse       whether the plan of a graph that this process has planned before and that differs in the extent of one
                axis alone will do, where that is modelled to lose at most a tenth
    baselines   plans that the choice is never worse than
    """

    graph: _C.EinsumPlan
    cache: bool = True
    ends: Ends = Ends()
    reuse: bool = False
    baselines: Baselines | None = None

    @property
    def text(self) -> str:
        """All that the plan depends on besides the sites."""
        return f"{self.graph}{self.ends.text(self.graph)}{'' if self.baselines is None else self.baselines.text}"


def choose(current: Context, request: PlanRequest) -> PlanChoice:
    """The plan of least seconds for the context's sites, with outputs on every site.

    On a process group site 0 chooses, and all sites get the same; all must call, with one graph. Raises PlanError.
    """
    with current.preparing("einsum"):
        folder = user_plan_cache() if request.cache and current.caches_plans and not verifying() else None
    if current.single_process:
        return _looked_up(folder, current, request)
    text = f"{'a plan' if folder is None else 'a plan, which may be cached'}\n{request.text}{current.cluster}"
    current.transport.agree("einsum", text)  # before what follows, in which all take part
    if folder is not None:
        _ = current.machine
    texts = from_first_site("einsum", current, text, lambda: _texts(_looked_up(folder, current, request)))
    return _of_texts(texts, texts["origin"])


def choice_for(current: Context, choice: PlanChoice, graph: _C.EinsumPlan) -> PlanChoice | None:
    """The plan of a graph that is equal but for extents and numbers, rebuilt for this one without a search; None where
    it cannot be, as where values are cut differently or a site has not the memory."""
    binary = graph.binary({name: order.path for name, order in choice.orders.items()})
    program = logical_program(binary, current.sites)
    plan = _rebuilt(current, choice, program, "sizes")
    if plan is None:
        return None
    origin = "the plan of other sizes"
    return PlanChoice(choice.orders, binary, program.text, plan, origin, origin, choice.search_seconds)


def recut(current: Context, request: PlanRequest, choice: PlanChoice, cuts: Mapping[str, _C.RelationType]) -> _C.IaPlan:
    """The plan of a graph whose inputs, those of `choice.binary` by name, are cut at other points, in as many parts.

    It is the one that was chosen, or a new one where that cannot be rebuilt. On a process group all ranks must call."""
    program = TraPlan(choice.binary.lower(dict(cuts)))
    plan = _rebuilt(current, choice, program, "cuts")
    if plan is not None or current.single_process:
        return plan or _searched(current, request, choice.binary, program)
    text = f"a plan for other cuts\n{program.text}{current.cluster}"
    texts = from_first_site(
        "einsum", current, text, lambda: {"plan": str(_searched(current, request, choice.binary, program))}
    )
    return _C.IaPlan.parse(texts["plan"], {})


def _rebuilt(current: Context, choice: PlanChoice, program: TraPlan, other: str) -> _C.IaPlan | None:
    """The plan for a program that is equal but for extents, numbers and cuts; None where it cannot be rebuilt, or a
    site has not the memory."""
    try:
        plan = rebuilt(choice.plan, choice.program, program)
        if current.cluster.memory_bytes is not None:
            _C.cost(plan, current.cluster.core())  # raises for more than the memory of a site
    except PlanError as error:
        _log.info("planning anew for other %s: %s", other, error)
        return None
    return plan


def _looked_up(folder: PlanCache | None, current: Context, request: PlanRequest) -> PlanChoice:
    if folder is None:
        return _chosen(current, request, "")
    key = CacheKey(request.text, current.machine, current.cluster)
    note = ""
    try:
        texts = folder.read(key)
        if texts is not None:
            choice = _cached(texts, f"cached in {folder.path(key)}", current, request)
            if request.reuse and not choice.reuse:
                _offer_for_reuse(current, choice, request.ends)
            return choice
    except RejectedPlan as rejected:
        note = f", as the cached plan was rejected: {rejected}"
        if rejected.damaged:
            warnings.warn(f"einsum: a cached plan is rejected: {rejected}: file={folder.path(key)}", stacklevel=2)
    choice = _chosen(current, request, note)
    folder.write(key, {name: text for name, text in _texts(choice).items() if name != "origin"})
    return choice


def _chosen(current: Context, request: PlanRequest, note: str) -> PlanChoice:
    """The plan of another size if that will do, else a new one."""
    orders = best_orders(request.graph, current, everywhere=True)
    binary = request.graph.binary({name: order.path for name, order in orders.items()})
    program = logical_program(binary, current.sites)
    known = planned_sizes(current, binary, request.ends.free) if request.reuse else None
    sized = SizedGraph(binary, program, request.ends.starts, current.cluster, current.sites)
    reused = "" if known is None else known.reused(sized)
    if isinstance(reused, ReusedPlan):
        origin = reused.origin
        return PlanChoice(orders, binary, program.text, reused.plan, origin + note, origin, reused.search_seconds)
    start = time.perf_counter()
    plan = _searched(current, request, binary, program)
    took = time.perf_counter() - start
    if known is not None:
        known.add(PlannedSize(sized, plan, took))
    return PlanChoice(orders, binary, program.text, plan, f"planned here{reused and f': {reused}'}{note}", "", took)


def _offer_for_reuse(current: Context, choice: PlanChoice, ends: Ends) -> None:
    """Makes a cached plan known to those of other sizes."""
    sized = SizedGraph(choice.binary, choice.program, ends.starts, current.cluster, current.sites)
    planned_sizes(current, choice.binary, ends.free).add(PlannedSize(sized, choice.plan, choice.search_seconds))


def _texts(choice: PlanChoice) -> dict[str, Any]:
    return {
        "orders": json.dumps({name: asdict(order) for name, order in choice.orders.items()}),
        "binary": str(choice.binary),
        "program": choice.program_text,
        "plan": str(choice.plan),
        "reuse": choice.reuse,
        "search_seconds": f"{choice.search_seconds:.6e}",
        "origin": choice.origin,
    }


def _of_texts(texts: dict[str, Any], origin: str) -> PlanChoice:
    plan = _C.IaPlan.parse(texts["plan"], {})
    orders = {
        name: Order([(first, second) for first, second in order["path"]], order["compared"])
        for name, order in json.loads(texts["orders"]).items()
    }
    binary = _C.EinsumPlan.parse(texts["binary"])
    return PlanChoice(orders, binary, texts["program"], plan, origin, texts["reuse"], float(texts["search_seconds"]))


def _cached(texts: dict[str, Any], origin: str, current: Context, request: PlanRequest) -> PlanChoice:
    """The choice that a file holds, if its plan has the graph's inputs and outputs on these sites. Raises
    RejectedPlan."""
    graph = request.graph
    try:
        reuse = texts["reuse"]
        choice = _of_texts(texts, f"{origin}: {reuse}" if reuse else origin)
    except (Error, KeyError, TypeError, ValueError) as error:
        raise RejectedPlan(f"it is damaged: {error}", damaged=True) from None
    inputs = {name: (type_.relation.dtype, _extents(type_)) for name, type_ in choice.plan.inputs}
    outputs = {name: (type_.relation.dtype, _extents(type_)) for name, type_, _ in choice.plan.outputs}
    replicated = all(
        type_.placement.fully_replicated
        for name, type_, tied in choice.plan.outputs
        if name not in request.ends.free and tied is None
    )
    if str(choice.plan.grid) != str(current.grid) or not replicated:
        raise RejectedPlan("foreign: its plan is for other sites or results", damaged=True)
    # An expression need not read its operands, so the plan may have fewer inputs.
    if not inputs.items() <= _types(graph.inputs).items() or outputs != _types(graph.outputs):
        raise RejectedPlan("foreign: its plan has other inputs or outputs than the graph", damaged=True)
    return choice


def _extents(type_: _C.PhysicalType) -> tuple[int, ...]:
    return tuple(axis.extent for axis in type_.relation.axes)


def _types(values: list[tuple[str, tuple[str, list[int]]]]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (dtype, tuple(extents)) for name, (dtype, extents) in values}


def _searched(current: Context, request: PlanRequest, binary: _C.EinsumPlan, program: TraPlan) -> _C.IaPlan:
    baselines = request.baselines
    parts = () if baselines is None else tuple(baselines.parts_of(binary, program))
    options = search_options(current, request.graph, request.ends)
    if current.cluster.profile is not None and current.sites > 1:
        return _scheduled(current, program, options, parts)
    # Undecomposed calls may reverse the order of plans.
    return min(_undecomposed(_found(current, program, options, parts)), key=lambda each: _seconds(current, each))


def _found(
    current: Context, program: TraPlan, options: SearchOptions, starts: Sequence[_C.PartialPlan] = ()
) -> list[_C.IaPlan]:
    """The best plan, and what each warm start became."""
    result = search_in_process(current, program, options, starts)
    return [result.plans[0].plan.core, *(each for each in result.completed if each is not None)]


def _scheduled(
    current: Context, program: TraPlan, options: SearchOptions, starts: Sequence[_C.PartialPlan]
) -> _C.IaPlan:
    """The plan whose schedule is shortest. A search adds up nodes; as messages that travel together, or while sites
    compute, cost less, another one adds up what no schedule avoids.

    Short measurements differ from start to start, and many plans take nearly the same time. So a plan for coarse rates,
    which are equal at every start, is taken if it is about as fast by the measured ones.
    """
    cluster = current.cluster
    assert cluster.profile is not None

    def search(on: Cluster, starts: Sequence[_C.PartialPlan] = ()) -> list[_C.IaPlan]:
        return _found(current, program, replace(options, cluster=on), starts)

    with ThreadPoolExecutor() as threads:
        exact = [threads.submit(search, on, starts) for on in (cluster, cluster.with_hidden_messages)]
        flat = cluster.coarse
        on_coarse = (replace(flat, latency_seconds=0.0), flat) if cluster.profile.quick else ()
        coarse = [threads.submit(search, on) for on in on_coarse]
    steady = _undecomposed(plan for each in coarse for plan in each.result())
    plans = [*steady, *_undecomposed(plan for each in exact for plan in each.result())]
    seconds = [_seconds(current, plan) for plan in plans]
    nearly = (i for i in range(len(steady)) if seconds[i] <= _ABOUT * min(seconds))
    return plans[next(nearly, seconds.index(min(seconds)))]


def _undecomposed(plans: Iterable[_C.IaPlan]) -> list[_C.IaPlan]:
    """The different ones of them, without decomposed calls."""
    return [each.with_undecomposed_calls() for each in {str(each): each for each in plans}.values()]


def search_options(current: Context, graph: _C.EinsumPlan, ends: Ends) -> SearchOptions:
    """How a graph's plan is searched for."""
    loose = ends.free | set(graph.ties)
    pins = {name: _C.Placement.replicated(current.grid) for name, _ in graph.outputs if name not in loose}
    return SearchOptions(dict(ends.starts), pins, "seconds", current.cluster)


def _seconds(current: Context, plan: _C.IaPlan) -> float:
    """Predicted; infinite for a plan that a site has no memory for."""
    try:
        return _C.cost(plan, current.cluster.core()).seconds
    except PlanError:
        return math.inf


def logical_program(binary: _C.EinsumPlan, sites: int) -> TraPlan:
    """The plan over tuples, cut so that every division of the work among the sites is a placement."""
    return TraPlan(binary.lower(binary.even_cuts(sites)))
