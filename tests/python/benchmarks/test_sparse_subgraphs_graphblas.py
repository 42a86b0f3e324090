"""Labelled subgraphs that GraphBLAS counts by hand, beside a search by loops."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

pytest.importorskip("duckdb")

from sparse_subgraphs import FAMILIES, pattern
from sparse_subgraphs_graphblas import INSTALLED, Elimination, LabelledGraph, eliminable

Edges = list[tuple[int, int]]

needs_graphblas = pytest.mark.skipif(not INSTALLED, reason="GraphBLAS is not installed")


def in_both_directions(edges: Edges) -> Edges:
    return [*edges, *((second, first) for first, second in edges)]


def random_edges(size: int, share: float, draw: random.Random) -> Edges:
    return [(i, j) for j in range(size) for i in range(j) if draw.random() < share]


def by_loops(edges: Edges, own: Sequence[str], labels: Sequence[str], wanted: Edges) -> int:
    """Homomorphisms of a pattern with labels to a graph whose vertices have their own."""
    joined = set(in_both_directions(edges))
    before = [[i for i in range(j) if (i, j) in wanted or (j, i) in wanted] for j in range(len(labels))]

    def count(chosen: list[int]) -> int:
        vertex = len(chosen)
        if vertex == len(labels):
            return 1
        fits = (v for v in range(len(own)) if own[v] == labels[vertex])
        return sum(count([*chosen, v]) for v in fits if all((chosen[i], v) in joined for i in before[vertex]))

    return count([])


def by_graphblas(edges: Edges, own: Sequence[str], labels: Sequence[str], wanted: Edges) -> float:
    vertices = {label: [v for v, each in enumerate(own) if each == label] for label in dict.fromkeys(own)}
    graph = LabelledGraph(in_both_directions(edges), len(own), vertices, threads=2)
    return Elimination(graph, labels, wanted).count()


@needs_graphblas
@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "clique"])
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_each_family_is_counted_as_loops_count(family: str, share: float) -> None:
    draw = random.Random(0)
    for size in (4, 5, 6, 7):
        edges = random_edges(9, share, draw)
        own = ["a", "b", "c", *(draw.choice("abc") for _ in range(6))]
        vertices, wanted = pattern(family, size, draw)
        labels = [draw.choice("abc") for _ in range(vertices)]
        assert by_graphblas(edges, own, labels, wanted) == by_loops(edges, own, labels, wanted)


@needs_graphblas
def test_random_patterns_are_counted_as_loops_count() -> None:
    draw = random.Random(1)
    counted = 0
    for _ in range(200):
        edges = random_edges(8, draw.choice([0.3, 0.6]), draw)
        own = ["a", "b", *(draw.choice("ab") for _ in range(6))]
        size, tree = pattern("tree", draw.randint(2, 6), draw)
        wanted = list(dict.fromkeys([*tree, *random_edges(size, 0.3, draw)]))
        labels = [draw.choice("ab") for _ in range(size)]
        if edges and eliminable(wanted):
            counted += 1
            assert by_graphblas(edges, own, labels, wanted) == by_loops(edges, own, labels, wanted)
    assert counted > 100


@needs_graphblas
@pytest.mark.parametrize("labels", ["aba", "bab", "aaa", "aab"])
def test_rows_of_more_than_256_entries_are_counted(labels: str) -> None:
    """Beside dense masks GraphBLAS does not return from products with them."""
    size = 400
    own = ["b", *"a" * size]
    star = [(0, i) for i in range(1, size + 1)]
    paths = {"aba": size**2, "bab": size, "aaa": 0, "aab": 0}
    assert by_graphblas(star, own, labels, [(0, 1), (1, 2)]) == paths[labels]
    complete = [(i, j) for j in range(size + 1) for i in range(j)]
    pairs = size * (size - 1)
    triangles = {"aba": pairs, "bab": 0, "aaa": pairs * (size - 2), "aab": pairs}
    assert by_graphblas(complete, own, labels, [(0, 1), (1, 2), (2, 0)]) == triangles[labels]


@pytest.mark.parametrize("family", FAMILIES)
def test_all_families_but_cliques_have_a_treewidth_of_at_most_two(family: str) -> None:
    for size in range(4, 9):
        assert eliminable(pattern(family, size, random.Random(size))[1]) == (family != "clique")


def test_a_pattern_that_contains_a_clique_of_four_cannot_be_eliminated() -> None:
    triangles = [(0, 1), (1, 2), (2, 0), (0, 3), (1, 3)]
    assert eliminable(triangles)
    assert not eliminable([*triangles, (2, 3)])
    assert not eliminable([*triangles, (2, 4), (4, 3)])  # of which 4 leaves the clique
