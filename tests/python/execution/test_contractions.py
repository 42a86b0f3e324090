"""Contractions by other pairs than products and sums, against torch's operators on the whole joined tensor."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
import textwrap

import joinsum
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rounding import rounding
from torch_pairs import JOINS, PAIRS, REDUCTIONS, wanted

Tensors = tuple[torch.Tensor, torch.Tensor]

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
# What complex numbers, which have no order, are combined and reduced by.
COMPLEX_PAIRS = [
    (join, agg)
    for join, agg in PAIRS
    if join in ("mul", "add", "sub", "div", "squared_difference") and agg in ("sum", "prod")
]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


@pytest.fixture(autouse=True)
def one_site() -> None:
    joinsum.init()


def operands(dtype: torch.dtype, shape: tuple[int, int, int], seed: int = 0) -> Tensors:
    """A left and a right operand of rows, inner indices and columns; far from zero where one may be divided by."""
    generator = torch.Generator().manual_seed(seed)
    rows, inner, columns = shape
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -120
        a, b = (torch.randint(low, 120, size, generator=generator) for size in ((rows, inner), (inner, columns)))
        return a.to(dtype), b.to(dtype)
    a = torch.randn(rows, inner, generator=generator, dtype=torch.float64)
    b = torch.rand(inner, columns, generator=generator, dtype=torch.float64) + 0.5
    return a.to(dtype), b.to(dtype)


# --- what they compute ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("join", "agg"), PAIRS)
def test_every_pair_is_torchs_on_floats(join: str, agg: str, dtype: torch.dtype) -> None:
    for shape in [(1, 1, 1), (5, 7, 3), (9, 17, 33), (1, 65, 40), (40, 65, 1), (2, 300, 70)]:
        a, b = operands(dtype, shape)
        result = joinsum.einsum("ij,jk->ik", a, b, join=join, agg=agg)
        assert result.dtype == dtype
        near = rounding(dtype, terms=shape[1])
        torch.testing.assert_close(result, wanted(join, agg, a, b), rtol=near, atol=near)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize(("join", "agg"), [pair for pair in PAIRS if "div" not in pair and "logsumexp" not in pair])
def test_every_pair_is_exactly_torchs_on_integers(join: str, agg: str, dtype: torch.dtype) -> None:
    for shape in [(1, 1, 1), (5, 7, 3), (9, 17, 33), (2, 300, 70)]:
        a, b = operands(dtype, shape)
        result = joinsum.einsum("ij,jk->ik", a, b, join=join, agg=agg)
        assert result.dtype == dtype
        assert torch.equal(result, wanted(join, agg, a, b))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize(("join", "agg"), COMPLEX_PAIRS)
def test_every_pair_is_torchs_on_complex_numbers(join: str, agg: str, dtype: torch.dtype) -> None:
    near = 2e-5 if dtype == torch.complex64 else 1e-12
    for shape in [(1, 1, 1), (5, 7, 3), (9, 17, 33), (1, 65, 40), (40, 65, 1), (2, 300, 70), (130, 5, 70)]:
        generator = torch.Generator().manual_seed(3)
        rows, inner, columns = shape
        a, b = (torch.randn(size, generator=generator, dtype=dtype) for size in ((rows, inner), (inner, columns)))
        if agg == "prod":  # keeps products of 300 factors within single precision
            a, b = a / a.abs() + (0 if join == "mul" else 3), b / b.abs()
            inner = min(inner, 20)
            a, b = a[:, :inner], b[:inner]
        if join == "div":
            b = b / b.abs()
        for conjugated in (False, True):
            x = a.conj() if conjugated else a
            result = joinsum.einsum("ij,jk->ik", x, b, join=join, agg=agg)
            assert result.dtype == dtype
            scale = REDUCTIONS[agg](JOINS[join](x[:, :, None], b[None]).abs())
            assert ((result - wanted(join, agg, x, b)).abs() <= near * scale).all()


def test_quotients_of_large_and_of_small_complex_numbers_neither_overflow_nor_vanish() -> None:
    for size in (1e-30, 1e30):
        b = torch.tensor([[size + size * 1j]], dtype=torch.complex64)
        a = torch.tensor([[size * 2j]], dtype=torch.complex64)
        assert joinsum.einsum("ij,jk->ik", a, b, join="div").tolist() == [[1 + 1j]]


def test_the_difference_of_unsigned_integers_does_not_wrap_around() -> None:
    a, b = torch.tensor([[3, 200]], dtype=torch.uint8), torch.tensor([[5], [100]], dtype=torch.uint8)
    assert joinsum.einsum("ij,jk->ik", a, b, join="abs_difference", agg="max").tolist() == [[100]]
    assert joinsum.einsum("ij,jk->ijk", a, b, join="abs_difference").tolist() == [[[2], [100]]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize(("join", "agg"), PAIRS)
def test_nan_and_infinities_go_where_torchs_go(join: str, agg: str, dtype: torch.dtype) -> None:
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0], dtype=dtype)
    for seed, kinds in itertools.product(range(3), [1, 2, 3, 5]):
        a, b = operands(dtype, (17, 9, 35), seed)
        generator = torch.Generator().manual_seed(seed)
        for x, kind in ((a, kinds), (b, max(1, kinds - seed))):
            places = torch.rand(x.shape, generator=generator) < 0.03
            choice = torch.randint(5 - kind, 5, x.shape, generator=generator) - (5 - kind)
            x[places] = special.roll(-(seed * 2))[choice][places]
        result = joinsum.einsum("ij,jk->ik", a, b, join=join, agg=agg)
        expected = wanted(join, agg, a, b)
        near = rounding(dtype, terms=9)
        torch.testing.assert_close(result, expected, rtol=near, atol=near, equal_nan=True)


@pytest.mark.parametrize(("join", "agg"), [("add", "min"), ("sub", "max"), ("div", "sum"), ("max", "prod")])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_labels_and_strides_are_followed(join: str, agg: str, data: st.DataObject) -> None:
    letters = "abcde"
    extents = {letter: data.draw(st.sampled_from([1, 2, 3, 5, 17])) for letter in letters}
    subscripts = [data.draw(st.permutations(letters).map("".join))[: data.draw(st.integers(1, 4))] for _ in range(2)]
    used = sorted(set("".join(subscripts)))
    out = "".join(data.draw(st.permutations(used)))[: data.draw(st.integers(0, len(used)))]
    given_operands = []
    for index, subscript in enumerate(subscripts):
        order = data.draw(st.permutations(range(len(subscript))))
        generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**16)))
        lying = torch.rand([extents[subscript[i]] for i in order], generator=generator, dtype=torch.float64) + 0.5
        given_operands.append(lying.permute([order.index(i) for i in range(len(order))]))
        assert given_operands[index].shape == tuple(extents[letter] for letter in subscript)
    full = [
        x.permute(sorted(range(x.dim()), key=lambda i, own=own: used.index(own[i]))).reshape(
            [extents[letter] if letter in own else 1 for letter in used]
        )
        for x, own in zip(given_operands, subscripts, strict=True)
    ]
    joined = JOINS[join](*full).expand([extents[letter] for letter in used])
    remaining = [used.index(letter) for letter in out]
    gone = [i for i in range(len(used)) if i not in remaining]
    flat = joined.permute([*remaining, *gone]).reshape([extents[letter] for letter in out] + [-1])
    expected = {
        "min": lambda x: x.amin(-1),
        "max": lambda x: x.amax(-1),
        "sum": lambda x: x.sum(-1),
        "prod": lambda x: x.prod(-1),
    }[agg](flat)
    result = joinsum.einsum(f"{subscripts[0]},{subscripts[1]}->{out}", *given_operands, join=join, agg=agg)
    torch.testing.assert_close(result, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
def test_an_aggregation_of_nothing_is_its_identity(shape: tuple[int, int, int]) -> None:
    a, b = operands(torch.float32, shape)
    for agg, value in {
        "min": float("inf"),
        "max": -float("inf"),
        "sum": 0.0,
        "prod": 1.0,
        "logsumexp": -float("inf"),
    }.items():
        result = joinsum.einsum("ij,jk->ik", a, b, join="add", agg=agg)
        assert torch.equal(result, torch.full((shape[0], shape[2]), value))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_logarithms_of_sums_are_exact_to_the_last_digits_wherever_the_maximum_stands(dtype: torch.dtype) -> None:
    """The terms rise or fall over several panels of reduced indices, so that the maximum moves, or stands still."""
    near = {torch.float32: 4e-7, torch.float64: 8e-16}[dtype]
    for slope in (-3.0, -0.01, 0.0, 0.01, 3.0, 1e4):
        a = (torch.arange(700.0, dtype=dtype) * slope).expand(3, 700)
        b = torch.linspace(-1, 1, 700 * 20, dtype=dtype).reshape(700, 20)
        result = joinsum.einsum("ij,jk->ik", a, b, join="add", agg="logsumexp")
        exact = (a[:, :, None] + b[None]).double().logsumexp(1)
        # An element of the joined tensor is itself rounded.
        size = (a.abs().max() + 1 + math.log(700)).double()
        assert ((result.double() - exact).abs() <= near * size).all()


def test_logarithms_of_sums_of_nothing_but_infinities() -> None:
    infinity = float("inf")
    a = torch.tensor([[-infinity, -infinity], [-infinity, 1.0], [infinity, 1.0], [infinity, -infinity]])
    b = torch.zeros(2, 3)
    result = joinsum.einsum("ij,jk->ik", a, b, join="add", agg="logsumexp")
    assert result[:, 0].tolist() == [-infinity, 1.0, infinity, infinity]
    assert torch.equal(result, result[:, :1].expand(4, 3))
    long = torch.full((2, 600), -infinity)  # a panel of -inf before one that has numbers
    long[1, 599] = 2.0
    result = joinsum.einsum("ij,jk->ik", long, torch.zeros(600, 1), join="add", agg="logsumexp")
    assert result.tolist() == [[-infinity], [2.0]]


def test_long_logarithms_of_sums_keep_their_digits() -> None:
    a, b = torch.full((2, 1000, 1000), 0.1), torch.zeros(1000, 1000, 3)
    result = joinsum.einsum("ijk,jkl->il", a, b, join="add", agg="logsumexp")
    torch.testing.assert_close(result, torch.full((2, 3), 0.1 + math.log(1e6)), rtol=3e-7, atol=0)


def test_long_sums_keep_the_accuracy_of_single_precision() -> None:
    a, b = operands(torch.float32, (1, 1_000_000, 40))
    result = joinsum.einsum("ij,jk->ik", a, b, join="squared_difference", agg="sum")
    torch.testing.assert_close(result.double(), ((a.T - b).double() ** 2).sum(0)[None], rtol=5e-6, atol=0)


def test_long_sums_of_equal_terms_keep_their_digits() -> None:
    a, b = torch.full((2, 1000, 1000), 0.1), torch.zeros(1000, 1000, 3)
    result = joinsum.einsum("ijk,jkl->il", a, b, join="abs_difference")
    torch.testing.assert_close(result, torch.full((2, 3), 1e5), rtol=5e-6, atol=0)


@pytest.mark.parametrize("sites", [2, 3, 4])
def test_sites_reduce_pieces_into_one_result(sites: int) -> None:
    a, b = operands(torch.float64, (7, 29, 11))
    for join, agg in PAIRS:
        joinsum.init(sites=sites)
        result = joinsum.einsum("ij,jk->ik", a, b, join=join, agg=agg)
        torch.testing.assert_close(result, wanted(join, agg, a, b), rtol=1e-11, atol=1e-11)


# --- what they run on -------------------------------------------------------------------------------------------------

COMPARE = """
    import sys
    import torch, joinsum
    sys.path[:0] = {folders!r}
    from test_contractions import COMPLEX_PAIRS, PAIRS, operands, wanted
    assert torch.backends.cpu.get_cpu_capability() == {capability!r}, torch.backends.cpu.get_cpu_capability()
    for join, agg in PAIRS:
        for dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
            if not dtype.is_floating_point and (join == "div" or agg == "logsumexp"):
                continue
            a, b = operands(dtype, (11, 37, 45))
            a[3, 5] = float("nan") if dtype.is_floating_point else 7
            for x, y in ((a, b), (b.T, a.T)):
                result = joinsum.einsum("ij,jk->ik", x, y, join=join, agg=agg)
                torch.testing.assert_close(result, wanted(join, agg, x, y), rtol=2e-5, atol=2e-5, equal_nan=True)
    for join, agg in COMPLEX_PAIRS:
        for dtype in (torch.complex64, torch.complex128):
            a, b = (x.exp().to(dtype) * (1 + 0.5j) for x in operands(torch.float64, (11, 7, 45)))
            result = joinsum.einsum("ij,jk->ik", a, b, join=join, agg=agg)
            torch.testing.assert_close(result, wanted(join, agg, a, b), rtol=1e-4, atol=1e-4)
