"""Graphs given by their text and run on tensors: what the functions of `joinsum.nn` are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from joinsum import _C
from joinsum.base.dtypes import dtype_name
from joinsum.cluster.context import context
from joinsum.execution.autograd import differentiable_run
from joinsum.execution.operands import (
    check_not_traced,
    check_not_transformed,
    check_tensors,
    fixed_shape,
    recording,
    tensor_traits,
)
from joinsum.execution.planned_graph import PlannedGraph

__all__ = ["evaluate"]


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
        result: torch.Tensor = torch.ops.joinsum.graph_call(who, list(graph), list(tensors), list(tensors.values()))
        return result
    return _evaluated(who, graph, tensors)


def _evaluated(who: str, graph: Sequence[str], tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    current = context()
    recorded = recording()

    def make() -> PlannedGraph:
        checked = zip(tensors, check_tensors(who, tensors), strict=True)
        inputs = [
            f"input {name}: {dtype_name(who, x.dtype)}[{','.join(map(str, fixed_shape(x)))}]" for name, x in checked
        ]
        return PlannedGraph(current, _C.EinsumPlan.parse("\n".join(["einsum", *inputs, *graph])))

    with current.preparing("einsum"):
        check_not_traced(who)
        if not all(isinstance(x, torch.Tensor) for x in tensors.values()):
            check_tensors(who, tensors)
        traits = zip(tensors, tensor_traits(tensors.values(), recorded), strict=True)
        planned = current.cached(("graph", *graph, recorded, *traits), make)
    return differentiable_run(planned, [tensors[name] for name in planned.names])[0]


_LIBRARY = torch.library.Library("joinsum", "FRAGMENT")  # type: ignore[no-untyped-call]
_SCHEMA = "graph_call(str who, str[] lines, str[] names, Tensor[] tensors) -> Tensor"
_LIBRARY.define(_SCHEMA)  # type: ignore[no-untyped-call]


def _out_of_a_graph(
    who: str, lines: Sequence[str], names: Sequence[str], tensors: Sequence[torch.Tensor]
) -> torch.Tensor:
    return _evaluated(who, lines, dict(zip(names, tensors, strict=True)))


_LIBRARY.impl("graph_call", _out_of_a_graph, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
