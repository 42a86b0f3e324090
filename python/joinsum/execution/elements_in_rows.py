"""Einsums element by element, and largest and smallest elements, of matrices in compressed rows or columns, by loops of
their own (`csrc/kernels/sparse/compressed_rows.h`) or by torch on the values alone."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence

import torch

from joinsum import _C
from joinsum.execution.compressed_rows import FLOATS, Call, Operand, total
from joinsum.execution.sparse_operands import ReadEinsum
from joinsum.sparse import SparseTensor

__all__ = ["by_elements", "joins_elements"]

_OF_VALUES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mul": operator.mul,
    "add": operator.add,
    "sub": operator.sub,
    "max": torch.maximum,
    "min": torch.minimum,
}
# Maps of 0 to 0.
_MAPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "abs": torch.abs,
    "negate": torch.neg,
    "relu": torch.relu,
    "sqrt": torch.sqrt,
    "square": torch.square,
}


def joins_elements(read: ReadEinsum, operands: Sequence[Operand]) -> bool:
    """Whether `by_elements` may compute it."""
    operations = read.operations
    if read.dtype not in FLOATS or any(x.dtype is not read.dtype for x in operands):
        return False
    if len(operands) == 1:
        maps = operations.join in _MAPS and read.result == read.labels[0]
        return maps or (operations.agg in ("max", "min") and operations.join == "mul")
    if len(operands) != 2 or set(read.labels[0]) != set(read.labels[1]):
        return False
    return operations.join in _OF_VALUES and (operations.agg == "sum" or len(read.result) == len(read.labels[0]))


def by_elements(read: ReadEinsum, operands: Sequence[Operand], out_format: object, gives_dense: bool) -> Call | None:
    """How the einsum is computed of which `joins_elements` says so; None where it is not.

    gives_dense   whether the result is a dense tensor; otherwise its format is "csr", "csc" or "auto"
    """
    texts = [tuple(own) for own in read.labels]
    if len(operands) == 1 and read.operations.join in _MAPS:
        return None if gives_dense or len(set(texts[0])) < len(texts[0]) else _mapped(read.operations.join, out_format)
    if any(len(own) != 2 or own[0] == own[1] for own in texts):
        return None
    if len(operands) == 1:
        return _extremes(texts[0], tuple(read.result), read.operations.agg == "max") if gives_dense else None
    if gives_dense:
        return _sum_of_values(texts, read.operations.join) if not read.result else None
    if tuple(read.result) != texts[0] and not isinstance(operands[0], torch.Tensor):
        return None
    return _joined(texts, tuple(read.result), read.operations.join, operands, out_format)


def _mapped(join: str, out_format: object) -> Call | None:
    def call(given: Sequence[Operand]) -> SparseTensor | None:
        (x,) = given
        if not isinstance(x, SparseTensor) or x.fill != 0 or not _is_named(x, out_format):
            return None
        return _with_values(x, _MAPS[join](x.handle.values))

    return call


def _is_named(x: SparseTensor, out_format: object) -> bool:
    """Whether a tensor has the levels that are asked for."""
    if out_format == "auto":
        return True
    names = {("dense", "sorted_list"): ("csr", "csc")[x.order == (1, 0)], ("sorted_list",) * len(x.levels): "coo"}
    in_order = x.order == tuple(range(len(x.order))) or out_format == "csc"
    return in_order and names.get(x.levels) == out_format


def _extremes(text: tuple[str, ...], result: tuple[str, ...], largest: bool) -> Call | None:
    def call(given: Sequence[Operand]) -> torch.Tensor | None:
        (x,) = given
        if not isinstance(x, SparseTensor) or x.fill != 0 or 0 in x.shape:
            return None
        if not result:
            return _extreme_of_all(x, largest)
        rows = x.rows if result == text[:1] else x.columns
        # The other way would be made of a matrix for one call.
        if (x.order == (0, 1)) != (result == text[:1]) or rows is None:
            return None
        return rows.extremes(largest)

    return call if result in ((), text[:1], text[1:]) else None


def _extreme_of_all(x: SparseTensor, largest: bool) -> torch.Tensor | None:
    values = x.handle.values
    if "bytemap" in x.levels or not len(values):
        return None
    found = values.amax() if largest else values.amin()  # vectorised, as max() is not
    return found if len(values) == math.prod(x.shape) else (found.clamp(min=0) if largest else found.clamp(max=0))


def _shares_entries(x: Operand, y: Operand) -> bool:
    """Whether two tensors have the same arrays of indices, as a tensor and `with_values` of it."""
    if not isinstance(x, SparseTensor) or not isinstance(y, SparseTensor):
        return False
    if x.fill != 0 or y.fill != 0 or (x.levels, x.order, x.shape) != (y.levels, y.order, y.shape):
        return False
    return x.handle is y.handle or all(
        (mine is None and its is None) or (mine is not None and its is not None and mine.data_ptr() == its.data_ptr())
        for one, other in zip(x.handle.levels, y.handle.levels, strict=True)
        for mine, its in zip(one[1:], other[1:], strict=True)
    )


def _sum_of_values(texts: Sequence[tuple[str, ...]], join: str) -> Call | None:
    if join != "mul" or texts[0] != texts[1]:
        return None

    def call(given: Sequence[Operand]) -> torch.Tensor | None:
        x, y = given
        if not _shares_entries(x, y):
            return None
        assert isinstance(x, SparseTensor)
        assert isinstance(y, SparseTensor)
        return total(x.handle.values * y.handle.values)

    return call


def _joined(
    texts: Sequence[tuple[str, ...]],
    result: tuple[str, ...],
    join: str,
    operands: Sequence[Operand],
    out_format: object,
) -> Call | None:
    if isinstance(operands[0], torch.Tensor) or isinstance(operands[1], torch.Tensor):
        return _times_dense(texts, result, join, operands, out_format)
    if texts[0] != texts[1]:
        return None

    def call(given: Sequence[Operand]) -> SparseTensor | None:
        x, y = given
        assert isinstance(x, SparseTensor)
        assert isinstance(y, SparseTensor)
        by_columns = x.order == (1, 0)
        if x.order != y.order or out_format not in ("auto", "csc" if by_columns else "csr"):
            return None
        if _shares_entries(x, y) and x.levels == ("dense", "sorted_list"):
            return _with_values(x, _OF_VALUES[join](x.handle.values, y.handle.values))
        left, right = (x.columns, y.columns) if by_columns else (x.rows, y.rows)
        if left is None or right is None or join == "mul":
            return None
        return _of_rows(left.joined(right, join), by_columns)

    return call


def _with_values(x: SparseTensor, values: torch.Tensor) -> SparseTensor:
    """The same levels with other values, in the order of the entries."""
    return SparseTensor.of_handle(x.handle.with_values(values, 0.0))


def _of_rows(handle: _C.SparseTensor, by_columns: bool) -> SparseTensor:
    """A matrix in compressed rows; that of which it is the transposed one."""
    return SparseTensor.of_handle(handle.transposed() if by_columns else handle)


def _times_dense(
    texts: Sequence[tuple[str, ...]],
    result: tuple[str, ...],
    join: str,
    operands: Sequence[Operand],
    out_format: object,
) -> Call | None:
    place = 1 if isinstance(operands[0], torch.Tensor) else 0
    if join != "mul" or out_format not in ("auto", "csr") or texts[place] != result:
        return None
    turned = texts[1 - place] != result

    def call(given: Sequence[Operand]) -> SparseTensor | None:
        x, dense = given[place], given[1 - place]
        if not isinstance(x, SparseTensor) or not isinstance(dense, torch.Tensor) or x.order != (0, 1):
            return None
        if x.rows is None or dense.requires_grad or dense.device.type != "cpu" or dense.layout is not torch.strided:
            return None
        return SparseTensor.of_handle(x.rows.times_elements(dense.T if turned else dense))

    return call
