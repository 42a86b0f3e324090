"""Checkpoints of a training of subnets: the full model and optimizer, and which round follows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from joinsum.base.errors import CheckpointError
from joinsum.distributed.checkpoint import load_checkpoint, save_checkpoint
from joinsum.distributed.safetensors import load_safetensors, save_safetensors
from joinsum.ist.full_model import filled
from joinsum.ist.rounds import Rounds
from joinsum.ist.subnets.optimizers import check_state_names, with_parameters

__all__ = ["read_checkpoint", "read_weights", "write_checkpoint", "write_weights"]

# What a checkpoint says of the rounds.
_NOTE = "joinsum.IST"


def write_checkpoint(folder: Any, rounds: Rounds, skeleton: nn.Module, extra: Mapping[str, Any]) -> None:
    """Writes a round that has just begun; the sites take the means of the states that all of them have. Collective.

    skeleton   the full model without memory
    """
    tensors, means = rounds.whole(states=True)
    with torch.no_grad():
        rounds.install(means)
    values, states = rounds.values_and_states(tensors | means)
    model = filled(skeleton, values)
    found: dict[torch.Tensor, dict[str, Any]] = {}
    found |= {p: states[name] for name, p in model.named_parameters() if states.get(name)}
    note = {_NOTE: _progress(rounds), "extra": dict(extra)}
    save_checkpoint(folder, model, _optimizer_of(model, rounds, found), note)


def write_weights(path: Any, rounds: Rounds, skeleton: nn.Module) -> None:
    """Writes the weights of a round that has just begun as a safetensors file. Collective."""
    save_safetensors(path, _model(rounds, skeleton), {_NOTE: json.dumps(_progress(rounds))})


def read_weights(path: Any, rounds: Rounds, skeleton: nn.Module) -> None:
    """Begins the round of a safetensors file, or the first one with a file of the plain model. Collective."""
    model = _model(rounds, skeleton)
    with rounds.context.preparing("IST"):
        note = load_safetensors(path, model).get(_NOTE, "{}")
        try:
            progress = {key: int(value) for key, value in json.loads(note).items()}
            if min(progress.get("round", 0), progress.get("step", 0)) < 0:
                raise ValueError("negative")
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(f"{path}: not rounds of subnets: metadata={_NOTE}, cause={error}") from None
    rounds.agree(f"load_safetensors: {progress}")
    _begin(rounds, progress, model, {})


def _model(rounds: Rounds, skeleton: nn.Module) -> nn.Module:
    """The full model, distributed. Collective."""
    tensors, means = rounds.whole(states=False)
    values, _ = rounds.values_and_states(tensors | means)
    return filled(skeleton, values)


def _progress(rounds: Rounds) -> dict[str, int]:
    return {"round": rounds.number, "step": rounds.steps_before, "seed": rounds.seed}


def read_checkpoint(folder: Any, rounds: Rounds, skeleton: nn.Module) -> dict[str, Any]:
    """Begins the round of a checkpoint, or the first one with a checkpoint of the plain model; `extra`. Collective."""
    model = _model(rounds, skeleton)
    optimizer = _optimizer_of(model, rounds, {})
    note = load_checkpoint(folder, model, optimizer)
    check_state_names(str(folder), optimizer)
    for own, read in zip(rounds.subnets.optimizer.param_groups, optimizer.param_groups, strict=True):
        own.update({key: value for key, value in read.items() if key != "params"})
    _begin(rounds, note.get(_NOTE, {}), model, optimizer.state)  # no rounds where it is of a plain model
    extra: dict[str, Any] = note["extra"] if _NOTE in note else note
    return extra


def _begin(rounds: Rounds, progress: Mapping[str, int], model: nn.Module, found: Mapping[Any, dict[str, Any]]) -> None:
    """Begins a round with a full model, distributed, and its parameters' states."""
    rounds.number, rounds.seed = int(progress.get("round", 0)), int(progress.get("seed", rounds.seed))
    rounds.steps_before, rounds.steps = int(progress.get("step", 0)), 0
    values = {name: x.detach() for name, x in (*model.named_parameters(), *model.named_buffers())}
    states = {name: dict(found.get(x, {})) for name, x in model.named_parameters()}
    with torch.no_grad():
        rounds.begin(values, states)


def _optimizer_of(
    model: nn.Module, rounds: Rounds, states: Mapping[torch.Tensor, dict[str, Any]]
) -> torch.optim.Optimizer:
    """An optimizer of a full model's parameters, with the options of the user's."""
    parameters, names = dict(model.named_parameters()), rounds.subnets.names
    own = rounds.subnets.optimizer
    groups = [{**group, "params": [parameters[names[id(p)]] for p in group["params"]]} for group in own.param_groups]
    return with_parameters(own, groups, states)
