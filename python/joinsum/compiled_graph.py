"""Graphs of einsums that are planned for the sites there are: run on tensors, in torch's autograd and functorch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ParamSpec, TypeVar

import torch
from torch.autograd import forward_ad

from joinsum import _C
from joinsum.batched_graph import batched_graph, depending, numbered
from joinsum.context import Context
from joinsum.dtypes import torch_dtype
from joinsum.errors import PlanError
from joinsum.graph_choice import Choice, choose

__all__ = [
    "CompiledGraph",
    "check_not_traced",
    "check_not_transformed",
    "checksum",
    "differentiable_run",
    "gradients",
    "outside_of_graphs",
    "recording",
]

_BATCHED_KEPT = 64  # batched forms of one graph: the last ones
_CHUNK = 1 << 22  # bytes of an operand whose checksum is taken at once


class CompiledGraph:
    """A graph with its plan, which is chosen at the first use, for results on every site.

    here       the sites
    recorded   the graph as it was made: einsums of any number of operands
    kept       whether its plan is looked for in the user's cache folder, and left there

    Gradients and batched forms are graphs of the same kind, made once each.
    """

    def __init__(self, here: Context, recorded: _C.EinsumPlan, kept: bool) -> None:
        self.here = here
        self.recorded = recorded
        self.kept = kept
        self.names = [name for name, _ in recorded.inputs]
        self.dtypes = [torch_dtype(dtype) for _, (dtype, _) in recorded.inputs]
        self.outputs = [name for name, _ in recorded.outputs]
        self._compared = False  # whether the ranks' operands were once found equal
        self._gradients: dict[tuple[tuple[bool, ...], bool], CompiledGraph | None] = {}
        self._batched: dict[tuple[tuple[bool, ...], int], CompiledGraph] = {}

    @cached_property
    def choice(self) -> Choice:
        """The plan, and what it was made from. On a process group all ranks must call."""
        with torch._C._DisableFuncTorch():  # what sites tell each other is no part of a transform
            return choose(self.here, self.recorded, self.kept)

    @cached_property
    def differentiable(self) -> list[bool]:
        """For each output whether it depends on an input by floating values alone, as torch's that require gradients:
        integers and truth values on the way cut them."""
        named = zip(self.names, self.dtypes, strict=True)
        return self.recorded.differentiable_outputs([name for name, dtype in named if _is_smooth(dtype)])

    @cached_property
    def types(self) -> dict[str, _C.PhysicalType]:
        """Where the plan wants its inputs."""
        return dict(self.choice.plan.inputs)

    @cached_property
    def _keeping_nans(self) -> CompiledGraph | None:
        """The same, without folding an infinity away before it meets one of the other sign; slower, as it joins all
        operands of such a vertex first. None where none is."""
        if not self.recorded.may_lose_nans:
            return None
        return CompiledGraph(self.here, self.recorded.binary_where_nans_stay(), self.kept)

    def run(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The outputs, for one tensor for each of the inputs; no gradients. Where torch records operators, the graph is
        one of them: it is planned with the others, or when the recording runs."""
        here = self.here
        if recording():
            return self.recorded_run(tensors)
        smooth = [x.requires_grad for x in tensors]
        tensors = [x.detach().resolve_conj().resolve_neg() for x in tensors]
        if self._keeping_nans is not None and _has_both_infinities(tensors):
            return self._keeping_nans.run(tensors)
        if not here.whole and (not self._compared or os.environ.get("JOINSUM_CHECK", "0") not in ("", "0")):
            self._compare(tensors, smooth)
            self._compared = True
        types, sites, store = self.types, here.local_sites, here.store
        placed = {
            name: _C.place_tensor(tensor, types[name], sites, store, False)
            for name, tensor in zip(self.names, tensors, strict=True)
            if name in types  # an expression need not read its operands
        }
        results = here.execute(self.choice.plan, placed, {})
        operands = {x.untyped_storage().data_ptr() for x in tensors}
        return tuple(self._whole(results[name], operands) for name in self.outputs)

    def recorded_run(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The same as one of torch's operators, in autograd."""
        # What operands hold is not known yet.
        graph = self.recorded if self._keeping_nans is None else self._keeping_nans.recorded
        given = dict(zip(self.names, tensors, strict=True))
        return tuple(torch.ops.joinsum.einsum_graph(str(graph), [given[name] for name, _ in graph.inputs]))

    def _whole(self, relation: _C.StoredRelation, operands: set[int]) -> torch.Tensor:
        """The result as a tensor that shares no memory with an operand."""
        whole = relation.whole_tensor(self.here.store)
        own = whole.untyped_storage().data_ptr() not in operands and 0 not in whole.stride()
        return whole if own else whole.clone(memory_format=torch.contiguous_format)

    def _compare(self, tensors: Sequence[torch.Tensor], smooth: Sequence[bool]) -> None:
        """Raises where the ranks' graphs or operands differ, or which of these require a gradient: a rank would wait
        for the others' backward passes."""
        lines = [
            f"operand {i} ({name}): {list(x.shape)} {x.dtype}{', requires a gradient' * asked}, checksum {checksum(x)}"
            for i, (name, x, asked) in enumerate(zip(self.names, tensors, smooth, strict=True))
        ]
        told = "equal calls with equal operands on every rank\n" + str(self.recorded)
        self.here.transport.agree("einsum", told + "\n".join(lines))

    def gradient(self, needed: tuple[bool, ...]) -> CompiledGraph | None:
        """The graph of those inputs' gradients; None where no output depends on them differentiably. It calls the
        inputs x0, x1, ... in order, what arrives at the outputs d_z0, d_z1, ..., and the gradients d_x0, d_x1, ..."""
        key = (needed, recording())
        if key not in self._gradients:
            self._gradients[key] = self._gradient(*key) if any(self.differentiable) else None
        return self._gradients[key]

    def _gradient(self, needed: tuple[bool, ...], recorded: bool) -> CompiledGraph | None:
        """The graph: of the einsums of two operands that were chosen; while torch records, nothing is chosen yet."""
        graph = numbered(self.recorded, self.names)
        read = dict(graph.inputs)
        of = [f"x{i}" for i, each in enumerate(needed) if each and f"x{i}" in read]
        if not any(graph.differentiable_outputs(of)):
            return None
        names = zip(self.recorded.vertices, graph.vertices, strict=True)
        orders = {} if recorded else self.choice.orders
        paths = {new[0]: orders[old[0]].path for old, new in names if old[0] in orders}
        return CompiledGraph(self.here, graph.gradient(of, paths), self.kept)

    def batched(self, which: tuple[bool, ...], size: int) -> CompiledGraph:
        """The same for `size` samples at once: those inputs, and the outputs that depend on them, have an axis of that
        many elements in front."""
        key = (which, size)
        if key not in self._batched:
            names = [name for name, each in zip(self.names, which, strict=True) if each]
            while len(self._batched) >= _BATCHED_KEPT:
                del self._batched[next(iter(self._batched))]
            self._batched[key] = CompiledGraph(self.here, batched_graph(self.recorded, names, size), self.kept)
        return self._batched[key]


_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")

_OUTSIDE = (
    "a planned graph runs on all sites by its own plan, outside of compiled graphs; in a function for joinsum.compile "
    "call joinsum.einsum or torch's operators, which it plans together"
)


def _has_both_infinities(tensors: Sequence[torch.Tensor]) -> bool:
    real = [x for x in tensors if x.is_floating_point() and x.numel() > 0]
    return any(_has(x, -torch.inf) for x in real) and any(_has(x, torch.inf) for x in real)


def _has(tensor: torch.Tensor, infinity: float) -> bool:
    extreme = tensor.amin() if infinity < 0 else tensor.amax()
    return bool((tensor == infinity).any() if extreme.isnan() else extreme == infinity)


def _is_smooth(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def checksum(tensor: torch.Tensor) -> int:
    """A number, modulo 2^64, of the elements and their order: tensors that differ hardly ever share it."""
    flat = tensor.contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8)
    total = 0
    for begin in range(0, flat.numel(), _CHUNK):
        part = flat[begin : begin + _CHUNK].to(torch.int64)
        place = torch.arange(begin + 1, begin + 1 + part.numel(), device=part.device)
        total += int((part * (place * 0x1E3779B97F4A7C15 ^ (place << 7))).sum())
    return total % 2**64


# --- autograd and functorch -------------------------------------------------------------------------------------------


class _Differentiable(torch.autograd.Function):
    """A graph in torch's autograd: its backward pass is the graph of the gradients, in autograd again; so is its
    derivative forward, the gradient of the gradients' graph for what arrives at it, in which that graph is linear."""

    @staticmethod
    def forward(compiled: CompiledGraph, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(_no_view(x) for x in compiled.run(tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        compiled, *tensors = inputs
        ctx.compiled = compiled
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        rough = [x for x, smooth in zip(output, compiled.differentiable, strict=True) if not smooth]
        ctx.mark_non_differentiable(*rough)

    @staticmethod
    def backward(ctx: Any, *arrived: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return (None, *gradients(ctx.compiled, tuple(ctx.needs_input_grad[1:]), ctx.saved_tensors, arrived))

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        compiled: CompiledGraph = ctx.compiled
        nothing = _zeros(compiled, ctx.saved_tensors[0].device)
        smooth = map(_is_smooth, compiled.dtypes)
        moving = tuple(x is not None and each for x, each in zip(tangents, smooth, strict=True))
        gradient = compiled.gradient(moving) if any(moving) else None
        if gradient is None:
            return _tangents(compiled, nothing)
        linear = gradient.gradient(tuple(name.startswith("d_z") for name in gradient.names))
        if linear is None:
            return _tangents(compiled, nothing)
        values = _numbered("x", ctx.saved_tensors) | _numbered("d_z", nothing)
        directions = {f"d_x{i}": tangent for i, tangent in enumerate(tangents) if tangent is not None}
        values = _numbered("x", [values[name] for name in gradient.names])
        values |= _numbered("d_z", [directions[name] for name in gradient.outputs])
        made = _by_name(linear, values)
        places = {name: f"d_x{i}" for i, name in enumerate(gradient.names)}
        return _tangents(compiled, [made.get(places.get(f"d_z{i}", ""), zeros) for i, zeros in enumerate(nothing)])

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], compiled: CompiledGraph, *tensors: torch.Tensor
    ) -> tuple[tuple[torch.Tensor, ...], tuple[int | None, ...]]:
        dims = in_dims[1:]
        which = tuple(dim is not None for dim in dims)
        names = [name for name, each in zip(compiled.names, which, strict=True) if each]
        reached = depending(compiled.recorded, names)
        batched = compiled.batched(which, info.batch_size)
        moved = {
            name: x if dim is None else x.movedim(dim, 0)
            for name, x, dim in zip(compiled.names, tensors, dims, strict=True)
        }
        made = _by_name(batched, moved)
        nodes = zip(compiled.outputs, compiled.recorded.output_nodes, strict=True)
        out_dims = tuple(0 if node in reached else None for _, node in nodes)
        return tuple(made[name] for name in compiled.outputs), out_dims


def gradients(
    compiled: CompiledGraph, needed: tuple[bool, ...], tensors: Sequence[torch.Tensor], arrived: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """Gradients of the inputs, in autograd; None where one is not needed, or no output depends on it.

    arrived   the gradients of the outputs
    """
    gradient = compiled.gradient(needed)
    if gradient is None:
        return [None] * len(compiled.names)
    made = _by_name(gradient, _numbered("x", tensors) | _numbered("d_z", arrived))
    return [made.get(f"d_x{i}") for i in range(len(compiled.names))]


def _no_view(x: torch.Tensor) -> torch.Tensor:
    """The same memory as a tensor of its own: autograd lets no result that is a view be changed in place."""
    if not x._is_view():
        return x
    return x.new_empty(0).set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride())


def _numbered(letter: str, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"{letter}{i}": tensor for i, tensor in enumerate(tensors)}


def _zeros(compiled: CompiledGraph, device: torch.device) -> list[torch.Tensor]:
    """Zeros for each output."""
    return [
        torch.zeros(extents, dtype=torch_dtype(dtype), device=device)
        for _, (dtype, extents) in compiled.recorded.outputs
    ]


def _tangents(compiled: CompiledGraph, values: Sequence[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
    """One for each output that is differentiable."""
    return tuple(x if smooth else None for x, smooth in zip(values, compiled.differentiable, strict=True))


def _by_name(compiled: CompiledGraph, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    tensors = [values[name] for name in compiled.names]
    if any(_is_batch(x) for x in tensors):
        return _of_batches(compiled, tensors)
    return dict(zip(compiled.outputs, differentiable_run(compiled, tensors), strict=True))


_is_batch = torch._C._functorch.is_legacy_batchedtensor


def _of_batches(compiled: CompiledGraph, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same inside autograd's own vmap, which is not functorch's: `torch.autograd.grad(..., is_grads_batched=True)`
    and `torch.autograd.functional.jacobian(..., vectorize=True)` hand the backward pass samples as one tensor."""
    level = torch._C._vmapmode_increment_nesting()
    torch._C._vmapmode_decrement_nesting()
    level -= 1  # of the innermost vmap, which is at work
    # A tensor of outer vmaps alone gets an axis of the extent that is given, 0, which no vmap has.
    opened = [torch._remove_batch_dim(x, level, 0, 0) if _is_batch(x) else None for x in tensors]
    which = tuple(x is not None and x.shape[0] > 0 for x in opened)
    inner = [x if x is not None and each else plain for x, each, plain in zip(opened, which, tensors, strict=True)]
    size = next(x.shape[0] for x, each in zip(inner, which, strict=True) if each)
    batched = compiled.batched(which, size)
    names = [name for name, each in zip(compiled.names, which, strict=True) if each]
    reached = depending(compiled.recorded, names)
    made = _by_name(batched, dict(zip(compiled.names, inner, strict=True)))
    nodes = dict(zip(compiled.outputs, compiled.recorded.output_nodes, strict=True))
    return {name: torch._add_batch_dim(x, 0, level) if nodes[name] in reached else x for name, x in made.items()}


def check_not_traced(who: str) -> None:
    """Raises PlanError inside `torch.jit.trace`: its recording would have this call's result as a constant. `who` opens
    the message."""
    if torch._C._get_tracing_state() is not None:
        raise PlanError(f"{who}: torch.jit.trace cannot record what sites run; use torch.compile or joinsum.compile")


def check_not_transformed(who: str) -> None:
    """Raises PlanError inside a transform of `torch.func` in a function that is compiled: torch lets no operator stand
    there that is registered in Python. `who` opens the message."""
    if torch._C._are_functorch_transforms_active():
        raise PlanError(
            f"{who}: a compiled function cannot transform it (torch.func.grad, vmap, jvp); transform the compiled "
            "function, or take torch's operators there"
        )


_Mode = torch._C._TorchDispatchModeKey


def recording() -> bool:
    """Whether torch records operators, to run them again on other tensors, or tells shapes of tensors without data:
    `make_fx`, `torch.export`, and what is below `torch.compile`."""
    return any(torch._C._get_dispatch_mode(mode) is not None for mode in (_Mode.PROXY, _Mode.FUNCTIONAL, _Mode.FAKE))


def outside_of_graphs(function: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """The function, which Dynamo leaves out of what it compiles: it breaks the graph there, and where it may not break
    it says why. As `torch.compiler.disable`, which would load Dynamo with joinsum."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = _OUTSIDE  # type: ignore[attr-defined]
    return function


def differentiable_run(compiled: CompiledGraph, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The outputs, in autograd where it asks for that: an input requires a gradient or has a tangent, or functorch is
    at work."""
    check_not_traced("einsum")
    transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    if not transformed and recording():
        return compiled.recorded_run(tensors)
    if transformed or (torch.is_grad_enabled() and any(x.requires_grad for x in tensors)):
        return tuple(_Differentiable.apply(compiled, *tensors))  # type: ignore[no-untyped-call]
    return compiled.run(tensors)
