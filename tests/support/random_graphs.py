"""Random graphs of einsums, with contents for their inputs and torch's values beside them.

A graph is drawn together with its values, so that none is drawn whose result rounding could change beyond its bound.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch_einsums import AGGREGATIONS, JOINS, MAPS, Labels, Unstable, Value, Vertex, evaluate

DTYPES = {"f64": torch.float64, "f32": torch.float32, "i64": torch.int64}
# Whole numbers below this are exact in the dtype.
EXACT = {"f64": 2.0**53, "f32": 2.0**24, "i64": 2.0**53}
# Bounds of values stay below this, so that those of gradients are finite.
_MOST = 1e6
_MOST_JOINED = 20_000
_CHAINS = ("sub | square", "add | relu", "mul | tanh", "sub | abs")
_INTEGER_KERNELS = {"mul", "add", "sub", "max", "min", "squared_difference", "abs_difference", "id", "negate", "abs"}


@dataclass
class RandomGraph:
    """A graph, its inputs' contents in `dtype`, and what torch makes of it.

    leaves    the contents in float64, which torch's gradients are for, and the same of the bounds
    values    by name, of inputs and vertices
    """

    seed: int
    dtype: str
    contents: dict[str, torch.Tensor] = field(default_factory=dict)
    leaves: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    vertices: list[Vertex] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)

    @property
    def truths(self) -> set[str]:
        """Vertices whose values are truth values."""
        return {vertex.name for vertex in self.vertices if vertex.agg in ("any", "all")}

    def to_json(self) -> str:
        """The graph as `joinsum.Graph.from_json` reads it."""
        used = {name for vertex in self.vertices for name in vertex.inputs}
        inputs = {
            name: {"dtype": self.dtype, "extents": list(x.shape)} for name, x in self.contents.items() if name in used
        }
        ops = []
        for vertex in self.vertices:
            op: dict[str, object] = {"name": vertex.name, "inputs": list(vertex.inputs)}
            op |= {"in_labels": [list(labels) for labels in vertex.labels], "out_labels": list(vertex.result)}
            op |= {"join": vertex.join, "agg": vertex.agg}
            ops.append(op | ({"extents": vertex.extents} if vertex.extents else {}))
        return json.dumps({"inputs": inputs, "ops": ops, "outputs": self.outputs})


def random_graph(seed: int) -> RandomGraph:
    """The graph of that number: 2 to 8 vertices."""
    return _Drawing(seed).draw()


class _Drawing:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._generator = torch.Generator().manual_seed(seed)
        self._graph = RandomGraph(seed, self._random.choice(["f64", "f64", "f32", "f32", "i64"]))
        self._whole = self._graph.dtype == "i64" or self._random.random() < 0.4
        # Two labels of one extent, so that a tensor can be read with its axes exchanged.
        small = [1, 2, 3, 4, 5, 7] + ([0] if self._random.random() < 0.1 else [])
        sizes = {name: self._random.choice(small) for name in ("i", "j", "k", "row")}
        self._sizes = sizes | {"l": sizes["i"], "column": sizes["row"]}
        self._last: set[str] = set()  # extremes of nothing: infinite, and only looked at

    def draw(self) -> RandomGraph:
        wanted = self._random.randint(2, 8)
        while len(self._graph.vertices) < wanted:
            self._try_vertex()
        read = {name for vertex in self._graph.vertices for name in vertex.inputs}
        for vertex in self._graph.vertices:
            if vertex.name not in read or self._random.random() < 0.15:
                self._graph.outputs.append(vertex.name)
        return self._graph

    def _try_vertex(self) -> None:
        """Adds a vertex unless torch cannot say what it is up to its bound."""
        vertex, fresh = self._vertex()
        values = self._graph.values | fresh
        operands = [values[name] for name in vertex.inputs]
        if self._joined(vertex, values) > _MOST_JOINED:
            return
        try:
            value = evaluate(vertex, operands, EXACT[self._graph.dtype])
        except Unstable:
            return
        finite = bool(value.tensor.isfinite().all())
        of_nothing = not finite and any(0 in x.tensor.shape for x in operands) and self._graph.dtype != "i64"
        small = bool((value.bound < _MOST).all())
        if not (finite or of_nothing) or not small or (self._graph.dtype == "i64" and not value.exact):
            return
        if of_nothing:
            self._last.add(vertex.name)
        for name, new in fresh.items():
            self._keep_input(name, new)
        self._graph.vertices.append(vertex)
        self._graph.values[vertex.name] = value

    def _joined(self, vertex: Vertex, values: dict[str, Value]) -> int:
        """Elements of the joined tensor, or of the result if these are more."""
        extents = dict(vertex.extents)
        for name, labels in zip(vertex.inputs, vertex.labels, strict=True):
            extents.update(zip(labels, values[name].tensor.shape, strict=True))
        joined, result = 1, 1
        for label in {label for labels in vertex.labels for label in labels}:
            joined *= extents[label]
        for label in vertex.result:
            result *= extents[label]
        return max(joined, result)

    # --- inputs -------------------------------------------------------------------------------------------------------

    def _fresh_input(self, labels: Labels) -> Value:
        shape = [self._sizes[label] for label in labels]
        positive = self._random.random() < 0.3
        if self._whole:
            low = 1 if positive else -3
            x = torch.randint(low, 4, shape, generator=self._generator).double()
        else:
            x = torch.rand(shape, generator=self._generator, dtype=torch.float32).double()
            x = x + 0.5 if positive else 3 * x - 1.5
        return Value(x.requires_grad_(), x.detach().abs().requires_grad_(), True, positive)

    def _keep_input(self, name: str, value: Value) -> None:
        self._graph.values[name] = value
        self._graph.leaves[name] = (value.tensor, value.bound)
        self._graph.contents[name] = value.tensor.detach().to(DTYPES[self._graph.dtype])

    def _operand(self, fresh: dict[str, Value]) -> tuple[str, Labels]:
        """A value that is there, under labels that fit its extents, or a new input."""
        known = [name for name in (*self._graph.values, *fresh) if name not in self._last]
        if known and self._random.random() < 0.6:
            name = self._random.choice(known[-6:])
            value = self._graph.values.get(name) or fresh[name]
            fitting = [[n for n, size in self._sizes.items() if size == extent] for extent in value.tensor.shape]
            if value.tensor.ndim <= 4 and all(fitting):
                return name, tuple(self._random.choice(names) for names in fitting)
        labels = tuple(self._random.choice(list(self._sizes)) for _ in range(self._random.randint(0, 3)))
        name = f"X{len(self._graph.contents) + len(fresh)}"
        fresh[name] = self._fresh_input(labels)
        return name, labels

    # --- vertices -----------------------------------------------------------------------------------------------------

    def _vertex(self) -> tuple[Vertex, dict[str, Value]]:
        fresh: dict[str, Value] = {}
        operands = [self._operand(fresh) for _ in range(self._random.choice([1, 1, 2, 2, 2, 2, 3]))]
        truths = [name for name, _ in operands if name in self._graph.truths]
        if truths:
            operands = [operand for operand in operands if operand[0] == truths[0]][:1]
            fresh = {}
        met = list(dict.fromkeys(label for _, labels in operands for label in labels))
        result = [label for label in met if self._random.random() < 0.55]
        self._random.shuffle(result)
        extents = {}
        unmet = [label for label in self._sizes if label not in met]
        if unmet and self._random.random() < 0.12:
            label = self._random.choice(unmet)
            result.insert(self._random.randint(0, len(result)), label)
            extents[label] = self._sizes[label]
        if result and self._random.random() < 0.08:
            result.insert(self._random.randint(0, len(result)), self._random.choice(result))
        join, agg = self._kernels(len(operands), bool(truths), aggregates=any(label not in result for label in met))
        names, labels = zip(*operands, strict=True)
        name = f"Z{len(self._graph.vertices)}"
        return Vertex(name, names, labels, tuple(result), join, agg, extents), fresh

    def _kernels(self, operands: int, truths: bool, aggregates: bool) -> tuple[str, str]:
        if truths:
            counted = (f"cast[{self._graph.dtype}]", "sum")
            return self._random.choice([counted, ("id", "any"), ("id", "all")]) if aggregates else counted
        maps = [name for name in MAPS if not name.startswith("cast")]
        joins: Sequence[str] = maps if operands == 1 else [*JOINS, "mul", "mul", *_CHAINS]
        if self._graph.dtype == "i64":
            joins = [name for name in joins if name in _INTEGER_KERNELS]
        aggregations: list[str] = [*AGGREGATIONS, "sum", "sum", "sum"]
        if self._graph.dtype == "i64":
            aggregations.remove("logsumexp")
        agg = self._random.choice(aggregations) if aggregates or self._random.random() < 0.1 else "sum"
        return self._random.choice(joins), agg
