"""One einsum of tensors of certain shapes and dtypes, or a graph of them, ready to run again and again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from joinsum import _C, einsum_operator  # noqa: F401  (registers what recordings hold)
from joinsum.compiled_graph import CompiledGraph, check_not_traced, check_not_transformed, differentiable_run, recording
from joinsum.context import context
from joinsum.dtypes import dtype_name
from joinsum.einsum_arguments import View, check_tensors, common_dtype, fixed_shape, views_of
from joinsum.einsum_operations import Operations, VertexText, make_vertex

__all__ = ["EinsumCall", "einsum_call", "evaluate", "positions"]


@dataclass(frozen=True)
class EinsumCall:
    """A graph of one einsum, and how its inputs are viewed and converted.

    positions   extents of the folded labels, of which argmax and argmin give a position: one more input
    """

    compiled: CompiledGraph
    views: tuple[View, ...]
    positions: tuple[int, ...] | None

    def run(self, operands: Sequence[torch.Tensor]) -> torch.Tensor:
        """The result, in autograd."""
        inputs = []
        for operand, view, dtype in zip(operands, self.views, self.compiled.dtypes, strict=False):
            tensor = view.of(operand) if view.steps else operand
            inputs.append(tensor if tensor.dtype is dtype else tensor.to(dtype))
        if self.positions is not None:
            inputs.append(positions(self.positions, operands[0].device))
        return differentiable_run(self.compiled, inputs)[0]


def positions(shape: Sequence[int], device: torch.device) -> torch.Tensor:
    """The numbers 0, 1, ... in this shape.

    >>> positions([2, 2], torch.device("cpu"))
    tensor([[0, 1],
            [2, 3]])
    """
    return torch.arange(math.prod(shape), device=device).reshape(tuple(shape))


def einsum_call(
    equation: str,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[torch.dtype],
    operations: Operations,
    *,
    device: torch.device,
    kept: bool = True,
) -> EinsumCall:
    """The call for operands of these shapes and dtypes.

    operations   the join, the aggregation and extents, as users give them
    device       of the operands
    kept         whether its plan is kept in the user's cache folder

    Raises PlanError, KernelError.
    """
    read = views_of(equation, shapes, dict(operations.extents))
    dtype = common_dtype(equation, shapes, dtypes, device, read.new) if operations.products else None
    if dtype is torch.bool and len(shapes) > 1:
        operations = operations.of_truth_values()
    labels = [list(view.labels) for view in read.views]
    vertex = VertexText(operations.join, operations.agg, labels, list(read.result), read.new, read.order)
    inner = [view.shape(shape) for view, shape in zip(read.views, shapes, strict=True)]
    inputs = [
        _C.einsum_input(f"x{i}", dtype_name("einsum", dtype or own), extents)
        for i, (extents, own) in enumerate(zip(inner, dtypes, strict=True))
    ]
    graph = _C.EinsumPlan.make([("z", make_vertex("einsum", inputs, vertex, "z.positions"))])
    places = next((tuple(extents) for name, (_, extents) in graph.inputs if name == "z.positions"), None)
    return EinsumCall(CompiledGraph(context(), graph, kept), read.views, places)


def evaluate(who: str, graph: Sequence[str], tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The one output of a graph, given by the lines of its text after the inputs', which are these tensors: on all
    sites, in torch's autograd. `who` opens messages.

    >>> import torch
    >>> evaluate("softplus", ["output z = einsum[i->i; softplus; add](x)"], {"x": torch.zeros(2)})
    tensor([0.6931, 0.6931])
    """
    if torch.compiler.is_dynamo_compiling():
        # Dynamo leaves the call in its graph, as an operator.
        check_not_transformed(who)
        made: torch.Tensor = torch.ops.joinsum.graph_call(who, list(graph), list(tensors), list(tensors.values()))
        return made
    return _evaluated(who, graph, tensors)


def _evaluated(who: str, graph: Sequence[str], tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    here = context()
    recorded = recording()

    def make() -> CompiledGraph:
        checked = zip(tensors, check_tensors(who, tensors), strict=True)
        inputs = [
            f"input {name}: {dtype_name(who, x.dtype)}[{','.join(map(str, fixed_shape(x)))}]" for name, x in checked
        ]
        return CompiledGraph(here, _C.EinsumPlan.parse("\n".join(["einsum", *inputs, *graph])), True)

    with here.preparing("einsum"):
        check_not_traced(who)
        if not all(isinstance(x, torch.Tensor) for x in tensors.values()):
            check_tensors(who, tensors)
        # All that the tensors' checks read is in the key: equal tensors are checked once.
        shapes = [fixed_shape(x) if recorded else x.shape for x in tensors.values()]
        traits = [
            (name, shape, x.dtype, x.device, x.layout, type(x))
            for (name, x), shape in zip(tensors.items(), shapes, strict=True)
        ]
        compiled = here.remembered(("graph", *graph, recorded, *traits), make)
    return differentiable_run(compiled, [tensors[name] for name in compiled.names])[0]


_LIBRARY = torch.library.Library("joinsum", "FRAGMENT")  # type: ignore[no-untyped-call]
_SCHEMA = "graph_call(str who, str[] lines, str[] names, Tensor[] tensors) -> Tensor"
_LIBRARY.define(_SCHEMA)  # type: ignore[no-untyped-call]


def _out_of_a_graph(
    who: str, lines: Sequence[str], names: Sequence[str], tensors: Sequence[torch.Tensor]
) -> torch.Tensor:
    return _evaluated(who, lines, dict(zip(names, tensors, strict=True)))


_LIBRARY.impl("graph_call", _out_of_a_graph, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
