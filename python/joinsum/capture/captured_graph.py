"""A graph of ATen operators that is to run on the sites, and what runs it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from joinsum import _C
from joinsum.capture.recording.recorded import Recorded
from joinsum.capture.recording.symbolic_numbers import SymbolicNumbers
from joinsum.execution.planned_graph import PlannedGraph
from joinsum.planner.baseline_costs import PricedBaseline

__all__ = ["CapturedGraph", "Executable", "SparseEntries"]


@dataclass(frozen=True)
class SparseEntries:
    """What is known of the elements of a sparse input.

    count    about how many it stores
    sample   for each axis indices of some, as `entry_sample` says; None where no axis is cut
    """

    count: int
    sample: np.ndarray | None = None


@dataclass(frozen=True)
class CapturedGraph:
    """A graph of ATen operators, and how it is to run.

    example_inputs   for each placeholder a tensor, that may be fake, or a number
    names            what inputs are called in explanations and errors
    ties             for a result, the input whose blocks it may overwrite
    stay             results that stay distributed; the others are plain tensors on every rank
    state            positions of the inputs that live on between runs, as parameters do; the others are data. The plan
                     costs no more than the baselines, which depend on that; None where it is not known
    moving           positions of distributed inputs that the plan may move to other layouts; it takes the others where
                     they are
    replicate        operators without a rule, `aten::...`, that run whole on every site
    numbers          those in it that are symbolic; None where all are plain
    sparse           for inputs that are sparse, by name, what is known of their elements
    """

    gm: torch.fx.GraphModule
    example_inputs: Sequence[Any]
    names: Sequence[str] | None = None
    ties: Mapping[int, int] = field(default_factory=dict)
    stay: Collection[int] = frozenset()
    state: Collection[int] | None = None
    moving: Collection[int] = frozenset()
    replicate: Collection[str] = ()
    numbers: SymbolicNumbers | None = None
    sparse: Mapping[str, SparseEntries] = field(default_factory=dict)

    @property
    def device(self) -> torch.device | None:
        """Where arguments and results are. Numbers are on the CPU, also beside those on a GPU; None without tensors."""
        graph = self.gm.graph
        nodes = [*graph.find_nodes(op="placeholder"), *graph.output_node().all_input_nodes]
        values = (node.meta.get("val") for node in nodes)
        found = [value.device for value in values if isinstance(value, torch.Tensor)]
        return next((device for device in found if device.type != "cpu"), found[0] if found else None)


class Executable(Protocol):
    """A captured graph with its plan.

    input_types   for each input, where the plan wants it; None for one that is no tensor or is not read
    """

    @property
    def input_types(self) -> Sequence[_C.PhysicalType | None]: ...

    @property
    def recorded(self) -> Recorded:
        """The recorded program."""
        ...

    @property
    def planned(self) -> PlannedGraph:
        """The program with the plan that ran last; before that, the one for whole inputs. On a process group all ranks
        call."""
        ...

    def baselines(self) -> tuple[PricedBaseline, ...]:
        """What the baselines cost beside the plan; empty unless the caller declared which inputs are state. Each costs
        a search. On a process group all ranks call."""
        ...

    def modules(self) -> dict[str, str]:
        """For nodes of the plan of `planned`, by name, the user's module that computes them, where that is known."""
        ...

    def __call__(self, args: list[Any]) -> list[torch.Tensor]:
        """The results, for whole tensors (equal on every rank) or distributed ones, in the graph's order. The list may
        be emptied."""
        ...
