"""Graphs of einsums in JSON: read and checked, with the JSON path of what is wrong, and written.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from joinsum.arguments import show
from joinsum.errors import PlanError

__all__ = ["AGGREGATIONS", "Graph", "Operation", "graph_of_text", "graph_text", "load_graph", "read_graph"]

AGGREGATIONS = ("sum", "max", "min", "prod", "any", "all", "logsumexp", "argmax", "argmin")

# Dtypes of tensors, as plans print them.
DTYPES = ("bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "c64", "c128")

_OPERATION = ("name", "inputs", "in_labels", "out_labels", "join", "agg", "extents")


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
    return graph_of_text(who, Path(path).read_text("utf-8"), f"file={path}, ")


def graph_of_text(who: str, text: str, where: str = "", diagonals: bool = False) -> Graph:
    """Reads a graph from JSON's text; `where` opens the place in errors. `diagonals` as in `read_graph`.

    >>> graph_of_text("json", "[")
    Traceback (most recent call last):
    ...
    joinsum.PlanError: json: not JSON, expecting value: line=1, column=2
    """
    try:
        value = json.loads(text, object_pairs_hook=lambda pairs: _unique(who, where, pairs))
    except json.JSONDecodeError as error:
        place = f"{where}line={error.lineno}, column={error.colno}"
        raise PlanError(f"{who}: not JSON, {error.msg[:1].lower()}{error.msg[1:]}: {place}") from None
    return read_graph(who, value, diagonals)


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
    return _Reader(who, diagonals).graph(value)


def _step(name: str) -> str:
    """A name as a step of a JSON path."""
    return f".{name}" if name.isidentifier() else f"[{json.dumps(name)}]"


def _unique(who: str, where: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise PlanError(f"{who}: an object has one name twice: {where}name={show(name)}")
        found[name] = value
    return found


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
    inputs = {
        name: list(extents) if graph.dtypes[name] == "f32" else {"dtype": graph.dtypes[name], "extents": list(extents)}
        for name, extents in graph.inputs.items()
    }
    lines = ",\n".join("    " + json.dumps(_entry(operation)) for operation in graph.operations)
    operations = f"[\n{lines}\n  ]" if lines else "[]"
    parts = {"inputs": json.dumps(inputs), "ops": operations, "outputs": json.dumps(dict(graph.outputs))}
    return "{\n" + ",\n".join(f'  "{name}": {part}' for name, part in parts.items()) + "\n}"


def _entry(operation: Operation) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": operation.name, "inputs": list(operation.inputs)}
    entry["in_labels"] = [_labels_value(labels) for labels in operation.in_labels]
    entry["out_labels"] = _labels_value(operation.out_labels)
    entry["join"] = operation.join
    if operation.agg is not None:
        entry["agg"] = operation.agg
    given = {label for labels in operation.in_labels for label in labels}
    new = {label: operation.extents[label] for label in operation.out_labels if label not in given}
    return entry | ({"extents": new} if new else {})


def _labels_value(labels: Sequence[str]) -> str | list[str]:
    plain = all(len(label) == 1 and label.isalpha() for label in labels)
    return "".join(labels) if plain else list(labels)


class _Reader:
    def __init__(self, who: str, diagonals: bool) -> None:
        self.who = who
        self.diagonals = diagonals
        self.dtypes: dict[str, str] = {}
        self.extents: dict[str, tuple[int, ...]] = {}  # of all values so far

    def fail(self, what: str, at: str, **values: object) -> NoReturn:
        shown = "".join(f", {name}={show(value)}" for name, value in values.items())
        raise PlanError(f"{self.who}: {what}: at={at}{shown}")

    # --- JSON's kinds of values ---

    def an_object(self, value: object, at: str) -> Mapping[str, Any]:
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            self.fail("not an object", at, got=value)
        return value

    def fields(self, value: object, at: str, known: Sequence[str], needed: Sequence[str]) -> Mapping[str, Any]:
        found = self.an_object(value, at)
        for name in found:
            if name not in known:
                self.fail(f"no such field; there are {', '.join(known)}", f"{at}{_step(name)}")
        for name in needed:
            if name not in found:
                self.fail("a field is missing", at, field=name)
        return found

    def a_list(self, value: object, at: str) -> Sequence[Any]:
        if not isinstance(value, (list, tuple)):
            self.fail("not a list", at, got=value)
        return value

    def a_text(self, value: object, at: str) -> str:
        if not isinstance(value, str) or not value:
            self.fail("not a text of at least one letter", at, got=value)
        return value

    def extent(self, value: object, at: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            self.fail("not a number of elements", at, got=value)
        return value

    def labels(self, value: object, at: str) -> tuple[str, ...]:
        if isinstance(value, str):
            for i, letter in enumerate(value):
                if not letter.isalpha():
                    self.fail(
                        "a text of labels has letters only; give longer labels as a list", f"{at}[{i}]", got=letter
                    )
            return tuple(value)
        return tuple(self.a_text(label, f"{at}[{i}]") for i, label in enumerate(self.a_list(value, at)))

    # --- parts of a graph ---

    def graph(self, value: object) -> Graph:
        found = self.fields(value, "$", ("inputs", "ops", "outputs"), ("inputs", "ops", "outputs"))
        for name, entry in self.an_object(found["inputs"], "$.inputs").items():
            at = f"$.inputs{_step(name)}"
            extents, at = self.typed(name, entry, at)
            self.add(name, at, tuple(self.extent(n, f"{at}[{i}]") for i, n in enumerate(self.a_list(extents, at))))
        inputs = dict(self.extents)
        operations = tuple(
            self.operation(entry, f"$.ops[{i}]") for i, entry in enumerate(self.a_list(found["ops"], "$.ops"))
        )
        return Graph(inputs, self.dtypes, operations, self.outputs(found["outputs"]))

    def typed(self, name: str, entry: object, at: str) -> tuple[object, str]:
        """Notes the dtype of an input; its extents, and where they stand."""
        self.dtypes[name] = "f32"
        if not isinstance(entry, Mapping):
            return entry, at
        found = self.fields(entry, at, ("dtype", "extents"), ("dtype", "extents"))
        if found["dtype"] not in DTYPES:
            self.fail(f"no such dtype; there are {', '.join(DTYPES)}", f"{at}.dtype", dtype=found["dtype"])
        self.dtypes[name] = found["dtype"]
        return found["extents"], f"{at}.extents"

    def add(self, name: str, at: str, extents: tuple[int, ...]) -> None:
        self.a_text(name, at)
        if name in self.extents:
            self.fail("two values have one name", at, name=name)
        self.extents[name] = extents

    def operation(self, value: object, at: str) -> Operation:
        found = self.fields(value, at, _OPERATION, ("name", "inputs", "in_labels", "out_labels"))
        names = [
            self.known(name, f"{at}.inputs[{i}]") for i, name in enumerate(self.a_list(found["inputs"], f"{at}.inputs"))
        ]
        lists = self.a_list(found["in_labels"], f"{at}.in_labels")
        if not names:
            self.fail("an operation has no operand", f"{at}.inputs")
        if len(lists) != len(names):
            self.fail(f"{len(names)} operands need as many lists of labels", f"{at}.in_labels", in_labels=lists)
        in_labels = [self.labels(labels, f"{at}.in_labels[{i}]") for i, labels in enumerate(lists)]
        extents = self.extents_of(names, in_labels, f"{at}.in_labels")
        extents |= self.new_extents(found.get("extents", {}), extents, f"{at}.extents")
        out_labels = self.labels(found["out_labels"], f"{at}.out_labels")
        self.check_result(out_labels, extents, f"{at}.out_labels")
        agg = self.aggregation(found.get("agg"), set(extents) - set(out_labels), f"{at}.agg")
        join = self.a_text(found.get("join", "mul"), f"{at}.join")
        self.add(found["name"], f"{at}.name", tuple(extents[label] for label in out_labels))
        return Operation(found["name"], tuple(names), tuple(in_labels), out_labels, extents, join, agg)

    def known(self, name: object, at: str) -> str:
        if self.a_text(name, at) not in self.extents:
            self.fail("no such input or earlier operation", at, name=name)
        return str(name)

    def extents_of(self, names: Sequence[str], in_labels: Sequence[Sequence[str]], at: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for i, (name, labels) in enumerate(zip(names, in_labels, strict=True)):
            axes = self.extents[name]
            if len(axes) != len(labels):
                self.fail(
                    f"an operand has {len(axes)} axes but {len(labels)} labels", f"{at}[{i}]", labels=list(labels)
                )
            for axis, (label, extent) in enumerate(zip(labels, axes, strict=True)):
                if found.setdefault(label, extent) != extent:
                    self.fail(
                        "a label has two extents", f"{at}[{i}][{axis}]", label=label, extents=[found[label], extent]
                    )
        return found

    def new_extents(self, value: object, extents: Mapping[str, int], at: str) -> dict[str, int]:
        found = {
            label: self.extent(extent, f"{at}{_step(label)}") for label, extent in self.an_object(value, at).items()
        }
        for label, extent in found.items():
            if extents.get(label, extent) != extent:
                self.fail("a label has two extents", f"{at}{_step(label)}", extents=[extents[label], extent])
        return found

    def check_result(self, labels: Sequence[str], extents: Mapping[str, int], at: str) -> None:
        for i, label in enumerate(labels):
            if label not in extents:
                self.fail("a label has no extent; no operand has it, so name it in extents", f"{at}[{i}]", label=label)
            if label in labels[:i] and not self.diagonals:
                self.fail("a result has a label twice", f"{at}[{i}]", label=label)

    def aggregation(self, value: object, vanishing: set[str], at: str) -> str | None:
        if value is not None and value not in AGGREGATIONS:
            self.fail(f"no such aggregation; there are {', '.join(AGGREGATIONS)}", at, agg=value)
        if value is None and vanishing:
            self.fail("labels vanish but nothing aggregates them", at, labels=sorted(vanishing))
        return None if value is None else str(value)

    def outputs(self, value: object) -> dict[str, str]:
        if not isinstance(value, Mapping):
            names = [self.known(name, f"$.outputs[{i}]") for i, name in enumerate(self.a_list(value, "$.outputs"))]
            return {name: name for name in names}
        found = {
            name: self.known(of, f"$.outputs{_step(name)}") for name, of in self.an_object(value, "$.outputs").items()
        }
        for name, of in found.items():
            if not name or (name in self.extents and name != of):
                self.fail("an output has no name, or that of another value", f"$.outputs{_step(name)}", of=of)
        return found
