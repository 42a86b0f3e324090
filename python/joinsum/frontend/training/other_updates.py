"""torch.optim's other elementwise optimizers, Adafactor and Muon as functions of tensors."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from joinsum.frontend.lookups import Lookup
from joinsum.frontend.training.update import Numbers, Options, Scalars, State, Traits, Update

__all__ = [
    "ADADELTA",
    "ADAFACTOR",
    "ADAGRAD",
    "ADAMAX",
    "ASGD",
    "MUON",
    "NADAM",
    "RADAM",
    "RMSPROP",
    "RPROP",
    "SPARSE_ADAM",
]


def _traits(options: Options, *names: str) -> dict[str, Any]:
    """The traits that most optimizers have, and options of these names that are on."""
    return {
        "maximize": bool(options.get("maximize", False)),
        "decay": options.get("weight_decay", 0) != 0,
        "decoupled": bool(options.get("decoupled_weight_decay", False)),
        **{name: bool(options[name]) for name in names},
    }


def _gradient(p: Tensor, g: Tensor, n: Numbers, traits: Traits) -> Tensor:
    """The gradient of what is minimised, with weight decay unless that is decoupled."""
    g = -g if traits["maximize"] else g
    return torch.addcmul(g, p, n["decay"]) if traits["decay"] and not traits["decoupled"] else g


def _decayed(p: Tensor, n: Numbers, traits: Traits) -> Tensor:
    """The parameter after weight decay that is decoupled from the gradient."""
    return p * (1 - n["lr"] * n["decay"]) if traits["decay"] and traits["decoupled"] else p


def _averaged(average: Tensor, value: Tensor, take: Tensor) -> Tensor:
    """A running average that takes in a share of a value."""
    return average + (value - average) * take


def _numbers(options: Options, **others: float) -> dict[str, float]:
    return {"lr": float(options["lr"]), "decay": float(options["weight_decay"]), **others}


# --- RMSprop, Adagrad, Adadelta, Adamax -------------------------------------------------------------------------------


def _rmsprop(p: Tensor, g: Tensor, state: State, n: Numbers, traits: Traits) -> tuple[Tensor, State]:
    g = _gradient(p, g, n, traits)
    new = {"square_avg": state["square_avg"] * n["keep"] + g * g * n["take"]}
    average = new["square_avg"]
    if traits["centered"]:
        new["grad_avg"] = _averaged(state["grad_avg"], g, n["take"])
        average = average - new["grad_avg"] * new["grad_avg"]
    move = g / (average.sqrt() + n["eps"])
    if traits["momentum"]:
        move = new["momentum_buffer"] = state["momentum_buffer"] * n["momentum"] + move
    return p - move * n["lr"], new


def _rmsprop_moments(traits: Traits, _: torch.Size) -> tuple[str, ...]:
    others = {"momentum_buffer": traits["momentum"], "grad_avg": traits["centered"]}
    return "square_avg", *(name for name, has in others.items() if has)


def _rmsprop_numbers(options: Options, step: int, _: Scalars) -> dict[str, float]:
    keep, momentum = float(options["alpha"]), float(options["momentum"])
    return _numbers(options, keep=keep, take=1 - keep, momentum=momentum, eps=float(options["eps"]))


RMSPROP = Update(
    lambda options: _traits(options, "centered", "momentum"), _rmsprop_moments, _rmsprop_numbers, True, _rmsprop
)


def _adagrad(p: Tensor, g: Tensor, state: State, n: Numbers, traits: Traits) -> tuple[Tensor, State]:
    g = _gradient(p, g, n, traits)
    total = torch.addcmul(state["sum"], g, g)
    return p - g / (total.sqrt() + n["eps"]) * n["lr"], {"sum": total}


def _adagrad_of_rows(p: Tensor, lookup: Lookup, state: State, n: Numbers, traits: Traits) -> tuple[Tensor, State]:
    gradient, rows, padding = lookup
    update = torch.ops.joinsum.adagrad_lookup_update
    new, total = update(p, state["sum"], gradient, rows, n["lr"], n["eps"], padding, traits["maximize"])
    return new, {"sum": total}


def _adagrad_numbers(options: Options, step: int, _: Scalars) -> dict[str, float]:
    rate = float(options["lr"]) / (1 + (step - 1) * float(options["lr_decay"]))
    return _numbers(options, eps=float(options["eps"])) | {"lr": rate}


ADAGRAD = Update(
    _traits,
    lambda traits, _: ("sum",),
    _adagrad_numbers,
    True,
    _adagrad,
    initial=lambda name, options: float(options["initial_accumulator_value"]),
    of_rows=_adagrad_of_rows,
    rests=lambda traits: not traits["decay"],
)


def _adadelta(p: Tensor, g: Tensor, state: State, n: Numbers, traits: Traits) -> tuple[Tensor, State]:
    g = _gradient(p, g, n, traits)
    squares = state["square_avg"] * n["keep"] + g * g * n["take"]
    delta = (state["acc_delta"] + n["eps"]).sqrt() / (squares + n["eps"]).sqrt() * g
    deltas = state["acc_delta"] * n["keep"] + delta * delta * n["take"]
    return p - delta * n["lr"], {"square_avg": squares, "acc_delta": deltas}


def _adadelta_numbers(options: Options, step: int, _: Scalars) -> dict[str, float]:
    keep = float(options["rho"])
    return _numbers(options, keep=keep, take=1 - keep, eps=float(options["eps"]))


ADADELTA = Update(_traits, lambda traits, _: ("square_avg", "acc_delta"), _adadelta_numbers, True, _adadelta)


def _adamax(p: Tensor, g: Tensor, state: State, n: Numbers, traits: Traits) -> tuple[Tensor, State]:
    g = _gradient(p, g, n, traits)
    average = _averaged(state["exp_avg"], g, n["take1"])
    largest = torch.maximum(state["exp_inf"] * n["keep2"], g.abs() + n["eps"])
    return p - average / largest * n["lr"], {"exp_avg": average, "exp_inf": largest}


def _adamax_numbers(options: Options, step: int, _: Scalars) -> dict[str, float]:
    beta1, beta2 = map(float, options["betas"])
    rate = float(options["lr"]) / (1 - beta1**step)
    return _numbers(options, take1=1 - beta1, keep2=beta2, eps=float(options["eps"])) | {"lr": rate}


ADAMAX = Update(_traits, lambda traits, _: ("exp_avg", "exp_inf"), _adamax_numbers, True, _adamax)


# --- NAdam, RAdam -----------------------------------------------------------------------------------------------------


def _moments(state: State, g: Tensor, n: Numbers) -> State:
    """The averages of the gradient and of its square, after a step."""
    first = _averaged(state["exp_avg"], g, n["take1"])
    return {"exp_avg": first, "exp_avg_sq": state["exp_avg_sq"] * n["keep2"] + g * g * n["take2"]}


def _nadam(p: Tensor, g: Tensor, state: State, n: Numbers, traits: Traits) -> tuple[Tensor, State]:
    g, p = _gradient(p, g, n, traits), _decayed(p, n, traits)
    new = _moments(state, g, n)
    below = (new["exp_avg_sq"] / n["correction2"]).sqrt() + n["eps"]
    return p - (g * n["of_gradient"] + new["exp_avg"] * n["of_average"]) / below, new


def _nadam_numbers(options: Options, step: int, before: Scalars) -> dict[str, float]:
    (beta1, beta2), rate = map(float, options["betas"]), float(options["lr"])
    now, following = (_nadam_momentum(options, each) for each in (step, step + 1))
    product = before["mu_product"] * now
    return _numbers(
        options,
        take1=1 - beta1,
        keep2=beta2,
        take2=1 - beta2,
        correction2=1 - beta2**step,
        of_gradient=rate * (1 - now) / (1 - product),
        of_average=rate * following / (1 - product * following),
        eps=float(options["eps"]),
    )


def _nadam_momentum(options: Options, step: int) -> float:
    decay: float = 0.96 ** (step * float(options["momentum_decay"]))
    return float(options["betas"][0]) * (1 - 0.5 * decay)


NADAM = Update(
    _traits,
    lambda traits, _: ("exp_avg", "exp_avg_sq"),
    _nadam_numbers,
    True,
    _nadam,
    scalars=lambda options, step, before: {
        "mu_product": before["mu_product"] * _nadam_momentum(options, step) if step else 1.0
    },
)


def _radam(p: Tensor, g: Tensor, state: State, n: Numbers, traits: Traits) -> tuple[Tensor, State]:
    g, p = _gradient(p, g, n, traits), _decayed(p, n, traits)
    new = _moments(state, g, n)
    # While the variance is not known, `adaptive` is zero and `plain` one.
    factor = n["plain"] + n["adaptive"] / (new["exp_avg_sq"].sqrt() + n["eps"])
    return p - new["exp_avg"] * n["rate"] * factor, new


def _radam_numbers(options: Options, step: int, _: Scalars) -> dict[str, float]:
    beta1, beta2 = map(float, options["betas"])
    limit = 2 / (1 - beta2) - 1
    correction2 = 1 - beta2**step
    length = limit - 2 * step * beta2**step / correction2
    known = length > 5
    rectified = math.sqrt((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length)) if known else 0.0
    return _numbers(
        options,
        take1=1 - beta1,
        keep2=beta2,
        take2=1 - beta2,
        rate=float(options["lr"]) / (1 - beta1**step),
        adaptive=rectified * math.sqrt(correction2),
        plain=float(not known),
        eps=float(options["eps"]),
    )


RADAM = Update(_traits, lambda traits, _: ("exp_avg", "exp_avg_sq"), _radam_numbers, True, _radam)


# --- ASGD, Rprop ------------------------------------------------------------------------------------------------------


def _asgd(p: Tensor, g: Tensor, state: State, n: Numbers, traits: Traits) -> tuple[Tensor, State]:
    g = _gradient(p, g, n, traits)
    new = p * (1 - n["lambd"] * n["eta"]) - g * n["eta"]
    return new, {"ax": _averaged(state["ax"], new, n["mu"])}


def _asgd_scalars(options: Options, step: int, _: Scalars) -> dict[str, float]:
    rate, lambd = float(options["lr"]), float(options["lambd"])
    eta = rate / (1 + lambd * rate * step) ** float(options["alpha"]) if step else rate
    return {"eta": eta, "mu": 1 / max(1, step - float(options["t0"]))}


ASGD = Update(
    _traits,
    lambda traits, _: ("ax",),
    lambda options, step, before: _numbers(options, lambd=float(options["lambd"]), **before),
    True,
    _asgd,
    scalars=_asgd_scalars,
)


def _rprop(p: Tensor, g: Tensor, state: State, n: Numbers, traits: Traits) -> tuple[Tensor, State]:
    g = -g if traits["maximize"] else g
    sign = (g * state["prev"]).sign()
    # +1: as before, -1: over the minimum, 0: neither.
    factor = torch.where(sign > 0, n["more"], torch.where(sign < 0, n["less"], torch.ones_like(sign)))
    size = torch.minimum(torch.maximum(state["step_size"] * factor, n["least"]), n["most"])
    g = torch.where(sign < 0, torch.zeros_like(g), g)
    return p - g.sign() * size, {"prev": g, "step_size": size}


def _rprop_numbers(options: Options, step: int, _: Scalars) -> dict[str, float]:
    (less, more), (least, most) = map(float, options["etas"]), map(float, options["step_sizes"])
    return {"less": less, "more": more, "least": least, "most": most}


RPROP = Update(
    lambda options: {"maximize": bool(options["maximize"])},
    lambda traits, _: ("prev", "step_size"),
    _rprop_numbers,
    True,
    _rprop,
    initial=lambda name, options: float(options["lr"]) if name == "step_size" else 0.0,
)


# --- Adafactor, Muon: not elementwise ---------------------------------------------------------------------------------


def _adafactor(p: Tensor, g: Tensor, state: State, n: Numbers, traits: Traits) -> tuple[Tensor, State]:
    g = _gradient(p, g, n, traits)
    least = torch.finfo(p.dtype).eps if traits["eps1"] is None else traits["eps1"]
    new: State = {}
    if p.dim() > 1:
        squares = g * g
        rows = new["row_var"] = _averaged(state["row_var"], squares.mean(-1, keepdim=True), n["take"])
        columns = new["col_var"] = _averaged(state["col_var"], squares.mean(-2, keepdim=True), n["take"])
        variance = rows * columns / rows.mean(-2, keepdim=True).clamp(min=least)
    else:
        variance = new["variance"] = _averaged(state["variance"], g * g, n["take"])
    update = variance.clamp(min=least * least).rsqrt() * g
    largest = torch.maximum(_root_mean_square(update) / n["d"], torch.ones_like(n["d"]))
    size = torch.maximum(_root_mean_square(p), n["eps2"]) * n["rho"]
    return _decayed(p, n, traits) - update * (size / largest), new


def _root_mean_square(x: Tensor) -> Tensor:
    return (x * x).mean().sqrt()


def _adafactor_shape(name: str, shape: torch.Size) -> torch.Size:
    if name == "variance":
        return shape
    return torch.Size([*shape[:-1], 1] if name == "row_var" else [*shape[:-2], 1, shape[-1]])


def _adafactor_numbers(options: Options, step: int, _: Scalars) -> dict[str, float]:
    return _numbers(
        options,
        take=step ** float(options["beta2_decay"]),
        rho=min(float(options["lr"]), 1 / math.sqrt(step)),
        eps2=float(options["eps"][1]),
        d=float(options["d"]),
    )


ADAFACTOR = Update(
    lambda options: {**_traits(options), "decoupled": True, "eps1": options["eps"][0]},
    lambda traits, shape: ("row_var", "col_var") if len(shape) > 1 else ("variance",),
    _adafactor_numbers,
    True,
    _adafactor,
    shape=_adafactor_shape,
    complex=None,
)


def _muon(p: Tensor, g: Tensor, state: State, n: Numbers, traits: Traits) -> tuple[Tensor, State]:
    average = _averaged(state["momentum_buffer"], g, n["take"])
    move = _averaged(g, average, n["momentum"]) if traits["nesterov"] else average
    rows, columns = p.shape
    as_adamw = traits["adjust"] == "match_rms_adamw"
    rate = n["lr"] * (0.2 * math.sqrt(max(rows, columns)) if as_adamw else math.sqrt(max(1, rows / columns)))
    return _decayed(p, n, traits) - _orthogonal(move, traits).to(p.dtype) * rate, {"momentum_buffer": average}


def _orthogonal(x: Tensor, traits: Traits) -> Tensor:
    """The matrix with singular values near one, by Newton and Schulz's iteration, in bfloat16 as torch has it."""
    a, b, c = traits["coefficients"]
    turned = x.shape[0] > x.shape[1]
    x = (x.T if turned else x).bfloat16()
    x = x / (x * x).sum().sqrt().clamp(min=traits["eps"])
    for _ in range(traits["steps"]):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.T if turned else x


