"""Checks that a physical plan computes a logical one."""

from __future__ import annotations

from dataclasses import dataclass

from joinsum import _C
from joinsum.algebra.plan import IaPlan, TraPlan
from joinsum.base.arguments import integer
from joinsum.base.errors import PlanError

__all__ = ["Verdict", "verify"]


@dataclass(frozen=True)
class Verdict:
    """Whether a physical plan computes a program, and how that is known.

    kind     `proved`: by laws, both have one normal form; `tested`: they agreed in runs on random integers;
             `refuted`: they differ; `undecided`: neither the laws nor a run decided it
    reason   in words; of a refuted plan, the output that differs and where
    """

    kind: str
    reason: str

    @property
    def accepted(self) -> bool:
        """Whether the plan may be run for the program: `proved` or `tested`."""
        return self.kind in ("proved", "tested")


def verify(plan: IaPlan, program: TraPlan, *, seed: int = 0, rounds: int = 4) -> Verdict:
    """Compares a physical plan with the program that it should compute; neither needs data.

    seed     of the random integers, where laws do not decide
    rounds   runs on them, over smaller arrays with the plan's keys, cut points, grid and placements

    Raises PlanError: not a physical and a logical plan, fewer rounds than one.

    >>> import joinsum
    >>> program = joinsum.parse("tra\\ninput X: f32[4]<2>\\noutput Y = aggregate[; add](X)")
    >>> plan = joinsum.parse("ia on 2\\ninput X: f32[4]<2> (0)\\noutput Y = broadcast(agg[; add](X))")
    >>> joinsum.verify(plan, program).kind
    'proved'
    >>> wrong = joinsum.parse("ia on 2\\ninput X: f32[4]<2> (0)\\noutput Y = agg[; add](X)")
    >>> joinsum.verify(wrong, program)
    Verdict(kind='refuted', reason='output Y (t0) is pending: placement=(+add)')
    """
    if not isinstance(plan, IaPlan) or not isinstance(program, TraPlan):
        raise PlanError(
            "verify: a physical plan is compared with a logical one: "
            f"plan={type(plan).__name__}, program={type(program).__name__}"
        )
    count = integer("verify", "rounds", rounds)
    verdict = _C.verify(plan.core, program.core, integer("verify", "seed", seed) % 2**64, count)
    return Verdict(verdict.kind, verdict.reason)
