"""What a training of subnets adds to the user's model and optimizer, and takes away at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from joinsum.base.errors import PlanError
from joinsum.ist.layers.attention import forward_passes
from joinsum.ist.layers.hidden_layers import HiddenLayer

__all__ = ["Hooks", "has_subnets"]


class Hooks:
    """The hooks of one training."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        self._scale = _Scale(1)

    def after_steps(self, optimizer: torch.optim.Optimizer, act: Callable[..., None]) -> None:
        """Acts after each step of the optimizer."""
        self._handles.append(optimizer.register_step_post_hook(act))

    def refuse_state_dicts(self, optimizer: torch.optim.Optimizer, modules: Iterable[nn.Module]) -> None:
        """Refuses to save, load or copy these, which have a subnet's tensors."""
        self._handles += [
            optimizer.register_state_dict_pre_hook(_SubnetHook()),
            optimizer.register_load_state_dict_pre_hook(_LoadingHook()),
        ]
        for module in modules:
            self._handles += [
                module.register_state_dict_pre_hook(_SubnetHook()),  # type: ignore[no-untyped-call]
                module.register_load_state_dict_pre_hook(_LoadingHook()),  # type: ignore[no-untyped-call]
            ]

    def change_forward(self, model: nn.Module, layers: Sequence[HiddenLayer], sites: int) -> None:
        """Has modules compute with a subnet's tensors; what consumers of layers that are scaled read is multiplied by
        the number of sites."""
        self.scale_by(sites)
        for layer in layers:
            if layer.scaled:
                self._handles += [
                    model.get_submodule(member.module).register_forward_pre_hook(self._scale, with_kwargs=True)
                    for member in layer.consumers
                ]
        self._handles += forward_passes(model, [layer.name for layer in layers])

    def scale_by(self, sites: int) -> None:
        """Takes another number of sites."""
        self._scale.factor = sites

    def remove(self) -> None:
        """Takes all away."""
        for each in self._handles:
            each.remove()


def has_subnets(model: nn.Module) -> bool:
    """Whether a training of subnets has begun with the model and has not ended."""
    return any(isinstance(hook, _SubnetHook) for hook in model._state_dict_pre_hooks.values())


class _SubnetHook:
    """Refuses to save or copy a model that has a subnet's tensors."""

    def __call__(self, *_: object) -> None:
        raise PlanError(
            "IST: the model has a subnet's tensors; save the full one with ist.save_checkpoint(folder), or with "
            "ist.full() as model: ... model.state_dict()"
        )

    def __reduce_ex__(self, _: object) -> Any:
        raise PlanError(
            "IST: the model has a subnet's tensors, and the neurons that they are of change with each round; copy or "
            "average the full one: with ist.full() as model"
        )


class _LoadingHook(_SubnetHook):
    """Refuses to load the full model's tensors into a subnet's."""

    def __call__(self, *_: object) -> None:
        raise PlanError(
            "IST: the model has a subnet's tensors; read a checkpoint with ist.load_checkpoint(folder), or load a "
            "state dict before joinsum.IST(...) or after ist.gather()"
        )


@dataclass
class _Scale:
    """Multiplies a module's only input, which may be passed by its name."""

    factor: int

    def __call__(
        self, _: nn.Module, inputs: tuple[torch.Tensor, ...], named: dict[str, torch.Tensor]
    ) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
        return tuple(x * self.factor for x in inputs), {name: x * self.factor for name, x in named.items()}
