"""What joinsum.einsum is called with: both of torch.einsum's forms, operands that joinsum can read, and their views."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from joinsum import _C
from joinsum.arguments import check_array, show
from joinsum.compiled_graph import recording
from joinsum.errors import PlanError

__all__ = [
    "Reading",
    "View",
    "autocast_dtype",
    "check_operands",
    "check_same_device",
    "check_tensors",
    "common_dtype",
    "fixed_shape",
    "lettered",
    "new_labels",
    "one_memory",
    "read_arguments",
    "result_into",
    "views_of",
]

_CPU = torch.device("cpu")
_STAND_INS = (FakeTensor, FunctionalTensor)  # what operands are while torch records
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_WORD = re.compile(r"\{([A-Za-z0-9_][A-Za-z0-9_.]*)\}")  # a label in braces, as the core reads it
_LABEL = re.compile(r"\{[^{}]*\}|.", re.DOTALL)  # that, or a letter


def read_arguments(arguments: Sequence[object], who: str = "einsum", shapes: bool = False) -> tuple[str, list[Any]]:
    """The equation as text, and the operands, which nobody has checked yet: of either of torch.einsum's forms.

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


# --- operands ---------------------------------------------------------------------------------------------------------


def check_operands(who: str, operands: Sequence[object]) -> list[torch.Tensor]:
    """The operands as tensors that joinsum can read, on one device; raises for what is none, naming the operand."""
    return check_tensors(who, {f"operand {i}": x for i, x in enumerate(operands)})


def check_tensors(who: str, named: Mapping[str, object]) -> list[torch.Tensor]:
    """The same for what messages call by name."""
    devices = {name: x.device for name, x in named.items() if isinstance(x, torch.Tensor)}
    check_same_device(who, list(devices), list(devices.values()))
    return [_checked(f"{who}: {name}", x) for name, x in named.items()]


def fixed_shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """The shape as numbers: a recording of symbolic ones then holds for these alone.

    >>> fixed_shape(torch.ones(2, 3))
    (2, 3)
    """
    return tuple(int(extent) for extent in tensor.shape)


def check_same_device(who: str, names: Sequence[str], devices: Sequence[torch.device]) -> None:
    """Raises unless all devices are one."""
    if len(set(devices)) > 1:
        found = ", ".join(f"{name}={device}" for name, device in zip(names, devices, strict=True))
        raise PlanError(f"{who}: operands lie on different devices; move them to one with x.to(device): {found}")


def _checked(who: str, operand: object) -> torch.Tensor:
    tensor = operand
    if isinstance(operand, torch.Tensor):
        own_dispatch = type(operand).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
        of_torch = isinstance(operand, _STAND_INS) and recording()
        if own_dispatch and not of_torch and not hasattr(operand, "device_mesh"):
            raise PlanError(
                f"{who}: a class of tensors that says itself what operations do (__torch_dispatch__); give the plain "
                f"tensor that it holds: type={type(operand).__name__}"
            )
        if operand.requires_grad:
            tensor = operand.detach()
    check_array(who, tensor)
    assert isinstance(operand, torch.Tensor)
    return operand


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype that torch's autocast converts products to now; None where it is off."""
    kind = device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if on else None


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
    kept = (each for each in _LABEL.findall(result) if each.strip("{}") not in labels)
    return operands + arrow + "".join(kept)


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


# --- out= -------------------------------------------------------------------------------------------------------------


def result_into(out: object, result: torch.Tensor) -> torch.Tensor:
    """Writes `result` into the tensor `out`; raises before anything is written."""
    if not isinstance(out, torch.Tensor):
        raise PlanError(f"einsum: out is a tensor: out={show(out)}")
    for name in ("shape", "dtype", "device"):
        mine, wanted = getattr(out, name), getattr(result, name)
        if mine != wanted:
            shown = [list(x) if isinstance(x, torch.Size) else x for x in (mine, wanted)]
            raise PlanError(f"einsum: out has another {name} than the result: out={shown[0]}, result={shown[1]}")
    if torch.is_grad_enabled() and (out.requires_grad or result.requires_grad):
        raise PlanError("einsum: out= is not differentiated; leave it out, or call inside torch.no_grad()")
    # Whoever records a copy knows what shares memory.
    if not torch.compiler.is_dynamo_compiling() and one_memory(result, out):
        result = result.clone()
    return out.copy_(result)


def one_memory(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether both lie in one memory, on whatever parts of it.

    >>> x = torch.ones(2, 3)
    >>> one_memory(x[0], x[1]), one_memory(x, x.clone())
    (True, False)
    """
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
