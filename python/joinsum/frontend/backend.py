"""`joinsum.compile`, and the backend of `torch.compile(..., backend="joinsum")`."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import torch
from torch.nn import Parameter

from joinsum.base.arguments import show
from joinsum.base.errors import CaptureError, PlanError
from joinsum.capture.captured_graph import CapturedGraph, SparseEntries
from joinsum.capture.recording.symbolic_numbers import SymbolicNumbers
from joinsum.capture.rewrite import SPARSE_GRADIENT
from joinsum.cluster.context import context
from joinsum.distributed.distributed_tensor import DistributedTensor
from joinsum.frontend.lookups import SparseGradient, take_sparse_gradients
from joinsum.frontend.program import Program, keep_labels
from joinsum.frontend.saved_tensors import (
    SavedForBackward,
    check_elements,
    check_unwritten,
    memory_of,
    separate_results,
)
from joinsum.frontend.tracing.errors import capturing, compiling, compiling_for_torch
from joinsum.frontend.tracing.hugging_face import prepare_models
from joinsum.frontend.tracing.sizes import GraphBySize, Make, Sizes
from joinsum.frontend.tracing.torch_internals import (
    aot_compile,
    backward_names,
    break_of,
    check_differentiated_once,
    function_results,
    is_batched,
    placeholder_names,
    tracing_all,
    with_own_code,
)

__all__ = ["ForwardAndBackward", "backend", "compile", "names_of_operators"]

_TWICE = (
    "backward: gradients of what runs as a plan have no derivatives themselves (create_graph=True); write the whole "
    "step, the penalty on gradients included, as the model or the loss function of joinsum.train_step, with "
    "x.clone().requires_grad_(True) for the input, or use the plain model"
)
_BATCHED = (
    "batched gradients (is_grads_batched, vectorize=True) do not reach what runs as a plan; use "
    "torch.autograd.functional.jacobian without vectorize"
)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def compile(function: Callable[Parameters, Result], *, replicate: Collection[str] = ()) -> Callable[Parameters, Result]:
    """Compiles a function of tensors, or a model, to graphs that are planned and run on all sites, with gradients.

    torch.compile captures the function as one graph for each set of shapes. Its results are those of torch. What the
    forward pass saves for the backward pass stays on the sites. On a process group all ranks call it with equal
    tensors.

    replicate   operators that joinsum has no rule for, such as `"aten::special_bessel_j0"`: every site runs them on
                unsharded tensors

    Raises CaptureError, with the line, if the function cannot be one graph, and for an operator that is not captured;
    PlanError for tensors on another device than the sites'.
    Source: EinDecomp paper, section 9.

        @joinsum.compile
        def attend(query, key, value):
            return torch.softmax(query @ key.T, -1) @ value
    """
    if not callable(function):
        raise PlanError(f"compile: a function of tensors or a model: got={show(function)}")
    named = names_of_operators("compile", replicate)
    model = function if isinstance(function, torch.nn.Module) else None
    if model is not None:
        if getattr(model.__dict__.get("forward"), "is_planned", False):
            raise PlanError(
                "compile: the model's parameters are stored on the sites, and its calls are planned already; call it "
                "as it is, or take the parameters back with step.sync() or joinsum.gather(model, optimizer)"
            )
        prepare_models(model.modules())

    def compiler(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return ForwardAndBackward(gm, example_inputs, replicate=named).call

    compiled: Callable[Parameters, Result] = torch.compile(with_own_code(function), backend=compiler, fullgraph=True)

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with capturing("compile", model), tracing_all():
            return compiled(*args, **kwargs)

    return call


def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """A backend of torch.compile that runs graphs on all sites: `torch.compile(model, backend="joinsum")`.

    options   those of torch.compile: `options={"replicate": ["aten::..."]}`, as for `joinsum.compile`

    Warns at graph breaks: torch runs the code between the graphs.
    """
    with compiling_for_torch("compile"):
        return _by_backend(gm, example_inputs, options)


def _by_backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], options: dict[str, Any]) -> Callable[..., Any]:
    own = dict(options.pop("options", None) or {})
    replicate = names_of_operators("compile", own.pop("replicate", ()))
    if options or own:
        raise PlanError(f"compile: the backend has one option, replicate: options={show({**options, **own})}")
    place = break_of(gm)
    if place is not None:
        warnings.warn(
            f"compile: not one graph: at {place}; torch runs the code between the graphs, undivided in every process; "
            "fullgraph=True raises instead, with the reason",
            stacklevel=3,
        )
    return ForwardAndBackward(gm, example_inputs, replicate=replicate).call


def names_of_operators(who: str, replicate: Collection[str]) -> frozenset[str]:
    """The names of operators that every site runs on unsharded tensors. Raises PlanError for anything else."""
    if isinstance(replicate, str) or not all(isinstance(name, str) and "::" in name for name in replicate):
        raise PlanError(
            f'{who}: replicate is a list of operators, as ["aten::special_bessel_j0"]: got={show(replicate)}'
        )
    return frozenset(replicate)


class ForwardAndBackward:
    """A Dynamo graph compiled to a function of its inputs, with gradients.

    names      names of the inputs; by default those of the user's variables
    state      for each input the model's tensor that it is, or None. The gradient of a distributed one has its layout
    replicate  operators without a rule, which every site runs on unsharded tensors
    moving     positions of inputs that the plan may move to other layouts; those among them that the graph writes into
               stay distributed. Where given, the graph is made ready to run only by `choose`, and `stay` is set before
    sharded    results whose first extent is one of these stay distributed, also in autograd
    sparse     for inputs that are sparse, by name, what is known of their elements

    Tables whose gradients torch would make sparse get sparse ones, where lookups alone read them.
    """

    # Positions of results that stay distributed, in a graph without gradients.
    stay: frozenset[int] = frozenset()

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        example_inputs: Sequence[Any],
        names: Sequence[str] | None = None,
        state: Sequence[Any] = (),
        replicate: Collection[str] = (),
        moving: Collection[int] | None = None,
        sharded: Collection[int] = (),
        sparse: Mapping[str, SparseEntries] | None = None,
    ) -> None:
        check_devices(example_inputs)
        self._names = placeholder_names(gm) if names is None else names
        keep_labels(gm, bool(sparse))
        placeholders = enumerate(gm.graph.find_nodes(op="placeholder"))
        self._tables = [i for i, node in placeholders if node.meta.get(SPARSE_GRADIENT)]
        self._state = state
        self._persistent = [
            i for i, x in enumerate(state or example_inputs) if isinstance(x, torch.Tensor if state else Parameter)
        ]
        self._replicate = replicate
        self._sharded = frozenset(sharded)
        # A backward pass may need even cuts of what a forward pass leaves it.
        self._sparse = {name: SparseEntries(each.count) for name, each in (sparse or {}).items()}
        self._waits, self._moving = moving is not None, frozenset(moving or ())
        self._passes: list[GraphBySize[_Pass]] = []
        self._call = aot_compile(gm, example_inputs, self._forward, self._backward)

    def call(self, *args: Any) -> Any:
        """The graph's results, in autograd."""
        results = self._call(*args)
        check_differentiated_once(results, _TWICE)
        return results

    @property
    def programs(self) -> list[Program]:
        """The programs that ran last: the forward one, and the backward one once it is captured."""
        return [each.latest.program for each in self._passes]

    def choose(self, sizes: Sizes) -> None:
        """Makes the programs for these sizes those of `programs`, without a run."""
        with compiling():
            for each in self._passes:
                each.at(sizes)

    def _forward(self, gm: torch.fx.GraphModule, inputs: Sequence[Any], saved: frozenset[int]) -> Callable[..., Any]:
        known = self._names if len(self._names) == len(inputs) else None
        # On one site plain tensors are saved.
        stay = saved if context().sites > 1 else frozenset[int]()
        own = function_results()

        def make(graph: torch.fx.GraphModule, inputs: Sequence[Any], numbers: SymbolicNumbers | None) -> _Pass:
            check_elements(graph.graph, stay, self._persistent)
            separate_results(graph.graph, saved, stay)
            protected = SavedForBackward(graph.graph, stay) if stay else None
            distributed = {own[i] for i in self.stay if i < len(own)} | self._shards(graph.graph, own)
            captured = CapturedGraph(
                graph,
                inputs,
                known,
                stay=stay | distributed,
                state=self._persistent,
                moving=self._moving,
                replicate=self._replicate,
                numbers=numbers,
                sparse=self._sparse,
            )
            return _Pass(Program(captured, self._moving), protected=protected)

        return self._added(gm, inputs, make)

    def _shards(self, graph: torch.fx.Graph, positions: Sequence[int]) -> set[int]:
        """Which of these results are as long as a sharded batch."""
        if not self._sharded:
            return set()
        entries: Any = graph.output_node().args[0]
        values = {i: entries[i].meta.get("val") for i in positions if isinstance(entries[i], torch.fx.Node)}
        shaped = {i: x for i, x in values.items() if isinstance(x, torch.Tensor) and x.dim() > 0}
        return {i for i, x in shaped.items() if int(x.shape[0]) in self._sharded}

    def _backward(self, gm: torch.fx.GraphModule, inputs: Sequence[Any], _: frozenset[int]) -> Callable[..., Any]:
        stay = {i for i, x in enumerate(self._state) if isinstance(x, torch.Tensor)}

        def make(graph: torch.fx.GraphModule, inputs: Sequence[Any], numbers: SymbolicNumbers | None) -> _Pass:
            names = backward_names(graph, self._names)
            tables = take_sparse_gradients(graph.graph, self._tables)
            captured = CapturedGraph(
                graph, inputs, names, stay=stay, replicate=self._replicate, numbers=numbers, sparse=self._sparse
            )
            return _Pass(Program(captured), self._state, tables=tables)

        run = self._added(gm, inputs, make)

        def checked(args: list[Any]) -> Any:
            if is_batched(args):
                raise CaptureError(f"backward: {_BATCHED}")
            check_unwritten(args)
            return run(args)

        return checked

    def _added(self, gm: torch.fx.GraphModule, inputs: Sequence[Any], make: Make[_Pass]) -> Callable[..., Any]:
        made = GraphBySize(gm, inputs, make)
        if not self._waits:
            with compiling():
                _ = made.latest
        self._passes.append(made)

        def run(args: list[Any]) -> Any:
            with compiling():
                program = made.of(args)
            return program.run(args)

        return run


