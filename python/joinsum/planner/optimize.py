"""Finding the physical plan of a logical one that costs least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from joinsum import _C
from joinsum.algebra.plan import IaPlan, TraPlan, initial_placements
from joinsum.algebra.stored_relation import Place
from joinsum.base.arguments import integer, show, time_limit
from joinsum.base.errors import PlanError
from joinsum.base.text_table import count_text, seconds_text, text_table
from joinsum.cluster.cluster import Cluster
from joinsum.cluster.context import cluster_or_current, context
from joinsum.planner.cost import PlanCost, cost
from joinsum.planner.search import (
    FoundPlan,
    Phase,
    RuleApplied,
    SearchOptions,
    SearchResult,
    checked_pins,
    search,
    search_in_process,
)

__all__ = ["Candidate", "Optimized", "Phase", "RuleApplied", "optimize", "optimize_in_process"]

_SHOWN = 8


@dataclass(frozen=True)
class Candidate(FoundPlan):
    """A plan that was considered, with its cost."""

    cost: PlanCost


@dataclass(frozen=True, repr=False)
class Optimized:
    """What `joinsum.optimize` found: the best plan, its cost, and the others by their cost; prints as a report.

    program       the logical plan
    minimized     the cost that was minimised
    candidates    all plans, the best first
    phases        what the optimizer did
    out_of_time   whether it stopped at its deadline
    """

    program: TraPlan
    minimized: str
    candidates: tuple[Candidate, ...]
    phases: tuple[Phase, ...]
    out_of_time: bool

    @property
    def plan(self) -> IaPlan:
        """The best plan; `joinsum.run` runs it."""
        return self.candidates[0].plan

    @property
    def cost(self) -> PlanCost:
        """The best plan's three costs, node by node."""
        return self.candidates[0].cost

    def __repr__(self) -> str:
        best = self.candidates[0]
        found = f"found by {best.name}" + (", proven best of its placements" if best.exact else "")
        late = ", stopped at the deadline" if self.out_of_time else ""
        parts = [f"plan of least {self.minimized}, {found}{late}", str(best.plan)]
        if best.rules:
            rows = [
                [step.rule, step.node, _value(self.minimized, step.before), _value(self.minimized, step.after)]
                for step in best.rules
            ]
            parts.append("rules applied\n" + text_table(["rule", "node", "before", "after"], rows, right=range(2, 4)))
        parts.append("plans considered, the best first\n" + self._candidates_table())
        parts.append(f"cost {best.cost}")
        return "\n".join(parts)

    def _candidates_table(self) -> str:
        rows = [
            [
                candidate.name,
                count_text(candidate.cost.paper_floats),
                count_text(candidate.cost.wire_bytes),
                count_text(candidate.cost.flops),
                seconds_text(candidate.cost.seconds),
            ]
            for candidate in self.candidates[:_SHOWN]
        ]
        rest = len(self.candidates) - len(rows)
        table = text_table(["plan", "paper floats", "wire B", "flops", "time"], rows, right=range(1, 5))
        return table + (f"\nand {rest} more" if rest > 0 else "")


