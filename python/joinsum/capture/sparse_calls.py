"""Calls of sparse tensors in code that Dynamo traces, where they look like dense ones. Those that change nothing in a
plan are left out, sums become sums of dense tensors, and others are refused by name, before torch fails on them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch._dynamo.exc import Unsupported
from torch._dynamo.variables import ConstantVariable, TensorVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor

from joinsum.base.errors import CaptureError

__all__ = ["register_sparse_calls"]

_FUNCTIONS = {
    torch.sparse.softmax: "torch.sparse.softmax",
    torch.sparse.log_softmax: "torch.sparse.log_softmax",
    torch.sparse.sampled_addmm: "torch.sparse.sampled_addmm",
    torch.hspmm: "torch.hspmm",
    torch.smm: "torch.smm",
    torch.sspaddmm: "torch.sspaddmm",
}
_METHODS = (
    *("values", "indices", "crow_indices", "col_indices", "ccol_indices", "row_indices"),
    *("_values", "_indices", "_nnz", "sparse_dim", "dense_dim", "sparse_mask", "smm", "sspaddmm", "hspmm"),
    *("to_sparse", "to_sparse_coo", "to_sparse_csr", "to_sparse_csc", "to_sparse_bsr", "to_sparse_bsc"),
)


def register_sparse_calls() -> None:
    """Makes the calls known to Dynamo, for code that it traces for plans on fake tensors."""
    functions: dict[Any, Callable[..., Any]] = {torch.sparse.sum: _sum, torch.sparse.mm: _product}
    functions |= {function: functools.partial(_refuse_function, name) for function, name in _FUNCTIONS.items()}
    handlers = TorchInGraphFunctionVariable._get_handlers()
    for function, handler in functions.items():
        handlers[function] = _in_plans(handler)
    methods: dict[str, Callable[..., Any]] = {"coalesce": _same, "is_coalesced": _always_coalesced}
    methods |= {name: functools.partial(_refuse_method, name) for name in _METHODS}
    for name, method in methods.items():
        setattr(TensorVariable, f"method_{name}", _in_plans(method))


def _in_plans(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The handler of a call; None, which leaves the call to Dynamo, where that has real tensors as inputs."""

    def handle(*args: Any, **kwargs: Any) -> Any:
        x = _tensor_of(args, kwargs)
        if x is None:
            return None
        arguments = [node.meta.get("grapharg") for node in x.proxy.node.graph.find_nodes(op="placeholder")]
        fake = any(each is not None and isinstance(each.example, FakeTensor) for each in arguments)
        return handler(*args, **kwargs) if fake else None

    return handle


def _tensor_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The first tensor among the arguments; None where there is none."""
    values = (each.realize() for each in [*args, *kwargs.values()] if isinstance(each, VariableTracker))
    return next((each for each in values if isinstance(each, TensorVariable)), None)


def _same(x: Any, *_: Any) -> Any:
    """Sparse tensors are coalesced on their way into a plan."""
    return x


def _always_coalesced(*_: Any) -> Any:
    return ConstantVariable.create(True)


def _sum(_: Any, tx: Any, x: Any, dim: Any = None, dtype: Any = None) -> Any:
    """torch.sparse.sum(x, dim, dtype)"""
    named = {"dim": dim, "dtype": dtype}
    return x.call_method(tx, "sum", [], {name: each for name, each in named.items() if not _is_none(each)})


def _product(function: Any, tx: Any, x: Any, y: Any, reduce: Any = None) -> Any:
    """torch.sparse.mm(x, y, reduce), which sums by default. None leaves the call to Dynamo."""
    if _is_none(reduce):
        return None
    if reduce.as_python_constant() == "sum":
        return function.call_function(tx, [x, y], {})
    _refuse(f"torch.sparse.mm(..., {reduce.as_python_constant()!r})", x)


def _refuse_function(name: str, *args: Any, **kwargs: Any) -> NoReturn:
    _refuse(name, _tensor_of(args, kwargs))


def _refuse_method(name: str, x: Any, *_: Any, **__: Any) -> NoReturn:
    _refuse(f"Tensor.{name}", x)


def _is_none(argument: Any) -> bool:
    return argument is None or (argument.is_python_constant() and argument.as_python_constant() is None)


def _name(source: str) -> str:
    """The user's name of a tensor that Dynamo calls so.

    >>> _name("L['self']._modules['first']._buffers['adjacency']"), _name("L['batch'][0]")
    ('first.adjacency', 'batch.0')
    """
    steps = re.findall(r"\w+", source)[1:]
    names = [step for step in steps if step not in _HOLDERS]
    return ".".join(names if len(names) == len(steps) else names[1:])


def _source_name(source: Any) -> str:
    """What Dynamo calls it; before torch 2.13 by a method."""
    name: Any = source.name
    return str(name() if callable(name) else name)


_HOLDERS = ("__self__", "_modules", "_parameters", "_buffers")


def _refuse(call: str, x: Any) -> NoReturn:
    """Raises CaptureError with the call, the tensor where it has a name, and the user's line."""
    tensor = "" if x.source is None else f"tensor={_name(_source_name(x.source))}, "
    stack = TracingContext.extract_stack()
    at = f'File "{stack[-1].filename}", line {stack[-1].lineno}: {stack[-1].line}' if stack else "an unknown line"
    error = CaptureError(
        "capture: sparse tensors are taken in products with dense ones (torch.sparse.mm, @, addmm) and in sums alone: "
        f"call={call}, {tensor}at={at}; call it outside of the model, give its result as an input or a buffer, or take "
        "x.to_dense()"
    )
    raise Unsupported(str(error)) from error  # whose text Dynamo extends
