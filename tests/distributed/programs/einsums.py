"""Scenes of joinsum.einsum on plain tensors, the same on every rank."""

from __future__ import annotations

import os

import joinsum
import torch
from stage import Scenes, enter, error_of, on_group, on_loopback, rank, scene

SCENES: Scenes = {}

EQUATIONS = ["ij,jk->ik", "ij->", "bij,bjk->bik", "i,j->ij", "ij,jk,kl->li", "ii->i", "ij,ij->j"]
EXTENTS = {"b": 2, "i": 5, "j": 3, "k": 4, "l": 7}


def operands(equation: str) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    shapes = [[EXTENTS[c] for c in subscript] for subscript in equation.split("->")[0].split(",")]
    return [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]


def results(equation: str, **options: str) -> list[torch.Tensor]:
    """The value, and the gradients of its sum."""
    leaves = operands(equation)
    value = joinsum.einsum(equation, *leaves, **options)
    assert isinstance(value, torch.Tensor)
    return [value.detach(), *torch.autograd.grad(value.sum(), leaves)]


@scene(SCENES)
def values_and_gradients_are_those_of_one_process() -> int:
    enter(on_group())
    for equation in EQUATIONS:
        leaves = operands(equation)
        value = torch.einsum(equation, *leaves)
        wanted = [value.detach(), *torch.autograd.grad(value.sum(), leaves)]
        for x, y in zip(results(equation), wanted, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-10)
    return len(EQUATIONS)


@scene(SCENES)
def a_group_gives_what_loopback_gives() -> None:
    for join in ("squared_difference", "where(x < y, exp(x - y), x * 2)"):
        options = {"join": join, "agg": "logsumexp"}
        enter(on_loopback())
        wanted = results("ij,kj->ik", **options)
        enter(on_group())
        for x, y in zip(results("ij,kj->ik", **options), wanted, strict=True):
            assert torch.equal(x, y)


@scene(SCENES)
def positions_and_layers_are_those_of_one_process() -> None:
    enter(on_group())
    generator = torch.Generator().manual_seed(8)
    x = torch.randn(5, 7, generator=generator, dtype=torch.float64)
    assert torch.equal(joinsum.einsum("ij->i", x, agg="argmax"), x.argmax(1))
    torch.testing.assert_close(joinsum.nn.functional.softmax(x, 1), x.softmax(1), rtol=1e-12, atol=1e-12)


@scene(SCENES)
def operands_that_differ_are_found_at_the_first_call() -> str:
    enter(on_group())
    x = torch.full((3, 3), float(rank()))
    kind, text, _ = error_of(lambda: joinsum.einsum("ij,jk->ik", x, x))
    assert kind == "TransportError", text
    return text


@scene(SCENES)
def later_calls_compare_operands_when_asked() -> str:
    enter(on_group())
    same = torch.ones(3, 3)
    joinsum.einsum("ij,jk->ik", same, same)
    other = torch.full((3, 3), float(rank()))
    joinsum.einsum("ij,jk->ik", other, same)
    os.environ["JOINSUM_CHECK"] = "1"
    try:
        kind, text, _ = error_of(lambda: joinsum.einsum("ij,jk->ik", other, same))
    finally:
        del os.environ["JOINSUM_CHECK"]
    assert kind == "TransportError", text
    return text
