"""Dense evaluation: every query as an array over the full range of all its indices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .expressions import Expression, ReferenceProgram, number
from .operators import Array, apply_aggregate, apply_map


@dataclass
class Named:
    """An array whose axes bear index names."""

    indices: list[str]
    array: Array

    def over(self, indices: list[str]) -> Array:
        """Orders the axes as `indices`, with axes of length one for those it lacks."""
        present = [index for index in indices if index in self.indices]
        array = np.transpose(self.array, [self.indices.index(index) for index in present])
        return array.reshape([array.shape[present.index(index)] if index in present else 1 for index in indices])


def accessed(array: Array, indices: list[str]) -> Named:
    """Names the axes of an array; an index that occurs twice selects the diagonal."""
    distinct = list(dict.fromkeys(indices))
    numbers = [distinct.index(index) for index in indices]
    return Named(distinct, np.einsum(array, numbers, list(range(len(distinct)))) if numbers else array)


def union_of_indices(parts: list[Named]) -> list[str]:
    return list(dict.fromkeys(index for part in parts for index in part.indices))


@dataclass
class Evaluation:
    """Evaluates the queries in order and notes the range of values on the way."""

    program: ReferenceProgram
    results: dict[str, Array] = field(default_factory=dict)
    largest: float = 0
    undefined: bool = False
    infinite: bool = False

    def run(self) -> dict[str, Array]:
        for query in self.program.queries.values():
            value = self.evaluate(query.expr, query.sizes)
            self.results[query.name] = np.broadcast_to(value.over(query.output), query.shape).copy()
        return self.results

    def evaluate(self, expr: Expression, sizes: dict[str, int]) -> Named:
        value = self.computed(expr, sizes)
        finite = value.array[np.isfinite(value.array)]
        self.largest = max(self.largest, np.abs(finite).max(initial=0))
        self.undefined |= bool(np.isnan(value.array).any())
        self.infinite |= bool(np.isinf(value.array).any())
        return value

    def computed(self, expr: Expression, sizes: dict[str, int]) -> Named:
        match expr:
            case ["in", name, indices]:
                found = self.results[name] if name in self.program.queries else self.program.tensors[name].dense()
                return accessed(found, indices)
            case ["lit", value]:
                return Named([], np.asarray(number(value)))
            case ["map", operator, below]:
                parts = [self.evaluate(child, sizes) for child in below]
                indices = union_of_indices(parts)
                return Named(indices, np.asarray(apply_map(operator, [part.over(indices) for part in parts])))
            case ["agg", operator, summed, body]:
                part = self.evaluate(body, sizes)
                order = list(dict.fromkeys([*part.indices, *summed]))
                full = np.broadcast_to(part.over(order), [sizes[index] for index in order])
                axes = tuple(order.index(index) for index in summed)
                kept = [index for index in order if index not in summed]
                return Named(kept, apply_aggregate(operator, full, axes))
        raise ValueError(f"unknown expression: {expr}")


def evaluate(value: dict[str, Any]) -> dict[str, tuple[Array, float]]:
    """Dense array and fill of every query of a program."""
    program = ReferenceProgram.from_json(value)
    results = Evaluation(program).run()
    return {name: (array, program.queries[name].fill) for name, array in results.items()}
