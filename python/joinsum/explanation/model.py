"""What an explanation holds: the plan, its costs, how it was found, the alternatives, and what a run measured."""

from __future__ import annotations

from dataclasses import dataclass

from joinsum.algebra.plan import IaPlan, TraPlan
from joinsum.cluster.cluster import Cluster
from joinsum.explanation.measured import Comparison, Measured, compared
from joinsum.planner.cost import PlanCost
from joinsum.planner.optimize import Candidate, Optimized, RuleApplied

__all__ = ["Alternative", "ExplainedPlan", "value_of"]


@dataclass(frozen=True)
class Alternative:
    """A plan that lost.

    extra_cost   what it costs more than the chosen plan, in the cost that was minimised
    cost_ratio   its cost over the chosen plan's; None where that is 0
    """

    name: str
    cost: PlanCost
    extra_cost: float
    cost_ratio: float | None


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

    @property
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
