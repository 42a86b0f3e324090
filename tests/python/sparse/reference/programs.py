"""Random programs from a seed, as data: sums of products, nested maps, tropical and boolean ones, chains of queries."""

from __future__ import annotations

import functools
import json
import random
from dataclasses import dataclass, field
from typing import Any

from .expressions import ReferenceProgram, accesses, bound_indices, free_indices, rename_apart
from .values import Evaluation

Data = dict[str, Any]
Indices = list[str]
KINDS = ("sum_of_products", "general", "tropical", "boolean", "several")
# The same, and one whose values are rounded.
VALUED_KINDS = (*KINDS, "log_plus")
NAMES = ["i", "j", "k", "l", "m", "n"]


@dataclass(frozen=True)
class Dialect:
    """What a kind of program is made of. `whole` maps keep integers integers; the others only stand above them."""

    aggregates: tuple[str, ...]
    whole_maps: tuple[str, ...]
    other_maps: tuple[str, ...]
    fills: tuple[float | str, ...]
    values: tuple[float | str, ...]


DIALECTS = {
    "sum_of_products": Dialect(("+",), ("*",), (), (0,), (1, 2, 3)),
    "general": Dialect(
        ("+", "+", "+", "+", "*", "min", "max", "and", "or"),
        ("*", "*", "*", "+", "+", "-", "and", "or", "min", "max", "eq", "gt", "pow", "neg", "sq", "relu"),
        ("exp", "sqrt", "sigmoid"),
        (0, 0, 0, 1, 2),
        (-2, -1, 1, 2, 3),
    ),
    "min_plus": Dialect(("min", "min", "max"), ("+", "+", "min", "max"), (), ("inf", "inf", 0), (0, 1, 2, 5)),
    "max_plus": Dialect(("max", "max", "min"), ("+", "+", "min", "max"), (), ("-inf", "-inf", 0), (-3, 0, 1, 2)),
    "log_plus": Dialect(("logaddexp", "logaddexp", "max"), ("+", "+", "max", "logaddexp"), (), ("-inf", 0), (-3, 0, 2)),
    "boolean": Dialect(("and", "or", "or"), ("and", "or"), (), (0, 0, 1), (0, 1)),
}


@dataclass
class Writer:
    """Writes one program; tensors come into being when an access needs one of their shape."""

    seed: random.Random
    dialect: Dialect
    sizes: dict[str, int]
    tensors: dict[str, Data] = field(default_factory=dict)
    results: dict[str, tuple[tuple[int, ...], bool]] = field(default_factory=dict)

    def access(self, indices: Indices, whole: bool = False) -> list[Any]:
        shape = tuple(self.sizes[index] for index in indices)
        found = [name for name, tensor in self.tensors.items() if tuple(tensor["shape"]) == shape]
        found += [name for name, (known, integer) in self.results.items() if known == shape and (integer or not whole)]
        if found and self.seed.random() < 0.4:
            return ["in", self.seed.choice(found), indices]
        name = f"T{len(self.tensors)}"
        self.tensors[name] = self.tensor(shape)
        return ["in", name, indices]

    def tensor(self, shape: tuple[int, ...]) -> Data:
        fill = self.seed.choice(self.dialect.fills)
        values = [value for value in self.dialect.values if value != fill]
        density = self.seed.choice([0, 0.1, 0.3, 0.3, 0.5, 0.5, 0.8, 1])
        places: list[list[int]] = [[]]
        for size in shape:
            places = [[*place, position] for place in places for position in range(size)]
        chosen = [[*place, self.seed.choice(values)] for place in places if self.seed.random() < density]
        self.seed.shuffle(chosen)
        return {"shape": list(shape), "fill": fill, "coo": chosen}

    def leaf(self, scope: Indices, whole: bool) -> list[Any]:
        draw = self.seed.random()
        if draw < 0.08:
            return ["lit", self.seed.choice([value for value in self.dialect.values if not isinstance(value, str)])]
        rank = min(len(scope), 0 if draw < 0.12 else self.seed.choice([1, 1, 2, 2, 2, 3]))
        indices = self.seed.sample(scope, rank)
        if rank and draw > 0.93:
            indices.append(indices[0])
        return self.access(indices, whole)

    def expression(self, scope: Indices, depth: int, whole: bool = False) -> list[Any]:
        if depth == 0:
            return self.leaf(scope, whole)
        unused = [name for name in NAMES if name not in scope]
        if self.seed.random() < 0.4 and (unused or scope):
            summed = self.seed.sample(unused, min(len(unused), self.seed.choice([1, 1, 2])))
            if not summed or (scope and self.seed.random() < 0.05):
                summed = [self.seed.choice(scope)]
            operator = self.seed.choice(self.dialect.aggregates)
            inner = list(dict.fromkeys([*scope, *summed]))
            return ["agg", operator, summed, self.expression(inner, depth - 1, whole or operator in ("and", "or"))]
        return self.mapped(scope, depth, whole)

    def mapped(self, scope: Indices, depth: int, whole: bool) -> list[Any]:
        operator = self.seed.choice(self.dialect.whole_maps + (() if whole else self.dialect.other_maps))
        if operator in ("neg", "sq", "relu", "exp", "sqrt", "sigmoid"):
            return ["map", operator, [self.expression(scope, depth - 1, whole)]]
        whole = whole or operator in ("eq", "gt", "and", "or")
        if operator == "pow":
            return ["map", "pow", [self.expression(scope, depth - 1, whole), ["lit", self.seed.choice([0, 1, 2, 3])]]]
        count = self.seed.choice([2, 2, 3]) if operator in ("*", "+", "min", "max", "and", "or") else 2
        return ["map", operator, [self.expression(scope, depth - 1, whole) for _ in range(count)]]

    def sum_of_products(self) -> list[Any]:
        """A connected product of two to five factors over up to six indices."""
        names = NAMES[: self.seed.randint(2, 6)]
        factors, covered = [], [names[0]]
        for index in names[1:]:
            factors.append([self.seed.choice(covered), index])
            covered.append(index)
        while len(factors) < 2 or (len(factors) < 5 and self.seed.random() < 0.4):
            factors.append(self.seed.sample(names, min(len(names), self.seed.choice([1, 2, 2, 3]))))
        for indices in factors:
            self.seed.shuffle(indices)
        summed = self.seed.sample(names, self.seed.randint(1, len(names)))
        return ["agg", "+", summed, ["map", "*", [self.access(indices) for indices in factors]]]


