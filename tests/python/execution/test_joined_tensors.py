"""Joined tensors of all labels that only reductions read are never formed: values, gradients and memory."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable

import joinsum
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rounding import assert_rounded
from torch_pairs import JOINS, REDUCTIONS
from training import rare

PAIRS = [
    ("add", "max"),
    ("add", "min"),
    ("max", "min"),
    ("mul", "max"),
    ("squared_difference", "max"),
    ("add", "logsumexp"),
    ("abs_difference", "logsumexp"),
    ("abs_difference", "sum"),
    ("squared_difference", "sum"),
    ("min", "sum"),
    ("sub", "min"),
    ("mul", "logsumexp"),
]
# Elements of the joined tensor on each of four sites: beyond what is formed.
SIZE = (200, 202, 204)


def gradients(function: Callable[..., torch.Tensor], *operands: torch.Tensor) -> list[torch.Tensor]:
    """The result, and the gradients of its weighted sum."""
    own = [x.clone().requires_grad_() for x in operands]
    result = function(*own)
    weights = torch.linspace(-1, 1, result.numel(), dtype=result.dtype).reshape(result.shape)
    return [result.detach(), *torch.autograd.grad(result, own, weights)]


def near(actual: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> bool:
    return bool(((actual.double() - wanted.double()).abs() <= tolerance * wanted.abs().max().double()).all())


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("sites", [1, 4])
@pytest.mark.parametrize(("join", "agg"), PAIRS)
def test_gradients_of_large_pairs_are_torchs(join: str, agg: str, sites: int, ties: bool) -> None:
    joinsum.init(sites=sites)
    rows, inner, columns = SIZE
    generator = torch.Generator().manual_seed(sites)
    a, b = (torch.randn(size, generator=generator, dtype=torch.float64) for size in ((rows, inner), (inner, columns)))
    if ties:
        a, b = (2 * a).round(), (2 * b).round()
    got = gradients(lambda x, y: joinsum.einsum("ij,jk->ik", x, y, join=join, agg=agg), a, b)
    wanted = gradients(lambda x, y: REDUCTIONS[agg](JOINS[join](x[:, :, None], y[None])), a, b)
    for actual, expected in zip(got, wanted, strict=True):
        assert near(actual, expected, 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("join", "agg"), [("add", "max"), ("squared_difference", "max"), ("abs_difference", "sum")])
def test_gradients_in_few_digits_give_all_that_arrives(join: str, agg: str, dtype: torch.dtype) -> None:
    joinsum.init()
    a, b = torch.randn(230, 220).to(dtype), torch.randn(220, 210).to(dtype)
    got = gradients(lambda x, y: joinsum.einsum("ij,jk->ik", x, y, join=join, agg=agg), a, b)
    wanted = gradients(lambda x, y: REDUCTIONS[agg](JOINS[join](x[:, :, None], y[None])), a, b)
    for actual, expected in zip(got, wanted, strict=True):
        assert_rounded(actual, expected, dtype, terms=230, roundings=2)  # of the result and of its gradient


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize(("join", "agg"), [("add", "max"), ("mul", "min"), ("add", "logsumexp"), ("sub", "logsumexp")])
def test_gradients_through_nan_and_infinities_are_torchs(join: str, agg: str, sites: int) -> None:
    joinsum.init(sites=sites)
    a, b = torch.randn(300, 310).round(), torch.randn(310, 320).round()
    a[3, 5], a[7, [8, 9]], a[9] = float("nan"), float("inf"), -float("inf")
    b[11, 13], b[20, [1, 2]] = -float("inf"), float("inf")
    got = gradients(lambda x, y: joinsum.einsum("ij,jk->ik", x, y, join=join, agg=agg), a, b)
    wanted = gradients(lambda x, y: REDUCTIONS[agg](JOINS[join](x[:, :, None], y[None])), a, b)
    for actual, expected in zip(got, wanted, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("agg", ["max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("join", ["add", "mul", "abs_difference"])
def test_a_few_ties_among_large_pairs_share_as_torchs(join: str, agg: str, sites: int) -> None:
    joinsum.init(sites=sites)
    generator = torch.Generator().manual_seed(7)
    a, b = torch.randn(300, 310, generator=generator), torch.randn(310, 320, generator=generator)
    a[:, 200], b[200] = a[:, 20], b[20]  # these tie wherever they win
    a[[3, 4]], a[:, 5] = a[[4, 4]], 0
    if join == "add":
        a[7, ::2], b[::3, 9], a[11] = -float("inf"), -float("inf"), -float("inf")
    joined = JOINS[join](a[:, :, None], b[None])
    if agg.startswith("arg"):
        wanted = joined.argmax(1) if agg == "argmax" else joined.argmin(1)
        assert torch.equal(joinsum.einsum("ij,jk->ik", a, b, join=join, agg=agg), wanted)
        return
    got = gradients(lambda x, y: joinsum.einsum("ij,jk->ik", x, y, join=join, agg=agg), a, b)
    expected = gradients(lambda x, y: REDUCTIONS[agg](JOINS[join](x[:, :, None], y[None])), a, b)
    for actual, other in zip(got, expected, strict=True):
        torch.testing.assert_close(actual, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("join", ["add", "sub"])
@pytest.mark.parametrize("kind", ["masked", "some far apart", "all far apart", "large", "weights infinite"])
def test_logarithms_of_large_sums_of_any_size_are_torchs(kind: str, join: str, sites: int) -> None:
    joinsum.init(sites=sites)
    generator = torch.Generator().manual_seed(8)
    a, b = torch.randn(210, 220, generator=generator), torch.randn(220, 230, generator=generator)
    if kind == "masked":
        a[torch.rand(a.shape, generator=generator) < 0.6] = -float("inf")
    if kind == "some far apart":
        a[3, 1:], b[0, 5] = -100, -90
    if kind == "all far apart":
        a, b = 60 * a, 60 * b
    if kind == "large":
        a, b = a + 1000, b - 3000
    weights = torch.ones(210, 230)
    if kind == "weights infinite":
        weights[3, 4], weights[9, 9] = float("inf"), 1e30

    def found(function: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        own = [x.clone().requires_grad_() for x in (a, b)]
        result = function(*own)
        return [result.detach(), *torch.autograd.grad(result, own, weights.to(result.dtype))]

    got = found(lambda x, y: joinsum.einsum("ij,jk->ik", x, y, join=join, agg="logsumexp"))
    a, b = a.double(), b.double()
    wanted = found(lambda x, y: JOINS[join](x[:, :, None], y[None]).logsumexp(1))
    for actual, expected in zip(got, wanted, strict=True):
        # Sums of some thousands are exact to 2e-4, and so are exponentials of their differences.
        near = 2e-3 if kind == "large" else 1e-4
        torch.testing.assert_close(actual.double(), expected, rtol=near, atol=near, equal_nan=True)


@settings(max_examples=12, deadline=None)
@given(
    sites=st.integers(1, 4),
    extents=st.tuples(st.integers(150, 260), st.integers(150, 260), st.integers(150, 260)),
    pair=st.sampled_from([*PAIRS, ("add", "argmax"), ("abs_difference", "argmin")]),
    seed=st.integers(0, 1000),
    transposed=st.booleans(),
)
def test_large_pairs_of_any_shape_are_torchs(
    sites: int, extents: tuple[int, int, int], pair: tuple[str, str], seed: int, transposed: bool
) -> None:
    joinsum.init(sites=sites)
    (rows, inner, columns), (join, agg) = extents, pair
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(size, generator=generator).double() for size in ((rows, inner), (inner, columns)))
    if transposed:
        a, b = a.t().contiguous().t(), b.t().contiguous().t()
    joined = JOINS[join](a[:, :, None], b[None])
    if agg in ("argmax", "argmin"):
        wanted = joined.argmax(1) if agg == "argmax" else joined.argmin(1)
        assert torch.equal(joinsum.einsum("ij,jk->ik", a, b, join=join, agg=agg), wanted)
        return
    got = gradients(lambda x, y: joinsum.einsum("ij,jk->ik", x, y, join=join, agg=agg), a, b)
    expected = gradients(lambda x, y: REDUCTIONS[agg](JOINS[join](x[:, :, None], y[None])), a, b)
    for actual, other in zip(got, expected, strict=True):
        assert near(actual, other, 1e-11)


@pytest.mark.parametrize("capability", [rare("DEFAULT"), "AVX2"])
def test_narrower_instructions_give_the_same(capability: str) -> None:
    if capability == torch.backends.cpu.get_cpu_capability():
        pytest.skip(f"all tests here run by {capability}")
    tests = "positions_in_large or nan_and_infinities"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", tests],
        env=os.environ | {"ATEN_CPU_CAPABILITY": capability.lower()},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_second_derivatives_of_large_pairs_are_torchs() -> None:
    joinsum.init()
    a, b = torch.randn(130, 132, dtype=torch.float64), torch.randn(132, 134, dtype=torch.float64)

    def second(function: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
        first = torch.autograd.grad(function(x, y).square().sum(), (x, y), create_graph=True)
        return list(torch.autograd.grad((first[0].sin().sum() + first[1].cos().sum()), (x, y)))

    got = second(lambda x, y: joinsum.einsum("ij,jk->ik", x, y, join="add", agg="logsumexp"))
    wanted = second(lambda x, y: (x[:, :, None] + y[None]).logsumexp(1))
    for actual, expected in zip(got, wanted, strict=True):
        assert near(actual, expected, 1e-11)


@pytest.mark.parametrize("sites", [1, 4])
@pytest.mark.parametrize("agg", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32], ids=str)
def test_positions_in_large_pairs_are_the_first_ones(agg: str, dtype: torch.dtype, sites: int) -> None:
    joinsum.init(sites=sites)
    rows, inner, columns = (300, 310, 320) if dtype != torch.float64 else SIZE
    a = torch.randint(-20, 20, (rows, inner)).to(dtype)
    b = torch.randint(-20, 20, (inner, columns)).to(dtype)
    if dtype.is_floating_point:
        a[3, [7, 9]] = float("nan")
        a[5] = -float("inf")
    for join in ("add", "squared_difference"):
        joined = JOINS[join](a[:, :, None], b[None])
        best = joined.amax(1, keepdim=True) if agg == "argmax" else joined.amin(1, keepdim=True)
        found = (joined == best) | (joined != joined)
        first = torch.where(found, torch.arange(inner)[None, :, None], inner).amin(1)
        assert torch.equal(joinsum.einsum("ij,jk->ik", a, b, join=join, agg=agg), first)


@pytest.mark.parametrize("sites", [1, 3])
def test_large_expressions_of_three_operands_are_torchs(sites: int) -> None:
    joinsum.init(sites=sites)
    a, b, c = (torch.rand(*size, dtype=torch.float64) for size in ((60, 61), (61, 62), (62, 63)))
    text = "where(x0 < x1, x0*x1, exp(x2 - x0))"
    got = gradients(lambda x, y, z: joinsum.einsum("ij,jk,kl->il", x, y, z, join=text), a, b, c)

    def whole(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        x, y, z = x[:, :, None, None], y[None, :, :, None], z[None, None]
        return torch.where(x < y, x * y, torch.exp(z - x)).sum((1, 2))

    for actual, expected in zip(got, gradients(whole, a, b, c), strict=True):
        assert near(actual, expected, 1e-12)


def test_the_predicted_peak_knows_what_is_not_formed() -> None:
    joinsum.init()
    run = joinsum.einsum_plan("ij,jk->ik", (2048, 2048), (2048, 2048), join="add", agg="argmax", cache=False)
    assert run.cost.peak_bytes < 200 << 20  # of a joined tensor of 32 GiB


MEASURE = """
    import resource
    import torch, joinsum
    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    def call(a, b, c):
        {call}
    def operands(n):
        return [torch.rand(n, n).requires_grad_({gradient}) for _ in range(3)]
    call(*operands(256))
    few = operands({size})
    before = peak()
    call(*few)
    print((peak() - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux alone")
@pytest.mark.parametrize(
    ("call", "size"),
    [
        ('joinsum.einsum("ij,jk->ik", a, b, join="add", agg="max").sum().backward()', 700),
        ('joinsum.einsum("ij,jk->ik", a, b, join="add", agg="logsumexp").sum().backward()', 700),
        ('joinsum.einsum("ij,jk->ik", a, b, join="abs_difference").sum().backward()', 700),
        ('joinsum.einsum("ij,jk->ik", a, b, join="squared_difference").sum().backward()', 700),
        ('joinsum.einsum("ij,jk->ik", a, b, join="add", agg="argmax")', 700),
        ('joinsum.einsum("ij,jk,ki->i", a, b, c, join="x0*x1 + exp(x2 - x0)")', 700),
    ],
)
def test_joined_tensors_are_not_formed(call: str, size: int) -> None:
    """Of 700³ floats, 1.3 GiB; operands and results have some MiB."""
    code = MEASURE.format(call=call, size=size, gradient="backward" in call)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 64
