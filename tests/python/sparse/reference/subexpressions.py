"""Minimal sub-expressions and the partial order of eliminations. Notes 1.3, 1.5, 1.6 and 1.9."""

from __future__ import annotations

from collections.abc import Iterator

from .expressions import Expression, children, free_indices, rename_apart
from .operators import DISTRIBUTES, FOLDS


def normalise(expr: Expression) -> Expression:
    """Merges nested maps and aggregates of one operator and lifts aggregates over maps that distribute."""
    expr = rename_apart(expr)
    while (rewritten := normalise_once(expr)) != expr:
        expr = rewritten
    return expr


def normalise_once(expr: Expression) -> Expression:
    if expr[0] == "map":
        operator, below = expr[1], [normalise_once(child) for child in expr[2]]
        merged: list[Expression] = []
        for child in below:
            merged += child[2] if operator in FOLDS and child[:2] == ["map", operator] else [child]
        for place, child in enumerate(merged):
            if child[0] == "agg" and (operator, child[1]) in DISTRIBUTES:
                inner = [*merged[:place], child[3], *merged[place + 1 :]]
                return ["agg", child[1], child[2], ["map", operator, inner]]
        return ["map", operator, merged]
    if expr[0] == "agg":
        body = normalise_once(expr[3])
        if body[:2] == ["agg", expr[1]]:
            return ["agg", expr[1], [*expr[2], *body[2]], body[3]]
        return ["agg", expr[1], expr[2], body]
    return expr


def aggregates(expr: Expression) -> Iterator[Expression]:
    if expr[0] == "agg":
        yield expr
    for child in children(expr):
        yield from aggregates(child)


def walk(node: Expression, index: str, operator: str) -> list[Expression]:
    """Walks down from the body of the aggregate over `index` to the nodes that it must wrap."""
    if node[0] == "agg":
        return walk(node[3], index, operator) if node[1] == operator else [node]
    if node[0] != "map":
        return [node]
    holders = [child for child in node[2] if index in free_indices(child)]
    if (node[1], operator) in DISTRIBUTES:
        if len(holders) == 1:
            return walk(holders[0], index, operator)
        return [node if len(holders) == len(node[2]) else ["map", node[1], holders]]
    if node[1] == operator:
        return [found for child in holders for found in walk(child, index, operator)]
    return [node]


def minimal_sub_expressions(expr: Expression, index: str) -> list[Expression]:
    (found,) = [node for node in aggregates(normalise(expr)) if index in node[2]]
    return walk(found[3], index, found[1])


def must_precede(expr: Expression) -> set[tuple[str, str]]:
    """Pairs (x, y): the sub-expression that y must wrap still holds the aggregate over x."""
    pairs = set()
    for outer in aggregates(normalise(expr)):
        for y in outer[2]:
            for wrapped in walk(outer[3], y, outer[1]):
                pairs |= {(x, y) for inner in aggregates(wrapped) for x in inner[2]}
    return pairs


def closure(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Adds what follows by transitivity."""
    while more := {(x, z) for x, y in pairs for w, z in pairs if y == w} - pairs:
        pairs = pairs | more
    return pairs
