"""Queries of sparse programs as vertices of a graph of einsums, which the planner divides among sites as all others."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from joinsum import _C
from joinsum.base.dtypes import torch_dtype
from joinsum.base.errors import PlanError
from joinsum.graphs.equation import Operations
from joinsum.sparse.densified import visited_wholly
from joinsum.sparse.expression_text import expression_of_text
from joinsum.sparse.expressions import expression_of, fraction_in
from joinsum.sparse.plan import Plan
from joinsum.sparse.plan_options import plan_options

__all__ = [
    "Axes",
    "QueryOperand",
    "add_queries",
    "check_not_densified",
    "einsum_program",
    "is_query",
    "query_plan",
    "query_vertex",
]

# The operator that computes a query's vertex.
_QUERY = "joinsum::sparse_query"

# The axes of a tensor that each axis of its diagonal runs along.
Axes = Sequence[Sequence[int]]


@dataclass(frozen=True)
class QueryOperand:
    """What a query reads, or gives: a node of the graph, what counts where nothing is stored, and about how many
    entries it has, where it is sparse."""

    node: _C.EinsumNode
    fill: float
    entries: int | None

    @property
    def shape(self) -> list[int]:
        """Extents of the axes."""
        return self.node.extents


def add_queries(
    known: dict[str, QueryOperand], plan: _C.SparsePlan, diagonal: Callable[[str, Axes], QueryOperand]
) -> None:
    """Adds a vertex for each query of a plan to the tensors by name, whose dtypes are equal; `diagonal` gives what
    reads a tensor along its diagonal.

    An index that a query reduces leaves partial results where sites divide it, which its operator reduces.
    """
    for query in plan.site_queries():
        operands = [
            diagonal(tensor, axes) if axes else known[tensor]
            for tensor, axes in zip(query.tensors, query.diagonals, strict=True)
        ]
        extents = dict(query.extents)
        for operand, letters in zip(operands, query.operands, strict=True):
            extents |= dict(zip(letters, operand.shape, strict=True))
        shape = [extents[letter] for letter in query.output]
        dense = query.dense or not shape
        entries = None if dense else round(min(query.entries, math.prod(shape)))
        call = _call(query, extents, operands, entries)
        node = _C.einsum_call([operand.node for operand in operands], call)
        known[query.name] = QueryOperand(node, query.fill, entries)
    for name, same in plan.same_as.items():
        known[name] = known[same]


def _call(
    query: _C.SparseSiteQuery, extents: Mapping[str, int], operands: Sequence[QueryOperand], entries: int | None
) -> _C.Call:
    argument = _C.CallArgument
    points = math.prod(extents.values())
    return _C.Call(
        function=_QUERY,
        operands=query.operands,
        results=[(operands[0].node.dtype, list(query.output))],
        arguments=[
            argument([argument.operand(i, list(letters)) for i, letters in enumerate(query.operands)]),
            argument([argument(operand.fill) for operand in operands]),
            argument(query.expression),
            argument(query.output),
            argument("".join(query.extents)),
            argument([argument.extent(letter) for letter in query.extents]),
            argument(entries is None),
        ],
        undivided=query.undivided,
        reduce=query.reduce,
        extents=query.extents,
        flops=[(2 * query.iterations / points, "".join(extents))] if points else [],
        entries=entries,
    )


def einsum_program(
    labels: Sequence[Sequence[str]],
    result: Sequence[str],
    extents: Mapping[str, int],
    operations: Operations,
    inputs: Sequence[_C.SparseInput],
    dtype: str,
) -> _C.SparseProgram:
    """The program of one query `z`, over tensors `x0`, `x1`, ... of a dtype, that an einsum is."""
    leaves = [_C.sparse_input(f"x{i}", list(own)) for i, own in enumerate(labels)]
    body = _C.sparse_join(operations.join, leaves, dtype)
    whole = dtype in ("i32", "i64", "u8")
    fraction = fraction_in(body.data()) if whole else None
    if fraction is not None:
        raise PlanError(
            f"einsum: the join gives no whole numbers; convert the operands with to(torch.float64): "
            f"join={operations.join}, {fraction[1]}, dtype={dtype}"
        )
    reduced = [label for own in labels for label in own if label not in result]
    if reduced:
        body = _C.sparse_aggregate(_C.sparse_aggregation(operations.agg), list(dict.fromkeys(reduced)), body)
    named = {f"x{i}": each for i, each in enumerate(inputs)}
    return _C.SparseProgram(dict(extents), named, [("z", body, list(result))], dtype)


def check_not_densified(
    who: str, plan: Mapping[str, Any], extents: Mapping[str, int], operands: Mapping[str, int]
) -> None:
    """Raises where loops of a plan's kernels visit all coordinates of an operand in `operands`, which has the entries
    of sparse ones by name, or of what is sparse between: what these do not store counts too."""
    sparse = dict(operands)
    for logical, query in zip(plan["logical"], plan["physical"], strict=True):
        if any(level != "dense" for level in query["formats"]):
            sparse[logical["name"]] = math.ceil(logical["nnz_agg"])
    for query in plan["physical"]:
        found = visited_wholly(query, extents, sparse)
        if found is not None:
            known = f"operand={found.tensor[1:]}, " if found.tensor in operands else ""
            raise PlanError(
                f"{who}: elements that a sparse operand does not store count here, so that all are visited: "
                f"{known}labels={found.loops}, visits={found.visits:.3g}; give a fill that the join keeps (0 for mul, "
                f"inf for add under min; a product with the reciprocal in the place of a division, a sum with the "
                f'negative in that of a difference), or out_format="dense" to compute it all'
            )


def query_vertex(
    labels: Sequence[Sequence[str]],
    result: Sequence[str],
    extents: Mapping[str, int],
    operations: Operations,
    operands: Sequence[QueryOperand],
    out_format: str,
) -> QueryOperand:
    """An einsum over values of which some are sparse, planned by their entries as if these were spread evenly: its
    result is sparse where that is estimated to be cheaper (out_format "auto") or asked for ("coo"), and dense where
    that is ("dense"), or where its fill is not 0. Raises PlanError for a sparse result of another fill or without axes,
    for a diagonal of an operand, and where elements that are not stored would have to be visited."""
    counted = [_counted(operand) for operand in operands]
    program = einsum_program(labels, result, extents, operations, counted, operands[0].node.dtype)
    options = plan_options(estimator="uniform")
    fill = program.result("z")[1]
    if out_format == "coo" and (fill != 0 or not result):
        raise PlanError(f"graph: a sparse result has axes, and fill 0: out_format=coo, fill={fill}, axes={len(result)}")
    if out_format != "auto" or fill != 0:
        options.formats = {"z": ["sorted_list" if out_format == "coo" else "dense"] * len(result)}
    plan = _C.SparsePlan(program, options)
    known = {f"x{i}": operand for i, operand in enumerate(operands)}
    if out_format != "dense":
        sparse = {name: operand.entries for name, operand in known.items() if operand.entries is not None}
        check_not_densified("graph", plan.data(), extents, sparse)
    add_queries(known, plan, _refuse_diagonal)
    return known["z"]


def _counted(operand: QueryOperand) -> _C.SparseInput:
    entries = math.prod(operand.shape) if operand.entries is None else operand.entries
    return _C.SparseInput(operand.shape, operand.fill, None, entries, [])


def _refuse_diagonal(tensor: str, axes: Axes) -> QueryOperand:
    raise PlanError(
        f"graph: a label stands once in an operand beside sparse ones; take the diagonal first: operand={tensor[1:]}, "
        f"axes={[list(each) for each in axes]}"
    )


# --- the plan of a vertex ---------------------------------------------------------------------------------------------


def is_query(call: _C.Call | None) -> bool:
    """Whether a vertex computes a query."""
    return call is not None and call.function == _QUERY


def query_plan(name: str, call: _C.Call, operands: Sequence[tuple[str, _C.RelationType]]) -> Plan:
    """How the query of a vertex is computed, by entries that are spread evenly: those that its operands, given by their
    names and types, have by estimate. Sites plan the loops over their blocks anew, by the entries that these have.

    >>> import joinsum
    >>> g = joinsum.Graph()
    >>> a = g.input("A", (1000, 1000), entries=3000)
    >>> g.output("Z", g.einsum("ij,jk->ik", a, a))
    >>> vertex, operand = joinsum.explain(g).plan.nodes[-1], joinsum.explain(g).plan.nodes[0]
    >>> query_plan("Z", vertex.core.call, [("A", operand.type.relation)] * 2).logical[0]["nnz_agg"] > 8900
    True
    """
    shapes = [[axis.extent for axis in relation.axes] for _, relation in operands]
    fills, text, output, dense = _query_of(call, shapes)
    named: dict[str, _C.SparseInput] = {}
    for (operand, relation), shape, fill in zip(operands, shapes, fills, strict=True):
        entries = math.prod(shape) if relation.entries is None else relation.entries
        named[operand] = _C.SparseInput(shape, fill, None, entries, [])
    body = expression_of(_renamed(expression_of_text(text), {f"x{i}": each for i, (each, _) in enumerate(operands)}))
    dtype = operands[0][1].dtype
    program = _C.SparseProgram(call.extents(shapes), named, [(name, body, list(output))], dtype)
    options = plan_options(estimator="uniform")
    options.whole = True
    if dense and output:
        options.formats = {name: ["dense"] * len(output)}
    begin = time.perf_counter()
    handle = _C.SparsePlan(program, options)
    return Plan(handle, program, time.perf_counter() - begin, torch_dtype(dtype))


def _query_of(call: _C.Call, shapes: Sequence[Sequence[int]]) -> tuple[Sequence[float], str, str, bool]:
    """What the operator is called with: the operands' fills, the expression, its output, and whether that is dense."""
    extents = call.extents(shapes)
    listener = _Listener([extents[letter] for letter in call.result])
    operands = [torch.empty(shape, device="meta") for shape in shapes]
    with listener:
        call.run(operands)
    _, fills, expression, output, _, _, dense = listener.arguments
    return fills, expression, output, dense


class _Listener(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Takes the arguments of a query instead of computing it."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._shape = shape
        self.arguments: Sequence[Any] = ()

    def __torch_dispatch__(self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if function.name() != _QUERY:
            return function(*args, **(kwargs or {}))
        self.arguments = args
        layout = torch.strided if args[-1] else torch.sparse_coo
        return torch.empty(self._shape, dtype=args[0][0].dtype, layout=layout, device="meta")


def _renamed(data: Any, names: Mapping[str, str]) -> Any:
    """An expression whose tensors have other names."""
    if data[0] == "in":
        return ["in", names[data[1]], data[2]]
    if data[0] == "map":
        return ["map", data[1], [_renamed(each, names) for each in data[2]]]
    return ["agg", *data[1:3], _renamed(data[3], names)] if data[0] == "agg" else data
