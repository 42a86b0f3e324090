"""Derivatives of the maps of sparse programs, as data: see `joinsum.sparse.expressions` for its form."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from joinsum.base.errors import PlanError
from joinsum.sparse.expressions import Data

__all__ = ["constant_of", "derivative", "leaves_of", "mapped", "weight"]

# A tensor, and the index of each of its axes.
Leaf = tuple[str, tuple[str, ...]]


def leaves_of(expr: Data) -> list[Leaf]:
    """What an expression without aggregates reads, each once.

    >>> leaves_of(["map", "*", [["in", "A", ["i"]], ["in", "B", []], ["in", "A", ["i"]]]])
    [('A', ('i',)), ('B', ())]
    """
    if expr[0] == "in":
        return [(expr[1], tuple(expr[2]))]
    found = [leaf for child in (expr[2] if expr[0] == "map" else []) for leaf in leaves_of(child)]
    return list(dict.fromkeys(found))


def mapped(op: str, *children: Data) -> Data:
    """The map of an associative operator; of one child this child.

    >>> mapped("*", ["lit", 2], ["in", "A", []])
    ['map', '*', [['lit', 2], ['in', 'A', []]]]
    """
    return children[0] if len(children) == 1 and op in ("+", "*") else ["map", op, list(children)]


# Stands for the logarithm of an empty sum, so that it can be subtracted: less than others, and finite in float32.
_LEAST = -3e38

# What a value of a child makes of the whole map.
_ANNIHILATORS = {
    "*": {0.0},
    "+": {math.inf, -math.inf},
    "min": {-math.inf},
    "max": {math.inf},
    "logaddexp": {math.inf},
    "and": {0.0},
}


def constant_of(expr: Data, leaf: Leaf, fill: float) -> float | None:
    """The value that an expression has wherever a leaf has this one, whatever the others are; NaN for one that is not
    known, None where it depends on the others.

    >>> constant_of(["map", "+", [["in", "A", ["i"]], ["in", "B", ["i"]]]], ("A", ("i",)), float("inf"))
    inf
    """
    if expr[0] == "in":
        return fill if (expr[1], tuple(expr[2])) == leaf else None
    if expr[0] == "lit":
        return float(expr[1])
    values = [constant_of(child, leaf, fill) for child in expr[2]]
    for value in values:
        if value in _ANNIHILATORS.get(expr[1], ()):
            return value
    return None if None in values else math.nan


def derivative(expr: Data, leaf: Leaf) -> Data | None:
    """The derivative of an expression without aggregates by a leaf, None where it is 0. Elements that tie for a
    maximum or minimum share it, as in torch; comparisons have none.

    >>> derivative(["map", "sq", [["in", "A", ["i"]]]], ("A", ("i",)))
    ['map', '*', [['lit', 2.0], ['in', 'A', ['i']]]]
    """
    if expr[0] == "in":
        return ["lit", 1.0] if (expr[1], tuple(expr[2])) == leaf else None
    if expr[0] == "lit":
        return None
    _, op, children = expr
    if op in ("eq", "gt", "and", "or"):
        return None
    inner = [derivative(child, leaf) for child in children]
    if op == "*":
        outer = [_product([*children[:i], *children[i + 1 :]]) for i in range(len(children))]
    elif op == "+":
        outer = [["lit", 1.0]] * len(children)
    elif op in ("min", "max"):
        outer = _shares(op, list(children))
    elif op == "logaddexp":
        outer = [weight(child, expr) for child in children]
    elif op in _PARTIAL:
        outer = [partial(*children) for partial in _PARTIAL[op]]
    else:
        raise PlanError(f"sparse program: no derivative of this operator: operator={op}")
    terms = [_product([a, b]) for a, b in zip(inner, outer, strict=True) if a is not None]
    return mapped("+", *terms) if terms else None


def weight(term: Data, total: Data) -> Data:
    """The part e^term / e^total that a term has of a sum of exponentials; 0 where that sum is 0."""
    return ["map", "exp", [_minus(term, ["map", "max", [total, ["lit", _LEAST]]])]]


def _product(factors: list[Data]) -> Data:
    others = [factor for factor in factors if factor != ["lit", 1.0]]
    return mapped("*", *others) if others else ["lit", 1.0]


def _shares(op: str, children: list[Data]) -> list[Data]:
    """Of an extreme, which is taken of the first two children, then of this and the third: 1, ½ of equal ones, or 0."""
    shares: list[Data] = [["lit", 1.0]]
    extreme = children[0]
    for child in children[1:]:
        shares = [_product([share, _share(op, extreme, child)]) for share in shares]
        shares.append(_share(op, child, extreme))
        extreme = ["map", op, [extreme, child]]
    return shares


def _share(op: str, a: Data, b: Data) -> Data:
    greater = _greater(a, b) if op == "max" else _greater(b, a)
    return ["map", "+", [greater, ["map", "*", [["lit", 0.5], _equal(a, b)]]]]


def _greater(a: Data, b: Data) -> Data:
    return ["map", "gt", [a, b]]


def _equal(a: Data, b: Data) -> Data:
    return ["map", "eq", [a, b]]


def _over(a: Data, b: Data) -> Data:
    return ["map", "/", [a, b]]


def _negative(a: Data) -> Data:
    return ["map", "*", [["lit", -1.0], a]]


def _minus(a: Data, b: Data) -> Data:
    return ["map", "-", [a, b]]


def _power_by_base(a: Data, b: Data) -> Data:
    """b a^(b - 1), and 0 where b is 0."""
    less = mapped("+", _minus(b, ["lit", 1.0]), _equal(b, ["lit", 0.0]))
    return ["map", "*", [b, ["map", "pow", [a, less]]]]


def _power_by_exponent(a: Data, b: Data) -> Data:
    """a^b log a, and 0 where a is 0."""
    positive = mapped("+", a, _equal(a, ["lit", 0.0]))
    return ["map", "*", [["map", "pow", [a, b]], ["map", "log", [positive]]]]


def _logistic(x: Data) -> Data:
    value = ["map", "sigmoid", [x]]
    return ["map", "*", [value, _minus(["lit", 1.0], value)]]


def _sign(x: Data) -> Data:
    return _minus(_greater(x, ["lit", 0.0]), _greater(["lit", 0.0], x))


# By each child.
_PARTIAL: Mapping[str, tuple[Callable[..., Data], ...]] = {
    "-": (lambda a, b: ["lit", 1.0], lambda a, b: ["lit", -1.0]),
    "/": (lambda a, b: _over(["lit", 1.0], b), lambda a, b: _negative(_over(_over(a, b), b))),
    "pow": (_power_by_base, _power_by_exponent),
    "exp": (lambda x: ["map", "exp", [x]],),
    "neg": (lambda x: ["lit", -1.0],),
    "sq": (lambda x: ["map", "*", [["lit", 2.0], x]],),
    "sqrt": (lambda x: _over(["lit", 0.5], ["map", "sqrt", [x]]),),
    "sigmoid": (_logistic,),
    "relu": (lambda x: _greater(x, ["lit", 0.0]),),
    "abs": (_sign,),
    "log": (lambda x: _over(["lit", 1.0], x),),
}
