"""Facts about operators: what they compute and repeat to, what annihilates them, what they distribute over."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def truth(array: Array) -> Array:
    return np.not_equal(array, 0).astype(float)


FOLDS: dict[str, Callable[[Array, Array], Array]] = {
    "*": np.multiply,
    "+": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": lambda left, right: truth(left) * truth(right),
    "or": lambda left, right: np.maximum(truth(left), truth(right)),
    "logaddexp": np.logaddexp,
}
PAIRS: dict[str, Callable[[Array, Array], Array]] = {
    "-": np.subtract,
    "eq": lambda left, right: np.equal(left, right).astype(float),
    "gt": lambda left, right: np.greater(left, right).astype(float),
    "pow": np.power,
}
SINGLES: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "neg": np.negative,
    "sq": np.square,
    "sqrt": np.sqrt,
    "sigmoid": lambda array: 1 / (1 + np.exp(-array)),
    "relu": lambda array: np.maximum(array, 0),
}
AGGREGATES = tuple(FOLDS)

# Pairs (map, aggregate) where the map distributes: notes 1.6. `*` over min and max would need factors known to be ≥ 0.
DISTRIBUTES = {
    ("*", "+"),
    ("+", "max"),
    ("+", "min"),
    ("min", "max"),
    ("max", "min"),
    ("and", "or"),
    ("or", "and"),
    ("+", "logaddexp"),
    ("logaddexp", "max"),
    ("logaddexp", "min"),
}


def apply_map(operator: str, arrays: Sequence[Array]) -> Array:
    """Applies a pointwise operator to arrays that broadcast against each other."""
    with np.errstate(all="ignore"):
        if operator in SINGLES:
            (array,) = arrays
            return SINGLES[operator](array)
        if operator in PAIRS:
            left, right = arrays
            return PAIRS[operator](left, right)
        if operator in ("and", "or"):
            arrays = [truth(array) for array in arrays]
        return reduce(FOLDS[operator], arrays)


def apply_aggregate(operator: str, array: Array, axes: tuple[int, ...]) -> Array:
    """Folds the axes, entries at the fill included."""
    with np.errstate(all="ignore"):
        folds: dict[str, Callable[..., Array]] = {
            "+": np.sum,
            "*": np.prod,
            "min": np.min,
            "max": np.max,
            "and": lambda array, axis: np.min(truth(array), axis=axis),
            "or": lambda array, axis: np.max(truth(array), axis=axis),
            "logaddexp": np.logaddexp.reduce,
        }
        return np.asarray(folds[operator](array, axis=axes))


def repeat(operator: str, value: Array, count: int) -> Array:
    """g(x, n): the operator applied to n copies of x."""
    with np.errstate(all="ignore"):
        if operator == "+":
            return np.multiply(value, count)
        if operator == "*":
            return np.power(value, count)
        if operator == "logaddexp":
            return np.add(value, np.log(count))
        return truth(value) if operator in ("and", "or") else np.asarray(value)


def annihilates(operator: str, fill: float) -> bool:
    """Says whether a child with this fill makes the map conjunctive: notes 3, "Exactly"."""
    return {
        "*": fill == 0,
        "+": math.isinf(fill),
        "min": fill == -math.inf,
        "max": fill == math.inf,
        "and": fill == 0,
        "or": fill == 1,
        "logaddexp": fill == math.inf,
    }.get(operator, False)
