"""Baselines of captured programs, as placements that a search completes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from joinsum import _C
from joinsum.graphs.label_classes import Place, classes_of
from joinsum.planner.baselines.table import BASELINES, BaselineBuilder

__all__ = ["PlacementBaseline", "PlacementBaselines", "ProgramInput"]

_NO_DATA = "no input is data with axes"


@dataclass(frozen=True)
class PlacementBaseline:
    """A baseline, as far as it is fixed: the planner chooses the rest.

    placements   where inputs are at first, and outputs that are tied to them in the end, by the inputs' names;
                 constants and the seed start anywhere
    values       placements of vertices' results by name
    everywhere   whether every site does all the work
    reason       why there is no such plan, or None
    """

    name: str
    placements: Mapping[str, _C.Placement] = field(default_factory=dict)
    values: Mapping[str, _C.Placement] = field(default_factory=dict)
    everywhere: bool = False
    reason: str | None = None


@dataclass(frozen=True)
class ProgramInput:
    """An input of a captured program that a caller gives.

    axes    extents of the factors that each axis of the shape is in the graph
    state   whether it lives on between runs: parameters, buffers, the optimizer's state; other inputs are data
    """

    name: str
    shape: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]
    state: bool


class PlacementBaselines(BaselineBuilder[PlacementBaseline]):
    """The baselines of a captured program. The batch is the first axis of the first data that has axes.

    graph    of vertices of at most two operands
    types    of its inputs and vertices, by name, with the parts that they may be cut into
    """

    def __init__(
        self,
        inputs: Sequence[ProgramInput],
        graph: _C.EinsumPlan,
        types: Mapping[str, _C.RelationType],
        grid: _C.Grid,
    ) -> None:
        self.grid = grid
        self.types = types
        # Outputs end where the inputs that they are tied to start.
        outputs = set(graph.output_nodes)
        self.inner = [name for name, *_ in graph.uses if name not in outputs]
        known = [each for each in inputs if each.name in types]
        self.shapes = {each.name: each.shape for each in known}
        self.factors = {each.name: each.axes for each in known}
        self.state = [each.name for each in known if each.state]
        self.data = [each.name for each in known if not each.state]
        self.first = next((name for name in self.data if self.shapes[name]), None)
        self.copies = dict.fromkeys(self.shapes, _C.Placement.replicated(grid))
        self.classes = classes_of(graph)

    def all(self) -> list[PlacementBaseline]:
        if self.grid.sites == 1:
            return [PlacementBaseline(name, reason="there is one site") for name in BASELINES]
        return super().all()

    def split(self, name: str, axis: int) -> PlacementBaseline:
        """Data along their first or second axis, where it is as long as that of the first of them, and all that is
        computed along it; state everywhere."""
        if self.first is None:
            return PlacementBaseline(name, reason=_NO_DATA)
        shape = self.shapes[self.first]
        if axis >= len(shape):
            return PlacementBaseline(name, reason=f"{self.first} has {len(shape)} axes")
        if self.along(self.first, axis) is None:
            return PlacementBaseline(
                name, reason=f"{self.first} is not to be cut for {self.grid.sites} sites along axis {axis}"
            )
        alike = [each for each in self.data if self.shapes[each][axis : axis + 1] == shape[axis : axis + 1]]
        cut = {each: self.along(each, axis) for each in alike}
        placements = self.copies | {each: place for each, place in cut.items() if place is not None}
        return PlacementBaseline(name, placements, self.along_classes([self.class_of(self.first, axis)]))

    def sharded(self, name: str) -> PlacementBaseline:
        """As data parallel, with state along its longest axis that has elements for all sites."""
        plain = self.split(name, 0)
        shards = {each: place for each in self.state if (place := self.longest(each)) is not None}
        if plain.reason is None and not shards:
            return PlacementBaseline(name, reason=f"no parameter is to be cut for {self.grid.sites} sites")
        return PlacementBaseline(name, {**plain.placements, **shards}, plain.values, reason=plain.reason)

    def tensor_parallel(self, name: str) -> PlacementBaseline:
        """Data everywhere, state along classes that no data has: columns of a product whose result the next one
        reduces along its rows. Source: Megatron-LM, section 3.
        """
        of_data = {of for each in self.data for of in self.axes_of(each).values()}
        hidden = {
            each: {of: axis for axis, of in self.axes_of(each).items() if of not in of_data} for each in self.state
        }
        order = self._narrowed([axes for each, axes in hidden.items() if axes and len(self.shapes[each]) > 1])
        cut = {}
        for each, axes in hidden.items():
            own = [of for of in order if of in axes]
            place = self.along(each, axes[own[0]]) if own else None
            if place is not None:
                cut[each] = place
        if not cut:
            return PlacementBaseline(
                name, reason=f"no axis of parameters alone is to be cut for {self.grid.sites} sites"
            )
        return PlacementBaseline(name, self.copies | cut, self.along_classes(order))

    def replicated(self, name: str) -> PlacementBaseline:
        return PlacementBaseline(name, self.copies, everywhere=True)

    def _narrowed(self, matrices: Sequence[Collection[Place]]) -> list[Place]:
        """Classes of which every matrix has one, in the order in which vertices read them. The most frequent are left
        out where all matrices have another one too: the width of a stream that layers add to stays undivided."""
        count = Counter(of for axes in matrices for of in axes)
        order = [of for of in self.classes.in_order() if of in count]
        left = [set(axes) for axes in matrices]
        for of in sorted(order, key=lambda each: -count[each]):
            if all(axes - {of} for axes in left):
                left = [axes - {of} for axes in left]
                order.remove(of)
        return order

    def axes_of(self, name: str) -> dict[int, Place]:
        """The axes of an input that can be cut for all sites, and the class of each."""
        axes = [axis for axis in range(len(self.shapes[name])) if self.along(name, axis) is not None]
        return {axis: self.class_of(name, axis) for axis in axes}

    def class_of(self, name: str, axis: int) -> Place:
        """Of an input's axis, or of its first factor."""
        return self.classes.find((name, sum(map(len, self.factors[name][:axis]))))

    def along_classes(self, classes: Sequence[Place]) -> dict[str, _C.Placement]:
        """Inner vertices whose results have one of these classes along it, where it is long enough; the first that they
        have counts."""
        placements = {}
        for name in self.inner:
            own = [self.classes.find((name, axis)) for axis in range(len(self.types[name].axes))]
            axes = [own.index(of) for of in classes if of in own]
            place = self._cut(name, axes[:1])
            if place is not None:
                placements[name] = place
        return placements

    def longest(self, name: str) -> _C.Placement | None:
        axes = sorted(range(len(self.shapes[name])), key=lambda axis: -self.shapes[name][axis])
        return next((place for axis in axes if (place := self.along(name, axis)) is not None), None)

    def along(self, name: str, axis: int) -> _C.Placement | None:
        """The placement that cuts an axis of an input for all sites; None where it is too short, or never cut."""
        factors = self.factors[name]
        first = sum(map(len, factors[:axis]))
        return self._cut(name, range(first, first + len(factors[axis])) if axis < len(factors) else ())

    def _cut(self, name: str, axes: Sequence[int]) -> _C.Placement | None:
        """The placement of a value whose axes are cut for all sites, the first as far as it goes."""
        type_, left = self.types[name], list(self.grid.axes)
        states: list[_C.AxisState] = []
        for axis in axes:
            dim = type_.axes[axis].key_dim
            room = 1 if dim is None else type_.frontier[dim]
            while dim is not None and left and left[0] <= room:
                states.append(_C.Split(dim, type_.frontier[dim]))
                room //= left.pop(0)
        return None if left else _C.Placement.of_states(states)
