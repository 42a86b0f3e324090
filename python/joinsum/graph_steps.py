"""The steps of a planned graph: what each does, in how many parts it cuts each label, where its result lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from joinsum import _C
from joinsum.cost import PlanCost
from joinsum.plan import IaPlan, PlanNode

__all__ = ["Step", "order_text", "steps_of"]

Dims = tuple[str, ...]  # the label of each key dimension


@dataclass(frozen=True)
class Step:
    """One step of a planned graph.

    name         the node's, as the physical plan's text names it
    operation    what is done: `local_join[1; 0; contract[ab,bc->ac]]`
    inputs       names of the inputs and steps that it reads
    parts        the partition vector: into how many parts the sites divide each label that is cut; 1 is a label that
                 every site has whole. A cut that a rewriting rule has made counts as `k0`, `k1`, ...
    placement    where the result lies, as plans print it: `(0, *)`
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
    >>> graph = joinsum.EinsumPlan.parse("einsum\\ninput X: f32[4,5]\\noutput Z = einsum[ij->j; id; max](X)")
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
    for size, state in zip(type_.grid.axes, _states(type_), strict=True):
        if state.isdigit():
            parts[dims[int(state)]] *= size
    return parts


def _states(type_: _C.PhysicalType) -> list[str]:
    """For each grid axis the key dimension that it splits, or another sign."""
    text = type_.placement.text(type_.relation.frontier)
    states = text[text.index("(") + 1 : text.rindex(")")]
    return [state.split("@")[0].strip() for state in states.split(",")] if states else []


def _dims(node: PlanNode, inputs: list[Dims], relations: list[_C.RelationType]) -> Dims:
    """Labels of a node's key dimensions."""
    fields = node.operation[node.operation.index("[") + 1 : -1].split(";")
    if node.kind in ("broadcast", "shuffle", "local_filter"):
        return inputs[0]
    if node.kind == "local_aggregate":
        return tuple(inputs[0][int(dim)] for dim in _integers(fields[0]))
    if node.kind == "local_join":
        left, right = inputs
        joined = _integers(fields[1])
        return left + tuple(label for dim, label in enumerate(right) if dim not in joined)
    if node.kind == "local_call":
        return _called_dims(node, fields, inputs, relations)
    arity = node.type.relation.arity
    return inputs[0] if len(inputs[0]) == arity else tuple(f"k{dim}" for dim in range(arity))


def _called_dims(node: PlanNode, fields: list[str], inputs: list[Dims], relations: list[_C.RelationType]) -> Dims:
    """Of a call's text `0; aten::relu; ab -> ab:f32; ...`: a cut letter has the name that it has in an operand."""
    operands, results = fields[2].split("->")
    names = {letter: letter for letter in results}
    for letters, dims, relation in zip(operands.strip().split(","), inputs, relations, strict=True):
        for letter, axis in zip(letters, relation.axes, strict=True):
            if axis.key_dim is not None:
                names[letter] = dims[axis.key_dim]
    letters = results.split(",")[int(fields[0])].strip().split(":")[0]
    return tuple(
        names[letter] for letter, axis in zip(letters, node.type.relation.axes, strict=True) if axis.key_dim is not None
    )


def _integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part.strip()]


def _cut_labels(labels: Sequence[str], relation: _C.RelationType) -> Dims:
    """The label of each key dimension of an input."""
    found = {axis.key_dim: label for label, axis in zip(labels, relation.axes, strict=True)}
    return tuple(found[dim] for dim in range(relation.arity))


def _input_labels(graph: _C.EinsumPlan) -> dict[str, list[str]]:
    """A name for each axis of each input: axes that are one through shared tensors have one, that of the label where
    they first occur; of labels that are not one but have one name the later ones are marked."""
    axes: dict[str, list[int]] = {name: [] for name, _ in graph.inputs}
    parents: list[int] = []

    def find(member: int) -> int:
        while parents[member] != member:
            member = parents[member]
        return member

    def add() -> int:
        parents.append(len(parents))
        return parents[-1]

    for name, (_, extents) in graph.inputs:
        axes[name] = [add() for _ in extents]
    said: list[tuple[int, str]] = []
    for name, _, inputs, operands, result in graph.uses:
        known: dict[str, int] = {}
        for node, labels in zip(inputs, operands, strict=True):
            for axis, label in zip(axes[node], labels, strict=True):
                first, second = find(known.setdefault(label, axis)), find(axis)
                parents[max(first, second)] = min(first, second)
        axes[name] = [known[label] if label in known else known.setdefault(label, add()) for label in result]
        said += [(axis, label) for label, axis in known.items()]
    names: dict[int, str] = {}
    for axis, label in said:
        if find(axis) not in names:
            while label in names.values():
                label += "'"
            names[find(axis)] = label
    return {name: [names[find(axis)] for axis in axes[name]] for name, _ in graph.inputs}
