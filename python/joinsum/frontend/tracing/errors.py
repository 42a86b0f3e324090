"""Translates what Dynamo raises into joinsum's errors, which name the user's line and a remedy."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from joinsum.base.errors import CaptureError, Error, KernelError, PlanError
from joinsum.capture.failures import failure, failures_named
from joinsum.cluster.context import context
from joinsum.frontend.tracing.module_errors import refusal_of_torch
from joinsum.frontend.tracing.rejected_operators import RejectedOperator, rejected_operators
from joinsum.frontend.tracing.torch_internals import (
    BackendCompilerFailed,
    HandledByDynamo,
    RefusedByDynamo,
    TorchRuntimeError,
    is_transforming,
    unwrapped,
)
from joinsum.frontend.tracing.user_code import place_in
from joinsum.sparse import SparseTensor

__all__ = ["capturing", "compiling", "compiling_for_torch"]

_REMEDY = (
    "the function must be one graph: write branches on tensors' values with torch.where, and move what is no tensor "
    "operation out of the captured function; call the model once before if its first call does more than later ones; "
    'or take torch.compile(model, backend="joinsum") in your own loop, which leaves such lines to Python'
)

_LEFT_TO_TORCH: tuple[type[Exception], ...] = (Warning, *HandledByDynamo)

_REQUIRES_GRAD = "a tensor's requires_grad is changed"

# What Dynamo says; what an error of ours says of it, with the groups of the first; whether capture alone asks for other
# code, or what was captured fails without it, too.
_SENTENCES = (
    (r"context: raised exception (\w+)\((?P<said>.*)\)$", "the code raises {0}: {said}", False),
    (r"when making fake tensor call(?s:.*?)got (\w+)\((?P<said>.*)\)$", "{0}: {said}", False),
    (
        r"^failed to bind arguments(?s:.*?)function (\w+)\.",
        "a call does not fit the arguments of the function: {0}",
        False,
    ),
    (r"Failed to find name `(\w+)`", "a name is not defined: {0}", False),
    (
        r"^Assertion failed",
        "an assertion about shapes does not hold, or not for all batches that the graph is for",
        True,
    ),
    (r"^Dynamic shape operator(?s:.*?)context: ([\w.]+)", "a result's shape depends on tensors' values: {0}", True),
    (r"^Data dependent operator(?s:.*?)context: ([\w.]+)", "an operator reads tensors' values: {0}", True),
    (r"^Data-dependent branching", "a branch depends on a tensor's value", True),
    (
        r"\bCould not (?:guard on|extract specialized integer from) data-dependent",
        "a shape or a branch depends on tensors' values",
        True,
    ),
    (r"wrapped with `torch\.compiler\.disable` \(reason: (?!None\b)(.*)\)", "{0}", True),
    (r"^Skip \w+ `torch\.compiler\.disable\(\)`d function", "a function is marked with torch.compiler.disable", True),
    (r"Tensor\.(tolist|item|numpy)\(", "a tensor's values are read: {0}", True),
    (r"sourceless builder(?s:.*?)how to wrap <class '([\w.]+)'>", "an object cannot be captured: type={0}", True),
    (r"builtin operator `(\w+)`", "a call is no tensor operation: {0}", True),
    (r"context: module: <unknown module>, qualname: ([\w.]+)", "a call is no tensor operation: {0}", True),
    (r"context: module: ([\w.]+), qualname: ([\w.]+)", "a call is no tensor operation: {0}.{1}", True),
    (
        r"autograd\.grad consumed returned tensor(?s:.*?)have consumed grad_fns: ([\w, ]+)$",
        "the model stores a result of this step in an attribute or a list: result={0}",
        False,
    ),
    (r"unsupported operator: (\w+)\.(\w+)", "torch cannot trace this operator: operator={0}::{1}", False),
    (r"trace method `(\w+)` of class `(\w+)`", "a method cannot be captured: {1}.{0}", True),
    (r"^Invalid call to __build_class__", "a class is defined in the captured code", True),
    (r"^Unsupported Tensor\.requires_grad_\(\) call|^setattr\(\) on Tensor\.requires_grad", _REQUIRES_GRAD, True),
    (r"op returned non-Tensor(?s:.*?)target: (\w+)", "a call returns no tensor: {0}", True),
)
_NEGATED = re.compile(r", code=assert not\b")
_SYMBOL = re.compile(r"\bs\d+\b")  # an extent of any size
_HINT = re.compile(r"\bs\d+: hint = (\d+)")

_CAUSE = re.compile(r"^Caused by: (.*?)  # (\S+):(\d+) in (\S+)", re.MULTILINE)

_OBSERVED = re.compile(r"raised exception (\w+)\(('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"),?\)", re.DOTALL)
_OWN = {kind.__name__: kind for kind in (KernelError, PlanError)}

_ESCAPING_RESULT = "autograd.grad consumed returned tensor's grad_fn"
_RETURN = (
    "a loss that reads it needs its gradient: return it from forward, so that the loss function gets it with the "
    "output; where no loss reads it, store value.detach(); for a weight that is computed take "
    "torch.nn.utils.parametrize"
)
_TRANSFORMED = (
    "transforms of torch.func (grad, vmap, jacrev) do not reach what runs as a plan; for Jacobians use "
    "torch.autograd.functional.jacobian, and for other transforms the plain model, or write them inside of the model"
)


_SPARSE_ATTRIBUTE = (
    "; the model holds a joinsum.SparseTensor, which captured code does not read: attribute={}; register it as a "
    "buffer, self.register_buffer(name, x.to_torch('csr')), and take joinsum.nn.SparseLinear for values that are "
    "trained"
)


@contextmanager
def capturing(who: str, model: torch.nn.Module | None = None) -> Iterator[None]:
    """Raises CaptureError with the user's line for what Dynamo refuses, and joinsum's own errors unchanged. A failure
    of one rank raises on all ranks.

    model   whose modules the errors name
    """
    if is_transforming():
        raise CaptureError(f"{who}: {_TRANSFORMED}")
    try:
        with context().preparing("capture"), rejected_operators() as rejected, _translated(who, model, rejected):
            yield
    except CaptureError as error:
        held = _sparse_attribute(model)
        if held is None:
            raise
        raise CaptureError(f"{error}{_SPARSE_ATTRIBUTE.format(held)}") from error


def _sparse_attribute(model: torch.nn.Module | None) -> str | None:
    """The name of an attribute of the model's that is a SparseTensor."""
    named = () if model is None else model.named_modules()
    found = (
        ".".join(filter(None, [at, name]))
        for at, each in named
        for name, x in vars(each).items()
        if isinstance(x, SparseTensor)
    )
    return next(found, None)


