"""Arrays as the core of sparse tensors takes them: flat, contiguous, on the CPU, of a supported dtype."""

from __future__ import annotations

import os
import warnings

import numpy
import torch

from joinsum.base.arguments import check_has_elements, check_outside_of_transforms, integers, is_number, show
from joinsum.base.errors import PlanError

__all__ = [
    "DTYPES",
    "MOST_BYTES",
    "array_of",
    "checked_dtype",
    "checked_fill",
    "checked_shape",
    "fold_name",
    "indices_of",
    "values_of",
]

DTYPES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.bool: "bool",
}

# A level that would hold more bytes than this machine has is refused before it is made.
MOST_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def checked_dtype(who: str, dtype: object) -> torch.dtype:
    """`dtype`; raises where sparse tensors have no such elements."""
    if not isinstance(dtype, torch.dtype) or dtype not in DTYPES:
        names = ", ".join(str(each) for each in DTYPES)
        raise PlanError(f"{who}: unsupported dtype: dtype={show(dtype)}, supported=[{names}]")
    return dtype


def checked_shape(who: str, shape: object) -> list[int]:
    """`shape` as a list of extents that are not negative."""
    extents = integers(who, "shape", shape)
    for axis, extent in enumerate(extents):
        if not 0 <= extent < 2**63:
            raise PlanError(f"{who}: an extent is none of 64 bits: axis={axis}, shape={extents}")
    return extents


def checked_fill(who: str, fill: object) -> float:
    """`fill` as the core has it; false is 0."""
    if isinstance(fill, (numpy.generic, numpy.ndarray, torch.Tensor)) and fill.ndim == 0:
        fill = fill.item()
    if not isinstance(fill, bool) and not is_number(fill):
        raise PlanError(f"{who}: the fill is a number or a boolean: fill={show(fill)}")
    exact = not isinstance(fill, int) or abs(fill) <= 2**53
    if not exact and (abs(fill) >= 2**63 or int(float(fill)) != fill):
        raise PlanError(
            f"{who}: a fill is kept as a float64, and is a whole number of 53 bits, or one of 63 that float64 has: "
            f"fill={show(fill)}"
        )
    return float(fill)


def fold_name(who: str, fold: object, dtype: torch.dtype) -> str | None:
    """The operator that folds repeated elements of a dtype: its own name, or that of an aggregation such as `"sum"`."""
    if fold is None:
        return None
    names = {"sum": "+", "prod": "*", "min": "min", "max": "max", "logsumexp": "logaddexp", "any": "or", "all": "and"}
    if not isinstance(fold, str) or fold not in {**names, **dict.fromkeys(names.values())}:
        raise PlanError(f"{who}: no such fold: fold={show(fold)}, names=[{', '.join(names)}]")
    operator = names.get(fold, fold)
    if operator == "logaddexp" and not dtype.is_floating_point:
        raise PlanError(f"{who}: this fold gives no whole numbers; give floats: fold={fold}, dtype={dtype}")
    return operator


def array_of(who: str, name: str, value: object) -> torch.Tensor:
    """`value` (a tensor, an array or nested lists) as a strided tensor on the CPU that needs no gradient."""
    if isinstance(value, numpy.ndarray):
        value = _of_numpy(who, name, value)
    elif not isinstance(value, torch.Tensor):
        try:
            value = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise PlanError(f"{who}: no array: {name}={show(value)} ({error})") from None
    check_has_elements(f"{who}: {name}", value)
    check_outside_of_transforms(f"{who}: {name}: sparse tensors", value)
    if value.device.type != "cpu":
        raise PlanError(f"{who}: sparse tensors are kept on the CPU; give {name}.cpu(): device={value.device}")
    if value.layout is not torch.strided:
        raise PlanError(f"{who}: no strided tensor: {name}.layout={value.layout}")
    if value.requires_grad:
        raise PlanError(f"{who}: sparse tensors have no gradients; give {name}.detach(): requires_grad=True")
    return value


def _of_numpy(who: str, name: str, array: numpy.ndarray) -> torch.Tensor:
    if array.dtype == numpy.uint64:
        if array.size and int(array.max()) >= 2**63:
            place = int(array.reshape(-1).argmax())
            raise PlanError(f"{who}: a number exceeds 63 bits: {name}, place={place}, value={array.max()}")
        array = array.astype(numpy.int64)
    elif array.dtype in (numpy.uint16, numpy.uint32):
        array = array.astype(numpy.int64)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if any(stride < 0 for stride in array.strides):
        array = array.copy()
    try:
        with warnings.catch_warnings():
            # Of memory that must not be written to; nothing here writes.
            warnings.simplefilter("ignore", UserWarning)
            return torch.from_numpy(array)
    except TypeError:
        raise PlanError(f"{who}: unsupported dtype: {name}.dtype={array.dtype}") from None


def indices_of(who: str, name: str, value: object) -> torch.Tensor:
    """Coordinates or offsets as int64, contiguous; shared where they are that already."""
    array = array_of(who, name, value)
    if array.numel() == 0 and not isinstance(value, (torch.Tensor, numpy.ndarray)):
        array = array.to(torch.int64)
    if array.dtype not in _INTEGERS:
        raise PlanError(f"{who}: indices are integers: {name}.dtype={array.dtype}")
    return _aligned(array.to(torch.int64).contiguous())


def values_of(who: str, name: str, value: object) -> torch.Tensor:
    """Values of a supported dtype, contiguous; shared where they are that already."""
    array = array_of(who, name, value)
    checked_dtype(who, array.dtype)
    return _aligned(array.resolve_neg().contiguous())


def _aligned(array: torch.Tensor) -> torch.Tensor:
    return array.clone() if array.numel() and array.data_ptr() % array.element_size() else array
