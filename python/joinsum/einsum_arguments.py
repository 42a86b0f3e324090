"""What joinsum.einsum is called with: both of torch.einsum's forms, operands that joinsum can read, and their views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from joinsum import _C
from joinsum.arguments import check_array, show
from joinsum.errors import PlanError

__all__ = [
    "View",
    "autocast_dtype",
    "check_operands",
    "check_same_device",
    "common_dtype",
    "read_arguments",
    "result_into",
    "views_of",
]

_CPU = torch.device("cpu")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def read_arguments(arguments: Sequence[object]) -> tuple[str, list[torch.Tensor]]:
    """The equation as text, and the operands, which nobody has checked yet."""
    if not arguments:
        raise PlanError("einsum: give an equation and operands, as in einsum('ij,jk->ik', x, y)")
    first, *rest = arguments
    if not isinstance(first, str):
        return _from_sublists(arguments)
    if len(rest) == 1 and isinstance(rest[0], (list, tuple)):
        rest = list(rest[0])
    if not rest:
        raise PlanError(f"einsum: at least one operand: equation={show(first)}")
    return first, rest  # type: ignore[return-value]


def _from_sublists(arguments: Sequence[object]) -> tuple[str, list[torch.Tensor]]:
    """torch.einsum's other form: operands and lists of labels in turn, the result's last."""
    pairs = len(arguments) // 2
    operands = list(arguments[0 : 2 * pairs : 2])
    text = ",".join(_sublist_text(labels) for labels in arguments[1 : 2 * pairs : 2])
    if len(arguments) % 2:
        text += "->" + _sublist_text(arguments[-1])
    return text, operands  # type: ignore[return-value]


def _sublist_text(labels: object) -> str:
    if not isinstance(labels, (list, tuple)):
        raise PlanError(f"einsum: operands and lists of labels are given in turn: got={show(labels)}")
    text = ""
    for label in labels:
        if label is Ellipsis:
            text += "..."
        elif isinstance(label, int) and not isinstance(label, bool) and 0 <= label < len(_LETTERS):
            text += _LETTERS[label]
        else:
            raise PlanError(f"einsum: a label of a list is 0 to {len(_LETTERS) - 1} or ...: label={show(label)}")
    return text


# --- operands ---------------------------------------------------------------------------------------------------------


def check_operands(who: str, operands: Sequence[object]) -> list[torch.Tensor]:
    """The operands as tensors that joinsum can read, on one device; raises for what is none, naming the operand."""
    devices = [x.device for x in operands if isinstance(x, torch.Tensor)]
    check_same_device(who, [f"operand {i}" for i in range(len(devices))], devices)
    return [_checked(f"{who}: operand {i}", x) for i, x in enumerate(operands)]


def check_same_device(who: str, names: Sequence[str], devices: Sequence[torch.device]) -> None:
    """Raises unless all devices are one."""
    if len(set(devices)) > 1:
        found = ", ".join(f"{name}={device}" for name, device in zip(names, devices, strict=True))
        raise PlanError(f"{who}: operands lie on different devices; move them to one with x.to(device): {found}")


def _checked(who: str, operand: object) -> torch.Tensor:
    tensor = operand
    if isinstance(operand, torch.Tensor):
        own_dispatch = type(operand).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
        if own_dispatch and not hasattr(operand, "device_mesh"):
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
) -> torch.dtype | None:
    """The dtype of torch.einsum's result on `device`, which integers of sums and, inside torch.autocast, operands of
    products are converted to; None where torch has none.

    >>> common_dtype("ij->i", [(2, 3)], [torch.int32])
    torch.int64
    """
    small = [
        torch.ones([min(extent, 2) for extent in shape], dtype=dtype, device=device)
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    try:
        return torch.einsum(equation, *small).dtype
    except RuntimeError:
        if len(set(dtypes)) > 1:
            found = ", ".join(f"operand {i}={dtype}" for i, dtype in enumerate(dtypes))
            raise PlanError(
                f"einsum: dtypes of the operands differ; convert one with x.to(dtype): {found}\n  {equation}"
            ) from None
        return None


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


def views_of(equation: str, shapes: Sequence[Sequence[int]]) -> tuple[tuple[View, ...], tuple[str, ...]]:
    """How operands of these shapes are viewed, and the labels of the result. Raises PlanError that marks the place.

    >>> views_of("iij->ij", [(3, 3, 2)])
    ((View(labels=('i', 'j'), steps=((0, 1),)),), ('i', 'j'))
    """
    operands, result, extents = _C.parse_equation(equation, [list(shape) for shape in shapes])
    views = tuple(_view(labels, list(shape), extents) for labels, shape in zip(operands, shapes, strict=True))
    return views, tuple(result)


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
    if result.untyped_storage().data_ptr() == out.untyped_storage().data_ptr():
        result = result.clone()
    return out.copy_(result)
