"""What `joinsum.plan_graph` reports: the divisions of a graph's operations, what they move, and the baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from joinsum.algebra.plan import IaPlan
from joinsum.base.text_table import count_text, seconds_text, text_table
from joinsum.planner.cost import amount_text
from joinsum.planner.graph_placement import Baseline

__all__ = ["GraphPlan", "VertexPlan"]

_SHOWN = 60


@dataclass(frozen=True)
class VertexPlan:
    """How an operation runs, and what it moves.

    parts         number of parts of each label; under "paper" their product is the number of kernel calls
    join          elements that arrive at the kernel calls (these three: under "paper" only, else 0)
    aggregation   elements that move to be aggregated
    repartitions  elements that move because an operand is cut otherwise than it was computed or stored, by operand
    placement     the label that each axis of the grid of sites divides, `*` where sites repeat the work; of an input
                  the axis of its tensor. None under "paper"
    wire_bytes    bytes that moves of its value send, in all
    seconds       of its work, and of moves of its value
    """

    name: str
    parts: Mapping[str, int]
    join: int = 0
    aggregation: int = 0
    repartitions: tuple[int, ...] = ()
    placement: str | None = None
    wire_bytes: int = 0
    seconds: float = 0.0

    @property
    def calls(self) -> int:
        """The product of the parts: kernel calls, or sites that do different work."""
        calls = 1
        for parts in self.parts.values():
            calls *= parts
        return calls

    @property
    def cost(self) -> int:
        """All elements that it moves, under "paper"."""
        return self.join + self.aggregation + sum(self.repartitions)


@dataclass(frozen=True, repr=False)
class GraphPlan:
    """What `joinsum.plan_graph` found; prints as a table of operations, their parts and their costs.

    It is a report of divisions and costs, also for more sites than there are, and holds nothing that runs on tensors: a
    graph that is planned to be called is a `PlannedGraph`.

    cost          elements moved at worst, bytes on the wire, or seconds: by the objective, all operations together
    lower_bound   no plan costs less
    exact         whether the plan is proven best
    method        what found it: "elimination", "linearisation", or the baseline that is returned
    tables        under "paper": tables of costs that were computed, and that there would be if equal operations did not
                  share them
    sites         that it is for, on real placements (the fields from here are for those alone)
    inputs        where inputs start, and what moving them costs
    wire_bytes    bytes that all sites send
    seconds       of the described machine
    peak_bytes    that the site which needs most stores at one moment, and the largest tensor among them
    baselines     standard plans such as data parallel, priced the same way
    physical      the plan that `joinsum.run` runs
    """

    objective: str
    calls: int
    vertices: tuple[VertexPlan, ...]
    cost: float
    lower_bound: float
    exact: bool
    method: str
    tables: tuple[int, int]
    sites: int | None = None
    inputs: tuple[VertexPlan, ...] = ()
    wire_bytes: int = 0
    seconds: float = 0.0
    peak_bytes: int = 0
    peak_tensor: str = ""
    baselines: tuple[Baseline, ...] = ()
    physical: IaPlan | None = None

    @property
    def plan(self) -> dict[str, dict[str, int]]:
        """The number of parts of each label, by operation."""
        return {vertex.name: dict(vertex.parts) for vertex in self.vertices}

    def to_json(self) -> dict[str, Any]:
        """The plan as `json.dumps` takes it: plan, cost, exact, lower_bound; on real placements also sites, method,
        placements of inputs and operations, wire_bytes, seconds, peak_bytes and baselines."""
        found = {"plan": self.plan, "cost": self.cost, "exact": self.exact, "lower_bound": self.lower_bound}
        if self.sites is None:
            return found
        return found | {
            "sites": self.sites,
            "method": self.method,
            "placements": {vertex.name: vertex.placement for vertex in self.vertices},
            "inputs": {vertex.name: vertex.placement for vertex in self.inputs},
            "wire_bytes": self.wire_bytes,
            "seconds": self.seconds,
            "peak_bytes": self.peak_bytes,
            "peak_tensor": self.peak_tensor,
            "baselines": [
                {"name": baseline.name, "cost": baseline.cost, "loses": self.loss(baseline), "reason": baseline.reason}
                for baseline in self.baselines
            ],
        }

    def loss(self, baseline: Baseline) -> float | None:
        """How much more a baseline costs than the plan; None where the graph cannot be placed so."""
        return None if baseline.cost is None else baseline.cost - self.cost

    def __repr__(self) -> str:
        return _paper_text(self) if self.sites is None else _placed_text(self)


def _paper_text(plan: GraphPlan) -> str:
    found = "proven best" if plan.exact else f"no plan moves less than {count_text(plan.lower_bound)}"
    title = f"plan of {len(plan.vertices)} einsums for {plan.calls} calls each, found by {plan.method}, {found}"
    rows = [_row(vertex) for vertex in plan.vertices[:_SHOWN]]
    terms = [(vertex.join, vertex.aggregation, sum(vertex.repartitions), vertex.cost) for vertex in plan.vertices]
    rows.append(["total", "", "", *(count_text(sum(term)) for term in zip(*terms, strict=True))])
    header = ["einsum", "parts", "calls", "join", "aggregation", "repartition", "elements"]
    return f"{title}\n{text_table(header, rows, right=range(2, 7))}{_more(plan)}"


def _more(plan: GraphPlan) -> str:
    rest = len(plan.vertices) - _SHOWN
    return f"\nand {rest} more einsums" if rest > 0 else ""


def _row(vertex: VertexPlan) -> list[str]:
    counts = (vertex.join, vertex.aggregation, sum(vertex.repartitions), vertex.cost)
    return [vertex.name, _parts_text(vertex), str(vertex.calls), *map(count_text, counts)]


def _parts_text(vertex: VertexPlan) -> str:
    return " ".join(f"{label}={parts}" for label, parts in vertex.parts.items())


def _placed_text(plan: GraphPlan) -> str:
    found = "proven best" if plan.exact else f"no plan costs less than {amount_text(plan.objective, plan.lower_bound)}"
    title = f"plan of {len(plan.vertices)} einsums on {plan.sites} sites by {plan.objective}, found by {plan.method}"
    moved = [vertex for vertex in plan.inputs if vertex.wire_bytes > 0]
    rows = [_placed_row(vertex) for vertex in (*moved, *plan.vertices[:_SHOWN])]
    rows.append(["total", "", "", count_text(plan.wire_bytes), seconds_text(plan.seconds)])
    table = text_table(["einsum", "parts", "placement", "wire B", "time"], rows, right=range(3, 5))
    others = [
        [baseline.name, "", "", baseline.reason or ""]
        if baseline.cost is None
        else [
            baseline.name,
            *(amount_text(plan.objective, cost) for cost in (baseline.cost, baseline.cost - plan.cost)),
            "",
        ]
        for baseline in plan.baselines
    ]
    compared = text_table(["baseline", "cost", "loses by", "not possible"], others, right=range(1, 3))
    peak = f"a site keeps at most {count_text(plan.peak_bytes)} B; the largest tensor then is {plan.peak_tensor}"
    return f"{title}, {found}\n{table}{_more(plan)}\n{compared}\n{peak}"


def _placed_row(vertex: VertexPlan) -> list[str]:
    moved = count_text(vertex.wire_bytes)
    return [vertex.name, _parts_text(vertex), vertex.placement or "", moved, seconds_text(vertex.seconds)]
