"""The steps of a planned graph: what each does, in how many parts it cuts each label, and its result's placement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from joinsum import _C
from joinsum.algebra.plan import IaPlan, PlanNode
from joinsum.graphs.label_classes import LabelClasses, Place
from joinsum.planner.cost import PlanCost

__all__ = ["Step", "order_text", "steps_of"]

Dims = tuple[str, ...]  # the label of each key dimension


@dataclass(frozen=True)
class Step:
    """One step of a planned graph.

    name         the node's, as the physical plan's text names it
    operation    what is done: `local_join[1; 0; contract[ab,bc->ac]]`
    inputs       names of the inputs and steps that it reads
    parts        the partition vector: into how many parts the sites divide each label that is cut; 1 is a label that
                 no site divides. A cut by a rewriting rule counts as `k0`, `k1`, ...
    placement    of the result, as plans print it: `(0, *)`
    wire_bytes   bytes that move between sites
    seconds      predicted, on the cluster that the plan was chosen for
    """

    name: str
    operation: str
    inputs: tuple[str, ...]
    parts: dict[str, int]
    placement: str
    wire_bytes: int
    seconds: float


def order_text(binary: _C.EinsumPlan) -> list[tuple[str, str, str]]:
    """Number, labels and operands of each einsum, in the order in which they are taken.

    >>> import joinsum
    >>> graph = joinsum.Graph.parse("einsum\\ninput X: f32[4,5]\\noutput Z = einsum[ij->j; id; max](X)")
    >>> order_text(graph.core)
    [('(1)', 'ij->j', 'X')]
    """
    shown = {name: name for name, _ in binary.inputs}
    rows = []
    for number, (name, function, inputs, operands, result) in enumerate(binary.uses, 1):
        shown[name] = f"({number})"
        labels = f"{','.join(map(labels_text, operands))}->{labels_text(result)}"
        if function != "einsum":
            labels = f"{function} {labels}"
        rows.append((shown[name], labels, ", ".join(shown[each] for each in inputs)))
    return rows


def labels_text(labels: Sequence[str]) -> str:
    """Labels as plans print them.

    >>> labels_text(["i", "row"])
    'i{row}'
    """
    return "".join(label if len(label) == 1 and label.isalpha() else f"{{{label}}}" for label in labels)


def steps_of(binary: _C.EinsumPlan, plan: IaPlan, cost: PlanCost) -> tuple[Step, ...]:
    """The steps of `plan`, which computes the graph; inputs are none."""
    prices = {node.node: node for node in cost.nodes}
    labels = _input_labels(binary)
    dims: dict[str, Dims] = {}
    steps = []
    types: dict[str, _C.RelationType] = {}
    for node in plan.nodes:
        types[node.name] = node.type.relation
        if node.kind == "input":
            dims[node.name] = _cut_labels(labels[node.name], node.type.relation)
            continue
        relations = [types[name] for name in node.inputs]
        dims[node.name] = _dims(node, [dims[name] for name in node.inputs], relations)
        price = prices[node.name]
        parts = _parts(node.type, dims[node.name])
        steps.append(
            Step(node.name, node.operation, node.inputs, parts, node.placement, price.wire_bytes, price.seconds)
        )
    return tuple(steps)


def _parts(type_: _C.PhysicalType, dims: Dims) -> dict[str, int]:
    parts = dict.fromkeys(dims, 1)
    for label, count in zip(dims, type_.parts, strict=True):
        parts[label] *= count
    return parts


def _dims(node: PlanNode, inputs: list[Dims], relations: list[_C.RelationType]) -> Dims:
    """Labels of a node's key dimensions."""
    if node.kind in ("broadcast", "shuffle", "local_filter", "local_upsert"):
        return inputs[0]
    if node.kind == "local_aggregate":
        return tuple(inputs[0][dim] for dim in node.core.group_by)
    if node.kind == "local_join":
        left, right = inputs
        joined = node.core.joined_keys[1]
        return left + tuple(label for dim, label in enumerate(right) if dim not in joined)
    if node.core.call is not None:
        return _call_dims(node.core.call, inputs, relations, node.type.relation)
    arity = node.type.relation.arity
    return inputs[0] if len(inputs[0]) == arity else tuple(f"k{dim}" for dim in range(arity))


def _call_dims(call: _C.Call, inputs: list[Dims], relations: list[_C.RelationType], result: _C.RelationType) -> Dims:
    """Labels of a call's key dimensions: a cut letter has the label that it has in an operand."""
    names = {letter: letter for letter in call.result}
    for letters, dims, relation in zip(call.operands, inputs, relations, strict=True):
        for letter, axis in zip(letters, relation.axes, strict=True):
            if axis.key_dim is not None:
                names[letter] = dims[axis.key_dim]
    return tuple(
        names[letter] for letter, axis in zip(call.result, result.axes, strict=True) if axis.key_dim is not None
    )


def _cut_labels(labels: Sequence[str], relation: _C.RelationType) -> Dims:
    """The label of each key dimension of an input."""
    found = {axis.key_dim: label for label, axis in zip(labels, relation.axes, strict=True)}
    return tuple(found[dim] for dim in range(relation.arity))


def _input_labels(graph: _C.EinsumPlan) -> dict[str, list[str]]:
    """A name for each axis of each input: axes that are one through shared tensors have one, that of the label where
    they first occur; of labels that are not one but have one name the later ones are marked."""
    vertices = [(name, inputs, operands, result) for name, _, inputs, operands, result in graph.uses]
    classes = LabelClasses(vertices)
    names: dict[Place, str] = {}
    for name, _, operands, result in vertices:
        for label in dict.fromkeys(chain(*operands, result)):
            place = classes.find((name, label))
            if place not in names:
                while label in names.values():
                    label += "'"
                names[place] = label
    return {
        name: [names[classes.find((name, axis))] for axis in range(len(extents))] for name, (_, extents) in graph.inputs
    }
