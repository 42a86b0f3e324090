"""Running plans, and interpreting them naively."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import torch

from joinsum import _C
from joinsum.algebra.expression import Expression, NamedSources, places_of
from joinsum.algebra.plan import IaPlan, TraPlan
from joinsum.algebra.sources import Source, TensorSource, is_sparse, sparse_array, stored_source
from joinsum.algebra.stored_relation import StoredRelation
from joinsum.base.arguments import check_array, shape_text, show
from joinsum.base.dtypes import torch_dtype
from joinsum.base.errors import PlanError
from joinsum.cluster.context import context
from joinsum.cluster.trace import Trace
from joinsum.planner.search import plan_of_run
from joinsum.sparse.sparse_tensor import SparseTensor

__all__ = ["Input", "Scalars", "evaluate_relation", "interpret", "rehearse", "run", "sources_of", "trace"]

# What a run takes as an input: a tensor, a lazy relation, or a stored one.
Input = torch.Tensor | SparseTensor | Expression | StoredRelation
Scalars = Mapping[str, float | torch.Tensor]


def run(
    plan: TraPlan | IaPlan, inputs: Mapping[str, Input], scalars: Scalars | None = None
) -> dict[str, StoredRelation]:
    """Runs a plan on the sites and gives its outputs by name; they stay where the plan left them.

    plan      a logical plan is planned first, for least seconds (`joinsum.optimize`); the plan is cached
    inputs    for each of the plan's inputs a tensor of the input's shape and dtype, cut and placed as the plan says; a
              lazy relation of its type, computed first if need be; or a stored relation, in the placement that the plan
              wants (a logical plan is planned to fit)
    scalars   values of the scalars that kernels name (`scale[$rate]`)

    A relation that an output is tied to may be overwritten: a stored one passed for that input cannot be used again; a
    tensor or lazy relation is copied first. On a process group every rank calls with an equal plan, checked before
    anything moves. Raises PlanError, KernelError, TransportError.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> plan = joinsum.parse('''tra
    ... input W: f32[4]<2>
    ... input G: f32[4]<2>
    ... output W2 -> W = join[0; 0; sub](W, transform[scale[$rate]](G))''')
    >>> state = {"W2": torch.zeros(4)}
    >>> for step in range(3):
    ...     state = joinsum.run(plan, {"W": state["W2"], "G": torch.ones(4)}, {"rate": 0.5})
    >>> state["W2"].to_tensor()
    tensor([-1.5000, -1.5000, -1.5000, -1.5000])
    """
    current = context()
    with current.preparing("run"):
        sources = sources_of("run", plan, inputs)
        lowered = plan if isinstance(plan, IaPlan) else plan_of_run(plan, places_of(sources))
        tied = set(lowered.ties.values())
        taken = [value for name, value in inputs.items() if name in tied and isinstance(value, StoredRelation)]
        copied = {name for name in tied if not isinstance(inputs[name], StoredRelation)}
        numbers = _checked_scalars(scalars)
        placed = _placed(lowered, sources, copied)
    return _run(lowered, placed, taken, numbers)


def evaluate_relation(plan: _C.TraPlan, sources: NamedSources) -> StoredRelation:
    """Runs the plan of one lazy relation."""
    with context().preparing("run"):
        lowered = plan_of_run(TraPlan(plan), places_of(sources))
        placed = _placed(lowered, sources, set())
    (output,) = _run(lowered, placed, [], {}).values()
    return output


def rehearse(plan: IaPlan, sources: NamedSources, scalars: Scalars | None) -> tuple[Trace, float]:
    """Runs a plan on copies of what it would overwrite and drops the results; what its nodes did, and its seconds."""
    current = context()
    with current.preparing("run"):
        numbers = _checked_scalars(scalars)
        placed = _placed(plan, sources, set(plan.ties.values()))
    start = time.perf_counter()
    current.execute(plan.core, placed, numbers)
    return current.last_trace, time.perf_counter() - start


def trace() -> Trace:
    """What the nodes of the last run did, one entry each; prints as a table. Moves that fetch results do not count.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> x = joinsum.relation(torch.ones(4), parts=2, place=[0], name="X")
    >>> _ = x.aggregate(keep=[]).tuples()
    >>> [(entry.node, entry.operation, entry.bytes_sent) for entry in joinsum.trace()]
    [('X', 'X', 0), ('t0', 'broadcast[0]', 16), ('t1', 'local_aggregate[; add]', 0)]
    """
    return context().last_trace


def interpret(
    plan: TraPlan | IaPlan, inputs: Mapping[str, Input], scalars: Scalars | None = None
) -> dict[str, list[tuple[tuple[int, ...], torch.Tensor]]]:
    """What a plan means, tuple by tuple and in float64, by the definitions alone: slow; `run` is tested against it.

    Takes what `run` takes, but for complex numbers and users' kernels; overwrites nothing. Gives the tuples of each
    output, ascending by key. Source: TRA paper, sections 3.1 and 4.

    >>> import joinsum, torch
    >>> plan = joinsum.parse("tra\\ninput X: f32[4]<2>\\noutput Y = aggregate[; add](X)")
    >>> joinsum.interpret(plan, {"X": torch.arange(4.)})
    {'Y': [((), tensor([2., 4.], dtype=torch.float64))]}
    """
    contents = {}
    for name, source in sources_of("interpret", plan, inputs).items():
        if source.type.dtype.startswith("c"):
            raise PlanError(f"interpret: complex numbers are not interpreted: input={name}, type={source.type}")
        contents[name] = [(list(key), _C.Array(array.to_dense())) for key, array in source.tuples()]
    results = plan.core.interpret(contents, _checked_scalars(scalars))
    return {name: [(tuple(key), array.tensor()) for key, array in results[name]] for name in plan.outputs}


# --- inputs -----------------------------------------------------------------------------------------------------------


def sources_of(who: str, plan: TraPlan | IaPlan, inputs: Mapping[str, Input]) -> NamedSources:
    """What `inputs` give for each of the plan's inputs; lazy relations are computed."""
    if not isinstance(plan, (TraPlan, IaPlan)):
        raise PlanError(f"{who}: a plan is what joinsum.plan, lower or parse gives: got={type(plan).__name__}")
    if not isinstance(inputs, Mapping):
        raise PlanError(f"{who}: inputs are given by name, as in {{'X': x}}: inputs={show(inputs)}")
    wanted = plan.inputs
    for name in inputs:
        if name not in wanted:
            raise PlanError(f"{who}: the plan has no such input: input={show(name)}, inputs={list(wanted)}")
    sources = {}
    for name, type_ in wanted.items():
        if name not in inputs:
            raise PlanError(f"{who}: an input is not given: input={name}, type={type_}")
        logical = type_.relation if isinstance(type_, _C.PhysicalType) else type_
        sources[name] = _source(f"{who}: input {name}", inputs[name], logical)
    return sources


