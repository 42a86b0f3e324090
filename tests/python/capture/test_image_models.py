"""Models of images as torchvision, timm and diffusers write them, trained in each way on several sites: losses,
parameters and buffers are plain torch's."""

from __future__ import annotations

from collections.abc import Iterator

import joinsum
import pytest
import torch
from models_of_images import IMAGE_CASES
from torch import Tensor, nn
from training import CUTTING, divided, rare, same, sgd, train_by_torch

STEPS = 3

# Parameters of which no site has all.
DIVIDED = {"unet": ["down.norm1.weight", "attention.norm.weight", "up.norm2.bias"]}

# One image of a U-Net, of which no axis but the channels can be divided.
BATCHES = {"unet": 1}


@pytest.fixture(autouse=True)
def afterwards_one_site() -> Iterator[None]:
    yield
    joinsum.init()


def new_model(name: str) -> nn.Module:
    torch.manual_seed(7)
    return IMAGE_CASES[name].make().double()


def data(name: str) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(11)
    drawn = [IMAGE_CASES[name].batch(BATCHES.get(name, 2), generator) for _ in range(STEPS)]
    return [(x.double(), y.double() if y.is_floating_point() else y) for x, y in drawn]


def train_in_steps(name: str, model: nn.Module) -> list[float]:
    step = joinsum.train_step(model, IMAGE_CASES[name].loss, sgd(model.parameters()))
    losses = [step(x, y).item() for x, y in data(name)]
    assert joinsum.sites() == 1 or joinsum.trace().bytes_sent > 0
    assert joinsum.sites() == 1 or set(DIVIDED.get(name, ())) <= set(divided(model))
    step.sync()
    return losses


def train_distributed(name: str, model: nn.Module) -> list[float]:
    joinsum.distribute(model, data(name)[0][0])
    losses = train_by_torch(model, IMAGE_CASES[name].loss, sgd(model.parameters()), data(name))
    joinsum.gather(model)
    return losses


def train_compiled(name: str, model: nn.Module) -> list[float]:
    compiled = torch.compile(model, backend="joinsum", fullgraph=True)
    return train_by_torch(compiled, IMAGE_CASES[name].loss, sgd(model.parameters()), data(name))


WAYS = {"train_step": train_in_steps, "distribute": train_distributed, "torch.compile": train_compiled}

# What every change trains; the rest is trained nightly.
EVERY_CHANGE = [
    ("unet", "train_step", 2),
    ("resnet", "train_step", 2),
    ("vit", "distribute", 2),
]
ALL = [(name, way, sites) for name in IMAGE_CASES for way in WAYS for sites in (1, 2, 4)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "way", "sites"), [*EVERY_CHANGE, *(rare(*each) for each in ALL if each not in EVERY_CHANGE)]
)
def test_models_of_images_train_as_by_torch(name: str, way: str, sites: int) -> None:
    torch._dynamo.reset()
    joinsum.init(sites=sites, cluster=CUTTING)
    plain, model = new_model(name), new_model(name)
    wanted = train_by_torch(plain, IMAGE_CASES[name].loss, sgd(plain.parameters()), data(name))
    assert WAYS[way](name, model) == pytest.approx(wanted, rel=1e-9)
    same(model, plain, 1e-9)