class _Pass:
    """A forward or backward pass for one set of sizes."""

    def __init__(
        self,
        program: Program,
        state: Sequence[Any] = (),
        protected: SavedForBackward | None = None,
        tables: Sequence[SparseGradient] = (),
    ) -> None:
        self.program = program
        self._state = state
        self._protected = protected
        self._tables = tables

    def resized(self, sizes: Sizes, full: Callable[[], _Pass]) -> _Pass | None:
        """The pass for other sizes; None where they need another graph."""
        program = self.program.resized(sizes, lambda: full().program)
        return None if program is None else _Pass(program, self._state, self._protected, self._tables)

    def run(self, args: list[Any]) -> list[Any]:
        """The results; the list of arguments may be emptied."""
        program, protected = self.program, self._protected
        places = {position: args[position] for position in program.written}
        inputs = None if protected is None else list(args)
        outcome = program.run(args)
        results = outcome.results
        written = {places[position]: value for position, value in outcome.written.items()}
        written = {place: value for place, value in written.items() if value is not place}
        if protected is not None and written:
            protected.separate(list(written), results)
        for place, value in written.items():
            place.copy_(value)
        if protected is not None and inputs is not None:
            protected.protect(inputs, results)
        seen: set[int] = set()
        for i, tensor in enumerate(self._state):
            if isinstance(tensor, torch.Tensor) and results[i] is not None:
                results[i] = _with_own_memory(_in_layout_of(tensor, results[i]), seen)
        if self._tables:
            for each in self._tables:
                results[each.position] = each.of(results)
            del results[self._tables[0].first :]
        return results


