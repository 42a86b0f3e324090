"""State of the user's optimizers: it lies as the parameters do, however it has come."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from joinsum.frontend.distributed_tensor import DistributedTensor

__all__ = ["place_states_at_steps"]


@functools.cache
def place_states_at_steps() -> None:
    """From now on an optimizer of distributed parameters finds its own state in blocks: also state that was made before
    the model was distributed, or loaded from plain tensors."""
    register_optimizer_step_pre_hook(_place)


def _place(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for parameter, state in optimizer.state.items():
        if not isinstance(parameter, DistributedTensor):
            continue
        for name, value in state.items():
            plain = isinstance(value, torch.Tensor) and not isinstance(value, DistributedTensor)
            if plain and value.dim() > 0 and value.shape == parameter.shape:
                state[name] = DistributedTensor.place(value, parameter.physical_type)