def _muon_traits(options: Options) -> dict[str, Any]:
    return {
        **_traits(options, "nesterov"),
        "decoupled": True,
        "coefficients": tuple(map(float, options["ns_coefficients"])),
        "steps": int(options["ns_steps"]),
        "eps": float(options["eps"]),
        "adjust": options["adjust_lr_fn"] or "original",
    }


MUON = Update(
    _muon_traits,
    lambda traits, _: ("momentum_buffer",),
    lambda options, step, _: _numbers(
        options, momentum=float(options["momentum"]), take=1 - float(options["momentum"])
    ),
    False,
    _muon,
    complex=None,
)


# --- SparseAdam -------------------------------------------------------------------------------------------------------


def _sparse_adam(p: Tensor, g: Tensor, state: State, n: Numbers, traits: Traits) -> tuple[Tensor, State]:
    """Rows whose gradient is 0 stay as they are, with their moments."""
    g = _gradient(p, g, n, traits)
    nonzero = g != 0
    touched = nonzero.flatten(1).any(1).reshape(-1, *[1] * (g.dim() - 1)) if g.dim() > 1 else nonzero
    average, square = state["exp_avg"], state["exp_avg_sq"]
    average = torch.where(touched, _averaged(average, g, n["take1"]), average)
    square = torch.where(touched, _averaged(square, g * g, n["take2"]), square)
    moved = torch.where(touched, p - average / (square.sqrt() + n["eps"]) * n["rate"], p)
    return moved, {"exp_avg": average, "exp_avg_sq": square}


def _sparse_adam_of_rows(p: Tensor, lookup: Lookup, state: State, n: Numbers, traits: Traits) -> tuple[Tensor, State]:
    gradient, rows, padding = lookup
    numbers = [n[name] for name in ("rate", "take1", "take2", "eps")]
    update = torch.ops.joinsum.sparse_adam_lookup_update
    moments = state["exp_avg"], state["exp_avg_sq"]
    new, average, square = update(p, *moments, gradient, rows, *numbers, padding, traits["maximize"])
    return new, {"exp_avg": average, "exp_avg_sq": square}


def _sparse_adam_numbers(options: Options, step: int, _: Scalars) -> dict[str, float]:
    beta1, beta2 = (float(beta) for beta in options["betas"])
    rate = float(options["lr"]) * math.sqrt(1 - beta2**step) / (1 - beta1**step)
    return {"rate": rate, "take1": 1 - beta1, "take2": 1 - beta2, "eps": float(options["eps"])}


SPARSE_ADAM = Update(
    _traits,
    lambda traits, _: ("exp_avg", "exp_avg_sq"),
    _sparse_adam_numbers,
    True,
    _sparse_adam,
    complex=None,
    of_rows=_sparse_adam_of_rows,
    rests=lambda traits: True,
)
