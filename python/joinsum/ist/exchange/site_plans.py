"""Plans of independent subnet training: where relations are on the sites, and how plans of them run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from joinsum import _C
from joinsum.algebra.plan import IaPlan, lower, plan
from joinsum.algebra.stored_relation import Place, StoredRelation, resolve_place
from joinsum.base.errors import TransportError
from joinsum.cluster.context import context
from joinsum.execution.relation import Relation
from joinsum.execution.run import run

__all__ = ["Draft", "SitePlans", "empty", "remedy_named"]

_REMEDY = (
    "; where a site is lost, go on with IST.recover (buddy=True) or from the last checkpoint, as it had the only copy "
    "of what it trained; where sites differ, they took other numbers of steps or have other optimizer state (a "
    "GradScaler skipped a step)"
)


@dataclass
class Draft:
    """A plan as it is built.

    places       of the outputs that end neither divided along their first key dimension nor replicated
    replicated   outputs that every site needs whole
    """

    inputs: dict[str, Relation] = field(default_factory=dict)
    outputs: dict[str, Relation] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    replicated: Sequence[str] = ()

    def add_output(self, name: str, output: Relation, place: Place | None = None) -> None:
        """Adds an output, and where it ends unless that is divided along its first key dimension."""
        self.outputs[name] = output
        if place is not None:
            self.places[name] = place


class SitePlans:
    """Plans on the sites of the context in which this is made."""

    def __init__(self) -> None:
        self.context = context()

    # --- places -------------------------------------------------------------------------------------------------------

    def along(self, dim: int) -> list[int]:
        """The placement of tuples that are divided along a key dimension."""
        return [dim] * len(self.context.grid.axes)

    @property
    def by_site(self) -> str:
        """The placement of tuples <site, ...>, of which some sites may have none."""
        return self.divided_on(self.context.sites)

    def divided_on(self, domain: int) -> str:
        """The placement of tuples that are divided by their first key dimension as if it had so many keys."""
        return f"({', '.join([f'0:{domain}'] * len(self.context.grid.axes))})"

    def placed(self, type_: _C.RelationType, place: Place) -> _C.PhysicalType:
        """The type of a relation that is stored so."""
        grid = self.context.grid
        return _C.PhysicalType.placed("IST", type_, grid, resolve_place("IST", place, grid, type_.frontier))

    def stored(self, tuples: Sequence[tuple[list[int], torch.Tensor]], type_: _C.PhysicalType) -> StoredRelation:
        """A relation of the tuples that this process's sites have."""
        current = self.context
        core = _C.place_tuples(tuples, type_, current.local_sites, current.store, False)
        return StoredRelation(core, current, type_)

    # --- plans --------------------------------------------------------------------------------------------------------

    def lowered(self, draft: Draft) -> IaPlan:
        """The plan of a draft."""
        wanted: dict[str, Place] = dict.fromkeys(draft.outputs, self.along(0))
        wanted |= draft.places
        wanted |= dict.fromkeys(draft.replicated, "replicated")
        return lower(plan(ties=None, **draft.outputs), output_place=wanted)

    def run(self, draft: Draft) -> dict[str, StoredRelation]:
        """Runs the plan of a draft; nothing where that has no output. Collective."""
        if not draft.outputs:
            return {}
        physical = self.lowered(draft)
        with remedy_named():
            return run(physical, {name: draft.inputs[name] for name in physical.inputs})


@contextmanager
def remedy_named(failed: str = "no exchange of neurons") -> Iterator[None]:
    """Says in a TransportError what failed and what to do, unless it has been said."""
    try:
        yield
    except TransportError as error:
        if _REMEDY in str(error):
            raise
        raise TransportError(f"IST: {failed}: {error}{_REMEDY}") from error


def empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of which only the shape counts; it takes no memory."""
    return torch.zeros((), dtype=dtype).expand(list(shape))
