"""Expressions of sparse programs as data: lists that can be written by hand, sent as JSON and compared.

["in", tensor, [index, ...]]         a tensor, or the result of an earlier query
["lit", value]                       a number; "inf" and "-inf" are infinities
["map", operator, [expr, ...]]       an operator of the values of expressions
["agg", operator, [index, ...], expr]  an expression reduced along indices
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from joinsum import _C
from joinsum.base.arguments import is_number, show
from joinsum.base.errors import PlanError

__all__ = [
    "MOST_EXACT",
    "MOST_LEVELS",
    "Data",
    "expression_of",
    "fraction_in",
    "indices_in",
    "is_whole",
    "name_at",
    "names_at",
    "number_at",
    "tensors_in",
    "written",
]

# A list as above.
Data = Sequence[Any]

# Whole numbers up to here have a float64 each.
MOST_EXACT = 2**53

# Lists of an expression may be nested this deep.
MOST_LEVELS = 200

_INFINITIES = {"inf": math.inf, "-inf": -math.inf}


def number_at(value: object, place: str) -> float:
    """A number, or "inf" or "-inf"; raises PlanError naming the place.

    >>> number_at("-inf", "$")
    -inf
    """
    if isinstance(value, str) and value in _INFINITIES:
        return _INFINITIES[value]
    if isinstance(value, bool):
        return float(value)
    if not is_number(value):
        raise PlanError(f'sparse program: no number, "inf" or "-inf": at={place}, value={show(value)}')
    try:
        number = float(value)
    except OverflowError:
        raise PlanError(f"sparse program: a number that no float64 holds: at={place}, value={show(value)}") from None
    if math.isnan(number):
        raise PlanError(f"sparse program: NaN is no value: at={place}")
    return number


def written(value: Any) -> Any:
    """Numbers, lists and dicts with infinities as JSON has them, and whole numbers as integers.

    >>> written({"fill": float("inf"), "coo": [[0, 2.0]]})
    {'fill': 'inf', 'coo': [[0, 2]]}
    """
    if isinstance(value, dict):
        return {name: written(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [written(each) for each in value]
    if isinstance(value, float):
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        if math.isnan(value):
            return "nan"
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value


def names_at(value: object, place: str) -> list[str]:
    """A list of names; raises PlanError naming the place."""
    if not isinstance(value, (list, tuple)):
        raise PlanError(f"sparse program: a list of names is needed: at={place}, value={show(value)}")
    return [name_at(name, f"{place}[{i}]") for i, name in enumerate(value)]


def name_at(value: object, place: str) -> str:
    """A name; raises PlanError naming the place."""
    if not isinstance(value, str) or not value:
        raise PlanError(f"sparse program: a name is needed: at={place}, value={show(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise PlanError(f"sparse program: a name that is no Unicode text: at={place}, value={value!a}") from None
    return value


def _form(data: object, place: str) -> tuple[str, Data]:
    """The first word of an expression, and the rest."""
    lengths = {"in": 3, "lit": 2, "map": 3, "agg": 4}
    if not isinstance(data, (list, tuple)) or not data or not isinstance(data[0], str) or data[0] not in lengths:
        raise PlanError(
            f'sparse program: an expression is a list that begins with "in", "lit", "map" or "agg": at={place}, '
            f"value={show(data)}"
        )
    if len(data) != lengths[data[0]]:
        raise PlanError(
            f"sparse program: {data[0]!r} has {lengths[data[0]] - 1} arguments: at={place}, arguments={len(data) - 1}"
        )
    return data[0], data[1:]


def _operator(name: object, place: str, aggregates: bool) -> str:
    if not isinstance(name, str) or name not in _C.sparse_operators():
        known = " ".join(_C.sparse_operators(only_aggregates=aggregates))
        raise PlanError(f"sparse program: no such operator; there are {known}: at={place}, operator={show(name)}")
    return name


def expression_of(data: object, place: str = "$", level: int = 1) -> _C.SparseExpression:
    """The expression that `data` writes; raises PlanError with the place of what is wrong.

    >>> expression_of(["map", "sq", [["in", "X", ["i", "j"]]]]).text()
    'sq(X[i,j])'
    """
    if level > MOST_LEVELS:
        raise PlanError(f"sparse program: the expression is too deep: most levels={MOST_LEVELS}, at={place[:60]}...")
    form, rest = _form(data, place)
    if form == "lit":
        return _C.sparse_literal(number_at(rest[0], f"{place}[1]"))
    if form == "in":
        return _C.sparse_input(name_at(rest[0], f"{place}[1]"), names_at(rest[1], f"{place}[2]"))
    operator = _operator(rest[0], f"{place}[1]", form == "agg")
    try:
        if form == "agg":
            inner = expression_of(rest[2], f"{place}[3]", level + 1)
            return _C.sparse_aggregate(operator, names_at(rest[1], f"{place}[2]"), inner)
        if not isinstance(rest[1], (list, tuple)):
            raise PlanError(f"sparse program: a list of expressions is needed: at={place}[2], value={show(rest[1])}")
        return _C.sparse_map(
            operator, [expression_of(each, f"{place}[2][{i}]", level + 1) for i, each in enumerate(rest[1])]
        )
    except PlanError as error:
        if "at=" in str(error):
            raise
        raise PlanError(f"{error}: at={place}") from None


# Operators whose results are no whole numbers.
_OF_FLOATS = {"/", "pow", "exp", "sqrt", "sigmoid", "log", "logaddexp"}


def is_whole(number: float) -> bool:
    """Whether it is an infinity, or a whole number of which float64 has all up to it."""
    return math.isinf(number) or (number.is_integer() and abs(number) <= MOST_EXACT)


def fraction_in(data: Data, place: str = "$") -> tuple[str, str] | None:
    """Where an expression over whole numbers leaves them: the place, and what stands there; None where nowhere.

    >>> fraction_in(["map", "*", [["in", "X", ["i"]], ["lit", 0.5]]])
    ('$[2][1][1]', 'number=0.5')
    """
    if data[0] == "lit":
        return None if is_whole(number_at(data[1], place)) else (f"{place}[1]", f"number={data[1]}")
    if data[0] == "in":
        return None
    if data[1] in _OF_FLOATS:
        return f"{place}[1]", f"operator={data[1]}"
    if data[0] == "agg":
        return fraction_in(data[3], f"{place}[3]")
    found = (fraction_in(each, f"{place}[2][{number}]") for number, each in enumerate(data[2]))
    return next((each for each in found if each is not None), None)


def indices_in(data: object) -> set[str]:
    """Names of the indices of an expression.

    >>> sorted(indices_in(["agg", "+", ["j"], ["in", "A", ["i", "j"]]]))
    ['i', 'j']
    """
    if not isinstance(data, (list, tuple)):
        return set()
    own = data[2] if len(data) > 2 and data[0] in ("in", "agg") else ()
    return set(own).union(*(indices_in(each) for each in data))


def tensors_in(data: object) -> set[str]:
    """Names of the tensors that an expression reads.

    >>> sorted(tensors_in(["map", "+", [["in", "A", []], ["in", "B", []]]]))
    ['A', 'B']
    """
    if not isinstance(data, (list, tuple)):
        return set()
    if len(data) == 3 and data[0] == "in" and isinstance(data[1], str):
        return {data[1]}
    return set().union(*(tensors_in(each) for each in data))
