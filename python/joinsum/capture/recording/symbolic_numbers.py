"""Numbers that depend on the sizes of a call, while a program is recorded: how they are computed, and guards.

A program is recorded with the sizes of one call. Each number in it that depends on them remembers how it was computed,
and each comparison of such numbers becomes a guard, as in torch's symbolic shapes: for other sizes the program is the
same but for these numbers, where all guards hold.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from joinsum.base.disjoint_sets import DisjointSets

__all__ = [
    "INTEGERS",
    "NUMBERS",
    "Place",
    "SymbolicNumber",
    "SymbolicNumbers",
    "is_symbolic",
    "plain",
    "shape_of",
    "with_shape",
]

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name)
    for name in ("add", "sub", "mul", "floordiv", "mod", "truediv", "pow", "eq", "lt", "le")
}
# Operations with these second operands give their first operand.
_NEUTRAL = {("add", 0), ("sub", 0), ("mul", 1), ("floordiv", 1), ("pow", 1)}

_SHAPE = "_joinsum_shape"  # the attribute of a tensor that has its shape in symbolic numbers


class Place(NamedTuple):
    """A symbolic number, by its place among those of its recording."""

    number: int


class SymbolicNumber:
    """A number that depends on sizes. Where Python or C++ needs the number itself, a guard says that it has this value.

    value   the number, for the sizes of the recording
    """

    __slots__ = ("numbers", "place", "value")

    def __init__(self, numbers: SymbolicNumbers, place: Place, value: int | float) -> None:
        self.numbers, self.place, self.value = numbers, place, value

    def __add__(self, other: Any) -> Any:
        return self.numbers.computed("add", self, other)

    def __sub__(self, other: Any) -> Any:
        return self.numbers.computed("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.numbers.computed("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return self.numbers.computed("mul", self, other)

    def __floordiv__(self, other: Any) -> Any:
        return self.numbers.computed("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self.numbers.computed("floordiv", other, self)

    def __mod__(self, other: Any) -> Any:
        return self.numbers.computed("mod", self, other)

    def __rmod__(self, other: Any) -> Any:
        return self.numbers.computed("mod", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self.numbers.computed("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self.numbers.computed("truediv", other, self)

    def __pow__(self, other: Any) -> Any:
        return self.numbers.computed("pow", self, other)

    def __rpow__(self, other: Any) -> Any:
        return self.numbers.computed("pow", other, self)

    def __neg__(self) -> Any:
        return self.numbers.computed("mul", self, -1)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NUMBERS):
            return NotImplemented
        return self.numbers.compared("eq", self, other)

    def __lt__(self, other: Any) -> bool:
        return self.numbers.compared("lt", self, other)

    def __le__(self, other: Any) -> bool:
        return self.numbers.compared("le", self, other)

    def __gt__(self, other: Any) -> bool:
        return self.numbers.compared("lt", other, self)

    def __ge__(self, other: Any) -> bool:
        return self.numbers.compared("le", other, self)

    def __bool__(self) -> bool:
        return self != 0

    def _fixed(self) -> Any:
        """The value, which a guard requires."""
        self.numbers.compared("eq", self, self.value)
        return self.value

    def __index__(self) -> int:
        return operator.index(self._fixed())

    def __int__(self) -> int:
        return int(self._fixed())

    def __float__(self) -> float:
        return float(self._fixed())

    def __hash__(self) -> int:
        return hash(self._fixed())

    def __str__(self) -> str:
        return str(self._fixed())

    def __repr__(self) -> str:
        return repr(self.value)  # FX writes code from it, which does not run


INTEGERS: tuple[Any, ...] = (int, SymbolicNumber)
NUMBERS: tuple[Any, ...] = (int, float, SymbolicNumber)


class SymbolicNumbers:
    """The numbers of one recording that depend on sizes.

    sizes   of the call that is recorded, by the names of symbols

    >>> numbers = SymbolicNumbers({"s": 6})
    >>> half = numbers.symbol("s") // 2
    >>> half > 2, half.value, numbers.at({"s": 9}), numbers.at({"s": 4})
    (True, 3, [9, 4], None)
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = dict(sizes)
        # In the order of computation: a symbol's name, or an operation on numbers and places of earlier ones.
        self._steps: list[str | tuple[str, Any, Any]] = []
        self._values: list[Any] = []
        self._made: dict[object, SymbolicNumber] = {}
        self._guards: dict[tuple[str, Any, Any], bool] = {}

    @property
    def values(self) -> Sequence[Any]:
        """All numbers, for the sizes of the recording."""
        return self._values

    def symbol(self, name: str) -> SymbolicNumber:
        """The size of this name."""
        return self._number(name, self._sizes[name])

    def size_of(self, value: int) -> Any:
        """A symbol of this value, if there is one; else the value."""
        name = next((name for name, size in self._sizes.items() if size == value), None)
        return value if name is None else self.symbol(name)

    def _number(self, step: str | tuple[str, Any, Any], value: int | float) -> SymbolicNumber:
        key = step if isinstance(step, str) else (step, *map(type, step))  # 2 and 2.0 are different numbers
        if key not in self._made:
            self._made[key] = SymbolicNumber(self, Place(len(self._steps)), value)
            self._steps.append(step)
            self._values.append(value)
        return self._made[key]

    def computed(self, name: str, left: Any, right: Any) -> Any:
        """The result of an operation."""
        if not isinstance(left, NUMBERS) or not isinstance(right, NUMBERS):
            return NotImplemented
        if not isinstance(right, SymbolicNumber) and (name, right) in _NEUTRAL:
            return left
        return self._number((name, _operand(left), _operand(right)), _OPERATIONS[name](plain(left), plain(right)))

    def compared(self, name: str, left: Any, right: Any) -> bool:
        """The result of a comparison, which becomes a guard."""
        outcome: bool = _OPERATIONS[name](plain(left), plain(right))
        if left is not right:
            self._guards[name, _operand(left), _operand(right)] = outcome
        return outcome

    def at(self, sizes: Mapping[str, int]) -> list[Any] | None:
        """All numbers for other sizes; None where a guard does not hold."""
        values: list[Any] = []

        def of(operand: Any) -> Any:
            return values[operand[0]] if type(operand) is Place else operand

        try:
            for step in self._steps:
                values.append(sizes[step] if type(step) is str else _OPERATIONS[step[0]](of(step[1]), of(step[2])))
            guards = ((_OPERATIONS[name](of(a), of(b)), outcome) for (name, a, b), outcome in self._guards.items())
            return values if all(found == outcome for found, outcome in guards) else None
        except ArithmeticError:
            return None

    def representatives(self) -> list[Any]:
        """For each number what stands for all that guards say are equal to it: their value, where that is fixed, else
        the place of one of them."""
        sets = DisjointSets[Any]()
        for (name, *pair), outcome in self._guards.items():
            if name == "eq" and outcome:
                # What represents the first set represents both: a value, if there is one.
                sets.unite(*sorted(map(sets.find, pair), key=lambda each: type(each) is Place))
        return [sets.find(Place(number)) for number in range(len(self._steps))]


def _operand(value: Any) -> Any:
    return value.place if isinstance(value, SymbolicNumber) else value


def is_symbolic(*values: Any) -> bool:
    """Whether some of the values depend on sizes."""
    return any(isinstance(value, SymbolicNumber) for value in values)


def plain(value: Any) -> Any:
    """The value for the sizes of the recording, without a guard; also of numbers in lists and tuples."""
    if isinstance(value, SymbolicNumber):
        return value.value
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value


def shape_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """A tensor's shape, in symbolic numbers if it was given such."""
    shape: tuple[Any, ...] | None = getattr(tensor, _SHAPE, None)
    return tuple(tensor.shape) if shape is None else shape


def with_shape(tensor: torch.Tensor, shape: Sequence[Any]) -> torch.Tensor:
    """The tensor, whose shape in symbolic numbers `shape_of` then gives."""
    if is_symbolic(*shape):
        setattr(tensor, _SHAPE, tuple(shape))
    return tensor
