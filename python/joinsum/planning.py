"""Where plans are found: in this process, or on a process group by rank 0 for all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from joinsum import _C
from joinsum.arguments import show
from joinsum.cluster import Cluster
from joinsum.context import Context, context
from joinsum.errors import InternalError, KernelError, PlanError
from joinsum.plan import IaPlan, TraPlan, verifying
from joinsum.stored import Place, resolve_place

__all__ = [
    "Found",
    "FoundPlan",
    "Given",
    "Options",
    "Phase",
    "RuleApplied",
    "by_first_site",
    "checked_pins",
    "checked_placements",
    "find",
    "find_here",
    "planned",
    "planned_here",
]

_ERRORS = {error.__name__: error for error in (InternalError, KernelError, PlanError)}


@dataclass(frozen=True)
class RuleApplied:
    """A rewriting rule that made a plan better: its name, the node it met, the minimised cost before and after."""

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
    """A plan that the optimizer considered; the fields are those of `joinsum.optimize`'s candidates."""

    name: str
    plan: _C.IaPlan
    exact: bool
    rules: tuple[RuleApplied, ...]


@dataclass(frozen=True)
class Found:
    """What the optimizer found.

    given   what each part of a plan that it was given became, for a call without the other ranks
    """

    plans: tuple[FoundPlan, ...]
    phases: tuple[Phase, ...]
    out_of_time: bool
    given: tuple[_C.IaPlan | None, ...] = ()


@dataclass(frozen=True)
class Given:
    """Parts of plans that a search fills in, too.

    told   whether all of them are told; else only those that cost about as much as the best plan
    """

    parts: Sequence[_C.PartialPlan]
    told: bool = False


@dataclass(frozen=True)
class Options:
    """What `joinsum.optimize` is told, checked."""

    placements: dict[str, _C.Placement]
    pins: dict[str, _C.Placement]
    minimize: str
    cluster: Cluster
    without: Sequence[str] = ()
    plans: int = 400
    seconds: float | None = None


def find(what: str, here: Context, plan: TraPlan, options: Options) -> Found:
    """Plans of a program, the best first. On a process group rank 0 finds them and sends them to the others as text;
    ranks that ask for different things raise TransportError, and what rank 0 raises is raised on every rank.

    what   the call that they are found for: `optimize`, `run`"""
    if here.whole:
        return find_here(here, plan, options)
    told = by_first_site(what, here, _request(plan, options), lambda: _answer(find_here(here, plan, options)))
    return _read(told, plan.core.tables)


def by_first_site(what: str, here: Context, request: str, answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `answer` gives on site 0, on every site; collective. Sites that make different requests raise
    TransportError, and what site 0 raises is raised on every site."""
    here.transport.agree(what, request)
    text = json.dumps(_told(what, answer)) if 0 in here.local_sites else ""
    told: dict[str, Any] = json.loads(here.from_first_site(what, text))
    if "error" in told:
        raise _ERRORS[told["error"]](told["message"])
    return told


def _told(what: str, answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answer, or the error."""
    try:
        return answer()
    except Exception as error:
        name = type(error).__name__
        known = name in _ERRORS
        message = str(error) if known else f"{what}: {name} on rank 0: {error}"
        return {"error": name if known else InternalError.__name__, "message": message}


def find_here(here: Context, plan: TraPlan, options: Options, given: Given | None = None) -> Found:
    """The same without the other ranks. The best plan is also looked for around `given` parts of plans, and is no
    dearer than what these become."""
    core = _C.optimize(
        plan.core,
        here.grid,
        options.placements,
        options.pins,
        options.minimize,
        options.cluster.core(),
        list(options.without),
        options.plans,
        options.seconds,
        verifying(),
        [] if given is None else list(given.parts),
        given is not None and given.told,
    )
    plans = tuple(
        FoundPlan(
            candidate.name,
            candidate.plan,
            candidate.exact,
            tuple(RuleApplied(step.rule, step.node, step.before, step.after) for step in candidate.steps),
        )
        for candidate in core.candidates
    )
    phases = tuple(Phase(phase.name, phase.seconds, phase.plans, phase.best) for phase in core.phases)
    return Found(plans, phases, core.out_of_time, tuple(core.given))


def planned(plan: TraPlan, place: Mapping[str, Place]) -> IaPlan:
    """The plan that a run of `plan` takes: of least seconds among those found in a moment. The context remembers it."""
    here = context()
    placements = checked_placements(plan, place, here.grid)

    def make() -> IaPlan:
        return IaPlan(find("run", here, plan, Options(placements, {}, "seconds", here.cluster)).plans[0].plan)

    places = tuple((name, spot.text(plan.inputs[name].frontier)) for name, spot in placements.items())
    tables = tuple((name, tuple(values)) for name, values in plan.core.tables.items())
    return here.remembered((plan, places, tables), make)


def planned_here(plan: TraPlan, cluster: Cluster) -> IaPlan:
    """The same for any cluster, without the other ranks: they need not call."""
    here = context()
    options = Options(checked_placements(plan, {}, here.grid), {}, "seconds", cluster)
    return IaPlan(find_here(here, plan, options).plans[0].plan)


def checked_placements(plan: TraPlan, place: Mapping[str, Place] | None, grid: _C.Grid) -> dict[str, _C.Placement]:
    """Where inputs start, by name: as their relations said, and as `place` says."""
    inputs = plan.inputs
    places = plan.places | dict(place or {})
    for name in places:
        if name not in inputs:
            raise PlanError(
                f"optimize: a place for an input that is not there: input={show(name)}, inputs={list(inputs)}"
            )
    return {name: resolve_place(f"input {name}", spot, grid, inputs[name].frontier) for name, spot in places.items()}


def checked_pins(plan: TraPlan, pins: Mapping[str, Place] | None, grid: _C.Grid) -> dict[str, _C.Placement]:
    """Where values must be put, by name."""
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


def _request(plan: TraPlan, options: Options) -> str:
    """All that the result depends on."""
    inputs, values = plan.inputs, _value_types(plan)
    lines = [f"input {name} starts at {spot.text(inputs[name].frontier)}" for name, spot in options.placements.items()]
    lines += [f"pin {name} at {spot.text(values[name].frontier)}" for name, spot in options.pins.items()]
    fields = ("minimize", "cluster", "without", "plans", "seconds")
    lines += [f"{name}={getattr(options, name)}" for name in fields]
    return plan.text + "\n" + "\n".join(lines)


def _answer(found: Found) -> dict[str, Any]:
    plans = [
        {
            "name": each.name,
            "plan": str(each.plan),
            "exact": each.exact,
            "rules": [asdict(rule) for rule in each.rules],
        }
        for each in found.plans
    ]
    return {"plans": plans, "phases": [asdict(phase) for phase in found.phases], "out_of_time": found.out_of_time}


def _read(answer: dict[str, Any], tables: dict[str, list[int]]) -> Found:
    plans = tuple(
        FoundPlan(
            each["name"],
            _C.IaPlan.parse(each["plan"], tables),
            each["exact"],
            tuple(RuleApplied(**rule) for rule in each["rules"]),
        )
        for each in answer["plans"]
    )
    return Found(plans, tuple(Phase(**phase) for phase in answer["phases"]), answer["out_of_time"])
