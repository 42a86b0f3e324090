"""Planning graphs of einsums: into how many parts each operation cuts each of its labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from joinsum import _C
from joinsum.algebra.plan import IaPlan
from joinsum.base.arguments import integer, show, time_limit
from joinsum.base.errors import PlanError
from joinsum.cluster.cluster import Cluster
from joinsum.cluster.context import cluster_or_current, context
from joinsum.graphs.graph import Graph
from joinsum.graphs.json_form import load_json, read_json_value
from joinsum.planner.graph_placement import PlacementRequest, place_graph
from joinsum.planner.graph_report import GraphPlan, VertexPlan

__all__ = [
    "OBJECTIVES",
    "Pins",
    "pin_labels",
    "plan_graph",
    "plan_graph_file",
]

# The EinDecomp paper's count, which needs no sites; and the costs of plans but the TRA paper's count.
OBJECTIVES = ("paper", *(row.name for row in _C.objectives() if row.name != "paper_floats"))

# Part counts by label, or in the order of the labels; of an input by axis. On real placements also a placement: the
# label that each grid axis divides, or `*`, as text: "(b, b, *)".
Pins = Mapping[str, Mapping[str, int] | Sequence[int] | str]

_CALLS = 8
_MOST_SITES = 4096


def plan_graph(
    graph: Mapping[str, Any] | Graph | _C.JsonGraph,
    objective: str = "paper",
    *,
    sites: int | None = None,
    calls: int | None = None,
    pins: Pins | None = None,
    parameters: Sequence[str] = (),
    cluster: Cluster | None = None,
    seconds: float | None = None,
) -> GraphPlan:
    """Finds, for every operation of a graph of einsums, the number of parts of each label that costs least.

    graph         inputs, operations and outputs in JSON's form, as `joinsum.graphs.json_form` describes it, or a
                  `joinsum.Graph`
    objective     "paper": elements moved in the worst case, as the EinDecomp paper counts them. "wire_bytes": bytes
                  between sites. "seconds": of the described machine. Inputs may start anywhere and results may end
                  anywhere at no cost, unless pinned
    sites         of the other two objectives: that there are, 1 to 4,096; by default the context's
    calls         of "paper": kernel calls of each operation, by default 8, rounded up to a power of two. Parts are
                  powers of two that divide their extents; an operation that cannot reach so many calls takes the most
                  that it can
    pins          what the plan must have, by the name of an operation, an output (then of the labels of its value; an
                  operation's name is the operation) or an input (which is then stored so, and moving it is charged):
                  part counts by label, or as a list in the order of the labels, of an input by axis. On sites also a
                  placement, "(b, *, h)": the label that each axis of the grid of sites (the prime factors of their
                  number, ascending) divides, or `*`
    parameters    inputs that are weights, for the baselines; by default those that share no label with the first axis
                  of the first input, which is the batch
    cluster       the machine that seconds are for; by default the context's. Its `memory_bytes` limit what a site
                  stores at once: inputs, intermediate values, gradients, and messages under way
    seconds       after which the best plan so far is returned

    On sites the report compares the plan with the baselines (`docs/planner.md`); it never costs more.
    An operation that no output needs is not planned. The plan is the best of the whole graph wherever the graph is
    narrow enough; otherwise it says so, with a lower bound. Raises PlanError for what is no such graph, with the JSON
    path of what is wrong, for an unknown objective, an option of another objective, for pins that contradict each
    other, with the smallest set that does, and where no plan that was found fits the memory, with what is missing.
    Source: EinDecomp paper, sections 6 to 8.

    >>> import joinsum
    >>> product = {"name": "Z", "inputs": ["X", "Y"], "in_labels": ["ij", "jk"], "out_labels": "ik", "agg": "sum"}
    >>> relu = {"name": "R", "inputs": ["Z"], "in_labels": ["ik"], "out_labels": "ik", "join": "relu"}
    >>> graph = {"inputs": {"X": [8, 8], "Y": [8, 8]}, "ops": [product, relu], "outputs": ["R"]}
    >>> joinsum.plan_graph(graph, calls=16)
    plan of 2 einsums for 16 calls each, found by elimination, proven best
    einsum  parts        calls  join  aggregation  repartition  elements
    ------  -----------  -----  ----  -----------  -----------  --------
    Z       i=4 j=1 k=4     16   512            0            0       512
    R       i=4 k=4         16    64            0            0        64
    total                        576            0            0       576
    >>> joinsum.plan_graph(graph, calls=16, pins={"R": {"k": 2}}).plan["R"]
    {'i': 8, 'k': 2}
    >>> joinsum.plan_graph(graph, "wire_bytes", sites=4, pins={"X": [1, 4], "Y": [1, 4]}).cost
    640.0
    """
    loaded = _json_graph(graph)
    if objective not in OBJECTIVES:
        raise PlanError(f"plan_graph: no such objective; there is {', '.join(OBJECTIVES)}: objective={show(objective)}")
    limit = time_limit("plan_graph", seconds)
    if objective == "paper":
        _refuse(objective, sites=sites, cluster=cluster, parameters=parameters)
        return _counted(loaded, calls, pins, limit)
    _refuse(objective, calls=calls)
    count = _site_count(sites)
    for name in parameters:
        if name not in loaded.inputs:
            inputs = list(loaded.inputs)
            raise PlanError(f"plan_graph: a parameter is an input: parameter={show(name)}, inputs={inputs}")
    machine = cluster_or_current("plan_graph", cluster)
    return _placed(PlacementRequest(loaded, objective, count, _pins(loaded, pins), tuple(parameters), machine, limit))


def plan_graph_file(
    path: str | Path, objective: str = "paper", calls: int | None = None, sites: int | None = None, **options: Any
) -> GraphPlan:
    """The plan of the graph in a JSON file; options are those of `joinsum.plan_graph`.

    Raises as `joinsum.plan_graph`, and OSError as `open` does.

    >>> import json, tempfile
    >>> op = {"name": "Z", "inputs": ["X", "Y"], "in_labels": ["ij", "jk"], "out_labels": "ik", "agg": "sum"}
    >>> with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    ...     json.dump({"inputs": {"X": [8, 8], "Y": [8, 8]}, "ops": [op], "outputs": ["Z"]}, file)
    ...     file.flush()
    ...     plan_graph_file(file.name, calls=16).to_json()
    {'plan': {'Z': {'i': 4, 'j': 2, 'k': 2}}, 'cost': 448, 'exact': True, 'lower_bound': 448}
    """
    return plan_graph(load_json("plan_graph", path), objective, calls=calls, sites=sites, **options)


def _json_graph(graph: Mapping[str, Any] | Graph | _C.JsonGraph) -> _C.JsonGraph:
    if isinstance(graph, _C.JsonGraph):
        return graph
    return _C.JsonGraph.of_plan(graph.core) if isinstance(graph, Graph) else read_json_value("plan_graph", graph)


def _refuse(objective: str, **others: object) -> None:
    """Raises PlanError for options of other objectives."""
    for name, value in others.items():
        if value not in (None, ()):
            raise PlanError(f"plan_graph: an option of other objectives: objective={objective}, {name}={show(value)}")


def _counted(graph: _C.JsonGraph, calls: int | None, requested: Pins | None, limit: float | None) -> GraphPlan:
    """By the paper's element counts."""
    number = _count("calls", _CALLS if calls is None else calls)
    pins: list[tuple[str, dict[str, int]]] = []
    for name, parts in _pins(graph, requested).items():
        if isinstance(parts, tuple):
            raise PlanError(f"plan_graph: the paper's vectors have no placement; pin part counts: pin={name}")
        pins.append((name, parts))
    found = _C.partition(graph, pins, number, limit)
    vertices = tuple(
        VertexPlan(
            operation.name,
            dict(zip(operation.labels, vertex.parts, strict=True)),
            int(vertex.join),
            int(vertex.aggregation),
            tuple(map(int, vertex.repartitions)),
        )
        for operation, vertex in zip(graph.operations, found.vertices, strict=True)
    )
    tables = (found.distinct_tables, found.tables)
    cost, bound = int(found.cost), int(found.lower_bound)
    return GraphPlan("paper", number, vertices, cost, bound, found.exact, found.method, tables)


def _site_count(sites: int | None) -> int:
    count = context().sites if sites is None else _count("sites", sites)
    if count > _MOST_SITES:
        raise PlanError(f"plan_graph: more sites than are planned for: sites={count}, most={_MOST_SITES}")
    return count


def _placed(request: PlacementRequest) -> GraphPlan:
    """On real placements."""
    found, bound, method, baselines = place_graph(request)
    orders = {operation.name: operation.labels for operation in request.graph.operations}
    rows = [(vertex.input, _vertex_plan(vertex, orders.get(vertex.name))) for vertex in found.vertices]
    vertices = tuple(vertex for is_input, vertex in rows if not is_input)
    inputs = tuple(vertex for is_input, vertex in rows if is_input)
    return GraphPlan(
        request.objective,
        request.sites,
        vertices,
        found.cost,
        bound,
        found.cost <= bound,
        method,
        (0, 0),
        request.sites,
        inputs,
        found.wire_bytes,
        found.seconds,
        found.peak_bytes,
        found.peak_value,
        baselines,
        IaPlan(found.plan),
    )


def _vertex_plan(vertex: _C.VertexPlacement, order: Sequence[str] | None) -> VertexPlan:
    """`order` is that of an operation's labels. Labels that an earlier step of the operation aggregates are that
    step's."""
    labels = [label for label in order or vertex.parts if label in vertex.parts]
    return VertexPlan(
        vertex.name,
        {label: vertex.parts[label] for label in labels},
        placement=f"({', '.join(label or '*' for label in vertex.axes)})",
        wire_bytes=vertex.wire_bytes,
        seconds=vertex.seconds,
    )


def _pins(graph: _C.JsonGraph, pins: Pins | None) -> dict[str, dict[str, int] | tuple[str, ...]]:
    """Part counts by name and label, or labels by grid axis; those of unknown names go to the core, which rejects
    them."""
    if pins is None:
        return {}
    if not isinstance(pins, Mapping):
        raise PlanError(f"plan_graph: pins are part counts by name: pins={show(pins)}")
    orders = pin_labels(graph)
    return {name: _pin(name, parts, orders.get(name)) for name, parts in pins.items()}


def pin_labels(graph: _C.JsonGraph) -> dict[str, Sequence[str]]:
    """What can be pinned, and its labels: of an operation; of an output those of its value; of an input its axes.

    >>> from joinsum.graphs.json_form import read_json_value
    >>> op = {"name": "Z", "inputs": ["X"], "in_labels": ["ij"], "out_labels": "i", "agg": "max"}
    >>> pin_labels(read_json_value("plan_graph", {"inputs": {"X": [4, 8]}, "ops": [op], "outputs": {"most": "Z"}}))
    {'X': ['0', '1'], 'Z': ['i', 'j'], 'most': ['i']}
    """
    orders: dict[str, Sequence[str]] = {
        name: [str(axis) for axis in range(len(extents))] for name, extents in graph.inputs.items()
    }
    orders |= {operation.name: operation.labels for operation in graph.operations}
    results = {operation.name: operation.out_labels for operation in graph.operations}
    for name, of in graph.outputs.items():
        orders.setdefault(name, results.get(of, orders[of]))
    return orders


def _pin(name: str, parts: object, order: Sequence[str] | None) -> dict[str, int] | tuple[str, ...]:
    if isinstance(parts, str):
        return _placement(name, parts)
    if isinstance(parts, Mapping):
        counts = parts
    elif isinstance(parts, Sequence) and not isinstance(parts, str):
        if order is not None and len(parts) != len(order):
            raise PlanError(
                f"plan_graph: a list of part counts needs one per label: pin={name}, parts={show(parts)}, "
                f"labels={list(order)}"
            )
        counts = dict(zip(order or [], parts, strict=False))
    else:
        raise PlanError(f"plan_graph: part counts are given by label or as a list: pin={name}, parts={show(parts)}")
    return {str(label): _count(f"{name}.{label}", count) for label, count in counts.items()}


def _placement(name: str, text: str) -> tuple[str, ...]:
    """The label that each grid axis divides, or an empty one."""
    inside = text.strip()
    if not (inside.startswith("(") and inside.endswith(")")):
        raise PlanError(f"plan_graph: a placement names a label or * for each grid axis: pin={name}, got={show(text)}")
    labels = [label.strip() for label in inside[1:-1].split(",")] if inside[1:-1].strip() else []
    return tuple("" if label == "*" else label for label in labels)


def _count(name: str, value: object) -> int:
    number = integer("plan_graph", name, value)
    if not 1 <= number < 2**63:
        raise PlanError(f"plan_graph: a number of calls or parts is at least 1, and fits 64 bits: {name}={number}")
    return number
