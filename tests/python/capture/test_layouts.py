"""On one site convolutions compute with channels last, and what reads their results as well; results are torch's."""

from __future__ import annotations

import copy
from collections.abc import Callable

import joinsum
import pytest
import torch
import torch.nn.functional as F
from joinsum.capture.layouts import use_channels_last
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

LAST = torch.channels_last


class CheckedLayouts(fx.Interpreter):
    """Asserts that the values of all nodes have the layouts that the graph says."""

    def run_node(self, n: fx.Node) -> object:
        result = super().run_node(n)
        values, wanted = ((x if isinstance(x, (tuple, list)) else [x]) for x in (result, n.meta.get("val")))
        if n.op == "call_function":
            for x, y in zip(values, wanted, strict=True):
                if isinstance(x, Tensor):
                    assert (x.shape, x.stride()) == (y.shape, y.stride()), n.format_node()
        return result


def changed(function: Callable[..., object], *tensors: Tensor) -> fx.GraphModule:
    """A graph that computes the same as before, in other layouts."""
    gm = make_fx(function, tracing_mode="fake")(*tensors)
    wanted = gm(*tensors)
    use_channels_last(gm.graph)
    gm.recompile()
    found = CheckedLayouts(gm).run(*tensors)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    for x, y in zip(*((each if isinstance(each, (tuple, list)) else [each]) for each in (found, wanted)), strict=True):
        assert x.stride() == y.stride()
    return gm


def copies(gm: fx.GraphModule) -> int:
    clones = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default)
    return sum(node.kwargs.get("memory_format") is LAST for node in clones)


X, W, V = torch.randn(2, 3, 8, 8), torch.randn(6, 3, 3, 3), torch.randn(6, 6, 3, 3)


def test_between_convolutions_no_layout_changes() -> None:
    def two(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return F.conv2d(F.relu(F.conv2d(x, w)) + 1, v)

    assert copies(changed(two, X, W, V)) == 3  # the image and the weights


def test_other_operators_read_the_layout_that_they_knew() -> None:
    def flat(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        y = F.conv2d(F.conv2d(x, w), v)
        return y.flatten(1), y.permute(0, 2, 3, 1) * 2

    gm = changed(flat, X, W, V)
    assert copies(gm) == 3


def test_gradients_are_torchs() -> None:
    def loss(x: Tensor, w: Tensor, v: Tensor, scale: Tensor, shift: Tensor) -> tuple[Tensor, ...]:
        given = [each.detach().requires_grad_() for each in (x, w, v, scale, shift)]
        y = F.batch_norm(F.conv2d(given[0], given[1], padding=1), None, None, given[3], given[4], True)
        y = F.max_pool2d(F.relu(y), 2)
        y = F.relu(F.conv2d(y, given[2], padding=1) + y)
        y = F.adaptive_avg_pool2d(y, (2, 2))
        return torch.autograd.grad((y.flatten(1).square()).sum(), given)

    gm = changed(loss, X, W, V, torch.rand(6), torch.rand(6))
    assert copies(gm) >= 3


def test_group_norms_and_joined_channels_keep_channels_last() -> None:
    def loss(x: Tensor, w: Tensor, v: Tensor, scale: Tensor, shift: Tensor) -> tuple[Tensor, ...]:
        given = [each.detach().requires_grad_() for each in (x, w, v, scale, shift)]
        y = F.silu(F.group_norm(F.conv2d(given[0], given[1], padding=1), 3, given[3], given[4]))
        z = torch.cat([F.silu(F.group_norm(F.conv2d(y, given[2], padding=1), 2)), y], 1)
        z = F.conv2d(z, torch.cat([given[2], given[2]], 1))
        return torch.autograd.grad(z.square().mean(), given)

    gm = changed(loss, X, W, V, torch.rand(6), torch.rand(6))
    contiguous = [
        node
        for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default)
        if node.kwargs.get("memory_format") is not LAST
    ]
    assert sum(node.meta["val"].shape[2:] == (8, 8) for node in contiguous) == 1  # the gradient of the image


SLICED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "channels": lambda x, w: F.conv2d(x, w)[:, :4].relu().flatten(1),
    "gate": lambda x, w: (lambda p, q: (p * q.sigmoid()).view(2, -1))(*F.conv2d(x, w).chunk(2, 1)),
    "pool": lambda x, w: F.max_pool2d(F.conv2d(x, w)[:, 1:5], 2).view(2, -1),
    "step": lambda x, w: F.conv2d(x, w)[:, ::2].relu() * 1.5,
    "crop": lambda x, w: F.conv2d(x, w)[:, :, 1:4].clone().flatten(2),
    "itself": lambda x, w: F.conv2d(x, w)[:, :4],
}


