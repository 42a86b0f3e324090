"""What a run was, beside what it was predicted to be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from joinsum.algebra.plan import IaPlan, PlanNode
from joinsum.planner.cost import PlanCost

__all__ = ["Comparison", "Figures", "Measured", "compared"]

# A figure is wrong when one of the two is more than so many times the other.
_FACTOR = 2.0
# Seconds below which a clock says nothing about a prediction.
_LEAST_SECONDS = 2e-5


class Figures(NamedTuple):
    """What is predicted and measured alike.

    wire_bytes   payload between different sites, of all sites
    seconds      of the site that takes longest; on loopback of all sites, which run one after another
    peak_bytes   most bytes that one site stores while the node runs: inputs, live blocks and messages
    """

    wire_bytes: int
    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Measured:
    """A run, node by node.

    nodes     figures by node, in the order they ran; a join that is computed with the sum above it is part of that
    seconds   of the whole run, with the agreement that opens it; of a training step the sum of its nodes'
    sites     the sites in words
    pooled_bytes  of freed blocks that the process which has most had not returned to the system at the end
    """

    nodes: Mapping[str, Figures]
    seconds: float
    sites: str
    loopback: bool
    pooled_bytes: int

    @property
    def total(self) -> Figures:
        """Of the whole run: all bytes, its seconds, the highest peak."""
        figures = self.nodes.values()
        peak = max((each.peak_bytes for each in figures), default=0)
        return Figures(sum(each.wire_bytes for each in figures), self.seconds, peak)


@dataclass(frozen=True)
class Comparison:
    """Predicted and measured figures of a node (of the whole run where `node` is empty).

    `errors` are the figures that are wrong by more than a factor of two.
    """

    node: str
    operation: str
    predicted: Figures
    measured: Figures

    @property
    def errors(self) -> Mapping[str, float]:
        """For each wrong figure the larger over the smaller one, infinite where that is 0.

        >>> Comparison("t0", "broadcast", Figures(8, 1.0, 100), Figures(8, 3.0, 50)).errors
        {'seconds': 3.0}
        """
        found = {}
        for name, predicted, measured in zip(Figures._fields, self.predicted, self.measured, strict=True):
            low, high = sorted((predicted, measured))
            unclear = name == "seconds" and high < _LEAST_SECONDS
            if high > _FACTOR * low and not unclear:
                found[name] = high / low if low > 0 else math.inf
        return found


def _computed_in(nodes: Mapping[str, PlanNode], name: str) -> set[str]:
    """Nodes that are computed with that one."""
    found: set[str] = set()
    open_ = [name]
    while open_:
        fused = {each for each in nodes[open_.pop()].inputs if nodes[each].fused} - found
        found |= fused
        open_.extend(fused)
    return found


def compared(plan: IaPlan, cost: PlanCost, measured: Measured) -> tuple[Comparison, ...]:
    """Every operator that ran beside its prediction, the whole run last. An aggregation is predicted with what is
    computed in it, each value once."""
    predicted = {node.node: node for node in cost.nodes}
    nodes = {node.name: node for node in plan.nodes}
    rows = []
    for name, figures in measured.nodes.items():
        if not nodes[name].inputs:
            continue
        own = predicted[name]
        seconds = own.seconds + sum(predicted[each].seconds for each in _computed_in(nodes, name))
        rows.append(Comparison(name, own.operation, Figures(own.wire_bytes, seconds, own.peak_bytes), figures))
    total = Figures(cost.wire_bytes, cost.seconds, cost.peak_bytes)
    rows.append(Comparison("", "whole run", total, measured.total))
    return tuple(rows)
