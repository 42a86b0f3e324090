"""One or several optimizers of a training step, as the list of their parameter groups."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from itertools import chain
from typing import Any

import torch

from joinsum.base.arguments import show
from joinsum.base.errors import PlanError
from joinsum.frontend.training.optimizers import update_of
from joinsum.frontend.training.update import Update

__all__ = ["OptimizerList"]


class OptimizerList:
    """Optimizers that update different parameters of a model, such as Muon for its matrices and AdamW for the rest."""

    def __init__(self, given: torch.optim.Optimizer | Sequence[torch.optim.Optimizer]) -> None:
        self.given = given
        self.all: Sequence[Any] = tuple(given) if isinstance(given, list | tuple) else (given,)
        if not self.all:
            raise PlanError(f"train_step: at least one optimizer updates the parameters: got={show(given)}")
        _ = self.updates
        found: set[int] = set()
        for group in self.groups:
            own = {id(p) for p in group["params"]}
            if not own.isdisjoint(found):
                raise PlanError("train_step: two optimizers update one parameter; give each parameter to one of them")
            found |= own

    def __repr__(self) -> str:
        return ", ".join(type(each).__name__ for each in self.all)

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all."""
        if len(self.all) == 1:
            return self.all[0].param_groups  # type: ignore[no-any-return]
        return list(chain.from_iterable(each.param_groups for each in self.all))

    @property
    def updates(self) -> list[Update]:
        """For each group the update of its optimizer. Raises PlanError for one that has none."""
        return [found for each in self.all for found in [update_of(each)] for _ in each.param_groups]

    @property
    def states(self) -> list[MutableMapping[Any, Any]]:
        """For each group the state of its optimizer, by parameter."""
        return [each.state for each in self.all for _ in each.param_groups]

    def state_dict(self) -> Any:
        """The state of the optimizer, or a list of several ones' states."""
        states = [each.state_dict() for each in self.all]
        return states if isinstance(self.given, list | tuple) else states[0]
