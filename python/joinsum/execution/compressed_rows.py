"""Einsums of matrices in compressed rows or columns by loops of their own (`csrc/kernels/sparse/compressed_rows.h`)."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch

from joinsum import _C
from joinsum.cluster.context import Context, context
from joinsum.sparse import SparseTensor
from joinsum.sparse.plan_cache import PLANS

__all__ = [
    "FLOATS",
    "LIKE_OPERANDS",
    "Call",
    "by_rows",
    "dense_product",
    "has_few_elements",
    "known_call",
    "remember",
    "remember_for_traits",
    "total",
]

# That a context remembers for operands of certain traits.
_MOST_CALLS = 1024

# Of results that are products of sparse matrices.
_MOST_COLUMNS = 1 << 26

# Density from which on a product of sparse matrices is dense.
_DENSE = 0.5

FLOATS = (torch.float32, torch.float64)

# As a result's format: compressed rows or columns, or a list, as the operands have them.
LIKE_OPERANDS = "like operands"

# Formats of a sparse vector, or of one made of it.
_VECTORS = (LIKE_OPERANDS, "coo", "sorted_list", "dense")

# Columns of a dense operand from which on a product with the transposed matrix is faster by the rows of that one, which
# are made once: by the matrix's own rows, those of the result are visited in any order.
_WIDE = 32

_LETTERS = "klmnopqrstuvwxyz"

# Values of which torch adds up so many in one order, whatever its threads.
_SUMMED = 4096

Operand = SparseTensor | torch.Tensor
# Computes the result of operands like those that it was made for; None for others.
Call = Callable[[Sequence[Operand]], torch.Tensor | SparseTensor | None]


@dataclass(frozen=True)
class _Case:
    """An einsum; `texts` are the operands' labels, in letters. The first sparse operand is a matrix A with rows i and
    columns j. Of a matrix in compressed columns A is the transposed one, so that its own text is ji."""

    texts: tuple[str, ...]
    result: str
    sparse: tuple[bool, ...]

    @property
    def place(self) -> int:
        """Of A among the operands."""
        return self.sparse.index(True)

    @property
    def others(self) -> tuple[str, ...]:
        """Labels of the other operands."""
        return self.texts[: self.place] + self.texts[self.place + 1 :]


def by_rows(
    labels: Sequence[Sequence[str]],
    result: Sequence[str],
    dtype: torch.dtype,
    operands: Sequence[Operand],
    out_format: object,
) -> Call | None:
    """How the sum of products is computed whose first sparse operand A is a matrix in compressed rows or columns. As a
    dense tensor: its product with one dense operand along one label, of any dtype but uint8; of floats also its sums,
    and sums of A B at the entries of a third matrix. In compressed rows, of floats: A with scaled rows or columns; A
    multiplied by X Yᵀ element by element; with other such matrices A B, and A B at the entries of a third one. In
    compressed columns A B, and as a list A's product with a sparse vector. None for anything else.

    out_format   "dense", levels, or LIKE_OPERANDS
    """
    if dtype in FLOATS and _are_vector_and_matrix(labels, operands):
        with_vector = _product_with_vector(labels, result, operands, out_format == "dense")
        return with_vector if out_format in _VECTORS else None
    case = _case(labels, result, dtype, operands)
    if case is None:
        return None
    if dtype not in FLOATS:
        return _dense(case) if out_format == "dense" and sum(case.sparse) == 1 and len(case.sparse) == 2 else None
    if out_format == "dense":
        return _dense(case)
    if len(operands) == 2 and all(case.sparse) and out_format in ("csr", "csc", LIKE_OPERANDS):
        return _product_of_two(case, out_format == "csc" or (out_format == LIKE_OPERANDS and _are_by_columns(operands)))
    return _in_rows(case) if out_format in ("csr", LIKE_OPERANDS) else None


def _are_by_columns(operands: Sequence[Operand]) -> bool:
    return all(isinstance(operand, SparseTensor) and operand.order == (1, 0) for operand in operands)


def _case(
    labels: Sequence[Sequence[str]], result: Sequence[str], dtype: torch.dtype, operands: Sequence[Operand]
) -> _Case | None:
    sparse = tuple(isinstance(operand, SparseTensor) for operand in operands)
    if not any(sparse) or len(operands) > 3:
        return None
    own, matrix = labels[sparse.index(True)], operands[sparse.index(True)]
    assert isinstance(matrix, SparseTensor)
    if len(own) != 2 or own[0] == own[1]:
        return None
    by_columns = matrix.order == (1, 0)
    if (matrix.columns if by_columns else matrix.rows) is None:
        return None
    if len({label for each in [*labels, result] for label in each}) > len(_LETTERS):
        return None
    for each, operand in zip(labels, operands, strict=True):
        plain = isinstance(operand, SparseTensor) or (operand.layout is torch.strided and operand.device.type == "cpu")
        if not plain or operand.dtype is not dtype or len(set(each)) < len(each):
            return None
    names = dict(zip(own[::-1] if by_columns else own, "ij", strict=True))
    texts = ["".join(names.setdefault(label, _LETTERS[len(names) - 2]) for label in each) for each in [*labels, result]]
    return _Case(tuple(texts[:-1]), texts[-1], sparse)


def _dense(case: _Case) -> Call | None:
    if case.sparse == (True, True, True):
        return _sums_at_entries(case)
    if sum(case.sparse) > 1 or len(case.texts) > 2:
        return None
    place, text = case.place, case.texts[case.place]
    product = dense_product(text, case.others[0] if case.others else None, case.result)
    if product is None:
        return None

    def call(given: Sequence[Operand]) -> torch.Tensor | None:
        matrix, x = given[place], given[1 - place] if len(given) == 2 else None
        assert isinstance(matrix, SparseTensor)
        return product(matrix, cast(torch.Tensor | None, x))

    return call


Product = Callable[[SparseTensor, torch.Tensor | None], torch.Tensor | None]


def dense_product(text: str, other: str | None, result: str) -> Product | None:
    """How a matrix is multiplied by a dense tensor along one of its labels, or summed where `other` is None; None of
    anything else. The product is None for tensors that the loops do not take.

    text   the matrix's labels: ij of compressed rows, ji of compressed columns
    """
    by_columns = text == "ji"

    def rows_of(matrix: SparseTensor) -> _C.CompressedRows | None:
        return matrix.columns if by_columns else matrix.rows

    if other is None:
        sums = {"i": _C.CompressedRows.sums, "j": _C.CompressedRows.column_sums}.get(result)
        if result == "":
            return lambda matrix, _: total(matrix.handle.values) if rows_of(matrix) is not None else None
        return None if sums is None else lambda matrix, _: _applied(sums, rows_of(matrix))
    along, left = ("j", "i") if "j" in other else ("i", "j")
    if along not in other or left in other or along in result:
        return None
    if len(result) != len(other) or set(result) != {left, *other} - {along}:
        return None
    place = result.index(left)
    order = [other.index(along), *(other.index(label) for label in result if label != left)]
    rank, by_right = len(order), along == "j"

    def times(matrix: SparseTensor, x: torch.Tensor) -> torch.Tensor | None:
        rows = matrix.columns if by_columns else matrix.rows
        if rows is None:
            return None
        if by_right:
            return rows.times(x)
        wide = x.dim() == 2 and x.shape[1] >= _WIDE and x.dtype in FLOATS
        turned = (matrix.rows if by_columns else matrix.columns) if wide else None
        return rows.transposed_times(x) if turned is None else turned.times(x)

    def plain_product(matrix: SparseTensor, x: torch.Tensor | None) -> torch.Tensor | None:
        return None if x is None or x.dim() != rank else times(matrix, x)

    if place == 0 and order == list(range(rank)) and rank <= 2:
        return plain_product

    def product(matrix: SparseTensor, x: torch.Tensor | None) -> torch.Tensor | None:
        if x is None or x.dim() != rank:
            return None
        extents = [x.shape[axis] for axis in order]
        found = times(matrix, x.permute(order).reshape(extents[0], math.prod(extents[1:])))
        return None if found is None else found.view(len(found), *extents[1:]).movedim(0, place).contiguous()

    return product


def _applied(sums: Callable[[_C.CompressedRows], torch.Tensor], rows: _C.CompressedRows | None) -> torch.Tensor | None:
    return None if rows is None else sums(rows)


def _in_rows(case: _Case) -> Call | None:
    if len(case.sparse) == 3 and all(case.sparse):
        return _product_at_entries(case)
    if sum(case.sparse) > 1 or case.result != "ij" or case.texts[case.place] != "ij":
        return None
    place = case.place
    if case.others in (("i",), ("j",)):
        by_row = case.others == ("i",)

        def scaled(given: Sequence[Operand]) -> SparseTensor | None:
            rows, factors = _rows(given[place]), _strided(given[1 - place])
            if rows is None:
                return None
            return _wrapped(rows.scaled_rows(factors) if by_row else rows.scaled_columns(factors))

        return scaled
    if len(case.others) != 2 or any(len(each) != 2 or "k" not in each for each in case.others):
        return None
    x, y = (0, 1) if "i" in case.others[0] else (1, 0)
    if "i" not in case.others[x] or "j" not in case.others[y]:
        return None
    turned = [each[0] == "k" for each in case.others]

    def sampled(given: Sequence[Operand]) -> SparseTensor | None:
        rows, others = _rows(given[place]), [*given[:place], *given[place + 1 :]]
        dense = [_strided(each).T if turn else _strided(each) for each, turn in zip(others, turned, strict=True)]
        return None if rows is None else _wrapped(rows.sampled(dense[x], dense[y]))

    return sampled


# --- products of sparse matrices --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Factor:
    """Which operand is a factor, and whether it is transposed."""

    place: int
    transposed: bool

    def rows(self, given: Sequence[Operand]) -> _C.CompressedRows | None:
        """The factor's rows; None of another tensor, and of one with so many columns that no sum for each fits in
        memory."""
        x = given[self.place]
        if not isinstance(x, SparseTensor) or x.shape[0 if self.transposed else 1] > _MOST_COLUMNS:
            return None
        return x.columns if self.transposed else x.rows


def _factors(texts: Sequence[str], places: Sequence[int], result: str) -> tuple[_Factor, _Factor] | None:
    """The left and the right one of two operands, matrices whose product has these labels."""
    for left, right in (places, places[::-1]):
        shared = set(texts[left]) & set(texts[right])
        if len(texts[left]) == len(texts[right]) == len(result) == 2 and len(shared) == 1:
            (along,) = shared
            if result[0] in set(texts[left]) - shared and result[1] in set(texts[right]) - shared:
                turned = texts[left] != result[0] + along, texts[right] != along + result[1]
                return _Factor(left, turned[0]), _Factor(right, turned[1])
    return None


def _factors_of_two(case: _Case, by_columns: bool) -> tuple[_Factor, _Factor] | None:
    """Those of the product, or of the transposed one."""
    return _factors(case.texts, (0, 1), case.result[::-1] if by_columns else case.result)


def _product_of_two(case: _Case, by_columns: bool) -> Call | None:
    factors = _factors_of_two(case, by_columns)
    if factors is None:
        return None

    def product(given: Sequence[Operand]) -> SparseTensor | None:
        left, right = (each.rows(given) for each in factors)
        if left is None or right is None:
            return None
        found = left.times_sparse(right)
        return _wrapped(found.transposed() if by_columns else found)

    return product


def _row_of(x: Operand) -> _C.CompressedRows | None:
    """A sparse vector as a matrix of one row; None of another tensor."""
    if not isinstance(x, SparseTensor) or x.levels != ("sorted_list",) or x.fill != 0:
        return None
    (_, offsets, coordinates, _), values = x.handle.levels[0], x.handle.values
    levels: list[_C.SparseLevelArrays] = [("dense", None, None, None), ("sorted_list", offsets, coordinates, None)]
    return _C.CompressedRows(_C.SparseTensor.from_levels([1, len(x)], [0, 1], levels, values, 0.0, None))


def _vector_of(row: _C.SparseTensor) -> SparseTensor:
    """The list of a matrix of one row."""
    _, offsets, coordinates, _ = row.levels[1]
    levels: list[_C.SparseLevelArrays] = [("sorted_list", offsets, coordinates, None)]
    return _wrapped(_C.SparseTensor.from_levels([row.shape[1]], [0], levels, row.values, 0.0, None))


def _are_vector_and_matrix(labels: Sequence[Sequence[str]], operands: Sequence[Operand]) -> bool:
    """Whether both are sparse."""
    return sorted(map(len, labels)) == [1, 2] and all(isinstance(x, SparseTensor) for x in operands)


def _vector_and_matrix(
    labels: Sequence[Sequence[str]], result: Sequence[str], operands: Sequence[Operand]
) -> tuple[int, _Factor] | None:
    """The place of a sparse vector, and the matrix whose rows it is multiplied by."""
    vector = 0 if len(labels[0]) == 1 else 1
    along, own = labels[vector][0], labels[1 - vector]
    if along not in own or set(own) - {along} != set(result) or len(result) != 1:
        return None
    same = operands[0].dtype is operands[1].dtype
    return (vector, _Factor(1 - vector, own[0] != along)) if same else None


def _product_with_vector(
    labels: Sequence[Sequence[str]], result: Sequence[str], operands: Sequence[Operand], dense: bool
) -> Call | None:
    found = _vector_and_matrix(labels, result, operands)
    if found is None:
        return None
    vector, matrix = found

    def product(given: Sequence[Operand]) -> SparseTensor | torch.Tensor | None:
        row, rows = _row_of(given[vector]), matrix.rows(given)
        if row is None or rows is None:
            return None
        made = _vector_of(row.times_sparse(rows))
        return made.to_dense() if dense else made

    return product


def has_few_elements(
    labels: Sequence[Sequence[str]], result: Sequence[str], dtype: torch.dtype, operands: Sequence[Operand]
) -> bool:
    """Whether the product of two sparse matrices, or of one with a sparse vector, is expected to be no dense tensor."""
    if dtype not in FLOATS or len(operands) != 2:
        return False
    left: _C.CompressedRows | None
    right: _C.CompressedRows | None
    if _are_vector_and_matrix(labels, operands):
        found = _vector_and_matrix(labels, result, operands)
        left, right = (None, None) if found is None else (_row_of(operands[found[0]]), found[1].rows(operands))
    else:
        case = _case(labels, result, dtype, operands)
        factors = None if case is None else _factors_of_two(case, _are_by_columns(operands))
        left, right = (None, None) if factors is None else (each.rows(operands) for each in factors)
    if left is None or right is None:
        return False
    extents = {
        label: extent
        for own, x in zip(labels, operands, strict=True)
        for label, extent in zip(own, x.shape, strict=True)
    }
    return left.expected_entries(right) <= _DENSE * math.prod(extents[label] for label in result)


def _at_entries(texts: Sequence[str], mask: int, wanted: str) -> tuple[_Factor, _Factor, _Factor] | None:
    """Factors and mask of a product at the entries of operand number `mask`, with these labels."""
    factors = _factors(texts, [place for place in range(3) if place != mask], wanted)
    if factors is None or sorted(texts[mask]) != sorted(wanted):
        return None
    return *factors, _Factor(mask, texts[mask] != wanted)


def _times_at(members: Sequence[_Factor], given: Sequence[Operand]) -> _C.SparseTensor | None:
    left, right, mask = (each.rows(given) for each in members)
    return None if left is None or right is None or mask is None else left.times_at(right, mask)


def _product_at_entries(case: _Case) -> Call | None:
    found = next((each for mask in range(3) if (each := _at_entries(case.texts, mask, case.result))), None)
    if found is None:
        return None

    def product(given: Sequence[Operand]) -> SparseTensor | None:
        result = _times_at(found, given)
        return None if result is None else _wrapped(result)

    return product


def _sums_at_entries(case: _Case) -> Call | None:
    """The sum of all elements, or of those in each row, of a product at the entries of a third matrix."""
    if len(case.result) > 1 or any(len(each) != 2 for each in case.texts):
        return None
    wanted = [
        (mask, labels)
        for mask, labels in itertools.product(range(3), map("".join, itertools.permutations("ijk", 2)))
        if labels[0] == case.result or not case.result
    ]
    possible = [each for mask, labels in wanted if (each := _at_entries(case.texts, mask, labels))]
    if not possible:
        return None
    members = min(possible, key=lambda each: sum(factor.transposed for factor in each))

    def sums(given: Sequence[Operand]) -> torch.Tensor | None:
        product = _times_at(members, given)
        if product is None:
            return None
        return total(product.values) if not case.result else _C.CompressedRows(product).sums()

    return sums


def _rows(x: Operand) -> _C.CompressedRows | None:
    assert isinstance(x, SparseTensor)
    return x.rows


def _strided(x: Operand) -> torch.Tensor:
    assert isinstance(x, torch.Tensor)
    return x.detach()


def _wrapped(handle: _C.SparseTensor) -> SparseTensor:
    return SparseTensor.of_handle(handle)


# --- calls that are made again ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Known:
    """A product of one matrix with one dense operand, or of it alone, in a context of one site."""

    current: weakref.ref[Context]
    call: Call


def remember(current: Context, texts: Sequence[object], operands: Sequence[Operand], call: Call) -> None:
    """Keeps the call, with its only sparse operand if the other is dense, else for operands of the same traits:
    `known_call` finds it. `texts` are the equation, join, aggregation and format of the result."""
    if not isinstance(texts[-1], str):
        return
    matrices = [operand for operand in operands if isinstance(operand, SparseTensor)]
    dense = texts[-1] in ("dense", "auto")
    if dense and len(matrices) == 1 and len(operands) <= 2 and not matrices[0].requires_grad:
        key = (*texts, *(type(operand) is SparseTensor for operand in operands))
        matrices[0].calls[key] = _Known(weakref.ref(current), call)
    else:
        remember_for_traits(current, texts, operands, call)


def remember_for_traits(current: Context, texts: Sequence[object], operands: Sequence[Operand], call: Call) -> None:
    """Keeps the call for operands of the same traits, without gradients: `known_call` finds it."""
    if len(current.calls) >= _MOST_CALLS:
        current.calls.clear()
    current.calls[_key(texts, operands)] = call


def _key(texts: Sequence[object], operands: Sequence[Operand]) -> tuple[object, ...]:
    return (*texts, *map(_traits, operands))


def _traits(operand: Operand) -> object:
    return operand.traits if isinstance(operand, SparseTensor) else (operand.shape, operand.dtype)


def _is_observed() -> bool:
    """Whether calls are seen by others than the operands: modes, transforms, autocast, recordings."""
    return (
        torch._C._is_torch_function_mode_enabled()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._are_functorch_transforms_active()
        or torch.is_autocast_enabled("cpu")
        or torch._C._get_tracing_state() is not None
    )


def known_call(
    arguments: Sequence[object], join: str, agg: str, out_format: object
) -> torch.Tensor | SparseTensor | None:
    """The result of a call that was made before with the same matrix, or with operands of the same traits, if nothing
    else has to be looked at."""
    # The call takes some microseconds, of which each generator would be a tenth.
    equation, *operands = arguments
    matrix, kinds = None, []
    for each in operands:
        kind = type(each)
        kinds.append(kind is SparseTensor)
        if kind is SparseTensor:
            matrix = each if matrix is None else matrix
        elif kind is not torch.Tensor:
            return None
    if matrix is None or _is_observed():
        return None
    if type(equation) is not str or type(join) is not str or type(agg) is not str or type(out_format) is not str:
        return None
    matrix, given, current = cast(SparseTensor, matrix), cast(list[Operand], operands), context()
    texts = (equation, join, agg, out_format)
    known = matrix.calls.get((*texts, *kinds))
    if known is not None and known.current() is current and not (matrix.requires_grad and torch.is_grad_enabled()):
        found: torch.Tensor | None = known.call(given)
        if found is not None:
            return found
    call = current.calls.get(_key(texts, given))
    if call is None or (torch.is_grad_enabled() and any(each.requires_grad for each in given)):
        return None
    if any(
        isinstance(each, torch.Tensor) and (each.layout is not torch.strided or each.device.type != "cpu")
        for each in given
    ):
        return None
    result: torch.Tensor | SparseTensor | None = call(given)
    if result is not None:
        PLANS.hit()
    return result


def total(values: torch.Tensor) -> torch.Tensor:
    """The sum of a vector, in an order that does not depend on the number of threads.

    >>> total(torch.ones(10_000))
    tensor(10000.)
    """
    rows, rest = divmod(len(values), _SUMMED)
    if rows == 0:
        return values.sum()
    sums = values[: rows * _SUMMED].view(rows, _SUMMED).sum(1)
    return total(torch.cat([sums, values[-rest:].sum().reshape(1)]) if rest else sums)
