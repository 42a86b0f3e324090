"""Modules that neurons pass, and those that compute something else than the class that they derive from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import joinsum
import pytest
import torch
from joinsum.ist.layers.discovery import find_layers
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import activation, dropout


def between(*passed: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), *passed, nn.Linear(8, 2))


# Those that take in several neurons, or have no operand of the neurons' shape.
MIXING = {"GLU", "Softmin", "Softmax", "Softmax2d", "LogSoftmax", "MultiheadAttention"}
ARGUMENTS = {"Threshold": (0.0, 0.0)}


@pytest.mark.parametrize("name", [name for name in (*activation.__all__, *dropout.__all__) if name not in MIXING])
def test_all_activations_of_torch_that_are_elementwise_keep_neurons_apart(name: str) -> None:
    module = getattr(nn, name)(*ARGUMENTS.get(name, ())).eval()
    assert [each.name for each in find_layers(between(module), False, None).layers] == ["0"]
    x, some = torch.linspace(-2, 2, 24).view(3, 8), [1, 4, 6]
    # Not equal bit by bit: torch computes what fills no vector of the processor by other instructions.
    torch.testing.assert_close(module(x)[:, some], module(x[:, some]))


class Lora(nn.Linear):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.a, self.b = nn.Parameter(torch.randn(2, inputs)), nn.Parameter(torch.randn(outputs, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + x @ self.a.t() @ self.b.t()


class Masked(nn.Linear):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.register_buffer("mask", torch.ones(outputs, inputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight * self.mask, self.bias)


class Softened(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).softmax(-1)


class Cosine(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(F.normalize(x, dim=-1), F.normalize(self.weight, dim=-1))


class Standardised(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return self._conv_forward(x, weight, self.bias)


class Padded(nn.Conv2d):
    def _conv_forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return F.conv2d(x, weight.softmax(1), bias)


class ChannelsLast(nn.LayerNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.transpose(1, -1)).transpose(1, -1)


class Renamed(nn.Linear):
    """The plain forward pass, and a method of its own."""

    def reset(self) -> None:
        self.reset_parameters()


class Half(nn.Hardtanh):
    """Traced into, as it has no parameters."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).flip(-1)


def layers(kind: Callable[[int, int], nn.Module], norm: Callable[[int], nn.Module] = nn.LayerNorm) -> nn.Sequential:
    """Two layers that may be cut, by an own kind of module, before one that is."""
    return nn.Sequential(
        *(
            kind(5, 8),
            norm(8),
            nn.ReLU(),
            kind(8, 6),
            nn.LayerNorm(6),
            nn.Linear(6, 7),
            nn.LayerNorm(7),
            nn.Linear(7, 2),
        )
    )


@pytest.mark.parametrize("kind", [Lora, Masked, Softened, Cosine])
def test_a_module_with_a_forward_pass_of_its_own_is_not_cut(kind: Any) -> None:
    found = find_layers(layers(kind), False, None)
    assert [each.name for each in found.layers] == ["5"]
    own = f"{kind.__name__} has a forward pass of its own"
    assert found.uncut["0"] == found.uncut["3"] == own
    joinsum.init(sites=2)
    torch.manual_seed(2)
    model = layers(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with joinsum.IST(model, optimizer, every=1) as ist:
        for _ in range(4):
            model(torch.randn(3, 5)).square().mean().backward()
            optimizer.step()
    assert ist.uncut["0"] == own
    with pytest.raises(joinsum.PlanError, match=f"0: they reach .* {own}: module=2"):
        find_layers(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), kind(8, 2)), False, None)


@pytest.mark.parametrize("kind", [Standardised, Padded])
def test_a_convolution_with_weights_of_its_own_is_not_cut(kind: Any) -> None:
    with pytest.raises(joinsum.PlanError, match=f"0: {kind.__name__} has a forward pass of its own"):
        find_layers(nn.Sequential(kind(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 2, 3)), False, None)


def test_a_norm_with_a_forward_pass_of_its_own_leaves_its_neurons_uncut() -> None:
    found = find_layers(layers(nn.Linear, ChannelsLast), False, None)
    assert [each.name for each in found.layers] == ["3", "5"]
    assert "ChannelsLast has a forward pass of its own: module=1" in found.uncut["0"]


def test_a_norm_with_a_forward_pass_of_its_own_still_norms_a_residual_later() -> None:
    class Upcast(nn.LayerNorm):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.float()).type(x.dtype)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = Upcast(8), nn.Linear(8, 12), nn.Linear(12, 8)
            self.stem, self.last, self.head = nn.Linear(4, 8), Upcast(8), nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stem(x)
            return self.head(self.last(x + self.down(self.up(self.norm(x)).relu())))

    assert [(each.name, each.scaled) for each in find_layers(Block(), False, None).layers] == [("up", True)]


def test_a_forward_pass_that_an_instance_has_is_its_own() -> None:
    model = layers(nn.Linear)
    model[0].forward = lambda x: F.linear(x, model[0].weight).softmax(-1)  # type: ignore[method-assign]
    assert find_layers(model, False, None).uncut["0"] == "Linear has a forward pass of its own"


def test_subclasses_with_the_plain_forward_pass_are_cut() -> None:
    assert [each.name for each in find_layers(layers(Renamed), False, None).layers] == ["0", "3", "5"]
    extra = layers(nn.Linear)
    extra[0].register_buffer("importance", torch.ones(8, 5))
    assert "tensor=importance" in find_layers(extra, False, None).uncut["0"]


def test_activations_that_derive_from_torchs_are_followed() -> None:
    with pytest.raises(joinsum.PlanError, match="operator=flip"):
        find_layers(between(Half()), False, None)


def test_named_modules_may_have_their_own_forward_pass_but_no_tensors_that_are_not_known() -> None:
    joinsum.init(sites=2)
    model = nn.Sequential(Cosine(5, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with joinsum.IST(model, optimizer, every=1, layers=[("0", "1", "3")]):
        assert model[0].weight.shape == (4, 5)
    for kind, tensor in ((Lora, "a"), (Masked, "mask")):
        for first, last in ((kind(5, 8), nn.Linear(8, 2)), (nn.Linear(5, 8), kind(8, 2))):
            model = nn.Sequential(first, nn.LayerNorm(8), nn.ReLU(), last)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            with pytest.raises(joinsum.PlanError, match=rf"module=\d, kind={kind.__name__}, tensor={tensor}"):
                joinsum.IST(model, optimizer, layers=[("0", "1", "3")])


def test_transformer_layers_with_a_forward_pass_of_their_own_are_read_by_their_graph() -> None:
    class Layer(nn.TransformerEncoderLayer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return x + self.norm2(self.linear2(self.linear1(self.norm1(x)).softmax(-1)))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.up, self.norm, self.head = (
                Layer(8, 2, 12),
                nn.Linear(8, 6),
                nn.LayerNorm(6),
                nn.Linear(6, 2),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.norm(self.up(self.layer(x))))

    found = find_layers(Model(), False, None)
    assert [each.name for each in found.layers] == ["up"]
    assert "softmax" in found.uncut["layer.linear1"]
