"""Sums of products of several operands, pair by pair: matrices in compressed rows or columns by loops of their own,
dense tensors by torch.

One loop nest over all operands makes fewer passes, but its loops are general. Where pairs are expected to take less
time, the best order of them is searched. A pair's result is dense, and its zeros do not annihilate an infinity as what
is not stored does, so results that are not finite are left to the loop nest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch

from joinsum.execution.compressed_rows import Call, Operand, Product, dense_product
from joinsum.sparse import SparseTensor

__all__ = ["by_pairs"]

_FEWEST, _MOST = 2, 6  # operands
_MOST_LABELS = 16  # that dense_product has letters for
_MOST_ELEMENTS = 1 << 26  # of a result between

# Nanoseconds, on two cores of a Xeon and an EPYC, within a factor of two: an iteration of a general loop nest, a call
# of each kind, an entry of a matrix alone and with each column beside it, a multiplication of dense tensors.
_ITERATION = 3.0
_GENERAL_CALL, _MATRIX_CALL, _DENSE_CALL = 30_000.0, 5_000.0, 15_000.0
_ENTRY, _COLUMN_OF_ENTRY = 1.0, 0.35
_MULTIPLICATION = 0.2


@dataclass(frozen=True)
class _Item:
    """What is left to be multiplied: a matrix or a dense tensor.

    place     among the operands, and behind them the results between, in the order of the steps
    entries   of a matrix; 0 of a dense tensor
    turned    whether a matrix has compressed columns
    """

    labels: tuple[str, ...]
    place: int
    entries: int = 0
    turned: bool = False

    @property
    def is_matrix(self) -> bool:
        return self.entries > 0


@dataclass(frozen=True)
class _Step:
    """Two items, or one, become a dense tensor."""

    first: _Item
    second: _Item | None
    labels: tuple[str, ...]
    nanoseconds: float


Steps = tuple[_Step, ...]


def by_pairs(
    labels: Sequence[Sequence[str]],
    result: Sequence[str],
    extents: Mapping[str, int],
    dtype: torch.dtype,
    operands: Sequence[Operand],
    iterations: float,
) -> Call | None:
    """How the sum of products is computed pair by pair, as a dense tensor; None where that is not possible, or not
    expected to be faster than a loop nest of so many iterations. Of truth values it is whether any product is true."""
    if not _FEWEST <= len(operands) <= _MOST or dtype not in (torch.float32, torch.float64, torch.bool):
        return None
    known = {label for own in labels for label in own}
    if len(known) > _MOST_LABELS or not known.issuperset(result):
        return None
    items = []
    for place, (own, operand) in enumerate(zip(labels, operands, strict=True)):
        if operand.dtype is not dtype or len(set(own)) < len(own):
            return None
        item = _item_of(tuple(own), place, operand)
        if item is None:
            return None
        items.append(item)
    if not any(item.is_matrix for item in items):
        return None
    search = _Search(tuple(result), extents, adds_up=dtype is not torch.bool)
    steps = search.best(tuple(items), len(operands))
    if steps is None or _seconds(steps) > _GENERAL_CALL + _ITERATION * iterations:
        return None
    return _call(steps, tuple(result))


def _item_of(labels: tuple[str, ...], place: int, operand: Operand) -> _Item | None:
    if isinstance(operand, torch.Tensor):
        plain = operand.layout is torch.strided and operand.device.type == "cpu"
        return _Item(labels, place) if plain else None
    if len(labels) != 2:
        return None
    turned = operand.order == (1, 0)
    if (operand.columns if turned else operand.rows) is None:
        return None
    return _Item(labels, place, max(operand.nnz, 1), turned)


def _seconds(steps: Steps) -> float:
    return sum(step.nanoseconds for step in steps)


class _Search:
    """The fastest order of pairs: all are tried.

    adds_up   whether dense tensors and single matrices can be summed
    """

    def __init__(self, result: tuple[str, ...], extents: Mapping[str, int], adds_up: bool) -> None:
        self._result, self._extents, self._adds_up = result, extents, adds_up

    def best(self, items: tuple[_Item, ...], place: int) -> Steps | None:
        """The steps that are left; the next result has this place. None where a matrix would be left, or what is not
        supported."""
        for item in items:
            others = [each for each in items if each is not item]
            left = self._needed(item.labels, others)
            if len(left) < len(item.labels):
                if not self._adds_up:
                    return None
                return self._followed(self._summed(item, left), others, place)
        if len(items) == 1:
            return () if not items[0].is_matrix else None
        found: list[Steps] = []
        for one, other in itertools.combinations(items, 2):
            others = [each for each in items if each is not one and each is not other]
            step = self._multiplied(one, other, others)
            steps = None if step is None else self._followed(step, others, place)
            if steps is not None:
                found.append(steps)
        return min(found, key=_seconds, default=None)

    def _followed(self, step: _Step, others: Sequence[_Item], place: int) -> Steps | None:
        rest = self.best((*others, _Item(step.labels, place)), place + 1)
        return None if rest is None else (step, *rest)

    def _needed(self, labels: Sequence[str], others: Sequence[_Item]) -> tuple[str, ...]:
        """Those that the result or another item has."""
        known = {*self._result, *(label for each in others for label in each.labels)}
        return tuple(label for label in labels if label in known)

    def _summed(self, item: _Item, left: tuple[str, ...]) -> _Step:
        elements = self._elements(item.labels)
        time = _MATRIX_CALL + _ENTRY * item.entries if item.is_matrix else _DENSE_CALL + _MULTIPLICATION * elements
        return _Step(item, None, left, time)

    def _multiplied(self, one: _Item, other: _Item, others: Sequence[_Item]) -> _Step | None:
        if one.is_matrix and other.is_matrix:
            return None
        if other.is_matrix:
            one, other = other, one
        labels = tuple(dict.fromkeys((*one.labels, *other.labels)))
        left = self._needed(labels, others)
        if self._elements(left) > _MOST_ELEMENTS:
            return None
        if not one.is_matrix:
            if len(left) < len(labels) and not self._adds_up:
                return None
            return _Step(one, other, left, _DENSE_CALL + _MULTIPLICATION * self._elements(labels))
        shared = set(one.labels) & set(other.labels)
        if len(shared) != 1 or shared & set(left):
            return None
        columns = self._elements([label for label in other.labels if label not in shared])
        time = _MATRIX_CALL + one.entries * (_ENTRY + _COLUMN_OF_ENTRY * columns)
        return _Step(one, other, left, time)

    def _elements(self, labels: Sequence[str]) -> int:
        return math.prod(self._extents[label] for label in labels)


def _call(steps: Steps, result: tuple[str, ...]) -> Call:
    names = _names([label for step in steps for item in (step.first, step.second) if item for label in item.labels])
    products = [_product(step) for step in steps]
    equations = [_equation(step, names) for step in steps]
    last = steps[-1].labels
    order = [last.index(label) for label in result]

    def call(given: Sequence[Operand]) -> torch.Tensor | None:
        values: list[Operand] = list(given)
        with torch.autocast("cpu", enabled=False):
            for step, product, equation in zip(steps, products, equations, strict=True):
                first, second = values[step.first.place], None if step.second is None else values[step.second.place]
                if product is None:
                    dense = [each for each in (first, second) if each is not None]
                    found: torch.Tensor | None = torch.einsum(equation, *cast(list[torch.Tensor], dense))
                else:
                    found = product(cast(SparseTensor, first), cast(torch.Tensor | None, second))
                if found is None:
                    return None
                values.append(found)
        total = cast(torch.Tensor, values[-1])
        if total.is_floating_point() and not bool(total.sum().isfinite()):
            return None
        return total.permute(order).contiguous()

    return call


def _names(labels: Sequence[str]) -> dict[str, str]:
    """A letter for each label."""
    letters = map(chr, itertools.chain(range(ord("a"), ord("z") + 1), range(ord("A"), ord("Z") + 1)))
    return dict(zip(dict.fromkeys(labels), letters, strict=False))


def _equation(step: _Step, names: Mapping[str, str]) -> str:
    items = [item for item in (step.first, step.second) if item is not None]
    texts = ["".join(names[label] for label in item.labels) for item in items]
    return ",".join(texts) + "->" + "".join(names[label] for label in step.labels)


def _product(step: _Step) -> Product | None:
    """A step with a matrix; None of dense tensors."""
    matrix = step.first
    if not matrix.is_matrix:
        return None
    own = dict(zip(matrix.labels[::-1] if matrix.turned else matrix.labels, "ij", strict=True))
    others = () if step.second is None else step.second.labels
    letters = map(chr, range(ord("k"), ord("z") + 1))
    names = own | dict(zip((label for label in others if label not in own), letters, strict=False))
    texts = ["".join(names[label] for label in each) for each in (matrix.labels, others, step.labels)]
    product = dense_product(texts[0], texts[1] if step.second is not None else None, texts[2])
    assert product is not None
    return product
