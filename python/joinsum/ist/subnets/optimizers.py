"""Which optimizers' states can follow neurons, what they start the state of a parameter with, and copies of the user's
optimizer with other parameters."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from joinsum.base.errors import CheckpointError, PlanError
from joinsum.cluster.context import context

__all__ = [
    "check_optimizer",
    "check_state_names",
    "first_state",
    "small",
    "sparse_refusal",
    "sparse_state",
    "with_parameters",
]

Optimizer = torch.optim.Optimizer


def check_optimizer(optimizer: Optimizer, cut: Sequence[torch.Tensor], carry: bool) -> None:
    """Raises PlanError for an optimizer that cannot train parameters that are `cut` and, with `carry`, for one that is
    not elementwise: by what it starts the state of a small parameter with, and by steps of one and of its parts."""
    name = type(optimizer).__name__
    if cut and isinstance(optimizer, torch.optim.LBFGS):
        raise PlanError(
            "IST: the optimizer has one state for all parameters together, which is of no use to other subnets; use an "
            f"elementwise one: optimizer={name}"
        )
    if not cut or not carry:
        return
    own = {id(parameter) for parameter in cut}
    for group in optimizer.param_groups:
        for example in {p.dim(): p for p in group["params"] if id(p) in own}.values():
            _check_first_state(optimizer, group, example)
            if example.dim() and not _is_elementwise(optimizer, group, example):
                raise PlanError(
                    "IST: the optimizer is not elementwise, so its state cannot follow the neurons: its update of a "
                    f'weight depends on others of its tensor: optimizer={name}; pass state="reset"'
                )


def _is_elementwise(optimizer: Optimizer, group: Mapping[str, Any], example: torch.Tensor) -> bool:
    """Whether steps of a small parameter change it as those of its two halves change them."""
    generator = torch.Generator().manual_seed(0)
    like, shape = small(example), [4] * example.dim()
    start, *gradients = (torch.randn(shape, generator=generator).to(like) for _ in range(4))
    whole, first, second = (nn.Parameter(part.clone()) for part in (start, start[:2], start[2:]))
    options = {**group, "lr": group["lr"] or 0.01} if "lr" in group else group  # a warm-up may begin at zero
    for parameters in ([whole], [first, second]):
        fresh = with_parameters(optimizer, [{**options, "params": parameters}], {})
        for gradient in gradients:
            parts = [gradient] if len(parameters) == 1 else torch.split(gradient, 2)
            for parameter, part in zip(parameters, parts, strict=True):
                parameter.grad = part.to_sparse(1) if isinstance(optimizer, torch.optim.SparseAdam) else part.clone()
            _step(optimizer, fresh)
    moved = float((whole - start).detach().abs().max())
    return float((whole - torch.cat([first, second])).detach().abs().max()) <= 1e-3 * moved


def _step(optimizer: Optimizer, fresh: Optimizer) -> None:
    """A step of a copy; one that has the user's optimizer inside finds no gradients there."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    gradients = [parameter.grad for parameter in parameters]
    try:
        for parameter in parameters:
            parameter.grad = None
        fresh.step()
    finally:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient


def _check_first_state(optimizer: Optimizer, group: Mapping[str, Any], example: torch.Tensor) -> None:
    # Different values, and no decay, which would bring them into a momentum.
    start = small(example)
    start += torch.arange(1, 1 + start.numel(), device=start.device).view(start.shape)
    for key, value in _first_state(optimizer, {**group, "weight_decay": 0.0}, start).items():
        if not isinstance(value, torch.Tensor) or value.numel() == 1:
            continue
        named = f"optimizer={type(optimizer).__name__}, state={key}"
        if value.shape != start.shape:
            raise PlanError(
                f"IST: the optimizer's state is not elementwise, so it cannot follow the neurons: {named}, shape="
                f'{list(value.shape)} for a parameter of shape {list(start.shape)}; pass state="reset"'
            )
        if torch.equal(value, start):
            raise PlanError(
                "IST: the optimizer starts a state with the parameter's own value, and weights that rest have no "
                f'state: {named}; pass state="reset"'
            )


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
    return _first_state(optimizer, group, torch.zeros_like(like))


def _first_state(optimizer: Optimizer, group: Mapping[str, Any], start: torch.Tensor) -> dict[str, Any]:
    """The same for a parameter that starts with this value."""
    parameter = nn.Parameter(start.clone())
    sparse = isinstance(optimizer, torch.optim.SparseAdam)
    parameter.grad = torch.zeros_like(start).to_sparse(1) if sparse else torch.zeros_like(start)
    state = _FirstWritten()
    fresh = with_parameters(optimizer, [{**group, "params": [parameter]}], {parameter: state})
    try:
        _step(optimizer, fresh)
    except Exception as error:  # of any optimizer's own code
        raise PlanError(
            "IST: what the optimizer starts its state with cannot be found, as it takes no step for one parameter "
            f'whose gradient is zero: optimizer={type(optimizer).__name__}, cause={error}; pass state="reset"'
        ) from error
    return state.first()


def sparse_state(optimizer: Optimizer, parameter: torch.Tensor) -> str | None:
    """The name of a state that is sparse where the gradient of a parameter is, such as SGD's momentum; None where there
    is none."""
    own = (group for group in optimizer.param_groups if any(each is parameter for each in group["params"]))
    group = next(own, None)
    if group is None:
        return None
    example = nn.Parameter(small(parameter))
    example.grad = torch.zeros_like(example).to_sparse(1)
    fresh = with_parameters(optimizer, [{**group, "params": [example]}], {})
    try:
        _step(optimizer, fresh)
    except Exception:  # of any optimizer's own code, which says at the first step why
        return None
    state = fresh.state[example].items()
    return next((key for key, value in state if isinstance(value, torch.Tensor) and value.is_sparse), None)


def sparse_refusal(optimizer: Optimizer, parameter: str, state: str) -> str:
    """Why a state cannot be exchanged."""
    return (
        "IST: the optimizer's state for a parameter with sparse gradients is sparse, so it cannot be exchanged; use "
        "sparse=False, an optimizer whose state is dense (SparseAdam, Adagrad), or no momentum: parameter="
        f"{parameter}, optimizer={type(optimizer).__name__}, state={state}"
    )


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
    """Zeros of as many axes as a parameter has; in the sites' memory where the parameter has none."""
    device = context().device if parameter.is_meta else parameter.device
    return torch.zeros([2] * parameter.dim(), dtype=parameter.dtype, device=device)


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
