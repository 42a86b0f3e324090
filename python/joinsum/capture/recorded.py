"""What a captured program is: inputs, vertices and outputs, with letters that are scoped to each vertex."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from joinsum import _C
from joinsum.capture.call import Call
from joinsum.dtypes import dtype_name

__all__ = ["CallVertex", "EinsumVertex", "Input", "Output", "Part", "Recorded", "Vertex"]


@dataclass(frozen=True)
class Input:
    """A tensor that a run is given.

    position   of the FX graph's placeholders; None of a constant and of the seed
    axes       extents of the atomic labels that each axis is the product of; an axis of one element has none
    """

    name: str
    position: int | None
    shape: tuple[int, ...]
    dtype: torch.dtype
    axes: tuple[tuple[int, ...], ...]

    @property
    def extents(self) -> list[int]:
        """The shape in which it enters the graph.

        >>> Input("w", 0, (768, 1), torch.float32, ((12, 64), ())).extents
        [12, 64]
        """
        return [extent for axis in self.axes for extent in axis]


@dataclass(frozen=True)
class EinsumVertex:
    """⊕ over the letters that the result lacks of ⊗ of the operands; kernels are texts that `_C.Kernel` reads.

    inputs    numbers of nodes: the inputs are counted first, then the vertices
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
class Part:
    """A factor of an output's axis: an axis of the node, or None where the elements repeat."""

    dim: int | None
    extent: int


@dataclass(frozen=True)
class Output:
    """A result: the axes of node `node` from which its own are made, row-major.

    tied   name of the input that it becomes, as `copy_` says
    """

    name: str
    node: int
    axes: tuple[tuple[Part, ...], ...]
    dtype: torch.dtype
    tied: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents as the user sees them."""
        return tuple(math.prod(part.extent for part in axis) for axis in self.axes)

    def of(self, value: torch.Tensor) -> torch.Tensor:
        """The output where `value` is the node's.

        >>> swapped = Output("z", 0, ((Part(1, 3),), (Part(0, 2), Part(None, 2))), torch.float32)
        >>> swapped.of(torch.arange(6.).reshape(2, 3)).tolist()
        [[0.0, 0.0, 3.0, 3.0], [1.0, 1.0, 4.0, 4.0], [2.0, 2.0, 5.0, 5.0]]
        """
        parts = [part for axis in self.axes for part in axis]
        dims = [part.dim for part in parts if part.dim is not None]
        value = value.permute(dims)
        for position, part in enumerate(parts):
            if part.dim is None:
                value = value.unsqueeze(position)
        return value.expand([part.extent for part in parts]).reshape(self.shape)


@dataclass(frozen=True)
class Recorded:
    """A captured program.

    inputs      in the order of the placeholders, then constants and the seed
    constants   tensors of the inputs that the program carries itself
    seed        name of the 64-bit integer input without axes that random operators read, where there is one
    vertices    in an order in which each follows its inputs
    """

    inputs: tuple[Input, ...]
    vertices: tuple[Vertex, ...]
    outputs: tuple[Output, ...]
    constants: Mapping[str, torch.Tensor]
    seed: str | None = None

    @property
    def cuttable(self) -> bool:
        """Whether some operator is in parts, which may run at once."""
        return any(isinstance(vertex, CallVertex) and vertex.call.uncut is not None for vertex in self.vertices)

    def graph(self, laid_out: Collection[str] = (), at_once: bool = False) -> _C.EinsumPlan:
        """The program as the planner takes it. Raises PlanError.

        at_once    operators that are in parts are whole
        laid_out   outputs whose axes come in the user's order, and no elements repeat; so do those that are tied. The
                   axes of others are those of their nodes
        """
        nodes = [
            _C.einsum_input(each.name, dtype_name(f"capture: input {each.name}", each.dtype), each.extents)
            for each in self.inputs
        ]
        for vertex in self.vertices:
            given = [nodes[number] for number in vertex.inputs]
            nodes.append(_node(given, vertex, at_once))
        ties = {output.name: output.tied for output in self.outputs if output.tied is not None}
        made = [
            (
                output.name,
                _laid_out(nodes[output.node], output) if output.name in {*ties, *laid_out} else nodes[output.node],
            )
            for output in self.outputs
        ]
        return _C.EinsumPlan.make(made, ties)

    def evaluate(self, tensors: Sequence[torch.Tensor], seed: int = 0, check: bool = False) -> list[torch.Tensor]:
        """The outputs by torch, vertex by vertex; the truth that tests compare with, which runs nothing else.

        tensors   the values of the placeholders that are tensors, in their order
        check     whether each operator is also run in parts along each letter that it leaves free
        """
        from joinsum.capture.evaluate import evaluate

        return evaluate(self, tensors, seed, check)

    def __str__(self) -> str:
        """The vertices, one a line."""
        lines = [f"{n}: input {each.name} {list(each.extents)}" for n, each in enumerate(self.inputs)]
        for number, vertex in enumerate(self.vertices, start=len(self.inputs)):
            inputs = ", ".join(map(str, vertex.inputs))
            lines.append(f"{number}: {_text(vertex)} ({inputs})")
        lines += [f"output {each.name} = {each.node}" for each in self.outputs]
        return "\n".join(lines)


def _laid_out(node: _C.EinsumNode, output: Output) -> _C.EinsumNode:
    """The node with an axis for each part of the output's axes, in their order."""
    parts = [part for axis in output.axes for part in axis]
    if [part.dim for part in parts] == list(range(len(node.extents))):
        return node
    labels = [f"a{dim}" for dim in range(len(node.extents))]
    result = [f"b{place}" if part.dim is None else labels[part.dim] for place, part in enumerate(parts)]
    new = {f"b{place}": part.extent for place, part in enumerate(parts) if part.dim is None}
    return _C.einsum_vertex([node], [labels], result, _C.Kernel("id"), _C.Kernel("add"), new)


def _node(inputs: Sequence[_C.EinsumNode], vertex: Vertex, at_once: bool) -> _C.EinsumNode:
    if isinstance(vertex, EinsumVertex):
        operands = [list(letters) for letters in vertex.operands]
        join, aggregate = _C.Kernel(vertex.join), _C.Kernel(vertex.aggregate)
        return _C.einsum_vertex(inputs, operands, list(vertex.result), join, aggregate, vertex.extents)
    if at_once and vertex.call.uncut is not None:
        places, call = vertex.call.uncut
        return _C.einsum_call([inputs[place] for place in places], call.text)
    return _C.einsum_call(inputs, vertex.call.text)


def _text(vertex: Vertex) -> str:
    if isinstance(vertex, CallVertex):
        return vertex.call.text
    return f"einsum {','.join(vertex.operands)}->{vertex.result}; {vertex.join}; {vertex.aggregate}"
