"""Gradients of products and logarithms of sums at zeros and infinities: torch's, wherever torch has a number."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import joinsum
import pytest
import torch

INF = float("inf")
F64 = torch.float64
SITES = pytest.mark.parametrize("sites", [1, 3])

Function = Callable[..., torch.Tensor]


def gradients(function: Function, operands: Sequence[torch.Tensor], twice: bool = False) -> list[torch.Tensor]:
    leaves = [x.clone().requires_grad_() for x in operands]
    value = function(*leaves)
    weights = torch.linspace(0.5, 1.5, value.numel(), dtype=F64).reshape(value.shape)
    found = list(torch.autograd.grad((value * weights).sum(), leaves, create_graph=twice))
    if twice:
        again = sum((x * torch.linspace(1, 2, x.numel(), dtype=F64).reshape(x.shape)).sum() for x in found)
        found += torch.autograd.grad(again.real if again.is_complex() else again, leaves)
    return [x.detach() for x in found]


def same_where_numbers(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> None:
    for x, y in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.where(y.isnan(), y, x), y, equal_nan=True)


@SITES
def test_a_product_with_zeros_and_infinities_has_the_product_of_the_others(sites: int) -> None:
    joinsum.init(sites=sites, plan_cache=False)
    # A zero in another row makes torch multiply the others, where it divides the product otherwise.
    rows = [*itertools.product([0.0, 2.0, -3.0, INF, -INF], repeat=3), (1.0, 2.0, 0.0)]
    x = torch.tensor(rows, dtype=F64)
    found = gradients(lambda x: joinsum.einsum("ij->i", x, agg="prod"), [x])
    same_where_numbers(found, gradients(lambda x: x.prod(1), [x]))
    assert not found[0][:25, 0].isnan().all()


@SITES
@pytest.mark.parametrize("factor", [1.0, 1 + 0.5j])
def test_second_gradients_of_products_are_right_at_zeros(factor: complex, sites: int) -> None:
    joinsum.init(sites=sites, plan_cache=False)
    x = torch.tensor(list(itertools.product([0.0, 2.0, -3.0], repeat=3)), dtype=F64) * factor

    def found(x: torch.Tensor) -> torch.Tensor:
        return joinsum.einsum("ij->i", x, agg="prod").abs().square() + joinsum.einsum("ij->i", x, agg="prod").real

    def wanted(x: torch.Tensor) -> torch.Tensor:
        return x.prod(1).abs().square() + x.prod(1).real

    torch.testing.assert_close(gradients(found, [x], twice=True), gradients(wanted, [x], twice=True))


@SITES
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_sums_of_exponentials_of_nothing_pass_no_gradient(share: float, sites: int) -> None:
    joinsum.init(sites=sites, plan_cache=False)
    torch.manual_seed(0)
    pool = torch.tensor([0.0, 2.0, INF, -1.0], dtype=F64)
    for _ in range(10):
        x, y, z = (
            torch.where(torch.rand(shape) < share, torch.tensor(-INF, dtype=F64), pool[torch.randint(0, 4, shape)])
            for shape in ((2, 3), (3, 2), (2, 2))
        )
        found = gradients(lambda *xs: joinsum.einsum("ij,jk,kl->il", *xs, join="add", agg="logsumexp"), [x, y, z])
        wanted = gradients(
            lambda x, y, z: (x[:, :, None, None] + y[None, :, :, None] + z[None, None]).logsumexp((1, 2)), [x, y, z]
        )
        same_where_numbers(found, wanted)


@SITES
def test_a_layer_that_repeats_a_result_is_not_written_over(sites: int) -> None:
    joinsum.init(sites=sites, plan_cache=False)
    torch.manual_seed(0)
    x, arriving = torch.randn(12, 5), torch.randn(12, 5)
    graph = joinsum.Graph.parse(
        "einsum\ninput x: f32[12,5]\ninput d: f32[12,5]\n"
        "s = einsum[ab->a; exp; add](x)\nt = einsum[ab,a->a; expression[2, -x0/x1]; add](d, s)\n"
        "u = einsum[a->ab; id; add; b=5](t)\nv = einsum[ab->ab; exp; add](x)\n"
        "output z = einsum[ab,ab->ab; mul; add](u, v)"
    )
    found = graph.plan()(x=x, d=arriving)["z"]
    torch.testing.assert_close(found, -(arriving / x.exp().sum(1, keepdim=True)).sum(1, keepdim=True) * x.exp())