@contextmanager
def _translated(who: str, model: torch.nn.Module | None, rejected: RejectedOperator) -> Iterator[None]:
    try:
        yield
    except BackendCompilerFailed as error:
        found = failure(who, error.inner_exception)
        raise found from found.__cause__
    except RefusedByDynamo as error:
        inner = _own_error(error)
        if inner is not None:
            raise inner from None
        refused = refusal_of_torch(str(error), model)
        if refused is not None:
            raise CaptureError(f"{who}: {refused[0]}{_place(str(error))}; {refused[1]}") from error
        said, ours = _reason(str(error), rejected.sizes)
        if isinstance(error, TorchRuntimeError) and rejected.module:
            said = f"{said.rstrip('.')}: module={rejected.module}"
        # An operator that rejects its operands would do so without capture too.
        remedy = "" if isinstance(error, TorchRuntimeError) or not ours else f"; {_REMEDY}"
        place = _place(str(error))
        if _ESCAPING_RESULT in str(error):
            remedy = f"; {_RETURN}"
        elif _NEGATED.search(place):
            remedy = "; Python sees a branch there: assert that something holds of all elements, assert (~x).all()"
        raise CaptureError(f"{who}: {said}{place}{remedy}") from error


@contextmanager
def compiling(who: str = "capture") -> Iterator[None]:
    """As `failures_named`; torch's errors are unchanged, too, where Dynamo handles them."""
    with failures_named(who, HandledByDynamo):
        yield


@contextmanager
def compiling_for_torch(who: str) -> Iterator[None]:
    """The same in a backend of torch.compile; torch does not wrap these errors in its own."""
    try:
        yield
    except _LEFT_TO_TORCH:
        raise
    except Exception as error:
        found = failure(who, error)
        raise unwrapped(found) from found.__cause__


def _own_error(error: BaseException | None) -> Error | None:
    """joinsum's own error among the causes."""
    while error is not None:
        found = error if isinstance(error, Error) else _observed(str(error))
        if found is not None:
            return found
        error = error.__cause__ or error.__context__
    return None


def _observed(text: str) -> Error | None:
    """joinsum's own error, raised in code that Dynamo traced, from the text that Dynamo reports."""
    found = _OBSERVED.fullmatch(text)
    kind = _OWN.get(found[1]) if found is not None else None
    return None if found is None or kind is None else kind(_with_sizes(ast.literal_eval(found[2]), {}))


def _with_sizes(text: str, sizes: Mapping[str, str]) -> str:
    """A message with numbers in place of symbols, and stars where they are not known.

    >>> _with_sizes("[s7, s8] and (s9: hint = 8)", {"s7": "2"})
    '[2, *] and (8)'
    """
    return _SYMBOL.sub(lambda found: sizes.get(found[0], "*"), _HINT.sub(r"\1", text))


def _reason(text: str, sizes: Mapping[str, str]) -> tuple[str, bool]:
    """What cannot be captured, and whether it is capture that asks for other code."""
    message, _, _ = text.partition("from user code:")
    for pattern, sentence, ours in _SENTENCES:
        found = re.search(pattern, message, re.MULTILINE)
        if found is not None:
            said = _with_sizes(_unquoted(found.groupdict().get("said") or ""), sizes)
            return sentence.format(*found.groups(), said=said), ours
    first = next((line.strip() for line in message.splitlines() if line.strip()), "no reason given")
    return f"torch cannot capture what this line does: refusal={first}", True


def _unquoted(arguments: str) -> str:
    """The arguments of an exception, as it prints them."""
    try:
        values = ast.literal_eval(f"({arguments.rstrip(',')},)")
    except (SyntaxError, ValueError):
        return arguments
    return " ".join(" ".join(map(str, each)) if isinstance(each, list) else str(each) for each in values)


def _place(text: str) -> str:
    """The innermost line of the user's code in the message."""
    _, _, code = text.partition("from user code:")
    found = _CAUSE.search(text) if not code else None
    return place_in(code) if found is None else ": at {1}:{2} in {3}, code={0}".format(*found.groups())
