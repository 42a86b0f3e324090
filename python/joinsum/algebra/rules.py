"""The rules by which plans are rewritten."""

from __future__ import annotations

from dataclasses import dataclass

from joinsum import _C

__all__ = ["Rule", "rules"]


@dataclass(frozen=True)
class Rule:
    """A row of the rule table: two forms of a plan that mean the same.

    law      the two forms; F filter, M map, A local aggregate, J local join, S shuffle, B broadcast
    when     the condition under which it holds, in words
    source   the paper and place, or joinsum itself
    """

    name: str
    law: str
    when: str
    source: str


def rules() -> tuple[Rule, ...]:
    """All rules, in the order of the paper: R1 composes functions, R2 moves, MM matrix products, P joinsum's own.

    One test checks the law of each on random plans and relations. Source: TRA paper, section 5.2 and Table 2, corrected
    where `docs/deviations.md` says so.

    >>> import joinsum
    >>> merge = joinsum.rules()[0]
    >>> merge.name, merge.law
    ('R1-1', 'F[a](F[b] R) = F[b and a] R')
    """
    return tuple(Rule(row.name, row.law, row.when, row.source) for row in _C.rules())
