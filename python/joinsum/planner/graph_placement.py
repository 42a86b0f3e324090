"""Planning graphs of einsums on real placements: by bytes on the wire, or by seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from joinsum import _C
from joinsum.base.dtypes import torch_dtype
from joinsum.base.errors import KernelError, PlanError
from joinsum.cluster.cluster import Cluster
from joinsum.graphs.contraction_order import best_orders_on
from joinsum.planner.baselines.label_baselines import LabelBaseline, LabelBaselines

__all__ = ["Baseline", "PlacementRequest", "grid_of", "place_graph"]

# Prices of a resident byte: the first, as a share of the cost per byte of the peak, how many, and bisections of them.
_FIRST_PRICE = 0.01
_PRICES = 12
_BISECTIONS = 4
# Where no price fits: single changes that are tried of a plan (fewer of a long one), passes over all values, and plans
# to begin with.
_CHANGES = 120
_CHANGED_VALUES = 10_000
_ROUNDS = 4
_STARTS = 3
# Prime factors beyond which they are merged, but for grids of few sites; and into how many axes.
_MOST_AXES = 5
_FEW_SITES = 64
_MERGED_AXES = 4


@dataclass(frozen=True)
class Baseline:
    """A baseline, priced as the chosen plan.

    cost    by the objective; None where the graph cannot be placed so
    reason  why it cannot, or None
    """

    name: str
    cost: float | None
    reason: str | None = None


@dataclass(frozen=True)
class PlacementRequest:
    """What is to be placed, checked. Pins are parts by label, or the label that each grid axis divides (or empty)."""

    graph: _C.JsonGraph
    objective: str
    sites: int
    pins: Mapping[str, Mapping[str, int] | tuple[str, ...]]
    parameters: Sequence[str]
    cluster: Cluster
    seconds: float | None


def place_graph(request: PlacementRequest) -> tuple[_C.GraphPlacement, float, str, tuple[Baseline, ...]]:
    """The best placement, a bound that holds whatever the memory, what found the best, and baselines."""
    plan, values = _core_plan(request.graph)
    nodes = [(operation.name, values[operation.name]) for operation in request.graph.operations]
    grid = grid_of(request.sites)
    orders = best_orders_on(plan, grid, request.cluster, False, request.objective)
    paths = {name: order.path for name, order in orders.items()}

    def placer_on(sites: _C.Grid) -> _C.GraphPlacer:
        return _C.GraphPlacer(plan, paths, nodes, sites, request.objective, request.cluster.core())

    search = _Search(request, placer_on(grid), grid)
    first = search.first
    found = [(first, "elimination")]
    if search.short(first) > 0:
        found += [(placed, "elimination") for placed in search.smaller()]
    baselines = search.baselines()
    found += [(placed, baseline.name) for baseline, placed in baselines if placed is not None]
    complete = False
    if search.short(first) > 0:
        within, complete = search.within(found)
        found += [(placed, "looking at all") for placed in within]
    if not complete and all(search.short(placed) > 0 for placed, _ in found) and _inputs_fit(request, values):
        found += [(placed, "single changes") for placed in search.changed([placed for placed, _ in found])]
    fitting = [(placed, method) for placed, method in found if search.short(placed) <= 0]
    if not fitting:
        search.raise_short(min((placed for placed, _ in found), key=lambda placed: placed.peak_bytes), complete)
    best, method = min(fitting, key=lambda pair: pair[0].cost)
    bound = first.lower_bound
    if grid != _C.Grid.of_sites(request.sites):  # what bounds the plans on merged axes does not bound the others
        seconds = request.objective == "seconds"
        bound = search.least_work() if seconds else _least_bytes(request, plan.binary(paths), placer_on)
        if not seconds and bound > best.cost:  # it leaves work undivided that shorter axes would divide
            bound = 0.0
    return best, min(best.cost, bound), method, tuple(baseline for baseline, _ in baselines)


class _Search:
    """The search for one placement, by a placer of the request's graph on a grid.

    first   the best placement, whatever the memory
    """

    def __init__(self, request: PlacementRequest, placer: _C.GraphPlacer, grid: _C.Grid) -> None:
        self._request = request
        self._placer = placer
        self._grid = grid
        self._pins = [_core_pin(name, pin) for name, pin in request.pins.items()]
        self.first = placer.place(self._pins, request.seconds, 0.0, True)

    def _place(self, pins: list[_C.GraphPin], price: float = 0.0) -> _C.GraphPlacement:
        """The best placement with these pins, if a resident byte has this price."""
        return self._placer.place(pins, self._request.seconds, price, False)

    def least_work(self) -> float:
        """A bound of seconds that holds on any grid: by the work. An operation of several operands may be joined in
        several orders, so its steps count nothing."""
        several = {operation.name for operation in self._request.graph.operations if len(operation.inputs) > 2}
        return self._placer.least_seconds([each.name for each in self.first.vertices if each.vertex in several])

    # --- memory -------------------------------------------------------------------------------------------------------

    def short(self, placed: _C.GraphPlacement) -> int:
        """Bytes that a site lacks; not above 0 where the plan fits."""
        limit = self._request.cluster.memory_bytes
        return 0 if limit is None else placed.peak_bytes - limit

    def raise_short(self, placed: _C.GraphPlacement, complete: bool) -> NoReturn:
        """Raises PlanError. `complete`: all plans were looked at."""
        which = "no plan" if complete else "no plan that was found"
        limit = self._request.cluster.memory_bytes
        raise PlanError(
            f"plan_graph: {which} fits a site's memory; use more sites, or more memory: short by="
            f"{self.short(placed)} B, needs={placed.peak_bytes} B, memory_bytes={limit}, "
            f"largest tensor={placed.peak_value} ({placed.peak_value_bytes} B)"
        )

    def smaller(self) -> list[_C.GraphPlacement]:
        """Plans that need less memory: a resident byte costs more and more until a plan fits, then by bisection as
        little as it can.

        Source: Everett, Generalized Lagrange multiplier method, 1963.
        """
        found = []
        fits = False
        price = low = max(self.first.cost, 1e-12) / max(self.first.peak_bytes, 1) * _FIRST_PRICE
        for _ in range(_PRICES):
            found.append(self._place(self._pins, price))
            fits = self.short(found[-1]) <= 0
            if fits:
                break
            low, price = price, 4 * price
        for _ in range(_BISECTIONS if fits else 0):
            middle = (low * price) ** 0.5
            found.append(self._place(self._pins, middle))
            if self.short(found[-1]) <= 0:
                price = middle
            else:
                low = middle
        return found

    def within(self, found: Sequence[tuple[_C.GraphPlacement, str]]) -> tuple[list[_C.GraphPlacement], bool]:
        """The best plan of a small graph that fits, if it is better than those that were found; and whether all plans
        were looked at. Plans that repeat work which they could divide count where no other fits."""
        limit = self._request.cluster.memory_bytes
        assert limit is not None
        fitting = [placed.cost for placed, _ in found if self.short(placed) <= 0]
        best, complete = self._placer.within(self._pins, limit, min(fitting, default=math.inf), False)
        if complete and best is None and not fitting and self._request.objective != "seconds":
            best, complete = self._placer.within(self._pins, limit, math.inf, True)
        return [] if best is None else [best], complete

    def changed(self, found: Sequence[_C.GraphPlacement]) -> Iterator[_C.GraphPlacement]:
        """Plans that need less memory than those that were found, until one fits. A price of resident bytes counts
        those of all values together, so that the plans with the least peak may have no price that finds them."""
        starts = list(found)
        for strategy in LabelBaselines(self._request.graph, self._request.sites).uniform()[: _changes(found[0])]:
            starts += self._placed_so(self._divided(_of_steps(strategy, found[0])))
        peaks: dict[int, _C.GraphPlacement] = {}
        for start in starts:
            peaks.setdefault(start.peak_bytes, start)
        for peak in sorted(peaks)[:_STARTS]:
            yield (changed := self._by_single_changes(peaks[peak]))
            if self.short(changed) <= 0:
                return

    def _by_single_changes(self, start: _C.GraphPlacement) -> _C.GraphPlacement:
        """The plan from `start` where dividing one value after the other otherwise lowers the peak; the first that
        fits, or the last one."""
        best = start
        tried = 0
        for _ in range(_ROUNDS):
            before = best.peak_bytes
            for index, vertex in enumerate(start.vertices):
                if vertex.name in self._request.pins:
                    continue
                for axes in _other_axes(vertex, tuple(best.vertices[index].axes)):
                    if self.short(best) <= 0 or tried >= _changes(start):
                        return best
                    tried += 1
                    divided = {each.name: tuple(each.axes) for each in best.vertices} | {vertex.name: axes}
                    best = min([best, *self._placed_so(divided)], key=lambda each: (each.peak_bytes, each.cost))
            if best.peak_bytes == before:
                break
        return best

    def _placed_so(self, axes: Mapping[str, tuple[str, ...]]) -> list[_C.GraphPlacement]:
        """The plan of these axes and the pins; none where there is none."""
        try:
            return [self._place(self._with_pins(axes))]
        except PlanError:
            return []  # the pins need a label that no axis divides

    def _with_pins(self, axes: Mapping[str, tuple[str, ...]]) -> list[_C.GraphPin]:
        return [_core_pin(name, pin) for name, pin in {**axes, **self._request.pins}.items()]

    # --- baselines ----------------------------------------------------------------------------------------------------

    def baselines(self) -> list[tuple[Baseline, _C.GraphPlacement | None]]:
        """The baselines, each with its placement if there is one."""
        request = self._request
        repeating = request.objective == "seconds"
        strategies = LabelBaselines(request.graph, request.sites, request.parameters, repeating).all()
        return [self._baseline(_of_steps(strategy, self.first)) for strategy in strategies]

    def _baseline(self, strategy: LabelBaseline) -> tuple[Baseline, _C.GraphPlacement | None]:
        if strategy.reason is not None:
            return Baseline(strategy.name, None, strategy.reason), None
        pins = self._with_pins(self._divided(strategy)) + [
            _C.GraphPin(name, {}, [label or ""] * len(self._grid.axes), output=True)
            for name, label in strategy.ends.items()
            if name not in self._request.pins
        ]
        try:
            placed = self._place(pins)
        except PlanError as error:
            return Baseline(strategy.name, None, str(error)), None
        if (short := self.short(placed)) > 0:
            return Baseline(strategy.name, None, f"a site lacks {short} B for {placed.peak_value}"), placed
        return Baseline(strategy.name, placed.cost), placed

    def _divided(self, strategy: LabelBaseline) -> dict[str, tuple[str, ...]]:
        """The label that each grid axis divides, by name, or an empty one."""
        return {name: (label or "",) * len(self._grid.axes) for name, label in strategy.axes.items()}


def _least_bytes(
    request: PlacementRequest, binary: _C.EinsumPlan, placer_on: Callable[[_C.Grid], _C.GraphPlacer]
) -> float:
    """A bound of bytes: that of the prime factors of fewer sites. Sites that differ in the other factors can be taken
    together as one, which then has what each of them has and needs what they need, so it receives no more. 0 where a
    product is too small for all sites: then fewer sites need not divide it alike."""
    if not all(_divides_among(request.sites, extents) for extents in _products(binary)):
        return 0.0
    fewer = max(number for number in range(1, _FEW_SITES + 1) if request.sites % number == 0)
    pins = [pin for name in request.pins if (pin := _pin_of_fewer(name, request, fewer)) is not None]
    return placer_on(_C.Grid.of_sites(fewer)).place(pins, request.seconds, 0.0, True).lower_bound


def _pin_of_fewer(name: str, request: PlacementRequest, sites: int) -> _C.GraphPin | None:
    """What a pin asks of groups of sites: nothing but where it divides one label among all sites, or none."""
    pin = request.pins[name]
    if isinstance(pin, tuple):
        (label, *others) = set(pin)
        parts = {label: request.sites} if label else {}
        if others:
            return None
    else:
        parts = {label: number for label, number in pin.items() if number > 1}
        if len(parts) > 1 or any(number != request.sites for number in parts.values()):
            return None
    axes = len(_C.Grid.of_sites(sites).axes)
    return _C.GraphPin(name, {}, [next(iter(parts), "")] * axes)


def _products(binary: _C.EinsumPlan) -> Iterator[list[int]]:
    """Extents of all labels of each vertex of two operands that aggregates."""
    shapes = binary.shapes
    for _, inputs, operands, result, _, _, new in binary.vertices:
        extents = dict(new)
        for node, labels in zip(inputs, operands, strict=True):
            extents.update(zip(labels, shapes[node][1], strict=True))
        if len(operands) > 1 and len(extents) > len(result):
            yield list(extents.values())


def _divides_among(sites: int, extents: Sequence[int]) -> bool:
    """Whether each prime factor of the sites finds a label to divide, whatever the others divide."""
    largest = max(_C.Grid.of_sites(sites).axes)
    return math.prod(max(extent // largest, 1) for extent in extents) >= sites


def grid_of(sites: int) -> _C.Grid:
    """The grid that sites are planned on: their prime factors; of many sites and axes these merged into four.

    >>> grid_of(8), grid_of(64), grid_of(4096)
    (2x2x2, 2x2x2x2x2x2, 8x8x8x8)
    """
    grid = _C.Grid.of_sites(sites)
    if len(grid.axes) <= _MOST_AXES or sites <= _FEW_SITES:
        return grid
    merged = [1] * _MERGED_AXES
    for prime in sorted(grid.axes, reverse=True):
        merged[merged.index(min(merged))] *= prime
    return _C.Grid.of_axes(sorted(merged))


def _inputs_fit(request: PlacementRequest, values: Mapping[str, _C.EinsumNode]) -> bool:
    """Whether a site can hold its share of the inputs, as every plan makes some site do."""
    inputs = request.graph.inputs
    read = {name for operation in request.graph.operations for name in operation.inputs if name in inputs}
    total = sum(math.prod(values[name].extents) * torch_dtype(values[name].dtype).itemsize for name in read)
    return request.cluster.memory_bytes is None or total <= request.sites * request.cluster.memory_bytes


def _changes(placed: _C.GraphPlacement) -> int:
    return min(_CHANGES, _CHANGED_VALUES // len(placed.vertices))


def _other_axes(vertex: _C.VertexPlacement, now: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Other divisions of a value: one label on all axes of the grid, or on another one."""
    divisions = [(label,) * len(now) for label in vertex.parts]
    divisions += [(*now[:axis], label, *now[axis + 1 :]) for axis in range(len(now)) for label in vertex.parts]
    return iter(each for each in dict.fromkeys(divisions) if each != now)


def _of_steps(strategy: LabelBaseline, placed: _C.GraphPlacement) -> LabelBaseline:
    """The strategy for the steps that operations of several operands run in: a label that a step aggregates, later ones
    lack."""
    axes: dict[str, str | None] = {}
    for vertex in placed.vertices:
        label = strategy.axes.get(vertex.vertex)
        if vertex.vertex in strategy.axes and (not label or label in vertex.parts):
            axes[vertex.name] = label
    return replace(strategy, axes=axes)


def _core_pin(name: str, pin: Mapping[str, int] | tuple[str, ...]) -> _C.GraphPin:
    return _C.GraphPin(name, {}, list(pin)) if isinstance(pin, tuple) else _C.GraphPin(name, dict(pin))


def _core_plan(graph: _C.JsonGraph) -> tuple[_C.EinsumPlan, dict[str, _C.EinsumNode]]:
    """The graph as a plan of einsums, and the nodes of its inputs and operations by name. Raises PlanError with
    the JSON path of what plans cannot be: names, labels, joins, dtypes."""
    try:
        return graph.plan("plan_graph")
    except KernelError as error:
        raise PlanError(str(error)) from None
