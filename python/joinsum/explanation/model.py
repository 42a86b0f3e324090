"""An explanation: the plan, its costs, how it was found, what else there was, and what a run of it measured."""

from __future__ import annotations

from dataclasses import dataclass

from joinsum.cluster import Cluster
from joinsum.cost import PlanCost
from joinsum.explanation.measured import Comparison, Measured, compared
from joinsum.optimize import Candidate, Optimized, RuleApplied
from joinsum.plan import IaPlan, TraPlan

__all__ = ["Alternative", "Explanation"]


@dataclass(frozen=True)
class Alternative:
    """A plan that lost.

    loses   by how much it costs more than the chosen one, in the cost that was minimised
    times   that cost over the chosen plan's; None where that is 0
    """

    name: str
    cost: PlanCost
    loses: float
    times: float | None


@dataclass(frozen=True, repr=False)
class Explanation:
    """What `joinsum.explain` tells of a plan.

    plan       the physical plan
    cost       its three costs, node by node
    program    the logical plan; None where a physical one was explained
    found      the search that chose it, or None
    measured   what a run of it did, with `analyze=True`

    `str` gives all of it as text, `to_json`, `to_dot` and `to_html` other forms; notebooks show the page.
    """

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

    def __str__(self) -> str:
        from joinsum.explanation.text import explanation_text

        return explanation_text(self)

    def __repr__(self) -> str:
        return str(self)

    def to_json(self, indent: int | None = None) -> str:
        """The explanation as JSON, as `docs/explain.md` describes it and `schema()` says exactly.

        indent   spaces of each level; by default all is on one line

        >>> import json, joinsum
        >>> _ = joinsum.init(sites=2)
        >>> told = json.loads(joinsum.explain(joinsum.parse("tra\\ninput X: f32[4]<2>\\noutput Y = X")).to_json())
        >>> told["format"], told["version"], told["plan"]["nodes"][0]["name"]
        ('joinsum explanation', 1, 'X')
        """
        import json

        from joinsum.explanation.document import document

        return json.dumps(document(self), indent=indent, allow_nan=False)

    def to_dot(self) -> str:
        """The plan as a graph in Graphviz's language: `dot -Tsvg` draws it.

        >>> import joinsum
        >>> _ = joinsum.init(sites=2)
        >>> print(joinsum.explain(joinsum.parse("ia on 2\\ninput X: f32[4]<2> (0)\\noutput Y = broadcast(X)")).to_dot())
        digraph plan {
          rankdir=BT; node [shape=box, fontname="sans-serif"];
          "X" [label="X\\nf32[4]<2> (0)"];
          "t0" [label="t0 broadcast[0]\\nf32[4]<2> (*)\\n16 B, 50 us", style=bold];
          "output Y" [shape=plaintext, label="Y"];
          "X" -> "t0";
          "t0" -> "output Y";
        }
        <BLANKLINE>
        """
        from joinsum.explanation.dot import dot_text

        return dot_text(self)

    def to_html(self) -> str:
        """One page that needs nothing else: the plan as a graph, who holds what before and after each move, costs."""
        from joinsum.explanation.page import page

        return page(self)

    def _repr_html_(self) -> str:
        from joinsum.explanation.page import embedded_page

        return embedded_page(self)


def value_of(cost: PlanCost, name: str) -> float:
    """The cost of that name: `seconds`, `wire_bytes` or `paper_floats`."""
    return {"seconds": cost.seconds, "wire_bytes": cost.wire_bytes, "paper_floats": cost.paper_floats}[name]
