"""Convolutions, transformer MLPs and gated ones while they learn: beside narrower reference models, and, where what
consumers read is multiplied by the number of sites, beside the full model whose other neurons are zero."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import joinsum
import pytest
import torch
from reference_subnets import Axes, compare_rounds
from torch import nn
from torch.nn import functional as F

Widths = Mapping[str, int]


class Times(nn.Module):
    """Multiplies by a number: in reference models, the number of sites."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor if self.factor > 1 else x


def convolutions(widths: Widths, factor: int = 1, norm: type[nn.Module] = nn.LayerNorm) -> nn.Module:
    """A convolution, a depthwise one, another one, and two Linear layers, the first of which reads four positions of
    each channel."""
    first, second, third = (widths.get(name, full) for name, full in (("0", 8), ("7", 6), ("13", 10)))
    return nn.Sequential(
        *(nn.Conv2d(3, first, 3, padding=1, bias=False), nn.BatchNorm2d(first), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(first, first, 3, padding=1, groups=first, bias=False), nn.BatchNorm2d(first), Times(factor)),
        *(nn.Conv2d(first, second, 1, bias=False), nn.BatchNorm2d(second), nn.SiLU(), nn.AdaptiveAvgPool2d(2)),
        *(nn.Flatten(), Times(factor), nn.Linear(4 * second, third, bias=False), norm(third)),
        *(nn.GELU(), Times(factor), nn.Linear(third, 4)),
    )


STATISTICS = ("weight", "bias", "running_mean", "running_var")
CONVOLUTIONS: Axes = {
    "0.weight": {0: ("0", 1)},
    **{f"1.{tensor}": {0: ("0", 1)} for tensor in STATISTICS},
    "4.weight": {0: ("0", 1)},
    **{f"5.{tensor}": {0: ("0", 1)} for tensor in STATISTICS},
    "7.weight": {0: ("7", 1), 1: ("0", 1)},
    **{f"8.{tensor}": {0: ("7", 1)} for tensor in STATISTICS},
    "13.weight": {0: ("13", 1), 1: ("7", 4)},
    **{f"14.{tensor}": {0: ("13", 1)} for tensor in ("weight", "bias")},
    "17.weight": {1: ("13", 1)},
}


class Mlp(nn.Module):
    """Pre-norm blocks of a transformer's MLP: plain with LayerNorm, or gated with RMSNorm as Llama's."""

    def __init__(self, gated: bool, widths: Widths, factor: int = 1) -> None:
        super().__init__()
        norm: Callable[[int], nn.Module] = nn.RMSNorm if gated else nn.LayerNorm
        hidden = [widths.get(f"up.{place}", full) for place, full in enumerate((12, 10))]
        self.embedding = nn.Embedding(20, 6)
        self.norms = nn.ModuleList(norm(6) for _ in hidden)
        self.up = nn.ModuleList(nn.Linear(6, each) for each in hidden)
        self.gate = nn.ModuleList(nn.Linear(6, each) for each in hidden) if gated else None
        self.down = nn.ModuleList(nn.Linear(each, 6) for each in hidden)
        self.last, self.head, self.times = norm(6), nn.Linear(6, 4), Times(factor)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for place, norm in enumerate(self.norms):
            y = norm(x)
            hidden = self.up[place](y)
            hidden = F.gelu(hidden) if self.gate is None else hidden * F.silu(self.gate[place](y))
            x = x + self.down[place](self.times(hidden))
        return self.head(self.last(x)).mean(1)


def mlp_axes(gated: bool) -> Axes:
    axes: dict[str, dict[int, tuple[str, int]]] = {}
    for place in range(2):
        layer = f"up.{place}"
        for producer in (layer, *([f"gate.{place}"] if gated else [])):
            axes |= {f"{producer}.weight": {0: (layer, 1)}, f"{producer}.bias": {0: (layer, 1)}}
        axes[f"down.{place}.weight"] = {1: (layer, 1)}
    return axes


class NormInside(nn.Module):
    """An embedding whose features are neurons too, and a gated MLP with an RMSNorm of its hidden neurons."""

    def __init__(self, widths: Widths, factor: int = 1) -> None:
        super().__init__()
        features, hidden = widths.get("embedding", 8), widths.get("up", 10)
        self.embedding, self.first = nn.Embedding(20, features), nn.LayerNorm(features)
        self.up, self.gate = nn.Linear(features, hidden), nn.Linear(features, hidden)
        self.norm, self.down, self.times = nn.RMSNorm(hidden), nn.Linear(hidden, 4), Times(factor)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.times(self.first(self.embedding(ids)))
        return self.down(self.times(self.norm(self.up(x) * F.silu(self.gate(x))))).mean(1)


