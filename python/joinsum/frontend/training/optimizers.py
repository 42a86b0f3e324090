"""Optimizers as functions of tensors: the updates of torch.optim, as part of a graph.

Whatever may change between steps, such as the learning rate, is a tensor of one element, so a schedule does not change
the graph. Adam's update is one operator of the C++ core, which goes through memory once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from joinsum.base.errors import PlanError

__all__ = ["UPDATES", "Update", "update_of"]

Numbers = Mapping[str, Tensor]
State = dict[str, Tensor]
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Update:
    """One kind of optimizer.

    traits    the options of a parameter group that decide which operators the update calls
    moments   torch's names of the state tensors that have the parameter's shape, for given traits
    numbers   the numbers that the update reads, from a group's options and the number of steps including this one
    counts    whether torch's optimizer stores the number of steps, as `step`
    new       (parameter, gradient, state, numbers, traits) -> (parameter, state), without writing into any of them
    """

    traits: Callable[[Options], Mapping[str, bool]]
    moments: Callable[[Mapping[str, bool]], tuple[str, ...]]
    numbers: Callable[[Options, int], dict[str, float]]
    counts: bool
    new: Callable[[Tensor, Tensor, State, Numbers, Mapping[str, bool]], tuple[Tensor, State]]


# --- SGD --------------------------------------------------------------------------------------------------------------


def _sgd_traits(options: Options) -> dict[str, bool]:
    return {
        "momentum": options["momentum"] != 0,
        "dampened": options["dampening"] != 0,
        "nesterov": bool(options["nesterov"]),
        "decay": options["weight_decay"] != 0,
        "maximize": bool(options["maximize"]),
    }


def _sgd_numbers(options: Options, step: int) -> dict[str, float]:
    # The first momentum is the gradient itself, whatever the dampening.
    take = 1.0 if step == 1 else 1.0 - float(options["dampening"])
    momentum = float(options["momentum"])
    return {
        "descent": -float(options["lr"]),
        "momentum": momentum,
        "take": take,
        "decay": float(options["weight_decay"]),
    }


def _sgd(p: Tensor, g: Tensor, state: State, n: Numbers, traits: Mapping[str, bool]) -> tuple[Tensor, State]:
    g = -g if traits["maximize"] else g
    g = torch.addcmul(g, p, n["decay"]) if traits["decay"] else g
    if not traits["momentum"]:
        return torch.addcmul(p, g, n["descent"]), {}
    taken = g * n["take"] if traits["dampened"] else g
    buffer = torch.addcmul(taken, state["momentum_buffer"], n["momentum"])
    moved = torch.addcmul(g, buffer, n["momentum"]) if traits["nesterov"] else buffer
    return torch.addcmul(p, moved, n["descent"]), {"momentum_buffer": buffer}


# --- Adam, AdamW ------------------------------------------------------------------------------------------------------


def _adam_traits(options: Options) -> dict[str, bool]:
    return {
        "amsgrad": bool(options["amsgrad"]),
        "decoupled": bool(options.get("decoupled_weight_decay", False)),
        "maximize": bool(options["maximize"]),
    }


def _adam_numbers(options: Options, step: int) -> dict[str, float]:
    beta1, beta2 = (float(beta) for beta in options["betas"])
    return {
        "lr": float(options["lr"]),
        "take1": 1 - beta1,
        "take2": 1 - beta2,
        "eps": float(options["eps"]),
        "decay": float(options["weight_decay"]),
        "step": float(step),
    }


def _adam(p: Tensor, g: Tensor, state: State, n: Numbers, traits: Mapping[str, bool]) -> tuple[Tensor, State]:
    names = _adam_moments(traits)
    update = torch.ops.joinsum.amsgrad_update if traits["amsgrad"] else torch.ops.joinsum.adam_update
    numbers = [n[name] for name in ("lr", "take1", "take2", "eps", "decay", "step")]
    new, *moments = update(p, g, *(state[name] for name in names), *numbers, traits["decoupled"], traits["maximize"])
    return new, dict(zip(names, moments, strict=True))


def _adam_moments(traits: Mapping[str, bool]) -> tuple[str, ...]:
    return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if traits["amsgrad"] else ("exp_avg", "exp_avg_sq")


_ADAM = Update(_adam_traits, _adam_moments, _adam_numbers, True, _adam)
UPDATES: dict[type[torch.optim.Optimizer], Update] = {
    torch.optim.SGD: Update(
        _sgd_traits, lambda traits: ("momentum_buffer",) if traits["momentum"] else (), _sgd_numbers, False, _sgd
    ),
    torch.optim.Adam: _ADAM,
    torch.optim.AdamW: _ADAM,
}


def update_of(optimizer: object) -> Update:
    """The update of an optimizer. Raises PlanError for an unsupported optimizer, and for one whose step does more."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise PlanError(f"train_step: an optimizer is a torch.optim.Optimizer: got={type(optimizer).__name__}")
    # Exact types only: a subclass may override anything.
    found = UPDATES.get(type(optimizer))
    if found is None:
        known = [each.__name__ for each in UPDATES]
        raise PlanError(
            f"train_step: no such optimizer in a graph: optimizer={type(optimizer).__name__}, supported={known}; "
            "joinsum.distribute(model, sample_inputs) keeps your own loop and optimizer"
        )
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise PlanError(
            "train_step: the optimizer has hooks on its steps, which are no part of a graph: "
            f"optimizer={type(optimizer).__name__}; call what they do beside the step"
        )
    for group in optimizer.param_groups:
        if group.get("differentiable"):
            raise PlanError("train_step: a step is not differentiated: option=differentiable; leave it out")
    return found
