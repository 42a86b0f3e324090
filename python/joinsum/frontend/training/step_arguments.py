"""The arguments of a training step besides its batch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from torch import Tensor

from joinsum.frontend.training.update import Update

__all__ = ["StepArguments", "TrainedParameter"]


@dataclass(frozen=True)
class TrainedParameter:
    """A parameter that a step updates.

    update   that of its optimizer
    traits   the options of its group that decide which operators there are
    moments  names of the optimizer's tensors for it, in the optimizer's order
    cohort   index of the number tensors that its update reads
    """

    parameter: Tensor
    update: Update
    traits: Mapping[str, Any]
    moments: tuple[str, ...]
    cohort: int


@dataclass(frozen=True)
class StepArguments:
    """Tensors, and options that decide which operators update them.

    trained   the same list in all steps between which nothing has changed but the values of tensors
    hooks     for each trained parameter the hooks of its gradient; empty if no parameter has one
    state     for each trained parameter, the optimizer's tensors
    sums      sums of gradients since the last update, one per trained parameter, None where it had no gradient; empty
              at an update's first batch
    numbers   tensors of one element that the update reads, by name, for each cohort
    last      whether an update follows
    scale     the factor of the loss, a tensor of one element; None without a GradScaler
    """

    trained: list[TrainedParameter]
    hooks: list[list[Callable[[Tensor], Any]]]
    state: Sequence[Sequence[Tensor]]
    sums: list[Tensor | None]
    numbers: list[dict[str, Tensor]]
    last: bool
    scale: Tensor | None = None

    def traced(self) -> tuple[Any, ...]:
        """What the traced function takes of them."""
        return self.parameters, self.hooks, self.sums, self.last, self.scale

    @cached_property
    def parameters(self) -> list[Tensor]:
        """The trained parameters."""
        return [each.parameter for each in self.trained]

    @cached_property
    def tensors(self) -> list[Tensor]:
        """The trained parameters, all of their state, and the numbers."""
        numbers = chain.from_iterable(each.values() for each in self.numbers)
        return [*self.parameters, *chain.from_iterable(self.state), *numbers]

    @cached_property
    def places(self) -> dict[Hashable, int]:
        """Positions in `tensors`: of a trained parameter's state by (True, its index, name), of a cohort's numbers by
        (False, its index, name)."""
        state = [(True, i, name) for i, each in enumerate(self.trained) for name in each.moments]
        numbers = [(False, i, name) for i, each in enumerate(self.numbers) for name in each]
        return {each: len(self.trained) + place for place, each in enumerate([*state, *numbers])}

    @cached_property
    def update_key(self) -> Hashable:
        """What the operators that update the parameters depend on besides the traced graph."""
        if not self.last:
            return None
        traits = {each.cohort: (each.update, *each.traits.items()) for each in self.trained}
        numbers = tuple((name, x.dtype) for numbers in self.numbers for name, x in numbers.items())
        pairs = zip(self.trained, self.state, strict=True)
        states = [(each.cohort, *((x.dtype, x.shape) for x in state)) for each, state in pairs]
        return tuple(traits.items()), numbers, tuple(states)
