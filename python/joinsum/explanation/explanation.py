"""The explanation of one plan, with all its printed forms."""

from __future__ import annotations

import json
from dataclasses import dataclass

from joinsum.cluster.context import context
from joinsum.explanation.document import document
from joinsum.explanation.dot import dot_text
from joinsum.explanation.model import ExplainedPlan
from joinsum.explanation.page import embedded_page, page
from joinsum.explanation.text import explanation_text

__all__ = ["Explanation"]


@dataclass(frozen=True, repr=False)
class Explanation(ExplainedPlan):
    """What `joinsum.explain` reports about a plan.

    plan       the physical plan
    cost       its three costs, node by node
    program    the logical plan; None where a physical one was explained
    found      the search that chose it, or None
    measured   what a run of it did, with `analyze=True`

    `str` gives all of it as text, `to_json`, `to_dot` and `to_html` other forms, `executable` what runs; notebooks show
    the page.
    """

    def __str__(self) -> str:
        return explanation_text(self)

    def __repr__(self) -> str:
        return str(self)

    def to_json(self, indent: int | None = None) -> str:
        """The explanation as JSON, as `docs/explain.md` describes it and `schema()` says exactly.

        indent   spaces of each level; by default all is on one line

        >>> import json, joinsum
        >>> _ = joinsum.init(sites=2)
        >>> value = json.loads(joinsum.explain(joinsum.parse("tra\\ninput X: f32[4]<2>\\noutput Y = X")).to_json())
        >>> value["format"], value["version"], value["plan"]["nodes"][0]["name"]
        ('joinsum explanation', 2, 'X')
        """
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
        return dot_text(self)

    def to_html(self) -> str:
        """One page that needs nothing else: the plan as a graph, who holds what before and after each move, costs."""
        return page(self)

    def executable(self) -> str:
        """What a process of the present sites walks when it runs the plan: steps in order with what they read, how
        kernels go through key dimensions (`whole`: all parts of an axis at once, `batch`: a leading axis, `single`: key
        by key), the messages of moves, and what is freed.

        Raises PlanError for a plan of another number of sites.

        >>> import joinsum
        >>> _ = joinsum.init(sites=2)
        >>> plan = joinsum.parse("ia on 2\\ninput X: f32[4]<2> (0)\\noutput Y = map[(k0); negate](broadcast(X))")
        >>> print(joinsum.explain(plan).executable())
        X = X; input
        t0 = broadcast[0](X); copy: 2 messages, 16 B
        t0 arrives; frees X
        t1 = local_map[(k0); negate](t0); modes=[whole]; frees t0
        <BLANKLINE>
        """
        return context().executable_text(self.plan.core)

    def _repr_html_(self) -> str:
        return embedded_page(self)
