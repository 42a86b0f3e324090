"""A captured program: inputs, vertices and outputs. Letters are local to a vertex."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from joinsum import _C
from joinsum.base.dtypes import dtype_name
from joinsum.capture.recording.call import Call
from joinsum.graphs.contraction_order import Path

__all__ = ["CallVertex", "EinsumVertex", "Factor", "Input", "Output", "Recorded", "Vertex"]


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

    @property
    def extents(self) -> list[int]:
        """The shape that it has in the graph.

        >>> Input("w", 0, (768, 1), torch.float32, ((12, 64), ())).extents
        [12, 64]
        """
        return [extent for axis in self.axes for extent in axis]


@dataclass(frozen=True)
class EinsumVertex:
    """⊕ over the letters that the result lacks of ⊗ of the operands; kernels are texts that `_C.Kernel` parses.

    inputs    numbers of nodes: first all inputs of the program, then the vertices
    extents   of the letters that only the result has
    """

    inputs: tuple[int, ...]
    operands: tuple[str, ...]
    result: str
    join: str
    aggregate: str
    extents: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CallVertex:
    """One result of an operator of torch's dispatcher on blocks."""

    inputs: tuple[int, ...]
    call: Call


Vertex = EinsumVertex | CallVertex


@dataclass(frozen=True)
class Factor:
    """A factor of an output's axis: an axis of the node, or None where the elements repeat."""

    dim: int | None
    extent: int


@dataclass(frozen=True)
class Output:
    """A result of the program: node `node`, and the factors of each axis, row-major.

    tied       name of the input that it overwrites, as `copy_` does
    position   in the FX graph's results; None of a tensor that `copy_` writes
    """

    name: str
    node: int
    axes: tuple[tuple[Factor, ...], ...]
    dtype: torch.dtype
    tied: str | None = None
    position: int | None = None

    @property
    def factors(self) -> list[Factor]:
        """The factors of all axes, in their order."""
        return [factor for axis in self.axes for factor in axis]

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the user's tensor."""
        return tuple(math.prod(factor.extent for factor in axis) for axis in self.axes)

    def of(self, value: torch.Tensor) -> torch.Tensor:
        """The output where `value` is the node's.

        >>> swapped = Output("z", 0, ((Factor(1, 3),), (Factor(0, 2), Factor(None, 2))), torch.float32)
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
class Recorded:
    """A captured program.

    inputs      in the order of the placeholders, then the seed and constants
    vertices    each after its inputs
    constants   values of the inputs that are constants, by name
    seed        name of the input that random operators read, a 64-bit integer without axes; None without such operators
    modules     for each vertex the user's module that computes it, `layers.0.attention`; empty where it is not known
    """

    inputs: tuple[Input, ...]
    vertices: tuple[Vertex, ...]
    outputs: tuple[Output, ...]
    constants: Mapping[str, torch.Tensor]
    seed: str | None = None
    modules: tuple[str, ...] = ()

    @property
    def has_decompositions(self) -> bool:
        """Whether it has decomposed operators, which may also run undecomposed."""
        return any(isinstance(vertex, CallVertex) and vertex.call.undecomposed is not None for vertex in self.vertices)

    def graph(self, laid_out: Collection[str] = (), undecomposed: bool = False) -> _C.EinsumPlan:
        """The program as a graph for the planner. Raises PlanError.

        laid_out      outputs that get the user's axes, without repeated elements, as all tied outputs do; others have
                      the axes of their nodes
        undecomposed  whether operators that have decompositions are left undecomposed
        """
        return self._plan(self._nodes(undecomposed), laid_out)

    def modules_in(
        self, plan: _C.IaPlan, orders: Callable[[_C.EinsumPlan], Mapping[str, Path]], laid_out: Collection[str] = ()
    ) -> dict[str, str]:
        """For nodes of `plan`, by name, the user's module that computes them: that of the vertex that a node computes,
        else, as where a rule has permuted axes, that of the one module whose parameters it reads.

        orders   of a graph's vertices of more than two operands, by name, as they were when it was planned
        """
        nodes = self._nodes()
        graph = self._plan(nodes, laid_out)
        computed = _C.computed_vertices(plan, graph, orders(graph), nodes[len(self.inputs) :])
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

    def _nodes(self, undecomposed: bool = False) -> list[_C.EinsumNode]:
        nodes = [
            _C.einsum_input(each.name, dtype_name(f"capture: input {each.name}", each.dtype), each.extents)
            for each in self.inputs
        ]
        for vertex in self.vertices:
            nodes.append(_node([nodes[number] for number in vertex.inputs], vertex, undecomposed))
        return nodes

    def _plan(self, nodes: Sequence[_C.EinsumNode], laid_out: Collection[str]) -> _C.EinsumPlan:
        ties = {output.name: output.tied for output in self.outputs if output.tied is not None}
        outputs = [
            (each.name, _laid_out(nodes[each.node], each) if each.name in {*ties, *laid_out} else nodes[each.node])
            for each in self.outputs
        ]
        return _C.EinsumPlan.make(outputs, ties)

    def __str__(self) -> str:
        """The vertices, one a line."""
        lines = [f"{n}: input {each.name} {list(each.extents)}" for n, each in enumerate(self.inputs)]
        for number, vertex in enumerate(self.vertices, start=len(self.inputs)):
            inputs = ", ".join(map(str, vertex.inputs))
            lines.append(f"{number}: {_text(vertex)} ({inputs})")
        lines += [f"output {each.name} = {each.node}" for each in self.outputs]
        return "\n".join(lines)


def _owner(parameter: str, modules: Collection[str]) -> str:
    """The innermost of `modules` that a parameter, or state of one, belongs to; empty where there is none.

    >>> _owner("layers.0.up.weight", ["layers.0", "layers.0.up"]), _owner("x", ["layers.0"])
    ('layers.0.up', '')
    """
    while parameter and parameter not in modules:
        parameter = parameter.rpartition(".")[0]
    return parameter


def _laid_out(node: _C.EinsumNode, output: Output) -> _C.EinsumNode:
    """The node with an axis for each factor of the output's axes, in their order."""
    factors = output.factors
    if [factor.dim for factor in factors] == list(range(len(node.extents))):
        return node
    labels = [f"a{dim}" for dim in range(len(node.extents))]
    result = [f"b{place}" if factor.dim is None else labels[factor.dim] for place, factor in enumerate(factors)]
    new = {f"b{place}": factor.extent for place, factor in enumerate(factors) if factor.dim is None}
    return _C.einsum_vertex([node], [labels], result, _C.Kernel("id"), _C.Kernel("add"), new)


def _node(inputs: Sequence[_C.EinsumNode], vertex: Vertex, undecomposed: bool) -> _C.EinsumNode:
    if isinstance(vertex, EinsumVertex):
        operands = [list(letters) for letters in vertex.operands]
        join, aggregate = _C.Kernel(vertex.join), _C.Kernel(vertex.aggregate)
        return _C.einsum_vertex(inputs, operands, list(vertex.result), join, aggregate, vertex.extents)
    if undecomposed and vertex.call.undecomposed is not None:
        places, call = vertex.call.undecomposed
        return _C.einsum_call([inputs[place] for place in places], _C.Call.parse(call.text))
    return _C.einsum_call(inputs, _C.Call.parse(vertex.call.text))


def _text(vertex: Vertex) -> str:
    if isinstance(vertex, CallVertex):
        return vertex.call.text
    return f"einsum {','.join(vertex.operands)}->{vertex.result}; {vertex.join}; {vertex.aggregate}"
