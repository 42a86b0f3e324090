"""Gradients of einsums over sparse operands, by the queries that the optimizer made of them, in reverse."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from joinsum import _C
from joinsum.base.errors import PlanError
from joinsum.cluster.context import Context
from joinsum.execution.sparse_queries import SparseQueries
from joinsum.sparse import SparseTensor
from joinsum.sparse.derivatives import Leaf, constant_of, derivative, leaves_of, mapped, weight
from joinsum.sparse.expressions import Data, expression_of, tensors_in
from joinsum.sparse.plan_options import plan_options

__all__ = ["SparseGradients", "at_pattern"]

_EXTREMES = ("min", "max")

# The query that counts elements of the result that no combination reaches.
_LOST = "lost"


def at_pattern(x: SparseTensor, values: torch.Tensor | None = None) -> SparseTensor:
    """A tensor whose stored elements are those of another one, with these values in row-major order or 1; its fill
    is 0."""
    if values is None:
        return SparseTensor.of_handle(x.handle.with_values(torch.ones_like(x.handle.values), 0.0))
    columns, _ = x.handle.to_coordinates(False)
    handle = x.handle
    return SparseTensor.of_handle(
        _C.SparseTensor.from_coordinates(
            handle.shape, columns, values.contiguous(), handle.axes, handle.formats, 0.0, None, 2**40
        )
    )


def _is_dense(x: SparseTensor) -> bool:
    return all(level == "dense" for level in x.levels)


def _read(tensor: str, indices: Sequence[str]) -> Data:
    return ["in", tensor, list(indices)]


def _axes(name: str, x: SparseTensor) -> list[str]:
    """Indices for a tensor's axes, beside those of queries."""
    return [f"{name} axis {i}" for i in range(len(x.shape))]


def _summed(indices: Sequence[str], body: Data) -> Data:
    return ["agg", "+", list(indices), body] if indices else body


@dataclass(frozen=True)
class _Query:
    """A logical query as a plan gives it."""

    name: str
    op: str | None
    reduced: list[str]
    body: Data
    output: list[str]

    @property
    def result(self) -> Data:
        return _read(self.name, self.output)

    @property
    def weights(self) -> list[Data]:
        """For logsumexp, the factor e^body / e^result: the share that each combination has of the sum. Empty for other
        aggregations."""
        return [weight(self.body, self.result)] if self.op == "logaddexp" else []

    @property
    def extreme(self) -> list[Data]:
        """A factor that is 1 where the expression reaches the result, if the query takes a maximum or minimum."""
        return [["map", "eq", [self.body, self.result]]] if self.op in _EXTREMES else []


