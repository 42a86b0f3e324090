"""A row of the operator table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from joinsum.capture.application import Application
from joinsum.capture.recorder import Recorder, Value

__all__ = ["Made", "Row", "Rule", "rows"]

Made = list[Value | None]
Rule = Callable[[Recorder, Application], Made]


@dataclass(frozen=True)
class Row:
    """An operator and what it becomes.

    name    of one overload: `aten::sum.dim_IntList`
    family  as docs/operators.md lists it
    rule    makes its vertices: a `Form`, or a function
    how     the rule in words, or the text of a form
    """

    name: str
    family: str
    rule: Rule
    how: str


def rows(family: str, names: str, rule: Rule, how: str) -> list[Row]:
    """A row for each of the names, which are separated by white space; `aten::` is left out."""
    return [Row(f"aten::{name}" if "::" not in name else name, family, rule, how) for name in names.split()]
