"""Graphs of einsums that are planned once for the sites there are, and run often."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn

import torch

from joinsum import _C
from joinsum.algebra.plan import IaPlan, TraPlan
from joinsum.algebra.sources import is_sparse
from joinsum.base.arguments import shape_text, show
from joinsum.base.dtypes import torch_dtype
from joinsum.base.errors import PlanError
from joinsum.base.text_table import count_text, seconds_text, text_table
from joinsum.cluster.context import Context, context
from joinsum.execution.autograd import differentiable_run, gradients, is_differentiable
from joinsum.execution.balanced_plans import BalancedPlans
from joinsum.execution.operands import (
    check_not_traced,
    check_tensors,
    checksum_of,
    outside_of_graphs,
    recording,
    share_memory,
)
from joinsum.execution.sparse_blocks import array_of, placed
from joinsum.graphs.contraction_order import Order
from joinsum.graphs.equation import position_inputs, positions
from joinsum.graphs.graph import Graph
from joinsum.graphs.transforms import batched_graph, numbered
from joinsum.planner.cost import PlanCost, cost
from joinsum.planner.graph_steps import Step, order_text, steps_of
from joinsum.planner.plan_choice import PlanChoice, PlanRequest, choose

__all__ = ["PlannedGraph", "check_shape"]

_MOST_BATCHED = 64  # batched forms of one graph: the last ones


class PlannedGraph:
    """A graph of einsums with its plan for the sites there are; `joinsum.Graph.plan` makes one. It prints as a table of
    its steps.

    Calling it with the inputs, in order or by name, gives the outputs by name, in torch's autograd. Raises PlanError
    for inputs of another shape or dtype than planned, naming them, and where `joinsum.init` has set up other sites.
    Inputs `Z.positions` of 64-bit integers, which argmax and argmin read, are not arguments.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> g = joinsum.Graph()
    >>> x, y = g.input("X", (4, 6)), g.input("Y", (6, 4))
    >>> g.output("Z", g.einsum("ij,jk->ik", x, y))
    >>> run = g.plan()
    >>> run(torch.ones(4, 6), torch.ones(6, 4))["Z"].shape
    torch.Size([4, 4])
    >>> run(torch.ones(4, 6), torch.ones(6, 5))
    Traceback (most recent call last):
    ...
    joinsum.PlanError: plan: an input has another shape than planned: input=Y, planned=[6, 4], given=[6, 5]
    """

    # The plan is chosen at the first use. Gradients and batched forms are planned graphs too, each built once.

    def __init__(self, current: Context, core: _C.EinsumPlan, cache: bool = True) -> None:
        self.context = current
        self.core = core
        self._cache = cache
        self.names = [name for name, _ in core.inputs]
        self.dtypes = [torch_dtype(dtype) for _, (dtype, _) in core.inputs]
        self.outputs = [name for name, _ in core.outputs]
        self._positions = position_inputs(core)
        self._arguments = {name: each for name, each in core.inputs if name not in self._positions}
        self._sparse = frozenset(core.sparse_inputs)
        self._last: tuple[_C.IaPlan, dict[str, _C.PhysicalType]] | None = None  # that ran, and where inputs were wanted
        self._compared = False  # whether the ranks' operands were once found equal
        self._gradients: dict[tuple[tuple[bool, ...], bool], PlannedGraph | None] = {}
        self._batched: dict[tuple[tuple[bool, ...], int], PlannedGraph] = {}

    def __deepcopy__(self, _: object) -> PlannedGraph:
        return self  # nothing in it changes: a copy of a module that has a plan runs the same one

    def __reduce__(self) -> NoReturn:
        raise PlanError(
            "plan: a plan for the sites there are is not pickled; pickle its graph, and plan that where it is loaded, "
            "with graph.plan()"
        )

    # --- the plan -----------------------------------------------------------------------------------------------------

    @cached_property
    def choice(self) -> PlanChoice:
        """The plan, and what it was computed from. On a process group all ranks must call."""
        with torch._C._DisableFuncTorch():  # messages between sites are no part of a transform
            return choose(self.context, self._request)

    @property
    def _request(self) -> PlanRequest:
        return PlanRequest(self.core, self._cache)

    @cached_property
    def _balanced(self) -> BalancedPlans:
        """The same plan for the entries that sparse inputs have."""
        return BalancedPlans(self.context, self._request, self.choice, sorted(self._sparse))

    def _plan_for(self, tensors: Sequence[torch.Tensor]) -> _C.IaPlan:
        """The plan that runs on these inputs."""
        if not self._sparse or self.context.sites == 1:
            return self.choice.plan
        return self._balanced.plan_for(dict(zip(self.names, tensors, strict=True)))

    @property
    def graph(self) -> Graph:
        """What is computed."""
        return Graph.of_core(self.core)

    @property
    def binary(self) -> Graph:
        """The same from einsums of at most two operands, in the order that they are joined."""
        return Graph.of_core(self.choice.binary)

    @property
    def orders(self) -> dict[str, Order]:
        """In which order vertices of more than two operands are joined, by their names in `graph`, and which orders
        were compared; of joins that are taken from the left there is none."""
        return dict(self.choice.orders)

    @property
    def program(self) -> TraPlan:
        """The logical plan."""
        return self.choice.program

    @cached_property
    def plan(self) -> IaPlan:
        """The physical plan; its outputs are on every site."""
        return IaPlan(self.choice.plan)

    @property
    def last_plan(self) -> IaPlan:
        """The plan of the last run: where sparse inputs have their entries unevenly, the same with other cuts."""
        return self.plan if self._last is None else IaPlan(self._last[0])

    @cached_property
    def cost(self) -> PlanCost:
        """The plan's costs, node by node, on the cluster that it was chosen for, with evenly spread entries."""
        return cost(self.plan, self.context.cluster)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The plan's steps, in order."""
        return steps_of(self.choice.binary, self.plan, self.cost)

    @property
    def origin(self) -> str:
        """Where the plan comes from: "planned here", and why a cached plan was rejected; or "cached in" a file."""
        return self.choice.origin

    @cached_property
    def _types(self) -> dict[str, _C.PhysicalType]:
        """Where the plan that was chosen wants its inputs."""
        return dict(self.choice.plan.inputs)

    def __repr__(self) -> str:
        current, total = self.context, self.cost
        names = f"{', '.join(self._arguments)} -> {', '.join(self.outputs)}"
        sites = f"{current.sites} site{'s' if current.sites > 1 else ''}"
        title = f"plan of {names}, on {sites} ({current.grid}), {self.origin}"
        compared = "; ".join(f"{name}: {order}" for name, order in self.orders.items())
        order = text_table(["einsum", "labels", "operands"], order_text(self.choice.binary))
        order_title = f"order ({compared})" if compared else "order"
        header = ["step", "operation", "parts", "placement", "wire B", "time"]
        rows = [_row(step) for step in self.steps]
        rows.append(["total", "", "", "", count_text(total.wire_bytes), seconds_text(total.seconds)])
        return f"{title}\n{order_title}\n{order}\nsteps\n{text_table(header, rows, right=range(4, 6))}"

    # --- calls --------------------------------------------------------------------------------------------------------

    @outside_of_graphs
    def __call__(self, *tensors: torch.Tensor, **named: torch.Tensor) -> dict[str, torch.Tensor]:
        """The outputs by name, for all inputs, in their order or by name."""
        with self.context.preparing("run"):
            check_not_traced("plan")
            values = self._by_name(tensors, named)
            self._check(values)
            values |= {name: array_of(f"plan: input {name}", values[name]) for name in self._sparse}
        device = next(iter(values.values())).device
        values |= {name: positions(extents, device) for name, extents in self._positions.items()}
        results = differentiable_run(self, [values[name] for name in self.names])
        return dict(zip(self.outputs, results, strict=True))

    def _by_name(self, tensors: Sequence[torch.Tensor], named: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        names = list(self._arguments)
        if len(tensors) > len(names):
            raise PlanError(f"plan: too many inputs: given={len(tensors)}, inputs={names}")
        values = dict(zip(names, tensors, strict=False))
        for name, value in named.items():
            if name not in names or name in values:
                what = "an input is given twice" if name in values else "no such input"
                raise PlanError(f"plan: {what}: input={show(name)}, inputs={names}")
            values[name] = value
        for name in names:
            if name not in values:
                raise PlanError(f"plan: an input is not given: input={name}, inputs={names}")
        return {name: values[name] for name in names}

    def check_sites(self) -> None:
        """Raises PlanError where `joinsum.init` has set up other sites since."""
        if context() is not self.context:
            raise PlanError(f"plan: it was made for other sites; plan again: planned={self.context}, now={context()}")

    def _check(self, values: Mapping[str, Any]) -> None:
        self.check_sites()
        for name, (dtype, extents) in self._arguments.items():
            tensor = values[name]
            if is_sparse(tensor) != (name in self._sparse):
                kind = "sparse" if name in self._sparse else "dense"
                raise PlanError(f"plan: an input was planned {kind}: input={name}, given={show(tensor)}")
            if not isinstance(tensor, torch.Tensor) and name not in self._sparse:
                raise PlanError(f"plan: an input is a tensor: input={name}, given={type(tensor).__name__}")
            check_shape("input", name, tensor, extents)
            if tensor.dtype is not torch_dtype(dtype):
                raise PlanError(
                    f"plan: an input has another dtype than planned: input={name}, planned={torch_dtype(dtype)}, "
                    f"given={tensor.dtype}"
                )
        dense = {f"input {name}": tensor for name, tensor in values.items() if name not in self._sparse}
        check_tensors("plan", dense)

    # --- runs of all inputs, the positions among them -----------------------------------------------------------------

    @cached_property
    def differentiable(self) -> list[bool]:
        """For each output whether it depends on an input by floating values alone, as torch's that require gradients:
        integers and truth values on the path stop gradients."""
        named = zip(self.names, self.dtypes, strict=True)
        return self.core.differentiable_outputs([name for name, dtype in named if is_differentiable(dtype)])

    @cached_property
    def _keeping_nans(self) -> PlannedGraph | None:
        """The same, without aggregating an infinity before it meets one of the other sign; slower, as it joins all
        operands of such a vertex first. None where there is none."""
        if not self.core.may_lose_nans:
            return None
        return PlannedGraph(self.context, self.core.binary_where_nans_stay(), self._cache)

    def run(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The outputs, for one tensor for each of the inputs; no gradients. Where torch records operators, the graph is
        one of them: it is planned with the others, or when the recording runs."""
        current = self.context
        if isinstance(tensors, Mapping):
            named = ", ".join(f"{name}=..." for name in tensors)
            raise PlanError(f"plan: run takes a list in the order of the inputs; call the plan itself: plan({named})")
        if recording():
            return self.recorded_run(tensors)
        smooth = [x.requires_grad for x in tensors]
        tensors = [_plain(x) for x in tensors]
        if self._keeping_nans is not None and _has_both_infinities(tensors):
            return self._keeping_nans.run(tensors)
        if not current.single_process and (not self._compared or os.environ.get("JOINSUM_CHECK", "0") not in ("", "0")):
            self._compare(tensors, smooth)
            self._compared = True
        plan, last = self._plan_for(tensors), self._last
        types = last[1] if last is not None and last[0] is plan else dict(plan.inputs)
        self._last = plan, types
        relations = {
            name: placed(current, tensor, types[name])
            for name, tensor in zip(self.names, tensors, strict=True)
            if name in types  # an expression need not read its operands
        }
        results = current.execute(plan, relations, {})
        operands = {x.untyped_storage().data_ptr() for x in tensors if not x.is_sparse}
        return tuple(self._whole(results[name], operands) for name in self.outputs)

    def recorded_run(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The same as one of torch's operators, in autograd."""
        # The operands' values are not known yet.
        graph = self.core if self._keeping_nans is None else self._keeping_nans.core
        values = dict(zip(self.names, tensors, strict=True))
        return tuple(torch.ops.joinsum.einsum_graph(str(graph), [values[name] for name, _ in graph.inputs]))

    def _whole(self, relation: _C.StoredRelation, operands: set[int]) -> torch.Tensor:
        """The result as a tensor that shares no memory with an operand."""
        whole = relation.whole_tensor(self.context.store)
        if whole.is_sparse:
            return whole.clone()
        own = whole.untyped_storage().data_ptr() not in operands and 0 not in whole.stride()
        return whole if own else whole.clone(memory_format=torch.contiguous_format)

    def _compare(self, tensors: Sequence[torch.Tensor], smooth: Sequence[bool]) -> None:
        """Raises where the ranks' graphs or operands differ, or which of these require a gradient: a rank would wait
        for the others' backward passes."""
        lines = [
            f"operand {i} ({name}): {list(x.shape)} {x.dtype}{', requires a gradient' * needed}, "
            f"checksum {checksum_of(x)}"
            for i, (name, x, needed) in enumerate(zip(self.names, tensors, smooth, strict=True))
        ]
        opening = "equal calls with equal operands on every rank\n" + str(self.core)
        self.context.transport.agree("einsum", opening + "\n".join(lines))

    def gradient(self, needed: tuple[bool, ...]) -> PlannedGraph | None:
        """The graph of those inputs' gradients; None where no output depends on them differentiably. It calls the
        inputs x0, x1, ... in order, what arrives at the outputs d_z0, d_z1, ..., and the gradients d_x0, d_x1, ..."""
        key = (needed, recording())
        if key not in self._gradients:
            self._gradients[key] = self._gradient(*key) if any(self.differentiable) else None
        return self._gradients[key]

    def _gradient(self, needed: tuple[bool, ...], recorded: bool) -> PlannedGraph | None:
        """The graph: of the einsums of two operands that were chosen; while torch records, nothing is chosen yet."""
        graph = numbered(self.core, self.names)
        read = dict(graph.inputs)
        of = [f"x{i}" for i, each in enumerate(needed) if each and f"x{i}" in read]
        if not any(graph.differentiable_outputs(of)):
            return None
        names = zip(self.core.vertices, graph.vertices, strict=True)
        orders = {} if recorded else self.choice.orders
        paths = {new[0]: orders[old[0]].path for old, new in names if old[0] in orders}
        return PlannedGraph(self.context, graph.gradient(of, paths), self._cache)

    def batched(self, which: tuple[bool, ...], size: int) -> PlannedGraph:
        """The same for `size` samples at once: those inputs, and the outputs that depend on them, have an axis of that
        many elements in front."""
        key = (which, size)
        if key not in self._batched:
            names = [name for name, each in zip(self.names, which, strict=True) if each]
            while len(self._batched) >= _MOST_BATCHED:
                del self._batched[next(iter(self._batched))]
            self._batched[key] = PlannedGraph(self.context, batched_graph(self.core, names, size), self._cache)
        return self._batched[key]


def _row(step: Step) -> list[str]:
    parts = " ".join(f"{label}={count}" for label, count in step.parts.items())
    figures = [count_text(step.wire_bytes), seconds_text(step.seconds)]
    return [step.name, f"{step.operation}({', '.join(step.inputs)})", parts, step.placement, *figures]


def check_shape(kind: str, name: object, tensor: torch.Tensor, planned: Sequence[int]) -> None:
    """Raises PlanError for an input or operand of another shape than planned."""
    if list(tensor.shape) != list(planned):
        raise PlanError(
            f"plan: an {kind} has another shape than planned: {kind}={name}, planned={list(planned)}, "
            f"given={shape_text(tensor)}"
        )


def _arrays(x: torch.Tensor) -> list[torch.Tensor]:
    """A dense tensor, or what a sparse one consists of."""
    return [x.indices(), x.values()] if x.is_sparse else [x]


def _has_both_infinities(tensors: Sequence[torch.Tensor]) -> bool:
    real = [x for each in tensors for x in _arrays(each) if x.is_floating_point() and x.numel() > 0]
    return any(_has(x, -torch.inf) for x in real) and any(_has(x, torch.inf) for x in real)


def _has(tensor: torch.Tensor, infinity: float) -> bool:
    extreme = tensor.amin() if infinity < 0 else tensor.amax()
    return bool((tensor == infinity).any() if extreme.isnan() else extreme == infinity)


def _plan(graph: Graph, cache: bool) -> PlannedGraph:
    current = context()
    with current.preparing("einsum"):
        core = graph.core
    planned = _cached_graph(current, core) if cache else PlannedGraph(current, core, cache=False)
    _ = planned.choice
    return planned


def _cached_graph(current: Context, core: _C.EinsumPlan) -> PlannedGraph:
    return current.cached(("graph", str(core)), lambda: PlannedGraph(current, core))


Graph.planner = _plan


# --- a graph as one of torch's operators, which recordings hold -------------------------------------------------------
#
# Capture takes the einsums out of such an operator and plans them with all others. Run by itself, the operator is a
# graph with a plan of its own.


def _plain(x: torch.Tensor) -> torch.Tensor:
    """Without gradients. A sparse tensor that has none stays itself, as a cache may belong to it."""
    if x.is_sparse:
        return x.detach() if x.requires_grad else x
    return x.detach().resolve_conj().resolve_neg()


@torch.library.custom_op("joinsum::einsum_graph", mutates_args=())
def einsum_graph(graph: str, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of a graph, given by its text, for a tensor for each of its inputs.

    >>> text = "einsum\\ninput x: f32[2]\\noutput z = einsum[i->; id; add](x)"
    >>> einsum_graph(text, [torch.ones(2)])
    [tensor(2.)]
    """
    results: list[torch.Tensor] = []
    for tensor in _graph_of_text(graph).run(inputs):
        # Results may not share memory.
        shared = any(share_memory(tensor, each) for each in results)
        results.append(tensor.clone() if shared else tensor)
    return results


@einsum_graph.register_fake
def _(graph: str, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    outputs = _graph_of_text(graph).core.outputs
    return [inputs[0].new_empty(extents, dtype=torch_dtype(dtype)) for _, (dtype, extents) in outputs]


def _setup(ctx: Any, inputs: tuple[str, Sequence[torch.Tensor]], output: Sequence[torch.Tensor]) -> None:
    ctx.graph, tensors = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, arrived: Sequence[torch.Tensor]) -> tuple[None, list[torch.Tensor | None]]:
    tensors = ctx.saved_tensors
    return None, gradients(_graph_of_text(ctx.graph), tuple(x.requires_grad for x in tensors), tensors, arrived)


einsum_graph.register_autograd(_backward, setup_context=_setup)


def _graph_of_text(text: str) -> PlannedGraph:
    current = context()
    return current.cached(("graph", text), lambda: PlannedGraph(current, _C.EinsumPlan.parse(text)))
