"""Group norms on several sites, which divide the groups and the batch: results and gradients are torch's."""

from __future__ import annotations

import math
from collections.abc import Iterator

import joinsum
import pytest
import torch
from capture_by_torch import Captured, Planned
from torch import Tensor, nn
from training import CUTTING, EVERYTHING, divided, same, sgd, train_by_torch


@pytest.fixture(autouse=True)
def afterwards_one_site() -> Iterator[None]:
    yield
    joinsum.init()


def values_of(captured: Captured | None, groups: int, tensors: list[Tensor]) -> list[Tensor]:
    """A group norm of the first tensor with the others as weight and bias, and the gradients of all, by a capture or by
    torch."""

    def norm(x: Tensor, *affine: Tensor) -> Tensor:
        return nn.functional.group_norm(x, groups, *affine)

    own = [x.clone().requires_grad_() for x in tensors]
    result = (norm if captured is None else captured.of(norm))(*own)
    seed = torch.linspace(-1, 2, result.numel(), dtype=result.dtype).view_as(result).sin()
    return [result.detach(), *torch.autograd.grad(result, own, seed)]


def drawn(shape: tuple[int, ...], affine: bool, dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(0)
    tensors = [torch.randn(shape) * 3 + 2, *(torch.randn(shape[1]) for _ in range(2 * affine))]
    return [x.to(dtype) for x in tensors]


# Numbers of groups, and shapes: several channels in a group, one, or all; one sample or several; no pixels.
CASES = [
    (6, (1, 12, 3, 2)),
    (5, (1, 5, 4)),
    (3, (2, 6, 2, 2, 2)),
    (1, (1, 4, 4, 4)),
    (3, (2, 12)),
    (32, (1, 64, 2, 2)),
]
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-10}


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(("groups", "shape"), CASES)
def test_results_of_all_shards_are_the_full_result(groups: int, shape: tuple[int, ...], affine: bool) -> None:
    """Evaluation runs each call on shards along every letter that may be divided."""
    tensors, captured = drawn(shape, affine, torch.float64), Captured()
    for x, y in zip(values_of(captured, groups, tensors), values_of(None, groups, tensors), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-10)
    vertices = [vertex for program in captured.programs for vertex in program.vertices]
    norms = [vertex for vertex in vertices if vertex.call is not None and "group_norm" in vertex.call.function]
    assert len(norms) > 3
    for vertex in norms:
        extents = zip(vertex.call.operands[0], vertex.inputs[0].extents, strict=True)
        divisible = [extent for letter, extent in extents if letter not in vertex.call.undivided]
        assert math.prod(divisible) == shape[0] * groups


@pytest.mark.parametrize("sites", [1, 2, 3, 4, 5, 6, 7, 8] if EVERYTHING else [1, 2, 3, 8])
@pytest.mark.parametrize(("groups", "shape"), CASES if EVERYTHING else CASES[:2])
def test_group_norms_on_sites_are_torchs(groups: int, shape: tuple[int, ...], sites: int) -> None:
    joinsum.init(sites=sites, cluster=CUTTING, plan_cache=False)
    cases = [(affine, dtype) for affine in (True, False) for dtype in TOLERANCES]
    for affine, dtype in cases if EVERYTHING else [(True, torch.float64), (sites % 2 == 0, torch.float32)]:
        tensors = drawn(shape, affine, dtype)
        for x, y in zip(values_of(Planned(), groups, tensors), values_of(None, groups, tensors), strict=True):
            torch.testing.assert_close(x, y, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


@pytest.mark.parametrize("sites", [2, 3])
def test_a_step_divides_the_groups_of_one_sample(sites: int) -> None:
    """Nothing but channels can be divided; five groups are shared unevenly."""
    torch._dynamo.reset()
    joinsum.init(sites=sites, cluster=CUTTING)
    models = []
    for _ in range(2):
        torch.manual_seed(1)
        convolutions = nn.Conv2d(2, 10, 3, padding=1), nn.Conv2d(10, 2, 3, padding=1)
        models.append(nn.Sequential(convolutions[0], nn.GroupNorm(5, 10), nn.SiLU(), convolutions[1]).double())
    plain, planned = models
    data = [(torch.randn(1, 2, 6, 6).double(), torch.randn(1, 2, 6, 6).double()) for _ in range(3)]
    wanted = train_by_torch(plain, nn.functional.mse_loss, sgd(plain.parameters()), data)
    step = joinsum.train_step(planned, nn.functional.mse_loss, sgd(planned.parameters()))
    assert [step(x, y).item() for x, y in data] == pytest.approx(wanted, rel=1e-10)
    assert {"0.weight", "1.weight", "1.bias", "3.weight"} <= set(divided(planned))
    step.sync()
    same(planned, plain, 1e-10)
