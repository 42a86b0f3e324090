"""What the call of an einsum says: the equation, in both of torch.einsum's forms, and what its operations are called;
views of the operands, labels, the result's dtype."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from joinsum import _C
from joinsum.base.arguments import integer, show
from joinsum.base.errors import PlanError

__all__ = [
    "ARGUMENTS",
    "Operations",
    "Reading",
    "View",
    "common_dtype",
    "lettered",
    "new_labels",
    "position_inputs",
    "positions",
    "read_arguments",
    "read_operations",
    "views_of",
]

# ⊕ whose result is an index.
ARGUMENTS = ("argmax", "argmin")

_CPU = torch.device("cpu")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_WORD = re.compile(r"\{([A-Za-z0-9_][A-Za-z0-9_.]*)\}")  # a label in braces, as the core reads it
_LABEL = re.compile(r"\{[^{}]*\}|.", re.DOTALL)  # that, or a letter


def read_arguments(arguments: Sequence[object], who: str = "einsum", shapes: bool = False) -> tuple[str, list[Any]]:
    """The equation as text, and the unchecked operands: of either of torch.einsum's forms.

    who      opens messages
    shapes   whether an operand may be a shape, so that a list of numbers is one operand

    >>> read_arguments(["ij->i", [2, 3]], shapes=True), read_arguments([(2, 3), ["row", ...], ["row"]], shapes=True)
    (('ij->i', [[2, 3]]), ('{row}...->{row}', [(2, 3)]))
    """
    if not arguments:
        raise PlanError(f"{who}: give an equation and operands, as in einsum('ij,jk->ik', x, y)")
    first, *rest = arguments
    if not isinstance(first, str):
        return _from_sublists(arguments, who)
    if len(rest) == 1 and isinstance(rest[0], (list, tuple)) and not (shapes and _is_shape(rest[0])):
        rest = list(rest[0])
    if not rest:
        raise PlanError(f"{who}: at least one operand: equation={show(first)}")
    return first, rest


def _is_shape(value: Sequence[object]) -> bool:
    return all(isinstance(extent, int) for extent in value)


def _from_sublists(arguments: Sequence[object], who: str) -> tuple[str, list[Any]]:
    """torch.einsum's other form: operands and lists of labels in turn, the result's last."""
    pairs = len(arguments) // 2
    if not pairs:
        example = "einsum('ij,jk->ik', x, y)"
        raise PlanError(f"{who}: give an equation and operands, as in {example}: got={show(arguments[0])}")
    operands = list(arguments[0 : 2 * pairs : 2])
    text = ",".join(_sublist_text(labels, who) for labels in arguments[1 : 2 * pairs : 2])
    if len(arguments) % 2:
        text += "->" + _sublist_text(arguments[-1], who)
    return text, operands


def _sublist_text(labels: object, who: str) -> str:
    if not isinstance(labels, (list, tuple)):
        raise PlanError(f"{who}: operands and lists of labels are given in turn: got={show(labels)}")
    text = ""
    for label in labels:
        if label is Ellipsis:
            text += "..."
        elif isinstance(label, int) and not isinstance(label, bool) and 0 <= label < len(_LETTERS):
            text += _LETTERS[label]
        elif isinstance(label, str) and label and not set("{}").intersection(label):
            text += label if _is_letter(label) else f"{{{label}}}"
        else:
            raise PlanError(f"{who}: a label of a list is text, 0 to {len(_LETTERS) - 1}, or ...: label={show(label)}")
    return text


def lettered(equation: str) -> str:
    """The equation with a letter for each label in braces, as torch.einsum reads it.

    >>> lettered("{row}j,j{out}->{row}{out}")
    'Aj,jB->AB'
    """
    labels = _WORD.findall(equation)
    words: dict[str, None] = dict.fromkeys(label for label in labels if not _is_letter(label))
    taken = {*_WORD.sub("", equation), *labels}
    free = [letter for letter in _LETTERS if letter not in taken]
    if len(free) < len(words):
        raise PlanError(f"einsum: more labels than letters: most={len(_LETTERS)}, equation={equation}")
    letters = dict(zip(words, free, strict=False))
    return _WORD.sub(lambda word: letters.get(str(word[1]), str(word[1])), equation)


def _is_letter(label: str) -> bool:
    return len(label) == 1 and label in _LETTERS


def common_dtype(
    equation: str,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[torch.dtype],
    device: torch.device = _CPU,
    new: Collection[str] = (),
) -> torch.dtype | None:
    """The dtype of torch.einsum's result on `device`, which integers of sums and, inside torch.autocast, operands of
    products are converted to; None where torch has none. `new`: labels that only the result has, which torch's lacks.

    >>> common_dtype("ij->i", [(2, 3)], [torch.int32])
    torch.int64
    >>> common_dtype("ij->i{row}", [(2, 3)], [torch.int32], new=["row"])
    torch.int64
    """
    small = [
        torch.ones([min(extent, 2) for extent in shape], dtype=dtype, device=device)
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    try:
        return torch.einsum(lettered(_without(equation, new)), *small).dtype
    except RuntimeError:
        if len(set(dtypes)) > 1:
            found = ", ".join(f"operand {i}={dtype}" for i, dtype in enumerate(dtypes))
            raise PlanError(
                f"einsum: dtypes of the operands differ; convert one with x.to(dtype): {found}\n  {equation}"
            ) from None
        return None


def _without(equation: str, labels: Collection[str]) -> str:
    """The equation without these labels in its result."""
    operands, arrow, result = equation.partition("->")
    others = (each for each in _LABEL.findall(result) if each.strip("{}") not in labels)
    return operands + arrow + "".join(others)


# --- views ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """A view of an operand with one axis for each of its labels.

    labels   of the view's axes
    steps    in order: (a, None) leaves out axis a, which has one element and is repeated; (a, b) takes the diagonal of
             axes a < b, which stands at a
    """

    labels: tuple[str, ...]
    steps: tuple[tuple[int, int | None], ...]

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The view of `tensor`."""
        for first, second in self.steps:
            tensor = tensor.squeeze(first) if second is None else tensor.diagonal(0, first, second).movedim(-1, first)
        return tensor

    def shape(self, extents: Sequence[int]) -> list[int]:
        """Extents of the view of a tensor with these."""
        left = list(extents)
        for first, second in self.steps:
            del left[first if second is None else second]
        return left


