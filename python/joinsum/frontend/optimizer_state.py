"""Stores the state of the user's optimizers in the layout of the parameters."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from joinsum.distributed.distributed_tensor import DistributedTensor

__all__ = ["place_states_at_steps"]


@functools.cache
def place_states_at_steps() -> None:
    """Registers a hook that distributes plain optimizer state of distributed parameters before each `step`. Such state
    was created before the model was distributed, or was loaded from a checkpoint. Sparse state, as the momentum of a
    table with sparse gradients, stays on every rank."""
    register_optimizer_step_pre_hook(_place)


def _place(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for parameter, state in optimizer.state.items():
        if not isinstance(parameter, DistributedTensor):
            continue
        for name, value in state.items():
            plain = isinstance(value, torch.Tensor) and not isinstance(value, DistributedTensor)
            if plain and value.layout is torch.strided and value.dim() > 0 and value.shape == parameter.shape:
                state[name] = DistributedTensor.stored_as(value, parameter.physical_type)
