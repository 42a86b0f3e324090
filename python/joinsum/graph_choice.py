"""Choosing the plan of a graph of einsums: order, cuts and placements; or taking the one that is kept."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from joinsum import _C
from joinsum.context import Context
from joinsum.contraction_order import Order, best_orders
from joinsum.errors import Error, PlanError
from joinsum.kept_plans import KeptPlans, Key, Rejected, plans_folder
from joinsum.plan import TraPlan, verifying
from joinsum.plan_sizes import Asked, Carried, Planned, sizes_of
from joinsum.planning import Given, Options, by_first_site, find_here

__all__ = ["Choice", "Ends", "Rivals", "choose", "logical_program", "search_options"]

# The part of the best plan's seconds up to which others are compared once more.
_NEARLY = 1.01


@dataclass(frozen=True)
class Choice:
    """A graph's plan, and what it was made from.

    orders         of vertices of more than two operands, by name, where there is one to choose
    binary         the graph in einsums of two operands, in the order that they are joined
    program_text   the logical plan
    plan           the physical plan; outputs are on every site
    origin         where it comes from: planned here, the plan of another size, or the file that it was kept in
    carried        from which other size its plan is, and what it may lose; nothing where it was planned for its own
    """

    orders: dict[str, Order]
    binary: _C.EinsumPlan
    program_text: str
    plan: _C.IaPlan
    origin: str
    carried: str = ""

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
        """What a plan depends on besides its graph; nothing where all is as usual."""
        ranks = {name: list(range(len(extents))) for name, (_, extents) in graph.inputs}
        lines = [f"{name} starts at {place.text(ranks[name])}" for name, place in sorted(self.starts.items())]
        return "\n".join([*lines, *(f"{name} ends anywhere" for name in sorted(self.free))])


@dataclass(frozen=True)
class Rivals:
    """Parts of plans that a search also fills in: its own plan is no dearer than what they become.

    text   what they depend on besides the graph
    of     the rivals for a graph and its logical plan
    """

    text: str
    of: Callable[[_C.EinsumPlan, TraPlan], Iterable[_C.PartialPlan]]


def choose(
    here: Context,
    graph: _C.EinsumPlan,
    kept: bool,
    ends: Ends = Ends(),
    sizes: bool = False,
    rivals: Rivals | None = None,
) -> Choice:
    """The plan of least seconds for the context's sites, with outputs on every site.

    kept     looks for it in the user's cache folder first, and leaves it there
    ends     where inputs start and outputs end otherwise
    sizes    takes the plan of a graph that this process has planned before and that differs in the extent of one axis
             alone, where that is modelled to lose at most a tenth
    rivals   plans that a choice is never worse than

    On a process group site 0 does, and all sites get the same; all must call, with one graph. Raises PlanError.
    """
    with here.preparing("einsum"):
        folder = plans_folder() if kept and here.keeps_plans and not verifying() else None
    if here.whole:
        return _looked_up(folder, here, graph, ends, sizes, rivals)
    tried = "" if rivals is None else rivals.text
    request = (
        f"{'a plan' if folder is None else 'a plan, which may be kept'}\n{graph}{ends.text(graph)}{tried}{here.cluster}"
    )
    here.transport.agree("einsum", request)  # before what follows, in which all take part
    if folder is not None:
        _ = here.machine
    told = by_first_site("einsum", here, request, lambda: _texts(_looked_up(folder, here, graph, ends, sizes, rivals)))
    return _of_texts(told, told["origin"])


def _looked_up(
    folder: KeptPlans | None, here: Context, graph: _C.EinsumPlan, ends: Ends, sizes: bool, rivals: Rivals | None
) -> Choice:
    if folder is None:
        return _made(here, graph, "", ends, sizes, rivals)
    tried = "" if rivals is None else rivals.text
    key = Key(str(graph) + ends.text(graph) + tried, here.machine, here.cluster)
    note = ""
    try:
        texts = folder.read(key)
        if texts is not None:
            choice = _kept(texts, f"kept in {folder.path(key)}", here, graph, ends)
            if sizes and not choice.carried:
                _remember(here, choice, ends)
            return choice
    except Rejected as rejected:
        note = f", as the kept plan was rejected: {rejected}"
        if rejected.damaged:
            warnings.warn(f"einsum: a kept plan is rejected: {rejected}: file={folder.path(key)}", stacklevel=2)
    choice = _made(here, graph, note, ends, sizes, rivals)
    folder.write(key, {name: text for name, text in _texts(choice).items() if name != "origin"})
    return choice


def _made(here: Context, graph: _C.EinsumPlan, note: str, ends: Ends, sizes: bool, rivals: Rivals | None) -> Choice:
    """The plan of another size if that will do, else a new one."""
    orders = best_orders(graph, here, everywhere=True)
    binary = graph.binary({name: order.path for name, order in orders.items()})
    program = logical_program(binary, here.sites)
    known = sizes_of(here, binary, ends.free) if sizes else None
    asked = Asked(binary, program, ends.starts, here.cluster, here.sites)
    carried = "" if known is None else known.carried(asked)
    if isinstance(carried, Carried):
        return Choice(orders, binary, program.text, carried.plan, carried.told + note, carried.told)
    plan = _planned(here, graph, binary, program, ends, rivals)
    if known is not None:
        known.add(Planned(asked, plan))
    return Choice(orders, binary, program.text, plan, f"planned here{carried and f': {carried}'}{note}")


def _remember(here: Context, choice: Choice, ends: Ends) -> None:
    """Makes a kept plan known to those of other sizes."""
    asked = Asked(choice.binary, choice.program, ends.starts, here.cluster, here.sites)
    sizes_of(here, choice.binary, ends.free).add(Planned(asked, choice.plan))


def _texts(choice: Choice) -> dict[str, Any]:
    return {
        "orders": json.dumps({name: asdict(order) for name, order in choice.orders.items()}),
        "binary": str(choice.binary),
        "program": choice.program_text,
        "plan": str(choice.plan),
        "carried": choice.carried,
        "origin": choice.origin,
    }


def _of_texts(texts: dict[str, Any], origin: str) -> Choice:
    plan = _C.IaPlan.parse(texts["plan"], {})
    orders = {
        name: Order([(first, second) for first, second in order["path"]], order["compared"])
        for name, order in json.loads(texts["orders"]).items()
    }
    binary = _C.EinsumPlan.parse(texts["binary"])
    return Choice(orders, binary, texts["program"], plan, origin, texts["carried"])


def _kept(texts: dict[str, Any], origin: str, here: Context, graph: _C.EinsumPlan, ends: Ends) -> Choice:
    """The choice that a file holds, if its plan has the graph's inputs and outputs on these sites; else Rejected."""
    try:
        carried = texts["carried"]
        choice = _of_texts(texts, f"{origin}: {carried}" if carried else origin)
    except (Error, KeyError, TypeError, ValueError) as error:
        raise Rejected(f"it is damaged: {error}", damaged=True) from None
    given = {name: (type_.relation.dtype, _extents(type_)) for name, type_ in choice.plan.inputs}
    made = {name: (type_.relation.dtype, _extents(type_)) for name, type_, _ in choice.plan.outputs}
    replicated = all(
        type_.placement.fully_replicated
        for name, type_, tied in choice.plan.outputs
        if name not in ends.free and tied is None
    )
    if str(choice.plan.grid) != str(here.grid) or not replicated:
        raise Rejected("foreign: its plan is for other sites or results", damaged=True)
    # An expression need not read its operands, so the plan may have fewer inputs.
    if not given.items() <= _types(graph.inputs).items() or made != _types(graph.outputs):
        raise Rejected("foreign: its plan has other inputs or outputs than the graph", damaged=True)
    return choice


