"""Checks of arguments that several calls share. Every one raises PlanError `who: what is wrong: name=value`."""

from __future__ import annotations

import operator
from collections.abc import Iterable

import torch
from typing_extensions import TypeIs

from joinsum import _C
from joinsum.base.dtypes import dtype_name
from joinsum.base.errors import PlanError

__all__ = [
    "check_array",
    "check_has_elements",
    "check_outside_of_transforms",
    "integer",
    "integers",
    "is_number",
    "kernel_named",
    "shape_text",
    "show",
    "time_limit",
]

_LONGEST = 80


def show(value: object) -> str:
    """`value` on one short line, for messages."""
    if isinstance(value, torch.Tensor):
        return f"tensor of shape {shape_text(value)}"
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def shape_text(array: torch.Tensor) -> str:
    """Shape as messages print it.

    >>> shape_text(torch.ones(2, 3))
    '[2, 3]'
    """
    return str(list(array.shape))


def is_number(value: object) -> TypeIs[int | float]:
    """Whether `value` is an int or a float; a boolean is none.

    >>> is_number(0.5), is_number(True)
    (True, False)
    """
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def time_limit(who: str, seconds: object) -> float | None:
    """`seconds` as a float that is not negative; None means no limit."""
    if seconds is not None and not (is_number(seconds) and seconds >= 0):
        raise PlanError(f"{who}: a limit is a number of seconds: seconds={show(seconds)}")
    return None if seconds is None else float(seconds)


def integer(who: str, name: str, value: object) -> int:
    """`value` as an int; booleans and floats are none.

    >>> integer("tile", "axis", 1)
    1
    """
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise PlanError(f"{who}: {name} is an integer: {name}={show(value)}")
    return operator.index(value)  # type: ignore[arg-type]


def integers(who: str, name: str, value: object) -> list[int]:
    """`value` as a list of ints: an int means a list of one.

    >>> integers("aggregate", "keep", (0, 2)), integers("aggregate", "keep", 1)
    ([0, 2], [1])
    """
    if hasattr(type(value), "__index__") and not isinstance(value, (bool, torch.Tensor)):
        return [integer(who, name, value)]
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise PlanError(f"{who}: {name} is a list of integers: {name}={show(value)}")
    return [integer(who, name, entry) for entry in value]


def kernel_named(who: str, kernel: object) -> _C.Kernel:
    """The kernel that `kernel` names, as plans do: `"matmul"`, `"scale[0.5]"`."""
    if not isinstance(kernel, str):
        raise PlanError(f"{who}: a kernel is named by text such as 'matmul' or 'scale[0.5]': kernel={show(kernel)}")
    return _C.Kernel(kernel)


def check_has_elements(who: str, tensor: torch.Tensor) -> None:
    """Raises PlanError for tensors that are not their own elements: distributed, fake and other wrappers."""
    if hasattr(tensor, "full_tensor"):
        raise PlanError(
            f"{who}: a distributed tensor; give its full_tensor(), on all ranks: shape={shape_text(tensor)}"
        )
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise PlanError(
            f"{who}: a class of tensors that says itself what operations do (__torch_dispatch__); give the plain "
            f"tensor that it holds: type={type(tensor).__name__}"
        )


def check_outside_of_transforms(what: str, tensor: torch.Tensor) -> None:
    """Raises PlanError for a tensor that a transform of torch.func has wrapped; `what` is not taken there."""
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        raise PlanError(
            f"{what} are not taken in transforms of torch.func (grad, vmap, jvp); call backward(), or give a batch an "
            "axis of its own"
        )


def check_array(who: str, array: object) -> torch.Tensor:
    """`array` detached; raises where it is not a dense tensor of a supported dtype without a gradient."""
    if not isinstance(array, torch.Tensor):
        is_scipy = hasattr(array, "tocoo")
        remedy = "SparseTensor.from_scipy(x)" if is_scipy else "a torch.Tensor, as torch.as_tensor returns one"
        raise PlanError(f"{who}: not a tensor; give {remedy}: got={type(array).__name__}")
    if hasattr(array, "device_mesh"):
        raise PlanError(f"{who}: a DTensor; give its full_tensor(): shape={shape_text(array)}")
    if array.layout is not torch.strided or array.is_quantized:
        raise PlanError(f"{who}: not a dense tensor; give its to_dense(): layout={array.layout}")
    if array.device.type == "meta":
        raise PlanError(f"{who}: a tensor without data: device=meta, shape={shape_text(array)}")
    dtype_name(who, array.dtype)
    if array.requires_grad:
        raise PlanError(f"{who}: the algebra has no gradients; give x.detach(): requires_grad=True")
    return array.detach().resolve_conj().resolve_neg()
