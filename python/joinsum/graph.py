"""Recording several einsums, to plan them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

import torch

from joinsum import _C
from joinsum.arguments import integers, show
from joinsum.batched_graph import nodes_of
from joinsum.compiled_graph import CompiledGraph
from joinsum.context import context
from joinsum.dtypes import dtype_name, torch_dtype
from joinsum.einsum_arguments import common_dtype, new_labels, read_arguments
from joinsum.einsum_operations import ARGUMENTS, VertexText, is_positions, make_vertex, read_operations
from joinsum.einsum_plan import EinsumPlan
from joinsum.errors import PlanError
from joinsum.planned_graph import PlannedGraph

__all__ = ["Graph", "GraphValue"]


class GraphValue:
    """An input or a result of an einsum in a `joinsum.Graph`, of which shape and dtype are known."""

    def __init__(self, graph: Graph, node: _C.EinsumNode, name: str) -> None:
        self._graph = graph
        self._node = node
        self._name = name

    @property
    def graph(self) -> Graph:
        """The graph that it is part of."""
        return self._graph

    @property
    def node(self) -> _C.EinsumNode:
        """The C++ node."""
        return self._node

    @property
    def shape(self) -> torch.Size:
        """Extents of its axes."""
        return torch.Size(self._node.extents)

    @property
    def dtype(self) -> torch.dtype:
        """Its elements' dtype."""
        return torch_dtype(self._node.dtype)

    def __repr__(self) -> str:
        return f"<GraphValue {self._name}: {self._node.dtype}{list(self.shape)}>".replace(" [", "[")


