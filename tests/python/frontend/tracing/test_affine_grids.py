"""Claims about affine grids, whose gradient torch does not compute for symbolic sizes: joinsum composes them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import joinsum
import pytest
import torch
from joinsum.capture.decompositions.composed import COMPOSED
from torch import Tensor, nn
from torch.nn import functional

SIZES = [(2, 3, 4, 5), (2, 3, 1, 5), (1, 2, 3, 4, 5), (2, 1, 1, 1, 3), (1, 1, 1, 1)]


def matrices(size: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Tensor:
    axes = len(size) - 2
    return torch.randn(size[0], axes, axes + 1, dtype=dtype)


@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_the_composed_grid_is_torchs(size: tuple[int, ...], align: bool) -> None:
    torch.manual_seed(0)
    compose = COMPOSED[torch.ops.aten.affine_grid_generator.default]
    theta = matrices(size).requires_grad_(True)
    wanted, found = functional.affine_grid(theta, list(size), align), compose(theta, size, align)
    torch.testing.assert_close(found, wanted)
    weights = torch.randn_like(wanted)
    slopes = [torch.autograd.grad((grid * weights).sum(), theta) for grid in (wanted, found)]
    torch.testing.assert_close(*slopes)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_grid_of_half_width_has_the_width_of_its_matrices(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    theta, size = matrices((2, 3, 4, 5), dtype), (2, 3, 4, 5)
    found = COMPOSED[torch.ops.aten.affine_grid_generator.default](theta, size, False)
    assert found.dtype == dtype
    wanted = functional.affine_grid(theta.double(), list(size), False)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-2, atol=2e-2)


def test_matrices_of_another_batch_are_refused() -> None:
    with pytest.raises(RuntimeError, match="3 matrices for a batch of 2"):
        COMPOSED[torch.ops.aten.affine_grid_generator.default](torch.ones(3, 2, 3), (2, 1, 4, 4), False)


class Transformer(nn.Module):
    """A spatial transformer: it samples its input where a layer says."""

    def __init__(self, extents: tuple[int, ...], align: bool) -> None:
        super().__init__()
        axes, self.align = len(extents), align
        torch.manual_seed(0)
        self.layer = nn.Linear(2 * torch.Size(extents).numel(), axes * (axes + 1))
        self.shape = (axes, axes + 1)

    def forward(self, x: Tensor) -> Tensor:
        theta = self.layer(x.flatten(1)).view(-1, *self.shape)
        grid = functional.affine_grid(theta, x.shape, align_corners=self.align)  # type: ignore[arg-type]
        return functional.grid_sample(x, grid, align_corners=self.align).tanh()


EXTENTS = [(4, 5), (3, 4, 2)]


def stepping(model: nn.Module) -> Callable[[Tensor, Tensor], Any]:
    return joinsum.train_step(model, functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.5))


def calling(planned: Callable[[Tensor], Tensor], model: nn.Module) -> Callable[[Tensor, Tensor], Any]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = functional.mse_loss(planned(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def distributing(model: nn.Module) -> Callable[[Tensor, Tensor], Any]:
    x = torch.ones(4, 2, *((4, 5) if model.shape == (2, 3) else (3, 4, 2)))
    planned = joinsum.distribute(model, x)
    return calling(planned, planned)


WAYS: dict[str, Callable[[nn.Module], Callable[[Tensor, Tensor], Any]]] = {
    "train_step": stepping,
    "distribute": distributing,
    "torch.compile": lambda model: calling(torch.compile(model, backend="joinsum", fullgraph=True), model),
}


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("extents", EXTENTS, ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_a_spatial_transformer_trains_as_with_torch_for_each_batch_size(
    way: str, extents: tuple[int, ...], align: bool, sites: int
) -> None:
    torch._dynamo.reset()
    joinsum.init(sites=sites)
    plain = Transformer(extents, align)
    step, wanted = WAYS[way](copy.deepcopy(plain)), calling(plain, plain)
    for batch in (4, 6, 3):
        x, y = torch.randn(batch, 2, *extents), torch.randn(batch, 2, *extents)
        torch.testing.assert_close(step(x, y), wanted(x, y), rtol=1e-5, atol=1e-6)


def test_without_gradients_it_samples_as_torch_does() -> None:
    torch._dynamo.reset()
    joinsum.init(sites=3)
    plain = Transformer((4, 5), False)
    x = torch.randn(4, 2, 4, 5)
    compiled = joinsum.compile(plain)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), plain(x), rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), plain(x), rtol=1e-5, atol=1e-6)
