"""The shortest circle in a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["shortest_circle"]


def shortest_circle(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """The nodes of the shortest circle in the order in which they reach each other, the first one again at the end;
    empty where there is none.

    >>> shortest_circle({"a": ["b"], "b": ["c"], "c": ["b", "a"]})
    ['b', 'c', 'b']
    >>> shortest_circle({"a": ["b"], "b": []})
    []
    """
    best: list[str] = []
    for start in sorted(edges):
        circle = _shortest_through(start, edges)
        if circle and (not best or len(circle) < len(best)):
            best = circle
    return best


def _shortest_through(start: str, edges: Mapping[str, Iterable[str]]) -> list[str]:
    paths = [[start]]
    seen: set[str] = set()
    for path in paths:  # grows while it is read: breadth first
        for node in sorted(edges.get(path[-1], ())):
            if node == start:
                return [*path, start]
            if node not in seen:
                seen.add(node)
                paths.append([*path, node])
    return []
