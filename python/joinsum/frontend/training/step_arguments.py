"""The arguments of a training step besides its batch."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

__all__ = ["StepArguments", "TrainedParameter"]


@dataclass(frozen=True)
class TrainedParameter:
    """A parameter that a step updates.

    traits   the options of its group that decide which operators there are
    state    the optimizer's tensors for it, in the optimizer's order
    steps    number of updates that it has had
    cohort   index of the number tensors that its update reads
    """

    parameter: Tensor
    traits: dict[str, bool]
    state: dict[str, Tensor]
    steps: int
    cohort: int


@dataclass(frozen=True)
class StepArguments:
    """Tensors, and options that decide which operators update them.

    sums      sums of gradients since the last update, one per trained parameter; empty at an update's first batch
    numbers   tensors of one element that the update reads, by name, for each cohort
    last      whether an update follows
    """

    trained: list[TrainedParameter]
    sums: list[Tensor]
    numbers: list[dict[str, Tensor]]
    last: bool

    def traced(self) -> tuple[Any, ...]:
        """What the traced function takes of them."""
        return [each.parameter for each in self.trained], self.sums, self.last

    @cached_property
    def update_key(self) -> Hashable:
        """What the operators that update the parameters depend on besides the traced graph."""
        if not self.last:
            return None
        traits = {each.cohort: tuple(each.traits.items()) for each in self.trained}
        numbers = tuple((name, x.dtype) for numbers in self.numbers for name, x in numbers.items())
        states = [(each.cohort, *((x.dtype, x.shape) for x in each.state.values())) for each in self.trained]
        return tuple(traits.items()), numbers, tuple(states)
