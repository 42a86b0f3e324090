"""An explanation as a graph in Graphviz's language."""

from __future__ import annotations

from joinsum.algebra.plan import PlanNode
from joinsum.base.text_table import seconds_text
from joinsum.explanation.model import ExplainedPlan, node_estimates
from joinsum.explanation.text import bytes_text, operation_text

__all__ = ["dot_text"]


def dot_text(explained: ExplainedPlan) -> str:
    """Boxes for nodes, bold ones for moves; arrows go from a node to what reads it."""
    lines = ["digraph plan {", '  rankdir=BT; node [shape=box, fontname="sans-serif"];']
    costs = {node.node: node for node in explained.cost.nodes}
    for node in explained.plan.nodes:
        cost = costs[node.name]
        label = [_title(node), f"{node.type.relation} {node.placement}"]
        if cost.wire_bytes or cost.seconds:
            estimated = node_estimates(node, explained.estimated)
            moved = [f"{bytes_text('wire_bytes', cost.wire_bytes, estimated)} B"] if node.moves else []
            label.append(", ".join([*moved, seconds_text(cost.seconds)]))
        style = ", style=bold" if node.moves else ""
        lines.append(f"  {_quoted(node.name)} [label={_quoted(*label)}{style}];")
    outputs = explained.plan.output_nodes
    lines += [f"  {_quoted(f'output {name}')} [shape=plaintext, label={_quoted(name)}];" for name in outputs]
    for node in explained.plan.nodes:
        lines += [f"  {_quoted(operand)} -> {_quoted(node.name)};" for operand in node.inputs]
    lines += [f"  {_quoted(node)} -> {_quoted(f'output {name}')};" for name, node in outputs.items()]
    return "\n".join([*lines, "}", ""])


def _title(node: PlanNode) -> str:
    return node.name if node.kind == "input" else f"{node.name} {operation_text(node)}"


def _quoted(*lines: str) -> str:
    """A string of Graphviz's; lines are broken where it says."""
    escaped = [line.replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    return '"' + "\\n".join(escaped) + '"'
