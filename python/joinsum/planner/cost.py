"""What plans cost, for a described or measured machine."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from joinsum import _C
from joinsum.algebra.plan import IaPlan, TraPlan
from joinsum.base.errors import PlanError
from joinsum.base.text_table import count_text, seconds_text, text_table
from joinsum.cluster.cluster import Cluster
from joinsum.cluster.context import cluster_or_current
from joinsum.planner.search import plan_of_run_in_process

__all__ = ["NodeCost", "PlanCost", "amount_text", "cost", "seconds_of_work"]

_COLUMNS = ["node", "operation", "paper floats", "wire B", "flops", "time"]


@dataclass(frozen=True)
class NodeCost:
    """Cost of one node: `paper_floats`, `wire_bytes`, `flops` of the busiest site, `seconds`, and `peak_bytes`, which
    the fullest site stores while it runs (0 of a join that is computed with the sum above it)."""

    node: str
    operation: str
    paper_floats: float
    wire_bytes: int
    flops: int
    seconds: float
    peak_bytes: int


@dataclass(frozen=True, repr=False)
class PlanCost:
    """The three costs of a plan, which are never mixed; prints as a table of its nodes.

    paper_floats   the paper's rule: a broadcast of f floats over p sites f p, a shuffle f; f by the frontier
    wire_bytes     payload bytes between different sites, exact: what the transport counts
    seconds        link and kernel time on `cluster`: the sum of the nodes' without the hidden ones
    run_seconds    of that, the agreement that opens a run; 0 without a profile
    hidden_seconds  of messages that travel while sites compute, or together; 0 without a profile
    flops          of the busiest site, summed over nodes
    peak_bytes     of the site that needs most: inputs, live blocks and messages

    Source: TRA paper, section 5.3, for `paper_floats`; `docs/algebra.md`, section 5, for the others.
    """

    paper_floats: float
    wire_bytes: int
    flops: int
    peak_bytes: int
    seconds: float
    cluster: Cluster
    run_seconds: float = 0.0
    hidden_seconds: float = 0.0
    nodes: tuple[NodeCost, ...] = field(default=())

    def __repr__(self) -> str:
        rows = [
            [
                node.node,
                node.operation,
                *map(count_text, (node.paper_floats, node.wire_bytes, node.flops)),
                seconds_text(node.seconds),
            ]
            for node in self.nodes
        ]
        if self.run_seconds > 0:
            rows.append(["", "sites agree on the run", "", "", "", seconds_text(self.run_seconds)])
        if self.hidden_seconds > 0:
            rows.append(
                [
                    "",
                    "of messages that travel meanwhile or together",
                    "",
                    "",
                    "",
                    f"-{seconds_text(self.hidden_seconds)}",
                ]
            )
        totals = map(count_text, (self.paper_floats, self.wire_bytes, self.flops))
        rows.append(["total", "", *totals, seconds_text(self.seconds)])
        table = text_table(_COLUMNS, rows, right=range(2, len(_COLUMNS)))
        return f"on {self.cluster}\n{table}\npeak {count_text(self.peak_bytes)} B per site\n"


def cost(plan: TraPlan | IaPlan, cluster: Cluster | None = None) -> PlanCost:
    """Prices a plan without running it; of a logical one the plan that a run would take.

    cluster   the machine; by default the context's

    Raises PlanError when a site would need more than the cluster's memory, naming the node.

    >>> import joinsum
    >>> _ = joinsum.init(sites=2)
    >>> plan = joinsum.parse("ia on 2\\ninput X: f32[4]<2> (0)\\noutput Y = agg[; add](broadcast(X))")
    >>> total = joinsum.cost(plan)
    >>> total.paper_floats, total.wire_bytes
    (8.0, 16)
    """
    if not isinstance(plan, (TraPlan, IaPlan)):
        raise PlanError(f"cost: a plan is what joinsum.plan, lower or parse gives: got={type(plan).__name__}")
    cluster = cluster_or_current("cost", cluster)
    physical = plan if isinstance(plan, IaPlan) else plan_of_run_in_process(plan, cluster)
    core = _C.cost(physical.core, cluster.core())
    nodes = tuple(
        NodeCost(
            node.node, node.operation, node.paper_floats, node.wire_bytes, node.flops, node.seconds, node.peak_bytes
        )
        for node in core.nodes
    )
    figures = (core.paper_floats, core.wire_bytes, core.flops, core.peak_bytes, core.seconds)
    return PlanCost(*figures, cluster, core.run_seconds, core.hidden_seconds, nodes)


def amount_text(minimized: str, value: float) -> str:
    """A cost with its unit; one that is infinite is of a plan that fits no site's memory.

    >>> amount_text("seconds", 0.5), amount_text("wire_bytes", 1200), amount_text("paper_floats", 3)
    ('500 ms', '1,200 B', '3 floats')
    """
    if math.isinf(value):
        return "none fits"
    unit = next(row.unit for row in _C.objectives() if row.name == minimized)
    return seconds_text(value) if unit == "s" else f"{count_text(value)} {unit}"


def seconds_of_work(graph: _C.EinsumPlan, cluster: Cluster, sites: int) -> float:
    """Seconds of all the work of a graph of einsums of at most two operands, each value computed once and shared evenly
    by all sites, at the cluster's flat rates: no plan takes less."""
    alone = _C.on_one_site(graph.lower(graph.even_cuts(1))).with_undecomposed_calls()
    flat = replace(cluster, memory_bytes=None, profile=None)
    return _C.cost(alone, flat.core()).seconds / sites
