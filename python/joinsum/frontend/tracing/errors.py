"""Translates what Dynamo raises into joinsum's errors, which name the user's line and a remedy."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from joinsum.base.errors import CaptureError, Error, KernelError, PlanError
from joinsum.cluster.context import context
from joinsum.frontend.tracing.torch_internals import BackendCompilerFailed, RefusedByDynamo, TorchRuntimeError

__all__ = ["capturing"]

_PLACE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\n\s*(.*)')
_TORCH = os.path.dirname(torch.__file__)
_REMEDY = (
    "the function must be one graph: write branches on tensors' values with torch.where, and move what is no tensor "
    "operation out of the captured function; call the model once before if its first call does more than later ones"
)

_OBSERVED = re.compile(r"raised exception (\w+)\(('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"),?\)", re.DOTALL)
_OWN = {kind.__name__: kind for kind in (KernelError, PlanError)}

_ESCAPING_RESULT = "autograd.grad consumed returned tensor's grad_fn"
_DETACH = (
    "the model stores a result of this step in an attribute or a list: store value.detach(); make masks of "
    "torch.nn.utils.prune permanent with prune.remove, or mask with torch.nn.utils.parametrize"
)


@contextmanager
def capturing(who: str) -> Iterator[None]:
    """Raises CaptureError with the user's line for what Dynamo refuses, and joinsum's own errors unchanged. A failure
    of one rank raises on all ranks."""
    with context().preparing("capture"), _translated(who):
        yield


@contextmanager
def _translated(who: str) -> Iterator[None]:
    try:
        yield
    except BackendCompilerFailed as error:
        if isinstance(error.inner_exception, Error):
            raise error.inner_exception from None
        raise
    except RefusedByDynamo as error:
        inner = _own_error(error)
        if inner is not None:
            raise inner from None
        # An operator that rejects its operands would do so without capture too.
        escapes = _ESCAPING_RESULT in str(error)
        remedy = "" if isinstance(error, TorchRuntimeError) else f"; {_DETACH if escapes else _REMEDY}"
        raise CaptureError(f"{who}: {_reason(str(error))}{_place(str(error))}{remedy}") from error


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
    return None if found is None or kind is None else kind(ast.literal_eval(found[2]))


def _reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    explained = next((line for line in lines if line.startswith("Explanation:")), "")
    said = lines[0] if lines else "cannot be captured"
    explained = explained.removeprefix("Explanation:").strip()
    return f"{said}: {explained}" if explained else said


def _place(text: str) -> str:
    """The innermost line of the user's code in the message."""
    _, _, code = text.partition("from user code:")
    found = _PLACE.findall(code)
    if not found:
        return ""
    own = [each for each in found if not each[0].startswith(_TORCH)]
    file, line, function, source = (own or found)[-1]
    return f": at {file}:{line} in {function}, code={source.strip()}"
