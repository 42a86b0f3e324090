"""The nearest neighbour of a query in a Riemannian metric: argmin over i of (x_i - q) A (x_i - q)ᵀ.

Points and metric are stored as suits each contender, each element on one rank; every rank has the query, and gets the
nearest point's index. `50000x1200` has many points and `2000x10000` many features: the paper's two kinds, scaled.
Source: TRA paper, section 6.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
import torch.distributed as dist
from frame.contenders import Contender, Workload, own_rows, rank, ranks
from torch import Tensor

from workloads.dask_array import by_dask

__all__ = ["WORKLOAD"]


class Shape(NamedTuple):
    points: int
    features: int


SIZES: Mapping[str, Shape] = {"50000x1200": Shape(50_000, 1_200), "2000x10000": Shape(2_000, 10_000)}
COMBINATIONS = 8


def operands(shape: Shape) -> dict[str, Tensor]:
    """Points, query, and a metric: the squares of all features and of some combinations of them."""
    generator = torch.Generator().manual_seed(1)
    combinations = torch.randn(shape.features, COMBINATIONS, generator=generator) / COMBINATIONS**0.5
    return {
        "points": torch.randn(shape.points, shape.features, generator=generator),
        "query": torch.randn(shape.features, generator=generator),
        "metric": torch.addmm(torch.eye(shape.features), combinations, combinations.T),
    }


def reference(size: str) -> Contender:
    return by_torch(SIZES[size])


def contenders(size: str) -> dict[str, Callable[[], Contender]]:
    shape = SIZES[size]
    threads = 2 * ranks() * torch.get_num_threads()
    found = {
        "joinsum": lambda: by_joinsum(shape),
        "Dask: rows": lambda: by_dask("nearest", operands(shape), torch.tensor(0), (threads, 1)),
        "Dask: blocks": lambda: by_dask("nearest", operands(shape), torch.tensor(0), (threads, threads)),
    }
    if ranks() == 1:
        return found | {"torch": lambda: by_torch(shape)}
    return found | {"hand-coded: rows": lambda: by_rows(shape), "hand-coded: columns": lambda: by_columns(shape)}


def by_joinsum(shape: Shape) -> Contender:
    """The einsums' plan of least predicted time among starts that divide points and metric once."""
    import joinsum

    joinsum.init()
    graph = joinsum.Graph()
    points = graph.input("points", (shape.points, shape.features))
    query = graph.input("query", (shape.features,))
    metric = graph.input("metric", (shape.features, shape.features))
    difference = graph.einsum("ij,j->ij", points, query, join="sub")
    projected = graph.einsum("ij,jk->ik", difference, metric)
    distances = graph.einsum("ik,ik->i", projected, difference)
    graph.output("nearest", graph.einsum("i->", distances, agg="argmin"))
    program = graph.plan().program
    (positions,) = program.inputs.keys() - {"points", "query", "metric"}  # what argmin counts by
    tensors = {**operands(shape), positions: torch.arange(shape.points)}
    axes = len(joinsum.grid().axes)
    starts: list[list[int]] = [[0] * axes, [1] * axes] + ([[0, 1]] if axes == 2 else [])
    everywhere = {"query": "replicated", positions: "replicated"}
    found = [joinsum.optimize(program, {"points": p, "metric": m, **everywhere}) for p in starts for m in starts]
    best = min(found, key=lambda each: each.cost.seconds).plan
    stored = {
        name: joinsum.relation(tensors[name], parts=type_.relation.frontier, place=type_.placement).stored()
        if type_.relation.frontier  # one site divides nothing
        else tensors[name]
        for name, type_ in best.inputs.items()
    }
    outcome: dict[str, joinsum.StoredRelation] = {}

    def step() -> None:
        outcome.update(joinsum.run(best, stored))

    return Contender(
        step,
        result=lambda: [outcome["nearest"].to_tensor()],
        figures=lambda: {"predicted_seconds": joinsum.cost(best).seconds},
    )


def by_torch(shape: Shape) -> Contender:
    """All in this process."""
    points, query, metric = operands(shape).values()
    result: list[Tensor] = []

    def step() -> None:
        difference = points - query
        result[:] = [(difference @ metric).mul_(difference).sum(1).argmin()]

    return Contender(step, lambda: result)


def _summed_products(parts: list[Tensor], factors: list[Tensor], moving: list[Tensor]) -> Tensor:
    """Σ parts[r] @ factors[r], where the `moving` ones of either come from their ranks while others are multiplied."""
    works = [dist.broadcast(x, r, async_op=True) for r, x in enumerate(moving)]
    total = parts[rank()] @ factors[rank()]
    for r, work in enumerate(works):
        assert work is not None
        work.wait()
        if r != rank():
            total.addmm_(parts[r], factors[r])
    return total


def by_rows(shape: Shape) -> Contender:
    """Points and metric by rows. The metric's shards are broadcast, each while the one before is multiplied; then the
    nearest points of all ranks are compared."""
    points, query, metric = operands(shape).values()
    own = own_rows(points).clone()
    first = sum(len(x) for x in points.tensor_split(ranks())[: rank()])
    shards = [x.clone() if r == rank() else torch.empty_like(x) for r, x in enumerate(metric.tensor_split(ranks()))]
    del points, metric
    result: list[Tensor] = []

    def step() -> None:
        difference = own - query
        projected = _summed_products(list(difference.tensor_split(ranks(), 1)), shards, shards)
        distance, index = projected.mul_(difference).sum(1).min(0)
        pairs = torch.empty(ranks(), 2, dtype=torch.float64)
        dist.all_gather(list(pairs), torch.stack([distance.double(), index.double() + first]))
        result[:] = [pairs[pairs[:, 0].argmin(), 1].long()]

    return Contender(step, lambda: result)


def by_columns(shape: Shape) -> Contender:
    """Points and metric by columns. The points' shards are broadcast, each while the one before is multiplied; then
    the distances are reduced."""
    points, query, metric = operands(shape).values()
    own = own_rows(points, 1).contiguous()
    queries = query.tensor_split(ranks())[rank()]
    factors = list(own_rows(metric, 1).contiguous().tensor_split(ranks()))
    shards = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in points.tensor_split(ranks(), 1)]
    del points, metric
    result: list[Tensor] = []

    def step() -> None:
        torch.sub(own, queries, out=shards[rank()])
        distances = _summed_products(shards, factors, shards).mul_(shards[rank()]).sum(1)
        dist.all_reduce(distances)
        result[:] = [distances.argmin()]

    return Contender(step, lambda: result)


WORKLOAD = Workload(list(SIZES), reference, contenders, checked_steps=1, tolerance=0.0)
