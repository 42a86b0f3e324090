"""Symbolic numbers against the same computations with plain ones."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from joinsum.capture.recording.symbolic_numbers import (
    Place,
    SymbolicNumber,
    SymbolicNumbers,
    plain,
    shape_of,
    with_shape,
)

SIZES = st.integers(1, 12)
NAMES = ("a", "b")

ARITHMETIC: list[Callable[[Any, Any], Any]] = [
    operator.add,
    operator.sub,
    operator.mul,
    lambda x, y: x // (1 if y == 0 else y),
    lambda x, y: x % (7 if y == 0 else y),
    lambda x, y: x / (1 if y == 0 else y),
    max,
    min,
    lambda x, y: y if x > y + 3 else x * 2,
    lambda x, y: abs(x - y),
    lambda x, y: x if x >= y else 5,
    lambda x, y: -x if x != y else x**2,
    lambda x, y: y if x <= 4 else 3 - x,
    lambda x, y: x + 1 if x else y,
    lambda x, y: 11 // (x if 0 < x < 9 else 1),
    lambda x, y: sorted([x, y, 4])[1],
]

# A program: for each step an operation, and the numbers of two earlier values, of which the first are sizes and 3.
PROGRAMS = st.lists(
    st.tuples(st.integers(0, len(ARITHMETIC) - 1), st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=6
)


def run(program: list[tuple[int, int, int]], a: Any, b: Any) -> list[Any]:
    values = [a, b, 3]
    for step, left, right in program:
        values.append(ARITHMETIC[step](values[left % len(values)], values[right % len(values)]))
    return values


@given(PROGRAMS, SIZES, SIZES, SIZES, SIZES)
def test_values_for_other_sizes_are_those_of_the_program(
    program: list[tuple[int, int, int]], a: int, b: int, c: int, d: int
) -> None:
    numbers = SymbolicNumbers({"a": a, "b": b})
    found = run(program, numbers.symbol("a"), numbers.symbol("b"))
    assert plain(found) == run(program, a, b)
    values = numbers.at({"a": c, "b": d})
    if values is None:
        return
    wanted = run(program, c, d)
    there = [values[x.place.number] if isinstance(x, SymbolicNumber) else x for x in found]
    assert there == wanted
    assert list(map(type, there)) == list(map(type, wanted))


@given(PROGRAMS, SIZES, SIZES)
def test_guards_hold_for_the_recorded_sizes(program: list[tuple[int, int, int]], a: int, b: int) -> None:
    numbers = SymbolicNumbers({"a": a, "b": b})
    run(program, numbers.symbol("a"), numbers.symbol("b"))
    assert numbers.at({"a": a, "b": b}) == numbers.values


def test_branches_are_guards() -> None:
    numbers = SymbolicNumbers({"n": 10})
    n = numbers.symbol("n")
    assert n > 4
    assert n + 1 != 20
    assert [x is not None for x in (numbers.at({"n": k}) for k in (5, 4, 19, 100))] == [True, False, False, True]


@pytest.mark.parametrize(
    "needs", [int, float, hash, str, range, lambda n: [1, 2, 3][n], lambda n: {n: 1}, "{}".format, lambda n: [0] * n]
)
def test_what_python_needs_as_a_number_is_fixed(needs: Callable[[Any], Any]) -> None:
    numbers = SymbolicNumbers({"n": 2})
    needs(numbers.symbol("n"))
    assert numbers.at({"n": 2}) is not None
    assert numbers.at({"n": 3}) is None


def test_a_division_by_zero_is_another_program() -> None:
    numbers = SymbolicNumbers({"n": 5})
    assert plain(10 // (numbers.symbol("n") - 3)) == 5
    assert numbers.at({"n": 3}) is None


def test_equal_numbers_have_one_representative() -> None:
    numbers = SymbolicNumbers({"a": 4, "b": 4, "c": 9})
    a, b, c = map(numbers.symbol, "abc")
    half = a * 2 // 2
    assert a == b
    assert half == b
    assert c == 9
    found = numbers.representatives()
    assert found[a.place.number] == found[b.place.number] == found[half.place.number]
    assert isinstance(found[a.place.number], Place)
    assert found[c.place.number] == 9
    assert not isinstance(found[(a * 2).place.number], int)


def test_integers_and_floats_are_different_numbers() -> None:
    numbers = SymbolicNumbers({"n": 3})
    whole, real = numbers.symbol("n") * 2, numbers.symbol("n") * 2.0
    values = numbers.at({"n": 4})
    assert values is not None
    there = [values[each.place.number] for each in (whole, real)]
    assert list(map(repr, there)) == ["8", "8.0"]


def test_shapes_of_tensors() -> None:
    numbers = SymbolicNumbers({"n": 3})
    n = numbers.symbol("n")
    x = with_shape(torch.empty(3, 2), (n, 2))
    assert shape_of(x)[0] is n
    assert shape_of(torch.empty(3, 2)) == (3, 2)
    assert plain((n, [n, 2], 4)) == (3, [3, 2], 4)