"""


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize("capability", ["DEFAULT", "AVX2", "AVX512"])
def test_each_set_of_instructions_gives_the_same(capability: str) -> None:
    order = ["DEFAULT", "AVX2", "AVX512"]
    own = torch.backends.cpu.get_cpu_capability()
    if own not in order or order.index(capability) > order.index(own):
        pytest.skip(f"this processor has no {capability}")
    current = os.path.dirname(__file__)
    code = COMPARE.format(folders=[current, os.path.join(current, "..", "..", "support")], capability=capability)
    done = run_python(code, ATEN_CPU_CAPABILITY=capability.lower())
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux alone")
@pytest.mark.parametrize(("join", "agg"), [("add", "min"), ("squared_difference", "sum"), ("add", "logsumexp")])
def test_the_joined_tensor_is_never_formed(join: str, agg: str) -> None:
    """Of 2048³ pairs, 32 GiB: the result has 16 MiB and the packed panels some, no slice of it more."""
    code = f"""
        import resource
        import torch, joinsum
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        small = torch.rand(64, 64)
        joinsum.einsum("ij,jk->ik", small, small, join={join!r}, agg={agg!r})
        a, b = torch.rand(2048, 2048), torch.rand(2048, 2048)
        before = peak()
        joinsum.einsum("ij,jk->ik", a, b, join={join!r}, agg={agg!r})
        print((peak() - before) // 1024)
    """
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 16 + 12
