"""Claims about operators where they occur in a graph: their numbers, and how errors name them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import joinsum
import pytest
import torch
from torch import Tensor

COMPLEX: dict[str, Callable[[Tensor], Tensor]] = {
    "product": lambda x: (x * 1j).real,
    "sum": lambda x: (x + (1 + 2j)).imag,
    "difference": lambda x: (2j - x).abs(),
    "quotient": lambda x: (x / (1 + 1j)).real,
    "reversed quotient": lambda x: ((1 + 1j) / (x + 2)).real,
    "square": lambda x: ((x + 0j) ** 2).real,
    "power": lambda x: (x.abs() ** (1 + 1j)).real,
    "exponential": lambda x: torch.exp(1j * x).imag,
    "constant": lambda x: (torch.full((3,), 1j) * x).imag,
    "large constant": lambda x: (torch.full((70000,), 1j)[:3] * x).imag,
    "filled": lambda x: (x + 0j).masked_fill(x > 0, 1j).imag,
    "where": lambda x: torch.where(x > 0, x, 1j).imag,
    "comparison": lambda x: ((x + 0j) == 1j).to(x.dtype) * x,
}


@pytest.fixture(autouse=True, params=[1, 2, 3])
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    torch._dynamo.reset()
    joinsum.init(sites=request.param)
    yield request.param
    joinsum.init()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_are_tensors_in_a_plan(name: str, dtype: torch.dtype) -> None:
    tolerance = 1e-5 if dtype is torch.float32 else 1e-10
    function = COMPLEX[name]
    plain, x = (torch.tensor([0.5, -0.3, 1.2], dtype=dtype, requires_grad=True) for _ in range(2))
    wanted, found = function(plain), joinsum.compile(function)(x)
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
    wanted.sum().backward()
    found.sum().backward()
    torch.testing.assert_close(x.grad, plain.grad, rtol=tolerance, atol=tolerance)


def test_a_complex_number_that_no_tensor_can_be_is_refused_by_name(sites: int) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.add(x + 0j, x + 0j, alpha=2j).imag

    compiled = joinsum.compile(function)
    if sites == 1:
        torch.testing.assert_close(compiled(torch.ones(2)), function(torch.ones(2)))
        return
    with pytest.raises(joinsum.CaptureError, match=r"operator=aten::add\.Tensor, alpha=2j, at=.*torch\.add\(x \+ 0j"):
        compiled(torch.ones(2))
