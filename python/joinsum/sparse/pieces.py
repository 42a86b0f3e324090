"""The optimizer's decisions one by one, for tests and for those who study plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from joinsum import _C
from joinsum.base.arguments import is_number, show
from joinsum.base.errors import PlanError
from joinsum.sparse.expressions import Data, expression_of, name_at, names_at, number_at, written
from joinsum.sparse.json_fields import extent_at
from joinsum.sparse.plan_options import checked_cutoffs, plan_options
from joinsum.sparse.program import Program

__all__ = [
    "choose_formats",
    "elimination_cost",
    "estimate",
    "minimal_sub_expressions",
    "must_precede",
    "order_costs",
]


def minimal_sub_expressions(expr: Data, index: str) -> list[Data]:
    """What must be computed together to reduce `index`: the factors that hold it, for each path on which its aggregate
    can be pushed down. `expr` has the aggregate over the index; the results do not.

    Source: Galley, section 5.4.

    >>> a, b, c = ["in", "A", ["i", "j"]], ["in", "B", ["j", "k"]], ["in", "C", ["k", "l"]]
    >>> minimal_sub_expressions(["agg", "+", ["j", "k"], ["map", "*", [a, b, c]]], "j")
    [['map', '*', [['in', 'A', ['i', 'j']], ['in', 'B', ['j', 'k']]]]]
    """
    found: list[Data] = written(_C.sparse_minimal_sub_expressions(expression_of(expr), name_at(index, "index")))
    return found


def must_precede(expr: Data) -> list[tuple[str, str]]:
    """Pairs (x, y) of reduced indices of which x must be eliminated before y.

    Source: Galley, section 5.5.

    >>> must_precede(["agg", "max", ["i"], ["agg", "+", ["j"], ["in", "A", ["i", "j"]]]])
    [('j', 'i')]
    """
    return _C.sparse_must_precede(expression_of(expr))


def estimate(expr: Data, program: Program, estimator: str = "chain") -> float:
    """Estimated entries of an expression over the program's tensors, taken as it is written.

    Source: Galley, section 7.
    """
    _check_program("estimate", program)
    return _C.sparse_estimate(expression_of(expr), program.handle, name_at(estimator, "estimator"))


def order_costs(query: Mapping[str, Any], program: Program, loops: Sequence[str]) -> dict[str, Any]:
    """What an order of loops costs the query as a single kernel, counted from the entries: `iterations` of each loop,
    entries that are moved by `transposes`, and the `total`.

    query     one of the `queries` of a program, over the tensors of `program`

    Source: Galley, section 6.1.
    """
    _check_program("order_costs", program)
    if not isinstance(query, Mapping):
        raise PlanError(f"order_costs: query is one of a program's queries: query={show(query)}")
    return _C.sparse_order_costs(program.with_query(query).handle, names_at(loops, "loops"), "exact")


def choose_formats(
    shape: Sequence[int],
    nnz_of_prefix: Sequence[float],
    output_order: Sequence[str],
    loop_order: Sequence[str],
    cutoffs: Mapping[str, float] | None = None,
) -> list[str]:
    """The format of each level of a result: "dense", "bytemap", "sorted_list" or "hash".

    shape           extents along `output_order`
    nnz_of_prefix   entries of the result's projections on the first, the first two, ... of `output_order`
    cutoffs         densities above which a level is a "bytemap" (0.05) or "dense" (0.5)

    Source: Galley, section 6.2.

    >>> choose_formats([10, 10], [9, 27], ["i", "j"], ["i", "k", "j"])
    ['dense', 'bytemap']
    """
    if not isinstance(shape, (list, tuple)):
        raise PlanError(f"choose_formats: shape is a list of extents: shape={show(shape)}")
    if not isinstance(nnz_of_prefix, (list, tuple)):
        raise PlanError(f"choose_formats: nnz_of_prefix is a list of numbers: nnz_of_prefix={show(nnz_of_prefix)}")
    if any(is_number(each) and each < 0 for each in nnz_of_prefix):
        raise PlanError(f"choose_formats: numbers of entries are not negative: nnz_of_prefix={show(nnz_of_prefix)}")
    return _C.sparse_choose_formats(
        [extent_at(each, f"shape[{i}]") for i, each in enumerate(shape)],
        [number_at(each, f"nnz_of_prefix[{i}]") for i, each in enumerate(nnz_of_prefix)],
        names_at(output_order, "output_order"),
        names_at(loop_order, "loop_order"),
        *checked_cutoffs("choose_formats", cutoffs),
    )


def _check_program(who: str, program: object) -> None:
    if not isinstance(program, Program):
        raise PlanError(f"{who}: program is a Program: program={show(program)}")


def elimination_cost(
    program: Program,
    order: Sequence[str],
    *,
    estimator: str = "chain",
    cost: tuple[float, float] = (1.0, 1.0),
    mode: str = "absorb",
) -> float:
    """The cost of the program's only query where its indices are eliminated in this order.

    Raises PlanError for an order that is not possible.

    Source: Galley, section 5.3.
    """
    _check_program("elimination_cost", program)
    names = names_at(order, "order")
    if len(set(names)) < len(names):
        raise PlanError(f"elimination_cost: an index is eliminated twice: order={show(names)}")
    return _C.sparse_elimination_cost(program.handle, names, plan_options(estimator, cost, mode))
