"""Key functions as data: a Python function of a key's components is called once, with recording objects.

What it returns is an integer (`rekey`) or boolean (`filter`) expression that plans can compare, print, hash and send;
the function itself is not stored. Expressions know

    + - * // %  divmod()          integers; // and % round towards minus infinity, as in Python
    == != < <= > >=               give a condition
    & | ~  and_() or_() not_()    of conditions
    lookup(table, index)          an entry of an integer table
    integer constants, True, False

Anything else (`and`, `if`, `/`, floats, `min`, `len`, ...) raises PlanError with the remedy.

>>> str(trace_key_map("rekey", lambda i, j: (j, i // 2), arity=2))
'(k1, k0 // 2)'
>>> str(trace_predicate("filter", lambda i, j: (i == j) & ~(i % 3 == 0), arity=2))
'k0 == k1 and not k0 % 3 == 0'
"""

from __future__ import annotations

import hashlib
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import torch

from joinsum import _C
from joinsum.base.arguments import integer, show
from joinsum.base.errors import PlanError

__all__ = ["KeyCondition", "KeyInteger", "and_", "lookup", "not_", "or_", "trace_key_map", "trace_predicate"]

_OPERATORS = "+ - * // % == != < <= > >= & | ~, joinsum.and_, or_, not_, lookup"
_USE = "use & | ~ or joinsum.and_, or_, not_ for and, or, not, if and chained comparisons"


class _Traced:
    """The base of integers and conditions: every operation that is not recorded raises."""

    __slots__ = ("core",)
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # numpy then leaves the operation to us

    def __init__(self, core: _C.KeyExpression) -> None:
        self.core = core

    def __repr__(self) -> str:
        return str(self.core)

    def __bool__(self) -> bool:
        raise PlanError(f"key expression: its truth depends on the key; {_USE}: expression={self}")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise PlanError(f"key expression: no attribute; it knows {_OPERATORS}: expression={self}, attribute={name}")

    def _no_number(self, *_: object) -> NoReturn:
        raise PlanError(f"key expression: its value depends on the key; it knows {_OPERATORS}: expression={self}")

    __int__ = __index__ = __float__ = __complex__ = __len__ = __iter__ = __abs__ = __round__ = _no_number
    __contains__ = __getitem__ = __trunc__ = __floor__ = __ceil__ = _no_number

    def _no_operator(self, *_: object) -> NoReturn:
        raise PlanError(f"key expression: no such operator (/ is //); it knows {_OPERATORS}: expression={self}")

    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _no_operator
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __xor__ = __rxor__ = _no_operator


def _binary(op: _C.KeyOperator, left: object, right: object) -> _C.KeyExpression:
    return _C.KeyExpression.binary(op, _integer_core(left), _integer_core(right))


def _arithmetic(op: _C.KeyOperator) -> tuple[Callable[[KeyInteger, object], KeyInteger], ...]:
    """The methods of an operator, and of the same with its operands swapped."""
    return lambda own, other: KeyInteger(_binary(op, own, other)), lambda own, other: KeyInteger(
        _binary(op, other, own)
    )


def _comparison(op: _C.KeyOperator) -> Callable[[KeyInteger, object], KeyCondition]:
    return lambda own, other: KeyCondition(_binary(op, own, other))


