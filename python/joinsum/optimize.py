"""Finding the physical plan of a logical one that costs least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from joinsum import _C
from joinsum.arguments import integer, show
from joinsum.cluster import Cluster
from joinsum.context import context
from joinsum.cost import PlanCost, cost
from joinsum.errors import PlanError
from joinsum.plan import IaPlan, TraPlan
from joinsum.stored import Place, resolve_place
from joinsum.text_table import count_text, seconds_text, text_table

__all__ = ["Candidate", "Optimized", "Phase", "RuleApplied", "optimize"]

_SHOWN = 8


@dataclass(frozen=True)
class RuleApplied:
    """A rewriting rule that made a plan better: its name, the node it met, the minimised cost before and after."""

    rule: str
    node: str
    before: float
    after: float


@dataclass(frozen=True)
class Candidate:
    """A plan that was considered.

    `name` says where it comes from, `exact` that it is the best of the placements that it was chosen from, `rules` what
    was applied to it.
    """

    name: str
    plan: IaPlan
    cost: PlanCost
    exact: bool
    rules: tuple[RuleApplied, ...]


@dataclass(frozen=True)
class Phase:
    """A phase of the optimizer: its seconds, the plans it looked at, and the least cost known after it."""

    name: str
    seconds: float
    plans: int
    best: float


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
    minimize: str = "seconds",
    cluster: Cluster | None = None,
    without: Sequence[str] = (),
    plans: int = 400,
    seconds: float | None = None,
) -> Optimized:
    """Finds the physical plan of least cost for the sites there are.

    Placements of all values are chosen together, exactly where the plan's graph is narrow enough; the paper's matrix
    products and plans that divide one or two dimensions only are candidates beside it; rewriting rules then improve the
    best ones. Every rank of a process group finds the same plan, and `joinsum.run` checks that.

    place      where inputs start, by name, as for `joinsum.relation`; by default as their relations said. An input of
               which nothing is said may start anywhere: the plan says where
    minimize   "seconds" (of `cluster`), "wire_bytes" or "paper_floats"; ties go to fewer flops, then fewer operators
    cluster    the machine; by default the context's
    without    phases (lower, placement, products, rewrite) and rules to leave out, by name
    plans      that each rewriting looks at
    seconds    after which the best plan so far is returned; on loopback only, since ranks would stop at different plans

    Raises PlanError for what does not fit, an unknown name, or where no plan fits the cluster's memory.
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
    if not isinstance(plan, TraPlan):
        raise PlanError(f"optimize: not a logical plan: got={type(plan).__name__}")
    here = context()
    machine = here.cluster if cluster is None else cluster
    if not isinstance(machine, Cluster):
        raise PlanError(f"optimize: a cluster is a joinsum.Cluster: cluster={show(cluster)}")
    looked_at = integer("optimize", "plans", plans)
    if looked_at < 1:
        raise PlanError(f"optimize: at least one plan is looked at: plans={looked_at}")
    limit = _limit(seconds, here.whole)
    if isinstance(without, str) or not all(isinstance(name, str) for name in without):
        raise PlanError(f"optimize: names to leave out are a list of text: without={show(without)}")
    if not isinstance(minimize, str):
        raise PlanError(f"optimize: the cost is named by text: minimize={show(minimize)}")
    found = _C.optimize(
        plan.core,
        here.grid,
        _placements(plan, place, here.grid),
        minimize,
        machine.core(),
        list(without),
        looked_at,
        limit,
    )
    return Optimized(
        plan,
        minimize,
        tuple(_candidate(candidate, machine) for candidate in found.candidates),
        tuple(Phase(phase.name, phase.seconds, phase.plans, phase.best) for phase in found.phases),
        found.out_of_time,
    )


def _placements(plan: TraPlan, place: Mapping[str, Place] | None, grid: _C.Grid) -> dict[str, _C.Placement]:
    inputs = plan.inputs
    places = plan.places | dict(place or {})
    for name in places:
        if name not in inputs:
            raise PlanError(
                f"optimize: a place for an input that is not there: input={show(name)}, inputs={list(inputs)}"
            )
    return {name: resolve_place(f"input {name}", spot, grid, inputs[name].frontier) for name, spot in places.items()}


def _limit(seconds: float | None, whole: bool) -> float | None:
    if seconds is None:
        return None
    number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not number or not seconds >= 0:
        raise PlanError(f"optimize: a limit is a number of seconds: seconds={show(seconds)}")
    if not whole:
        raise PlanError("optimize: ranks would stop at different plans; limit by plans= on a process group")
    return float(seconds)


def _candidate(candidate: _C.Candidate, cluster: Cluster) -> Candidate:
    plan = IaPlan(candidate.plan)
    applied = tuple(RuleApplied(step.rule, step.node, step.before, step.after) for step in candidate.steps)
    return Candidate(candidate.name, plan, cost(plan, cluster), candidate.exact, applied)


def _value(minimized: str, value: float) -> str:
    return seconds_text(value) if minimized == "seconds" else count_text(value)
