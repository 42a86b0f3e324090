"""Costs of elimination orders of sums of products, and of all orders. Notes 1.10 to 1.12 and 3, "Exactly"."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .expressions import Expression, Query, ReferenceProgram
from .operators import DISTRIBUTES
from .statistics import Annotated, Estimator, annotate, annotate_aggregate, annotate_map, make_estimator


@dataclass(frozen=True)
class Settings:
    estimator: str = "chain"
    cost: tuple[float, float] = (1.0, 1.0)
    mode: str = "single"


@dataclass(frozen=True)
class Residual:
    """What is left of a query: its factors, the indices still to sum, and the cost so far."""

    query: Query
    aggregate: str
    product: str
    factors: tuple[Annotated, ...]
    remaining: tuple[str, ...]
    estimator: Estimator
    settings: Settings
    cost: float = 0

    def eliminate(self, index: str) -> Residual:
        """Sums `index` out of the product of just the factors that hold it."""
        held = [factor for factor in self.factors if index in factor.indices]
        others = tuple(factor for factor in self.factors if index not in factor.indices)
        summed = [index]
        if self.settings.mode == "absorb":
            elsewhere = {name for factor in others for name in factor.indices}
            inside = {name for factor in held for name in factor.indices} - elsewhere
            summed = [name for name in self.remaining if name in inside]
        sizes = self.query.sizes
        joined = held[0] if len(held) == 1 else annotate_map(self.product, held, self.estimator, sizes)
        result = annotate_aggregate(self.aggregate, summed, joined, self.estimator, sizes)
        weight_aggregate, weight_map = self.settings.cost
        step = weight_aggregate * self.estimator.entries(result, sizes)
        step += weight_map * self.estimator.entries(joined, sizes)
        remaining = tuple(name for name in self.remaining if name not in summed)
        return replace(self, factors=(*others, result), remaining=remaining, cost=self.cost + step)


def flat_factors(expr: Expression, product: str) -> list[Expression]:
    if expr[:2] != ["map", product]:
        return [expr]
    return [factor for child in expr[2] for factor in flat_factors(child, product)]


def start(program: ReferenceProgram, settings: Settings) -> Residual:
    """Reads the only query as an aggregate over a product, nested ones of the same operators merged."""
    (query,) = program.queries.values()
    expr, aggregate, summed = query.expr, query.expr[1], []
    while expr[:2] == ["agg", aggregate]:
        summed += expr[2]
        expr = expr[3]
    product = next(outer for outer, inner in DISTRIBUTES if inner == aggregate)
    if expr[0] == "map" and (expr[1], aggregate) in DISTRIBUTES:
        product = expr[1]
    estimator = make_estimator(settings.estimator, program)
    factors = tuple(annotate(factor, estimator, query.sizes) for factor in flat_factors(expr, product))
    return Residual(query, aggregate, product, factors, tuple(summed), estimator, settings)


def elimination_cost(program: ReferenceProgram, order: list[str], settings: Settings) -> float:
    """Cost of one order; indices that an earlier step absorbed are skipped."""
    state = start(program, settings)
    for index in order:
        if index in state.remaining:
            state = state.eliminate(index)
    assert not state.remaining, f"the order leaves out {state.remaining}"
    return state.cost


def least_cost(program: ReferenceProgram, settings: Settings) -> float:
    """The least over all orders, each costed from the start."""
    indices = start(program, settings).remaining
    return min(elimination_cost(program, list(order), settings) for order in itertools.permutations(indices))


def greedy_costs(program: ReferenceProgram, settings: Settings) -> set[float]:
    """Costs that greedy may reach: one, unless the uniform estimator's roundings tell equal steps apart."""
    return set(greedy_from(start(program, settings)))


def greedy_from(state: Residual) -> Iterator[float]:
    if not state.remaining:
        yield state.cost
        return
    choices = {index: state.eliminate(index) for index in sorted(state.remaining)}
    steps = {index: choice.cost - state.cost for index, choice in choices.items()}
    first = min(steps, key=lambda index: (steps[index], index))
    near = [i for i, step in steps.items() if math.isclose(step, steps[first], rel_tol=1e-9, abs_tol=1e-12)]
    yield from greedy_from(choices[near[0]])
    if state.settings.estimator == "uniform":
        for index in near[1:]:
            yield from greedy_from(choices[index])
