"""The baselines: standard plans, such as data parallel, with which a chosen plan is compared. One table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["BASELINES", "BaselineBuilder"]

Baseline = TypeVar("Baseline")


class BaselineBuilder(ABC, Generic[Baseline]):
    """Builds the baselines of one graph; each takes the name that it is shown by."""

    @abstractmethod
    def split(self, name: str, axis: int) -> Baseline:
        """Data along their first or second axis, and all that is computed from it; parameters on every site."""

    @abstractmethod
    def sharded(self, name: str) -> Baseline:
        """As data parallel, but parameters are divided along their longest axes."""

    @abstractmethod
    def tensor_parallel(self, name: str) -> Baseline:
        """Parameters along axes that no data has: columns of a product whose result the next one reduces along its
        rows. Source: Megatron-LM, section 3."""

    @abstractmethod
    def replicated(self, name: str) -> Baseline:
        """Every site does all the work."""

    def all(self) -> list[Baseline]:
        """One for each row of the table."""
        return [build(self, name) for name, build in BASELINES.items()]


BASELINES: dict[str, Callable[[BaselineBuilder[Baseline], str], Baseline]] = {
    "data parallel": lambda builder, name: builder.split(name, 0),
    "fully sharded data parallel": lambda builder, name: builder.sharded(name),
    "tensor parallel": lambda builder, name: builder.tensor_parallel(name),
    "sequence split": lambda builder, name: builder.split(name, 1),
    "replicate all": lambda builder, name: builder.replicated(name),
}