class _Writer:
    """Writes the program of the gradients.

    made      its queries: name, expression, output
    masks     tensors that are 1 where one is stored, and the name of that one; masks of most results are queries
    outputs   for each operand that has a gradient the query that gives it
    ties      the queries whose ties are counted
    """

    def __init__(self, queries: Sequence[_Query], tensors: Mapping[str, SparseTensor], wanted: Sequence[str]) -> None:
        self._queries = queries
        self._tensors = tensors
        self._needed = self._depending(wanted)
        self.ties: set[str] = set()
        self._alike: dict[str, int] = {}  # combinations behind an element of these that is not stored
        self._axes_of_masks: dict[str, list[int] | None] = {}
        self.masks: dict[str, str] = {}
        self.made: list[tuple[str, Data, list[str]]] = []
        self.outputs = self._write(wanted)

    def _depending(self, wanted: Sequence[str]) -> set[str]:
        """The operands, and the queries that depend on them."""
        found = set(wanted)
        for query in self._queries:
            if any(tensor in found for tensor, _ in leaves_of(query.body)):
                found.add(query.name)
        return found

    def _write(self, wanted: Sequence[str]) -> dict[str, str]:
        """Writes the queries; names the one of each operand's gradient."""
        for query in self._queries:
            self._count_ties(query)
        arrived = {self._queries[-1].name: [self._share()]}
        for query in reversed(self._queries):
            if query.name not in arrived or query.name not in self._needed:
                continue
            gradient = self._total(query.name, query.output, arrived)
            for leaf in leaves_of(query.body):
                if leaf[0] in self._needed:
                    self._pass_on(query, _read(gradient, query.output), leaf, arrived)
        return {
            name: self._total(name, _axes(name, self._tensors[name]), arrived) for name in wanted if name in arrived
        }

    def _add(self, name: str, body: Data, output: Sequence[str]) -> str:
        self.made.append((name, body, list(output)))
        return name

    def _total(self, name: str, indices: Sequence[str], arrived: Mapping[str, list[str]]) -> str:
        """The sum of what arrived at a tensor."""
        parts = arrived[name]
        if len(parts) == 1:
            return parts[0]
        return self._add(f"d {name}", mapped("+", *(_read(part, indices) for part in parts)), indices)

    def _masked(self, query: _Query) -> list[Leaf]:
        """What the query reads that is sparse, and makes its expression a constant where it is not stored."""
        return [
            leaf
            for leaf in leaves_of(query.body)
            if not _is_dense(self._tensors[leaf[0]])
            and constant_of(query.body, leaf, self._tensors[leaf[0]].fill) is not None
        ]

    def _stored(self, leaves: Sequence[Leaf]) -> list[Data]:
        """Factors that are 1 where these are stored, and else 0; none for what may be everywhere."""
        found = ((f"at {tensor}", indices, self._mask(tensor)) for tensor, indices in leaves)
        return [_read(mask, [indices[axis] for axis in axes]) for mask, indices, axes in found if axes is not None]

    def _mask(self, tensor: str) -> list[int] | None:
        """The axes of the mask of a tensor; None if it may be stored everywhere. A result that a combination of stored
        elements reaches counts as stored, also where its value is the fill, which many formats leave out. Results of an
        infinite fill do not: what is infinite passes nothing on."""
        if tensor in self._axes_of_masks:
            return self._axes_of_masks[tensor]
        query = next((each for each in self._queries if each.name == tensor), None)
        if query is None or math.isinf(self._tensors[tensor].fill):
            self.masks[f"at {tensor}"] = tensor
            axes: list[int] | None = list(range(len(self._tensors[tensor].shape)))
        else:
            axes = self._reached(query)
        self._axes_of_masks[tensor] = axes
        return axes

    def _reached(self, query: _Query) -> list[int] | None:
        """Adds the mask of a query's result; gives its axes."""
        masked, leaves = self._masked(query), leaves_of(query.body)
        if masked:
            factors = self._stored(masked)
        else:
            factors = self._stored([leaf for leaf in leaves if not _is_dense(self._tensors[leaf[0]])])
            factors = factors if len(factors) == len(leaves) else []
        if not factors:
            return None
        indices = {index for factor in factors for index in factor[2]}
        body = mapped("*" if masked else "max", *factors)
        reduced = [index for index in query.reduced if index in indices]
        axes = [axis for axis, index in enumerate(query.output) if index in indices]
        body = ["agg", "max", reduced, body] if reduced else body
        self._add(f"at {query.name}", body, [query.output[axis] for axis in axes])
        return axes

    def _tied(self, leaves: Sequence[Leaf]) -> list[Data]:
        return [_read(f"ties {tensor}", indices) for tensor, indices in leaves if tensor in self.ties]

    def _count_ties(self, query: _Query) -> None:
        """Counts the combinations of original elements that reach each element of a query's result."""
        ties = self._tied(leaves_of(query.body))
        if not query.extreme and not ties:
            return
        self.ties.add(query.name)
        stored = self._stored(self._masked(query))
        counted = _summed(query.reduced, mapped("*", *stored, *query.extreme, *ties))
        extents = self.extents(query)
        every = math.prod(extents[index] for index in query.reduced)
        alike = math.prod(self._alike.get(tensor, 1) for tensor, _ in leaves_of(query.body))
        fill = self._tensors[query.name].fill
        self._alike[query.name] = every * alike
        if not stored or math.isinf(fill):
            self._add(f"ties {query.name}", counted, query.output)
            return
        # Combinations that are not stored tie where their value is the extreme.
        found = self._add(f"stored ties {query.name}", counted, query.output)
        combinations = self._add(f"stored {query.name}", _summed(query.reduced, mapped("*", *stored)), query.output)
        others: Data = ["map", "-", [["lit", float(every)], _read(combinations, query.output)]]
        at_fill: Data = ["map", "eq", [query.result, ["lit", fill]]]
        total = mapped("+", _read(found, query.output), mapped("*", ["lit", float(alike)], others, at_fill))
        self._add(f"ties {query.name}", total, query.output)

    def _share(self) -> str:
        """What arrives at the last query's result, for each combination that reaches it."""
        last = self._queries[-1]
        if last.name not in self.ties:
            return "d"
        ties = _read(f"ties {last.name}", last.output)
        one_at_least = mapped("+", ties, ["map", "eq", [ties, ["lit", 0.0]]])
        share: Data = ["map", "*", [_read("d", last.output), ["map", "/", [["lit", 1.0], one_at_least]]]]
        # A finite extreme that nothing reaches was rounded in another way.
        z, stored = last.result, []
        if not _is_dense(self._tensors[last.name]):
            stored = self._stored([(last.name, tuple(last.output))])
        without: list[Data] = [["map", "eq", [ties, ["lit", 0.0]]], ["map", "eq", [["map", "-", [z, z]], ["lit", 0.0]]]]
        self._add(_LOST, _summed(last.output, mapped("*", *stored, *without)), [])
        return self._add("shares", share, last.output)

    def _pass_on(self, query: _Query, gradient: Data, leaf: Leaf, arrived: dict[str, list[str]]) -> None:
        by_leaf = derivative(query.body, leaf)
        if by_leaf is None:
            return
        leaves = leaves_of(query.body)
        stored = self._masked(query)
        if leaf not in stored and not _is_dense(self._tensors[leaf[0]]):
            stored.append(leaf)
        factors = [
            gradient,
            *self._stored(stored),
            *query.weights,
            *query.extreme,
            *self._tied([x for x in leaves if x != leaf]),
        ]
        if by_leaf != ["lit", 1.0]:
            factors.append(by_leaf)
        indices = dict.fromkeys([*query.output, *query.reduced, *(i for _, own in leaves for i in own)])
        body = _summed([index for index in indices if index not in leaf[1]], mapped("*", *factors))
        parts = arrived.setdefault(leaf[0], [])
        parts.append(self._add(f"d {leaf[0]} {len(parts)} of {query.name}", body, leaf[1]))

    def extents(self, query: _Query) -> dict[str, int]:
        """Of the indices of a query."""
        read = [*leaves_of(query.body), (query.name, tuple(query.output))]
        return {
            index: extent
            for tensor, indices in read
            for index, extent in zip(indices, self._tensors[tensor].shape, strict=True)
        }