class KeyInteger(_Traced):
    """An integer function of a key, being recorded.

    >>> i = KeyInteger(_C.KeyExpression.component(0))
    >>> 2 * i + 1
    2 * k0 + 1
    """

    __slots__ = ()

    __add__, __radd__ = _arithmetic(_C.KeyOperator.add)
    __sub__, __rsub__ = _arithmetic(_C.KeyOperator.subtract)
    __mul__, __rmul__ = _arithmetic(_C.KeyOperator.multiply)
    __floordiv__, __rfloordiv__ = _arithmetic(_C.KeyOperator.divide)
    __mod__, __rmod__ = _arithmetic(_C.KeyOperator.modulo)
    __eq__ = _comparison(_C.KeyOperator.equal)  # type: ignore[assignment]
    __ne__ = _comparison(_C.KeyOperator.not_equal)  # type: ignore[assignment]
    __lt__ = _comparison(_C.KeyOperator.less)
    __le__ = _comparison(_C.KeyOperator.less_equal)
    __gt__ = _comparison(_C.KeyOperator.greater)
    __ge__ = _comparison(_C.KeyOperator.greater_equal)

    def __divmod__(self, other: object) -> tuple[KeyInteger, KeyInteger]:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> tuple[KeyInteger, KeyInteger]:
        return self.__rfloordiv__(other), self.__rmod__(other)

    def __neg__(self) -> KeyInteger:
        return KeyInteger(_C.KeyExpression.unary(_C.KeyOperator.negate, self.core))

    def __pos__(self) -> KeyInteger:
        return self

    def _no_condition(self, *_: object) -> NoReturn:
        raise PlanError(
            f"key expression: & | ~ take conditions; compare first, as in (i == 0) & (j > 1): expression={self}"
        )

    __and__ = __rand__ = __or__ = __ror__ = __invert__ = _no_condition


class KeyCondition(_Traced):
    """A boolean function of a key, being recorded.

    >>> i = KeyInteger(_C.KeyExpression.component(0))
    >>> (i > 2) | ~(i == 0)
    k0 > 2 or not k0 == 0
    """

    __slots__ = ()

    def __and__(self, other: object) -> KeyCondition:
        return and_(self, other)

    def __rand__(self, other: object) -> KeyCondition:
        return and_(other, self)

    def __or__(self, other: object) -> KeyCondition:
        return or_(self, other)

    def __ror__(self, other: object) -> KeyCondition:
        return or_(other, self)

    def __invert__(self) -> KeyCondition:
        return not_(self)

    def _no_integer(self, *_: object) -> NoReturn:
        raise PlanError(f"key expression: a condition is no integer; combine conditions with & | ~: expression={self}")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = _no_integer
    __mod__ = __rmod__ = __divmod__ = __rdivmod__ = __neg__ = __pos__ = _no_integer
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _no_integer


def and_(*conditions: object) -> KeyCondition:
    """Holds where all conditions hold; `a & b` for two.

    >>> str(trace_predicate("filter", lambda i, j: and_(i > 0, j > 0, i != j), arity=2))
    'k0 > 0 and k1 > 0 and k0 != k1'
    """
    return _reduced(_C.KeyOperator.and_, conditions, empty=True)


def or_(*conditions: object) -> KeyCondition:
    """Holds where one of the conditions holds; `a | b` for two.

    >>> str(trace_predicate("filter", lambda i: or_(i == 0, i == 3), arity=1))
    'k0 == 0 or k0 == 3'
    """
    return _reduced(_C.KeyOperator.or_, conditions, empty=False)


def not_(condition: object) -> KeyCondition:
    """Holds where `condition` does not; `~a`.

    >>> str(trace_predicate("filter", lambda i: not_(i == 0), arity=1))
    'not k0 == 0'
    """
    return KeyCondition(_C.KeyExpression.unary(_C.KeyOperator.not_, _condition_core("not_", condition)))


def lookup(table: torch.Tensor | Sequence[int], index: object, name: str | None = None) -> KeyInteger:
    """Entry `index` of an integer table, inside the function that is an argument of `rekey` or `filter`.

    table   a 1-D integer tensor, or a sequence of ints; copied
    index   an expression; an index outside of the table for some key is a PlanError when the operator is constructed
    name    replaces the entries in the plan's text and hash; by default a digest of the entries

    >>> str(trace_key_map("rekey", lambda i: lookup([2, 0, 1], i, name="turn"), arity=1))
    '(lookup(turn, k0))'
    """
    entries = table_entries(table)
    if name is None:
        digest = hashlib.sha256(" ".join(map(str, entries)).encode()).hexdigest()
        name = f"table_{digest[:12]}"
    if not isinstance(name, str):
        raise PlanError(f"lookup: a table's name is text: name={show(name)}")
    return KeyInteger(_C.KeyExpression.lookup(name, entries, _integer_core(index)))


