"""What ⊗ and ⊕ of an einsum are called by users, and the kernels and vertices that they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from joinsum import _C
from joinsum.arguments import integer, show
from joinsum.errors import PlanError

__all__ = [
    "ARGUMENTS",
    "Operations",
    "VertexText",
    "is_positions",
    "make_vertex",
    "read_operations",
]

# ⊕ whose result is an index.
ARGUMENTS = ("argmax", "argmin")


@dataclass(frozen=True)
class Operations:
    """⊗ and ⊕ of a call as users name them, and the extents that it gives, in the order of their labels."""

    join: str = "mul"
    agg: str = "sum"
    extents: tuple[tuple[str, int], ...] = ()

    @property
    def products(self) -> bool:
        """Whether they are those of torch.einsum."""
        return self.join == "mul" and self.agg == "sum"

    def of_truth_values(self) -> Operations:
        """What torch.einsum's are of several operands of truth values, where it takes them: all are true, in one place
        at least.

        >>> Operations().of_truth_values()
        Operations(join='min', agg='max', extents=())
        """
        return replace(self, join="min", agg="max")


def read_operations(who: str, join: object, agg: object, extents: object) -> Operations:
    """What a call asks for; texts are read when they meet their operands. Raises PlanError for what is no text and no
    number of elements.

    >>> read_operations("einsum", "mul", "max", {"row": 5, "j": 4})
    Operations(join='mul', agg='max', extents=(('j', 4), ('row', 5)))
    """
    for name, value in (("join", join), ("agg", agg)):
        if not isinstance(value, str):
            raise PlanError(f"{who}: {name} is text such as {'mul' if name == 'join' else 'sum'!r}: got={show(value)}")
    if extents is None:
        return Operations(str(join), str(agg))
    if not isinstance(extents, Mapping) or not all(isinstance(label, str) for label in extents):
        raise PlanError(f"{who}: extents are numbers by label, as in {{'j': 5}}: extents={show(extents)}")
    pairs = [(label, integer(who, f"extents[{label!r}]", extent)) for label, extent in sorted(extents.items())]
    return Operations(str(join), str(agg), tuple(pairs))


@dataclass(frozen=True)
class VertexText:
    """⊗ and ⊕ of a vertex as users name them, its labels, and extents of labels that only the result has.

    order   labels in the order in which argmax and argmin count positions, where it is not the operands'
    """

    join: str
    agg: str
    in_labels: Sequence[Sequence[str]]
    out_labels: Sequence[str]
    extents: Mapping[str, int]
    order: Sequence[str] = ()


def is_positions(name: str, dtype: str) -> bool:
    """Whether an input of a graph holds the positions that argmax and argmin take: nobody is asked for it.

    >>> is_positions("Z.positions", "i64"), is_positions("Z", "i64")
    (True, False)
    """
    return dtype == "i64" and name.endswith(".positions")


def make_vertex(
    who: str, inputs: Sequence[_C.EinsumNode], vertex: VertexText, positions: str = "positions"
) -> _C.EinsumNode:
    """The node of a vertex as users name it.

    argmax and argmin are two folds: the extreme, then the least position whose element equals it (the first that is
    not a number, if there is one). `positions` names the input that it adds, of 64-bit integers: the numbers 0, 1, ...
    in the shape of the folded labels. Raises PlanError, or KernelError where a kernel does not fit.

    >>> inputs = [_C.einsum_input("X", "f32", [2, 3])]
    >>> node = make_vertex("einsum", inputs, VertexText("exp", "max", ["ij"], "i", {}))
    >>> print(_C.EinsumPlan.make([("Z", node)]), end="")
    einsum
    input X: f32[2,3]
    t0 = einsum[ij->i; exp; max](X): f32[2]
    output Z = t0
    """
    lists = [list(labels) for labels in vertex.in_labels]
    named = _C.NamedVertex(
        vertex.join, vertex.agg, lists, list(vertex.out_labels), dict(vertex.extents), list(vertex.order)
    )
    return _C.named_einsum_vertex(who, inputs, named, positions)
