"""Explanations as graphs."""

from __future__ import annotations

import joinsum
from explained_programs import PROGRAM


def test_the_graph_has_an_arrow_for_each_operand_and_output() -> None:
    joinsum.init(sites=4)
    explained = joinsum.explain(joinsum.parse(PROGRAM))
    arrows = explained.to_dot().count(" -> ")
    assert arrows == sum(len(node.inputs) for node in explained.plan.nodes) + len(explained.plan.outputs)
