"""Layers whose tensors are tied or computed: "auto" leaves them uncut, and refuses only a model of which nothing else
can be cut; those that are named are refused."""

from __future__ import annotations

from collections.abc import Callable

import joinsum
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm


def model_of(change: Callable[[nn.Linear], object], more: bool) -> nn.Sequential:
    """One layer that `change` makes uncuttable, and another."""
    first = nn.Linear(5, 8)
    change(first)
    last = (nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)) if more else (nn.Linear(8, 2),)
    return nn.Sequential(first, nn.BatchNorm1d(8), nn.ReLU(), *last)


CHANGES: dict[str, Callable[[nn.Linear], object]] = {
    "weight norm": parametrizations.weight_norm,
    "spectral norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "old weight norm": weight_norm,
    "old spectral norm": spectral_norm,
    "pruned": lambda linear: prune.l1_unstructured(linear, "weight", 0.5),
}


def train(model: nn.Module, **options: object) -> joinsum.IST:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ist = joinsum.IST(model, optimizer, every=1, **options)  # type: ignore[arg-type]
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(6, 5)).square().mean().backward()
        optimizer.step()
    ist.gather()
    return ist


@pytest.mark.parametrize("change", list(CHANGES))
def test_a_layer_with_a_computed_tensor_is_left_uncut(change: str) -> None:
    joinsum.init(sites=2)
    ist = train(model_of(CHANGES[change], more=True))
    assert [each.name for each in ist.layers] == ["3"]
    assert "computed from others" in ist.uncut["0"]
    assert "tensor=0.weight" in ist.uncut["0"]
    with pytest.raises(joinsum.PlanError, match=r"no hidden layer can be cut.*0: .*computed from.*tensor=0.weight"):
        train(model_of(CHANGES[change], more=False))
    with pytest.raises(joinsum.PlanError, match=r"computed from others.*tensor=0.weight"):
        train(model_of(CHANGES[change], more=True), layers=[("0", "1", "3")])


class Tied(nn.Module):
    """A hidden layer of which another module has the weight, and maybe another layer."""

    def __init__(self, more: bool) -> None:
        super().__init__()
        self.e, self.norm, self.d, self.other = nn.Linear(5, 6), nn.LayerNorm(6), nn.Linear(6, 5), nn.Linear(5, 6)
        self.other.weight = self.e.weight
        self.head = nn.Sequential(nn.Linear(5, 9), nn.BatchNorm1d(9), nn.Linear(9, 2)) if more else nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.d(self.norm(self.e(x))) + self.other(x).sum(-1, keepdim=True))


def test_a_layer_with_tied_weights_is_left_uncut() -> None:
    joinsum.init(sites=2)
    ist = train(Tied(more=True))
    assert [each.name for each in ist.layers] == ["head.0"]
    assert "tied weights" in ist.uncut["e"]
    assert "modules=['e', 'other']" in ist.uncut["e"]
    with pytest.raises(
        joinsum.PlanError, match=r"no hidden layer can be cut.*e: tied weights.*modules=\['e', 'other'\]"
    ):
        train(Tied(more=False))
    with pytest.raises(joinsum.PlanError, match=r"tied weights.*modules=\['e', 'other'\]"):
        train(Tied(more=True), layers=[("e", "norm", "d")])


def test_transformer_layers_with_tied_weights_are_left_uncut() -> None:
    joinsum.init(sites=2)
    layers = [nn.TransformerEncoderLayer(8, 2, 12, batch_first=True) for _ in range(2)]
    layers[0].linear2.bias = layers[0].norm1.bias  # of all sites, so it does not matter
    model = nn.Sequential(*layers, nn.Linear(8, 2))
    with joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1)) as ist:
        assert [each.name for each in ist.layers] == ["0.linear1", "1.linear1"]
    layers[1].linear1.weight = layers[0].linear1.weight
    layers[1].linear2.weight = layers[0].linear2.weight
    with pytest.raises(joinsum.PlanError, match=r"0.linear1: tied weights.*1.linear1: tied weights"):
        joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1))
