"""The tensors of programs: entries, or their number and degrees, in the dtype of the program."""

from __future__ import annotations

import math
from typing import Any

import torch

from joinsum import _C
from joinsum.base.arguments import show
from joinsum.base.errors import PlanError
from joinsum.sparse.expressions import MOST_EXACT, is_whole, number_at
from joinsum.sparse.json_fields import extent_at, list_at, object_at
from joinsum.sparse.sparse_tensor import SparseTensor

__all__ = ["input_at"]


def _number_in(value: object, dtype: torch.dtype, place: str) -> float:
    """A number of programs of this dtype, "inf" or "-inf"; raises PlanError naming the place."""
    number = number_at(value, place)
    if not dtype.is_floating_point and not is_whole(number):
        raise PlanError(f"sparse program: no whole number up to 2^53: at={place}, value={show(value)}, dtype={dtype}")
    return number


def _value_at(value: object, dtype: torch.dtype, place: str) -> float | int:
    """The value of an entry."""
    if dtype.is_floating_point or isinstance(value, bool) or not isinstance(value, int):
        number = _number_in(value, dtype, place)
        if dtype.is_floating_point:
            return number
        if math.isinf(number):
            raise PlanError(f"sparse program: no value of the dtype: at={place}, value={show(value)}, dtype={dtype}")
        value = int(number)
    limits = torch.iinfo(dtype)
    if not limits.min <= value <= limits.max:
        raise PlanError(f"sparse program: no value of the dtype: at={place}, value={show(value)}, dtype={dtype}")
    return value


def _coordinates(
    entries: list[Any], rank: int, dtype: torch.dtype, place: str
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Coordinates along each axis, and values."""
    axes: list[list[int]] = [[] for _ in range(rank)]
    values = []
    for number, entry in enumerate(entries):
        row = list_at(entry, f"{place}[{number}]")
        if len(row) != rank + 1:
            raise PlanError(
                f"sparse program: an entry has a coordinate for each axis, and a value: at={place}[{number}], "
                f"entry={show(entry)}, axes={rank}"
            )
        for axis, coordinate in enumerate(row[:-1]):
            if isinstance(coordinate, bool) or not isinstance(coordinate, int) or abs(coordinate) >= 2**63:
                raise PlanError(
                    f"sparse program: no coordinate: at={place}[{number}][{axis}], value={show(coordinate)}"
                )
            axes[axis].append(coordinate)
        values.append(_value_at(row[-1], dtype, f"{place}[{number}][{rank}]"))
    return [torch.tensor(axis, dtype=torch.int64) for axis in axes], torch.tensor(values, dtype=dtype)


def _entries(shape: list[int], fill: float, coo: object, dtype: torch.dtype, place: str) -> _C.SparseTensor:
    coordinates, values = _coordinates(list_at(coo, place), len(shape), dtype, place)
    if not shape and len(values) > 1:
        raise PlanError(f"sparse program: a scalar has one entry at most: at={place}, entries={len(values)}")
    axes = list(range(len(shape)))
    formats = ["sorted_list"] * len(shape)
    try:
        return _C.SparseTensor.from_coordinates(shape, coordinates, values, axes, formats, fill, None, 2**40)
    except PlanError as error:
        raise PlanError(f"{error}: at={place}") from None


def _degrees(value: object, place: str) -> list[tuple[list[int], list[int], float]]:
    degrees = []
    for number, each in enumerate(list_at(value, place)):
        row = list_at(each, f"{place}[{number}]")
        if len(row) != 3:
            raise PlanError(
                f"sparse program: a degree is [axes, given axes, count]: at={place}[{number}], value={show(each)}"
            )
        axes, given = ([extent_at(axis, f"{place}[{number}]") for axis in list_at(part, place)] for part in row[:2])
        degrees.append((axes, given, number_at(row[2], f"{place}[{number}][2]")))
    return degrees


def _converted(tensor: SparseTensor, dtype: torch.dtype, place: str) -> SparseTensor:
    """The tensor in the dtype of its program; raises PlanError where that would change whole numbers, or round to
    them."""
    if tensor.dtype is dtype:
        return tensor
    values = tensor.values()
    exact = True
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        whole = values.to(torch.int64) if not values.is_floating_point() else values
        exact = bool(((whole >= limits.min) & (whole <= limits.max) & (whole == whole.trunc())).all())
    elif dtype is torch.float64 and tensor.dtype is torch.int64:
        exact = bool(((values >= -MOST_EXACT) & (values <= MOST_EXACT)).all())
    if not exact:
        raise PlanError(
            f"sparse program: {dtype} does not hold all values of a tensor; give the program their dtype, or convert "
            f"the tensor with to(dtype): at={place}, dtype={tensor.dtype}"
        )
    return tensor.to(dtype)


def input_at(value: object, dtype: torch.dtype, place: str) -> _C.SparseInput:
    """A tensor of a program of this dtype; raises PlanError naming the place."""
    if isinstance(value, SparseTensor):
        handle = _converted(value, dtype, place).handle
        return _C.SparseInput(handle.shape, handle.fill, handle, 0, [])
    if isinstance(value, torch.Tensor):
        raise PlanError(f"sparse program: a tensor of torch's; give SparseTensor.from_torch(x): at={place}")
    members = object_at(value, place, {"shape"}, {"fill", "coo", "nnz", "degrees"})
    shape = [
        extent_at(each, f"{place}.shape[{axis}]")
        for axis, each in enumerate(list_at(members["shape"], f"{place}.shape"))
    ]
    fill = _number_in(members.get("fill", 0), dtype, f"{place}.fill")
    degrees = _degrees(members.get("degrees", []), f"{place}.degrees")
    if "coo" in members:
        if "nnz" in members:
            raise PlanError(f"sparse program: entries and their number: at={place}; give coo or nnz")
        return _C.SparseInput(shape, fill, _entries(shape, fill, members["coo"], dtype, f"{place}.coo"), 0, degrees)
    if "nnz" not in members:
        raise PlanError(f"sparse program: neither entries nor their number: at={place}; give coo or nnz")
    return _C.SparseInput(shape, fill, None, number_at(members["nnz"], f"{place}.nnz"), degrees)