def _with_own_memory(value: torch.Tensor, seen: set[int]) -> torch.Tensor:
    """The gradient, or a copy if another gradient shares its memory, because optimizers write gradients in place."""
    pointers = memory_of([value])
    shared = not pointers.isdisjoint(seen)
    seen |= pointers
    return value.clone() if shared else value


def _in_layout_of(tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """`value` in the layout of `tensor`: distributed in memory of its own, or plain."""
    if isinstance(tensor, DistributedTensor):
        type_ = tensor.physical_type
        return value.like(type_) if isinstance(value, DistributedTensor) else DistributedTensor.stored_as(value, type_)
    return value.unsharded() if isinstance(value, DistributedTensor) else value


def check_devices(inputs: Sequence[Any]) -> None:
    """Raises PlanError for tensors on several devices, or on another kind of device than the sites'."""
    sites = context()
    found = {x.device for x in inputs if isinstance(x, torch.Tensor)}
    # torch combines scalars on the CPU with tensors on any device.
    real = {x.device for x in inputs if isinstance(x, torch.Tensor) and x.dim() > 0} or found
    if len(real) > 1:
        raise PlanError(f"compile: tensors on several devices: devices={sorted(map(str, real))}; move them to one")
    wanted = sites.device.type
    if not sites.loopback and any(device.type != wanted for device in real):
        raise PlanError(
            f"compile: tensors on another device than the sites: tensors={next(iter(real))}, sites={sites.device}; "
            f"move the model with model.to({wanted!r}), and the tensors"
        )
    if any(device.type == "meta" for device in real):
        raise PlanError("compile: tensors without data: device=meta; pass tensors on the CPU or a GPU")
