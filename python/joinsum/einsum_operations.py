"""What ⊗ and ⊕ of an einsum are called by users, and the kernels and vertices that they are."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from joinsum import _C
from joinsum.arguments import integer, show
from joinsum.errors import PlanError

__all__ = [
    "AGGREGATE_NAMES",
    "ARGUMENTS",
    "Operations",
    "VertexText",
    "is_positions",
    "join_kernel",
    "make_vertex",
    "positions_shape",
    "read_operations",
]

# ⊕ by the name that users give it: what is done to each joined element first, and the kernel that folds.
_AGGREGATES = {
    "sum": ("", "add"),
    "prod": ("", "mul"),
    "max": ("", "max"),
    "min": ("", "min"),
    "logsumexp": ("", "logaddexp"),
    "any": ("cast[bool]", "max"),
    "all": ("cast[bool]", "min"),
}
AGGREGATE_NAMES = {fold: name for name, (first, fold) in _AGGREGATES.items() if not first}

# ⊕ whose result is an index: the fold whose place it is.
ARGUMENTS = {"argmax": "max", "argmin": "min"}

# ⊗ that a contraction computes as the elementwise kernel does, to the last digit.
_CONTRACTED = ("mul", "add", "sub", "div", "max", "min", "squared_difference", "abs_difference")

# A kernel, or several that follow each other; everything else is an expression, and so is an operand alone.
_KERNELS = re.compile(r"\s*[A-Za-z_][\w.]*\s*(\[[^\[\]]*\])?\s*(\|\s*[A-Za-z_][\w.]*\s*(\[[^\[\]]*\])?\s*)*")
_OPERAND = re.compile(r"\s*(x\d*|y|z)\s*")


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

    @property
    def folded(self) -> list[str]:
        """Labels that the result lacks.

        >>> VertexText("mul", "sum", ["ij", "jk"], "ik", {}).folded
        ['j']
        """
        met = dict.fromkeys([*self.order, *(label for labels in self.in_labels for label in labels)])
        return [label for label in met if label not in self.out_labels]


def join_kernel(who: str, join: object, agg: object, operands: int) -> tuple[str, str]:
    """Texts of the kernels that ⊗ and ⊕ are: what users write, as plans do. Raises PlanError.

    >>> join_kernel("einsum", "mul", "any", 2)
    ('mul | cast[bool]', 'max')
    >>> join_kernel("einsum", "exp(x - y) * 2", "sum", 2)
    ('expression[2, exp(x0-x1)*2]', 'add')
    >>> join_kernel("einsum", "x - y", "max", 2)
    ('sub', 'max')
    """
    if not isinstance(join, str):
        raise PlanError(
            f"{who}: a join is text such as 'mul', 'sub | square' or the expression 'exp(x - y)': join={show(join)}"
        )
    if not isinstance(agg, str) or agg not in _AGGREGATES:
        raise PlanError(
            f"{who}: no such aggregation: agg={show(agg)}, there are {', '.join((*_AGGREGATES, *ARGUMENTS))}"
        )
    first, fold = _AGGREGATES[agg]
    if operands == 1 and join == "mul":
        join = "id"
    if _OPERAND.fullmatch(join) or not _KERNELS.fullmatch(join):
        join = _C.expression_kernel(join, operands)
    return (f"{join} | {first}" if first else join), fold


def is_positions(name: str, dtype: str) -> bool:
    """Whether an input of a graph holds the positions that argmax and argmin take: nobody is asked for it.

    >>> is_positions("Z.positions", "i64"), is_positions("Z", "i64")
    (True, False)
    """
    return dtype == "i64" and name.endswith(".positions")


def positions_shape(who: str, vertex: VertexText, shapes: Sequence[Sequence[int]]) -> list[int]:
    """Extents of the folded labels, of which argmax and argmin give a position. Raises PlanError where one is 0.

    >>> vertex = VertexText("mul", "argmax", ["ij", "jk"], "k", {})
    >>> positions_shape("einsum", vertex, [(2, 3), (3, 4)])
    [2, 3]
    """
    extents: dict[str, int] = {}
    for labels, shape in zip(vertex.in_labels, shapes, strict=True):
        extents |= zip(labels, shape, strict=True)
    shape = [extents[label] for label in vertex.folded]
    if 0 in shape:
        raise PlanError(f"{who}: no position among no elements: folded extents={shape}")
    return shape


def make_vertex(
    who: str, inputs: Sequence[_C.EinsumNode], vertex: VertexText, positions: str = "positions"
) -> _C.EinsumNode:
    """The node of a vertex as users name it.

    argmax and argmin are two folds: the extreme, then the least position whose element equals it (the first that is
    not a number, if there is one). `positions` names the input that it adds, of 64-bit integers: the numbers 0, 1, ...
    in the shape of the folded labels. Raises PlanError, or KernelError where a kernel does not fit.
    """
    if vertex.agg not in ARGUMENTS:
        return _vertex(who, inputs, _of_truth_values(inputs, vertex))
    folded = vertex.folded
    if not folded:
        raise PlanError(f"{who}: {vertex.agg} folds one label at least: labels={show(list(vertex.out_labels))}")
    shape = positions_shape(who, vertex, [node.extents for node in inputs])
    core = [label for label in dict.fromkeys(vertex.out_labels) if label not in vertex.extents]
    every = [*core, *folded]
    value = inputs[0]
    if len(inputs) > 1 or list(vertex.in_labels[0]) != every or vertex.join not in ("mul", "id"):
        value = _vertex(who, inputs, VertexText(vertex.join, "sum", vertex.in_labels, every, {}))
    extreme = _extreme(
        who, inputs, replace(vertex, agg=ARGUMENTS[vertex.agg], out_labels=core, extents={}), (value, every)
    )
    same = "where(x == y, 1, x != x)"
    found = _vertex(who, [value, extreme], VertexText(same, "sum", [every, core], every, {}))
    found = _vertex(who, [found], VertexText("cast[i64]", "sum", [every], every, {}))
    numbers = _C.einsum_input(positions, "i64", shape)
    first = f"where(x == 1, y, {math.prod(shape)})"
    return _vertex(who, [found, numbers], VertexText(first, "min", [every, folded], vertex.out_labels, vertex.extents))


def _extreme(
    who: str, inputs: Sequence[_C.EinsumNode], vertex: VertexText, joined: tuple[_C.EinsumNode, Sequence[str]]
) -> _C.EinsumNode:
    """The extreme of the joined tensor, which is given with its labels.

    Of a kernel of two operands it is one contraction, which need not form that tensor. Floats of half width are folded
    in single precision there, so that no joined element need equal it: of them the joined tensor is folded.
    """
    value, labels = joined
    exact = value.dtype not in ("f16", "bf16") and vertex.join in _CONTRACTED
    if len(inputs) == 2 and exact and all(len(set(own)) == len(own) for own in vertex.in_labels):
        return _vertex(who, inputs, vertex)
    return _vertex(who, [value], VertexText("id", vertex.agg, [labels], vertex.out_labels, {}))


def _of_truth_values(inputs: Sequence[_C.EinsumNode], vertex: VertexText) -> VertexText:
    """The product of truth values is their minimum."""
    truth = len(inputs) > 1 and all(node.dtype == "bool" for node in inputs)
    return replace(vertex, join="min") if truth and vertex.join == "mul" and vertex.agg in ("any", "all") else vertex


def _vertex(who: str, inputs: Sequence[_C.EinsumNode], vertex: VertexText) -> _C.EinsumNode:
    kernel, fold = join_kernel(who, vertex.join, vertex.agg, len(inputs))
    return _C.einsum_vertex(
        inputs, vertex.in_labels, vertex.out_labels, _C.Kernel(kernel), _C.Kernel(fold), vertex.extents
    )
