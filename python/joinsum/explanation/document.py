"""An explanation as plain values: what `to_json` writes and the page reads. `schema.json` describes it."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from joinsum import _C
from joinsum.algebra.plan import PlanNode
from joinsum.algebra.rules import rules
from joinsum.base.version import JOINSUM_VERSION
from joinsum.explanation.measured import Comparison
from joinsum.explanation.model import ExplainedPlan, node_estimates

__all__ = ["FORMAT", "VERSION", "document", "schema"]

FORMAT = "joinsum explanation"
# Incremented when a field is removed or changes its meaning, not for a new field.
VERSION = 2
# Tuples of a move whose holders are listed.
_TUPLES = 64
_CLUSTER = ("name", "origin", "flops_per_second", "bytes_per_second", "latency_seconds", "memory_bytes")
_COST = ("paper_floats", "wire_bytes", "seconds", "flops", "peak_bytes")
_TOTAL = (*_COST, "run_seconds", "hidden_seconds")


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    text = resources.files(__package__).joinpath("schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def document(explained: ExplainedPlan) -> dict[str, Any]:
    """The whole explanation in plain values."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "joinsum": JOINSUM_VERSION,
        "program": None if explained.program is None else explained.program.text,
        "sites": {"count": explained.plan.grid.sites, "grid": list(explained.plan.grid.axes)},
        "cluster": _fields(explained.cluster, _CLUSTER),
        "plan": _plan(explained),
        "cost": _fields(explained.cost, _TOTAL) | {"estimated": list(explained.estimated)},
        "search": _search(explained),
        "rules": _rules(explained),
        "alternatives": [
            {
                "name": each.name,
                "cost": _fields(each.cost, _TOTAL) | {"estimated": list(each.estimated)},
                "extra_cost": each.extra_cost,
                "cost_ratio": each.cost_ratio,
            }
            for each in explained.alternatives
        ],
        "measured": _measured(explained),
    }


def _fields(source: object, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def _plan(explained: ExplainedPlan) -> dict[str, Any]:
    costs = {node.node: node for node in explained.cost.nodes}
    nodes = {node.name: node for node in explained.plan.nodes}
    compared = {row.node: row for row in explained.comparisons}
    ties = explained.plan.ties
    return {
        "text": explained.plan.text,
        "outputs": [
            {"name": name, "node": node, "tied_input": ties.get(name)}
            for name, node in explained.plan.output_nodes.items()
        ],
        "nodes": [
            {
                "name": node.name,
                "kind": node.kind,
                "operation": node.operation,
                "inputs": list(node.inputs),
                "fused": node.fused,
                "type": _type(node),
                "cost": _fields(costs[node.name], _COST)
                | {"estimated": list(node_estimates(node, explained.estimated))},
                "move": _move(nodes[node.inputs[0]].type, node.type) if node.moves else None,
                "query": explained.queries[node.name].data() if node.name in explained.queries else None,
                "measured": _comparison(compared[node.name]) if node.name in compared else None,
            }
            for node in explained.plan.nodes
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


def _move(before: _C.PhysicalType, after: _C.PhysicalType) -> dict[str, Any]:
    """Which sites hold which tuples before and after; at most `_TUPLES` of them, evenly spaced."""
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


def _search(explained: ExplainedPlan) -> dict[str, Any] | None:
    if explained.found is None:
        return None
    return {
        "minimized": explained.found.minimized,
        "found_by": explained.found.candidates[0].name,
        "exact": explained.exact,
        "out_of_time": explained.found.out_of_time,
        "phases": [
            {"name": phase.name, "plans": phase.plans, "best": _finite(phase.best), "seconds": phase.seconds}
            for phase in explained.found.phases
        ],
    }


def _rules(explained: ExplainedPlan) -> list[dict[str, Any]]:
    laws = {rule.name: rule.law for rule in rules()} if explained.rules else {}
    return [
        {
            "rule": step.rule,
            "law": laws.get(step.rule, ""),
            "node": step.node,
            "before": _finite(step.before),
            "after": _finite(step.after),
        }
        for step in explained.rules
    ]


def _measured(explained: ExplainedPlan) -> dict[str, Any] | None:
    if explained.measured is None:
        return None
    return {
        "sites": explained.measured.sites,
        "loopback": explained.measured.loopback,
        "pooled_bytes": explained.measured.pooled_bytes,
        "total": _comparison(explained.comparisons[-1]),
    }


def _comparison(row: Comparison) -> dict[str, Any]:
    return {
        "predicted": row.predicted._asdict(),
        "measured": row.measured._asdict(),
        "errors": {name: _finite(factor) for name, factor in row.errors.items()},
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity: the cost of a plan that fits no site, an error where nothing was predicted."""
    return value if math.isfinite(value) else None
