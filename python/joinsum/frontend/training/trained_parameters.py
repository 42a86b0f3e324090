"""Reads from an optimizer which parameters a step updates, and their state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from joinsum import _C
from joinsum.base.errors import PlanError
from joinsum.base.identity import identical
from joinsum.cluster.context import context
from joinsum.frontend.training.optimizer_list import OptimizerList
from joinsum.frontend.training.step_arguments import TrainedParameter
from joinsum.frontend.training.update import Update, for_complex

__all__ = ["Cohort", "OptimizerState", "TrainedParameters"]


@dataclass(frozen=True)
class Cohort:
    """Parameters whose updates read the same numbers.

    index   of their parameter group
    update  that of its optimizer
    steps   number of updates that they have had
    scalars the optimizer's other numbers for them
    dtype   of the numbers
    device  of the numbers
    """

    index: int
    update: Update
    steps: int
    scalars: Mapping[str, float]
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True)
class OptimizerState:
    """The state of an optimizer before a step.

    trained   the parameters that the step updates; the same list as in the last step, unless what it says has changed
    hooks     for each of them, the hooks of its gradient; empty if none has any
    state     for each of them, the optimizer's tensors; before the first step what torch begins with
    steps     for each of them, the number of updates that it has had
    cohorts   the parameters' cohorts
    """

    trained: list[TrainedParameter]
    hooks: list[list[Callable[[Tensor], Any]]]
    state: list[tuple[Tensor, ...]]
    steps: list[int]
    cohorts: list[Cohort]


@dataclass(frozen=True)
class _Groups:
    """The optimizer's parameter groups, and what follows from them for those parameters that require gradients.

    all         the parameters of all groups
    said        what else was read: how many there are in each group, its traits, and properties of the parameters
    trained     the parameters that require gradients, with their updates and traits
    parameters  these alone
    moments     for each of them the names of its state
    kinds       for each of them an index into `numbers`
    indices     for each of them the position of its group
    numbers     group, dtype and device of the numbers that updates read, and the update
    """

    all: Sequence[Tensor]
    said: Any
    trained: list[tuple[Tensor, Update, dict[str, bool]]]
    parameters: list[Tensor]
    moments: list[tuple[str, ...]]
    kinds: list[int]
    indices: list[int]
    numbers: list[tuple[int, torch.dtype, torch.device, Update]]


class TrainedParameters:
    """The parameters that the steps of optimizers update.

    names   of parameters, by identity, for errors
    """

    def __init__(self, optimizers: OptimizerList, names: Mapping[int, str]) -> None:
        self._optimizers = optimizers
        self._names = names
        # Of the last step; of the state only dtypes and shapes, as no reference to it may remain.
        self._groups = _Groups((), None, [], [], [], [], [], [])
        self._trained: list[TrainedParameter] = []
        self._forms: Any = None
        self._complex: dict[Update, Update | None] = {}  # updates of complex parameters, by those of real ones

    def read(self) -> OptimizerState:
        """The state now. Everything may have changed since the last step: options, groups, hooks, which parameters
        require gradients, and any tensor. Raises PlanError for hooks, and where there is nothing to update."""
        updates = self._optimizers.updates
        groups = self._read_groups(updates)
        state, steps, scalars = self._read_state(groups, updates)
        numbered: dict[tuple[int, int, tuple[tuple[str, float], ...]], int] = {}
        kinds = zip(groups.kinds, steps, scalars, strict=True)
        cohorts = [numbered.setdefault(each, len(numbered)) for each in kinds]
        forms = cohorts, _C.tensor_forms(list(chain.from_iterable(state)))
        if groups is not self._groups or forms != self._forms:
            parts = zip(groups.trained, groups.moments, cohorts, strict=True)
            self._trained = [TrainedParameter(*each, moments, cohort) for each, moments, cohort in parts]
            self._groups, self._forms = groups, forms
        found = []
        for kind, done, others in numbered:
            index, dtype, device, update = groups.numbers[kind]
            found.append(Cohort(index, update, done, dict(others), dtype, device))
        return OptimizerState(self._trained, self._hooks_of(groups), state, steps, found)

    def _read_groups(self, updates: Sequence[Update]) -> _Groups:
        """The groups; the same object as before if nothing has changed."""
        groups, known = self._optimizers.groups, self._groups
        traits = [dict(update.traits(group)) for update, group in zip(updates, groups, strict=True)]
        parameters = list(chain.from_iterable([group["params"] for group in groups]))
        said = traits, [len(group["params"]) for group in groups], _C.tensor_forms(parameters)
        if said != known.said or not identical(parameters, known.all):
            known = self._new_groups(parameters, updates, said)
        return known

    def _new_groups(self, parameters: Sequence[Tensor], updates: Sequence[Update], said: Any) -> _Groups:
        traits, counts, *_ = said
        found = _Groups(parameters, said, [], [], [], [], [], [])
        indices = chain.from_iterable([index] * count for index, count in enumerate(counts))
        numbers: dict[tuple[int, torch.dtype, torch.device, Update], int] = {}
        for index, p in zip(indices, parameters, strict=True):
            if p.requires_grad:
                wide = torch.float64 if p.dtype in (torch.float64, torch.complex128) else torch.float32
                update = self._complex_update(updates[index], p) if p.is_complex() else updates[index]
                found.trained.append((p, update, traits[index]))
                found.parameters.append(p)
                found.moments.append(update.moments(traits[index], p.shape))
                found.indices.append(index)
                found.kinds.append(numbers.setdefault((index, wide, _device_of(p), update), len(numbers)))
        if not found.trained:
            raise PlanError("train_step: no parameter of the optimizer requires a gradient")
        found.numbers.extend(numbers)
        return found

    def _complex_update(self, update: Update, p: Tensor) -> Update:
        """The update of a complex parameter; the same object for one update."""
        if update not in self._complex:
            self._complex[update] = for_complex(update)
        found = self._complex[update]
        if found is None or p.dtype is torch.complex32:
            raise PlanError(
                "train_step: this optimizer does not update complex parameters: "
                f"parameter={self._name(p)}, dtype={p.dtype}; use an elementwise optimizer, such as SGD or Adam, for it"
            )
        return found

    def _name(self, p: Tensor) -> str:
        return self._names.get(id(p), "of the optimizer alone")

    def _refuse_hooks(self, p: Tensor) -> None:
        raise PlanError(
            "train_step: a parameter has hooks on its accumulated gradient, which a step does not store: "
            f"parameter={self._name(p)}; use parameter.register_hook, or joinsum.distribute(model, sample_inputs), "
            "which runs them"
        )

    def _read_state(
        self, groups: _Groups, updates: Sequence[Update]
    ) -> tuple[list[tuple[Any, ...]], list[int], list[tuple[tuple[str, float], ...]]]:
        """For each trained parameter, the optimizer's tensors, the number of steps so far, and its other numbers."""
        known, options = self._optimizers.states, self._optimizers.groups
        state, steps, lacking = _C.read_state(groups.parameters, groups.indices, known, groups.moments)
        for i in lacking:
            (p, update, _), index = groups.trained[i], groups.indices[i]
            named = zip(groups.moments[i], state[i], strict=True)
            state[i] = tuple(_first_value(update, name, p, options[index]) if x is None else x for name, x in named)
        pairs = zip(updates, options, strict=True)
        firsts = [tuple(update.scalars(group, 0, _NOTHING).items()) for update, group in pairs]
        scalars = [firsts[index] for index in groups.indices]
        for i, first in enumerate(scalars) if any(firsts) else ():
            entries = known[groups.indices[i]].get(groups.parameters[i], _NOTHING)
            scalars[i] = tuple([(name, float(entries.get(name, x))) for name, x in first])
        return state, steps, scalars

    def _hooks_of(self, groups: _Groups) -> list[list[Callable[[Tensor], Any]]]:
        """The hooks of each trained parameter's gradient; empty if there are none. Raises PlanError for hooks after its
        accumulation."""
        before, after = _C.hooked(groups.parameters)
        if after:
            self._refuse_hooks(groups.parameters[after[0]])
        return [list((p._backward_hooks or {}).values()) for p in groups.parameters] if before else []


def _first_value(update: Update, name: str, p: Tensor, options: Mapping[str, Any]) -> Tensor:
    """A state tensor before the first step: expanded from one element."""
    value: float | complex = update.initial(name, options)
    value = complex(value, value) if p.is_complex() else value  # of both numbers of a pair
    return torch.full((), value, dtype=p.dtype, device=_device_of(p)).expand(update.shape(name, p.shape))


def _device_of(p: Tensor) -> torch.device:
    """Where a parameter is, or will be if it has no memory yet."""
    return context().device if p.is_meta else p.device


_NOTHING: Mapping[str, Any] = {}
