"""A captured program: inputs, vertices and outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch

from joinsum import _C
from joinsum.graphs.contraction_order import Path

__all__ = ["Factor", "Input", "Output", "Recorded", "Signature"]


@dataclass(frozen=True)
class Input:
    """An argument of a run, a constant or the seed.

    position   in the FX graph's placeholders; None of a constant and of the seed
    axes       extents of the atomic labels that each axis is the product of; an axis of one element has none
    """

    name: str
    position: int | None
    shape: tuple[int, ...]
    dtype: torch.dtype
    axes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Factor:
    """A factor of an output's axis: an axis of the node, or None where the elements repeat."""

    dim: int | None
    extent: int


@dataclass(frozen=True)
class Output:
    """A result of the program: the factors of each axis, row-major.

    tied       name of the input that it overwrites, as `copy_` does
    position   in the FX graph's results; None of a tensor that `copy_` writes
    """

    name: str
    axes: tuple[tuple[Factor, ...], ...]
    dtype: torch.dtype
    tied: str | None = None
    position: int | None = None

    @property
    def factors(self) -> list[Factor]:
        """The factors of all axes, in their order."""
        return [factor for axis in self.axes for factor in axis]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Extents of the user's tensor."""
        return tuple(math.prod(factor.extent for factor in axis) for axis in self.axes)

    def of(self, value: torch.Tensor) -> torch.Tensor:
        """The output where `value` is the node's.

        >>> swapped = Output("z", ((Factor(1, 3),), (Factor(0, 2), Factor(None, 2))), torch.float32)
        >>> swapped.of(torch.arange(6.).reshape(2, 3)).tolist()
        [[0.0, 0.0, 3.0, 3.0], [1.0, 1.0, 4.0, 4.0], [2.0, 2.0, 5.0, 5.0]]
        """
        factors = self.factors
        value = value.permute([factor.dim for factor in factors if factor.dim is not None])
        for position, factor in enumerate(factors):
            if factor.dim is None:
                value = value.unsqueeze(position)
        return value.expand([factor.extent for factor in factors]).reshape(self.shape)


@dataclass(frozen=True)
class Signature:
    """What a captured program takes and gives.

    inputs      in the order of the placeholders, then the seed and constants
    constants   values of the inputs that are constants, by name
    seed        name of the input that random operators read, a 64-bit integer without axes; None without such operators
    """

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    constants: Mapping[str, torch.Tensor]
    seed: str | None


@dataclass(frozen=True)
class Recorded(Signature):
    """A captured program.

    input_nodes    of the inputs, whose axes are the atomic labels
    vertices       each after its inputs
    output_nodes   which the outputs are views of
    modules        for each vertex the user's module that computes it, `layers.0.attention`; empty where it is not known
    """

    input_nodes: tuple[_C.EinsumNode, ...]
    vertices: tuple[_C.EinsumNode, ...]
    output_nodes: tuple[_C.EinsumNode, ...]
    modules: tuple[str, ...] = ()

    def graph(self, laid_out: Collection[str] = ()) -> _C.EinsumPlan:
        """The program as a graph for the planner. Raises PlanError.

        laid_out   outputs that get the user's axes, without repeated elements, as all tied outputs do; others have the
                   axes of their nodes
        """
        ties = {output.name: output.tied for output in self.outputs if output.tied is not None}
        laid_out = {*ties, *laid_out}
        pairs = zip(self.outputs, self.output_nodes, strict=True)
        return _C.EinsumPlan.make(
            [(each.name, _laid_out(each, node) if each.name in laid_out else node) for each, node in pairs], ties
        )

    def modules_in(
        self, plan: _C.IaPlan, orders: Callable[[_C.EinsumPlan], Mapping[str, Path]], laid_out: Collection[str] = ()
    ) -> dict[str, str]:
        """For nodes of `plan`, by name, the user's module that computes them: that of the vertex that a node computes,
        else, as where a rule has permuted axes, that of the one module whose parameters it reads.

        orders   of a graph's vertices of more than two operands, by name, as they were when it was planned
        """
        graph = self.graph(laid_out)
        computed = _C.computed_vertices(plan, graph, orders(graph), self.vertices)
        known = {name: self.modules[vertex] for name, vertex in computed.items() if self.modules[vertex]}
        modules = set(self.modules)
        fused = plan.fused_joins
        read: dict[str, set[str]] = {}  # modules of parameters that a node passes on
        for node in plan.nodes:
            own = {_owner(node.name, modules)} if node.kind == "input" else set[str]()
            own = own.union(*(read[name] for name in node.inputs)) - {""}
            if node.kind != "input" and len(own) == 1:
                known.setdefault(node.name, *own)
            passes = node.kind in ("input", "broadcast", "shuffle") or node.name in fused
            read[node.name] = own if passes else set()
        return known


def _owner(parameter: str, modules: Collection[str]) -> str:
    """The innermost of `modules` that a parameter, or state of one, belongs to; empty where there is none.

    >>> _owner("layers.0.up.weight", ["layers.0", "layers.0.up"]), _owner("x", ["layers.0"])
    ('layers.0.up', '')
    """
    while parameter and parameter not in modules:
        parameter = parameter.rpartition(".")[0]
    return parameter


def _laid_out(output: Output, node: _C.EinsumNode) -> _C.EinsumNode:
    """The node of an output with an axis for each factor of the output's axes, in their order."""
    factors = output.factors
    if [factor.dim for factor in factors] == list(range(len(node.extents))):
        return node
    labels = [f"a{dim}" for dim in range(len(node.extents))]
    result = [f"b{place}" if factor.dim is None else labels[factor.dim] for place, factor in enumerate(factors)]
    new = {f"b{place}": factor.extent for place, factor in enumerate(factors) if factor.dim is None}
    return _C.einsum_vertex([node], [labels], result, _C.Kernel("id"), _C.Kernel("add"), new)
