"""`joinsum::einsum_graph`: a graph of einsums as one of torch's operators, as recordings have it.

What captures a recording takes its einsums one by one and plans them with all others; run as it is, it is a graph with
a plan of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from joinsum import _C
from joinsum.compiled_graph import CompiledGraph, gradients
from joinsum.context import context
from joinsum.dtypes import torch_dtype
from joinsum.einsum_arguments import one_memory

__all__ = ["einsum_graph"]


@torch.library.custom_op("joinsum::einsum_graph", mutates_args=())
def einsum_graph(graph: str, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of a graph, given by its text, for a tensor for each of its inputs.

    >>> text = "einsum\\ninput x: f32[2]\\noutput z = einsum[i->; id; add](x)"
    >>> einsum_graph(text, [torch.ones(2)])
    [tensor(2.)]
    """
    made: list[torch.Tensor] = []
    for tensor in _compiled(graph).run(inputs):
        # Results may not share memory.
        shared = any(one_memory(tensor, each) for each in made)
        made.append(tensor.clone() if shared else tensor)
    return made


@einsum_graph.register_fake
def _(graph: str, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    outputs = _compiled(graph).recorded.outputs
    return [inputs[0].new_empty(extents, dtype=torch_dtype(dtype)) for _, (dtype, extents) in outputs]


def _setup(ctx: Any, inputs: tuple[str, Sequence[torch.Tensor]], output: Sequence[torch.Tensor]) -> None:
    ctx.graph, tensors = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, arrived: Sequence[torch.Tensor]) -> tuple[None, list[torch.Tensor | None]]:
    tensors = ctx.saved_tensors
    return None, gradients(_compiled(ctx.graph), tuple(x.requires_grad for x in tensors), tensors, arrived)


einsum_graph.register_autograd(_backward, setup_context=_setup)


def _compiled(graph: str) -> CompiledGraph:
    here = context()
    return here.remembered(("text", graph), lambda: CompiledGraph(here, _C.EinsumPlan.parse(graph), True))
