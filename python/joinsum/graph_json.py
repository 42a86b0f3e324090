"""Graphs of einsums in JSON: read and checked by the C++ core, with the JSON path of what is wrong, and written.

docs/einsum_graph.schema.json describes the form.

    {"inputs": {"X": [8, 8], "Y": [8, 8]},
     "ops": [{"name": "Z", "inputs": ["X", "Y"], "in_labels": ["ij", "jk"], "out_labels": "ik",
              "join": "mul", "agg": "sum"}],
     "outputs": ["Z"]}

`inputs` gives the extents of each input, or `{"dtype": "f64", "extents": [8, 8]}` (by default f32). An operation
reads inputs and earlier operations: `in_labels` names the axes of each operand and `out_labels` those of the result,
as text of one letter per axis or as a list of texts. `join` is the function of one element of each operand (by
default "mul", of one operand "id"): an elementwise kernel, a chain of them, or an expression such as "exp(x - y) *
2". `agg` names the aggregation over the labels that the result lacks; an operation without such labels needs none.
`extents` gives the extents of labels that only the result has. `outputs` lists names, or gives an object of output
names and the values that they stand for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from joinsum import _C
from joinsum.arguments import show
from joinsum.errors import KernelError, PlanError

__all__ = [
    "AGGREGATIONS",
    "DTYPES",
    "Graph",
    "Operation",
    "check_fits",
    "graph_of_text",
    "graph_text",
    "load_graph",
    "read_graph",
]

AGGREGATIONS = tuple(_C.aggregation_names())

# Dtypes of tensors, as plans print them.
DTYPES = tuple(_C.dtype_names())

# No graph has so many lists and objects in each other; the core's reader has the same limit.
_MOST_LEVELS = 32


@dataclass(frozen=True)
class Operation:
    """An einsum: operands by name with the labels of their axes, the result's labels, extents by label."""

    name: str
    inputs: tuple[str, ...]
    in_labels: tuple[tuple[str, ...], ...]
    out_labels: tuple[str, ...]
    extents: Mapping[str, int]
    join: str
    agg: str | None

    @property
    def labels(self) -> tuple[str, ...]:
        """The unique labels, operands' first."""
        return tuple(dict.fromkeys(label for labels in (*self.in_labels, self.out_labels) for label in labels))


@dataclass(frozen=True)
class Graph:
    """Extents and dtypes of inputs by name, operations after those that they read, and values by output name."""

    inputs: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    operations: tuple[Operation, ...]
    outputs: Mapping[str, str]


def load_graph(who: str, path: str | Path) -> Graph:
    """Reads the graph in a JSON file. Raises PlanError for what is no JSON or no graph; OSError as `open` does."""
    return graph_of_text(who, Path(path).read_bytes(), f"file={path}, ")


def graph_of_text(who: str, text: str | bytes, where: str = "", diagonals: bool = False) -> Graph:
    """Reads a graph from JSON's text; `where` opens the place in errors. `diagonals` as in `read_graph`.

    >>> graph_of_text("json", '{"inputs": }')
    Traceback (most recent call last):
    ...
    joinsum.PlanError: json: not JSON, unexpected '}'; expected '[', '{', or a literal: line=1, column=12
    """
    return _graph_of(_C.EinsumGraph.read_json(utf8(text), who, where, diagonals))


