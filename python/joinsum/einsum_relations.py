"""Einsums of lazy relations: a lazy relation again, nothing gathered."""

from __future__ import annotations

from collections.abc import Sequence

from joinsum import _C
from joinsum.contraction_order import paths_of
from joinsum.einsum_arguments import new_labels
from joinsum.einsum_operations import ARGUMENTS, Operations, VertexText, make_vertex
from joinsum.errors import PlanError
from joinsum.relation import Relation

__all__ = ["einsum_of_relations"]


def einsum_of_relations(equation: str, operands: Sequence[object], operations: Operations) -> Relation:
    """The vertex over relations that are there. Raises PlanError.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> x = joinsum.relation(torch.ones(4, 6), parts=(2, 2), name="X")
    >>> z = joinsum.einsum("ij,kj->ik", x, x)
    >>> z.type
    f32[4,4]<2,2>
    >>> torch.equal(z.to_tensor(), torch.full((4, 4), 6.))
    True
    """
    if operations.agg in ARGUMENTS:
        raise PlanError(f"einsum: {operations.agg} is of tensors; give to_tensor() of each relation: {equation}")
    relations = []
    for position, operand in enumerate(operands):
        if not isinstance(operand, Relation):
            raise PlanError(
                f"einsum: operands are all tensors or all relations: operand {position}={type(operand).__name__}"
            )
        relations.append(operand)
    shapes = [[axis.extent for axis in relation.type.axes] for relation in relations]
    labels, result, extents = _C.parse_equation(equation, shapes, dict(operations.extents))
    for position, (names, shape) in enumerate(zip(labels, shapes, strict=True)):
        for label, extent in zip(names, shape, strict=True):
            if extent != extents[label]:
                raise PlanError(
                    f"einsum: an axis of a relation is not repeated: operand {position}, label={label}, "
                    f"extent={extent}, wanted={extents[label]}\n  {equation}"
                )
    names = [f"x{i}" for i in range(len(relations))]
    inputs = [
        _C.einsum_input(name, relation.type.dtype, shape)
        for name, relation, shape in zip(names, relations, shapes, strict=True)
    ]
    new = new_labels(labels, result, extents)
    vertex = VertexText(operations.join, operations.agg, labels, result, new)
    graph = _C.EinsumPlan.make([("z", make_vertex("einsum", inputs, vertex))])
    nodes = {name: relation.node for name, relation in zip(names, relations, strict=True)}
    (node,) = graph.binary(paths_of(graph)).lower_onto(nodes)
    return _relation_of(node, {relation.node.identity: relation for relation in relations})


def _relation_of(node: _C.TraNode, known: dict[int, Relation]) -> Relation:
    """The relation that a node is, over those that are known."""
    found = known.get(node.identity)
    if found is None:
        found = known[node.identity] = Relation(node, [_relation_of(each, known) for each in node.inputs])
    return found
