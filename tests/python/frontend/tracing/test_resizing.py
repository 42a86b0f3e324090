"""Resized images are those of torch's kernels, with their gradients, in every mode, layout and dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import joinsum
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from training import train_by_torch

MODES = [
    (1, "nearest"),
    (1, "nearest-exact"),
    (1, "linear"),
    (2, "nearest"),
    (2, "nearest-exact"),
    (2, "bilinear"),
    (2, "bicubic"),
    (2, "area"),
    (3, "nearest"),
    (3, "nearest-exact"),
    (3, "trilinear"),
]
SIZES: list[dict[str, Any]] = [
    {"scale_factor": 2},
    {"scale_factor": 1.7},
    {"scale_factor": 1.7, "recompute_scale_factor": True},
    {"scale_factor": 0.6},
    {"size": 7},
    {"size": 3},
]


@pytest.fixture(autouse=True, params=[1, 3])
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    torch._dynamo.reset()
    joinsum.init(sites=request.param, plan_cache=False)
    yield request.param
    joinsum.init()


def outcome(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    leaf = x.detach().clone().requires_grad_()
    result = function(leaf)
    torch.manual_seed(1)
    (gradient,) = torch.autograd.grad(result, leaf, torch.randn_like(result))
    return result.detach(), gradient


def same(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    compiled = torch.compile(function, backend="joinsum", fullgraph=True)
    for found, wanted in zip(outcome(compiled, x), outcome(function, x), strict=True):
        assert found.dtype is wanted.dtype
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("axes", "mode"), MODES)
def test_every_mode(axes: int, mode: str, size: dict[str, Any]) -> None:
    torch.manual_seed(0)
    same(lambda x: F.interpolate(x * 2, mode=mode, **size).sin(), torch.randn(6, 4, *[5, 6, 7][:axes]))


@pytest.mark.parametrize("mode", ["linear", "bilinear", "bicubic", "trilinear"])
def test_aligned_corners(mode: str) -> None:
    axes = {"linear": 1, "trilinear": 3}.get(mode, 2)
    torch.manual_seed(0)
    x = torch.randn(3, 4, *[5, 6, 7][:axes], dtype=torch.float64)
    same(lambda x: F.interpolate(x, scale_factor=[1.5] * axes, mode=mode, align_corners=True), x)


def test_other_dtypes_autocast_and_antialiased_images() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 6, 6)
    same(lambda x: F.interpolate(x, scale_factor=2), x.bfloat16())
    same(lambda x: F.interpolate(x, size=(4, 3), mode="bilinear", antialias=True), x)
    bytes_of_images = (x.abs() * 99).byte()
    for mode in ("nearest", "bilinear", "bicubic"):
        torch._dynamo.reset()
        found = torch.compile(lambda x, m=mode: F.interpolate(x, scale_factor=2, mode=m), backend="joinsum")(
            bytes_of_images
        )
        assert torch.equal(found, F.interpolate(bytes_of_images, scale_factor=2, mode=mode))

    def mixed(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return F.interpolate(x, scale_factor=2, mode="bilinear")

    same(mixed, x)


LAYOUTS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "channels": (lambda x: F.interpolate(x[:, :4], scale_factor=2).flatten(1), (2, 8, 6, 6)),
    "one pixel": (lambda x: F.interpolate(x, size=(4, 4)).reshape(2, -1), (2, 8, 1, 1)),
    "pooled": (
        lambda x: F.interpolate(F.adaptive_avg_pool2d(x, 1), size=(4, 4), mode="bilinear").flatten(1),
        (2, 8, 6, 6),
    ),
    "bicubic": (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic").flatten(1), (2, 3, 4, 4)),
    "nearest 3d": (lambda x: F.interpolate(x, scale_factor=2).flatten(1), (2, 3, 4, 4, 4)),
    "trilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="trilinear").flatten(1), (2, 3, 4, 4, 4)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_images_with_channels_last(name: str) -> None:
    function, shape = LAYOUTS[name]
    torch.manual_seed(0)
    layout = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    x = torch.randn(shape).contiguous(memory_format=layout)
    outcomes = []
    for call in (torch.compile(function, backend="joinsum", fullgraph=True), function):
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        result = call(leaf)
        slopes = torch.linspace(-1, 1, result.numel()).view(result.shape)
        outcomes.append((result.detach(), *torch.autograd.grad(result, leaf, slopes)))
    for found, wanted in zip(*outcomes, strict=True):
        torch.testing.assert_close(found, wanted)


def test_gradients_of_gradients() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    arguments = ([7, 7], "bicubic", False, None)
    assert torch.autograd.gradgradcheck(lambda x: torch.ops.joinsum.resize(x, *arguments) ** 2, x)


def test_sizes_that_change() -> None:
    compiled = torch.compile(lambda x: F.interpolate(x, scale_factor=1.5), backend="joinsum", dynamic=True)
    for extent in (6, 8, 10):
        x = torch.randn(3, 2, extent, extent + 2)
        torch.testing.assert_close(compiled(x), F.interpolate(x, scale_factor=1.5))


@pytest.mark.parametrize(
    "arguments",
    [
        {"scale_factor": 2, "align_corners": True},
        {"scale_factor": 2, "size": 4},
        {"scale_factor": (2, 2, 2)},
        {"size": 4, "mode": "cubic"},
        {},
    ],
    ids=str,
)
def test_what_torch_refuses_is_refused(arguments: dict[str, Any]) -> None:
    x = torch.randn(2, 3, 4, 4)
    with pytest.raises(Exception, match=r".") as wanted:
        F.interpolate(x, **arguments)
    words = str(wanted.value).split(".")[0][:40]
    with pytest.raises(Exception, match=r".") as found:
        torch.compile(lambda x: F.interpolate(x, **arguments), backend="joinsum", fullgraph=True)(x)
    assert words in str(found.value)


class Pyramid(nn.Module):
    """Convolutions with group norms down and up again, joined by their channels."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up, self.out = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(16, 3, 1)
        self.first, self.second = nn.GroupNorm(2, 8), nn.GroupNorm(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        wide = F.silu(self.first(self.down(x)))
        narrow = F.silu(self.second(self.up(F.max_pool2d(wide, 2))))
        wider = checkpoint(lambda y: F.interpolate(y, scale_factor=2.0), narrow, use_reentrant=False)
        return self.out(torch.cat([wider, wide], 1))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_pyramid_trains_as_plain_torchs(layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    plain, model = Pyramid(), Pyramid()
    model.load_state_dict(plain.state_dict())
    x, y = (torch.randn(6, 3, 8, 8).contiguous(memory_format=layout) for _ in range(2))
    step = joinsum.train_step(model, F.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    wanted = train_by_torch(plain, F.mse_loss, optimizer, [(x, y)] * 3)
    torch.testing.assert_close(torch.stack([step(x, y) for _ in wanted]), torch.tensor(wanted))
    step.sync()
    for found, own in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found, own, rtol=1e-4, atol=1e-5)
