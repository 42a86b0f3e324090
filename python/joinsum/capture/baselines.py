"""The plans that people make by hand, for captured programs: what a chosen plan is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from joinsum import _C
from joinsum.capture.recorded import Recorded

__all__ = ["Start", "starts"]

# A node's axis, or a vertex's label: what is one through shared tensors is in one class.
_Place = tuple[str, int | str]

_NO_DATA = "no input is data with axes"


@dataclass(frozen=True)
class Start:
    """A plan made by hand, as far as it is given: the planner chooses the rest.

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


def starts(
    recorded: Recorded,
    graph: _C.EinsumPlan,
    types: Mapping[str, _C.RelationType],
    state: Collection[int],
    grid: _C.Grid,
) -> list[Start]:
    """Data parallel, fully sharded data parallel, tensor parallel, sequence split, replicate all.

    graph   of the recorded program, whose vertices have at most two operands
    types   of its inputs and vertices, by name, with the parts that they may be cut into
    state   positions of the inputs that are kept between runs: parameters, buffers, what an optimizer keeps; the others
            are data. The batch is the first axis of the first of them that has axes
    """
    if grid.sites == 1:
        names = ("data parallel", "fully sharded data parallel", "tensor parallel", "sequence split", "replicate all")
        return [Start(name, reason="there is one site") for name in names]
    return _Starts(recorded, graph, types, state, grid).all()


