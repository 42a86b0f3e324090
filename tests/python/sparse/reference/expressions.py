"""Expressions as nested lists: their indices, names made unique, and the program that holds their tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .operators import Array, apply_map, repeat

Expression = list[Any]


def number(value: float | str) -> float:
    """Reads "inf" and "-inf" beside plain numbers."""
    return float(value)


def children(expr: Expression) -> list[Expression]:
    return {"map": lambda: expr[2], "agg": lambda: [expr[3]]}.get(expr[0], list)()


def accesses(expr: Expression) -> Iterator[Expression]:
    """Yields the inputs below an expression, left to right."""
    if expr[0] == "in":
        yield expr
    for child in children(expr):
        yield from accesses(child)


def free_indices(expr: Expression) -> list[str]:
    """Lists the indices that no aggregate inside binds, by first occurrence."""
    if expr[0] == "in":
        return list(dict.fromkeys(expr[2]))
    found = dict.fromkeys(index for child in children(expr) for index in free_indices(child))
    return [index for index in found if expr[0] != "agg" or index not in expr[2]]


def rename_apart(expr: Expression) -> Expression:
    """Gives every bound index a name of its own; the first binder of a name keeps it."""
    taken = set(free_indices(expr))

    def visit(node: Expression, names: dict[str, str]) -> Expression:
        if node[0] == "in":
            return ["in", node[1], [names.get(index, index) for index in node[2]]]
        if node[0] == "map":
            return ["map", node[1], [visit(child, names) for child in node[2]]]
        if node[0] == "lit":
            return node
        fresh = {}
        for index in node[2]:
            count = 1
            name = index
            while name in taken:
                count += 1
                name = f"{index}#{count}"
            taken.add(name)
            fresh[index] = name
        return ["agg", node[1], list(fresh.values()), visit(node[3], {**names, **fresh})]

    return visit(expr, {})


@dataclass
class Tensor:
    shape: tuple[int, ...]
    fill: float
    entries: dict[tuple[int, ...], float] | None
    stored: int
    degrees: list[tuple[list[int], list[int], float]]

    def dense(self) -> Array:
        assert self.entries is not None, "a tensor with statistics only has no values"
        array = np.full(self.shape, self.fill)
        for place, value in self.entries.items():
            array[place] = value
        return array


@dataclass
class Query:
    name: str
    expr: Expression
    output: list[str]
    sizes: dict[str, int]
    fill: float

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.sizes[index] for index in self.output)


@dataclass
class ReferenceProgram:
    tensors: dict[str, Tensor]
    index_sizes: dict[str, int]
    queries: dict[str, Query] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ReferenceProgram:
        program = cls(
            {name: read_tensor(tensor) for name, tensor in value["tensors"].items()}, value.get("index_sizes", {})
        )
        for query in value["queries"]:
            expr = rename_apart(query["expr"])
            sizes = program.sizes(expr, query["output"])
            fill = program.fill(expr, sizes)
            program.queries[query["name"]] = Query(query["name"], expr, query["output"], sizes, fill)
        return program

    def shape(self, name: str) -> tuple[int, ...]:
        return (self.queries if name in self.queries else self.tensors)[name].shape

    def sizes(self, expr: Expression, more: list[str] | None = None) -> dict[str, int]:
        """Sizes of all indices of an expression whose names are apart, read off the leaves first."""
        found: dict[str, int] = {}
        for _, name, indices in accesses(expr):
            shape = self.shape(name)
            assert len(shape) == len(indices), f"{name} has rank {len(shape)}"
            for index, size in zip(indices, shape, strict=True):
                assert found.setdefault(index, size) == size, f"sizes of {index} differ"
        for index in [*bound_indices(expr), *(more or [])]:
            if index not in found:
                found[index] = self.index_sizes[index.partition("#")[0]]
        return found

    def fill(self, expr: Expression, sizes: dict[str, int]) -> float:
        """The value that an expression takes where every input is at its fill."""
        match expr:
            case ["in", name, _]:
                return (self.queries if name in self.queries else self.tensors)[name].fill
            case ["lit", value]:
                return number(value)
            case ["map", operator, below]:
                return float(apply_map(operator, [np.asarray(self.fill(child, sizes)) for child in below]))
            case ["agg", operator, indices, body]:
                count = math.prod(sizes[index] for index in indices)
                return float(repeat(operator, np.asarray(self.fill(body, sizes)), count))
        raise ValueError(f"unknown expression: {expr}")


def bound_indices(expr: Expression) -> list[str]:
    own = list(expr[2]) if expr[0] == "agg" else []
    return own + [index for child in children(expr) for index in bound_indices(child)]


def read_tensor(value: dict[str, Any]) -> Tensor:
    entries = None
    if "coo" in value:
        entries = {tuple(int(place) for place in entry[:-1]): number(entry[-1]) for entry in value["coo"]}
    stored = len(entries) if entries is not None else value["nnz"]
    degrees = [(list(x), list(y), float(bound)) for x, y, bound in value.get("degrees", [])]
    return Tensor(tuple(value["shape"]), number(value.get("fill", 0)), entries, stored, degrees)
