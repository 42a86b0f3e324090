"""Searching for plans: in this process, or on a process group by rank 0 for all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from joinsum import _C
from joinsum.algebra.plan import IaPlan, TraPlan, initial_placements, verifying
from joinsum.algebra.stored_relation import Place, resolve_place
from joinsum.base.arguments import show
from joinsum.base.errors import InternalError, KernelError, PlanError
from joinsum.cluster.cluster import Cluster
from joinsum.cluster.context import Context, context

__all__ = [
    "FoundPlan",
    "Phase",
    "RuleApplied",
    "SearchOptions",
    "SearchResult",
    "checked_pins",
    "from_first_site",
    "plan_of_run",
    "plan_of_run_in_process",
    "search",
    "search_in_process",
]

_ERRORS = {error.__name__: error for error in (InternalError, KernelError, PlanError)}


@dataclass(frozen=True)
class RuleApplied:
    """A rewriting rule that improved a plan: its name, the node it met, the minimised cost before and after."""

    rule: str
    node: str
    before: float
    after: float


@dataclass(frozen=True)
class Phase:
    """A phase of the optimizer: its seconds, the plans it looked at, and the least cost known after it."""

    name: str
    seconds: float
    plans: int
    best: float


@dataclass(frozen=True)
class FoundPlan:
    """A plan that the optimizer considered.

    name    where it comes from
    exact   whether it is the best of the placements that it was chosen from
    rules   those that were applied to it
    """

    name: str
    plan: IaPlan
    exact: bool
    rules: tuple[RuleApplied, ...]


@dataclass(frozen=True)
class SearchResult:
    """What the optimizer found.

    completed   what each warm start became, for a search without the other ranks
    """

    plans: tuple[FoundPlan, ...]
    phases: tuple[Phase, ...]
    out_of_time: bool
    completed: tuple[_C.IaPlan | None, ...] = ()


@dataclass(frozen=True)
class SearchOptions:
    """The options of `joinsum.optimize`, checked."""

    placements: dict[str, _C.Placement]
    pins: dict[str, _C.Placement]
    minimize: str
    cluster: Cluster
    without: Sequence[str] = ()
    plans: int = 400
    seconds: float | None = None


def search(what: str, current: Context, plan: TraPlan, options: SearchOptions) -> SearchResult:
    """Plans of a program, the best first. On a process group rank 0 finds them and sends them to the others as text;
    ranks that ask for different things raise TransportError, and what rank 0 raises is raised on every rank.

    what   the call that they are searched for: `optimize`, `run`"""
    if current.single_process:
        return search_in_process(current, plan, options)
    request = _request(plan, options)
    reply = from_first_site(what, current, request, lambda: _reply_of(search_in_process(current, plan, options)))
    return _result_of(reply, plan.core.tables)


def from_first_site(what: str, current: Context, request: str, answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `answer` gives on site 0, on every site; collective. Sites that make different requests raise
    TransportError, and what site 0 raises is raised on every site."""
    current.transport.agree(what, request)
    text = json.dumps(_answer_or_error(what, answer)) if 0 in current.local_sites else ""
    reply: dict[str, Any] = json.loads(current.from_first_site(what, text))
    if "error" in reply:
        raise _ERRORS[reply["error"]](reply["message"])
    return reply


def _answer_or_error(what: str, answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return answer()
    except Exception as error:
        name = type(error).__name__
        known = name in _ERRORS
        message = str(error) if known else f"{what}: {name} on rank 0: {error}"
        return {"error": name if known else InternalError.__name__, "message": message}


def search_in_process(
    current: Context, plan: TraPlan, options: SearchOptions, starts: Sequence[_C.PartialPlan] = ()
) -> SearchResult:
    """The same without the other ranks. The search also completes the parts of plans in `starts`; its best plan costs
    no more than what these become."""
    core = _C.optimize(
        plan.core,
        current.grid,
        options.placements,
        options.pins,
        options.minimize,
        options.cluster.core(),
        list(options.without),
        options.plans,
        options.seconds,
        verifying(),
        list(starts),
    )
    plans = tuple(
        FoundPlan(
            candidate.name,
            IaPlan(candidate.plan),
            candidate.exact,
            tuple(RuleApplied(step.rule, step.node, step.before, step.after) for step in candidate.steps),
        )
        for candidate in core.candidates
    )
    phases = tuple(Phase(phase.name, phase.seconds, phase.plans, phase.best) for phase in core.phases)
    return SearchResult(plans, phases, core.out_of_time, tuple(core.warm_starts))


def plan_of_run(plan: TraPlan, place: Mapping[str, Place]) -> IaPlan:
    """The plan that a run of `plan` takes: of least seconds among those found in a moment. The context remembers it."""
    current = context()
    placements = initial_placements("run", plan, place, current.grid)

    def make() -> IaPlan:
        return search("run", current, plan, SearchOptions(placements, {}, "seconds", current.cluster)).plans[0].plan

    places = tuple((name, spot.text(plan.inputs[name].frontier)) for name, spot in placements.items())
    tables = tuple((name, tuple(values)) for name, values in plan.core.tables.items())
    return current.cached((plan, places, tables), make)


def plan_of_run_in_process(plan: TraPlan, cluster: Cluster) -> IaPlan:
    """The same for any cluster, without the other ranks: they need not call."""
    current = context()
    options = SearchOptions(initial_placements("run", plan, None, current.grid), {}, "seconds", cluster)
    return search_in_process(current, plan, options).plans[0].plan


def checked_pins(plan: TraPlan, pins: Mapping[str, Place] | None, grid: _C.Grid) -> dict[str, _C.Placement]:
    """Placements that values must have, by name."""
    types = _value_types(plan)
    for name in pins or {}:
        if name not in types:
            raise PlanError(
                "optimize: no such value to pin; the names are those of the plan's text: "
                f"pin={show(name)}, values={sorted(types)}"
            )
    return {name: resolve_place(f"pin {name}", spot, grid, types[name].frontier) for name, spot in (pins or {}).items()}


def _value_types(plan: TraPlan) -> dict[str, _C.RelationType]:
    """Types of what can be pinned, by name."""
    return plan.core.nodes | plan.outputs


def _request(plan: TraPlan, options: SearchOptions) -> str:
    """All that the result depends on."""
    inputs, values = plan.inputs, _value_types(plan)
    lines = [f"input {name} starts at {spot.text(inputs[name].frontier)}" for name, spot in options.placements.items()]
    lines += [f"pin {name} at {spot.text(values[name].frontier)}" for name, spot in options.pins.items()]
    fields = ("minimize", "cluster", "without", "plans", "seconds")
    lines += [f"{name}={getattr(options, name)}" for name in fields]
    return plan.text + "\n" + "\n".join(lines)


def _reply_of(result: SearchResult) -> dict[str, Any]:
    plans = [
        {
            "name": each.name,
            "plan": str(each.plan),
            "exact": each.exact,
            "rules": [asdict(rule) for rule in each.rules],
        }
        for each in result.plans
    ]
    return {"plans": plans, "phases": [asdict(phase) for phase in result.phases], "out_of_time": result.out_of_time}


def _result_of(reply: dict[str, Any], tables: dict[str, list[int]]) -> SearchResult:
    plans = tuple(
        FoundPlan(
            each["name"],
            IaPlan(_C.IaPlan.parse(each["plan"], tables)),
            each["exact"],
            tuple(RuleApplied(**rule) for rule in each["rules"]),
        )
        for each in reply["plans"]
    )
    return SearchResult(plans, tuple(Phase(**phase) for phase in reply["phases"]), reply["out_of_time"])