def utf8(text: str | bytes) -> bytes:
    """A text as the core reads it, which refuses halves of characters by their place.

    >>> utf8("\u00e9")
    b'\\xc3\\xa9'
    """
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def read_graph(who: str, value: object, diagonals: bool = False) -> Graph:
    """Checks a graph in JSON's form, as `json.load` gives it; with `diagonals` a result may have a label twice.

    Raises PlanError with the JSON path of what is wrong.

    >>> op = {"name": "Z", "inputs": ["X"], "in_labels": ["ij"], "out_labels": "i", "agg": "max"}
    >>> read_graph("plan_graph", {"inputs": {"X": [4, 8]}, "ops": [op], "outputs": ["Z"]}).operations[0].extents
    {'i': 4, 'j': 8}
    >>> read_graph("plan_graph", {"inputs": {"X": [4]}, "ops": [op], "outputs": ["Z"]})
    Traceback (most recent call last):
    ...
    joinsum.PlanError: plan_graph: an operand has 1 axes but 2 labels: at=$.ops[0].in_labels[0], labels=['i', 'j']
    """
    return graph_of_text(who, json.dumps(_json_value(who, value, "$")), diagonals=diagonals)


def _json_value(who: str, value: object, at: str, level: int = 0) -> object:
    """The same in dicts and lists; raises for what JSON has not."""
    if level > _MOST_LEVELS:
        raise PlanError(f"{who}: lists and objects lie too deep: at={at}, most={_MOST_LEVELS}")
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: _json_value(who, each, f"{at}{_step(name)}", level + 1) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(who, each, f"{at}[{i}]", level + 1) for i, each in enumerate(value)]
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise PlanError(f"{who}: not a value of JSON: at={at}, got={show(value)}")


def _step(name: str) -> str:
    """A name as a step of a JSON path."""
    return f".{name}" if name.isascii() and name.isidentifier() else f"[{json.dumps(name)}]"


def _graph_of(core: _C.EinsumGraph) -> Graph:
    inputs, operations, outputs = core.parts
    return Graph(
        {name: tuple(extents) for name, _, extents in inputs},
        {name: dtype for name, dtype, _ in inputs},
        tuple(
            Operation(name, tuple(read), tuple(map(tuple, in_labels)), tuple(out_labels), extents, join, agg)
            for name, read, in_labels, out_labels, extents, join, agg in operations
        ),
        dict(outputs),
    )


def graph_text(graph: Graph) -> str:
    """A graph as JSON's text, with a line for each operation; `graph_of_text` reads it.

    >>> op = {"name": "Z", "inputs": ["X"], "in_labels": ["ij"], "out_labels": "i", "agg": "max"}
    >>> graph = read_graph("json", {"inputs": {"X": [4, 8]}, "ops": [op], "outputs": ["Z"]})
    >>> print(graph_text(graph))
    {
      "inputs": {"X": [4, 8]},
      "ops": [
        {"name": "Z", "inputs": ["X"], "in_labels": ["ij"], "out_labels": "i", "join": "mul", "agg": "max"}
      ],
      "outputs": {"Z": "Z"}
    }
    """
    return _core_of(graph).write_json()


def check_fits(who: str, graph: Graph) -> None:
    """Raises PlanError with the JSON path of what plans of einsums cannot be: names, labels, joins, dtypes.

    >>> op = {"name": "Z", "inputs": ["X"], "in_labels": ["ij"], "out_labels": "i", "agg": "max", "join": "x +"}
    >>> check_fits("plan_graph", read_graph("json", {"inputs": {"X": [4, 8]}, "ops": [op], "outputs": ["Z"]}))
    Traceback (most recent call last):
    ...
    joinsum.PlanError: plan_graph: expression: expected a number, an operand, a function or `(`: at=$.ops[0].join
      x +
         ^
    """
    try:
        _core_of(graph).plan(who)
    except KernelError as error:
        raise PlanError(str(error)) from None


def _core_of(graph: Graph) -> _C.EinsumGraph:
    inputs = [(name, graph.dtypes[name], list(extents)) for name, extents in graph.inputs.items()]
    return _C.EinsumGraph((inputs, list(map(_row, graph.operations)), list(graph.outputs.items())))


def _row(op: Operation) -> _C.GraphRow:
    in_labels = [list(labels) for labels in op.in_labels]
    return op.name, list(op.inputs), in_labels, list(op.out_labels), dict(op.extents), op.join, op.agg
