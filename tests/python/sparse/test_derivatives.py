"""Derivatives of expressions beside torch's of the same functions."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from joinsum import PlanError
from joinsum.sparse.derivatives import constant_of, derivative, leaves_of
from torch import Tensor

FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "+": lambda *x: sum(x[1:], x[0]),
    "*": lambda *x: math.prod(x[1:], start=x[0]),
    "-": torch.sub,
    "/": torch.div,
    "min": lambda *x: x[0] if len(x) == 1 else torch.minimum(x[0], FUNCTIONS["min"](*x[1:])),
    "max": lambda *x: x[0] if len(x) == 1 else torch.maximum(x[0], FUNCTIONS["max"](*x[1:])),
    "eq": lambda x, y: (x == y).to(x.dtype),
    "gt": lambda x, y: (x > y).to(x.dtype),
    "pow": torch.pow,
    "exp": torch.exp,
    "neg": torch.neg,
    "sq": torch.square,
    "sqrt": torch.sqrt,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "abs": torch.abs,
    "log": torch.log,
}
SMOOTH = ["+", "*", "-", "/", "min", "max", "pow", "exp", "neg", "sq", "sqrt", "sigmoid", "relu", "abs", "log"]
OF_TWO = ("-", "/", "pow")


def value(expr: Any, named: dict[str, Tensor]) -> Tensor:
    if expr[0] == "in":
        return named[expr[1]]
    if expr[0] == "lit":
        return torch.tensor(float(expr[1]), dtype=torch.float64)
    return FUNCTIONS[expr[1]](*(value(child, named) for child in expr[2]))


def made(rng: random.Random, depth: int) -> Any:
    """An expression of positive values, so that logarithms and powers have gradients."""
    if depth == 0:
        return rng.choice([["in", "x", ["i"]], ["in", "y", ["i"]], ["lit", 1.5]])
    op = rng.choice(SMOOTH)
    count = 2 if op in OF_TWO else rng.choice([1, 2, 3]) if op in ("+", "*", "min", "max") else 1
    children = [made(rng, depth - 1) for _ in range(count)]
    return ["map", "abs", [["map", "+", [["map", op, children], ["lit", 0.25]]]]]


@pytest.mark.parametrize("seed", range(40))
def test_derivatives_are_torchs(seed: int) -> None:
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    expr = made(rng, 3)
    x, y = (torch.rand(20, generator=generator, dtype=torch.float64) + 0.1 for _ in range(2))
    named = {"x": x.requires_grad_(), "y": y.requires_grad_()}
    found = value(expr, named)
    if not leaves_of(expr):
        return
    for (name, indices), wanted in zip(
        leaves_of(expr),
        torch.autograd.grad(found.sum(), [named[leaf] for leaf, _ in leaves_of(expr)], allow_unused=True),
        strict=True,
    ):
        by_leaf = derivative(expr, (name, indices))
        mine = torch.zeros(()) if by_leaf is None else value(by_leaf, named).detach()
        wanted = torch.zeros(20, dtype=torch.float64) if wanted is None else wanted
        torch.testing.assert_close(mine.expand(20).double(), wanted, equal_nan=True)


@pytest.mark.parametrize("op", ["min", "max"])
def test_children_that_tie_share_as_torchs_of_two(op: str) -> None:
    tied = ["map", op, [["in", "x", []], ["in", "y", []], ["in", "w", []]]]
    named = {name: torch.tensor(2.0, dtype=torch.float64) for name in "xyw"}
    shares = [float(value(derivative(tied, (name, ())), named)) for name in "xyw"]
    assert shares == [0.25, 0.25, 0.5]


def test_powers_of_zero_have_torchs_derivatives() -> None:
    power = ["map", "pow", [["in", "x", []], ["in", "y", []]]]
    for base, exponent in ((0.0, 0.0), (0.0, 2.0), (0.0, 1.0), (3.0, 0.0)):
        named = {"x": torch.tensor(base).double().requires_grad_(), "y": torch.tensor(exponent).double()}
        named["y"].requires_grad_()
        wanted = torch.autograd.grad(value(power, named), [named["x"], named["y"]])
        found = [value(derivative(power, (name, ())), named) for name in "xy"]
        assert [x.item() for x in found] == [x.item() for x in wanted]


def test_comparisons_and_other_leaves_have_no_derivative() -> None:
    x, y = ["in", "x", ["i"]], ["in", "y", ["j"]]
    assert derivative(["map", "gt", [x, y]], ("x", ("i",))) is None
    assert derivative(["map", "*", [x, y]], ("x", ("j",))) is None
    with pytest.raises(PlanError, match="no derivative of this operator: operator=xor"):
        derivative(["map", "xor", [x, y]], ("x", ("i",)))


def test_a_fill_that_annihilates_makes_a_constant() -> None:
    x, y, one = ["in", "x", ["i"]], ["in", "y", ["i"]], ["lit", 1]
    leaf = ("x", ("i",))
    assert constant_of(["map", "*", [x, y]], leaf, 0) == 0
    assert constant_of(["map", "min", [["map", "+", [x, y]], y]], leaf, -math.inf) == -math.inf
    assert constant_of(["map", "+", [["map", "*", [x, y]], y]], leaf, 0) is None
    assert constant_of(["map", "+", [["map", "*", [x, y]], one]], leaf, 0) is not None
    assert constant_of(["map", "max", [x, y]], leaf, 0) is None
