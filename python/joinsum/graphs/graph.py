"""Graphs of einsums: recorded call by call, or read from text or JSON; printed, differentiated, interpreted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar

import torch

from joinsum import _C
from joinsum.algebra.plan import TraPlan
from joinsum.base.arguments import integer, integers, show
from joinsum.base.dtypes import dtype_name, torch_dtype
from joinsum.base.errors import PlanError
from joinsum.graphs.contraction_order import paths_of
from joinsum.graphs.equation import (
    ARGUMENTS,
    Operations,
    common_dtype,
    new_labels,
    position_inputs,
    positions,
    read_arguments,
    read_operations,
)
from joinsum.graphs.json_form import read_json
from joinsum.graphs.query_vertices import QueryOperand, query_vertex

__all__ = ["Graph", "GraphValue"]


class GraphValue:
    """An input or a result of an einsum in a `joinsum.Graph`, of which shape and dtype are known."""

    # Sparse values have zeros where they store nothing.

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
        stored = "" if self._node.entries is None else f" sparse{{{self._node.entries}}}"
        return f"<GraphValue {self._name}: {self._node.dtype}{list(self.shape)}{stored}>"


class Graph:
    """A graph of einsums with named inputs and outputs: what is computed, without cuts or sites.

    It records einsums of inputs that are given later; or `parse` reads one from text, `from_json` from JSON. `plan`
    plans all of it together: what several einsums share is computed once, and the placement of tensors is chosen for
    all of them at once. Each vertex is Z[labels] = ⊕ over the labels that Z lacks of ⊗(X[labels], Y[labels], ...).
    Graphs are equal where their outputs are computed alike. Source: EinDecomp, section 3.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=4)
    >>> g = joinsum.Graph()
    >>> x, w, v = g.input("X", (8, 6)), g.input("W", (6, 5)), g.input("V", (5, 4))
    >>> hidden = g.einsum("ij,jk->ik", x, w)
    >>> hidden.shape, hidden.dtype
    (torch.Size([8, 5]), torch.float32)
    >>> g.output("Y", g.einsum("ik,kl->il", hidden, v))
    >>> run = g.plan()
    >>> arguments = {name: torch.rand(shape) for name, shape in [("X", (8, 6)), ("W", (6, 5)), ("V", (5, 4))]}
    >>> results = run(**arguments)
    >>> torch.allclose(results["Y"], arguments["X"] @ arguments["W"] @ arguments["V"])
    True
    >>> print(g)
    einsum
    input X: f32[8,6]
    input W: f32[6,5]
    input V: f32[5,4]
    t0 = einsum[ij,jk->ik; mul; add](X, W): f32[8,5]
    t1 = einsum[ik,kl->il; mul; add](t0, V): f32[8,4]
    output Y = t1
    <BLANKLINE>
    >>> print(g.gradient(["V"]))
    einsum
    input d_Y: f32[8,4]
    input X: f32[8,6]
    input W: f32[6,5]
    t0 = einsum[ij,jk->ik; mul; add](X, W): f32[8,5]
    t1 = einsum[il,ik->kl; mul; add](d_Y, t0): f32[5,4]
    output d_V = t1
    <BLANKLINE>
    """

    # Planning lies above this room, which therefore only knows that there is a planner: `joinsum.execution` sets it.
    planner: ClassVar[Callable[[Graph, bool], Any]]

    def __init__(self) -> None:
        self._inputs: dict[str, GraphValue] = {}
        self._outputs: dict[str, GraphValue] = {}
        self._ties: dict[str, str] = {}
        self._positions: set[str] = set()  # inputs that argmax and argmin read, which no caller gives
        self._count = 0
        self._core: _C.EinsumPlan | None = None  # of the outputs so far

    @staticmethod
    def of_core(core: _C.EinsumPlan) -> Graph:
        """The graph that a C++ one is."""
        graph = Graph()
        nodes = dict(core.nodes)
        graph._positions = set(position_inputs(core))
        graph._inputs = {
            name: GraphValue(graph, nodes[name], name) for name, _ in core.inputs if name not in graph._positions
        }
        outputs = zip(core.outputs, core.output_nodes, strict=True)
        graph._outputs = {name: GraphValue(graph, nodes[node], name) for (name, _), node in outputs}
        graph._ties, graph._core = core.ties, core
        return graph

    @staticmethod
    def parse(text: str) -> Graph:
        """Reads a graph, whose first line is `einsum`; more can be added. Raises PlanError, or KernelError for an
        unknown kernel.

        >>> import joinsum
        >>> joinsum.Graph.parse("einsum\\ninput X: f32[4]\\noutput Z = einsum[i->; id; add](X)").outputs
        {'Z': <GraphValue Z: f32[]>}
        """
        if not isinstance(text, str):
            raise PlanError(f"parse: a graph is text: got={type(text).__name__}")
        return Graph.of_core(_C.EinsumPlan.parse(text))

    # --- recording ----------------------------------------------------------------------------------------------------

    def input(
        self, name: str, shape: Sequence[int], dtype: torch.dtype = torch.float32, *, entries: int | None = None
    ) -> GraphValue:
        """An input of that shape, which a run is given by this name.

        entries   about how many elements are stored, of an input that is sparse (`joinsum.SparseTensor`, or a sparse
                  layout of torch's)

        Raises PlanError for a name that is taken.

        >>> import joinsum
        >>> g = joinsum.Graph()
        >>> g.input("X", (100, 1000), entries=300)
        <GraphValue X: f32[100, 1000] sparse{300}>
        """
        _check_name("an input", name, self._inputs)
        if entries is not None and (isinstance(entries, bool) or not isinstance(entries, int) or entries < 0):
            raise PlanError(f"graph: entries are counted: input={name}, entries={show(entries)}")
        if not isinstance(dtype, torch.dtype):
            raise PlanError(f"graph: a dtype is torch's: input={name}, dtype={show(dtype)}")
        extents = integers("graph", f"the shape of input {name}", shape)
        node = _C.einsum_input(name, dtype_name(f"graph: input {name}", dtype), extents, entries)
        self._inputs[name] = GraphValue(self, node, name)
        return self._inputs[name]

    def einsum(
        self,
        *arguments: object,
        join: str = "mul",
        agg: str = "sum",
        extents: Mapping[str, int] | None = None,
        out_format: str = "auto",
    ) -> GraphValue:
        """The result of an einsum, as `joinsum.einsum` gives it; nothing is computed yet.

        equation, operands   as `joinsum.einsum`'s, in both of its forms, the operands being values of this graph
        join, agg, extents   as `joinsum.einsum`'s
        out_format           of sparse operands: "dense" or "coo" for a dense or a sparse result, or "auto"

        Sums of products of one sparse value with dense ones are dense by themselves. Other einsums of sparse values are
        computed from their entries: the result is sparse where few are estimated. A run gives what is sparse as
        `torch.sparse_coo`.

        Raises PlanError where the equation does not fit the shapes (the place is marked), and for values of another
        graph; KernelError for a dtype that the join or aggregation is not defined on.

        >>> import joinsum
        >>> g = joinsum.Graph()
        >>> x = g.input("X", (8, 6))
        >>> g.einsum("ij->j", x).shape, g.einsum(x, ["row", ...], [...]).shape
        (torch.Size([6]), torch.Size([6]))
        >>> a = g.input("A", (1000, 1000), entries=3000)
        >>> g.einsum("ij,jk->ik", a, a)
        <GraphValue einsum 3: f32[1000, 1000] sparse{8960}>
        """
        equation, operands = read_arguments(arguments, "graph")
        self._check_operands(operands)
        if out_format not in ("auto", "dense", "coo"):
            raise PlanError(
                f'graph: results are stored as "auto", "dense" or "coo" says: out_format={show(out_format)}'
            )
        operations = read_operations("graph", join, agg, extents)
        shapes, dtypes = [value.shape for value in operands], [value.dtype for value in operands]
        labels, result, known = _C.parse_equation(equation, [list(shape) for shape in shapes], dict(operations.extents))
        new, order = new_labels(labels, result, known), [label for each in labels for label in each]
        dtype = common_dtype(equation, shapes, dtypes, new=new) if operations.products else None
        sparse = any(value.node.entries is not None for value in operands)
        if dtype is torch.bool and len(operands) > 1:
            # What a sparse operand does not store is false, which annihilates products.
            operations = replace(operations, agg="any") if sparse else operations.of_truth_values()
        if out_format == "coo" and not sparse:
            raise PlanError(f"graph: no operand is sparse, so the result is dense: out_format=coo\n  {equation}")
        if sparse and (out_format == "coo" or not _contracts(operands, labels, operations)):
            return self._query(operands, labels, result, known, operations, out_format)
        nodes = [_converted(value.node, dtype) for value in operands]
        for i, shape in enumerate(shapes):
            nodes[i], labels[i] = _without_repeated(nodes[i], labels[i], shape, known)
        vertex = _C.NamedVertex(operations.join, operations.agg, labels, result, new, order)
        name = self._free_positions()
        node = _C.named_einsum_vertex("graph", nodes, vertex, name)
        if agg in ARGUMENTS:
            self._positions.add(name)
        self._count += 1
        return GraphValue(self, node, f"einsum {self._count}")

    def _query(
        self,
        operands: Sequence[GraphValue],
        labels: Sequence[Sequence[str]],
        result: Sequence[str],
        extents: Mapping[str, int],
        operations: Operations,
        out_format: str,
    ) -> GraphValue:
        """An einsum that is computed from the entries of its sparse operands."""
        for i, (value, own) in enumerate(zip(operands, labels, strict=True)):
            if any(extents[label] != extent for label, extent in zip(own, value.shape, strict=True)):
                raise PlanError(f"graph: an axis of one element is not repeated beside sparse operands: operand={i}")
            if value.dtype is not operands[0].dtype:
                raise PlanError(
                    f"graph: operands beside sparse ones have one dtype: operand 0={operands[0].dtype}, "
                    f"operand {i}={value.dtype}"
                )
        given = [QueryOperand(value.node, 0.0, value.node.entries) for value in operands]
        found = query_vertex(labels, result, extents, operations, given, out_format)
        self._count += 1
        return GraphValue(self, found.node, f"einsum {self._count}")

    def _check_operands(self, operands: Sequence[object]) -> None:
        for i, value in enumerate(operands):
            if not isinstance(value, GraphValue) or value.graph is not self:
                raise PlanError(f"graph: operands are values of this graph: operand {i}={show(value)}")

    def _free_positions(self) -> str:
        names = (f"e{number}.positions" for number in count(1))
        return next(name for name in names if name not in self._positions)

    def output(self, name: str, value: GraphValue) -> None:
        """Names a result. Raises PlanError for a name that is taken, and for a value of another graph."""
        _check_name("an output", name, self._outputs)
        if not isinstance(value, GraphValue) or value.graph is not self:
            raise PlanError(f"graph: an output is a value of this graph: output={name}, value={show(value)}")
        self._outputs[name] = value
        self._core = None

    @property
    def inputs(self) -> dict[str, GraphValue]:
        """The inputs by name."""
        return dict(self._inputs)

    @property
    def outputs(self) -> dict[str, GraphValue]:
        """The outputs by name."""
        return dict(self._outputs)

    # --- the graph as a value -----------------------------------------------------------------------------------------

    @property
    def core(self) -> _C.EinsumPlan:
        """The C++ graph: of the einsums that outputs need. Raises PlanError where there is no output."""
        if self._core is None:
            if not self._outputs:
                raise PlanError("graph: no output yet; name one with graph.output(name, value)")
            outputs = [(name, value.node) for name, value in self._outputs.items()]
            self._core = _C.EinsumPlan.make(outputs, self._ties)
        return self._core

    @property
    def text(self) -> str:
        """Printed form of what outputs need; `parse` reads it. Equal graphs print alike."""
        return str(self.core)

    def __str__(self) -> str:
        return self.text if self._outputs else repr(self)

    def __hash__(self) -> int:
        return hash(self.core)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return False
        return self is other or bool(self._outputs and other._outputs and self.core == other.core)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {value.node.dtype}{value.node.extents}" for name, value in self._inputs.items())
        return f"<Graph {inputs or 'no input'} -> {', '.join(self._outputs) or 'no output'}>"

    def __reduce__(self) -> tuple[Callable[[str], Graph], tuple[str]]:
        return Graph.parse, (self.text,)  # copies and pickles

    def to_json(self) -> str:
        """The graph as JSON, which `from_json` reads.

        >>> import joinsum
        >>> graph = joinsum.Graph.parse("einsum\\ninput X: f32[4,5]\\noutput Z = einsum[ij->j; id; max](X)")
        >>> print(graph.to_json())
        {
          "inputs": {"X": [4, 5]},
          "ops": [
            {"name": "t0", "inputs": ["X"], "in_labels": ["ij"], "out_labels": "j", "join": "id", "agg": "max"}
          ],
          "outputs": {"Z": "t0"}
        }
        """
        return _C.JsonGraph.of_plan(self.core).text()

    @staticmethod
    def from_json(text: str) -> Graph:
        """Reads a graph in the form that `joinsum.graphs.json_form` and docs/einsum_graph.schema.json describe.

        `{"inputs": {name: [extents]}, "ops": [...], "outputs": [names of ops]}`, an op being `{"name", "inputs":
        [names], "in_labels": ["ij", "jk"], "out_labels": "ik", "join": "mul", "agg": "sum"}`. An op Z of argmax or
        argmin becomes its vertices, and adds an input `Z.positions` (`joinsum.graphs.equation.position_inputs`).
        Raises PlanError, or KernelError for a kernel, with the JSON path of what is wrong.

        >>> import joinsum
        >>> joinsum.Graph.from_json('{"inputs": {"X": [4, 5]}, "ops": [{"name": "Z"}], "outputs": ["Z"]}')
        Traceback (most recent call last):
        ...
        joinsum.PlanError: json: a field is missing: at=$.ops[0], field='inputs'
        """
        if not isinstance(text, str):
            raise PlanError(f"json: a graph is text: got={type(text).__name__}")
        return Graph.of_core(read_json("json", text, diagonals=True).plan("json")[0])

    # --- what becomes of it -------------------------------------------------------------------------------------------

    def gradient(self, of: Sequence[str]) -> Graph:
        """The graph of the gradients for these inputs: from the inputs and, for each output Z, `d_Z`, to `d_X`.

        Einsums again, so it has a gradient too. As torch's: ties of max and min share equally, complex gradients are
        the conjugate ones. Raises PlanError.
        """
        return Graph.of_core(self.core.gradient(list(of)))

    def binary(self) -> Graph:
        """The same graph from einsums of at most two operands, in the order that opt_einsum proposes."""
        return Graph.of_core(self.core.binary(paths_of(self.core)))

    def lower(self, sites: int) -> TraPlan:
        """The logical plan over tuples: each label cut evenly in `sites` parts, or in elements if these are fewer.

        >>> import joinsum
        >>> graph = joinsum.Graph.parse("einsum\\ninput X: f32[4,5]\\noutput Z = einsum[ij->j; square; add](X)")
        >>> print(graph.lower(sites=2))
        tra
        input X: f32[4,5]<2,2>
        t0 = transform[square](X): f32[4,5]<2,2>
        t1 = transform[reduce_add[ab->b]](t0): f32[5@1]<2,2>
        t2 = aggregate[1; add](t1): f32[5]<2>
        output Z = t2
        <BLANKLINE>
        """
        core = self.binary().core
        return TraPlan(core.lower(core.even_cuts(integer("lower", "sites", sites))))

    def interpret(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What the graph means, element by element and in float64, by the definition alone: slow; tests compare with
        it.

        >>> import joinsum, torch
        >>> graph = joinsum.Graph.parse("einsum\\ninput X: f32[2,2]\\noutput Z = einsum[ii->; id; add](X)")
        >>> graph.interpret({"X": torch.tensor([[1., 2.], [3., 4.]])})
        {'Z': tensor(5., dtype=torch.float64)}

        Inputs `Z.positions` of 64-bit integers, which argmax and argmin read, need not be given.
        """
        device = torch.device("cpu")
        arguments = {name: positions(extents, device) for name, extents in position_inputs(self.core).items()}
        arguments |= inputs
        arrays = {name: _C.Array(tensor.detach()) for name, tensor in arguments.items()}
        return {name: array.tensor() for name, array in self.core.interpret(arrays, {}).items()}

    def plan(self, cache: bool = True) -> Any:
        """Plans all einsums together for the sites there are, as a `joinsum.PlannedGraph`; on a process group all ranks
        call.

        cache   whether the plan may come from memory or the user's cache folder, and is stored there

        Inputs that no output needs are not arguments of the plan. Raises PlanError.
        """
        return Graph.planner(self, cache)


def _contracts(operands: Sequence[GraphValue], labels: Sequence[Sequence[str]], operations: Operations) -> bool:
    """Whether it is a sum of products of one sparse value with dense ones, whose result is dense."""
    sparse = [i for i, value in enumerate(operands) if value.node.entries is not None]
    once = all(len(set(labels[i])) == len(labels[i]) for i in sparse)
    return operations.products and len(sparse) == 1 and len(operands) > 1 and once


def _check_name(what: str, name: object, taken: Mapping[str, GraphValue]) -> None:
    """Raises PlanError for what is no identifier, and for a name that is taken."""
    if not isinstance(name, str) or not name.isidentifier():
        raise PlanError(f"graph: {what}'s name is an identifier: name={show(name)}")
    if name in taken:
        raise PlanError(f"graph: {what} of that name is there: name={name}")


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
    left = [axis for axis, label in enumerate(labels) if shape[axis] == extents[label]]
    if len(left) == len(labels):
        return node, labels
    axes = [f"a{axis}" for axis in range(len(labels))]
    reduced = _C.einsum_vertex([node], [axes], [axes[axis] for axis in left], _C.Kernel("id"), _C.Kernel("add"), {})
    return reduced, [labels[axis] for axis in left]
