"""What an explanation holds: the plan, its costs, how it was found, the alternatives, and what a run measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from joinsum.algebra.plan import IaPlan, PlanNode, TraPlan
from joinsum.cluster.cluster import Cluster
from joinsum.explanation.measured import Comparison, Measured, compared
from joinsum.graphs.query_vertices import is_query, query_plan
from joinsum.planner.cost import PlanCost
from joinsum.planner.optimize import Candidate, Optimized, RuleApplied
from joinsum.sparse import Plan

__all__ = ["Alternative", "ExplainedPlan", "estimated_bytes", "node_estimates", "value_of"]


@dataclass(frozen=True)
class Alternative:
    """A plan that lost.

    extra_cost   what it costs more than the chosen plan, in the cost that was minimised
    cost_ratio   its cost over the chosen plan's; None where that is 0
    estimated    which of its bytes are estimates, as `ExplainedPlan.estimated` says
    """

    name: str
    cost: PlanCost
    extra_cost: float
    cost_ratio: float | None
    estimated: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class ExplainedPlan:
    """The values of an `Explanation`, which lists them; its printed forms read them."""

    plan: IaPlan
    cost: PlanCost
    program: TraPlan | None = None
    found: Optimized | None = None
    measured: Measured | None = None

    @property
    def cluster(self) -> Cluster:
        """The machine that the costs are for."""
        return self.cost.cluster

    @cached_property
    def estimated(self) -> tuple[str, ...]:
        """Which bytes of the cost follow from the estimated entries of sparse values: `wire_bytes` where such a value
        moves, `peak_bytes` where one is stored."""
        return estimated_bytes(self.plan)

    @cached_property
    def queries(self) -> Mapping[str, Plan]:
        """How the nodes that compute from entries do it, by name: query, loop nest, formats, estimated entries."""
        relations = {node.name: node.type.relation for node in self.plan.nodes}
        return {
            node.name: query_plan(node.name, node.core.call, [(each, relations[each]) for each in node.inputs])
            for node in self.plan.nodes
            if node.core.call is not None and is_query(node.core.call)
        }

    @property
    def minimized(self) -> str | None:
        """The cost that was minimised: `seconds`, `wire_bytes` or `paper_floats`."""
        return None if self.found is None else self.found.minimized

    @property
    def chosen(self) -> Candidate | None:
        """The plan as the search found it."""
        return None if self.found is None else self.found.candidates[0]

    @property
    def exact(self) -> bool:
        """Whether the placements that the search began with were proven the best there are."""
        return self.found is not None and any(
            candidate.exact and candidate.name == "placement" for candidate in self.found.candidates
        )

    @property
    def rules(self) -> tuple[RuleApplied, ...]:
        """The rules that were applied to the plan, in order, with the minimised cost before and after."""
        return () if self.chosen is None else self.chosen.rules

    @cached_property
    def alternatives(self) -> tuple[Alternative, ...]:
        """The plans that lost, the next best first."""
        if self.found is None:
            return ()
        best = value_of(self.cost, self.found.minimized)
        return tuple(
            Alternative(
                candidate.name,
                candidate.cost,
                value_of(candidate.cost, self.found.minimized) - best,
                value_of(candidate.cost, self.found.minimized) / best if best > 0 else None,
                estimated_bytes(candidate.plan) if self.estimated else (),
            )
            for candidate in self.found.candidates[1:]
        )

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Predicted beside measured figures, node by node, the whole run last; empty without a run."""
        return () if self.measured is None else compared(self.plan, self.cost, self.measured)


def value_of(cost: PlanCost, name: str) -> float:
    """The cost of that name: `seconds`, `wire_bytes` or `paper_floats`."""
    return float(getattr(cost, name))


def estimated_bytes(plan: IaPlan) -> tuple[str, ...]:
    """Which bytes of a plan's cost are estimates, in the order of `Figures`.

    >>> import joinsum
    >>> text = "ia on 2\\ninput X: f32[8]<2> sparse{3} (0)\\noutput Y = broadcast(X)"
    >>> estimated_bytes(joinsum.parse(text)), estimated_bytes(joinsum.parse(text.replace(" sparse{3}", "")))
    (('wire_bytes', 'peak_bytes'), ())
    """
    sparse = [node for node in plan.nodes if node.type.relation.entries is not None]
    moves = any(node.moves for node in sparse)
    return (("wire_bytes",) if moves else ()) + (("peak_bytes",) if sparse else ())


def node_estimates(node: PlanNode, estimated: tuple[str, ...]) -> tuple[str, ...]:
    """Those of them that are estimates of this node."""
    moves = node.moves and node.type.relation.entries is not None
    return tuple(name for name in estimated if name != "wire_bytes" or moves)
