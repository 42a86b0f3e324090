"""ResNet-18 and ResNet-50 as torchvision defines them, with fewer channels: the inner channels of every block are cut,
and their subnets train as reference models that are that much narrower."""

from __future__ import annotations

from collections.abc import Mapping

import joinsum
import pytest
import torch
from joinsum.ist.layers.discovery import find_layers
from reference_subnets import Axes, compare_rounds
from torch import nn

Inner = Mapping[str, int]


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, name: str, channels: int, planes: int, stride: int, inner: Inner) -> None:
        super().__init__()
        hidden = inner.get(f"{name}.conv1", planes)
        self.conv1 = nn.Conv2d(channels, hidden, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(hidden)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(hidden, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = shortcut(channels, planes, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, name: str, channels: int, planes: int, stride: int, inner: Inner) -> None:
        super().__init__()
        first, second = inner.get(f"{name}.conv1", planes), inner.get(f"{name}.conv2", planes)
        self.conv1 = nn.Conv2d(channels, first, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(first)
        self.conv2 = nn.Conv2d(first, second, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(second)
        self.conv3 = nn.Conv2d(second, planes * 4, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes * 4)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(channels, planes * 4, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


def shortcut(channels: int, out: int, stride: int) -> nn.Module | None:
    if stride == 1 and channels == out:
        return None
    return nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))


class ResNet(nn.Module):
    """`width` channels in the first layer, where torchvision has 64; `inner` has other numbers of channels by layer."""

    def __init__(
        self, block: type[BasicBlock | Bottleneck], counts: tuple[int, ...], width: int, inner: Inner | None = None
    ) -> None:
        super().__init__()
        inner = inner or {}
        channels = inner.get("conv1", width)
        self.conv1 = nn.Conv2d(3, channels, 7, 2, 3, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(channels), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        for number, count in enumerate(counts, 1):
            planes, blocks = width * 2 ** (number - 1), []
            for place in range(count):
                stride = 2 if number > 1 and place == 0 else 1
                blocks.append(block(f"layer{number}.{place}", channels, planes, stride, inner))
                channels = planes * block.expansion
            setattr(self, f"layer{number}", nn.Sequential(*blocks))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(channels, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


KINDS = {"ResNet-18": (BasicBlock, (2, 2, 2, 2)), "ResNet-50": (Bottleneck, (3, 4, 6, 3))}


# Where the first block has a convolution in its shortcut, the model's first channels cross no residual sum.
FIRST = {"ResNet-18": [], "ResNet-50": [("conv1", "bn1", ["layer1.0.conv1", "layer1.0.downsample.0"])]}


def groups_of(kind: str) -> list[tuple[str, str, list[str]]]:
    """The convolutions whose channels are inner ones, in the model's order, their norms and what reads them."""
    block, counts = KINDS[kind]
    blocks = [f"layer{number}.{place}" for number, count in enumerate(counts, 1) for place in range(count)]
    return FIRST[kind] + [
        (f"{each}.conv{number}", f"{each}.bn{number}", [f"{each}.conv{number + 1}"])
        for each in blocks
        for number in ((1,) if block is BasicBlock else (1, 2))
    ]


def axes_of(kind: str) -> Axes:
    """What the inner channels cut: outputs of their convolution, its norm, inputs of the next ones."""
    axes: dict[str, dict[int, tuple[str, int]]] = {}
    for layer, norm, readers in groups_of(kind):
        axes.setdefault(f"{layer}.weight", {})[0] = (layer, 1)
        axes |= {f"{norm}.{each}": {0: (layer, 1)} for each in ("weight", "bias", "running_mean", "running_var")}
        for reader in readers:
            axes.setdefault(f"{reader}.weight", {})[1] = (layer, 1)
    return axes


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_inner_channels_of_all_blocks_are_cut_and_no_others(kind: str) -> None:
    block, counts = KINDS[kind]
    with torch.device("meta"):
        model = ResNet(block, counts, 64)
    # Torchvision's 11,689,512 and 25,557,032, with 10 classes instead of 1,000.
    assert sum(p.numel() for p in model.parameters()) == {"ResNet-18": 11_181_642, "ResNet-50": 23_528_522}[kind]
    found = find_layers(model, False, None)
    groups = groups_of(kind)
    assert len(groups) == {"ResNet-18": 8, "ResNet-50": 1 + 2 * 16}[kind]
    assert len(found.layers) == len(groups)
    for layer, (name, norm, readers) in zip(found.layers, groups, strict=True):
        members = [[each.module for each in group] for group in (layer.producers, layer.followers, layer.consumers)]
        assert (layer.name, *members) == (name, [name], [norm], readers)
        assert (layer.neurons, layer.scaled) == (64 if name == "conv1" else 64 * 2 ** (int(name[5]) - 1), False)
    last = "conv2" if block is BasicBlock else "conv3"
    assert found.uncut[f"layer3.1.{last}"] == found.uncut["layer3.0.downsample.0"] == "they cross a residual sum"
    assert found.uncut["fc"] == "they reach the output"


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
    optimizer.step()


@pytest.mark.parametrize(
    ("kind", "sites", "width"),
    [
        ("ResNet-18", 2, 4),
        ("ResNet-18", 3, 4),
        ("ResNet-50", 2, 2),
        ("ResNet-50", 3, 3),
    ],
)
def test_subnets_train_as_narrower_models(kind: str, sites: int, width: int) -> None:
    joinsum.init(sites=sites)
    torch.manual_seed(2)
    block, counts = KINDS[kind]
    model = ResNet(block, counts, width).double()
    data = [(torch.randn(4, 3, 32, 32, dtype=torch.float64), torch.randint(0, 10, (4,))) for _ in range(2 * sites)]
    compare_rounds(
        model,
        lambda inner: ResNet(block, counts, width, inner).double(),
        axes_of(kind),
        lambda parameters: torch.optim.SGD(parameters, lr=0.02, momentum=0.9),
        data,
        step,
        rounds=2,
        tolerance=1e-8,
        seed=1,
    )
