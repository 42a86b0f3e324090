"""Planning graphs of einsums: into how many parts each operation cuts each of its labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joinsum import _C
from joinsum.arguments import integer, show
from joinsum.errors import PlanError
from joinsum.graph_json import Graph, load_graph, read_graph
from joinsum.text_table import count_text, text_table

__all__ = ["OBJECTIVES", "GraphPlan", "Pins", "VertexPlan", "plan_graph", "plan_graph_file"]

OBJECTIVES = ("paper",)

# Part counts by label, or in the order of the labels; of an input by axis.
Pins = Mapping[str, Mapping[str, int] | Sequence[int]]

_SHOWN = 60


@dataclass(frozen=True)
class VertexPlan:
    """How an operation runs, and the elements that it moves at worst.

    parts         number of parts of each label; their product is the number of kernel calls
    join          elements that arrive at the kernel calls
    aggregation   elements that move to be aggregated
    repartitions  elements that move because an operand is cut otherwise than it was made or stored, by operand
    """

    name: str
    parts: Mapping[str, int]
    join: int
    aggregation: int
    repartitions: tuple[int, ...]

    @property
    def calls(self) -> int:
        """Kernel calls."""
        calls = 1
        for parts in self.parts.values():
            calls *= parts
        return calls

    @property
    def cost(self) -> int:
        """All elements that it moves."""
        return self.join + self.aggregation + sum(self.repartitions)


@dataclass(frozen=True, repr=False)
class GraphPlan:
    """What `joinsum.plan_graph` found; prints as a table of operations, their parts and their costs.

    cost          elements moved at worst, by all operations together
    lower_bound   no plan costs less
    exact         whether the plan is proven best
    method        what found it: "elimination" or "linearisation"
    tables        tables of costs that were made, and that there would be if equal operations did not share them
    """

    objective: str
    calls: int
    vertices: tuple[VertexPlan, ...]
    cost: int
    lower_bound: int
    exact: bool
    method: str
    tables: tuple[int, int]

    @property
    def plan(self) -> dict[str, dict[str, int]]:
        """The number of parts of each label, by operation."""
        return {vertex.name: dict(vertex.parts) for vertex in self.vertices}

    def to_json(self) -> dict[str, Any]:
        """The plan as `json.dumps` takes it: plan, cost, exact, lower_bound."""
        return {"plan": self.plan, "cost": self.cost, "exact": self.exact, "lower_bound": self.lower_bound}

    def __repr__(self) -> str:
        found = "proven best" if self.exact else f"no plan moves less than {count_text(self.lower_bound)}"
        title = f"plan of {len(self.vertices)} einsums for {self.calls} calls each, found by {self.method}, {found}"
        rows = [_row(vertex) for vertex in self.vertices[:_SHOWN]]
        terms = [(vertex.join, vertex.aggregation, sum(vertex.repartitions), vertex.cost) for vertex in self.vertices]
        rows.append(["total", "", "", *(count_text(sum(term)) for term in zip(*terms, strict=True))])
        header = ["einsum", "parts", "calls", "join", "aggregation", "repartition", "elements"]
        rest = len(self.vertices) - _SHOWN
        more = f"\nand {rest} more einsums" if rest > 0 else ""
        return f"{title}\n{text_table(header, rows, right=range(2, 7))}{more}"


def _row(vertex: VertexPlan) -> list[str]:
    parts = " ".join(f"{label}={parts}" for label, parts in vertex.parts.items())
    counts = (vertex.join, vertex.aggregation, sum(vertex.repartitions), vertex.cost)
    return [vertex.name, parts, str(vertex.calls), *map(count_text, counts)]


def plan_graph(
    graph: Mapping[str, Any],
    objective: str = "paper",
    calls: int = 8,
    pins: Pins | None = None,
    seconds: float | None = None,
) -> GraphPlan:
    """Finds, for every operation of a graph of einsums, the number of parts of each label that moves the least.

    graph      inputs, operations and outputs in JSON's form, as `joinsum.graph_json` describes it
    objective  "paper": elements moved in the worst case, as the EinDecomp paper counts them. Inputs may be stored in
               any parts at no cost
    calls      kernel calls of each operation: rounded up to a power of two. Parts are powers of two that divide their
               extents; an operation that cannot reach so many calls takes the most that it can
    pins       part counts that the plan must have, by the name of an operation, an output (then of the labels of its
               value) or an input (which is then stored so, and moving it is charged): by label, or as a list in the
               order of the labels; of an input by axis
    seconds    after which the best plan so far is returned

    The plan is the best of the whole graph wherever the graph is narrow enough (`docs/planner.md`); otherwise it says
    so, with a lower bound. Raises PlanError for what is no such graph, with the JSON path of what is wrong, for an
    unknown objective, and for pins that contradict each other, with the smallest set that does.
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
    """
    return _planned(read_graph("plan_graph", graph), objective, calls, pins, seconds)


def plan_graph_file(path: str | Path, objective: str = "paper", calls: int = 8) -> GraphPlan:
    """The plan of the graph in a JSON file.

    Raises as `joinsum.plan_graph`, and OSError as `open` does.

    >>> import json, tempfile
    >>> op = {"name": "Z", "inputs": ["X", "Y"], "in_labels": ["ij", "jk"], "out_labels": "ik", "agg": "sum"}
    >>> with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    ...     json.dump({"inputs": {"X": [8, 8], "Y": [8, 8]}, "ops": [op], "outputs": ["Z"]}, file)
    ...     file.flush()
    ...     plan_graph_file(file.name, calls=16).to_json()
    {'plan': {'Z': {'i': 4, 'j': 2, 'k': 2}}, 'cost': 448, 'exact': True, 'lower_bound': 448}
    """
    return _planned(load_graph("plan_graph", path), objective, calls, None, None)


def _planned(graph: Graph, objective: str, calls: int, pins: Pins | None, seconds: float | None) -> GraphPlan:
    if objective not in OBJECTIVES:
        raise PlanError(f"plan_graph: no such objective; there is {', '.join(OBJECTIVES)}: objective={show(objective)}")
    number = _count("calls", calls)
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0):
        raise PlanError(f"plan_graph: a limit is a number of seconds: seconds={show(seconds)}")
    core = _core_graph(graph)
    for name, parts in _pins(graph, pins).items():
        core.add_pin(name, parts)
    found = _C.partition(core, number, None if seconds is None else float(seconds))
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
    return GraphPlan(
        objective, number, vertices, int(found.cost), int(found.lower_bound), found.exact, found.method, tables
    )


def _core_graph(graph: Graph) -> _C.PartitionGraph:
    core = _C.PartitionGraph()
    sources = {name: core.add_input(name, list(extents)) for name, extents in graph.inputs.items()}
    for operation in graph.operations:
        operands = [
            (sources[name], list(labels)) for name, labels in zip(operation.inputs, operation.in_labels, strict=True)
        ]
        extents = {label: operation.extents[label] for label in operation.labels}
        aggregates = operation.agg is not None
        sources[operation.name] = core.add_vertex(
            operation.name, operands, list(operation.out_labels), extents, aggregates
        )
    for name, of in graph.outputs.items():
        core.add_output(name, sources[of])
    return core


def _pins(graph: Graph, pins: Pins | None) -> dict[str, dict[str, int]]:
    """Part counts by name and label; those of unknown names go to the core, which rejects them."""
    if pins is None:
        return {}
    if not isinstance(pins, Mapping):
        raise PlanError(f"plan_graph: pins are part counts by name: pins={show(pins)}")
    orders: dict[str, Sequence[str]] = {
        name: [str(axis) for axis in range(len(extents))] for name, extents in graph.inputs.items()
    }
    orders |= {operation.name: operation.labels for operation in graph.operations}
    results = {operation.name: operation.out_labels for operation in graph.operations}
    for name, of in graph.outputs.items():
        orders.setdefault(name, results.get(of, orders[of]))
    return {name: _pin(name, parts, orders.get(name)) for name, parts in pins.items()}


def _pin(name: str, parts: object, order: Sequence[str] | None) -> dict[str, int]:
    if isinstance(parts, Mapping):
        given = parts
    elif isinstance(parts, Sequence) and not isinstance(parts, str):
        if order is not None and len(parts) != len(order):
            raise PlanError(
                f"plan_graph: a list of part counts needs one per label: pin={name}, parts={show(parts)}, "
                f"labels={list(order)}"
            )
        given = dict(zip(order or [], parts, strict=False))
    else:
        raise PlanError(f"plan_graph: part counts are given by label or as a list: pin={name}, parts={show(parts)}")
    return {str(label): _count(f"{name}.{label}", count) for label, count in given.items()}


def _count(name: str, value: object) -> int:
    number = integer("plan_graph", name, value)
    if not 1 <= number < 2**63:
        raise PlanError(f"plan_graph: a number of calls or parts is at least 1, and fits 64 bits: {name}={number}")
    return number
