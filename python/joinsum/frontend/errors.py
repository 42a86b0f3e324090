"""What Dynamo cannot capture, in joinsum's words."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from joinsum.context import context
from joinsum.errors import CaptureError, Error, KernelError, PlanError
from joinsum.frontend.torch_internals import BackendCompilerFailed, RefusedByDynamo, TorchRuntimeError

__all__ = ["capturing"]

_PLACE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\n\s*(.*)')
_TORCH = os.path.dirname(torch.__file__)
_REMEDY = (
    "all of it must be one graph: take branches on tensors' values by torch.where, and what is no tensor operation out "
    "of the captured function; what a model does in its first call only, such as taking locks, let it do in a call "
    "before"
)

_OBSERVED = re.compile(r"raised exception (\w+)\(('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"),?\)", re.DOTALL)
_OWN = {kind.__name__: kind for kind in (KernelError, PlanError)}

_KEEPS_RESULT = "autograd.grad consumed returned tensor's grad_fn"
_DETACH = (
    "the model keeps a result of this step in an attribute or a list: let it keep value.detach(); make what "
    "torch.nn.utils.prune has masked permanent by prune.remove, or mask it by torch.nn.utils.parametrize"
)


@contextmanager
def capturing(who: str) -> Iterator[None]:
    """Raises CaptureError with the user's line for what Dynamo refuses, and joinsum's own errors as they are. What goes
    wrong on one rank only is an error on all."""
    with context().preparing("capture"), _in_own_words(who):
        yield


@contextmanager
def _in_own_words(who: str) -> Iterator[None]:
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
        # What an operator says of its operands is no matter of capture.
        kept = _KEEPS_RESULT in str(error)
        remedy = "" if isinstance(error, TorchRuntimeError) else f"; {_DETACH if kept else _REMEDY}"
        raise CaptureError(f"{who}: {_reason(str(error))}{_place(str(error))}{remedy}") from error


def _own_error(error: BaseException | None) -> Error | None:
    """joinsum's error among the causes."""
    while error is not None:
        found = error if isinstance(error, Error) else _observed(str(error))
        if found is not None:
            return found
        error = error.__cause__ or error.__context__
    return None


def _observed(text: str) -> Error | None:
    """joinsum's error that Dynamo met in what it goes through, of which it keeps the text."""
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
    """The innermost line of the user's code that the message shows."""
    _, _, code = text.partition("from user code:")
    found = _PLACE.findall(code)
    if not found:
        return ""
    own = [each for each in found if not each[0].startswith(_TORCH)]
    file, line, function, source = (own or found)[-1]
    return f": at {file}:{line} in {function}, code={source.strip()}"
