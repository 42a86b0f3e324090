"""joinsum on a random graph, compared with torch: values, gradients, and the bytes that its cost predicts."""

from __future__ import annotations

import random
from dataclasses import dataclass

import joinsum
import torch
import torch.distributed as dist
from random_graphs import DTYPES, RandomGraph

TOLERANCE = {"f64": 1e-10, "f32": 1e-5, "i64": 0.0}
# Smaller numbers, and factors of them, may be lost below the least number of the dtype.
LEAST = {"f64": 1e-290, "f32": 1e-30, "i64": 0.0}


@dataclass
class Seen:
    """How much was compared."""

    values: int = 0
    gradients: int = 0
    bytes: int = 0

    def __add__(self, other: Seen) -> Seen:
        return Seen(self.values + other.values, self.gradients + other.gradients, self.bytes + other.bytes)


def compare(graph: RandomGraph) -> Seen:
    """Raises AssertionError where joinsum, on the sites there are, differs from torch."""
    plan = joinsum.Graph.from_json(graph.to_json())
    assert joinsum.Graph.parse(plan.text) == plan
    assert joinsum.Graph.from_json(plan.to_json()) == plan
    choices = random.Random(graph.seed)
    seen = Seen(values=len(graph.outputs))
    got, seen.bytes = _run(plan, graph.contents, choices)
    for name in graph.outputs:
        value = graph.values[name]
        dtype = torch.bool if name in graph.truths else DTYPES[graph.dtype]
        assert got[name].dtype is dtype, f"{name}: {got[name].dtype}"
        _check(name, got[name], value.tensor.detach(), value.bound.detach(), graph.dtype)
    if graph.dtype == "i64":
        return seen
    return seen + _compare_gradients(graph, plan, choices)


def _compare_gradients(graph: RandomGraph, plan: joinsum.Graph, choices: random.Random) -> Seen:
    ends = [name for name in graph.outputs if graph.values[name].tensor.requires_grad]
    leaves = [name for name in plan.inputs if _reaches(graph, ends, name)]
    if not leaves:
        return Seen()
    generator = torch.Generator().manual_seed(graph.seed)
    arriving = {
        name: torch.randint(-2, 3, graph.values[name].tensor.shape, generator=generator).double() for name in ends
    }
    wanted = torch.autograd.grad(
        [graph.values[name].tensor for name in ends],
        [graph.leaves[name][0] for name in leaves],
        list(arriving.values()),
        allow_unused=True,
    )
    bounds = torch.autograd.grad(
        [graph.values[name].bound for name in ends],
        [graph.leaves[name][1] for name in leaves],
        [d.abs() for d in arriving.values()],
        allow_unused=True,
    )
    dtype = DTYPES[graph.dtype]
    contents = graph.contents | {f"d_{name}": d.to(dtype) for name, d in arriving.items()}
    got, moved = _run(plan.gradient(leaves), contents, choices)
    for name, slope, bound in zip(leaves, wanted, bounds, strict=True):
        assert slope is not None
        assert bound is not None
        if f"d_{name}" not in got:
            assert not slope.any(), f"d_{name}: joinsum has none"
            continue
        _check(f"d_{name}", got[f"d_{name}"], slope, bound, graph.dtype)
    return Seen(gradients=len(leaves), bytes=moved)


def _reaches(graph: RandomGraph, ends: list[str], leaf: str) -> bool:
    """Whether torch has a gradient for the leaf."""
    if not ends:
        return False
    total = sum(graph.values[name].tensor.sum() for name in ends)
    (slope,) = torch.autograd.grad(total, graph.leaves[leaf][0], allow_unused=True, retain_graph=True)
    return slope is not None


def _run(
    plan: joinsum.Graph, contents: dict[str, torch.Tensor], choices: random.Random
) -> tuple[dict[str, torch.Tensor], int]:
    """The outputs, with inputs and some outputs at random places, and the bytes that were predicted and moved."""
    program = plan.lower(joinsum.sites())
    place = {name: _place(type_, choices) for name, type_ in program.inputs.items() if choices.random() < 0.8}
    pins = {name: _place(type_, choices) for name, type_ in program.outputs.items() if choices.random() < 0.3}
    minimize = choices.choice(["seconds", "wire_bytes", "paper_floats"])
    found = joinsum.optimize(program, place, pins=pins, minimize=minimize, plans=choices.choice([1, 20]))
    results = joinsum.run(found.plan, {name: contents[name] for name in program.inputs})
    moved = _moved()
    assert moved == found.cost.wire_bytes, f"moved={moved}, predicted={found.cost.wire_bytes}\n{found.plan}"
    return {name: result.to_tensor() for name, result in results.items()}, found.cost.wire_bytes


def _moved() -> int:
    """Bytes that all sites sent in the last run."""
    sent = torch.tensor(joinsum.trace().bytes_sent)
    if not joinsum.context().single_process:
        dist.all_reduce(sent)
    return int(sent)


def _place(type_: joinsum.RelationType, choices: random.Random) -> list[int | str]:
    """A key dimension or copies for each axis of the sites' grid."""
    states: list[int | str] = [*range(len(type_.frontier))]
    return [choices.choice([*states, *states, "*"]) for _ in joinsum.grid().axes]


def _check(name: str, got: torch.Tensor, wanted: torch.Tensor, bound: torch.Tensor, dtype: str) -> None:
    assert got.shape == wanted.shape, f"{name}: shape={tuple(got.shape)}, wanted={tuple(wanted.shape)}"
    most = TOLERANCE[dtype] * bound + LEAST[dtype]
    agree = ((got.double() - wanted.double()).abs() <= most) | (got.double() == wanted.double())  # infinities
    assert bool(agree.all()), f"{name}:\n{got}\nwanted\n{wanted}\nup to\n{most}"
