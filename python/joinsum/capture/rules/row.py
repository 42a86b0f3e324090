"""A row of the operator table: all that the rest of joinsum asks of a captured operator of torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from joinsum.capture.decompositions.random_nodes import RandomRule
from joinsum.capture.recording.application import Application
from joinsum.capture.recording.values import Value

__all__ = ["Entry", "Results", "Row", "Rule", "Traits", "rows"]

Results = Sequence[Value | None]
Rule = Callable[[Application], Results]


@dataclass(frozen=True)
class Traits:
    """Properties of an operator beside its rule.

    random           makes the node that draws joinsum's random numbers in its place; None of operators that are not
                     random
    folded           whether it is computed while recording where its operands are constants
    without_elements whether it takes or gives tensors without elements beside others
    may_alias        whether its result may be the memory of its operand though its schema does not say so
    """

    random: RandomRule | None = None
    folded: bool = True
    without_elements: bool = False
    may_alias: bool = False


@dataclass(frozen=True)
class Row:
    """An operator and its rule.

    name    of one overload: `aten::sum.dim_IntList`
    family  as docs/operators.md lists it
    rule    records the operator's results: a `Form`, or a function; None of an operator that is always replaced, as
            `traits.random` says
    how     the rule in words, or the pattern of a form
    """

    name: str
    family: str
    rule: Rule | None
    how: str
    traits: Traits = Traits()


class Entry(NamedTuple):
    """Operators with one rule: their names are separated by white space, without `aten::`; `how` is empty of a form."""

    names: str
    rule: Rule | None
    how: str = ""
    traits: Traits = Traits()


def rows(family: str, *entries: Entry) -> list[Row]:
    """The rows of a family."""
    return [
        Row(
            name if "::" in name else f"aten::{name}",
            family,
            entry.rule,
            entry.how or getattr(entry.rule, "described", ""),
            entry.traits,
        )
        for entry in entries
        for name in entry.names.split()
    ]
