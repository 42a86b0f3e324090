"""A lazy relation as a graph: operators over sources, from which plans are built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from joinsum import _C
from joinsum.algebra.sources import Source
from joinsum.algebra.stored_relation import Place, StoredRelation

__all__ = ["Expression", "NamedSources", "build_plan", "places_of"]

# The sources that a plan reads, by the names of its inputs.
NamedSources = dict[str, Source]


def places_of(sources: NamedSources) -> dict[str, Place]:
    """The initial placements that sources specify, by the names of their inputs."""
    return {name: source.place for name, source in sources.items() if source.place is not None}


class Expression(ABC):
    """A node of a lazy graph: an operator over `operands`, or a source. Its type is checked on construction."""

    __slots__ = ("name", "node", "operands", "source")

    def __init__(
        self,
        node: _C.TraNode,
        operands: Sequence[Expression] = (),
        source: Source | None = None,
        name: str | None = None,
    ) -> None:
        self.node = node
        self.operands = tuple(operands)
        self.source = source
        self.name = name

    @abstractmethod
    def stored(self) -> StoredRelation:
        """Its value, stored on the sites."""


def topological(roots: Sequence[Expression]) -> list[Expression]:
    """Every node below `roots` once, operands before their users; without recursion."""
    done: set[int] = set()
    order: list[Expression] = []
    for root in roots:
        stack = [(root, 0)]
        while stack:
            node, position = stack.pop()
            if position == 0 and id(node) in done:
                continue
            done.add(id(node))
            if position < len(node.operands):
                stack.append((node, position + 1))
                stack.append((node.operands[position], 0))
            else:
                order.append(node)
    return order


def build_plan(outputs: Mapping[str, Expression], ties: Mapping[str, str]) -> tuple[_C.TraPlan, NamedSources]:
    """The plan of these outputs, and its sources by input name. Sources without a name get the same ones in every
    process that builds the same graph."""
    order = topological(list(outputs.values()))
    leaves = [node for node in order if node.source is not None]
    names = _input_names(leaves)
    rebuilt: dict[int, _C.TraNode] = {}
    renamed: set[int] = set()
    for node in order:
        if node.source is not None:
            wanted = names[id(node)]
            rebuilt[id(node)] = node.node
            if wanted != (node.name or "r0"):
                rebuilt[id(node)] = _C.tra_input(wanted, node.source.type)
                renamed.add(id(node))
        elif any(id(operand) in renamed for operand in node.operands):
            rebuilt[id(node)] = _C.tra_again(node.node, [rebuilt[id(operand)] for operand in node.operands])
            renamed.add(id(node))
        else:
            rebuilt[id(node)] = node.node
    plan = _C.TraPlan.make([(name, rebuilt[id(root)], ties.get(name)) for name, root in outputs.items()])
    return plan, {names[id(leaf)]: leaf.source for leaf in leaves if leaf.source is not None}


def _input_names(leaves: Sequence[Expression]) -> dict[int, str]:
    """A name for each source: its own, or the next free one of r0, r1, ..."""
    taken = {leaf.name for leaf in leaves if leaf.name is not None}
    names: dict[int, str] = {}
    number = 0
    for leaf in leaves:
        if leaf.name is not None:
            names[id(leaf)] = leaf.name
            continue
        while f"r{number}" in taken:
            number += 1
        names[id(leaf)] = f"r{number}"
        number += 1
    return names
