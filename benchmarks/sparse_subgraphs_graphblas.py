"""Counting labelled subgraphs by GraphBLAS, by hand: a contender of sparse_subgraphs.py.

The vertices of a pattern are eliminated one after the other. That takes no more than vectors and matrices where each
vertex has at most two neighbours by then: in chains, stars, trees, cycles, petals and flowers, but not in a clique of
four.

| neighbours left | elimination |
|---|---|
| one | the edge's matrix times the vertex's vector, multiplied into the neighbour's vector |
| two | the product of both edges' matrices over the vertex; if the neighbours have an edge, masked by it and times it |

A vector is a label to begin with. Leaves go first, with the whole adjacency matrix, masked by the neighbour's label.
The matrix of each other edge is cut out of it, with rows and columns for the vertices that labels and leaves have left;
then the vertex of least work is next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

try:
    import graphblas
except ImportError:
    graphblas = None

INSTALLED = graphblas is not None

Edges = Sequence[tuple[int, int]]


class Label:
    """The vertices that have it, and vectors of ones: at these among all vertices, also as a mask, and of these alone.

    A mask is stored sparse: beside a dense one SuiteSparse 10.0.1 counts no work for rows of more than 256 entries,
    takes too small a hash table for them, and never returns.
    """

    def __init__(self, vertices: Sequence[int], size: int) -> None:
        self.vertices = np.sort(np.array(vertices, dtype=np.uint64))
        self.vector, self.mask = (graphblas.Vector.from_coo(self.vertices, 1.0, size=size) for _ in range(2))
        self.mask.ss.config["sparsity_control"] = "sparse"
        self.ones = graphblas.Vector.from_scalar(1.0, len(vertices))


class LabelledGraph:
    """The adjacency matrix, of edges in both directions, and the labels of vertices; needs GraphBLAS."""

    def __init__(self, edges: Edges, size: int, vertices: dict[str, list[int]], threads: int) -> None:
        graphblas.ss.config["nthreads"] = threads  # of all graphs
        first, second = np.array(edges).T
        self.adjacency = graphblas.Matrix.from_coo(first, second, 1.0, nrows=size, ncols=size)
        self.labels = {label: Label(own, size) for label, own in vertices.items()}


@dataclass(frozen=True)
class Factor:
    """A vector or a matrix; of `ones` all entries are 1, which need not be read."""

    entries: Any
    ones: bool = False


@cache
def semiring(left_ones: bool, right_ones: bool) -> Any:
    """Sums of products of float64, as all contenders count."""
    product = ("times", "first", "second", "pair")[2 * left_ones + right_ones]
    return getattr(graphblas.semiring, f"plus_{product}")[float]


def times(entries: Any, factor: Factor) -> Factor:
    """A factor times new entries, which all lie at those of a factor of ones."""
    return Factor(entries if factor.ones else graphblas.binary.times(entries & factor.entries).new())


def neighbours(edges: Edges) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for first, second in edges:
        found.setdefault(first, set()).add(second)
        found.setdefault(second, set()).add(first)
    return found


def eliminable(edges: Edges) -> bool:
    """Whether each vertex of a pattern can have at most two neighbours left when it is eliminated."""
    left = neighbours(edges)
    while left:
        vertex = min(left, key=lambda each: len(left[each]))
        around = left.pop(vertex)
        if len(around) > 2:
            return False
        for each in around:
            left[each] = (left[each] | around) - {vertex, each}
    return True


class Elimination:
    """What is left of a connected pattern of two vertices or more that is `eliminable`."""

    def __init__(self, graph: LabelledGraph, labels: Sequence[str], edges: Edges) -> None:
        self.graph = graph
        self.labels = [graph.labels[label] for label in labels]
        self.neighbours = neighbours(edges)
        self.vectors = {vertex: Factor(label.vector, ones=True) for vertex, label in enumerate(self.labels)}
        self.matrices: dict[tuple[int, int], Factor] = {}  # once leaves are gone

    def count(self) -> float:
        while leaves := [vertex for vertex, around in self.neighbours.items() if len(around) == 1]:
            self.eliminate_leaf(leaves[0])
        if len(self.neighbours) > 1:
            self.shrink()
        while len(self.neighbours) > 1:
            self.eliminate(min((each for each in self.neighbours if len(self.neighbours[each]) <= 2), key=self.work))
        (last,) = self.neighbours
        return float(self.vectors[last].entries.reduce().new().value or 0)

    def pop(self, vertex: int) -> tuple[Factor, list[int]]:
        """The vector and the neighbours of a vertex, which goes."""
        around = sorted(self.neighbours.pop(vertex))
        for neighbour in around:
            self.neighbours[neighbour].remove(vertex)
        return self.vectors.pop(vertex), around

    def eliminate_leaf(self, vertex: int) -> None:
        own, (neighbour,) = self.pop(vertex)
        label, adjacency = self.labels[neighbour], self.graph.adjacency
        if 2 * own.entries.nvals < len(label.vertices):  # pushes what there is; or else pulls what may be needed
            product = own.entries.vxm(adjacency, semiring(own.ones, True))
        else:
            product = adjacency.mxv(own.entries, semiring(True, own.ones))
        self.vectors[neighbour] = times(product.new(mask=label.mask.S), self.vectors[neighbour])

    def shrink(self) -> None:
        """Leaves only the vertices of the graph at which vectors have entries, and cuts out the matrices of edges."""
        domains = {}
        for vertex, vector in self.vectors.items():
            if vector.ones:
                label = self.labels[vertex]
                domains[vertex], entries = label.vertices, label.ones
            else:
                domains[vertex], values = vector.entries.to_coo()
                entries = graphblas.Vector.from_dense(values)
            self.vectors[vertex] = Factor(entries, vector.ones)
        for first, around in self.neighbours.items():
            for second in around:
                if first < second:
                    cut = self.graph.adjacency[domains[first], domains[second]].new()
                    self.matrices[first, second] = Factor(cut, ones=True)

    def work(self, vertex: int) -> float:
        """How many products of elements an elimination is expected to take."""
        if len(self.neighbours[vertex]) < 2:
            return 0
        first, second = (
            (self.matrices.get((vertex, each)) or self.matrices[each, vertex]).entries.nvals
            for each in self.neighbours[vertex]
        )
        return float(first * second / max(self.vectors[vertex].entries.size, 1))

    def take(self, row: int, column: int) -> Factor:
        """The matrix of an edge, which goes."""
        if (row, column) in self.matrices:
            return self.matrices.pop((row, column))
        turned = self.matrices.pop((column, row))
        return Factor(turned.entries.T, turned.ones)

    def eliminate(self, vertex: int) -> None:
        own, around = self.pop(vertex)
        if len(around) == 1:
            matrix = self.take(around[0], vertex)
            product = matrix.entries.mxv(own.entries, semiring(matrix.ones, own.ones)).new()
            self.vectors[around[0]] = times(product, self.vectors[around[0]])
            return
        first, second = around
        if (second, first) in self.matrices:
            first, second = second, first
        left, right = self.take(first, vertex), self.take(vertex, second)
        if not own.ones:
            left = Factor(left.entries.mxm(own.entries.diag(), semiring(left.ones, False)).new())
        product = left.entries.mxm(right.entries, semiring(left.ones, right.ones))
        if second in self.neighbours[first]:
            edge = self.matrices.pop((first, second))
            masked = product.new(mask=edge.entries.S, axb_method="gustavson")  # takes no hash table
            self.matrices[first, second] = times(masked, edge)
        else:
            self.matrices[first, second] = Factor(product.new())
            self.neighbours[first].add(second)
            self.neighbours[second].add(first)