def optimize(
    plan: TraPlan,
    place: Mapping[str, Place] | None = None,
    *,
    pins: Mapping[str, Place] | None = None,
    minimize: str = "seconds",
    cluster: Cluster | None = None,
    without: Sequence[str] = (),
    plans: int = 400,
    seconds: float | None = None,
) -> Optimized:
    """Finds the physical plan of least cost for the sites there are.

    Placements of all values are chosen together, exactly where the plan's graph is narrow enough; the paper's matrix
    products and plans that divide one or two dimensions only are candidates beside it; rewriting rules then improve the
    best ones. On a process group every rank calls; rank 0 plans and sends its plans to the others.

    place      where inputs start, by name, as for `joinsum.relation`; by default as their relations specify. Any
               other input may start anywhere: the plan says where
    pins       placements that values must have, by the names of outputs and of the nodes in the plan's text. An output
               stays there; every reader of another value takes it from there (then only the placement phase plans)
    minimize   "seconds" (of `cluster`), "wire_bytes" or "paper_floats"; ties go to fewer flops, then fewer operators
    cluster    the machine; by default the context's
    without    phases (lower, placement, products, rewrite) and rules to leave out, by name
    plans      that each rewriting looks at
    seconds    after which the best plan so far is returned

    With JOINSUM_VERIFY=1 in the environment `joinsum.verify` must accept every candidate. Raises PlanError for what
    does not fit, an unknown name, pins that contradict each other or where inputs start, or where no plan fits the
    cluster's memory; TransportError where ranks ask for different things.
    Source: TRA paper, section 5; the placement by variable elimination is ours (`docs/optimizer.md`).

    >>> import joinsum
    >>> _ = joinsum.init(sites=4)
    >>> program = joinsum.parse('''tra
    ... input A: f32[64,256]<4,4>
    ... input B: f32[256,64]<4,4>
    ... output C = aggregate[0, 2; add](join[1; 0; matmul](A, B))''')
    >>> found = joinsum.optimize(program, {"A": [1, 1], "B": [0, 0]}, minimize="wire_bytes")
    >>> print(found.plan)
    ia on 2x2
    input A: f32[64,256]<4,4> on 2x2 (1, 1)
    input B: f32[256,64]<4,4> on 2x2 (0, 0)
    t0 = local_join[1; 0; matmul](A, B): f32[64@0,64@2]<4,4,4> on 2x2 (1, 1)
    t1 = local_aggregate[0, 2; add](t0): f32[64,64]<4,4> on 2x2 (+add, +add)
    t2 = shuffle[(0, 0)](t1): f32[64,64]<4,4> on 2x2 (0, 0)
    output C = t2
    <BLANKLINE>
    >>> found.cost.wire_bytes, found.candidates[0].exact
    (49152, True)
    """
    current = context()
    arguments = _Arguments(place, pins, minimize, cluster, without, plans, seconds)
    with current.preparing("optimize"):
        options = _options(plan, arguments)
    return _optimized(plan, options, search("optimize", current, plan, options))


def optimize_in_process(plan: TraPlan, place: Mapping[str, Place] | None = None, **arguments: Any) -> Optimized:
    """What `optimize` finds for its arguments, without the other ranks: they need not call."""
    options = _options(plan, _Arguments(place, **arguments))
    return _optimized(plan, options, search_in_process(context(), plan, options))


@dataclass(frozen=True)
class _Arguments:
    """Arguments of `optimize`, as a caller gives them."""

    place: Mapping[str, Place] | None = None
    pins: Mapping[str, Place] | None = None
    minimize: str = "seconds"
    cluster: Cluster | None = None
    without: Sequence[str] = ()
    plans: int = 400
    seconds: float | None = None


def _options(plan: TraPlan, arguments: _Arguments) -> SearchOptions:
    current = context()
    machine = cluster_or_current("optimize", arguments.cluster)
    plans = integer("optimize", "plans", arguments.plans)
    if plans < 1:
        raise PlanError(f"optimize: at least one plan is looked at: plans={plans}")
    _check_names(arguments.without)
    if not isinstance(arguments.minimize, str):
        raise PlanError(f"optimize: the cost is named by text: minimize={show(arguments.minimize)}")
    return SearchOptions(
        initial_placements("optimize", plan, arguments.place, current.grid),
        checked_pins(plan, arguments.pins, current.grid),
        arguments.minimize,
        machine,
        tuple(arguments.without),
        plans,
        time_limit("optimize", arguments.seconds),
    )


def _check_names(without: Sequence[str]) -> None:
    """Raises PlanError for what is no list of phases and rules."""
    if isinstance(without, str) or not all(isinstance(name, str) for name in without):
        raise PlanError(f"optimize: names to leave out are a list of text: without={show(without)}")
    phases, rules = _C.phase_names(), [rule.name for rule in _C.rules()]
    for name in without:
        if name not in phases and name not in rules:
            raise PlanError(f"optimize: no such phase or rule: name={show(name)}, phases={phases}, rules={rules}")


def _optimized(plan: TraPlan, options: SearchOptions, result: SearchResult) -> Optimized:
    return Optimized(
        plan,
        options.minimize,
        tuple(Candidate(**vars(each), cost=cost(each.plan, options.cluster)) for each in result.plans),
        result.phases,
        result.out_of_time,
    )


def _value(minimized: str, value: float) -> str:
    return seconds_text(value) if minimized == "seconds" else count_text(value)