NORM_INSIDE: Axes = {
    "embedding.weight": {1: ("embedding", 1)},
    **{f"first.{tensor}": {0: ("embedding", 1)} for tensor in ("weight", "bias")},
    **{f"{name}.weight": {0: ("up", 1), 1: ("embedding", 1)} for name in ("up", "gate")},
    **{f"{name}.bias": {0: ("up", 1)} for name in ("up", "gate")},
    "norm.weight": {0: ("up", 1)},
    "down.weight": {1: ("up", 1)},
}


class Case(NamedTuple):
    """A model by widths and factor, what is cut, whether its inputs are images, and whether "auto" scales its sums."""

    build: Callable[..., nn.Module]
    axes: Axes
    images: bool
    scaled: bool


CASES = {
    "convolutions": Case(convolutions, CONVOLUTIONS, True, False),
    "transformer MLP": Case(lambda *args: Mlp(False, *args), mlp_axes(False), False, True),
    "gated MLP": Case(lambda *args: Mlp(True, *args), mlp_axes(True), False, True),
    "gated MLP with a norm inside": Case(NormInside, NORM_INSIDE, False, False),
}


def batches(count: int, images: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    found = []
    for _ in range(count):
        x = torch.randn(5, 3, 6, 6, generator=generator, dtype=torch.float64)
        ids = torch.randint(0, 20, (5, 7), generator=generator)
        found.append((x if images else ids, torch.randint(0, 4, (5,), generator=generator)))
    return found


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    optimizer.zero_grad()
    F.cross_entropy(model(batch[0]), batch[1]).backward()
    optimizer.step()


@pytest.mark.parametrize(
    ("name", "sites", "scaled", "homes"),
    [
        *((name, sites, None, "migrating") for name in CASES for sites in (2, 3)),
        ("convolutions", 3, True, "fixed"),
        ("transformer MLP", 3, False, "migrating"),
        ("gated MLP with a norm inside", 2, True, "fixed"),
    ],
)
def test_subnets_train_as_narrower_models(name: str, sites: int, scaled: bool | None, homes: Any) -> None:
    joinsum.init(sites=sites)
    torch.manual_seed(4)
    case = CASES[name]
    is_scaled = case.scaled if scaled is None else scaled
    ist = compare_rounds(
        case.build({}).double(),
        lambda widths: case.build(widths, sites if is_scaled else 1).double(),
        case.axes,
        lambda parameters: torch.optim.Adam(parameters, lr=0.01, eps=1e-3),
        batches(3 * 2 * sites, case.images),
        step,
        rounds=3,
        seed=2,
        scaled=scaled,
        homes=homes,
    )
    assert {layer.scaled for layer in ist.layers} == {is_scaled}


def select(tensor: torch.Tensor, name: str, axes: Axes, own: Mapping[str, list[int]]) -> torch.Tensor:
    """The elements of some neurons."""
    for axis, (layer, block) in axes.get(name, {}).items():
        index = [neuron * block + place for neuron in own[layer] for place in range(block)]
        tensor = tensor.index_select(axis, torch.tensor(index))
    return tensor


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("name", ["convolutions", "transformer MLP", "gated MLP"])
def test_a_subnet_computes_the_full_model_with_other_neurons_at_zero_times_n(name: str, scaled: bool) -> None:
    """Also its gradients: that of a consumer's weight is n times that of the weight which is multiplied by n."""
    sites = 3
    joinsum.init(sites=sites)
    torch.manual_seed(5)
    case = CASES[name]
    model = (convolutions({}, norm=nn.BatchNorm1d) if case.images else case.build({})).double()
    axes = dict(case.axes) | ({f"14.{each}": {0: ("13", 1)} for each in STATISTICS} if case.images else {})
    consumers = {"7.weight", "13.weight", "17.weight"} if case.images else {"down.0.weight", "down.1.weight"}
    full = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ist = joinsum.IST(model, optimizer, every=None, seed=6, scaled=scaled)
    factor = sites if scaled else 1
    for site, (x, classes) in enumerate(batches(sites, case.images)):
        assert ist.site == site
        own = {layer.name: ist.neurons(layer.name) for layer in ist.layers}
        other = copy.deepcopy(full)
        for tensor in consumers:
            layer, block = axes[tensor][1]
            weight = other.get_parameter(tensor)
            kept = torch.zeros(weight.shape[1] // block, dtype=torch.float64)
            kept[own[layer]] = factor
            with torch.no_grad():
                weight.mul_(kept.repeat_interleave(block).view(-1, *[1] * (weight.dim() - 2)))
        wanted = F.cross_entropy(other(x), classes)
        wanted.backward()
        optimizer.zero_grad()
        found = F.cross_entropy(model(x), classes)
        found.backward()
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
        for tensor, parameter in model.named_parameters():
            gradient = select(other.get_parameter(tensor).grad, tensor, axes, own)
            times = factor if tensor in consumers else 1
            torch.testing.assert_close(parameter.grad, times * gradient, rtol=1e-9, atol=1e-11, msg=tensor)
        optimizer.step()