@dataclass(frozen=True)
class Reading:
    """What an equation says of operands of certain shapes.

    views    of the operands
    result   labels of the result
    new      extents of the labels that only the result has
    order    labels of the operands as the equation has them, also those that views leave out
    """

    views: tuple[View, ...]
    result: tuple[str, ...]
    new: dict[str, int]
    order: tuple[str, ...]


def views_of(equation: str, shapes: Sequence[Sequence[int]], given: Mapping[str, int] | None = None) -> Reading:
    """How operands of these shapes are viewed; `given` are extents that the caller gives. Raises PlanError that marks
    the place.

    >>> views_of("iij->ijk", [(3, 3, 2)], {"k": 5})
    Reading(views=(View(labels=('i', 'j'), steps=((0, 1),)),), result=('i', 'j', 'k'), new={'k': 5}, order=('i', 'j'))
    """
    operands, result, extents = _C.parse_equation(equation, [list(shape) for shape in shapes], given or {})
    new = new_labels(operands, result, extents)
    order = tuple(dict.fromkeys(label for labels in operands for label in labels))
    views = tuple(_view(labels, list(shape), extents) for labels, shape in zip(operands, shapes, strict=True))
    return Reading(views, tuple(result), new, order)


def new_labels(operands: Sequence[Sequence[str]], result: Sequence[str], extents: Mapping[str, int]) -> dict[str, int]:
    """Extents of the labels that only the result has.

    >>> new_labels([["i"]], ["i", "j"], {"i": 2, "j": 3})
    {'j': 3}
    """
    known = {label for labels in operands for label in labels}
    return {label: extents[label] for label in result if label not in known}


def _view(labels: list[str], shape: list[int], extents: dict[str, int]) -> View:
    steps: list[tuple[int, int | None]] = []
    axis = 0
    while axis < len(labels):
        label = labels[axis]
        if shape[axis] == 1 and extents[label] != 1:
            steps.append((axis, None))
        elif label in labels[:axis]:
            steps.append((labels.index(label), axis))
        else:
            axis += 1
            continue
        del labels[axis], shape[axis]
    return View(tuple(labels), tuple(steps))


# --- operations -------------------------------------------------------------------------------------------------------


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
    """The operations that a call requests; their texts are read when they meet their operands. Raises PlanError for
    what is no text and no number of elements.

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


def position_inputs(graph: _C.EinsumPlan) -> dict[str, list[int]]:
    """Inputs that hold the positions that argmax and argmin take, with their extents; no caller passes them.

    >>> text = "einsum\\ninput x.positions: i64[4]\\noutput z = einsum[i->; id; max](x.positions)"
    >>> position_inputs(_C.EinsumPlan.parse(text))
    {'x.positions': [4]}
    """
    return {name: extents for name, (dtype, extents) in graph.inputs if dtype == "i64" and name.endswith(".positions")}


def positions(shape: Sequence[int], device: torch.device) -> torch.Tensor:
    """The numbers 0, 1, ... in this shape.

    >>> positions([2, 2], torch.device("cpu"))
    tensor([[0, 1],
            [2, 3]])
    """
    return torch.arange(math.prod(shape), device=device).reshape(tuple(shape))
