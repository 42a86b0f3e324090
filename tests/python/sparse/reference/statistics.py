"""The three estimators behind one interface: input, join, union, aggregate, entries. Notes 1.18 to 1.20."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from .expressions import Expression, ReferenceProgram, number, rename_apart
from .operators import annihilates, apply_map, repeat
from .values import Named, accessed

Sizes = dict[str, int]
Subset = frozenset[str]


def space(sizes: Sizes, indices: Any) -> float:
    return math.prod((sizes[index] for index in indices), start=1.0)


@dataclass
class Annotated:
    """What is known of one node: its visible indices, its fill, and the estimator's own statistics."""

    indices: list[str]
    fill: float
    statistics: Any


class Estimator(Protocol):
    program: ReferenceProgram

    def input(self, name: str, indices: list[str], sizes: Sizes) -> Any: ...
    def join(self, parts: list[Annotated], indices: list[str], sizes: Sizes) -> Any: ...
    def union(self, parts: list[Annotated], indices: list[str], sizes: Sizes) -> Any: ...
    def aggregate(self, part: Annotated, summed: list[str], sizes: Sizes) -> Any: ...
    def entries(self, node: Annotated, sizes: Sizes) -> float: ...


def annotate(expr: Expression, estimator: Estimator, sizes: Sizes) -> Annotated:
    """Statistics of an expression, bottom up."""
    match expr:
        case ["in", name, indices]:
            fill = estimator.program.fill(expr, sizes)
            return Annotated(list(dict.fromkeys(indices)), fill, estimator.input(name, indices, sizes))
        case ["lit", value]:
            nothing = Annotated([], number(value), None)
            return Annotated([], number(value), estimator.union([nothing], [], sizes))
        case ["map", operator, below]:
            return annotate_map(operator, [annotate(child, estimator, sizes) for child in below], estimator, sizes)
        case ["agg", operator, summed, body]:
            return annotate_aggregate(operator, summed, annotate(body, estimator, sizes), estimator, sizes)
    raise ValueError(f"unknown expression: {expr}")


def annotate_map(operator: str, parts: list[Annotated], estimator: Estimator, sizes: Sizes) -> Annotated:
    """Joins the children whose fill annihilates and leaves out the others; without one, unites them all."""
    indices = list(dict.fromkeys(index for part in parts for index in part.indices))
    fill = float(apply_map(operator, [np.asarray(part.fill) for part in parts]))
    conjunctive = [part for part in parts if annihilates(operator, part.fill)]
    if conjunctive:
        return Annotated(indices, fill, estimator.join(conjunctive, indices, sizes))
    return Annotated(indices, fill, estimator.union(parts, indices, sizes))


def annotate_aggregate(
    operator: str, summed: list[str], part: Annotated, estimator: Estimator, sizes: Sizes
) -> Annotated:
    """Projects; indices that the body lacks repeat it and change only the fill."""
    fill = float(repeat(operator, np.asarray(part.fill), math.prod(sizes[index] for index in summed)))
    present = [index for index in summed if index in part.indices]
    kept = [index for index in part.indices if index not in summed]
    return Annotated(kept, fill, estimator.aggregate(part, present, sizes))


@dataclass
class Uniform:
    """Statistics are the density: the chance that a place holds an entry."""

    program: ReferenceProgram

    def input(self, name: str, indices: list[str], sizes: Sizes) -> float:
        if name in self.program.queries:
            query = self.program.queries[name]
            return float(annotate(query.expr, self, query.sizes).statistics)
        tensor = self.program.tensors[name]
        return tensor.stored / math.prod(tensor.shape)

    def join(self, parts: list[Annotated], indices: list[str], sizes: Sizes) -> float:
        return math.prod(part.statistics for part in parts)

    def union(self, parts: list[Annotated], indices: list[str], sizes: Sizes) -> float:
        return absent_nowhere([(part.statistics or 0.0, 1) for part in parts])

    def aggregate(self, part: Annotated, summed: list[str], sizes: Sizes) -> float:
        return absent_nowhere([(part.statistics, space(sizes, summed))])

    def entries(self, node: Annotated, sizes: Sizes) -> float:
        return float(node.statistics * space(sizes, node.indices))