def _source(who: str, value: Input, type_: _C.RelationType) -> Source:
    """The source that one input is, checked against the plan's type."""
    if isinstance(value, (torch.Tensor, SparseTensor)):
        return _tensor_source(who, value, type_)
    if isinstance(value, StoredRelation):
        source: Source = stored_source(value)
    elif isinstance(value, Expression):
        source = value.source if value.source is not None else stored_source(value.stored(), lazy=True)
    else:
        raise PlanError(f"{who}: give a tensor, a relation or a stored relation: got={type(value).__name__}")
    if source.type != type_:
        raise PlanError(f"{who}: it has another type: wanted={type_}, got={source.type}")
    return source


def _tensor_source(who: str, x: torch.Tensor | SparseTensor, type_: _C.RelationType) -> Source:
    """A tensor, to be cut as `type_` says."""
    if is_sparse(x) != (type_.entries is not None):
        remedy = "give it sparse" if type_.entries is not None else "give its to_dense()"
        raise PlanError(
            f"{who}: the plan has it {'dense' if type_.entries is None else 'sparse'}; {remedy}: type={type_}"
        )
    tensor = sparse_array(who, x) if is_sparse(x) else check_array(who, x)
    counted = {axis.key_dim for axis in type_.axes}
    single = all(size <= 1 for dim, size in enumerate(type_.frontier) if dim not in counted)
    if not type_.regular or not single or len(counted - {None}) < sum(axis.key_dim is not None for axis in type_.axes):
        raise PlanError(f"{who}: no tensor has this type; give a joinsum.relation: wanted={type_}")
    if torch_dtype(type_.dtype) is not tensor.dtype:
        raise PlanError(f"{who}: it has another dtype: wanted={torch_dtype(type_.dtype)}, got={tensor.dtype}")
    shape = [axis.extent for axis in type_.axes]
    if shape != list(tensor.shape):
        raise PlanError(f"{who}: it has another shape: wanted={shape}, got={shape_text(tensor)}")
    return TensorSource(type_, None, tensor)


def _checked_scalars(scalars: Scalars | None) -> dict[str, float]:
    """Scalars as floats; a tensor of one element is read."""
    checked = {}
    for name, value in (scalars or {}).items():
        single = isinstance(value, torch.Tensor) and value.numel() == 1 and not value.is_complex()
        real = hasattr(type(value), "__float__") and not isinstance(value, (bool, torch.Tensor))
        if not isinstance(name, str) or not (single or real):
            raise PlanError(f"run: a scalar is a real number by name: scalar={show(name)}, value={show(value)}")
        checked[name] = float(value)
    return checked


def _check_one_device(sources: NamedSources) -> None:
    devices = {name: source.device for name, source in sources.items() if source.device is not None}
    if len(set(devices.values())) > 1:
        found = ", ".join(f"{name}={device}" for name, device in devices.items())
        raise PlanError(f"run: inputs lie on different devices: {found}")


def _placed(plan: IaPlan, sources: NamedSources, copied: set[str]) -> dict[str, _C.StoredRelation]:
    current = context()
    if plan.grid.sites != current.sites:
        raise PlanError(f"run: the plan is for another number of sites: plan={plan.grid}, sites={current.sites}")
    _check_one_device(sources)
    types = plan.inputs
    return {name: source.placed(types[name], current, name in copied) for name, source in sources.items()}


def _run(
    plan: IaPlan,
    placed: Mapping[str, _C.StoredRelation],
    taken: Sequence[StoredRelation],
    scalars: Mapping[str, float],
) -> dict[str, StoredRelation]:
    """Runs on inputs that are in place; `taken` ones may be overwritten once the run has begun."""
    current = context()
    try:
        outputs = current.execute(plan.core, placed, scalars)
    except PlanError:
        raise  # found before anything has run
    except BaseException:
        _take(taken)
        raise
    _take(taken)
    return {name: StoredRelation(core, current) for name, core in outputs.items()}


def _take(taken: Sequence[StoredRelation]) -> None:
    for stored in taken:
        stored.take()
