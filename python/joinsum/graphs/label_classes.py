"""Classes of labels: axes of tensors and labels of vertices that are one through the tensors that vertices share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from joinsum import _C
from joinsum.base.disjoint_sets import DisjointSets

__all__ = ["LabelClasses", "Place", "classes_of"]

# An axis of a value, by the value's name, or a label of a vertex, by the vertex's name.
Place = tuple[str, int | str]

# A vertex: its name, the names of its inputs, labels of the operands and of the result.
_Vertex = tuple[str, Sequence[str], Sequence[Sequence[str]], Sequence[str]]


class LabelClasses:
    """The classes of a graph, given by its vertices, each after those that it reads.

    >>> classes = LabelClasses([("Z", ["X", "Y"], ["ij", "jk"], "ik")])
    >>> classes.find(("X", 1)) == classes.find(("Y", 0)) == classes.find(("Z", "j"))
    True
    >>> classes.find(("Z", 1)) == classes.find(("Y", 1))
    True
    """

    def __init__(self, vertices: Iterable[_Vertex]) -> None:
        self._sets: DisjointSets[Place] = DisjointSets()
        self._read: list[Place] = []
        for name, inputs, operands, result in vertices:
            for source, labels in zip(inputs, operands, strict=True):
                for axis, label in enumerate(labels):
                    self._sets.unite((source, axis), (name, label))
                    self._read.append((source, axis))
            for axis, label in enumerate(result):
                self._sets.unite((name, axis), (name, label))

    def find(self, place: Place) -> Place:
        """The place that represents the class."""
        return self._sets.find(place)

    def unite(self, first: Place, second: Place) -> None:
        """Says that two places are one, as an output and the input that it is tied to."""
        self._sets.unite(first, second)

    def in_order(self) -> list[Place]:
        """All classes, in the order in which vertices first read them."""
        return list(dict.fromkeys(map(self.find, self._read)))


def classes_of(graph: _C.EinsumPlan) -> LabelClasses:
    """The classes of a graph; axes of outputs and of the inputs that they are tied to are one."""
    classes = LabelClasses((name, inputs, operands, result) for name, _, inputs, operands, result in graph.uses)
    ties = graph.ties
    for (output, (_, extents)), node in zip(graph.outputs, graph.output_nodes, strict=True):
        for axis in range(len(extents)) if output in ties else ():
            classes.unite((ties[output], axis), (node, axis))
    return classes