class SparseGradients:
    """The gradients of an einsum's operands, as a program over the operands, the results of its queries and `d`, the
    gradient that arrives at the last one's. They are sums, and elements that tie for a maximum or minimum share what
    arrives: each query counts how many combinations reach its elements, as for dense operands.

    Where an operand is not stored, and its fill makes the joined value a constant, that passes nothing on.
    """

    def __init__(
        self,
        current: Context,
        queries: Sequence[Mapping[str, Any]],
        extents: Mapping[str, int],
        tensors: Mapping[str, SparseTensor],
        wanted: Sequence[str],
    ) -> None:
        """Plans the gradients of `wanted` operands; `tensors` are all operands and results by name, and `d`; `extents`
        those of the labels."""
        read = [_Query(each["name"], each["op"], each["indices"], each["expr"], each["output"]) for each in queries]
        writer = _Writer(read, tensors, wanted)
        self._masks, self._outputs = writer.masks, writer.outputs
        made = set().union(*(tensors_in(body) for _, body, _ in writer.made))
        self._read = [name for name in tensors if name in made]
        if not self._outputs:
            return
        sizes = dict(extents)
        for query in read:
            sizes |= writer.extents(query)
        for name in self._outputs:
            sizes |= dict(zip(_axes(name, tensors[name]), tensors[name].shape, strict=True))
        given = self._all(tensors)
        inputs = {name: _C.SparseInput(list(x.shape), x.fill, x.handle, 0, []) for name, x in given.items()}
        program = _C.SparseProgram(sizes, inputs, [(name, expression_of(body), out) for name, body, out in writer.made])
        # What is compared with an extreme must round as it did when that was found.
        options = plan_options(distribute=not writer.ties)
        options.formats = {
            query: ["dense"] * len(tensors[name].shape)
            for name, query in self._outputs.items()
            if _is_dense(tensors[name])
        }
        self._plan = _C.SparsePlan(program, options)
        self._plan.forget_tensors()
        read_back = {*self._outputs.values(), _LOST}
        results = [name for name, _, _ in writer.made if name in read_back]
        dense = [name for name, x in given.items() if _is_dense(x)]
        self._on_sites = SparseQueries.where_divided(current, self._plan, given, dense, results)

    def _all(self, tensors: Mapping[str, SparseTensor]) -> dict[str, SparseTensor]:
        found = {name: tensors[name] for name in self._read}
        return found | {mask: at_pattern(tensors[tensor]) for mask, tensor in self._masks.items()}

    def run(self, tensors: Mapping[str, SparseTensor]) -> dict[str, SparseTensor | torch.Tensor]:
        """The gradients, without those that are 0, for tensors like those that were planned."""
        if not self._outputs:
            return {}
        given = self._all(tensors)
        if self._on_sites is not None:
            found = self._on_sites.run(given)
        else:
            handles = {name: x.handle for name, x in given.items()}
            results = self._plan.run(handles, torch.get_num_threads(), "automatic", "", True).results
            found = {name: SparseTensor.of_handle(handle) for name, handle in results.items()}
        if _LOST in found and found[_LOST].item() != 0:
            raise PlanError(
                "einsum: no gradient of this maximum or minimum, whose elements round in another way when they are "
                f"computed again: elements={int(found[_LOST].item())}; join fewer operands at a time, or make them "
                "dense"
            )
        return {name: found[query] for name, query in self._outputs.items()}
