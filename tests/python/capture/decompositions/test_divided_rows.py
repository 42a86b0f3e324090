"""Softmaxes and norms whose rows are divided: steps on shards give torch's results, by loops and by its operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import joinsum  # noqa: F401  # defines the operators
import pytest
import torch
import torch.nn.functional as F
from joinsum.base.dtypes import accumulation_dtype
from torch import Tensor

Call = Callable[..., Any]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
NEAR = {torch.float32: 1e-5, torch.float64: 1e-10, torch.float16: 2e-2, torch.bfloat16: 1e-1}
EPS = 1e-5


@pytest.fixture(params=["loops", "composed"])
def call(request: pytest.FixtureRequest) -> Call:
    """Calls an operator: its kernel for the processor, or what runs on devices that it has none for."""
    composed = torch._C.DispatchKey.CompositeExplicitAutograd

    def run(name: str, *arguments: object) -> Any:
        operator = getattr(torch.ops.joinsum, name).default
        return operator(*arguments) if request.param == "loops" else operator._op_dk(composed, *arguments)

    return run


@pytest.fixture(autouse=True)
def same_numbers() -> Iterator[None]:
    torch.manual_seed(3)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def shards(x: Tensor, dim: int) -> list[Tensor]:
    """Of all sizes; one is empty."""
    n = x.shape[dim]
    return [x.narrow(dim, begin, end - begin) for begin, end in pairwise([0, n // 3, n // 3, n // 3 + 1, n])]


def total(parts: Sequence[Any]) -> Any:
    """The sums of results of shards, one tensor or several."""
    return sum(parts) if isinstance(parts[0], Tensor) else [sum(each) for each in zip(*parts, strict=True)]


def near(found: Tensor, wanted: Tensor, scale: float = 1) -> None:
    within = NEAR[found.dtype]
    torch.testing.assert_close(found.double(), wanted.double(), rtol=within, atol=within * scale)


# --- softmax ----------------------------------------------------------------------------------------------------------

LINES = [((5, 37), 1), ((3, 20_000), -1), ((4, 9, 17), 1), ((6, 30), 0), ((1, 11), 1), ((7,), 0)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "dim"), LINES, ids=str)
@pytest.mark.parametrize("log", [False, True])
def test_a_softmax_and_its_gradient(
    call: Call, log: bool, shape: tuple[int, ...], dim: int, dtype: torch.dtype
) -> None:
    x, grad = (torch.randn(shape).mul(4).to(dtype) for _ in range(2))
    most = x.amax(dim, keepdim=True)
    sums = total([call("softmax_total", each, most, dim) for each in shards(x, dim)])
    assert sums.dtype is accumulation_dtype(dtype)
    forward = "log_softmax_of" if log else "softmax_of"
    found = torch.cat([call(forward, each, most, sums, dtype) for each in shards(x, dim)], dim)
    given = x.double().requires_grad_()
    wanted = given.log_softmax(dim) if log else given.softmax(dim)
    near(found, wanted.detach(), 10 if log else 1)

    pairs = list(zip(shards(grad, dim), shards(found, dim), strict=True))
    if log:
        whole = grad.to(sums.dtype).sum(dim, keepdim=True)
        slopes = torch.cat([call("log_softmax_grad_of", *each, whole, dtype) for each in pairs], dim)
    else:
        slope = total([call("softmax_slope", *each, dim) for each in pairs])
        slopes = torch.cat([call("softmax_grad_of", *each, slope, dtype) for each in pairs], dim)
    (wanted,) = torch.autograd.grad(wanted, given, grad.double())
    near(slopes, wanted, 100)


def test_rows_of_minus_infinity_are_not_numbers_and_shards_of_it_count_nothing(call: Call) -> None:
    nothing = torch.full((2, 40), -torch.inf)
    x = torch.cat([nothing, torch.zeros(2, 40)], 1)
    most = x.amax(1, keepdim=True)
    assert call("softmax_total", nothing, most, 1).tolist() == [[0.0]] * 2
    torch.testing.assert_close(call("softmax_of", x, most, call("softmax_total", x, most, 1), x.dtype), x.softmax(1))
    most = nothing.amax(1, keepdim=True)
    sums = call("softmax_total", nothing, most, 1)
    assert sums.isnan().all()
    assert call("softmax_of", nothing, most, sums, x.dtype).isnan().all()
    assert call("log_softmax_of", nothing, most, sums, x.dtype).isnan().all()


def test_what_is_not_a_number_remains_so(call: Call) -> None:
    x = torch.zeros(2, 40)
    x[0, 39] = torch.nan
    most = x.amax(1, keepdim=True)
    found = call("softmax_of", x, most, call("softmax_total", x, most, 1), x.dtype)
    torch.testing.assert_close(found, x.softmax(1), equal_nan=True)


# --- norms ------------------------------------------------------------------------------------------------------------

ROWS = [((5, 37), 1), ((3, 4, 6), 2), ((2, 20_000), 1), ((40, 70), 1), ((9,), 1)]


def sample(shape: tuple[int, ...], rank: int, dtype: torch.dtype, affine: bool) -> list[Tensor | None]:
    """Input, gradient of the result, weight and bias."""
    x, grad = (torch.randn(shape).mul(3).add(1).to(dtype) for _ in range(2))
    weight, bias = (torch.randn(shape[-rank:]).to(dtype) if affine else None for _ in range(2))
    return [x, grad, weight, bias]


def cut(tensors: Sequence[Tensor | None]) -> Iterator[list[Any]]:
    """Shards of tensors along their last axis."""
    parts = [[None] * 4 if each is None else shards(each, -1) for each in tensors]
    return map(list, zip(*parts, strict=True))


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "rank"), ROWS, ids=str)
def test_a_layer_norm_and_its_gradient(
    call: Call, shape: tuple[int, ...], rank: int, dtype: torch.dtype, affine: bool
) -> None:
    x, grad, weight, bias = tensors = sample(shape, rank, dtype, affine)
    assert x is not None
    assert grad is not None
    dims, wide = list(range(-rank, 0)), accumulation_dtype(dtype)
    count, sums = x.numel() // x.sum(dims).numel(), x.to(wide).sum(dims, keepdim=True)
    parts = list(cut(tensors))
    squares = total([call("centred_squares", each[0], sums, count, dims) for each in parts])
    results = [call("layer_norm_of", x, sums, squares, w, b, count, EPS, wide) for x, _, w, b in parts]
    given = [None if each is None else each.double() for each in (x, weight, bias)]
    assert given[0] is not None
    wanted = F.layer_norm(given[0].requires_grad_(), shape[-rank:], *given[1:], EPS)
    near(torch.cat([each[0] for each in results], -1), wanted.detach(), 10)
    _, mean, rstd = results[0]
    assert mean.dtype is wide
    slopes = [call("layer_norm_slopes", g, x, mean, rstd, w, dims) for x, g, w, _ in parts]
    first, second = total(slopes)
    found = [call("layer_norm_grad_of", g, x, mean, rstd, w, first, second, count) for x, g, w, _ in parts]
    (wanted,) = torch.autograd.grad(wanted, given[0], grad.double())
    near(torch.cat(found, -1), wanted, 10)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "rank"), ROWS, ids=str)
def test_an_rms_norm_and_its_gradient(
    call: Call, shape: tuple[int, ...], rank: int, dtype: torch.dtype, affine: bool
) -> None:
    x, grad, weight, _ = tensors = sample(shape, rank, dtype, affine)
    assert x is not None
    assert grad is not None
    dims, count = list(range(-rank, 0)), x.numel() // x.sum(list(range(-rank, 0))).numel()
    parts = list(cut(tensors))
    squares = total([call("rms_norm_squares", each[0], dims) for each in parts])
    results = [call("rms_norm_of", x, squares, w, count, EPS) for x, _, w, _ in parts]
    given = x.double().requires_grad_()
    wanted = F.rms_norm(given, shape[-rank:], None if weight is None else weight.double(), EPS)
    near(torch.cat([each[0] for each in results], -1), wanted.detach(), 10)
    rstd = results[0][1]
    slope = total([call("rms_norm_slope", g, x, rstd, w, dims) for x, g, w, _ in parts])
    found = [call("rms_norm_grad_of", g, x, rstd, w, slope, count) for x, g, w, _ in parts]
    (wanted,) = torch.autograd.grad(wanted, given, grad.double())
    near(torch.cat(found, -1), wanted, 10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(4, 3), (5, 3, 2), (4, 3, 6, 7), (2, 1, 9001)], ids=str)
@pytest.mark.parametrize("running", [False, True])
def test_a_batch_norm_and_its_running_statistics(
    call: Call, running: bool, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    x = torch.randn(shape).mul(3).add(7).to(dtype)
    weight, bias = torch.randn(2, shape[1])
    dims, count = [0, *range(2, len(shape))], x.numel() // shape[1]
    statistics = (torch.randn(shape[1]), torch.rand(shape[1])) if running else (None, None)
    sums = x.float().sum(dims, keepdim=True)
    squares = total([call("centred_squares", each, sums, count, dims) for each in shards(x, 0)])
    rest = (weight, bias, *statistics, count, 0.1, EPS, torch.float32)
    results = [call("batch_norm_of", each, sums, squares, *rest) for each in shards(x, 0)]
    _, mean, rstd, mean_now, variance_now = results[0]
    given = [None if each is None else each.clone() for each in statistics]
    wanted = F.batch_norm(x.float(), *given, weight, bias, True, 0.1, EPS)
    near(torch.cat([each[0] for each in results]), wanted, 10)
    near(mean, x.double().mean(dims))
    near(rstd, torch.rsqrt(x.double().var(dims, correction=0) + EPS))
    near(mean_now, mean if given[0] is None else given[0])
    near(variance_now, x.double().var(dims) if given[1] is None else given[1])


# --- operands and threads ---------------------------------------------------------------------------------------------


def numbers(x: Tensor) -> list[Tensor]:
    """The maximum and the sum of each row, and one over its deviation."""
    return [x.amax(1, keepdim=True), x.sum(1, keepdim=True), torch.rsqrt(x.var(1, keepdim=True))]


def steps(x: Tensor, grad: Tensor, weight: Tensor, most: Tensor, sums: Tensor, rstd: Tensor) -> dict[str, Any]:
    """Results of all steps on rows."""
    ops, n = torch.ops.joinsum, x.shape[1]
    return {
        "softmax_total": ops.softmax_total(x, most, 1),
        "softmax_of": ops.softmax_of(x, most, sums.abs() + 1, x.dtype),
        "log_softmax_of": ops.log_softmax_of(x, most, sums.abs() + 1, x.dtype),
        "softmax_slope": ops.softmax_slope(grad, x, 1),
        "softmax_grad_of": ops.softmax_grad_of(grad, x, sums, x.dtype),
        "log_softmax_grad_of": ops.log_softmax_grad_of(grad, -x.abs(), sums, x.dtype),
        "centred_squares": ops.centred_squares(x, sums, n, [1]),
        "layer_norm_of": ops.layer_norm_of(x, sums, sums.abs(), weight, weight, n, EPS, x.dtype),
        "layer_norm_slopes": ops.layer_norm_slopes(grad, x, sums / n, rstd, weight, [1]),
        "layer_norm_grad_of": ops.layer_norm_grad_of(grad, x, sums / n, rstd, weight, sums, rstd, n),
        "rms_norm_squares": ops.rms_norm_squares(x, [1]),
        "rms_norm_of": ops.rms_norm_of(x, sums.abs(), weight, n, EPS),
        "rms_norm_slope": ops.rms_norm_slope(grad, x, rstd, weight, [1]),
        "rms_norm_grad_of": ops.rms_norm_grad_of(grad, x, rstd, weight, sums, n),
    }


@pytest.mark.parametrize("shape", [(1, 100_000), (300, 700)], ids=str)
def test_results_are_the_same_for_any_number_of_threads(shape: tuple[int, int]) -> None:
    x, grad, weight = torch.randn(shape), torch.randn(shape), torch.randn(shape[1])
    images, given = x.view(10, -1, 20), numbers(x)
    sums = images.sum([0, 2], keepdim=True)
    found = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        squares = torch.ops.joinsum.centred_squares(images, sums, 10, [0, 2])
        found.append({**steps(x, grad, weight, *given), "channels": squares})
    for each in found[1:]:
        torch.testing.assert_close(each, found[0], rtol=0, atol=0)


def test_operands_in_any_layout() -> None:
    x, grad, weight = torch.randn(40, 30).t(), torch.randn(30, 80)[:, ::2], torch.randn(80)[::2]
    wanted = steps(x.contiguous(), grad.contiguous(), weight.contiguous(), *numbers(x))
    found = steps(x, grad, weight, *numbers(x))
    torch.testing.assert_close(found, wanted)
    for each in found.values():
        assert all(result.is_contiguous() for result in (each if isinstance(each, tuple) else [each]))


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)], ids=str)
def test_no_rows_and_empty_rows(call: Call, shape: tuple[int, int]) -> None:
    x, numbers, weight = torch.ones(shape), torch.ones(shape[0], 1), torch.ones(shape[1])
    zeros = torch.zeros_like(numbers)
    assert torch.equal(call("softmax_total", x, numbers, 1), zeros)
    assert torch.equal(call("softmax_slope", x, x, 1), zeros)
    assert torch.equal(call("centred_squares", x, numbers, 3, [1]), zeros)
    assert torch.equal(call("rms_norm_squares", x, [1]), zeros)
    assert torch.equal(call("rms_norm_slope", x, x, numbers, weight, [1]), zeros)
    assert all(torch.equal(each, zeros) for each in call("layer_norm_slopes", x, x, numbers, numbers, weight, [1]))
    assert call("softmax_of", x, numbers, numbers, x.dtype).shape == shape
    assert call("layer_norm_of", x, numbers, numbers, weight, weight, 3, EPS, x.dtype)[0].shape == shape
    assert call("rms_norm_grad_of", x, x, numbers, weight, numbers, 3).shape == shape
