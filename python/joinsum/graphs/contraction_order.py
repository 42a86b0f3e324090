"""In which order the operands of an einsum are joined: what opt_einsum proposes, priced with placements and moves."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, filterfalse

import opt_einsum

from joinsum import _C
from joinsum.cluster.cluster import Cluster
from joinsum.cluster.context import Context

__all__ = ["Order", "best_orders", "best_orders_on", "paths_of"]

Path = list[tuple[int, int]]

_COMPARED = {
    "all": "the best of all orders",
    "connected": "the best of the orders that join operands with a common label",
    "proposed": "the best of the orders that opt_einsum proposes",
    "greedy": "opt_einsum's greedy order",
}


@dataclass(frozen=True)
class Order:
    """In which order the operands of an einsum are joined.

    path       the pairs to join, by their positions among what is left; the result of a step stands last
    compared   the orders that it is the best of: `all`; `connected`, those that join only sets of operands with a
               common label, until no others are left; `proposed`, those that opt_einsum proposes; or `greedy`, the one
               by operations alone
    """

    path: Path
    compared: str

    def __str__(self) -> str:
        return _COMPARED[self.compared]


# Up to so many operands opt_einsum finds the order of fewest operations.
_FEW = 4
# Beyond so many there is nothing but proposals, so there are more of them.
_EXACT = 10
# Sets of so many operands are priced; above, the plainest proposal stands.
_PRICED = 63


def paths_of(plan: _C.EinsumPlan) -> dict[str, Path]:
    """For each vertex of more than two operands the pairs to join, as opt_einsum proposes them by operations alone: the
    result of a step stands last."""
    return {name: next(proposals) for name, proposals in _proposals(plan)}


def best_orders(plan: _C.EinsumPlan, current: Context, everywhere: bool, minimize: str = "seconds") -> dict[str, Order]:
    """The same, chosen together with the placement of each join on the sites of `current`: exactly up to ten operands,
    beyond that the best of several proposals, above 63 the greedy one. Equal on all ranks.

    everywhere   whether the results are wanted on every site"""
    return best_orders_on(plan, current.grid, current.cluster, everywhere, minimize)


def best_orders_on(
    plan: _C.EinsumPlan, grid: _C.Grid, cluster: Cluster, everywhere: bool, minimize: str
) -> dict[str, Order]:
    """As `best_orders`, on the sites of any grid."""
    described = cluster.core()
    orders = {}
    for name, proposals in _proposals(plan):
        plainest = next(proposals)
        if len(plainest) >= _PRICED:
            orders[name] = Order(plainest, "greedy")
            continue
        found = _C.contraction_order(plan, name, [plainest, *proposals], grid, minimize, described, everywhere)
        orders[name] = Order(found[0], found[3])
    return orders


def _proposals(plan: _C.EinsumPlan) -> Iterator[tuple[str, Iterator[Path]]]:
    """Vertices that there is an order for, with proposals, the plainest first."""
    shapes = plan.shapes
    for name, inputs, operands, result, join, aggregate, extents in plan.vertices:
        known = dict(extents)
        for node, labels in zip(inputs, operands, strict=True):
            known.update(zip(labels, shapes[node][1], strict=True))
        if len(operands) > 2 and _C.Kernel(join).reorders(aggregate):
            yield name, _paths(operands, result, known)


def _paths(operands: list[list[str]], result: list[str], extents: dict[str, int]) -> Iterator[Path]:
    # A label of one letter is that letter: finders settle ties by their text, and theirs are those of the user's call.
    symbols = {label: label for label in extents if len(label) == 1}
    free = filterfalse(symbols.__contains__, map(opt_einsum.get_symbol, count()))
    for label in extents:
        if len(label) > 1:
            symbols[label] = next(free)
    inputs = [frozenset(symbols[label] for label in labels) for labels in operands]
    output = frozenset(symbols[label] for label in result)
    sizes = {symbols[label]: extent for label, extent in extents.items()}
    for find in _finders(len(operands)):
        state = random.getstate()  # random finders seed Python's own generator
        try:
            steps = find(inputs, output, sizes)
        finally:
            random.setstate(state)
        yield [_pair(step) for step in steps if len(step) == 2]


def _finders(operands: int) -> Iterator[Callable[..., list[tuple[int, ...]]]]:
    yield opt_einsum.paths.optimal if operands <= _FEW else opt_einsum.paths.greedy
    if operands > _FEW:
        yield opt_einsum.RandomGreedy(max_repeats=32, minimize="flops")
        yield opt_einsum.RandomGreedy(max_repeats=32, minimize="size")
    if operands > _EXACT:
        yield opt_einsum.paths.auto
        yield opt_einsum.paths.auto_hq
        for share in (0.1, 1.0, 4.0):
            for temperature in (0.3, 1.0, 3.0):
                yield opt_einsum.RandomGreedy(
                    max_repeats=8, minimize="size", cost_fn=_growth(share), temperature=temperature
                )


def _growth(share: float) -> Callable[..., float]:
    """What a greedy finder looks at: the elements of a result less a share of its operands', shaken a little."""

    def cost(result: int, first: int, second: int, *_: object) -> float:
        return random.gauss(1.0, 0.01) * (result - share * (first + second))

    return cost


def _pair(step: tuple[int, ...]) -> tuple[int, int]:
    first, second = step
    return first, second
