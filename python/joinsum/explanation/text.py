"""An explanation as text, for the terminal. Nothing in it depends on the clock, but for what a run measured."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

from joinsum.algebra.plan import IaPlan, PlanNode
from joinsum.base.text_table import count_text, seconds_text, text_table
from joinsum.explanation.measured import Comparison, Figures
from joinsum.explanation.model import Alternative, ExplainedPlan, node_estimates, value_of
from joinsum.graphs.query_vertices import is_query
from joinsum.planner.cost import amount_text

__all__ = [
    "ESTIMATED",
    "bytes_text",
    "cluster_text",
    "explanation_text",
    "operation_text",
    "queries_text",
    "tree_lines",
]

_ALTERNATIVES = 8
# The plan without any choice, which is always listed.
_BASELINE = "operator by operator"
# A tree is not indented further than this; a long chain stays readable.
_DEEPEST = 40
_LOOPBACK = "on loopback sites run one after another, without links: their times are added up, predicted ones are not"
ESTIMATED = "~ by the estimated entries of sparse values; a run counts what moves"
_ORIGINS = {
    "default": "the default cluster that joinsum ships, as nothing is calibrated (`joinsum calibrate` measures sites)",
    "calibrated": "calibrated",
    "measured": "by a short measurement at the start",
    "described": "not calibrated",
}


def explanation_text(explained: ExplainedPlan) -> str:
    """All sections, one empty line between them."""
    sections = []
    if explained.program is not None:
        sections.append(f"logical plan: what is computed\n{explained.program}".rstrip("\n"))
    sections.append(_physical_plan(explained))
    if explained.queries:
        sections.append(queries_text(explained))
    if explained.found is not None:
        sections += [_search(explained), _rules(explained), _alternatives(explained)]
    if explained.measured is not None:
        sections.append(_measured(explained))
    return "\n\n".join(sections)


def cluster_text(explained: ExplainedPlan) -> str:
    """The machine that the costs are for, and where its figures come from."""
    figures = repr(explained.cluster).removeprefix("Cluster(").removesuffix(")")
    return f"{figures}; {_ORIGINS[explained.cluster.origin]}"


def queries_text(explained: ExplainedPlan) -> str:
    """How each node that computes from entries does it."""
    title = "sparse queries: entries and loops as estimated; sites plan the loops over their blocks by their entries"
    return "\n".join([title, *(line for plan in explained.queries.values() for line in plan.query_lines())])


def bytes_text(figure: str, count: float, estimated: Collection[str]) -> str:
    """Bytes with a mark where `figure` is among the estimated ones.

    >>> bytes_text("wire_bytes", 1200, ["wire_bytes"]), bytes_text("wire_bytes", 1200, [])
    ('~1,200', '1,200')
    """
    return f"{'~' if figure in estimated else ''}{count_text(count)}"


def tree_lines(plan: IaPlan) -> Iterator[tuple[str, PlanNode | None]]:
    """A line for each output, and below it the nodes that it is made of, each once: later uses name it only."""
    nodes = {node.name: node for node in plan.nodes}
    seen: set[str] = set()
    for output, root in plan.output_nodes.items():
        tie = f" -> {plan.ties[output]}" if output in plan.ties else ""
        yield f"output {output}{tie}", None
        stack = [(root, "", "└─ ", "   ")]
        while stack:
            name, prefix, branch, below = stack.pop()
            node = nodes[name]
            if name in seen and node.inputs:
                yield f"{prefix}{branch}{name} (above)", None
                continue
            seen.add(name)
            yield f"{prefix}{branch}{name} = {operation_text(node)}", node
            deeper = prefix + below if len(prefix) < _DEEPEST else prefix
            last = len(node.inputs) - 1
            for i, operand in reversed(list(enumerate(node.inputs))):
                stack.append((operand, deeper, "└─ " if i == last else "├─ ", "   " if i == last else "│  "))


def operation_text(node: PlanNode) -> str:
    """The operator; what a query computes is written below the tree."""
    call = node.core.call
    if call is not None and is_query(call):
        return f"sparse_query[{','.join(call.operands)} -> {call.result}]"
    return node.operation if node.kind != "input" else "input"


def _physical_plan(explained: ExplainedPlan) -> str:
    costs = {node.node: node for node in explained.cost.nodes}
    rows = []
    for line, node in tree_lines(explained.plan):
        if node is None:
            rows.append([line, "", "", "", "", ""])
            continue
        cost = costs[node.name]
        time = "in the sum" if node.fused and explained.cluster.profile is not None else seconds_text(cost.seconds)
        moved = bytes_text("wire_bytes", cost.wire_bytes, node_estimates(node, explained.estimated))
        counts = [count_text(cost.paper_floats), moved]
        rows.append([line, str(node.type.relation), node.placement, *counts, time])
    if explained.cost.run_seconds > 0:
        rows.append(["sites agree on the run", "", "", "", "", seconds_text(explained.cost.run_seconds)])
    if explained.cost.hidden_seconds > 0:
        hidden = f"-{seconds_text(explained.cost.hidden_seconds)}"
        rows.append(["of messages that travel meanwhile or together", "", "", "", "", hidden])
    totals = [
        count_text(explained.cost.paper_floats),
        bytes_text("wire_bytes", explained.cost.wire_bytes, explained.estimated),
        seconds_text(explained.cost.seconds),
    ]
    rows.append(["total", "", "", *totals])
    header = ["node", "type<frontier>", "placement", "paper floats", "wire B", "time"]
    grid = explained.plan.grid
    sites = f"{grid.sites} sites ({grid})" if grid.sites > 1 else "1 site"
    return "\n".join(
        [
            f"physical plan: where tuples are stored and move, on {sites}",
            text_table(header, rows, right=range(3, 6)),
            f"peak {bytes_text('peak_bytes', explained.cost.peak_bytes, explained.estimated)} B on the busiest site",
            *([ESTIMATED] if explained.estimated else []),
            f"costs are for {cluster_text(explained)}",
        ]
    )


def _search(explained: ExplainedPlan) -> str:
    assert explained.found is not None
    found = explained.found
    rows = [[phase.name, str(phase.plans), _amount_text(explained, phase.best)] for phase in found.phases]
    proof = (
        "exact: the placements are proven the best there are; rules may still improve the plan"
        if explained.exact
        else "not exact: no proof that no other placement costs less"
    )
    late = ["stopped at the deadline: what was found so far"] if found.out_of_time else []
    return "\n".join(
        [
            f"search: least {found.minimized}, found by {found.candidates[0].name}",
            proof,
            *late,
            text_table(["phase", "plans", "best after it"], rows, right=range(1, 3)),
        ]
    )


def _rules(explained: ExplainedPlan) -> str:
    if not explained.rules:
        return "rules applied: none"
    rows = [
        [rule.rule, rule.node, _amount_text(explained, rule.before), _amount_text(explained, rule.after)]
        for rule in explained.rules
    ]
    return "rules applied, in order\n" + text_table(["rule", "node", "before", "after"], rows, right=range(2, 4))


def _alternatives(explained: ExplainedPlan) -> str:
    assert explained.found is not None
    if not explained.alternatives:
        return "alternatives: none"
    rows = [
        [
            other.name,
            count_text(other.cost.paper_floats),
            bytes_text("wire_bytes", other.cost.wire_bytes, other.estimated),
            seconds_text(other.cost.seconds),
            _loss_text(explained, other),
        ]
        for i, other in enumerate(explained.alternatives)
        if i < _ALTERNATIVES or other.name == _BASELINE
    ]
    header = ["plan", "paper floats", "wire B", "time", f"loses in {explained.found.minimized}"]
    rest = len(explained.alternatives) - len(rows)
    more = f"\nand {rest} more" if rest > 0 else ""
    best = _amount_text(explained, value_of(explained.cost, explained.found.minimized))
    title = f"alternatives to the chosen plan ({best}), the next best first"
    return f"{title}\n{text_table(header, rows, right=range(1, 5))}{more}"


def _loss_text(explained: ExplainedPlan, other: Alternative) -> str:
    if other.extra_cost <= 0:
        return "nothing"
    ratio = f" ({other.cost_ratio:.3g}x)" if other.cost_ratio is not None else ""
    return f"{_amount_text(explained, other.extra_cost)}{ratio}"


def _amount_text(explained: ExplainedPlan, value: float) -> str:
    """An amount of the cost that was minimised, marked where it depends on estimated bytes."""
    assert explained.found is not None
    minimized = explained.found.minimized
    estimated = minimized in explained.estimated or any(minimized in each.estimated for each in explained.alternatives)
    return f"{'~' if estimated and math.isfinite(value) else ''}{amount_text(minimized, value)}"


def _measured(explained: ExplainedPlan) -> str:
    assert explained.measured is not None
    nodes = {node.name: node for node in explained.plan.nodes}
    rows = []
    for row in explained.comparisons:
        if row.node:
            node = nodes[row.node]
            label, estimated = [row.node, operation_text(node)], node_estimates(node, explained.estimated)
        else:
            label, estimated = ["total", ""], explained.estimated
        rows.append([*label, *_figures_text(row, estimated), _errors_text(row.errors)])
    header = ["node", "operation", "wire B", "measured", "time", "measured", "peak B", "measured", "wrong"]
    note = f"\n{_LOOPBACK}" if explained.measured.loopback else ""
    title = f"measured on {explained.measured.sites}; wrong: by more than a factor of two"
    pooled = (
        f"\nfreed blocks that the store has not returned to the system: {count_text(explained.measured.pooled_bytes)} B"
    )
    return f"{title}\n{text_table(header, rows, right=range(2, 8))}{pooled}{note}"


def _figures_text(row: Comparison, estimated: Collection[str]) -> list[str]:
    texts = []
    for name, predicted, measured in zip(Figures._fields, row.predicted, row.measured, strict=True):
        if name == "seconds":
            texts += [seconds_text(predicted), seconds_text(measured)]
        else:
            texts += [bytes_text(name, predicted, estimated), count_text(measured)]
    return texts


def _errors_text(errors: Mapping[str, float]) -> str:
    names = {"wire_bytes": "wire", "seconds": "time", "peak_bytes": "peak"}
    return ", ".join(
        f"{names[name]} {times:.3g}x" if math.isfinite(times) else names[name] for name, times in errors.items()
    )
