"""Operators that joinsum composes for all traces of the process: they are torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import joinsum.frontend.tracing.torch_internals
import pytest
import torch
from joinsum.capture.decompositions.composed import COMPOSED
from torch import Tensor

COV = COMPOSED[torch.ops.aten.cov.default]
WEIGHTS = torch.tensor([1, 2, 1, 3, 1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.int64])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"correction": 0},
        {"correction": 2},
        {"fweights": WEIGHTS},
        {"aweights": WEIGHTS / 4.0},
        {"fweights": WEIGHTS, "aweights": WEIGHTS.flip(0) / 4.0},
        {"aweights": WEIGHTS / 4.0, "correction": 0},
    ],
)
@pytest.mark.parametrize("shape", [(3, 5), (1, 5), (5,)])
def test_covariances(shape: tuple[int, ...], options: dict[str, Any], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(shape, generator=generator) * 4).to(dtype)
    if dtype.is_complex:
        x = x + 1j * torch.randn(shape, generator=generator)
    torch._dynamo.reset()
    torch.testing.assert_close(COV(x, **options), torch.cov(x, **options))
    traced = torch.compile(lambda y: torch.cov(y, **options), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(traced(x), torch.cov(x, **options))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: COV(x[None]),
        lambda x: COV(x, fweights=WEIGHTS.double()),
        lambda x: COV(x, aweights=WEIGHTS),
        lambda x: COV(x, fweights=WEIGHTS[:4]),
        lambda x: COV(x > 0),
    ],
)
def test_what_torch_refuses(call: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(RuntimeError, match="cov: "):
        call(torch.ones(3, 5))


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("shapes", [((40, 3), (30, 3)), ((2, 40, 3), (30, 3)), ((2, 1, 30, 4), (3, 27, 4))])
def test_distances_of_many_rows(shapes: tuple[tuple[int, ...], ...], p: float, sites: int) -> None:
    joinsum.init(sites=sites, plan_cache=False)
    torch._dynamo.reset()
    torch.manual_seed(0)
    given = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    compiled = torch.compile(torch.cdist, backend="joinsum", fullgraph=True)
    outcomes = []
    for function in (compiled, torch.cdist):
        result = function(*given, p=p)
        slopes = torch.linspace(-1, 1, result.numel(), dtype=result.dtype).view(result.shape)
        outcomes.append([result, *torch.autograd.grad(result, given, slopes)])
    joinsum.init()
    for found, wanted in zip(*outcomes, strict=True):
        torch.testing.assert_close(found, wanted)
