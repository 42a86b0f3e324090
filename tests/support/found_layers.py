"""The hidden layers of a model, as tests compare them."""

from __future__ import annotations

from typing import Any

from joinsum.ist.layers.discovery import find_layers
from joinsum.ist.layers.hidden_layers import cut_tensors
from torch import nn


def found(model: nn.Module, **options: Any) -> dict[str, tuple[int, list[str], bool]]:
    """For each layer's name its neurons, the names of its modules, and whether it is scaled."""
    layers = find_layers(model, options.get("unnormalised", False), options.get("scaled")).layers
    cut_tensors(model, layers)
    return {layer.name: (layer.neurons, [each.module for each in layer.members], layer.scaled) for layer in layers}
