"""Copies of the user's optimizer with other parameters, and what it starts the state of a parameter with."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from joinsum.base.errors import CheckpointError, PlanError

__all__ = ["check_state_names", "first_state", "small", "with_parameters"]

Optimizer = torch.optim.Optimizer


def with_parameters(
    optimizer: Optimizer, groups: Sequence[Mapping[str, Any]], state: Mapping[torch.Tensor, dict[str, Any]]
) -> Optimizer:
    """An optimizer of the same kind with these parameter groups and states, and without hooks. Neither the
    constructor is called, which makes states, nor what copies and pickles call, which expects some."""
    new = object.__new__(type(optimizer))
    new.__dict__.update(optimizer.__dict__)
    new.__dict__.pop("step", None)  # a schedule's wrapper, which steps the original
    hooks = [name for name in new.__dict__ if name.startswith("_optimizer_") and name.endswith("_hooks")]
    new.__dict__.update({name: OrderedDict() for name in hooks})
    new.param_groups = [dict(group) for group in groups]
    new.state = defaultdict(dict, state)
    return new


class _FirstWritten(dict[str, Any]):
    """A parameter's state that remembers the value of each entry that was written first."""

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[str, Any] = {}

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self._first.setdefault(key, _copy(value))

    def first(self) -> dict[str, Any]:
        """The values; the last ones of entries that were not written one by one."""
        return {key: self._first.get(key, value) for key, value in self.items()}


def first_state(optimizer: Optimizer, group: Mapping[str, Any], like: torch.Tensor) -> dict[str, Any]:
    """What an optimizer starts the state of a parameter of this group with, for a parameter of this shape: what it
    writes first in a step whose gradient is zero. Raises PlanError where it takes no such step.

    >>> rprop = torch.optim.Rprop([nn.Parameter(torch.ones(3))], lr=0.01)
    >>> first_state(rprop, rprop.param_groups[0], torch.zeros(2))["step_size"]
    tensor([0.0100, 0.0100])
    """
    parameter = nn.Parameter(torch.zeros_like(like))
    sparse = isinstance(optimizer, torch.optim.SparseAdam)
    parameter.grad = torch.zeros_like(like).to_sparse(1) if sparse else torch.zeros_like(like)
    state = _FirstWritten()
    fresh = with_parameters(optimizer, [{**group, "params": [parameter]}], {parameter: state})
    try:
        fresh.step()
    except Exception as error:  # of any optimizer's own code
        raise PlanError(
            "IST: what the optimizer starts its state with cannot be found, as it takes no step for one parameter "
            f'whose gradient is zero: optimizer={type(optimizer).__name__}, cause={error}; pass state="reset"'
        ) from error
    return state.first()


def check_state_names(what: str, optimizer: Optimizer) -> None:
    """Raises CheckpointError where the state of a parameter has other names than the optimizer gives them."""
    for group in optimizer.param_groups:
        wanted: dict[int, set[str]] = {}
        for parameter in group["params"]:
            rank = parameter.dim()
            found = set(optimizer.state.get(parameter, {}))
            if found and rank not in wanted:
                wanted[rank] = set(first_state(optimizer, group, small(parameter)))
            if found and found != wanted[rank]:
                raise CheckpointError(
                    f"{what}: a checkpoint of another optimizer: saved={sorted(found)}, wanted={sorted(wanted[rank])}, "
                    f"optimizer={type(optimizer).__name__}"
                )


def small(parameter: torch.Tensor) -> torch.Tensor:
    """Zeros of as many axes as a parameter has."""
    return torch.zeros([2] * parameter.dim(), dtype=parameter.dtype, device=parameter.device)


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
