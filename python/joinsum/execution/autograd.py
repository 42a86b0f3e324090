"""Planned graphs in torch's autograd, and in functorch's transforms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.autograd import forward_ad

from joinsum import _C
from joinsum.base.dtypes import torch_dtype
from joinsum.execution.operands import check_not_traced, recording
from joinsum.graphs.transforms import depending

__all__ = ["GraphFunction", "differentiable_run", "gradients", "is_differentiable"]


class GraphFunction(Protocol):
    """What a graph that runs offers to autograd.

    names, dtypes    of the inputs, in order
    outputs          names of the outputs
    differentiable   for each output, whether it depends on an input by floating values alone
    """

    core: _C.EinsumPlan
    names: list[str]
    dtypes: list[torch.dtype]
    outputs: list[str]

    @property
    def differentiable(self) -> list[bool]: ...

    def run(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The outputs for the inputs, without gradients."""
        ...

    def recorded_run(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The same as one of torch's operators, which torch records."""
        ...

    def gradient(self, needed: tuple[bool, ...]) -> GraphFunction | None:
        """The graph of those inputs' gradients."""
        ...

    def batched(self, which: tuple[bool, ...], size: int) -> GraphFunction:
        """The graph for `size` samples at once."""
        ...


def is_differentiable(dtype: torch.dtype) -> bool:
    """Whether values of this dtype have gradients."""
    return dtype.is_floating_point or dtype.is_complex


def differentiable_run(graph: GraphFunction, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The outputs, in autograd where that is needed: an input requires a gradient or has a tangent, or functorch is
    at work."""
    check_not_traced("einsum")
    transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    if not transformed and recording():
        return graph.recorded_run(tensors)
    if transformed or (torch.is_grad_enabled() and any(x.requires_grad for x in tensors)):
        return tuple(_Differentiable.apply(graph, *tensors))  # type: ignore[no-untyped-call]
    return graph.run(tensors)


class _Differentiable(torch.autograd.Function):
    """A graph in torch's autograd: its backward pass is the graph of the gradients, in autograd again; so is its
    derivative forward, the gradient of the gradients' graph for what arrives at it, in which that graph is linear."""

    @staticmethod
    def forward(graph: GraphFunction, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(_no_view(x) for x in graph.run(tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        graph, *tensors = inputs
        ctx.graph = graph
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        rough = [x for x, smooth in zip(output, graph.differentiable, strict=True) if not smooth]
        ctx.mark_non_differentiable(*rough)

    @staticmethod
    def backward(ctx: Any, *arrived: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return (None, *gradients(ctx.graph, tuple(ctx.needs_input_grad[1:]), ctx.saved_tensors, arrived))

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        graph: GraphFunction = ctx.graph
        nothing = _zeros(graph, ctx.saved_tensors[0].device)
        smooth = map(is_differentiable, graph.dtypes)
        moving = tuple(x is not None and each for x, each in zip(tangents, smooth, strict=True))
        gradient = graph.gradient(moving) if any(moving) else None
        if gradient is None:
            return _tangents(graph, nothing)
        linear = gradient.gradient(tuple(name.startswith("d_z") for name in gradient.names))
        if linear is None:
            return _tangents(graph, nothing)
        values = _numbered("x", ctx.saved_tensors) | _numbered("d_z", nothing)
        directions = {f"d_x{i}": tangent for i, tangent in enumerate(tangents) if tangent is not None}
        values = _numbered("x", [values[name] for name in gradient.names])
        values |= _numbered("d_z", [directions[name] for name in gradient.outputs])
        results = _by_name(linear, values)
        places = {name: f"d_x{i}" for i, name in enumerate(gradient.names)}
        return _tangents(graph, [results.get(places.get(f"d_z{i}", ""), zeros) for i, zeros in enumerate(nothing)])

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], graph: GraphFunction, *tensors: torch.Tensor
    ) -> tuple[tuple[torch.Tensor, ...], tuple[int | None, ...]]:
        dims = in_dims[1:]
        which = tuple(dim is not None for dim in dims)
        names = [name for name, each in zip(graph.names, which, strict=True) if each]
        reached = depending(graph.core, names)
        batched = graph.batched(which, info.batch_size)
        moved = {
            name: x if dim is None else x.movedim(dim, 0)
            for name, x, dim in zip(graph.names, tensors, dims, strict=True)
        }
        results = _by_name(batched, moved)
        nodes = zip(graph.outputs, graph.core.output_nodes, strict=True)
        out_dims = tuple(0 if node in reached else None for _, node in nodes)
        return tuple(results[name] for name in graph.outputs), out_dims


def gradients(
    graph: GraphFunction, needed: tuple[bool, ...], tensors: Sequence[torch.Tensor], arrived: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """Gradients of the inputs, in autograd; None where one is not needed, or no output depends on it.

    arrived   the gradients of the outputs
    """
    gradient = graph.gradient(needed)
    if gradient is None:
        return [None] * len(graph.names)
    results = _by_name(gradient, _numbered("x", tensors) | _numbered("d_z", arrived))
    return [results.get(f"d_x{i}") for i in range(len(graph.names))]


def _no_view(x: torch.Tensor) -> torch.Tensor:
    """The same memory as a tensor of its own: autograd lets no result that is a view be changed in place."""
    if not x._is_view():
        return x
    return x.new_empty(0).set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride())


def _numbered(letter: str, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"{letter}{i}": tensor for i, tensor in enumerate(tensors)}


def _zeros(graph: GraphFunction, device: torch.device) -> list[torch.Tensor]:
    """Zeros for each output."""
    return [torch.zeros(extents, dtype=torch_dtype(dtype), device=device) for _, (dtype, extents) in graph.core.outputs]


def _tangents(graph: GraphFunction, values: Sequence[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
    """One for each output that is differentiable."""
    return tuple(x if smooth else None for x, smooth in zip(values, graph.differentiable, strict=True))


def _by_name(graph: GraphFunction, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    tensors = [values[name] for name in graph.names]
    if any(_is_batch(x) for x in tensors):
        return _of_batches(graph, tensors)
    return dict(zip(graph.outputs, differentiable_run(graph, tensors), strict=True))


_is_batch = torch._C._functorch.is_legacy_batchedtensor
_MOST_VMAPS = 5  # that autograd's own vmap nests: a tensor has one axis of samples for each


def _of_batches(graph: GraphFunction, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same inside autograd's own vmap, which is not functorch's: `torch.autograd.grad(..., is_grads_batched=True)`
    and `torch.autograd.functional.jacobian(..., vectorize=True)` hand the backward pass samples as one tensor."""
    # The innermost vmap of these tensors. Autograd's threads for GPUs do not know which vmaps are active.
    for level in range(_MOST_VMAPS, 0, -1):
        # A tensor without this vmap gets an axis of the extent that is given, 0, which no vmap has.
        opened = [torch._remove_batch_dim(x, level, 0, 0) if _is_batch(x) else None for x in tensors]
        which = tuple(x is not None and x.shape[0] > 0 for x in opened)
        if any(which):
            break
    inner = [x if x is not None and each else plain for x, each, plain in zip(opened, which, tensors, strict=True)]
    size = next(x.shape[0] for x, each in zip(inner, which, strict=True) if each)
    batched = graph.batched(which, size)
    names = [name for name, each in zip(graph.names, which, strict=True) if each]
    reached = depending(graph.core, names)
    results = _by_name(batched, dict(zip(graph.names, inner, strict=True)))
    nodes = dict(zip(graph.outputs, graph.core.output_nodes, strict=True))
    return {name: torch._add_batch_dim(x, 0, level) if nodes[name] in reached else x for name, x in results.items()}
