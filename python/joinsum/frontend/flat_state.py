"""Optimizer state by the parameters' names, so that it goes from one number of sites, and one program, to another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from joinsum.checkpoint import CheckpointError
from joinsum.errors import PlanError
from joinsum.frontend.distributed_tensor import DistributedTensor

__all__ = ["check_tensors", "commit_optimizer", "flat_optimizer"]


def _names(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[int, str]:
    """The name of each parameter of the optimizer, by identity."""
    names = {id(p): name for name, p in model.named_parameters()}
    for group in optimizer.param_groups:
        for p in group["params"]:
            if id(p) not in names:
                shape = list(p.shape)
                raise PlanError(f"checkpoint: the optimizer has a parameter that is not the model's: shape={shape}")
    return names


def flat_optimizer(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, saved: Mapping[str, Any] | None = None
) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    """Tensors `optimizer.<parameter>.<name>`, and the options of each parameter group with its parameters' names.

    saved   what a checkpoint has: state that the optimizer does not have yet is taken to be as there, in tensors that
            lie as the parameters do
    """
    names = _names(model, optimizer)
    tensors: dict[str, torch.Tensor] = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            prefix = f"optimizer.{names[id(p)]}."
            for name, value in optimizer.state.get(p, {}).items():
                if value is not None:
                    tensors[prefix + name] = value if isinstance(value, torch.Tensor) else torch.tensor(value)
            for key in saved or {}:
                name = key.removeprefix(prefix)
                if key.startswith(prefix) and "." not in name and key not in tensors:
                    tensors[key] = _new_state(p, saved[key])  # type: ignore[index]
    groups = [
        {key: _option(value) for key, value in group.items() if key != "params"}
        | {"names": [names[id(p)] for p in group["params"]]}
        for group in optimizer.param_groups
    ]
    return tensors, groups


def _option(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else value


def _new_state(p: torch.Tensor, saved: Any) -> torch.Tensor:
    dtype = saved.properties.dtype
    if tuple(saved.size) == tuple(p.shape):
        return torch.zeros_like(p.detach(), dtype=dtype)
    return torch.zeros(tuple(saved.size), dtype=dtype, device=p.device)


def check_tensors(
    folder: Path, wanted: Mapping[str, torch.Tensor], saved: Mapping[str, Any], with_optimizer: bool
) -> None:
    """Raises CheckpointError that lists tensors which either side lacks, or has in another shape or dtype."""
    there = {name for name in saved if with_optimizer or not name.startswith("optimizer.")}
    missing = sorted(name for name in wanted if name not in there)
    unexpected = sorted(there - wanted.keys())
    other = [
        f"{name}: checkpoint={list(saved[name].size)} {saved[name].properties.dtype}, "
        f"wanted={list(tensor.shape)} {tensor.dtype}"
        for name, tensor in sorted(wanted.items())
        if name in there
        and (tuple(saved[name].size) != tuple(tensor.shape) or saved[name].properties.dtype is not tensor.dtype)
    ]
    if missing or unexpected or other:
        raise CheckpointError(
            f"{folder}: a checkpoint of something else: missing={missing}, unexpected={unexpected}, "
            f"other shapes={other}"
        )


def commit_optimizer(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: Mapping[str, torch.Tensor],
    groups: list[dict[str, Any]],
) -> None:
    """Gives the optimizer its state and options."""
    names = _names(model, optimizer)
    saved = {name: group for group in groups for name in group["names"]}
    for group in optimizer.param_groups:
        for p in group["params"]:
            prefix = f"optimizer.{names[id(p)]}."
            state = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            if state:
                optimizer.state[p] = {name: _as_kept(value, p) for name, value in state.items() if "." not in name}
        options = saved.get(names[id(group["params"][0])], {}) if group["params"] else {}
        group.update({key: _as_before(group.get(key), value) for key, value in options.items() if key != "names"})


def _as_kept(value: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """State of a parameter's shape lies as the parameter does."""
    if isinstance(p, DistributedTensor) and not isinstance(value, DistributedTensor) and value.shape == p.shape:
        return torch.empty_like(p.detach(), dtype=value.dtype).copy_(value)
    return value


def _as_before(old: Any, value: Any) -> Any:
    """An option in the kind that it had: JSON has lists for tuples, and numbers for tensors."""
    if isinstance(old, tuple):
        return tuple(value)
    return torch.full_like(old, value) if isinstance(old, torch.Tensor) else value
