"""Optimizer state as tensors named by parameters, which any number of sites, and any program, can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from joinsum.base.errors import CheckpointError, PlanError
from joinsum.distributed.distributed_tensor import DistributedTensor

__all__ = ["check_same", "flattened_optimizer", "named_state", "restore_optimizer"]


def named_state(model: torch.nn.Module) -> list[tuple[str, str, torch.Tensor]]:
    """(name, first name of the same tensor, tensor) for all tensors of the model's `state_dict`."""
    first: dict[int, str] = {}
    state = [(name, x) for name, x in model.state_dict(keep_vars=True).items() if isinstance(x, torch.Tensor)]
    return [(name, first.setdefault(id(x), name), x.detach()) for name, x in state]


def _names(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[int, str]:
    """The name of each parameter of the optimizer, by identity."""
    names = {id(p): name for name, p in model.named_parameters()}
    for group in optimizer.param_groups:
        for p in group["params"]:
            if id(p) not in names:
                shape = list(p.shape)
                raise PlanError(f"checkpoint: the optimizer has a parameter that is not the model's: shape={shape}")
    return names


def flattened_optimizer(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    saved: Mapping[str, Any] | None = None,
    saved_groups: Sequence[Mapping[str, Any]] = (),
) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    """Tensors `optimizer.<parameter>.<name>`, and the options of each parameter group with its parameters' names.

    saved          the tensors of a checkpoint: state that the optimizer does not have yet gets their shapes and dtypes,
                   and the layout of the parameters
    saved_groups   its parameter groups: a parameter of theirs without saved state had none yet, and is left out
    """
    names = _names(model, optimizer)
    with_state = {key.rpartition(".")[0] for key in saved or ()}
    fresh = {name for group in saved_groups for name in group["names"] if f"optimizer.{name}" not in with_state}
    tensors: dict[str, torch.Tensor] = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            prefix = f"optimizer.{names[id(p)]}."
            for name, value in optimizer.state.get(p, {}).items():
                if value is not None and names[id(p)] not in fresh:
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


def check_same(what: str, saved: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Raises CheckpointError that lists tensors which either side lacks, or that have different descriptions."""
    missing, unexpected = sorted(wanted.keys() - saved.keys()), sorted(saved.keys() - wanted.keys())
    other = [
        f"{name}: saved={saved[name]}, wanted={wanted[name]}"
        for name in sorted(wanted)
        if name in saved and saved[name] != wanted[name]
    ]
    if missing or unexpected or other:
        raise CheckpointError(f"{what}: missing={missing}, unexpected={unexpected}, other shapes={other}")


def restore_optimizer(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: Mapping[str, torch.Tensor],
    groups: list[dict[str, Any]],
) -> None:
    """Sets the optimizer's state and options. A parameter of the groups without state among the tensors has none."""
    names = _names(model, optimizer)
    saved = {name: group for group in groups for name in group["names"]}
    for group in optimizer.param_groups:
        for p in group["params"]:
            prefix = f"optimizer.{names[id(p)]}."
            state = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            if state:
                optimizer.state[p] = {name: _in_layout_of(value, p) for name, value in state.items() if "." not in name}
            elif names[id(p)] in saved:
                optimizer.state.pop(p, None)
        options = saved.get(names[id(group["params"][0])], {}) if group["params"] else {}
        group.update({key: _in_former_type(group.get(key), value) for key, value in options.items() if key != "names"})


def _in_layout_of(value: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """State of a parameter's shape, in the parameter's layout."""
    if isinstance(p, DistributedTensor) and not isinstance(value, DistributedTensor) and value.shape == p.shape:
        return torch.empty_like(p.detach(), dtype=value.dtype).copy_(value)
    return value


def _in_former_type(old: Any, value: Any) -> Any:
    """An option in the type that it had: JSON has lists for tuples, and numbers for tensors."""
    if isinstance(old, tuple):
        return tuple(value)
    return torch.full_like(old, value) if isinstance(old, torch.Tensor) else value