def trace_key_map(
    who: str, function: Callable[..., object] | str, arity: int, tables: Mapping[str, list[int]] | None = None
) -> _C.KeyMap:
    """The key map that `function` computes; text such as `"(k1, k0)"` is parsed. `who` opens messages."""
    if isinstance(function, str):
        return _C.KeyMap.parse(function, dict(tables or {}))
    result = _called(who, function, arity)
    components = list(result) if isinstance(result, (tuple, list)) else [result]
    cores = []
    for component in components:
        if isinstance(component, KeyCondition) or not _is_integer(component):
            remedy = "return a tuple of integer expressions, one for each component of the new key"
            raise PlanError(f"{who}: a key's component is an integer; {remedy}: component={show(component)}")
        cores.append(_integer_core(component))
    return _C.KeyMap(cores)


def trace_predicate(
    who: str, function: Callable[..., object] | str, arity: int, tables: Mapping[str, list[int]] | None = None
) -> _C.KeyExpression:
    """The predicate that `function` computes; text such as `"k0 == k1"` is parsed. `who` opens messages."""
    if isinstance(function, str):
        return _C.KeyExpression.parse(function, dict(tables or {}))
    result = _called(who, function, arity)
    if not isinstance(result, (KeyCondition, bool)):
        raise PlanError(f"{who}: a predicate is a comparison; return one, as in i == j: returned={show(result)}")
    return _condition_core(who, result)


def _called(who: str, function: Callable[..., object], arity: int) -> object:
    """What `function` returns for recording components."""
    if not callable(function):
        raise PlanError(f"{who}: give a function of the key's components, or text: function={show(function)}")
    try:
        inspect.signature(function).bind(*range(arity))
    except TypeError as error:
        raise PlanError(
            f"{who}: the function takes one argument per key component: key arity={arity}, error={error}"
        ) from None
    except ValueError:  # a built-in function without a signature
        pass
    components = [KeyInteger(_C.KeyExpression.component(dim)) for dim in range(arity)]
    try:
        return function(*components)
    except TypeError as error:
        raise PlanError(
            f"{who}: the function cannot be recorded; key expressions know {_OPERATORS}: error={error}"
        ) from error


def _is_integer(value: object) -> bool:
    return isinstance(value, KeyInteger) or (
        hasattr(type(value), "__index__") and not isinstance(value, (bool, torch.Tensor, _Traced))
    )


def _integer_core(value: object) -> _C.KeyExpression:
    if isinstance(value, KeyInteger):
        return value.core
    if not _is_integer(value):
        raise PlanError(f"key expression: operands are integers; a float or boolean is none: operand={show(value)}")
    number = operator.index(value)  # type: ignore[arg-type]
    if not -(2**63) <= number < 2**63:
        raise PlanError(f"key expression: a constant exceeds 64 bits: constant={number}")
    return _C.KeyExpression.constant(number)


def _condition_core(who: str, value: object) -> _C.KeyExpression:
    if isinstance(value, KeyCondition):
        return value.core
    if not isinstance(value, bool):
        raise PlanError(f"{who}: operands are conditions, as in (i == 0) & (j > 1): operand={show(value)}")
    return _C.KeyExpression.truth(value)


def _reduced(op: _C.KeyOperator, conditions: tuple[object, ...], empty: bool) -> KeyCondition:
    cores = [_condition_core(op.name, condition) for condition in conditions]
    if not cores:
        return KeyCondition(_C.KeyExpression.truth(empty))
    reduced = cores[0]
    for core in cores[1:]:
        reduced = _C.KeyExpression.binary(op, reduced, core)
    return KeyCondition(reduced)


def table_entries(table: torch.Tensor | Sequence[int]) -> list[int]:
    if isinstance(table, torch.Tensor):
        if table.dim() != 1 or table.is_floating_point() or table.is_complex() or table.dtype == torch.bool:
            raise PlanError(f"lookup: a table is a 1-D integer tensor: shape={list(table.shape)}, dtype={table.dtype}")
        return [int(entry) for entry in table.tolist()]
    if isinstance(table, (str, bytes)) or not isinstance(table, Sequence):
        raise PlanError(f"lookup: a table is a 1-D integer tensor or a sequence of ints: table={show(table)}")
    if set(map(type, table)) <= {int}:
        return list(table)
    return [integer("lookup", "entry", entry) for entry in table]
