"""Decomposed operators, which run undecomposed where a plan does not divide the axes that they mix."""

from __future__ import annotations

from joinsum.capture.recording.application import Application
from joinsum.capture.recording.values import CallDraft
from joinsum.capture.recording.vertices import materialized
from joinsum.capture.rules.row import Results

__all__ = ["decomposed_or", "with_materialized_operands"]


def decomposed_or(undecomposed: Results, results: Results, first: int = 0) -> Results:
    """The results of the last call of a decomposition; where no axis is divided, the undecomposed operator runs.

    undecomposed   results of the undecomposed operator, of which the decomposition has those from number `first` on

    Gives `undecomposed` alone where that has no axis to divide, or reads an operand in another layout.
    """
    draft, call = _draft(results), _draft(undecomposed)
    if not call.undivided or any(producer not in draft.inputs for producer in call.inputs):
        return undecomposed[first:]
    draft.undecomposed, draft.undecomposed_first = call, first
    return results


def _draft(results: Results) -> CallDraft:
    draft = next(value for value in results if value is not None).producer.draft
    assert isinstance(draft, CallDraft)
    return draft


def with_materialized_operands(application: Application) -> Application:
    """The same with operands in which no elements repeat, and which all calls of a decomposition share."""
    return application.with_arguments({name: materialized(value) for name, value in application.tensors()})
