"""joinsum.einsum and joinsum.nn.functional inside functions and models that are captured: planned with the rest, with
torch's values and gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import joinsum
import pytest
import torch
from joinsum import CaptureError, PlanError
from joinsum.frontend import backend as ways
from joinsum.frontend.program import Program
from torch.fx.experimental.proxy_tensor import make_fx

pytestmark = pytest.mark.usefixtures("clean_graphs")
SITES = pytest.mark.parametrize("sites", [1, 3, 4])


@pytest.fixture
def clean_graphs() -> None:
    torch._dynamo.reset()


def closest(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x[:, None] - y[None]).square().sum(-1)


@dataclass(frozen=True)
class Case:
    """A function by joinsum, the same by torch, and shapes of its operands."""

    by_joinsum: Callable[..., torch.Tensor]
    by_torch: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]


F = torch.nn.functional
ours = joinsum.nn.functional
CASES = {
    "product": Case(lambda x, y: joinsum.einsum("ij,jk->ik", x, y), lambda x, y: x @ y, ((6, 4), (4, 5))),
    "three operands": Case(
        lambda x, y, z: joinsum.einsum("ij,jk,kl->il", x.tanh(), y, z).relu(),
        lambda x, y, z: (x.tanh() @ y @ z).relu(),
        ((6, 4), (4, 5), (5, 3)),
    ),
    "distances": Case(
        lambda x, y: joinsum.einsum("ik,jk->ij", x, y, join="squared_difference").sqrt(),
        lambda x, y: closest(x, y).sqrt(),
        ((6, 4), (5, 4)),
    ),
    "shortest ways": Case(
        lambda x, y: joinsum.einsum("ij,jk->ik", x * 2, y, join="add", agg="min"),
        lambda x, y: (x[:, :, None] * 2 + y[None]).amin(1),
        ((6, 4), (4, 5)),
    ),
    "most likely ways": Case(
        lambda x, y, z: joinsum.einsum("ij,jk,kl->il", x, y, z, join="add", agg="max"),
        lambda x, y, z: (x[:, :, None, None] + y[None, :, :, None] + z[None, None]).amax((1, 2)),
        ((6, 4), (4, 5), (5, 3)),
    ),
    "logsumexp": Case(
        lambda x, y: joinsum.einsum("ij,jk->ik", x, y, join="add", agg="logsumexp"),
        lambda x, y: (x[:, :, None] + y[None]).logsumexp(1),
        ((6, 4), (4, 5)),
    ),
    "prod": Case(
        lambda x: joinsum.einsum("ij->j", x.exp(), agg="prod"), lambda x: x.exp().prod(0), ((6, 4),)
    ),
    "expression": Case(
        lambda x, y: joinsum.einsum("ij,jk->ik", x, y, join="where(x < y, exp(x - y) * 2, x * y)"),
        lambda x, y: torch.where(
            x[:, :, None] < y[None], (x[:, :, None] - y[None]).exp() * 2, x[:, :, None] * y[None]
        ).sum(1),
        ((6, 4), (4, 5)),
    ),
    "a diagonal, a new label": Case(
        lambda x, y: joinsum.einsum("iij,jk->ijn", x, y, extents={"n": 3}),
        lambda x, y: (x.diagonal(0, 0, 1).T * y.sum(1))[..., None].expand(4, 5, 3),
        ((4, 4, 5), (5, 2)),
    ),
    "repeated elements": Case(
        lambda x: joinsum.einsum("ij,j->i", x[:, None].expand(6, 4), x[:4], join="add", agg="prod"),
        lambda x: (x[:, None] + x[:4]).prod(1),
        ((6,),),
    ),
    "sublists, an ellipsis, broadcasting": Case(
        lambda x, y: joinsum.einsum(x, [..., "row", 0], y, [..., 0, 1], [..., "row", 1]),
        lambda x, y: x @ y,
        ((3, 1, 2, 4), (5, 4, 3)),
    ),
    "views around it": Case(
        lambda x, w: joinsum.einsum("bhd,hde->bhe", x.view(4, 2, 6), w).reshape(4, 6).softmax(-1),
        lambda x, w: torch.einsum("bhd,hde->bhe", x.view(4, 2, 6), w).reshape(4, 6).softmax(-1),
        ((4, 12), (2, 6, 3)),
    ),
    "softmax": Case(lambda x: ours.softmax(x * 2, dim=1), lambda x: F.softmax(x * 2, 1), ((3, 4, 5),)),
    "log_softmax": Case(lambda x: ours.log_softmax(x, -1).exp(), lambda x: F.softmax(x, -1), ((3, 4, 5),)),
    "layer_norm": Case(
        lambda x, w, b: ours.layer_norm(x, [4, 5], w, b),
        lambda x, w, b: F.layer_norm(x, [4, 5], w, b),
        ((3, 4, 5), (4, 5), (4, 5)),
    ),
    "rms_norm": Case(
        lambda x, w: ours.rms_norm(x, x.shape[-1:], w), lambda x, w: F.rms_norm(x, [5], w), ((3, 4, 5), (5,))
    ),
    "attention": Case(
        lambda q, k, v: ours.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        ((2, 3, 4, 6), (2, 3, 4, 6), (2, 3, 4, 5)),
    ),
}


def operands(case: Case) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in case.shapes]


def value_and_gradients(function: Callable[..., torch.Tensor], case: Case) -> list[torch.Tensor]:
    given = operands(case)
    value = function(*given)
    weights = torch.linspace(-1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
    return [value.detach(), *torch.autograd.grad((value * weights).sum(), given)]


@SITES
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_torch(name: str, sites: int) -> None:
    joinsum.init(sites=sites, plan_cache=False)
    case = CASES[name]
    found = value_and_gradients(joinsum.compile(case.by_joinsum), case)
    torch.testing.assert_close(found, value_and_gradients(case.by_torch, case), rtol=1e-10, atol=1e-12)
