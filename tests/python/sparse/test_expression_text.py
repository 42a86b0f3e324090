"""Printed expressions are read back into the lists that they were printed from."""

from __future__ import annotations

import random
from typing import Any

import pytest
from joinsum import _C, PlanError
from joinsum.sparse.expression_text import expression_of_text
from joinsum.sparse.expressions import expression_of

INFIX = {"+", "-", "*", "/"}
UNARY = ("exp", "neg", "sq", "sqrt", "sigmoid", "relu", "abs", "log")
LITERALS = (0.0, 1.0, -2.0, 0.1, -3.5e-7, 1e300, float("inf"), float("-inf"))


def random_expression(source: random.Random, depth: int) -> list[Any]:
    kind = source.choice(("in", "lit", "map", "agg")) if depth else source.choice(("in", "lit"))
    if kind == "in":
        return ["in", f"x{source.randrange(12)}", source.sample("abcABC", source.randrange(4))]
    if kind == "lit":
        return ["lit", source.choice(LITERALS)]
    if kind == "agg":
        operator = source.choice(("+", "*", "min", "max", "and", "or"))
        return ["agg", operator, source.sample("defg", 1 + source.randrange(2)), random_expression(source, depth - 1)]
    if source.random() < 0.4:
        return ["map", source.choice(UNARY), [random_expression(source, depth - 1)]]
    children = [random_expression(source, depth - 1) for _ in range(2)]
    return ["map", source.choice(("+", "-", "*", "/", "and", "or", "min", "max", "eq", "gt", "pow")), children]


@pytest.mark.parametrize("seed", range(200))
def test_what_is_printed_is_read_back(seed: int) -> None:
    data = random_expression(random.Random(seed), 4)
    text = expression_of(data).text()
    assert expression_of(expression_of_text(text)).data() == expression_of(data).data(), text


def test_all_operators_are_read() -> None:
    for operator in _C.sparse_operators():
        children = 1 if operator in UNARY else 2
        data = ["map", operator, [["in", "x0", ["a"]]] * children]
        assert expression_of_text(expression_of(data).text()) == data


@pytest.mark.parametrize(
    "text", ["", "x0", "x0[a", "(x0[a] + x1[a] * x2[a])", "x0[a] x1[a]", "exp(", "?", "(x0[a]", "exp(x0[a] x0[a])"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(PlanError, match="sparse expression: it is not as plans print them"):
        expression_of_text(text)
