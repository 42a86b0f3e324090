"""An explanation as plain values: what `to_json` writes and the page reads. `schema.json` describes it."""

from __future__ import annotations

import itertools
import json
import math
from functools import cache
from importlib import resources
from typing import Any

from joinsum import _C
from joinsum.cost import NodeCost, PlanCost
from joinsum.explanation.measured import Comparison, Figures
from joinsum.explanation.model import Explanation
from joinsum.plan import PlanNode
from joinsum.rules import rules

__all__ = ["FORMAT", "VERSION", "document", "schema"]

FORMAT = "joinsum explanation"
# Raised when a field goes or changes its meaning; a new field does not raise it.
VERSION = 1
# Tuples of a move whose holders are told.
_TUPLES = 64


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    text = resources.files(__package__).joinpath("schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def document(told: Explanation) -> dict[str, Any]:
    """All that is known, in plain values."""
    from joinsum import __version__

    return {
        "format": FORMAT,
        "version": VERSION,
        "joinsum": __version__,
        "program": None if told.program is None else told.program.text,
        "sites": {"count": told.plan.grid.sites, "grid": list(told.plan.grid.axes)},
        "cluster": _cluster(told),
        "plan": _plan(told),
        "cost": _total(told.cost),
        "search": _search(told),
        "rules": _rules(told),
        "alternatives": [
            {"name": other.name, "cost": _total(other.cost), "loses": other.loses, "times": other.times}
            for other in told.alternatives
        ],
        "measured": _measured(told),
    }


def _cluster(told: Explanation) -> dict[str, Any]:
    cluster = told.cluster
    return {
        "name": cluster.name,
        "origin": cluster.origin,
        "flops_per_second": cluster.flops_per_second,
        "bytes_per_second": cluster.bytes_per_second,
        "latency_seconds": cluster.latency_seconds,
        "memory_bytes": cluster.memory_bytes,
    }


def _plan(told: Explanation) -> dict[str, Any]:
    costs = {node.node: node for node in told.cost.nodes}
    nodes = {node.name: node for node in told.plan.nodes}
    compared = {row.node: row for row in told.comparisons}
    ties = told.plan.ties
    return {
        "text": told.plan.text,
        "outputs": [
            {"name": name, "node": node, "tied_input": ties.get(name)} for name, node in told.plan.output_nodes.items()
        ],
        "nodes": [
            {
                "name": node.name,
                "kind": node.kind,
                "operation": node.operation,
                "inputs": list(node.inputs),
                "fused": node.fused,
                "type": _type(node),
                "cost": _node_cost(costs[node.name]),
                "move": _move(nodes[node.inputs[0]].type, node.type) if node.moves else None,
                "measured": _comparison(compared[node.name]) if node.name in compared else None,
            }
            for node in told.plan.nodes
        ],
    }


def _type(node: PlanNode) -> dict[str, Any]:
    type_ = node.type
    relation = type_.relation
    return {
        "text": str(relation),
        "dtype": relation.dtype,
        "axes": [axis.extent for axis in relation.axes],
        "frontier": list(relation.frontier),
        "tuples": relation.tuples,
        "bytes": relation.bytes,
        "placement": node.placement,
        "site_bytes": [type_.bytes(site) for site in range(type_.sites)],
    }


def _node_cost(cost: NodeCost) -> dict[str, Any]:
    names = ("paper_floats", "wire_bytes", "seconds", "flops", "peak_bytes")
    return {name: getattr(cost, name) for name in names}


def _total(cost: PlanCost) -> dict[str, Any]:
    names = ("paper_floats", "wire_bytes", "seconds", "flops", "peak_bytes", "run_seconds")
    return {name: getattr(cost, name) for name in names}


def _move(before: _C.PhysicalType, after: _C.PhysicalType) -> dict[str, Any]:
    """Who holds which tuples before and after; of many tuples some, evenly spaced."""
    keys = _some_keys(after.relation)
    return {
        "tuples": _distinct(after.relation),
        "keys": keys,
        "before": [before.sites_of(key) for key in keys],
        "after": [after.sites_of(key) for key in keys],
        "partial_before": before.placement.pending,
        "partial_after": after.placement.pending,
    }


def _distinct(relation: _C.RelationType) -> int:
    if relation.regular:
        return math.prod(relation.frontier)
    return sum(1 for _ in itertools.groupby(relation.all_keys()))


def _some_keys(relation: _C.RelationType) -> list[list[int]]:
    """At most `_TUPLES` keys, ascending."""
    count = _distinct(relation)
    chosen = range(count) if count <= _TUPLES else [i * count // _TUPLES for i in range(_TUPLES)]
    if not relation.regular:
        keys = [key for key, _ in itertools.groupby(relation.all_keys())]
        return [keys[i] for i in chosen]
    return [_key_at(i, relation.frontier) for i in chosen]


def _key_at(index: int, frontier: list[int]) -> list[int]:
    """Key number `index` of those below `frontier`, the last component fastest.

    >>> _key_at(5, [2, 3])
    [1, 2]
    """
    key = []
    for extent in reversed(frontier):
        index, component = divmod(index, extent)
        key.append(component)
    return key[::-1]


def _search(told: Explanation) -> dict[str, Any] | None:
    if told.found is None:
        return None
    return {
        "minimized": told.found.minimized,
        "found_by": told.found.candidates[0].name,
        "exact": told.exact,
        "out_of_time": told.found.out_of_time,
        "phases": [
            {"name": phase.name, "plans": phase.plans, "best": _finite(phase.best), "seconds": phase.seconds}
            for phase in told.found.phases
        ],
    }


def _rules(told: Explanation) -> list[dict[str, Any]]:
    laws = {rule.name: rule.law for rule in rules()} if told.rules else {}
    return [
        {
            "rule": step.rule,
            "law": laws.get(step.rule, ""),
            "node": step.node,
            "before": _finite(step.before),
            "after": _finite(step.after),
        }
        for step in told.rules
    ]


def _measured(told: Explanation) -> dict[str, Any] | None:
    if told.measured is None:
        return None
    return {
        "where": told.measured.where,
        "loopback": told.measured.loopback,
        "total": _comparison(told.comparisons[-1]),
    }


def _comparison(row: Comparison) -> dict[str, Any]:
    return {
        "predicted": _figures(row.predicted),
        "measured": _figures(row.measured),
        "errors": {name: _finite(times) for name, times in row.errors.items()},
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity: the cost of a plan that fits no site, an error where nothing was predicted."""
    return value if math.isfinite(value) else None


def _figures(figures: Figures) -> dict[str, Any]:
    return dict(figures._asdict())
