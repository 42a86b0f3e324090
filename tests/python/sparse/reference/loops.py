"""Loop orders, formats and leaders of one kernel, counted from the entries. Notes 1.14 to 1.16 and 3, "Exactly"."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .expressions import Expression, ReferenceProgram, accesses, rename_apart
from .operators import Array, annihilates
from .statistics import Exact, annotate
from .values import Named


def without_aggregates(expr: Expression) -> Expression:
    match expr:
        case ["agg", _, _, body]:
            return without_aggregates(body)
        case ["map", operator, below]:
            return ["map", operator, [without_aggregates(child) for child in below]]
    return expr


@dataclass
class Kernel:
    """One query as a single loop nest over all its indices."""

    program: ReferenceProgram
    tree: Expression
    sizes: dict[str, int]
    counts: dict[frozenset[str], float] = field(default_factory=dict)

    @classmethod
    def of(cls, query: Mapping[str, Any], program: ReferenceProgram) -> Kernel:
        expr = rename_apart(query["expr"])
        return cls(program, without_aggregates(expr), program.sizes(expr, query["output"]))

    def restricted(self, node: Expression, prefix: Sequence[str]) -> Named | None:
        """The pattern of a node over the loops of the prefix; none where it has none of them."""
        if node[0] == "in":
            pattern = annotate(node, Exact(self.program), self.sizes).statistics
            kept = [index for index in pattern.indices if index in prefix]
            axes = tuple(axis for axis, index in enumerate(pattern.indices) if index not in prefix)
            return Named(kept, np.asarray(pattern.array.any(axis=axes))) if kept else None
        if node[0] == "lit":
            return None
        parts = [(annihilates(node[1], self.program.fill(c, self.sizes)), self.restricted(c, prefix)) for c in node[2]]
        joined = [part for leads, part in parts if leads and part]
        if joined:
            return self.combined(np.logical_and, joined)
        if any(leads for leads, _ in parts):
            return None
        united = [part for _, part in parts if part]
        return self.combined(np.logical_or, united) if united else None

    def combined(self, operation: Any, parts: list[Named]) -> Named:
        indices = list(dict.fromkeys(index for part in parts for index in part.indices))
        result: Array = parts[0].over(indices)
        for part in parts[1:]:
            result = operation(result, part.over(indices))
        return Named(indices, np.broadcast_to(result, [self.sizes[index] for index in indices]))

    def iterations(self, loops: Sequence[str]) -> list[float]:
        return [self.count(loops[:depth]) for depth in range(1, len(loops) + 1)]

    def count(self, prefix: Sequence[str]) -> float:
        key = frozenset(prefix)
        if key not in self.counts:
            part = self.restricted(self.tree, prefix) or Named([], np.asarray(True))
            free = [self.sizes[index] for index in prefix if index not in part.indices]
            self.counts[key] = float(part.array.sum()) * math.prod(free)
        return self.counts[key]

    def transposes(self, loops: Sequence[str]) -> float:
        """Stored entries of the tensors whose indices are not met in order; each way to permute one counts once."""
        return float(sum(self.program.tensors[name].stored for name, _ in set(self.permuted(loops))))

    def permuted(self, loops: Sequence[str]) -> list[tuple[str, tuple[int, ...]]]:
        """Tensor and order of its axes of every access to a tensor that the loops meet out of order."""
        found = []
        for _, name, indices in accesses(self.tree):
            places = tuple(loops.index(index) for index in indices)
            if name in self.program.tensors and list(places) != sorted(places):
                found.append((name, tuple(np.argsort(places, stable=True).tolist())))
        return found

    def least_total(self) -> float:
        return min(self.total(order) for order in itertools.permutations(self.loops()))

    def total(self, loops: Sequence[str]) -> float:
        return sum(self.iterations(loops)) + self.transposes(loops)

    def loops(self) -> list[str]:
        return list(dict.fromkeys(index for _, _, indices in accesses(self.tree) for index in indices))

    def leaders(self) -> list[bool]:
        """Says of each access, left to right, whether every map above it annihilates for its side."""
        found: list[bool] = []

        def visit(node: Expression, leads: bool) -> None:
            if node[0] == "in":
                found.append(leads)
            for child in node[2] if node[0] == "map" else []:
                visit(child, leads and annihilates(node[1], self.program.fill(child, self.sizes)))

        visit(self.tree, True)
        return found


def order_costs(query: Mapping[str, Any], program: ReferenceProgram, loops: list[str]) -> dict[str, Any]:
    kernel = Kernel.of(query, program)
    iterations, transposes = kernel.iterations(loops), kernel.transposes(loops)
    return {"iterations": iterations, "transposes": transposes, "total": sum(iterations) + transposes}


def choose_formats(
    shape: Sequence[int],
    nnz_of_prefix: Sequence[float],
    output_order: Sequence[str],
    loop_order: Sequence[str],
    cutoffs: Mapping[str, float],
) -> list[str]:
    formats = []
    for depth in range(len(output_order)):
        before = nnz_of_prefix[depth - 1] if depth else 1
        density = nnz_of_prefix[depth] / before / shape[depth] if before else 0
        sequential = list(output_order[: depth + 1]) == list(loop_order[: depth + 1])
        if density > cutoffs["dense"]:
            formats.append("dense")
        elif density > cutoffs["bytemap"]:
            formats.append("bytemap")
        else:
            formats.append("sorted_list" if sequential else "hash")
    return formats
