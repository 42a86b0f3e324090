"""Planning graphs of einsums on real placements: by bytes on the wire, or by seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from joinsum import _C
from joinsum.arguments import show
from joinsum.cluster import Cluster
from joinsum.contraction_order import paths_of
from joinsum.einsum_plan import join_kernel
from joinsum.errors import Error, PlanError
from joinsum.graph_baselines import Strategy, strategies
from joinsum.graph_json import Graph

__all__ = ["Baseline", "Placing", "place_graph"]


@dataclass(frozen=True)
class Baseline:
    """A plan that people make by hand, priced as the chosen one.

    cost    by the objective; None where the graph cannot be placed so
    reason  why it cannot, or None
    """

    name: str
    cost: float | None
    reason: str | None = None


@dataclass(frozen=True)
class Placing:
    """What is asked for, checked. Pins are parts by label, or the label that each grid axis divides (empty: none)."""

    graph: Graph
    dtypes: Mapping[str, str]
    objective: str
    sites: int
    pins: Mapping[str, Mapping[str, int] | tuple[str, ...]]
    parameters: Sequence[str]
    cluster: Cluster
    seconds: float | None


def place_graph(asked: Placing) -> tuple[_C.GraphPlacement, str, tuple[Baseline, ...]]:
    """The best placement found, what found it, and the plans that it is compared with."""
    cluster = replace(asked.cluster, memory_bytes=None)
    nodes, plan = _core_plan(asked.graph, asked.dtypes)
    grid = _C.Grid.of_sites(asked.sites)
    placer = _C.GraphPlacer(plan, paths_of(plan), nodes, grid, asked.objective, cluster.core())
    pins = [_core_pin(name, pin) for name, pin in asked.pins.items()]
    best, method = placer.place(pins, asked.seconds), "elimination"
    baselines = []
    for strategy in strategies(asked.graph, asked.parameters, asked.sites, asked.objective == "seconds"):
        baseline, placed = _baseline(placer, grid, strategy, asked)
        baselines.append(baseline)
        if placed is not None and placed.cost < best.cost:
            best, method = placed, strategy.name
    return best, method, tuple(baselines)


def _baseline(
    placer: _C.GraphPlacer, grid: _C.Grid, strategy: Strategy, asked: Placing
) -> tuple[Baseline, _C.GraphPlacement | None]:
    if strategy.reason is not None:
        return Baseline(strategy.name, None, strategy.reason), None
    told = {name: (label or "",) * len(grid.axes) for name, label in strategy.axes.items() if placer.has(name)}
    pins = [_core_pin(name, pin) for name, pin in {**told, **asked.pins}.items()]
    pins += [
        _C.GraphPin(name, {}, [label or ""] * len(grid.axes), output=True)
        for name, label in strategy.ends.items()
        if name not in asked.pins
    ]
    try:
        placed = placer.place(pins, asked.seconds)
    except PlanError as error:
        return Baseline(strategy.name, None, str(error)), None
    return Baseline(strategy.name, placed.cost), placed


def _core_pin(name: str, pin: Mapping[str, int] | tuple[str, ...]) -> _C.GraphPin:
    return _C.GraphPin(name, {}, list(pin)) if isinstance(pin, tuple) else _C.GraphPin(name, dict(pin))


def _core_plan(graph: Graph, dtypes: Mapping[str, str]) -> tuple[list[tuple[str, _C.EinsumNode]], _C.EinsumPlan]:
    """The graph as a plan of einsums, and its operations' nodes by name."""
    values = {
        name: _C.einsum_input(name, dtypes.get(name, "f32"), list(extents)) for name, extents in graph.inputs.items()
    }
    for operation in graph.operations:
        join, fold = join_kernel("plan_graph", operation.join, operation.agg or "sum", len(operation.inputs))
        given = {label for labels in operation.in_labels for label in labels}
        extents = {label: operation.extents[label] for label in operation.out_labels if label not in given}
        operands = [values[name] for name in operation.inputs]
        try:
            values[operation.name] = _C.einsum_vertex(
                operands,
                [list(labels) for labels in operation.in_labels],
                list(operation.out_labels),
                _C.Kernel(join),
                _C.Kernel(fold),
                extents,
            )
        except Error as error:
            raise PlanError(f"plan_graph: {error}: operation={show(operation.name)}") from None
    plan = _C.EinsumPlan.make([(name, values[of]) for name, of in graph.outputs.items()])
    return [(operation.name, values[operation.name]) for operation in graph.operations], plan