def _extents(type_: _C.PhysicalType) -> tuple[int, ...]:
    return tuple(axis.extent for axis in type_.relation.axes)


def _types(values: list[tuple[str, tuple[str, list[int]]]]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (dtype, tuple(extents)) for name, (dtype, extents) in values}


def _planned(
    here: Context, graph: _C.EinsumPlan, binary: _C.EinsumPlan, program: TraPlan, ends: Ends, rivals: Rivals | None
) -> _C.IaPlan:
    given = None if rivals is None else Given(tuple(rivals.of(binary, program)))
    found = find_here(here, program, search_options(here, graph, ends), given)
    best = found.plans[0].plan
    plan = best.with_uncut_calls()
    others = [each for each in found.given if each is not None and str(each) != str(best)]
    if not others:
        return plan
    # Calls that run at once may turn around what is nearly equal.
    most = _NEARLY * _seconds(here, best)
    near = [each.with_uncut_calls() for each in others if _seconds(here, each) <= most]
    return min([plan, *near], key=lambda each: _seconds(here, each))


def search_options(here: Context, graph: _C.EinsumPlan, ends: Ends) -> Options:
    """What a search of a graph's plan is told."""
    loose = ends.free | set(graph.ties)
    pins = {name: _C.Placement.replicated(here.grid) for name, _ in graph.outputs if name not in loose}
    return Options(dict(ends.starts), pins, "seconds", here.cluster)


def _seconds(here: Context, plan: _C.IaPlan) -> float:
    """Predicted; infinite for a plan that a site has no memory for."""
    try:
        return _C.cost(plan, here.cluster.core()).seconds
    except PlanError:
        return math.inf


def logical_program(binary: _C.EinsumPlan, sites: int) -> TraPlan:
    """The plan over tuples, cut so that every way to divide the work among the sites is a placement."""
    return TraPlan(binary.lower(binary.even_cuts(sites)))