def absent_nowhere(densities: list[tuple[float, float]]) -> float:
    """1 − ∏(1 − p)^m without cancellation."""
    if any(density >= 1 for density, _ in densities):
        return 1.0
    return -math.expm1(sum(count * math.log1p(-density) for density, count in densities))


@dataclass
class Exact:
    """Statistics are the pattern itself: a boolean array over the visible indices."""

    program: ReferenceProgram

    def input(self, name: str, indices: list[str], sizes: Sizes) -> Named:
        if name in self.program.queries:
            query = self.program.queries[name]
            pattern = annotate(query.expr, self, query.sizes).statistics
            return accessed(np.broadcast_to(pattern.over(query.output), query.shape).copy(), indices)
        tensor = self.program.tensors[name]
        assert tensor.entries is not None, f"{name} has statistics only"
        present = np.zeros(tensor.shape, dtype=bool)
        for place in tensor.entries:
            present[place] = True
        return accessed(present, indices)

    def join(self, parts: list[Annotated], indices: list[str], sizes: Sizes) -> Named:
        full = np.ones([sizes[index] for index in indices], dtype=bool)
        for part in parts:
            full = full & part.statistics.over(indices)
        return Named(indices, full)

    def union(self, parts: list[Annotated], indices: list[str], sizes: Sizes) -> Named:
        full = np.zeros([sizes[index] for index in indices], dtype=bool)
        for part in parts:
            if part.statistics is not None:
                full = full | part.statistics.over(indices)
        return Named(indices, full)

    def aggregate(self, part: Annotated, summed: list[str], sizes: Sizes) -> Named:
        kept = [index for index in part.indices if index not in summed]
        axes = tuple(part.statistics.indices.index(index) for index in summed)
        remaining = [index for index in part.statistics.indices if index not in summed]
        return Named(kept, Named(remaining, part.statistics.array.any(axis=axes)).over(kept))

    def entries(self, node: Annotated, sizes: Sizes) -> float:
        return float(node.statistics.array.sum())


@dataclass
class Constraints:
    """Degree constraints D(X|Y) ≤ bound, over visible and summed indices."""

    bounds: dict[tuple[Subset, Subset], float] = field(default_factory=dict)
    sizes: Sizes = field(default_factory=dict)

    def add(self, x: Subset, y: Subset, bound: float) -> None:
        if x - y or not y:
            key = (x - y, y)
            self.bounds[key] = min(bound, self.bounds.get(key, math.inf))

    def relabelled(self, names: dict[str, str]) -> Constraints:
        found = Constraints(sizes={names[index]: size for index, size in self.sizes.items()})
        for (x, y), bound in self.bounds.items():
            found.add(frozenset(names[i] for i in x), frozenset(names[i] for i in y), bound)
        return found


@dataclass
class Chain:
    """Statistics are degree constraints. `tight` adds what costs nothing and the notes leave open: every index has at
    most its size many values, and children without entries do not weaken a union. Any implementation that follows
    the notes gives a number from the tight to the loose one; on joins and projections the two are equal."""

    program: ReferenceProgram
    tight: bool = True
    uses: itertools.count[int] = field(default_factory=itertools.count)
    cache: dict[Any, float] = field(default_factory=dict)

    def input(self, name: str, indices: list[str], sizes: Sizes) -> Constraints:
        if name in self.program.queries:
            query = self.program.queries[name]
            found = annotate(query.expr, self, query.sizes).statistics
            use = next(self.uses)
            names = {index: f"{name}@{use}.{index}" for index in found.sizes}
            return found.relabelled(names | dict(zip(query.output, indices, strict=True)))
        tensor = self.program.tensors[name]
        if tensor.entries is None:
            return stated_constraints(tensor.shape, tensor.stored, tensor.degrees, indices)
        return counted_constraints(set(tensor.entries), tensor.shape, indices)

    def join(self, parts: list[Annotated], indices: list[str], sizes: Sizes) -> Constraints:
        found = Constraints(sizes={index: sizes[index] for index in indices})
        for part in parts:
            found.sizes |= part.statistics.sizes
            for (x, y), bound in part.statistics.bounds.items():
                found.add(x, y, bound)
        return found

    def union(self, parts: list[Annotated], indices: list[str], sizes: Sizes) -> Constraints:
        known = [part for part in parts if part.statistics is not None]
        found = Constraints(sizes={index: sizes[index] for index in indices})
        if not known:
            return Constraints({(frozenset(), frozenset()): 0.0})
        if self.tight:
            known = [part for part in known if self.entries(part, sizes) > 0] or known[:1]
        extended = []
        for part in known:
            found.sizes |= part.statistics.sizes
            missing = frozenset(indices) - frozenset(part.indices)
            part_bounds = Constraints()
            for (x, y), bound in part.statistics.bounds.items():
                part_bounds.add(x | missing, y, bound * space(sizes, missing))
            extended.append(part_bounds.bounds)
        for key in set.intersection(*(set(bounds) for bounds in extended)):
            found.add(*key, sum(bounds[key] for bounds in extended))
        return found

    def aggregate(self, part: Annotated, summed: list[str], sizes: Sizes) -> Constraints:
        return part.statistics  # type: ignore[no-any-return]

    def entries(self, node: Annotated, sizes: Sizes) -> float:
        constraints: Constraints = node.statistics
        key = (frozenset(constraints.bounds.items()), frozenset(node.indices))
        if key not in self.cache:
            edges = list(constraints.bounds.items())
            if self.tight:
                edges += [((frozenset([i]), frozenset()), n) for i, n in constraints.sizes.items()]
            dense = space({**sizes, **constraints.sizes}, node.indices)
            self.cache[key] = min(dense, cheapest_path(edges, frozenset(node.indices)))
        return self.cache[key]


