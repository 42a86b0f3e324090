"""Plans whose cuts follow the entries of sparse inputs, so that sites have about equal work on uneven ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from joinsum import _C
from joinsum.cluster.context import Context
from joinsum.execution.sparse_blocks import sample_of
from joinsum.planner.plan_choice import PlanChoice, PlanRequest, recut

__all__ = ["BalancedPlans", "balanced_cuts", "entry_sample"]

# Entries that are looked at, and how many of their indices stand for them, in order.
_LOOKED_AT = 1 << 14
_KEPT = 1 << 10

# Of an operation on a sparse entry, about.
_SECONDS = 5e-10

_MOST_PLANS = 4  # of one graph, for other entries: the last ones


class _Known(NamedTuple):
    """A plan, and the cuts of its inputs by name."""

    cuts: dict[str, _C.RelationType]
    plan: _C.IaPlan


class BalancedPlans:
    """The plans of one graph for the cuts that the entries of its sparse inputs need.

    The search for a plan takes entries as evenly spread, which they are among parts that are cut so; its plan is
    rebuilt for other cuts where even ones leave a part more than a tenth above the work that it need have.
    """

    def __init__(self, current: Context, request: PlanRequest, choice: PlanChoice, sparse: Sequence[str]) -> None:
        self._context = current
        self._request = request
        self._choice = choice
        self._sparse = sparse
        # The last plan first, and the sample that it ran on.
        first = _Known(choice.binary.even_cuts(current.sites), choice.plan)
        self._known: tuple[list[_Known], list[np.ndarray]] = [first], []

    def plan_for(self, inputs: Mapping[str, torch.Tensor]) -> _C.IaPlan:
        """The plan for these inputs, by name. On a process group all ranks must call, with equal inputs."""
        sample = [sample_of(inputs[name], entry_sample) for name in self._sparse]
        known, before = self._known
        alike = len(sample) == len(before) and all(map(np.array_equal, sample, before))
        if not alike:
            samples = {name: each.tolist() for name, each in zip(self._sparse, sample, strict=True)}
            known = self._with_plan_in_front(known, samples)
            self._known = known, sample
        return known[0].plan

    def _with_plan_in_front(
        self, known: Sequence[_Known], samples: Mapping[str, Sequence[Sequence[int]]]
    ) -> list[_Known]:
        """The known plans, or the last of them and a new one, with the one for these entries first."""
        cuts: dict[str, _C.RelationType] = {}
        for i, each in enumerate(known):
            cuts = balanced_cuts(self._context, self._choice.binary, samples, each.cuts)
            if cuts == each.cuts:
                return [each, *known[:i], *known[i + 1 :]]
        plan = recut(self._context, self._request, self._choice, cuts)
        return [_Known(cuts, plan), *known[: _MOST_PLANS - 1]]


def balanced_cuts(
    current: Context,
    graph: _C.EinsumPlan,
    samples: Mapping[str, Sequence[Sequence[int]]],
    before: Mapping[str, _C.RelationType],
    stored: Mapping[str, Sequence[Sequence[int]]] | None = None,
) -> dict[str, _C.RelationType]:
    """The cuts of a graph's inputs by which sites have about equal work: those of `before` where these are good enough,
    and those of inputs that are stored already. Entries are known by their `entry_sample`."""
    operations_of_byte = 0.0 if current.single_process else 1 / (_SECONDS * current.cluster.bytes_per_second)
    return graph.balanced_cuts(current.sites, samples, operations_of_byte, before, stored or {})


def entry_sample(x: torch.Tensor) -> np.ndarray:
    """For each axis of a coalesced `torch.sparse_coo` tensor the indices of some entries, ascending: of all, or of
    1,024 that stand for a random sixteen thousand, the same for equal indices.

    >>> entry_sample(torch.eye(3).to_sparse())
    array([[0, 1, 2],
           [0, 1, 2]])
    """
    indices = x.indices()
    if indices.shape[1] > _LOOKED_AT:
        indices = indices[:, _drawn(indices.shape[1])]
    found = np.sort(indices.numpy(), axis=1)
    if found.shape[1] <= _KEPT:
        return found
    return found[:, (2 * np.arange(_KEPT) + 1) * found.shape[1] // (2 * _KEPT)]


@lru_cache(maxsize=64)
def _drawn(entries: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(entries, (_LOOKED_AT,), generator=draw)
