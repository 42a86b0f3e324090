"""joinsum.nn.functional against torch.nn.functional, values and gradients, on several sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import joinsum
import pytest
import torch
from joinsum import KernelError, PlanError
from joinsum.nn import functional as ours
from rounding import assert_rounded
from torch.nn import functional as torchs

F64 = torch.float64
INF = float("inf")


@pytest.fixture(params=[1, 2, 3, 4])
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    joinsum.init(sites=request.param)
    torch.manual_seed(0)
    yield request.param
    joinsum.init()


def check(function: Callable[..., torch.Tensor], wanted: Callable[..., torch.Tensor], *operands: torch.Tensor) -> None:
    """Equal values and gradients, up to 1e-10."""
    results = []
    for each in (function, wanted):
        leaves = [x.detach().clone().requires_grad_() for x in operands]
        value = each(*leaves)
        weights = torch.linspace(-1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
        results.append([value.detach(), *torch.autograd.grad(value, leaves, weights)])
    for got, right in zip(*results, strict=True):
        assert got.shape == right.shape
        torch.testing.assert_close(got, right, rtol=1e-10, atol=1e-10, equal_nan=True)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_and_its_logarithm(sites: int, dim: int) -> None:
    x = torch.randn(3, 5, 4, dtype=F64) * 3
    check(lambda x: ours.softmax(x, dim), lambda x: torchs.softmax(x, dim), x)
    check(lambda x: ours.log_softmax(x, dim), lambda x: torchs.log_softmax(x, dim), x)


def test_softmax_of_large_and_of_missing_elements(sites: int) -> None:
    x = torch.tensor([[1e4, 1e4 + 1, -1e4], [-INF, 0.5, 1.0], [2.0, -INF, -INF]], dtype=F64)
    check(lambda x: ours.softmax(x, 1), lambda x: torchs.softmax(x, 1), x)
    nothing = torch.full((2, 3), -INF)
    assert ours.softmax(nothing, 1).isnan().all()
    single = torch.randn(4, 6) * 1e3
    torch.testing.assert_close(ours.softmax(single, 1), torchs.softmax(single, 1), rtol=1e-5, atol=1e-6)


def test_softmax_has_a_second_derivative(sites: int) -> None:
    x = torch.randn(2, 3, dtype=F64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: ours.softmax(x, 1), (x,))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_the_maximum_is_a_constant_to_gradients_also_where_elements_tie(sites: int, name: str) -> None:
    x = torch.tensor([[1.0, 1.0, 0.5], [2.0, 2.0, 2.0]], dtype=F64)
    seconds = []
    for layers in (ours, torchs):
        leaf = x.clone().requires_grad_()
        value = getattr(layers, name)(leaf, dim=1)
        (slope,) = torch.autograd.grad((value**2).sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad((slope * torch.linspace(0, 1, 6, dtype=F64).reshape(2, 3)).sum(), leaf)
        seconds.append([slope.detach(), second])
    torch.testing.assert_close(seconds[0], seconds[1], rtol=1e-10, atol=1e-10)


def test_gradients_of_softmax_look_for_no_ties() -> None:
    graph = joinsum.Graph.parse(
        "einsum\ninput x: f64[4,5]\nM = einsum[ab->a; id; max](x)\nC = einsum[a->a; detach; add](M)\n"
        "E = einsum[ab,a->ab; sub | exp; add](x, C)\nS = einsum[ab->a; id; add](E)\n"
        "output z = einsum[ab,a->ab; div; add](E, S)"
    )
    assert "equal" not in graph.gradient(["x"]).text
    assert "equal" in joinsum.Graph.parse(graph.text.replace("detach", "id")).gradient(["x"]).text


@pytest.mark.parametrize("shape", [(4,), (5, 4), (3, 5, 4)])
@pytest.mark.parametrize("affine", [False, True])
def test_norms(sites: int, shape: tuple[int, ...], affine: bool) -> None:
    x = torch.randn(3, 5, 4, dtype=F64)
    weight, bias = torch.randn(shape, dtype=F64), torch.randn(shape, dtype=F64)
    weights = (weight, bias) if affine else ()
    check(lambda x, *wb: ours.layer_norm(x, shape, *wb), lambda x, *wb: torchs.layer_norm(x, shape, *wb), x, *weights)
    check(lambda x, *w: ours.rms_norm(x, shape, *w), lambda x, *w: torchs.rms_norm(x, shape, *w), x, *weights[:1])
    check(lambda x: ours.rms_norm(x, shape, eps=0.5), lambda x: torchs.rms_norm(x, shape, eps=0.5), x)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_attention(sites: int, batch: tuple[int, ...]) -> None:
    q, k, v = (torch.randn(*batch, n, e, dtype=F64) for n, e in ((5, 4), (6, 4), (6, 3)))
    check(ours.scaled_dot_product_attention, torchs.scaled_dot_product_attention, q, k, v)
    for options in ({"is_causal": True}, {"scale": 0.3}):
        check(
            lambda q, k, v, o=options: ours.scaled_dot_product_attention(q, k, v, **o),
            lambda q, k, v, o=options: torchs.scaled_dot_product_attention(q, k, v, **o),
            q,
            k,
            v,
        )


@pytest.mark.parametrize("shape", [(5, 6), (1, 6), (2, 1, 5, 6), (2, 3, 5, 1)])
def test_attention_takes_masks(sites: int, shape: tuple[int, ...]) -> None:
    q, k, v = (torch.randn(2, 3, n, 4, dtype=F64) for n in (5, 6, 6))
    mask = torch.randn(shape, dtype=F64)
    check(ours.scaled_dot_product_attention, torchs.scaled_dot_product_attention, q, k, v, mask)


def test_a_query_that_attends_to_no_key_gives_zeros(sites: int) -> None:
    q, k, v = (torch.randn(2, n, 4, dtype=F64) for n in (5, 6, 6))
    seen = torch.rand(5, 6) < 0.5
    seen[2] = False
    check(
        lambda q, k, v: ours.scaled_dot_product_attention(q, k, v, seen),
        lambda q, k, v: torchs.scaled_dot_product_attention(q, k, v, seen),
        q,
        k,
        v,
    )
    assert (ours.scaled_dot_product_attention(q, k, v, seen)[:, 2] == 0).all()


def test_half_and_single_precision_are_preserved(sites: int) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(4, 6).to(dtype)
        for mine, right in (
            (ours.softmax(x, 1), torchs.softmax(x, 1)),
            (ours.layer_norm(x, [6]), torchs.layer_norm(x, [6])),
            (ours.rms_norm(x, [6]), torchs.rms_norm(x, [6])),
        ):
            assert mine.dtype == dtype
            assert_rounded(mine, right, dtype, terms=6)


def test_what_does_not_fit_is_named() -> None:
    joinsum.init()
    x = torch.rand(2, 3)
    for call, message in (
        (lambda: ours.softmax(x, 2), r"softmax: no such axis: dim=2, shape=\[2, 3\]"),
        (lambda: ours.layer_norm(x, [2]), r"layer_norm: not the last extents: normalized_shape=\[2\], shape=\[2, 3\]"),
        (lambda: ours.layer_norm(x, [3], torch.rand(2)), r"weight has another shape than normalized_shape"),
        (lambda: ours.rms_norm(x, [3], eps=INF), "rms_norm: not a number: value=inf"),
        (lambda: ours.scaled_dot_product_attention(x, x, x.T), r"shapes are \[..., L, E\]"),
        (lambda: ours.scaled_dot_product_attention(x, x, x[None]), "have equal leading axes and two more"),
        (lambda: ours.scaled_dot_product_attention(x, x, x, dropout_p=0.1), "dropout is not part of the graph"),
        (lambda: ours.scaled_dot_product_attention(x, x, x, x, is_causal=True), "give a mask or is_causal=True"),
        (lambda: ours.scaled_dot_product_attention(x, x, x, x), r"a mask does not fit the scores: mask=\[2, 3\]"),
    ):
        with pytest.raises(PlanError, match=message):
            call()
    with pytest.raises(KernelError, match="exp: not defined on this dtype"):
        ours.softmax(torch.ones(2, 3, dtype=torch.int64), 1)