class Graph:
    """Records einsums of inputs that are given later, and plans them together.

    What several einsums share is computed once, and where tensors lie is chosen for all of them at a time.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=4)
    >>> g = joinsum.Graph()
    >>> x, w, v = g.input("X", (8, 6)), g.input("W", (6, 5)), g.input("V", (5, 4))
    >>> hidden = g.einsum("ij,jk->ik", x, w)
    >>> hidden.shape, hidden.dtype
    (torch.Size([8, 5]), torch.float32)
    >>> g.output("Y", g.einsum("ik,kl->il", hidden, v))
    >>> g.output("most", g.einsum("ik->i", hidden, agg="max"))
    >>> run = g.plan()
    >>> given = {name: torch.rand(shape) for name, shape in [("X", (8, 6)), ("W", (6, 5)), ("V", (5, 4))]}
    >>> made = run(**given)
    >>> torch.allclose(made["Y"], given["X"] @ given["W"] @ given["V"])
    True
    >>> print(g.to_json().splitlines()[0], joinsum.Graph.from_json(g.to_json()).einsums == g.einsums)
    { True
    """

    def __init__(self) -> None:
        self._inputs: dict[str, GraphValue] = {}
        self._outputs: dict[str, GraphValue] = {}
        self._positions: set[str] = set()  # inputs that argmax and argmin take, which a run is not asked for
        self._count = 0

    def input(self, name: str, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> GraphValue:
        """An input of that shape, which a run is given by this name. Raises PlanError for a name that is taken."""
        if not isinstance(name, str) or not name.isidentifier():
            raise PlanError(f"graph: an input's name is an identifier: name={show(name)}")
        if name in self._inputs:
            raise PlanError(f"graph: an input of that name is there: name={name}")
        if not isinstance(dtype, torch.dtype):
            raise PlanError(f"graph: a dtype is torch's: input={name}, dtype={show(dtype)}")
        extents = integers("graph", f"the shape of input {name}", shape)
        node = _C.einsum_input(name, dtype_name(f"graph: input {name}", dtype), extents)
        self._inputs[name] = GraphValue(self, node, name)
        return self._inputs[name]

    def einsum(
        self,
        *arguments: object,
        join: str = "mul",
        agg: str = "sum",
        extents: Mapping[str, int] | None = None,
    ) -> GraphValue:
        """The result of an einsum, as `joinsum.einsum` gives it; nothing is computed yet.

        equation, operands   as `joinsum.einsum`'s, in both of its forms, the operands being values of this graph
        join, agg, extents   as `joinsum.einsum`'s

        Raises PlanError where the equation does not fit the shapes (the place is marked), and for values of another
        graph; KernelError for a dtype that the join or aggregation is not defined on.

        >>> import joinsum
        >>> g = joinsum.Graph()
        >>> x = g.input("X", (8, 6))
        >>> g.einsum("ij->j", x).shape, g.einsum(x, ["row", ...], [...]).shape
        (torch.Size([6]), torch.Size([6]))
        """
        equation, operands = read_arguments(arguments, "graph")
        self._check_operands(operands)
        operations = read_operations("graph", join, agg, extents)
        shapes, dtypes = [value.shape for value in operands], [value.dtype for value in operands]
        given = dict(operations.extents)
        labels, result, known = _C.parse_equation(equation, [list(shape) for shape in shapes], given)
        new, order = new_labels(labels, result, known), [label for each in labels for label in each]
        dtype = common_dtype(equation, shapes, dtypes, new=new) if operations.products else None
        if dtype is torch.bool and len(operands) > 1:
            operations = operations.of_truth_values()
        nodes = [_converted(value.node, dtype) for value in operands]
        for i, shape in enumerate(shapes):
            nodes[i], labels[i] = _without_repeated(nodes[i], labels[i], shape, known)
        vertex = VertexText(operations.join, operations.agg, labels, result, new, order)
        positions = self._free_positions()
        node = make_vertex("graph", nodes, vertex, positions)
        if agg in ARGUMENTS:
            self._positions.add(positions)
        self._count += 1
        return GraphValue(self, node, f"einsum {self._count}")

    def _check_operands(self, operands: Sequence[object]) -> None:
        for i, value in enumerate(operands):
            if not isinstance(value, GraphValue) or value.graph is not self:
                raise PlanError(f"graph: operands are values of this graph: operand {i}={show(value)}")

    def _free_positions(self) -> str:
        names = (f"e{number}.positions" for number in count(1))
        return next(name for name in names if name not in self._positions)

    def output(self, name: str, value: GraphValue) -> None:
        """Names a result. Raises PlanError for a name that is taken, and for a value of another graph."""
        if not isinstance(name, str) or not name.isidentifier():
            raise PlanError(f"graph: an output's name is an identifier: name={show(name)}")
        if name in self._outputs:
            raise PlanError(f"graph: an output of that name is there: name={name}")
        if not isinstance(value, GraphValue) or value.graph is not self:
            raise PlanError(f"graph: an output is a value of this graph: output={name}, value={show(value)}")
        self._outputs[name] = value

    @property
    def inputs(self) -> dict[str, GraphValue]:
        """The inputs by name."""
        return dict(self._inputs)

    @property
    def outputs(self) -> dict[str, GraphValue]:
        """The outputs by name."""
        return dict(self._outputs)

    @property
    def einsums(self) -> EinsumPlan:
        """The graph as a value: of the einsums that outputs need. Raises PlanError where there is no output."""
        if not self._outputs:
            raise PlanError("graph: no output yet; name one with graph.output(name, value)")
        return EinsumPlan(_C.EinsumPlan.make([(name, value.node) for name, value in self._outputs.items()]))

    @staticmethod
    def from_einsums(plan: EinsumPlan) -> Graph:
        """A graph that has recorded `plan`, to which more can be added.

        >>> import joinsum
        >>> plan = joinsum.EinsumPlan.parse("einsum\\ninput X: f32[4]\\noutput Z = einsum[i->; id; add](X)")
        >>> joinsum.Graph.from_einsums(plan).outputs
        {'Z': <GraphValue Z: f32[]>}
        """
        if not isinstance(plan, EinsumPlan):
            raise PlanError(f"graph: a joinsum.EinsumPlan is read: got={type(plan).__name__}")
        graph = Graph()
        nodes = nodes_of(plan.core)
        graph._positions = {name for name, (dtype, _) in plan.core.inputs if is_positions(name, dtype)}
        graph._inputs = {
            name: GraphValue(graph, nodes[name], name) for name in plan.inputs if name not in graph._positions
        }
        pairs = zip(plan.outputs, plan.core.output_nodes, strict=True)
        graph._outputs = {name: GraphValue(graph, nodes[node], name) for name, node in pairs}
        return graph

    def to_json(self) -> str:
        """The graph as JSON, as `EinsumPlan.to_json` writes it."""
        return self.einsums.to_json()

    @staticmethod
    def from_json(text: str) -> Graph:
        """The graph that `to_json`, or a user, has written. Raises PlanError with the JSON path of what is wrong."""
        return Graph.from_einsums(EinsumPlan.from_json(text))

    def plan(self, cache: bool = True) -> PlannedGraph:
        """Plans all einsums together for the sites there are; on a process group all ranks call.

        cache   whether the plan may come from memory, or the user's cache folder, and is kept there

        Inputs that no output needs are not asked for. Raises PlanError.
        """
        here = context()
        with here.preparing("einsum"):
            core = self.einsums.core

        def make() -> PlannedGraph:
            return PlannedGraph(CompiledGraph(here, core, cache))

        return here.remembered(("graph", str(core)), make) if cache else make()

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {value.node.dtype}{value.node.extents}" for name, value in self._inputs.items())
        return f"<Graph {inputs or 'no input'} -> {', '.join(self._outputs) or 'no output'}>"


def _converted(node: _C.EinsumNode, dtype: torch.dtype | None) -> _C.EinsumNode:
    """The same elements of another dtype."""
    if dtype is None or torch_dtype(node.dtype) is dtype:
        return node
    labels = [f"a{axis}" for axis in range(len(node.extents))]
    cast = _C.Kernel(f"cast[{dtype_name('graph', dtype)}]")
    return _C.einsum_vertex([node], [labels], labels, cast, _C.Kernel("add"), {})


def _without_repeated(
    node: _C.EinsumNode, labels: list[str], shape: Sequence[int], extents: dict[str, int]
) -> tuple[_C.EinsumNode, list[str]]:
    """Without the axes of one element that are repeated along a label."""
    kept = [axis for axis, label in enumerate(labels) if shape[axis] == extents[label]]
    if len(kept) == len(labels):
        return node, labels
    axes = [f"a{axis}" for axis in range(len(labels))]
    left = [axes[axis] for axis in kept]
    folded = _C.einsum_vertex([node], [axes], left, _C.Kernel("id"), _C.Kernel("add"), {})
    return folded, [labels[axis] for axis in kept]
