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
from pathlib import Path

from joinsum import _C
from joinsum.base.arguments import show
from joinsum.base.errors import PlanError

__all__ = ["AGGREGATIONS", "DTYPES", "load_json", "read_json", "read_json_value"]

AGGREGATIONS = tuple(_C.aggregation_names())

# Dtypes of tensors, as plans print them.
DTYPES = tuple(_C.dtype_names())

# Lists and objects may be nested this deep; the core's reader has the same limit.
_MOST_LEVELS = 32


def load_json(who: str, path: str | Path) -> _C.JsonGraph:
    """Reads the graph in a JSON file. Raises PlanError for what is no JSON or no graph; OSError as `open` does."""
    return read_json(who, Path(path).read_bytes(), f"file={path}, ")


def read_json(who: str, text: str | bytes, where: str = "", diagonals: bool = False) -> _C.JsonGraph:
    """Reads a graph from JSON text; errors name the place after `where`. With `diagonals` a result may have a label
    twice.

    >>> read_json("json", '{"inputs": }')
    Traceback (most recent call last):
    ...
    joinsum.PlanError: json: not JSON, unexpected '}'; expected '[', '{', or a literal: line=1, column=12
    """
    # The core reports half surrogates by their place.
    utf8 = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return _C.JsonGraph.read(utf8, who, where, diagonals)


def read_json_value(who: str, value: object) -> _C.JsonGraph:
    """Reads a graph in JSON's form, as `json.load` gives it. Raises PlanError with the JSON path of what is wrong.

    >>> op = {"name": "Z", "inputs": ["X"], "in_labels": ["ij"], "out_labels": "i", "agg": "max"}
    >>> read_json_value("plan_graph", {"inputs": {"X": [4, 8]}, "ops": [op], "outputs": ["Z"]}).operations[0].extents
    {'i': 4, 'j': 8}
    >>> read_json_value("plan_graph", {"inputs": {"X": [4]}, "ops": [op], "outputs": ["Z"]})
    Traceback (most recent call last):
    ...
    joinsum.PlanError: plan_graph: an operand has 1 axes but 2 labels: at=$.ops[0].in_labels[0], labels=['i', 'j']
    """
    return read_json(who, json.dumps(_json_value(who, value, "$")))


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
