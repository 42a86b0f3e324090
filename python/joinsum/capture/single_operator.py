"""An operator of distributed tensors that no handler runs on blocks: a plan of its own."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.utils import _pytree as pytree

from joinsum.base.errors import CaptureError, PlanError
from joinsum.capture import executable
from joinsum.capture.captured_graph import CapturedGraph
from joinsum.cluster.context import context
from joinsum.distributed.distributed_tensor import DistributedTensor
from joinsum.distributed.operators import plan_other_operators

__all__ = ["run_operator"]


def run_operator(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of an ATen operator that writes into nothing, for plain and distributed tensors. It is a plain tensor
    on every rank, but for views, which are distributed copies that refuse to be written. All ranks call.

    Raises PlanError for an operator that joinsum has no rule for.
    """
    leaves, structure = pytree.tree_flatten((tuple(args), dict(kwargs)))
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    key = func, str(structure), tuple(map(_key, leaves))
    run = context().cached(key, lambda: _compiled(func, leaves, structure))
    return run(tensors)


def _key(x: Any) -> Hashable:
    if isinstance(x, DistributedTensor):
        return x.form, str(x.physical_type)
    if isinstance(x, torch.Tensor):
        return x.shape, x.dtype, x.device
    return type(x), str(x)


def _compiled(func: Any, leaves: Sequence[Any], structure: Any) -> Callable[[Sequence[torch.Tensor]], Any]:
    graph, fakes = fx.Graph(), list[torch.Tensor]()
    filled, called = list(leaves), list(leaves)
    with FakeTensorMode():
        for i, x in enumerate(leaves):
            if isinstance(x, torch.Tensor):
                filled[i] = torch.empty(x.shape, dtype=x.dtype, device=x.device)
                called[i] = graph.placeholder(f"operand_{len(fakes)}")
                called[i].meta["val"] = filled[i]
                fakes.append(filled[i])
        fake_args, fake_kwargs = pytree.tree_unflatten(filled, structure)
        try:
            result = func(*fake_args, **fake_kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            raise _refused(func) from None
    node = graph.call_function(func, *pytree.tree_unflatten(called, structure))
    node.meta["val"] = result
    single = isinstance(result, torch.Tensor)
    entries = [node] if single else [_entry(graph, node, i, x) for i, x in enumerate(result)]
    computed = [i for i, x in enumerate(entries) if isinstance(x, fx.Node)]
    graph.output(tuple(entries[i] for i in computed))
    view = any(each.alias_info is not None for each in func._schema.returns)
    captured = CapturedGraph(fx.GraphModule({}, graph), fakes, stay=set(range(len(computed))) if view else ())
    compiled = _refusing(func, lambda: executable.compile_fx(captured))

    def run(tensors: Sequence[torch.Tensor]) -> Any:
        results = _refusing(func, lambda: compiled(list(tensors)))
        for x in results if view else ():
            if isinstance(x, DistributedTensor):
                x.read_only = True
        if single:
            return results[0]
        # torch takes no None for a tensor that nobody asked for.
        every = [torch.empty(0) if x is None else x for x in entries]
        for i, x in zip(computed, results, strict=True):
            every[i] = x
        return type(result)(every) if type(result) in (tuple, list) else tuple(every)

    return run


def _refusing(func: Any, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except CaptureError as error:
        raise _refused(func) from error


def _refused(func: Any) -> PlanError:
    return PlanError(f"DistributedTensor: no operator on blocks: operator={func}; give x.full_tensor(), on every rank")


def _entry(graph: fx.Graph, node: fx.Node, index: int, value: Any) -> Any:
    """A tensor among an operator's results; None for one that it does not compute."""
    if not isinstance(value, torch.Tensor):
        return value
    entry = graph.call_function(operator.getitem, (node, index))
    entry.meta["val"] = value
    return entry


plan_other_operators(run_operator)
