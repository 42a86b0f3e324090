"""Graphs of einsums as values: text, JSON, gradients, and what they become in the algebra."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch

from joinsum import _C
from joinsum.arguments import integer, show
from joinsum.contraction_order import paths_of
from joinsum.dtypes import torch_dtype
from joinsum.errors import Error, PlanError
from joinsum.plan import TraPlan

__all__ = ["EinsumPlan", "aggregate_kernel", "join_kernel"]

Made = TypeVar("Made")

# ⊕ by the name that users give it: what is done to each joined element first, and the kernel that folds.
_AGGREGATES = {
    "sum": ("", "add"),
    "prod": ("", "mul"),
    "max": ("", "max"),
    "min": ("", "min"),
    "logsumexp": ("", "logaddexp"),
    "any": ("cast[bool]", "max"),
    "all": ("cast[bool]", "min"),
}
_AGGREGATE_NAMES = {fold: name for name, (first, fold) in _AGGREGATES.items() if not first}


class EinsumPlan:
    """A graph of einsums with named inputs and outputs: what is computed, without cuts or sites; immutable.

    `parse` makes one of text, `from_json` of JSON. Each vertex is Z[labels] = ⊕ over the labels that Z lacks of
    ⊗(X[labels], Y[labels], ...). Source: EinDecomp, section 3.

    >>> import joinsum
    >>> graph = joinsum.EinsumPlan.parse('''einsum
    ... input X: f32[4,5]
    ... input Y: f32[5,6]
    ... output Z = einsum[ij,jk->ik; mul; add](X, Y)''')
    >>> print(graph)
    einsum
    input X: f32[4,5]
    input Y: f32[5,6]
    t0 = einsum[ij,jk->ik; mul; add](X, Y): f32[4,6]
    output Z = t0
    <BLANKLINE>
    >>> print(graph.gradient(["X"]))
    einsum
    input d_Z: f32[4,6]
    input Y: f32[5,6]
    t0 = einsum[ik,jk->ij; mul; add](d_Z, Y): f32[4,5]
    output d_X = t0
    <BLANKLINE>
    """

    def __init__(self, core: _C.EinsumPlan) -> None:
        self._core = core

    @property
    def core(self) -> _C.EinsumPlan:
        """The C++ plan."""
        return self._core

    @property
    def inputs(self) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Dtypes and extents of the inputs by name, in the order of first use."""
        return {name: (torch_dtype(dtype), tuple(extents)) for name, (dtype, extents) in self._core.inputs}

    @property
    def outputs(self) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Dtypes and extents of the outputs by name."""
        return {name: (torch_dtype(dtype), tuple(extents)) for name, (dtype, extents) in self._core.outputs}

    @property
    def text(self) -> str:
        """Printed form; `parse` reads it. Equal plans print alike."""
        return str(self._core)

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self._core)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EinsumPlan) and bool(self._core == other._core)

    def __repr__(self) -> str:
        return f"<EinsumPlan {', '.join(self.inputs)} -> {', '.join(self.outputs)}>\n{self.text}"

    @staticmethod
    def parse(text: str) -> EinsumPlan:
        """Reads a plan, whose first line is `einsum`. Raises PlanError, or KernelError for an unknown kernel."""
        if not isinstance(text, str):
            raise PlanError(f"parse: a plan is text: got={type(text).__name__}")
        return EinsumPlan(_C.EinsumPlan.parse(text))

    def gradient(self, of: Sequence[str]) -> EinsumPlan:
        """The plan of the gradients for these inputs: from the inputs and, for each output Z, `d_Z`, to `d_X`.

        Einsums again, so it has a gradient too. As torch's: ties of max and min share equally, complex gradients are
        the conjugate ones. Raises PlanError.
        """
        return EinsumPlan(self._core.gradient(list(of)))

    def binary(self) -> EinsumPlan:
        """The same plan from einsums of at most two operands, in the order that opt_einsum proposes."""
        return EinsumPlan(self._core.binary(paths_of(self._core)))

    def lower(self, sites: int) -> TraPlan:
        """The logical plan over tuples: each label cut evenly in `sites` parts, or in elements if these are fewer.

        >>> import joinsum
        >>> graph = joinsum.EinsumPlan.parse("einsum\\ninput X: f32[4,5]\\noutput Z = einsum[ij->j; square; add](X)")
        >>> print(graph.lower(sites=2))
        tra
        input X: f32[4,5]<2,2>
        t0 = transform[square](X): f32[4,5]<2,2>
        t1 = transform[reduce_add[ab->b]](t0): f32[5@1]<2,2>
        t2 = aggregate[1; add](t1): f32[5]<2>
        output Z = t2
        <BLANKLINE>
        """
        plan = self.binary().core
        return TraPlan(plan.lower(plan.even_cuts(integer("lower", "sites", sites))))

    def interpret(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What the plan means, element by element and in float64, by the definition alone: slow; tests compare with it.

        >>> import joinsum, torch
        >>> graph = joinsum.EinsumPlan.parse("einsum\\ninput X: f32[2,2]\\noutput Z = einsum[ii->; id; add](X)")
        >>> graph.interpret({"X": torch.tensor([[1., 2.], [3., 4.]])})
        {'Z': tensor(5., dtype=torch.float64)}
        """
        arrays = {name: _C.Array(tensor.detach()) for name, tensor in inputs.items()}
        return {name: array.tensor() for name, array in self._core.interpret(arrays, {}).items()}

    # --- JSON ---------------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The plan as JSON, which `from_json` reads.

        >>> import joinsum
        >>> graph = joinsum.EinsumPlan.parse("einsum\\ninput X: f32[4,5]\\noutput Z = einsum[ij->j; id; max](X)")
        >>> print(graph.to_json())
        {
          "inputs": {"X": [4, 5]},
          "ops": [
            {"name": "t0", "inputs": ["X"], "in_labels": ["ij"], "out_labels": "j", "join": "id", "agg": "max"}
          ],
          "outputs": {"Z": "t0"}
        }
        """
        inputs = {
            name: extents if dtype == "f32" else {"dtype": dtype, "extents": extents}
            for name, (dtype, extents) in self._core.inputs
        }
        ops = []
        for name, operands, in_labels, out_labels, join, aggregate, extents in self._core.vertices:
            op: dict[str, object] = {"name": name, "inputs": operands}
            op["in_labels"] = [_labels_value(labels) for labels in in_labels]
            op["out_labels"] = _labels_value(out_labels)
            op["join"] = join
            op["agg"] = _AGGREGATE_NAMES.get(aggregate, aggregate)
            if extents:
                op["extents"] = extents
            ops.append(op)
        outputs = {name: node for (name, _), node in zip(self._core.outputs, self._core.output_nodes, strict=True)}
        lines = ",\n".join("    " + json.dumps(op) for op in ops)
        parts = [
            f'  "inputs": {json.dumps(inputs)}',
            f'  "ops": [\n{lines}\n  ]',
            f'  "outputs": {json.dumps(outputs)}',
        ]
        return "{\n" + ",\n".join(parts) + "\n}"

    @staticmethod
    def from_json(text: str) -> EinsumPlan:
        """Reads a graph: `{"inputs": {name: [extents]}, "ops": [...], "outputs": [names of ops]}`.

        An op is `{"name", "inputs": [names], "in_labels": ["ij", "jk"], "out_labels": "ik", "join": "mul", "agg":
        "sum"}`: `join` is an elementwise kernel (by default mul, of one operand id), `agg` one of sum, prod, max, min,
        any, all and logsumexp (by default sum), `extents` gives those of labels that only the result has, as in
        `{"j": 5}`. Labels may be lists of strings. An input of another dtype than f32 is `{"dtype": "f64", "extents":
        [4, 5]}`; outputs may be an object, `{"Z": "t0"}`. Raises PlanError with the JSON path of what is wrong.

        >>> import joinsum
        >>> joinsum.EinsumPlan.from_json('{"inputs": {"X": [4, 5]}, "ops": [{"name": "Z"}], "outputs": ["Z"]}')
        Traceback (most recent call last):
        ...
        joinsum.PlanError: json: a field is missing: path=$.ops[0].inputs
        """
        try:
            graph = json.loads(text)
        except json.JSONDecodeError as error:
            raise PlanError(f"json: {error.msg}: line={error.lineno}, column={error.colno}") from None
        return EinsumPlan(_JsonReader(_object("$", graph, {"inputs", "ops", "outputs"})).read())


def join_kernel(who: str, join: object, agg: object, operands: int) -> tuple[str, str]:
    """Texts of the kernels that ⊗ and ⊕ are: what users write, as plans do.

    >>> join_kernel("einsum", "mul", "any", 2)
    ('mul | cast[bool]', 'max')
    """
    if not isinstance(join, str):
        raise PlanError(f"{who}: a join is named by text such as 'mul' or 'sub | square': join={show(join)}")
    if not isinstance(agg, str) or agg not in _AGGREGATES:
        raise PlanError(f"{who}: no such aggregation: agg={show(agg)}, there are {', '.join(_AGGREGATES)}")
    first, fold = _AGGREGATES[agg]
    if operands == 1 and join == "mul":
        join = "id"
    return (f"{join} | {first}" if first else join), fold


def aggregate_kernel(agg: str) -> str:
    """The kernel that folds for ⊕ = `agg`."""
    return _AGGREGATES[agg][1]


def _labels_value(labels: list[str]) -> str | list[str]:
    plain = all(len(label) == 1 and label.isalpha() for label in labels)
    return "".join(labels) if plain else labels


# --- reading JSON -----------------------------------------------------------------------------------------------------


def _object(path: str, value: object, fields: set[str] | None = None) -> dict[str, object]:
    if not isinstance(value, dict):
        raise PlanError(f"json: an object is expected: path={path}, value={show(value)}")
    for name in value:
        if fields is not None and name not in fields:
            raise PlanError(f"json: no such field: path={path}.{name}, fields={', '.join(sorted(fields))}")
    return value


def _list(path: str, value: object) -> list[object]:
    if not isinstance(value, list):
        raise PlanError(f"json: a list is expected: path={path}, value={show(value)}")
    return value


def _text(path: str, value: object) -> str:
    if not isinstance(value, str):
        raise PlanError(f"json: text is expected: path={path}, value={show(value)}")
    return value


def _field(path: str, fields: dict[str, object], name: str) -> object:
    if name not in fields:
        raise PlanError(f"json: a field is missing: path={path}.{name}")
    return fields[name]


def _extents(path: str, value: object) -> list[int]:
    extents = []
    for position, extent in enumerate(_list(path, value)):
        if isinstance(extent, bool) or not isinstance(extent, int) or extent < 0:
            raise PlanError(f"json: an extent is a whole number: path={path}[{position}], value={show(extent)}")
        extents.append(extent)
    return extents


def _labels(path: str, value: object) -> list[str]:
    if isinstance(value, str):
        return list(value)
    return [_text(f"{path}[{position}]", label) for position, label in enumerate(_list(path, value))]


class _JsonReader:
    def __init__(self, graph: dict[str, object]) -> None:
        self._graph = graph
        self._nodes: dict[str, _C.EinsumNode] = {}

    def read(self) -> _C.EinsumPlan:
        for name, value in _object("$.inputs", _field("$", self._graph, "inputs")).items():
            self._define(f"$.inputs.{name}", name, self._input(f"$.inputs.{name}", name, value))
        for position, op in enumerate(_list("$.ops", _field("$", self._graph, "ops"))):
            path = f"$.ops[{position}]"
            fields = _object(path, op, {"name", "inputs", "in_labels", "out_labels", "join", "agg", "extents"})
            self._define(f"{path}.name", _text(f"{path}.name", _field(path, fields, "name")), self._op(path, fields))
        outputs = _field("$", self._graph, "outputs")
        if isinstance(outputs, dict):
            named = [(name, f"$.outputs.{name}", node) for name, node in outputs.items()]
        else:
            entries = enumerate(_list("$.outputs", outputs))
            named = [(str(node), f"$.outputs[{position}]", node) for position, node in entries]
        made = [(name, self._node(path, node)) for name, path, node in named]
        return self._located("$.outputs", lambda: _C.EinsumPlan.make(made))

    def _input(self, path: str, name: str, value: object) -> _C.EinsumNode:
        dtype = "f32"
        if isinstance(value, dict):
            fields = _object(path, value, {"dtype", "extents"})
            dtype = _text(f"{path}.dtype", _field(path, fields, "dtype"))
            value = _field(path, fields, "extents")
            path += ".extents"
        extents = _extents(path, value)
        return self._located(path, lambda: _C.einsum_input(name, dtype, extents))

    def _op(self, path: str, fields: dict[str, object]) -> _C.EinsumNode:
        names = _list(f"{path}.inputs", _field(path, fields, "inputs"))
        inputs = [self._node(f"{path}.inputs[{position}]", name) for position, name in enumerate(names)]
        in_labels = [
            _labels(f"{path}.in_labels[{position}]", labels)
            for position, labels in enumerate(_list(f"{path}.in_labels", _field(path, fields, "in_labels")))
        ]
        out_labels = _labels(f"{path}.out_labels", _field(path, fields, "out_labels"))
        agg = fields.get("agg", "sum")
        if not isinstance(agg, str) or agg not in _AGGREGATES:
            raise PlanError(f"json: no such aggregation: path={path}.agg, value={show(agg)}")
        join = _text(f"{path}.join", fields.get("join", "mul"))
        extents = {}
        for label, extent in _object(f"{path}.extents", fields.get("extents", {})).items():
            (extents[label],) = _extents(f"{path}.extents.{label}", [extent])

        def make() -> _C.EinsumNode:
            kernel, fold = join_kernel("einsum", join, agg, len(inputs))
            return _C.einsum_vertex(inputs, in_labels, out_labels, _C.Kernel(kernel), _C.Kernel(fold), extents)

        return self._located(path, make)

    def _node(self, path: str, name: object) -> _C.EinsumNode:
        if not isinstance(name, str) or name not in self._nodes:
            raise PlanError(f"json: no such input or op so far: path={path}, name={show(name)}")
        return self._nodes[name]

    def _define(self, path: str, name: str, node: _C.EinsumNode) -> None:
        if name in self._nodes:
            raise PlanError(f"json: a name is used twice: path={path}, name={name}")
        self._nodes[name] = node

    @staticmethod
    def _located(path: str, make: Callable[[], Made]) -> Made:
        try:
            return make()
        except Error as error:
            raise type(error)(f"json: {error}: path={path}") from None
