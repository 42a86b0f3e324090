"""`joinsum.compile`, and the backend that `torch.compile(..., backend="joinsum")` finds."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any, ParamSpec, TypeVar

import torch
from torch.nn import Parameter

from joinsum.arguments import show
from joinsum.context import context
from joinsum.errors import PlanError
from joinsum.frontend import runner as runners
from joinsum.frontend.distributed_tensor import DistributedTensor
from joinsum.frontend.errors import capturing
from joinsum.frontend.kept import KeptForBackward, check_unwritten, memory_of, separate_results
from joinsum.frontend.program import Program
from joinsum.frontend.torch_internals import aot_compile, break_of, tracing_all

__all__ = ["backend", "compile", "forward_and_backward", "names_of_operators"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def compile(function: Callable[Parameters, Result], *, replicate: Collection[str] = ()) -> Callable[Parameters, Result]:
    """A function of tensors, or a model, as one graph that is planned and runs on all sites; forward and backward.

    The result of the function is torch's, and in autograd. It is captured by torch.compile, as a whole: a graph for
    each set of shapes. What the forward pass keeps for the backward pass stays on the sites. On a process group all
    ranks call with equal tensors.

    replicate   operators that joinsum has no rule for, as `"aten::linalg_inv_ex"`: each site runs them on whole tensors

    Raises CaptureError where the function cannot be one graph, naming the line, and for an operator that is not
    captured; PlanError for tensors on another device than the sites'.
    Source: EinDecomp paper, section 9.

        @joinsum.compile
        def attend(query, key, value):
            return torch.softmax(query @ key.T, -1) @ value
    """
    if not callable(function):
        raise PlanError(f"compile: a function of tensors or a model: got={show(function)}")
    named = names_of_operators("compile", replicate)

    def compiler(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return forward_and_backward(gm, example_inputs, replicate=named)

    compiled = torch.compile(function, backend=compiler, fullgraph=True, dynamic=False)

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with capturing("compile"), tracing_all():
            return compiled(*args, **kwargs)

    return call


def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """A backend of torch.compile: graphs run on all sites. `torch.compile(model, backend="joinsum")` finds it.

    options   of torch.compile: `options={"replicate": ["aten::..."]}`, as for `joinsum.compile`

    Warns where a function is no one graph: what stands between its graphs runs by torch.
    """
    given = dict(options.pop("options", None) or {})
    replicate = names_of_operators("compile", given.pop("replicate", ()))
    if options or given:
        raise PlanError(f"compile: the backend has one option, replicate: options={show({**options, **given})}")
    place = break_of(gm)
    if place is not None:
        warnings.warn(
            f"compile: not one graph: at {place}; what is between the graphs runs by torch, whole in every process; "
            "fullgraph=True refuses that, and says why",
            stacklevel=2,
        )
    return forward_and_backward(gm, example_inputs, replicate=replicate)


def names_of_operators(who: str, replicate: Collection[str]) -> frozenset[str]:
    """The operators that run whole on every site; raises PlanError for what is no name of one."""
    if isinstance(replicate, str) or not all(isinstance(name, str) and "::" in name for name in replicate):
        raise PlanError(f'{who}: replicate is a list of operators, as ["aten::linalg_inv_ex"]: got={show(replicate)}')
    return frozenset(replicate)


def forward_and_backward(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    names: Sequence[str] | None = None,
    state: Sequence[Any] = (),
    programs: list[Program] | None = None,
    replicate: Collection[str] = (),
) -> Callable[..., Any]:
    """A Dynamo graph, ready to be called with its inputs, in autograd.

    names      of the inputs
    state      for each input the tensor that a model keeps there, or None: gradients of those that are distributed lie
               as they do
    programs   takes the programs that are made, forward and then backward
    replicate  operators without a rule that run whole on every site
    """
    check_devices(example_inputs)
    runners.rewrite(gm)
    made = programs if programs is not None else []
    kept = [i for i, x in enumerate(state or example_inputs) if isinstance(x, torch.Tensor if state else Parameter)]

    def forward(graph: torch.fx.GraphModule, inputs: Sequence[Any], saved: Collection[int]) -> Callable[..., Any]:
        known = names if names is not None and len(names) == len(inputs) else None
        # On one site what the backward pass reads is torch's own.
        stay = saved if context().sites > 1 else frozenset[int]()
        separate_results(graph.graph, saved, stay)
        protected = KeptForBackward(graph.graph, stay) if stay else None
        program = Program(graph, inputs, names=known, stay=stay, kept=kept, replicate=replicate)
        made.append(program)
        return _runner(program, protected=protected)

    def backward(graph: torch.fx.GraphModule, inputs: Sequence[Any], _: Collection[int]) -> Callable[..., Any]:
        program = Program(
            graph, inputs, stay={i for i, x in enumerate(state) if isinstance(x, torch.Tensor)}, replicate=replicate
        )
        made.append(program)
        run = _runner(program, state)
        return _checked(run) if context().sites > 1 else run

    return aot_compile(gm, example_inputs, forward, backward)


def _checked(run: Callable[..., Any]) -> Callable[..., Any]:
    def checked(args: list[Any]) -> Any:
        check_unwritten(args)
        return run(args)

    return checked


def _runner(
    program: Program, state: Sequence[Any] = (), protected: KeptForBackward | None = None
) -> Callable[..., Any]:
    def run(args: list[Any]) -> list[Any]:
        places = {position: args[position] for position in program.written}
        given = None if protected is None else list(args)
        outcome = program.run(args)
        for position, value in outcome.written.items():
            places[position].copy_(value)
        results = outcome.results
        if protected is not None and given is not None:
            protected.protect(given, results)
        seen: set[int] = set()
        for i, tensor in enumerate(state):
            if isinstance(tensor, torch.Tensor) and results[i] is not None:
                results[i] = _with_own_memory(lying_as(tensor, results[i]), seen)
        return results

    return run


def _with_own_memory(value: torch.Tensor, seen: set[int]) -> torch.Tensor:
    """The gradient, or a copy where another one has its memory: gradients are written in place."""
    pointers = memory_of([value])
    shared = not pointers.isdisjoint(seen)
    seen |= pointers
    return value.clone() if shared else value


def lying_as(tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """`value`, distributed, as its own memory in blocks as those of `tensor`; whole where that is a plain tensor."""
    if not isinstance(value, DistributedTensor):
        return (
            value if not isinstance(tensor, DistributedTensor) else DistributedTensor.place(value, tensor.physical_type)
        )
    if not isinstance(tensor, DistributedTensor):
        return value.whole()
    return value.like(tensor.physical_type)


def check_devices(inputs: Sequence[Any]) -> None:
    """Raises PlanError for tensors on several devices, or on another kind of device than the sites'."""
    here = context()
    found = {x.device for x in inputs if isinstance(x, torch.Tensor)}
    # Scalars on the CPU go with any device.
    real = {x.device for x in inputs if isinstance(x, torch.Tensor) and x.dim() > 0} or found
    if len(real) > 1:
        raise PlanError(f"compile: tensors on several devices: devices={sorted(map(str, real))}; move them to one")
    wanted = here.device.type
    if not here.loopback and any(device.type != wanted for device in real):
        raise PlanError(
            f"compile: tensors on another device than the sites: tensors={next(iter(real))}, sites={here.device}; "
            f"give model.to({wanted!r}) and tensors there"
        )
    if any(device.type == "meta" for device in real):
        raise PlanError("compile: tensors without data: device=meta; give tensors on the CPU or a GPU")
