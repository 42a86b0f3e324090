"""In which order the operands of an einsum are joined: what opt_einsum proposes."""

from __future__ import annotations

import opt_einsum

from joinsum import _C

__all__ = ["paths_of"]

# Kernels that take their operands in any order and fold early, so that there is an order to choose.
_PRODUCTS = {("mul", "add"), ("add", "max"), ("add", "min"), ("add", "logaddexp"), ("min", "max"), ("max", "min")}


def paths_of(plan: _C.EinsumPlan) -> dict[str, list[tuple[int, int]]]:
    """For each vertex of more than two operands the pairs to join: the result of a step stands last."""
    shapes = {name: extents for name, (_, extents) in plan.inputs}
    paths = {}
    for name, inputs, operands, result, join, aggregate, extents in plan.vertices:
        known = dict(extents)
        for node, labels in zip(inputs, operands, strict=True):
            known.update(zip(labels, shapes[node], strict=True))
        shapes[name] = [known[label] for label in result]
        if len(operands) > 2 and (join, aggregate) in _PRODUCTS:
            paths[name] = _path(operands, result, known)
    return paths


def _path(operands: list[list[str]], result: list[str], extents: dict[str, int]) -> list[tuple[int, int]]:
    symbols: dict[str, str] = {}
    for labels in (*operands, result):
        for label in labels:
            symbols.setdefault(label, opt_einsum.get_symbol(len(symbols)))
    inputs = [frozenset(symbols[label] for label in labels) for labels in operands]
    output = frozenset(symbols[label] for label in result)
    sizes = {symbols[label]: extent for label, extent in extents.items()}
    find = opt_einsum.paths.optimal if len(operands) <= 4 else opt_einsum.paths.greedy
    return [_pair(step) for step in find(inputs, output, sizes) if len(step) == 2]


def _pair(step: tuple[int, ...]) -> tuple[int, int]:
    first, second = step
    return first, second