def counted_constraints(places: set[tuple[int, ...]], shape: tuple[int, ...], indices: list[str]) -> Constraints:
    """From entries: the count of all, per index its distinct values and the most entries that share one."""
    distinct = list(dict.fromkeys(indices))
    axes = [indices.index(index) for index in distinct]
    kept = [
        place for place in places if all(place[indices.index(i)] == at for i, at in zip(indices, place, strict=True))
    ]
    found = Constraints(sizes={index: shape[axis] for index, axis in zip(distinct, axes, strict=True)})
    whole = frozenset(distinct)
    found.add(whole, frozenset(), len(kept))
    for index, axis in zip(distinct, axes, strict=True):
        column = [place[axis] for place in kept]
        found.add(frozenset([index]), frozenset(), len(set(column)))
        found.add(whole, frozenset([index]), max(map(column.count, column), default=0))
    return found


def stated_constraints(
    shape: tuple[int, ...], stored: int, degrees: list[tuple[list[int], list[int], float]], indices: list[str]
) -> Constraints:
    """From statistics: the same keys with the bounds that follow from the count and the sizes, and the given ones."""
    whole = frozenset(indices)
    found = Constraints(sizes=dict(zip(indices, shape, strict=True)))
    found.add(whole, frozenset(), min(stored, space(found.sizes, whole)))
    for index in whole:
        found.add(frozenset([index]), frozenset(), min(stored, found.sizes[index]))
        found.add(whole, frozenset([index]), min(stored, space(found.sizes, whole - {index})))
    for x, y, bound in degrees:
        found.add(frozenset(indices[a] for a in x), frozenset(indices[a] for a in y), bound)
    return found


def cheapest_path(edges: list[tuple[tuple[Subset, Subset], float]], target: Subset) -> float:
    """Least product from the empty set to a superset of the target along edges Y ⊆ node → node ∪ X."""
    best = {frozenset[str](): 1.0}
    waiting = [frozenset[str]()]
    while waiting:
        node = waiting.pop()
        for (x, y), bound in edges:
            reached = node | x
            if y <= node and best[node] * bound < best.get(reached, math.inf):
                best[reached] = best[node] * bound
                waiting.append(reached)
    return min((cost for node, cost in best.items() if target <= node), default=math.inf)


def make_estimator(name: str, program: ReferenceProgram, tight: bool = True) -> Estimator:
    if name == "chain":
        return Chain(program, tight)
    return {"uniform": Uniform, "exact": Exact}[name](program)


def estimate(expr: Expression, program: ReferenceProgram, name: str, tight: bool = True) -> float:
    """Entries of an expression as written."""
    renamed = rename_apart(expr)
    estimator = make_estimator(name, program, tight)
    sizes = program.sizes(renamed)
    return estimator.entries(annotate(renamed, estimator, sizes), sizes)