@pytest.mark.parametrize("name", SLICED)
def test_slices_of_results(name: str) -> None:
    joinsum.init(sites=1)
    torch._dynamo.reset()
    compiled = torch.compile(SLICED[name], backend="joinsum", fullgraph=True)
    torch.testing.assert_close(compiled(X, W), SLICED[name](X, W), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", [torch.contiguous_format, LAST], ids=str)
def test_a_group_norm_of_what_is_not_trained(layout: torch.memory_format) -> None:
    joinsum.init(sites=1)
    for first in (nn.Conv2d(3, 4, 3, padding=1).requires_grad_(False), nn.Identity()):
        channels = 4 if isinstance(first, nn.Conv2d) else 3
        plain = nn.Sequential(first, nn.GroupNorm(channels, channels), nn.ReLU(), nn.Conv2d(channels, 3, 3, padding=1))
        model = copy.deepcopy(plain)
        x = torch.randn(2, 3, 8, 8).contiguous(memory_format=layout)
        trained = [p for p in model.parameters() if p.requires_grad]
        step = joinsum.train_step(model, F.mse_loss, torch.optim.SGD(trained, lr=0.1))
        # torch's kernel for channels last crashes here.
        loss = F.mse_loss(plain(x.contiguous()), x)
        loss.backward()
        torch.testing.assert_close(step(x, x), loss.detach(), rtol=1e-4, atol=1e-5)
        step.sync()
        for mine, own in zip(model.parameters(), plain.parameters(), strict=True):
            if own.grad is not None:
                torch.testing.assert_close(mine, own - 0.1 * own.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_convolutions_of_other_types_stay(dtype: torch.dtype) -> None:
    gm = make_fx(F.conv2d, tracing_mode="fake")(X.to(dtype), W.to(dtype))
    assert use_channels_last(gm.graph) == 0


def test_a_graph_stays_whose_results_would_be_copied() -> None:
    def saved(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        y = F.conv2d(x, w)
        z = F.relu(y)
        return y, z, F.conv2d(z, v).flatten(1)

    gm = make_fx(saved, tracing_mode="fake")(X, W, V)
    assert use_channels_last(gm.graph) == 0


def test_a_graph_without_convolutions_stays() -> None:
    gm = make_fx(lambda x: F.max_pool2d(x, 2) * 2, tracing_mode="fake")(X)
    assert use_channels_last(gm.graph) == 0


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.Conv2d(8, 8, 3, padding=1)
        self.shortcut, self.norm, self.other = nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 16, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.first(x)))
        y = F.relu(self.other(self.second(y)) + self.shortcut(x))
        return self.head(F.max_pool2d(y, 2).flatten(1))


def test_a_training_step_is_torchs() -> None:
    joinsum.init(sites=1)
    plain = Residual()
    model = copy.deepcopy(plain)
    x, target = torch.randn(4, 3, 8, 8), torch.randint(5, (4,))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    step = joinsum.train_step(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    for _ in range(3):
        loss = F.cross_entropy(plain(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(step(x, target), loss.detach(), rtol=1e-4, atol=1e-5)
    step.sync()
    for mine, own in zip(model.state_dict().values(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, own, rtol=1e-4, atol=1e-5)
        assert mine.is_contiguous()
