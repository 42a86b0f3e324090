"""Errors of Python in making a program of captured code, as errors of capture that name the user's line."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import fx

from joinsum.base.errors import CaptureError, Error, PlanError
from joinsum.capture.recording.application import source_line
from joinsum.cluster.context import Context, context

__all__ = ["failure", "failures_named", "other_sites_error"]

# What torch.fx adds to an error's text in front of the call that raised it.
_WHILE = "\n\nWhile executing "
_REMEDY = (
    "the code may be right, and joinsum or torch wrong: report it with this message; until then leave this line out of "
    "what is captured, or run the model as plain torch"
)


def failure(who: str, error: Exception) -> Error:
    """joinsum's own error, without what torch.fx has added to its text. For any other error a CaptureError, which has
    it as its cause."""
    said = str(error).partition(_WHILE)[0]
    if isinstance(error, Error):
        error.args = (said, *error.args[1:])
        return error
    node = _node_in(error)
    place = "" if node is None else f", operator={node.target}, at={source_line(node)}"
    found = CaptureError(
        f"{who}: no program can be made of the captured code: "
        f"cause={type(error).__name__}: {' '.join(said.split())}{place}; {_REMEDY}"
    )
    found.__cause__ = error
    found.__dict__.update(vars(error))  # whether other sites know of it
    return found


def other_sites_error(here: Context) -> PlanError:
    """The error of captured code that runs in another context than the one that it was made in."""
    return PlanError(
        f"capture: it was made for other sites; compile again, after torch._dynamo.reset() where torch.compile has "
        f"compiled it: made={here}, now={context()}"
    )


@contextmanager
def failures_named(who: str = "capture", unchanged: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Raises CaptureError, with the user's line, for errors that are none of joinsum's, and joinsum's own unchanged, as
    are those of memory and of the types `unchanged`."""
    all_unchanged: tuple[type[Exception], ...] = (Error, Warning, MemoryError, torch.OutOfMemoryError, *unchanged)
    try:
        yield
    except all_unchanged:
        raise
    except Exception as error:
        raise failure(who, error) from error


def _node_in(error: BaseException) -> fx.Node | None:
    """The node of a graph that was read where the error was raised: a local variable, the innermost one."""
    found = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        for name in ("node", "n"):  # n in torch's interpreter of graphs
            value = frame.f_locals.get(name)
            found = value if isinstance(value, fx.Node) else found
    return found
