"""Comparisons of objects by identity, in bulk."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_

__all__ = ["identical"]


def identical(first: Sequence[object], second: Sequence[object]) -> bool:
    """Whether both hold the same objects in the same order; compares no values, as tensors have no plain equality.

    >>> x, y = [], []
    >>> identical([x, y], (x, y)), identical([x], [y]), identical([x], [x, y])
    (True, False, False)
    """
    return len(first) == len(second) and all(map(is_, first, second))