def whole_valued(expr: list[Any]) -> bool:
    text = json.dumps(expr)
    return not any(f'"{operator}"' in text for operator in ("exp", "sqrt", "sigmoid", "pow", "logaddexp"))


@functools.cache
def random_program(kind: str, number: int) -> Data:
    """The first draw from this seed whose values are defined, and small enough that sums of them are exact; callers
    share it, so they may not change it."""
    seed = random.Random(f"{kind} {number}")
    while True:
        program = draw_program(kind, seed)
        if kind == "sum_of_products" or usable(program, kind):
            return program


def draw_program(kind: str, seed: random.Random) -> Data:
    dialect = {"tropical": seed.choice(["min_plus", "max_plus"]), "several": "general"}.get(kind, kind)
    sizes = {name: seed.choice([1, 2, 3, 3, 4, 4, 5, 6]) for name in NAMES}
    if kind == "sum_of_products":
        sizes = {name: seed.randint(2, 5) for name in NAMES}
    writer = Writer(seed, DIALECTS[dialect], sizes)
    queries = []
    for position in range(seed.randint(2, 4) if kind == "several" else 1):
        if kind == "sum_of_products":
            expr = writer.sum_of_products()
        else:
            scope = seed.sample(NAMES, seed.choice([0, 1, 2, 2, 3]))
            expr = writer.expression(scope, seed.choice([2, 3, 3, 4]))
        output = free_indices(expr)
        seed.shuffle(output)
        name = f"q{position}"
        queries.append({"name": name, "expr": expr, "output": output})
        writer.results[name] = (tuple(sizes[index] for index in output), whole_valued(expr))
    needed = {index for query in queries for index in sizeless(query["expr"])}
    stated = {name: size for name, size in sizes.items() if name in needed or seed.random() < 0.2}
    return {"index_sizes": stated, "tensors": writer.tensors, "queries": queries}


def sizeless(expr: list[Any]) -> set[str]:
    """Bound names that no leaf in their scope has."""
    renamed = rename_apart(expr)
    leaves = {index for _, _, indices in accesses(renamed) for index in indices}
    return {index.partition("#")[0] for index in bound_indices(renamed) if index not in leaves}


def usable(program: Data, kind: str) -> bool:
    evaluation = Evaluation(ReferenceProgram.from_json(program))
    values = list(evaluation.run().values())
    fills = [query.fill for query in evaluation.program.queries.values()]
    defined = not evaluation.undefined and all(fill == fill for fill in fills)
    finite = kind in ("tropical", "log_plus") or not (
        evaluation.infinite or any(abs(fill) == float("inf") for fill in fills)
    )
    varied = any(array.ndim == 0 or array.min() < array.max() for array in values)
    return defined and finite and varied and evaluation.largest < 1e5
