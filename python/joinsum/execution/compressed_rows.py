"""Einsums of matrices in compressed rows by loops of their own (`csrc/kernels/sparse/compressed_rows.h`)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch

from joinsum import _C
from joinsum.cluster.context import Context, context
from joinsum.sparse import SparseTensor
from joinsum.sparse.plan_cache import PLANS

__all__ = ["Call", "by_rows", "known_call", "remember", "remember_for_traits"]

# That a context remembers for operands of certain traits.
_MOST_CALLS = 1024

# Of results that are products of sparse matrices.
_MOST_COLUMNS = 1 << 26

Operand = SparseTensor | torch.Tensor
# Computes the result of operands like those that it was made for; None for others.
Call = Callable[[Sequence[Operand]], torch.Tensor | SparseTensor | None]


@dataclass(frozen=True)
class _Case:
    """An einsum in which operand 0 is a matrix with the labels i, j; the others' labels in those letters."""

    others: tuple[str, ...]
    result: str
    sparse: tuple[bool, ...]  # of the others


def by_rows(
    labels: Sequence[Sequence[str]],
    result: Sequence[str],
    dtype: torch.dtype,
    operands: Sequence[Operand],
    out_format: object,
) -> Call | None:
    """How the sum of products is computed whose first sparse operand A is a matrix in compressed rows: with dense
    operands A X, A x, Aᵀ X, Aᵀ x and the sums of A's rows, as dense tensors; in compressed rows A with scaled rows or
    columns, A multiplied by X Yᵀ element by element; with other matrices in compressed rows A B, and A B at the entries
    of a third one. None for anything else."""
    position = next((i for i, operand in enumerate(operands) if isinstance(operand, SparseTensor)), -1)
    own = labels[position]
    if position < 0 or len(own) != 2 or own[0] == own[1] or len(operands) > 3:
        return None
    names = {own[0]: "i", own[1]: "j"}
    texts = ["".join(names.setdefault(label, "klmn"[len(names) - 2]) for label in each) for each in [*labels, result]]
    others = [i for i in range(len(operands)) if i != position]
    if any(operand.dtype is not dtype for operand in operands):
        return None
    for i in others:
        operand = operands[i]
        plain = isinstance(operand, SparseTensor) or (operand.layout is torch.strided and operand.device.type == "cpu")
        if not plain or len(set(texts[i])) < len(texts[i]):
            return None
    sparse = tuple(isinstance(operands[i], SparseTensor) for i in others)
    case = _Case(tuple(texts[i] for i in others), texts[-1], sparse)
    make = _dense if out_format == "dense" else _in_rows if out_format == "csr" else None
    found = None if make is None else make(case)
    if found is None:
        return None

    def call(given: Sequence[Operand]) -> torch.Tensor | SparseTensor | None:
        matrix = given[position]
        assert isinstance(matrix, SparseTensor)
        rows = matrix.rows
        return None if rows is None else found(rows, [given[i] for i in others])

    return call


Computed = Callable[[_C.CompressedRows, list[Operand]], torch.Tensor | SparseTensor | None]


def _dense(case: _Case) -> Computed | None:
    if not case.others:
        return (lambda rows, _: rows.sums()) if case.result == "i" else None
    if any(case.sparse) or len(case.others) != 1:
        return None
    axes = len(case.others[0])
    if (case.others[0], case.result) in (("i", "j"), ("ik", "jk")):
        return lambda rows, others: rows.transposed_times(others[0]) if len(others[0].shape) == axes else None
    if (case.others[0], case.result) not in (("j", "i"), ("jk", "ik")):
        return None
    return lambda rows, others: rows.times(others[0]) if len(others[0].shape) == axes else None


