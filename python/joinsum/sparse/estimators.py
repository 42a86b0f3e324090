"""Estimators of entries that users write."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from joinsum import _C
from joinsum.base.arguments import is_number, show
from joinsum.base.errors import PlanError
from joinsum.sparse.expressions import name_at
from joinsum.sparse.sparse_tensor import SparseTensor

__all__ = ["Estimator", "estimator_names", "register_estimator"]


class Estimator(ABC):
    """Estimates how many elements of a value are stored, from statistics of its operands, which may be anything.

    Indices are numbers; `sizes[i]` is the extent of index i. Functions give new statistics and change none.

    Source: Galley, section 7.1.

    >>> class Dense(Estimator):
    ...     def of_tensor(self, shape, fill, nnz, degrees, entries):
    ...         return tuple(range(len(shape)))
    ...     def relabelled(self, statistics, numbers, sizes):
    ...         return tuple(numbers[index] for index in statistics)
    ...     def join(self, children, indices, sizes):
    ...         return indices
    ...     def unite(self, children, indices, sizes):
    ...         return indices
    ...     def aggregate(self, statistics, indices, sizes):
    ...         return indices
    ...     def estimate(self, statistics, sizes):
    ...         return math.prod(sizes[index] for index in statistics)
    >>> register_estimator("all elements", Dense())
    >>> from joinsum.sparse import Program, estimate
    >>> sums = ["agg", "+", ["j"], ["in", "A", ["i", "j"]]]
    >>> query = {"name": "q", "expr": sums, "output": ["i"]}
    >>> program = Program({"tensors": {"A": {"shape": [4, 5], "nnz": 2}}, "queries": [query]})
    >>> estimate(sums, program, "all elements")
    4.0
    """

    @abstractmethod
    def of_tensor(
        self,
        shape: Sequence[int],
        fill: float,
        nnz: float,
        degrees: Sequence[tuple[list[int], list[int], float]],
        entries: SparseTensor | None,
    ) -> Any:
        """Of a tensor whose axis a is index a: `nnz` elements; at most `count` distinct coordinates along `axes` for
        each one along `given`, for each (axes, given, count) of `degrees`; the tensor itself where it is known."""

    @abstractmethod
    def relabelled(self, statistics: Any, numbers: dict[int, int], sizes: Sequence[int]) -> Any:
        """The same elements with index `numbers[i]` for index i; of those with equal coordinates where numbers are."""

    @abstractmethod
    def join(self, children: Sequence[Any], indices: tuple[int, ...], sizes: Sequence[int]) -> Any:
        """Of a map that is at its fill wherever one of these children is; along indices that a child lacks its elements
        repeat."""

    @abstractmethod
    def unite(self, children: Sequence[Any], indices: tuple[int, ...], sizes: Sequence[int]) -> Any:
        """Of a map that is at its fill only where all children are."""

    @abstractmethod
    def aggregate(self, statistics: Any, indices: tuple[int, ...], sizes: Sequence[int]) -> Any:
        """Of the projection on these indices."""

    @abstractmethod
    def estimate(self, statistics: Any, sizes: Sequence[int]) -> float:
        """Elements, a number from 0 on."""

    def of_literal(self) -> Any:
        """Of a number, which stores nothing."""
        return self.of_tensor([], 0.0, 0, [], None)


class _Checked:
    """What C++ calls: tensors are wrapped, and estimates checked."""

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self.relabelled = estimator.relabelled
        self.join = estimator.join
        self.unite = estimator.unite
        self.aggregate = estimator.aggregate
        self.of_literal = estimator.of_literal

    def of_tensor(
        self,
        shape: list[int],
        fill: float,
        nnz: float,
        degrees: list[tuple[list[int], list[int], float]],
        entries: _C.SparseTensor | None,
    ) -> Any:
        known = None if entries is None else SparseTensor.of_handle(entries)
        return self._estimator.of_tensor(shape, fill, nnz, degrees, known)

    def estimate(self, statistics: Any, sizes: list[int]) -> float:
        found = self._estimator.estimate(statistics, sizes)
        if not is_number(found) or math.isnan(found) or found < 0:
            raise ValueError(f"an estimate is a number that is not negative: estimate={show(found)}")
        return float(found)


def register_estimator(name: str, estimator: Estimator) -> None:
    """Makes an estimator known under a name, which `Program.plan`, `estimate` and `joinsum sparse --estimator` take
    from then on in this process. Raises PlanError for a name that is taken.

    What it raises while a program is planned becomes a PlanError that names the function.
    """
    name_at(name, "register_estimator")
    if not isinstance(estimator, Estimator):
        raise PlanError(f"register_estimator: estimator is an Estimator: type={type(estimator).__name__}")
    _C.register_sparse_estimator(name, _Checked(estimator))


def estimator_names() -> list[str]:
    """The names that `estimator` may be.

    >>> estimator_names()[:3]
    ['uniform', 'chain', 'exact']
    """
    return _C.sparse_estimator_names()
