"""An explanation as text, for the terminal. Nothing in it depends on the clock, but for what a run measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from joinsum.explanation.measured import Comparison, Figures
from joinsum.explanation.model import Alternative, Explanation, value_of
from joinsum.plan import IaPlan, PlanNode
from joinsum.text_table import count_text, seconds_text, text_table

__all__ = ["amount_text", "cluster_text", "explanation_text", "tree_lines"]

_ALTERNATIVES = 8
# The plan that nobody chose, which is always told.
_BASELINE = "operator by operator"
# A tree is not indented further than this; a long chain stays readable.
_DEEPEST = 40
_LOOPBACK = "on loopback sites run one after another, without links: their times are added up, predicted ones are not"
_ORIGINS = {
    "default": "the default cluster that joinsum ships, as nothing is calibrated (`joinsum calibrate` measures sites)",
    "calibrated": "calibrated",
    "given": "not calibrated",
}


def explanation_text(told: Explanation) -> str:
    """All sections, one empty line between them."""
    sections = []
    if told.program is not None:
        sections.append(f"logical plan: what is computed\n{told.program}".rstrip("\n"))
    sections.append(_physical_plan(told))
    if told.found is not None:
        sections += [_search(told), _rules(told), _alternatives(told)]
    if told.measured is not None:
        sections.append(_measured(told))
    return "\n\n".join(sections)


def cluster_text(told: Explanation) -> str:
    """The machine that the costs are for, and where its figures come from."""
    figures = repr(told.cluster).removeprefix("Cluster(").removesuffix(")")
    return f"{figures}; {_ORIGINS[told.cluster.origin]}"


def amount_text(minimized: str, value: float) -> str:
    """A cost with its unit; one that is infinite is of a plan that fits no site's memory.

    >>> amount_text("seconds", 0.5), amount_text("wire_bytes", 1200), amount_text("paper_floats", 3)
    ('500 ms', '1,200 B', '3 floats')
    """
    if math.isinf(value):
        return "none fits"
    if minimized == "seconds":
        return seconds_text(value)
    return f"{count_text(value)} {'B' if minimized == 'wire_bytes' else 'floats'}"


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
            label = node.operation if node.kind != "input" else "input"
            yield f"{prefix}{branch}{name} = {label}", node
            deeper = prefix + below if len(prefix) < _DEEPEST else prefix
            last = len(node.inputs) - 1
            for i, operand in reversed(list(enumerate(node.inputs))):
                stack.append((operand, deeper, "└─ " if i == last else "├─ ", "   " if i == last else "│  "))


def _physical_plan(told: Explanation) -> str:
    costs = {node.node: node for node in told.cost.nodes}
    rows = []
    for line, node in tree_lines(told.plan):
        if node is None:
            rows.append([line, "", "", "", "", ""])
            continue
        cost = costs[node.name]
        time = "in the sum" if node.fused and told.cluster.profile is not None else seconds_text(cost.seconds)
        counts = [count_text(cost.paper_floats), count_text(cost.wire_bytes)]
        rows.append([line, str(node.type.relation), node.placement, *counts, time])
    if told.cost.run_seconds > 0:
        rows.append(["sites agree on the run", "", "", "", "", seconds_text(told.cost.run_seconds)])
    totals = [count_text(told.cost.paper_floats), count_text(told.cost.wire_bytes), seconds_text(told.cost.seconds)]
    rows.append(["total", "", "", *totals])
    header = ["node", "type<frontier>", "placement", "paper floats", "wire B", "time"]
    grid = told.plan.grid
    sites = f"{grid.sites} sites ({grid})" if grid.sites > 1 else "1 site"
    return "\n".join(
        [
            f"physical plan: where tuples lie and move, on {sites}",
            text_table(header, rows, right=range(3, 6)),
            f"peak {count_text(told.cost.peak_bytes)} B on the busiest site",
            f"costs are for {cluster_text(told)}",
        ]
    )


def _search(told: Explanation) -> str:
    assert told.found is not None
    found = told.found
    rows = [[phase.name, str(phase.plans), amount_text(found.minimized, phase.best)] for phase in found.phases]
    proof = (
        "exact: the placements are proven the best there are; rules may still improve the plan"
        if told.exact
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


def _rules(told: Explanation) -> str:
    if not told.rules:
        return "rules applied: none"
    assert told.found is not None
    rows = [
        [
            rule.rule,
            rule.node,
            amount_text(told.found.minimized, rule.before),
            amount_text(told.found.minimized, rule.after),
        ]
        for rule in told.rules
    ]
    return "rules applied, in order\n" + text_table(["rule", "node", "before", "after"], rows, right=range(2, 4))


def _alternatives(told: Explanation) -> str:
    assert told.found is not None
    if not told.alternatives:
        return "alternatives: none"
    rows = [
        [
            other.name,
            count_text(other.cost.paper_floats),
            count_text(other.cost.wire_bytes),
            seconds_text(other.cost.seconds),
            _loss_text(told.found.minimized, other),
        ]
        for i, other in enumerate(told.alternatives)
        if i < _ALTERNATIVES or other.name == _BASELINE
    ]
    header = ["plan", "paper floats", "wire B", "time", f"loses in {told.found.minimized}"]
    rest = len(told.alternatives) - len(rows)
    more = f"\nand {rest} more" if rest > 0 else ""
    best = amount_text(told.found.minimized, value_of(told.cost, told.found.minimized))
    title = f"alternatives to the chosen plan ({best}), the next best first"
    return f"{title}\n{text_table(header, rows, right=range(1, 5))}{more}"


def _loss_text(minimized: str, other: Alternative) -> str:
    if other.loses <= 0:
        return "nothing"
    times = f" ({other.times:.3g}x)" if other.times is not None else ""
    return f"{amount_text(minimized, other.loses)}{times}"


def _measured(told: Explanation) -> str:
    assert told.measured is not None
    rows = [
        [row.node or "total", row.operation if row.node else "", *_figures_text(row), _errors_text(row.errors)]
        for row in told.comparisons
    ]
    header = ["node", "operation", "wire B", "measured", "time", "measured", "peak B", "measured", "wrong"]
    note = f"\n{_LOOPBACK}" if told.measured.loopback else ""
    title = f"measured on {told.measured.where}; wrong: by more than a factor of two"
    return f"{title}\n{text_table(header, rows, right=range(2, 8))}{note}"


def _figures_text(row: Comparison) -> list[str]:
    texts = []
    for name, predicted, measured in zip(Figures._fields, row.predicted, row.measured, strict=True):
        show = seconds_text if name == "seconds" else count_text
        texts += [show(predicted), show(measured)]
    return texts


def _errors_text(errors: Mapping[str, float]) -> str:
    names = {"wire_bytes": "wire", "seconds": "time", "peak_bytes": "peak"}
    return ", ".join(
        f"{names[name]} {times:.3g}x" if math.isfinite(times) else names[name] for name, times in errors.items()
    )
