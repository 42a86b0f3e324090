"""SGD and Adam as functions of tensors. Adam's update is one operator of the C++ core, and several ones for complex
parameters."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from joinsum.frontend.lookups import Lookup
from joinsum.frontend.training.update import Numbers, Options, Scalars, State, Traits, Update

__all__ = ["ADAM", "SGD"]

# --- SGD --------------------------------------------------------------------------------------------------------------


def _sgd_traits(options: Options) -> dict[str, bool]:
    return {
        "momentum": options["momentum"] != 0,
        "dampened": options["dampening"] != 0,
        "nesterov": bool(options["nesterov"]),
        "decay": options["weight_decay"] != 0,
        "maximize": bool(options["maximize"]),
    }


def _sgd_numbers(options: Options, step: int, _: Scalars) -> dict[str, float]:
    # The first momentum is the gradient itself, whatever the dampening.
    take = 1.0 if step == 1 else 1.0 - float(options["dampening"])
    momentum = float(options["momentum"])
    return {
        "descent": -float(options["lr"]),
        "momentum": momentum,
        "take": take,
        "decay": float(options["weight_decay"]),
    }


def _sgd(p: Tensor, g: Tensor, state: State, n: Numbers, traits: Traits) -> tuple[Tensor, State]:
    g = -g if traits["maximize"] else g
    g = torch.addcmul(g, p, n["decay"]) if traits["decay"] else g
    if not traits["momentum"]:
        return torch.addcmul(p, g, n["descent"]), {}
    taken = g * n["take"] if traits["dampened"] else g
    buffer = torch.addcmul(taken, state["momentum_buffer"], n["momentum"])
    moved = torch.addcmul(g, buffer, n["momentum"]) if traits["nesterov"] else buffer
    return torch.addcmul(p, moved, n["descent"]), {"momentum_buffer": buffer}


def _sgd_of_rows(p: Tensor, lookup: Lookup, state: State, n: Numbers, traits: Traits) -> tuple[Tensor, State]:
    gradient, rows, padding = lookup
    update = torch.ops.joinsum.sgd_lookup_update
    return update(p, gradient, rows, n["descent"], padding, traits["maximize"]), {}


# --- Adam, AdamW ------------------------------------------------------------------------------------------------------


def _adam_traits(options: Options) -> dict[str, bool]:
    return {
        "amsgrad": bool(options["amsgrad"]),
        "decoupled": bool(options.get("decoupled_weight_decay", False)),
        "maximize": bool(options["maximize"]),
    }


def _adam_numbers(options: Options, step: int, _: Scalars) -> dict[str, float]:
    beta1, beta2 = (float(beta) for beta in options["betas"])
    return {
        "lr": float(options["lr"]),
        "take1": 1 - beta1,
        "take2": 1 - beta2,
        "eps": float(options["eps"]),
        "decay": float(options["weight_decay"]),
        "step": float(step),
    }


def _adam(p: Tensor, g: Tensor, state: State, n: Numbers, traits: Traits) -> tuple[Tensor, State]:
    names = _adam_moments(traits)
    update = torch.ops.joinsum.amsgrad_update if traits["amsgrad"] else torch.ops.joinsum.adam_update
    numbers = [n[name] for name in ("lr", "take1", "take2", "eps", "decay", "step")]
    new, *moments = update(p, g, *(state[name] for name in names), *numbers, traits["decoupled"], traits["maximize"])
    return new, dict(zip(names, moments, strict=True))


def _adam_in_parts(p: Tensor, g: Tensor, state: State, n: Numbers, traits: Traits) -> tuple[Tensor, State]:
    g = -g if traits["maximize"] else g
    g, p = (g, p * (1 - n["lr"] * n["decay"])) if traits["decoupled"] else (torch.addcmul(g, p, n["decay"]), p)
    first = state["exp_avg"] + (g - state["exp_avg"]) * n["take1"]
    second = state["exp_avg_sq"] + (g * g - state["exp_avg_sq"]) * n["take2"]
    new = {"exp_avg": first, "exp_avg_sq": second}
    if traits["amsgrad"]:
        second = new["max_exp_avg_sq"] = torch.maximum(state["max_exp_avg_sq"], second)
    return p - first * n["rate"] / (second.sqrt() * n["scale"] + n["eps"]), new


def _adam_in_parts_numbers(options: Options, step: int, before: Scalars) -> dict[str, float]:
    beta1, beta2 = (float(beta) for beta in options["betas"])
    corrected = {"rate": float(options["lr"]) / (1 - beta1**step), "scale": 1 / math.sqrt(1 - beta2**step)}
    return _adam_numbers(options, step, before) | corrected


def _adam_moments(traits: Traits) -> tuple[str, ...]:
    return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if traits["amsgrad"] else ("exp_avg", "exp_avg_sq")


SGD = Update(
    _sgd_traits,
    lambda traits, _: ("momentum_buffer",) if traits["momentum"] else (),
    _sgd_numbers,
    False,
    _sgd,
    complex="numbers",
    of_rows=_sgd_of_rows,
    rests=lambda traits: not traits["momentum"] and not traits["decay"],
)
_ADAM_IN_PARTS = Update(
    _adam_traits, lambda traits, _: _adam_moments(traits), _adam_in_parts_numbers, True, _adam_in_parts
)
ADAM = Update(
    _adam_traits,
    lambda traits, _: _adam_moments(traits),
    _adam_numbers,
    True,
    _adam,
    fused=True,
    in_parts=_ADAM_IN_PARTS,
)
