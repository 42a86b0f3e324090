"""One einsum over sparse operands, planned: its program of one query, and how sites divide it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from joinsum import _C
from joinsum.algebra.sources import is_sparse
from joinsum.base.errors import PlanError
from joinsum.cluster.context import context
from joinsum.execution.planned_graph import PlannedGraph
from joinsum.sparse import Plan, SparseTensor

__all__ = ["PlannedSparseEinsum"]

Operand = SparseTensor | torch.Tensor


class PlannedSparseEinsum(Plan):
    """How an einsum of sparse operands is computed: the plan of a program of one query, `z`, over the operands `x0`,
    `x1`, ...; `joinsum.einsum_plan` makes one, and says what is in it.

    tried_first   "compressed rows" where loops of their own compute the einsum on one site, "pairs" where they and
                  torch do, two operands at a time; the loop nests are for what these leave, such as sums that are not
                  finite. None where the loop nests are all there is
    site_plan     the plan's queries as vertices that the sites divide; None of one site, and where each process
                  computes all
    """

    def __init__(
        self,
        handle: _C.SparsePlan,
        program: _C.SparseProgram,
        seconds: float,
        dtype: torch.dtype,
        equation: str,
        operands: Sequence[Operand],
        tried_first: str | None,
        site_plan: PlannedGraph | None,
        call: Callable[..., Any],
    ) -> None:
        """The plan is that of the program, `call` the einsum of other operands."""
        super().__init__(handle, program, seconds, dtype)
        self.equation = equation
        self.tried_first = tried_first
        self._site_plan = site_plan
        self._context = context()
        self._planned = [(list(x.shape), x.dtype, is_sparse(x)) for x in operands]
        self._call = call

    @property
    def site_plan(self) -> PlannedGraph | None:
        """The plan's queries as vertices that the sites divide."""
        return self._site_plan

    def __call__(self, *operands: Operand) -> Operand:
        """`joinsum.einsum` of operands of the planned shapes and dtypes, by its cached plans. Operands that this plan
        does not fit, as they have other levels, fills or many more entries, get one of their own."""
        with self._context.preparing("einsum"):
            self._check(operands)
        found: Operand = self._call(*operands)
        return found

    def _check(self, operands: Sequence[object]) -> None:
        """Raises PlanError for operands that were not planned."""
        if context() is not self._context:
            raise PlanError(f"plan: it was made for other sites; plan again: planned={self._context}, now={context()}")
        if len(operands) != len(self._planned):
            raise PlanError(f"plan: another number of operands: planned={len(self._planned)}, given={len(operands)}")
        for i, (operand, (shape, dtype, sparse)) in enumerate(zip(operands, self._planned, strict=True)):
            if not isinstance(operand, (SparseTensor, torch.Tensor)) or is_sparse(operand) != sparse:
                kind = "sparse" if sparse else "dense"
                raise PlanError(f"plan: an operand was planned {kind}: operand={i}, given={type(operand).__name__}")
            if list(operand.shape) != shape or operand.dtype is not dtype:
                raise PlanError(
                    f"plan: an operand has another shape or dtype than planned: operand={i}, "
                    f"planned={shape} {dtype}, given={list(operand.shape)} {operand.dtype}"
                )

    def __deepcopy__(self, _: object) -> PlannedSparseEinsum:
        return self  # a copy of a module that has a plan runs the same one

    def __reduce__(self) -> NoReturn:
        raise PlanError("plan: a plan for the sites there are is not pickled; plan again where it is loaded")

    def data(self) -> dict[str, Any]:
        """All fields as JSON has them; `site_plan` is the text of the physical plan."""
        site_plan = None if self.site_plan is None else self.site_plan.plan.text
        own = {"equation": self.equation, "tried_first": self.tried_first, "site_plan": site_plan}
        return super().data() | own

    def __str__(self) -> str:
        lines = [self.equation]
        if self.tried_first is not None:
            lines.append(f"tried first: {_TRIED[self.tried_first]}")
        lines.append(super().__str__())
        if self.true_entries:  # it has run
            lines.append("seconds: " + ", ".join(f"{step} {taken:.3g}" for step, taken in self.seconds.items()))
        if self.site_plan is not None:
            lines.append(str(self.site_plan))
        return "\n".join(lines)

    __repr__ = __str__


_TRIED = {
    "compressed rows": "loops of their own for matrices in compressed rows or columns",
    "pairs": "two operands at a time, matrices in compressed rows or columns by loops of their own",
}
