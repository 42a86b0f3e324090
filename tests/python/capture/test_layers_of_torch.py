"""Each layer of torch.nn on two sites: its results, its gradients by a step, and its buffers are plain torch's, or
joinsum refuses it and names the operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import joinsum
import pytest
import torch
from joinsum.base.errors import CaptureError
from layers_of_torch import CONTAINERS, LAYERS, OF_LATER_VERSIONS, Bag, given
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from training import CUTTING, same, takes_long

# Layers that are refused, and what the error names.
REFUSED = {
    "AdaptiveLogSoftmaxWithLoss": "torch.nn.modules.adaptive.forward",  # gathers the rows of each cluster of classes
    "CTCLoss": "ctc_loss",
    "CrossMapLRN2d": "resize_as_",
    "FractionalMaxPool3d": "aten::fractional_max_pool3d_backward",
    "GaussianNLLLoss": "torch.nn.functional.gaussian_nll_loss",  # raises where a variance is negative
}

EQUAL = [name for name in LAYERS if name not in REFUSED]

# What every change compares, in one model; each layer by itself is compared nightly.
EVERY_CHANGE = [
    "Conv1d", "ConvTranspose2d", "MaxPool1d", "CircularPad1d", "InstanceNorm2d", "RMSNorm", "PReLU", "EmbeddingBag",
    "Bilinear", "PixelShuffle",
]  # fmt: skip


@pytest.fixture(autouse=True)
def two_sites() -> Iterator[None]:
    torch._dynamo.reset()
    joinsum.init(sites=2, cluster=CUTTING)
    yield
    joinsum.init()


def loss_of(results: dict[str, Any], _: object) -> Tensor:
    """Depends on each result of each layer in its own way."""
    return sum((x.sin() * (1 + i)).sum() for i, x in enumerate(floats(results)))


def floats(results: Any) -> list[Tensor]:
    return [x for x in tree_leaves(results) if isinstance(x, Tensor) and x.is_floating_point()]


def train(names: list[str], x: tuple[Tensor, ...]) -> tuple[nn.Module, Tensor]:
    """A model after one plain step, and its loss."""
    plain = Bag(names)
    loss = loss_of(plain(*x), None)
    loss.backward()
    torch.optim.SGD(plain.parameters(), lr=0.01).step()
    return plain, loss


def compare(names: list[str]) -> None:
    x = given().tensors()
    wanted = Bag(names)(*x)
    model = Bag(names)
    joinsum.distribute(model, x)
    with torch.no_grad():
        found = model(*x)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    torch._dynamo.reset()
    plain, loss = train(names, x)
    trained = Bag(names)
    step = joinsum.train_step(trained, loss_of, torch.optim.SGD(trained.parameters(), lr=0.01))
    torch.testing.assert_close(step(*x, x[0]), loss.detach(), rtol=1e-10, atol=1e-10)
    step.sync()
    same(trained, plain, 1e-10)


@pytest.mark.slow
def test_layers_in_one_model_are_torchs() -> None:
    compare(EVERY_CHANGE)


@takes_long
@pytest.mark.parametrize("name", EQUAL)
def test_a_layer_by_itself_is_torchs(name: str) -> None:
    compare([name])


@pytest.mark.parametrize("name", REFUSED)
def test_layers_that_are_refused_name_their_operator(name: str) -> None:
    with pytest.raises(CaptureError, match=REFUSED[name]):
        compare([name])


def test_each_layer_of_torch_is_compared_or_refused() -> None:
    classes = {name for name, each in vars(nn).items() if isinstance(each, type) and issubclass(each, nn.Module)}
    layers = {name for name in classes - CONTAINERS - OF_LATER_VERSIONS if not name.startswith("Lazy")}
    assert not layers - LAYERS.keys(), "add them to LAYERS in tests/support/layers_of_torch.py"
    assert not LAYERS.keys() - layers
