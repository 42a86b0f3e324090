"""Key functions are recorded as data; what cannot be recorded is refused with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import joinsum
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from joinsum.algebra.key_functions import trace_key_map, trace_predicate

Function = Callable[..., Any]


def key_map(function: Function | str, arity: int = 2) -> str:
    return str(trace_key_map("rekey", function, arity))


def predicate(function: Function | str, arity: int = 2) -> str:
    return str(trace_predicate("filter", function, arity))


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda i, j: (j, i), "(k1, k0)"),
        (lambda i, j: [i + 1, 2 * j - i], "(k0 + 1, 2 * k1 - k0)"),
        (lambda i, j: i, "(k0)"),
        (lambda i, j: (), "()"),
        (lambda i, j: 7, "(7)"),
        (lambda i, j: (i // 2, i % 2), "(k0 // 2, k0 % 2)"),
        (lambda i, j: divmod(i, 3), "(k0 // 3, k0 % 3)"),
        (lambda i, j: (9 - i, 9 // (j + 1), 9 % (j + 1)), "(9 - k0, 9 // (k1 + 1), 9 % (k1 + 1))"),
        (lambda i, j: (-i + 5, +j), "(-k0 + 5, k1)"),
        (lambda i, j: (i + np.int64(3), np.int64(3) * j), "(k0 + 3, 3 * k1)"),
        (lambda *key: key[::-1], "(k1, k0)"),
        (lambda i, j: joinsum.lookup([3, 1], i, name="turn"), "(lookup(turn, k0))"),
        ("(k1, k0)", "(k1, k0)"),
    ],
)
def test_a_key_map_is_recorded(function: Function | str, text: str) -> None:
    assert key_map(function) == text


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda i, j: i == j, "k0 == k1"),
        (lambda i, j: i != 3, "k0 != 3"),
        (lambda i, j: (i < 2) & (j >= 1) | ~(i > j), "k0 < 2 and k1 >= 1 or not k0 > k1"),
        (lambda i, j: joinsum.and_(i <= 1, j > 0, True), "k0 <= 1 and k1 > 0 and true"),
        (lambda i, j: joinsum.or_(joinsum.not_(i == 0), False), "not k0 == 0 or false"),
        (lambda i, j: False | (i == 0), "false or k0 == 0"),
        (lambda i, j: True, "true"),
        (lambda i, j: joinsum.and_(), "true"),
        ("k0 == k1", "k0 == k1"),
    ],
)
def test_a_predicate_is_recorded(function: Function | str, text: str) -> None:
    assert predicate(function) == text


REFUSED = [
    (lambda i, j: i if i > j else j, "use & | ~ or joinsum.and_, or_, not_"),
    (lambda i, j: max(i, j), "use & | ~ or joinsum.and_, or_, not_"),
    (lambda i, j: i / 2, "/ is //"),
    (lambda i, j: 2 / i, "/ is //"),
    (lambda i, j: i**2, "no such operator"),
    (lambda i, j: i + 0.5, "a float or boolean is none: operand=0.5"),
    (lambda i, j: i + True, "a float or boolean is none: operand=True"),
    (lambda i, j: i + "a", "operand='a'"),
    (lambda i, j: i & j, "compare first"),
    (lambda i, j: (i == j) + 1, "a condition is no integer"),
    (lambda i, j: i == j, "a key's component is an integer"),
    (lambda i, j: (i, 0.5), "a key's component is an integer"),
    (lambda i, j: None, "component=None"),
    (lambda i, j: int(i), "its value depends on the key"),
    (lambda i, j: [10, 20][i], "its value depends on the key"),
    (lambda i, j: {0: 1}[i], "cannot be recorded"),
    (lambda i, j: abs(i), "its value depends on the key"),
    (lambda i, j: i.item(), "no attribute"),
    (lambda i, j: torch.tensor([1, 2])[i], "its value depends on the key"),
    (lambda i, j: i + 2**63, "a constant exceeds 64 bits"),
    (lambda i: i, "one argument per key component: key arity=2"),
    (3, "give a function of the key's components"),
    ("(k0,", "parse"),
    ("(k0 == k1)", "a component must be an integer"),
]


@pytest.mark.parametrize(("function", "remedy"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_recorded_is_refused_with_the_remedy(function: Any, remedy: str) -> None:
    with pytest.raises(joinsum.PlanError) as caught:
        key_map(function)
    assert remedy in str(caught.value)


REFUSED_PREDICATES = [
    (lambda i, j: 0 <= i < 2, "chained comparisons"),
    (lambda i, j: i == 0 and j == 0, "use & | ~"),
    (lambda i, j: not (i == 0) | (j == 0), "use & | ~"),
    (lambda i, j: i, "a predicate is a comparison"),
    (lambda i, j: (i == 0) & 1, "operands are conditions"),
    (lambda i, j: joinsum.and_(i, j), "operands are conditions"),
    (lambda i, j: (i == 0) == (j == 0), "a condition is no integer"),
    (lambda i, j: None, "returned=None"),
]


@pytest.mark.parametrize(("function", "remedy"), REFUSED_PREDICATES, ids=range(len(REFUSED_PREDICATES)))
def test_a_predicate_that_is_none_is_refused_with_the_remedy(function: Any, remedy: str) -> None:
    with pytest.raises(joinsum.PlanError) as caught:
        predicate(function)
    assert remedy in str(caught.value)


def test_errors_of_the_users_function_pass_through() -> None:
    def fails(i: Any, j: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        key_map(fails)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (torch.ones(3), "1-D integer tensor"),
        (torch.ones(2, 2, dtype=torch.int64), "1-D integer tensor"),
        ([1, 0.5], "entry is an integer"),
        ("abc", "sequence of ints"),
        (7, "sequence of ints"),
    ],
)
def test_a_lookup_table_holds_integers(table: Any, problem: str) -> None:
    with pytest.raises(joinsum.PlanError, match=problem):
        key_map(lambda i, j: joinsum.lookup(table, i))


def test_tables_without_a_name_are_called_after_their_entries() -> None:
    one, same, other = (key_map(lambda i, t=t: joinsum.lookup(t, i), arity=1) for t in ([1, 2], (1, 2), [2, 1]))
    assert one == same != other


def test_a_lookup_permutes_the_tiles_of_a_vector() -> None:
    joinsum.init(sites=2)
    turned = joinsum.relation(torch.arange(3), parts=3).rekey(lambda i: joinsum.lookup(torch.tensor([2, 0, 1]), i))
    assert turned.to_tensor(links=[0]).tolist() == [1, 2, 0]
    plan = joinsum.relation(torch.arange(3), parts=3).rekey("(lookup(t, k0))", tables={"t": [2, 0, 1]}).plan()
    assert joinsum.parse(plan.text, tables={"t": [2, 0, 1]}) == plan
    with pytest.raises(joinsum.PlanError, match="index outside the lookup table"):
        joinsum.relation(torch.arange(3), parts=3).rekey(lambda i: joinsum.lookup([0], i))


def test_a_negative_component_is_refused_naming_the_key() -> None:
    with pytest.raises(joinsum.PlanError, match=r"negative component: .*key=<0>"):
        joinsum.relation(torch.arange(3), parts=3).rekey(lambda i: i - 1)


@given(st.integers(-50, 50), st.integers(-7, 7), st.integers(1, 9))
def test_recorded_arithmetic_is_pythons(a: int, b: int, c: int) -> None:
    def function(i: Any) -> Any:
        return (a + i) * b - (a * i) // c + (b - i) % c - -i

    traced = trace_key_map("rekey", lambda i: (function(i) + 10_000,), 1)
    for key in range(4):
        assert traced.evaluate([key]) == [function(key) + 10_000]
