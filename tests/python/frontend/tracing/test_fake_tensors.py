"""Claims about tensors that stand for others in a trace: they say what theirs look like, and keep none."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from unittest import mock

import joinsum
import pytest
import torch
from joinsum.base.trees import tree_map
from joinsum.frontend.tracing.torch_internals import FakeTensors, tracing_all
from torch import Tensor, nn
from torch.utils import _pytree as pytree


@pytest.fixture(autouse=True, params=[1, 2])
def sites(request: pytest.FixtureRequest) -> Iterator[None]:
    torch._dynamo.reset()
    joinsum.init(sites=request.param)
    yield
    joinsum.init()


class Difference(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.layer(x) - 2 * self.layer(y)


def distributed() -> tuple[Difference, Difference]:
    plain, model = Difference(), Difference()
    joinsum.distribute(model, (torch.rand(5, 4), torch.rand(5, 4)))
    return plain, model


@torch.no_grad()
def test_batches_that_look_alike_are_not_confused() -> None:
    plain, model = distributed()
    x, y = torch.rand(5, 4), torch.rand(5, 4)
    for first, second in ((x, y), (y, x), (x, x), (y, y + 1), (x[:2], y[:2]), (y, x)):
        torch.testing.assert_close(model(first, second), plain(first, second))


def test_a_batch_that_requires_a_gradient_gets_it_and_the_next_one_does_not() -> None:
    plain, model = distributed()
    for asks in (False, True, False):
        xs = [torch.rand(5, 4, generator=torch.Generator().manual_seed(1)).requires_grad_(asks) for _ in range(2)]
        for x, each in zip(xs, (plain, model), strict=True):
            each(x, torch.ones(5, 4)).sum().backward()
        assert (xs[0].grad is not None) == asks
        torch.testing.assert_close(xs[1].grad, xs[0].grad)


@torch.no_grad()
def test_no_reference_to_a_batch_remains() -> None:
    _, model = distributed()
    x = torch.rand(5, 4)
    seen = weakref.ref(x)
    model(x, x)
    del x
    gc.collect()
    assert seen() is None


@torch.no_grad()
def test_a_parameter_that_is_another_one_is_seen() -> None:
    plain, model = distributed()
    x = torch.rand(5, 4)
    model(x, x)
    for each in (plain, model):
        each.layer.bias = nn.Parameter(torch.arange(3.0))
    torch.testing.assert_close(model(x, x), plain(x, x))
    for each in (plain, model):
        each.layer = nn.Linear(4, 2)
        each.layer.load_state_dict({"weight": torch.ones(2, 4), "bias": torch.zeros(2)})
    torch.testing.assert_close(model(x, x), plain(x, x))


@torch.no_grad()
def test_buffers_that_look_like_batches_are_not_confused_with_them() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("shift", torch.rand(5, 4, generator=torch.Generator().manual_seed(2)))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x - 2 * y + 4 * self.shift

    plain, model = Shifted(), Shifted()
    joinsum.distribute(model, (torch.rand(5, 4), torch.rand(5, 4)))
    x, y = torch.rand(5, 4), torch.rand(5, 4)
    for first, second in ((x, y), (y, x), (x, x), (x + 1, y)):
        torch.testing.assert_close(model(first, second), plain(first, second))
    model.shift = plain.shift = torch.ones(5, 4)
    for first, second in ((x, y), (model.shift, y), (y, x)):
        torch.testing.assert_close(model(first, second), plain(first, second))


@torch.no_grad()
def test_another_shape_in_the_same_parameter_is_seen() -> None:
    plain, model = distributed()
    x = torch.rand(5, 4)
    model(x, x)
    for each in (plain, model):
        weight, bias = each.layer.weight, each.layer.bias
        torch.utils.swap_tensors(weight, nn.Parameter(torch.ones(2, 4)))
        torch.utils.swap_tensors(bias, nn.Parameter(torch.zeros(2)))
    torch.testing.assert_close(model(x, x), plain(x, x))


def test_trees_are_mapped_as_torch_maps_them() -> None:
    tree = {"a": [1, (2.0, None)], "b": OrderedDict(c=torch.ones(2), d="text"), "e": torch.Size([3]), "f": [], "g": ()}
    actual, wanted = tree_map(repr, tree), pytree.tree_map(repr, tree)
    assert actual == wanted
    assert type(actual["b"]) is OrderedDict


def test_settings_of_torch_are_as_before_also_after_an_error() -> None:
    settings = torch._dynamo.config

    def fails() -> None:
        with tracing_all():
            assert settings.trace_autograd_ops
            assert settings.recompile_limit == 64
            raise ValueError("stop")

    with torch._dynamo.config.patch(recompile_limit=5):
        with pytest.raises(ValueError, match="stop"):
            fails()
        assert settings.recompile_limit == 5
    assert not settings.trace_autograd_ops


def test_what_a_function_writes_into_a_slice_is_there() -> None:
    whole, wanted = torch.ones(4, 6), torch.ones(4, 6)
    model = torch.nn.Linear(3, 3)

    def f(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    class Writing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return model(f(x))

    distributed = joinsum.distribute(Writing(), whole[:, :3].clone())
    distributed(whole[:, :3])
    f(wanted[:, :3])
    assert torch.equal(whole, wanted)


def test_batch_norm_in_evaluation_is_captured_where_a_gpu_gives_statistics() -> None:
    def on_a_gpu(self: FakeTensors, tensor: Tensor) -> Tensor:
        with self._mode, torch.no_grad():
            fake = torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda")
        return nn.Parameter(fake, requires_grad=False) if isinstance(tensor, nn.Parameter) else fake

    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval().requires_grad_(False), torch.rand(4, 3, 6, 6)
    wanted = model(x)
    with mock.patch.object(FakeTensors, "of", on_a_gpu), torch.no_grad():
        torch.testing.assert_close(joinsum.distribute(model, x)(x), wanted)
