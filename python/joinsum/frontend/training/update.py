"""An optimizer's update as a function of tensors, as part of a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from joinsum.frontend.lookups import Lookup

__all__ = ["Numbers", "Options", "Scalars", "State", "Traits", "Update", "for_complex", "in_single_precision"]

Numbers = Mapping[str, Tensor]
State = dict[str, Tensor]
Options = Mapping[str, Any]
Traits = Mapping[str, Any]
Scalars = Mapping[str, float]


@dataclass(frozen=True)
class Update:
    """One kind of optimizer.

    traits    the options of a parameter group that decide which operators the update calls
    moments   torch's names of a parameter's state tensors, for its traits and shape
    numbers   the numbers that the update reads, from a group's options, the number of steps including this one, and
              the scalars
    counts    whether torch's optimizer stores the number of steps, as `step`
    new       (parameter, gradient, state, numbers, traits) -> (parameter, state), without writing into any of them
    shape     the shape of a state tensor, by its name and the parameter's shape
    initial   the value of a state tensor before the first step, by its name and the group's options
    scalars   the optimizer's numbers for a parameter besides `step`, after a step, from the options, the number of
              steps including it, and the scalars before it; before the first step with 0 steps and none
    fused     whether `new` is one operator, which computes halves in single precision and reads its numbers on the host
    complex   how complex parameters are updated: as "numbers", where `new` is linear; as "pairs" of real numbers, which
              `new` gets on a last axis; None where torch does not update them
    in_parts  the same update by several operators, where `new` is one that takes no complex parameters
    of_rows   the update by the gradient of a lookup alone, (parameter, lookup, state, numbers, traits) -> (parameter,
              state); None where there is none
    rests     for its traits, whether rows of a parameter without a gradient stay as they are
    """

    traits: Callable[[Options], Traits]
    moments: Callable[[Traits, torch.Size], tuple[str, ...]]
    numbers: Callable[[Options, int, Scalars], dict[str, float]]
    counts: bool
    new: Callable[[Tensor, Tensor, State, Numbers, Traits], tuple[Tensor, State]]
    shape: Callable[[str, torch.Size], torch.Size] = lambda name, shape: shape
    initial: Callable[[str, Options], float] = lambda name, options: 0.0
    scalars: Callable[[Options, int, Scalars], dict[str, float]] = lambda options, step, before: {}
    fused: bool = False
    complex: Literal["numbers", "pairs"] | None = "pairs"
    in_parts: Update | None = None
    of_rows: Callable[[Tensor, Lookup, State, Numbers, Traits], tuple[Tensor, State]] | None = None
    rests: Callable[[Traits], bool] = lambda traits: False


def for_complex(update: Update) -> Update | None:
    """The update of complex parameters; None where torch has none."""
    if update.complex != "pairs":
        return update if update.complex else None
    real = update.in_parts or update

    def new(p: Tensor, gradient: Tensor, state: State, numbers: Numbers, traits: Traits) -> tuple[Tensor, State]:
        pairs = {name: torch.view_as_real(value) for name, value in state.items()}
        parameter, updated = real.new(torch.view_as_real(p), torch.view_as_real(gradient), pairs, numbers, traits)
        return torch.view_as_complex(parameter), {name: torch.view_as_complex(x) for name, x in updated.items()}

    return replace(real, new=new)


def in_single_precision(update: Update) -> Update:
    """The update of a parameter and its state, in which half-precision parameters get single precision."""
    if update.fused:
        return update

    def new(p: Tensor, gradient: Tensor, state: Any, numbers: Any, traits: Any) -> Any:
        if p.dtype in (torch.float32, torch.float64) or p.is_complex():
            return update.new(p, gradient, state, numbers, traits)
        wide = {name: value.float() for name, value in state.items()}
        parameter, updated = update.new(p.float(), gradient.float(), wide, numbers, traits)
        return parameter.to(p.dtype), {name: value.to(p.dtype) for name, value in updated.items()}

    return replace(update, new=new)