def _in_rows(case: _Case) -> Computed | None:
    if case.sparse == (True,) and (case.others, case.result) == (("jk",), "ik"):
        return lambda rows, others: _of_two(rows, *others)
    if case.sparse == (True, True) and case.others in (("jk", "ik"), ("ik", "jk")) and case.result == "ik":
        first = case.others[0] == "jk"
        return lambda rows, others: _of_three(rows, *(others if first else others[::-1]))
    if any(case.sparse) or case.result != "ij":
        return None
    if case.others == ("i",):
        return lambda rows, others: _wrapped(rows.scaled_rows(_strided(others[0])))
    if case.others == ("j",):
        return lambda rows, others: _wrapped(rows.scaled_columns(_strided(others[0])))
    if len(case.others) != 2 or any(len(each) != 2 or "k" not in each for each in case.others):
        return None
    x, y = (0, 1) if "i" in case.others[0] else (1, 0)
    if "i" not in case.others[x] or "j" not in case.others[y]:
        return None
    turned = [each[0] == "k" for each in case.others]

    def sampled(rows: _C.CompressedRows, others: list[Operand]) -> SparseTensor:
        dense = [_strided(each).T if turn else _strided(each) for each, turn in zip(others, turned, strict=True)]
        return _wrapped(rows.sampled(dense[x], dense[y]))

    return sampled


def _of_two(rows: _C.CompressedRows, other: Operand) -> SparseTensor | None:
    second = _with_few_columns(other)
    return None if second is None else _wrapped(rows.times_sparse(second))


def _of_three(rows: _C.CompressedRows, other: Operand, mask: Operand) -> SparseTensor | None:
    second, third = (_with_few_columns(x) for x in (other, mask))
    return None if second is None or third is None else _wrapped(rows.times_at(second, third))


def _with_few_columns(x: Operand) -> _C.CompressedRows | None:
    """The rows of a factor, if a sum for each of its columns fits in memory."""
    return x.rows if isinstance(x, SparseTensor) and x.shape[1] <= _MOST_COLUMNS else None


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
    """Keeps the call with its only sparse operand, if the other is dense: `known_call` finds it. `texts` are the
    equation, join, aggregation and format of the result."""
    matrices = [operand for operand in operands if isinstance(operand, SparseTensor)]
    dense = texts[-1] in ("dense", "auto")
    if dense and len(matrices) == 1 and len(operands) <= 2 and not matrices[0].requires_grad:
        key = (*texts, *(type(operand) is SparseTensor for operand in operands))
        matrices[0].calls[key] = _Known(weakref.ref(current), call)


def remember_for_traits(current: Context, texts: Sequence[object], operands: Sequence[Operand], call: Call) -> None:
    """Keeps the call for operands of the same traits: `known_call` finds it."""
    if len(current.calls) >= _MOST_CALLS:
        current.calls.clear()
    current.calls[_key(texts, operands)] = call


def _key(texts: Sequence[object], operands: Sequence[Operand]) -> tuple[object, ...]:
    return (*texts, *map(_traits, operands))


def _traits(operand: Operand) -> object:
    return operand.traits if isinstance(operand, SparseTensor) else (operand.shape, operand.dtype)


def known_call(
    arguments: Sequence[object], join: str, agg: str, out_format: object
) -> torch.Tensor | SparseTensor | None:
    """The result of a call that was made before with the same matrix, or with operands of the same traits, if nothing
    else has to be looked at."""
    equation, *operands = arguments
    matrix = next((each for each in operands if type(each) is SparseTensor), None)
    if matrix is None or not all(type(each) is str for each in (equation, join, agg, out_format)):
        return None
    plain = all(type(each) in (SparseTensor, torch.Tensor) for each in operands)
    modes = torch._C._is_torch_function_mode_enabled() or torch._C._len_torch_dispatch_stack() > 0
    modes = modes or torch._C._are_functorch_transforms_active()
    if not plain or modes or torch.is_autocast_enabled("cpu"):
        return None
    given, current = cast(list[Operand], operands), context()
    texts = (equation, join, agg, out_format)
    known = matrix.calls.get((*texts, *(type(each) is SparseTensor for each in given)))
    if known is not None and known.current() is current:
        found: torch.Tensor | None = known.call(given)
        if found is not None:
            return found
    call = current.calls.get(_key(texts, given))
    if call is None:
        return None
    result: torch.Tensor | SparseTensor | None = call(given)
    if result is not None:
        PLANS.hit()
    return result
