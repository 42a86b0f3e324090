"""Weights that hooks before a module's forward pass compute from parameters, and store as attributes."""

from __future__ import annotations

import torch
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

__all__ = ["computed_weights", "detach_weights"]


def computed_weights(model: torch.nn.Module) -> list[tuple[torch.nn.Module, str]]:
    """The modules with such a weight and its name: those of torch.nn.utils.spectral_norm, weight_norm and prune."""
    found = []
    for module in model.modules():
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm | WeightNorm):
                found.append((module, hook.name))
            elif isinstance(hook, BasePruningMethod):
                found.append((module, hook._tensor_name))
    return found


def detach_weights(weights: list[tuple[torch.nn.Module, str]]) -> None:
    """Takes the weights out of autograd, where they hold on to the parameters until the next forward pass."""
    for module, name in weights:
        if name in module.__dict__:  # and the hook has not been removed
            setattr(module, name, getattr(module, name).detach())
