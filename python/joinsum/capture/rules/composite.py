"""Decomposed operators, which run undecomposed where a plan does not divide the axes that they mix."""

from __future__ import annotations

from collections.abc import Sequence

from joinsum.capture.recording.application import Application
from joinsum.capture.recording.values import CallDraft, Value
from joinsum.capture.recording.vertices import materialized
from joinsum.capture.rules.row import Results

__all__ = ["decomposed_or", "with_materialized_operands"]


def decomposed_or(composite: Results, results: Sequence[Value], first: int = 0) -> Results:
    """The results of the last call of a decomposition; where no axis is divided, `composite` runs in its place.

    composite   results of the undecomposed operator, of which the decomposition has those from number `first` on

    Gives `composite` alone where that has no axis to divide, or reads an operand in another layout.
    """
    draft = results[0].source.draft
    undecomposed = next(value for value in composite if value is not None).source.draft
    assert isinstance(draft, CallDraft)
    assert isinstance(undecomposed, CallDraft)
    if not undecomposed.whole or any(source not in draft.inputs for source in undecomposed.inputs):
        return composite[first:]
    draft.composite, draft.composite_first = undecomposed, first
    return results


def with_materialized_operands(application: Application) -> Application:
    """The same with operands in which no elements repeat, and which all calls of a decomposition share."""
    return application.with_arguments({name: materialized(value) for name, value in application.tensors()})