class _Starts:
    def __init__(
        self,
        recorded: Recorded,
        graph: _C.EinsumPlan,
        types: Mapping[str, _C.RelationType],
        state: Collection[int],
        grid: _C.Grid,
    ) -> None:
        self.grid = grid
        self.types = types
        # Outputs end where the inputs that they are tied to start.
        outputs = set(graph.output_nodes)
        self.inner = [name for name, *_ in graph.uses if name not in outputs]
        given = [each for each in recorded.inputs if each.position is not None and each.name in self.types]
        self.shapes = {each.name: each.shape for each in given}
        self.atoms = {each.name: each.axes for each in given}
        self.state = [each.name for each in given if each.position in state]
        self.data = [each.name for each in given if each.position not in state]
        self.first = next((name for name in self.data if self.shapes[name]), None)
        self.copies = dict.fromkeys(self.shapes, _C.Placement.replicated(grid))
        self.classes = _Classes(graph)

    def all(self) -> list[Start]:
        return [
            self.split("data parallel", 0),
            self.sharded(),
            self.tensor_parallel(),
            self.split("sequence split", 1),
            Start("replicate all", self.copies, everywhere=True),
        ]

    def split(self, name: str, axis: int) -> Start:
        """Data along their first or second axis, where it is as long as that of the first of them, and all that is made
        along it; state everywhere."""
        if self.first is None:
            return Start(name, reason=_NO_DATA)
        shape = self.shapes[self.first]
        if axis >= len(shape):
            return Start(name, reason=f"{self.first} has {len(shape)} axes")
        if self.along(self.first, axis) is None:
            return Start(name, reason=f"{self.first} is not to be cut for {self.grid.sites} sites along axis {axis}")
        alike = [each for each in self.data if self.shapes[each][axis : axis + 1] == shape[axis : axis + 1]]
        cut = {each: self.along(each, axis) for each in alike}
        placements = self.copies | {each: place for each, place in cut.items() if place is not None}
        return Start(name, placements, self.along_classes([self.class_of(self.first, axis)]))

    def sharded(self) -> Start:
        """As data parallel, with state along its longest axis that has elements for all sites."""
        name = "fully sharded data parallel"
        plain = self.split(name, 0)
        shards = {each: place for each in self.state if (place := self.longest(each)) is not None}
        if plain.reason is None and not shards:
            return Start(name, reason=f"no parameter is to be cut for {self.grid.sites} sites")
        return Start(name, {**plain.placements, **shards}, plain.values, reason=plain.reason)

    def tensor_parallel(self) -> Start:
        """Data everywhere, state along classes that no data has: columns of a product whose result the next one folds
        along its rows. Source: Megatron-LM, section 3.
        """
        name = "tensor parallel"
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
            return Start(name, reason=f"no axis of parameters alone is to be cut for {self.grid.sites} sites")
        return Start(name, self.copies | cut, self.along_classes(order))

    def _narrowed(self, matrices: Sequence[Collection[_Place]]) -> list[_Place]:
        """Classes of which every matrix has one, in the order in which vertices read them. The most frequent are left
        out where all matrices have another one too: the width of a stream that layers add to stays whole."""
        count = Counter(of for axes in matrices for of in axes)
        order = [of for of in self.classes.in_order() if of in count]
        left = [set(axes) for axes in matrices]
        for of in sorted(order, key=lambda each: -count[each]):
            if all(axes - {of} for axes in left):
                left = [axes - {of} for axes in left]
                order.remove(of)
        return order

    def axes_of(self, name: str) -> dict[int, _Place]:
        """The axes of an input that can be cut for all sites, and the class of each."""
        axes = [axis for axis in range(len(self.shapes[name])) if self.along(name, axis) is not None]
        return {axis: self.class_of(name, axis) for axis in axes}

    def class_of(self, name: str, axis: int) -> _Place:
        """Of an input's axis, or of its first factor."""
        return self.classes.find((name, sum(map(len, self.atoms[name][:axis]))))

    def along_classes(self, classes: Sequence[_Place]) -> dict[str, _C.Placement]:
        """Inner vertices whose results have one of these classes along it, where it is long enough; the first that they
        have counts."""
        made = {}
        for name in self.inner:
            own = [self.classes.find((name, axis)) for axis in range(len(self.types[name].axes))]
            axes = [own.index(of) for of in classes if of in own]
            place = self._cut(name, axes[:1])
            if place is not None:
                made[name] = place
        return made

    def longest(self, name: str) -> _C.Placement | None:
        axes = sorted(range(len(self.shapes[name])), key=lambda axis: -self.shapes[name][axis])
        return next((place for axis in axes if (place := self.along(name, axis)) is not None), None)

    def along(self, name: str, axis: int) -> _C.Placement | None:
        """The placement that cuts an axis of an input for all sites; None where it is too short, or never cut."""
        factors = self.atoms[name]
        first = sum(map(len, factors[:axis]))
        return self._cut(name, range(first, first + len(factors[axis])) if axis < len(factors) else ())

    def _cut(self, name: str, axes: Sequence[int]) -> _C.Placement | None:
        """The placement of a value whose axes are cut for all sites, the first as far as it goes."""
        type_, left = self.types[name], list(self.grid.axes)
        states: list[str] = []
        for axis in axes:
            dim = type_.axes[axis].key_dim
            room = 1 if dim is None else type_.frontier[dim]
            while left and left[0] <= room:
                states.append(str(dim))
                room //= left.pop(0)
        return None if left else _C.Placement.parse(f"({', '.join(states)})", self.grid, type_.frontier)


class _Classes:
    """Axes of values and labels of vertices that are one through shared tensors."""

    def __init__(self, graph: _C.EinsumPlan) -> None:
        self.parent: dict[_Place, _Place] = {}
        self._order: list[_Place] = []
        for name, _, inputs, operands, result in graph.uses:
            for source, labels in zip(inputs, operands, strict=True):
                for axis, label in enumerate(labels):
                    self._unite((source, axis), (name, label))
                    self._order.append((source, axis))
            for axis, label in enumerate(result):
                self._unite((name, axis), (name, label))
        tied = graph.ties
        for (output, (_, extents)), node in zip(graph.outputs, graph.output_nodes, strict=True):
            for axis in range(len(extents)) if output in tied else ():
                self._unite((tied[output], axis), (node, axis))

    def find(self, place: _Place) -> _Place:
        while (above := self.parent.get(place, place)) != place:
            # Halves the way for those that ask later.
            self.parent[place] = self.parent.get(above, above)
            place = self.parent[place]
        return place

    def in_order(self) -> list[_Place]:
        """All classes, in the order in which vertices first read them."""
        return list(dict.fromkeys(map(self.find, self._order)))

    def _unite(self, first: _Place, second: _Place) -> None:
        a, b = self.find(first), self.find(second)
        if a != b:
            self.parent[b] = a
