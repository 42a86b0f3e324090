"""The rules of plans of sparse programs: of a logical plan, and of the physical one that is made from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from joinsum import _C
from joinsum.base.arguments import show
from joinsum.base.errors import PlanError
from joinsum.sparse.expressions import MOST_LEVELS, Data, expression_of, name_at, names_at, number_at
from joinsum.sparse.spellings import FORMATS

__all__ = ["check_logical", "check_physical"]

# A query of a plan.
Query = Mapping[str, Any]
# A tensor or a query that an expression reads, and the index of each of its axes.
Leaf = tuple[str, list[str]]

_LOGICAL = ("name", "op", "indices", "expr", "output", "nnz_agg", "nnz_map", "cost")
_PHYSICAL = ("name", "loops", "iterations", "output", "formats", "accesses", "transposed", "cost", "whole_range")
_ACCESS = ("tensor", "indices", "protocols")


class _Program(Protocol):
    """A `joinsum.sparse.Program`."""

    @property
    def handle(self) -> _C.SparseProgram: ...


def check_logical(logical: Sequence[Query], program: _Program) -> None:
    """Raises PlanError, with the query and the rule that it breaks, unless this is a logical plan of `program`: each
    query is one aggregate over an expression without aggregates, or such an expression, of tensors and earlier queries.

    logical   `Plan.logical`, or "logical" of a plan's JSON
    program   the Program that is planned

    Source: Galley, section 4.

    >>> from joinsum.sparse import Program
    >>> total = {"name": "total", "expr": ["agg", "+", ["i"], ["in", "V", ["i"]]], "output": []}
    >>> program = Program({"tensors": {"V": {"shape": [3], "nnz": 2}}, "queries": [total]})
    >>> plan = program.plan()
    >>> check_logical(plan.logical, program)
    >>> check_logical([plan.logical[0] | {"output": ["i"]}], program)
    Traceback (most recent call last):
    ...
    joinsum.PlanError: logical plan: a reduced index is in the output: indices=['i'], output=['i'], query=total
    """
    handle = program.handle
    results = {name: handle.result(name)[0] for name in handle.queries}
    shapes = {name: handle.result(name)[0] for name in handle.tensors}

    def check(query: Query) -> None:
        name = name_at(_with_fields(query, _LOGICAL)["name"], "name")
        _require(name not in shapes, "the name is taken", names=list(shapes))
        shapes[name] = _shape_of_logical(query, shapes, results.get(name))

    _check_each("logical plan", logical, check)
    missing = [name for name in results if name not in shapes]
    _require(not missing, "logical plan: queries of the program are missing", queries=missing)


def check_physical(physical: Sequence[Query], logical: Sequence[Query], program: _Program) -> None:
    """Raises PlanError, with the query and the rule that it breaks, unless this is a physical plan of `logical`: each
    query has a loop for every index, reads its operands in the order of the loops, and says which ones walk them.

    physical   `Plan.physical`, or "physical" of a plan's JSON
    logical    the logical plan, of which `check_logical` holds
    program    the Program that is planned

    Source: Galley, section 4.

    >>> from joinsum.sparse import Program
    >>> total = {"name": "total", "expr": ["agg", "+", ["i"], ["in", "V", ["i"]]], "output": []}
    >>> program = Program({"tensors": {"V": {"shape": [3], "nnz": 2}}, "queries": [total]})
    >>> plan = program.plan()
    >>> check_physical(plan.physical, plan.logical, program)
    >>> check_physical([plan.physical[0] | {"formats": ["dense"]}], plan.logical, program)
    Traceback (most recent call last):
    ...
    joinsum.PlanError: physical plan: not one format for each level: formats=['dense'], output=[], query=total
    """
    _check_each("physical plan", physical, lambda query: _with_fields(query, _PHYSICAL))
    _check_each("logical plan", logical, lambda query: _with_fields(query, _LOGICAL))
    names, planned = ([query["name"] for query in queries] for queries in (physical, logical))
    _require(names == planned, "physical plan: not the queries of the logical plan", names=names, logical=planned)
    queries = {query["name"]: query for query in logical}
    between = set(queries) - set(program.handle.queries)
    # The axis of each level of a tensor; those with statistics only count as stored in the order of their axes.
    stored = {name: None if tensor is None else tensor.axes for name, tensor in program.handle.tensors.items()}

    def check(query: Query) -> None:
        _check_loops(query, queries[query["name"]])
        _check_accesses(query, queries[query["name"]], between, stored)
        _check_protocols(query)

    _check_each("physical plan", physical, check)


def _require(holds: bool, rule: str, **values: object) -> None:
    """Raises PlanError with the rule and these values where it does not hold."""
    if not holds:
        raise PlanError(f"{rule}: {', '.join(f'{name}={show(value)}' for name, value in values.items())}")


def _check_each(who: str, queries: Iterable[Query], check: Callable[[Query], object]) -> None:
    """Checks each query; errors say who raised them and of which query."""
    _require(isinstance(queries, (list, tuple)), f"{who}: a list of queries is needed", value=queries)
    for query in queries:
        try:
            check(query)
        except PlanError as error:
            name = query.get("name") if isinstance(query, Mapping) else show(query)
            raise PlanError(f"{who}: {error}, query={name}") from None


def _with_fields(data: Any, names: Sequence[str]) -> Query:
    _require(isinstance(data, Mapping), "an object is needed", value=data)
    missing = [name for name in names if name not in data]
    _require(not missing, "fields are missing", fields=missing)
    return data  # type: ignore[no-any-return]


def _listed(query: Query, field: str) -> list[Any]:
    _require(isinstance(query[field], (list, tuple)), "a list is needed", at=field, value=query[field])
    return list(query[field])


def _check_number(query: Query, field: str) -> None:
    values = _listed(query, field) if field == "iterations" else [query[field]]
    for value in values:
        _require(number_at(value, field) >= 0, "a negative number", at=field, value=value)


def _leaves(expr: Data) -> list[Leaf]:
    """The leaves of an expression without aggregates, from left to right."""
    if expr[0] == "in":
        return [(expr[1], list(expr[2]))]
    return [leaf for child in expr[2] for leaf in _leaves(child)] if expr[0] == "map" else []


def _has_aggregate(expr: Data) -> bool:
    return expr[0] == "agg" or (expr[0] == "map" and any(map(_has_aggregate, expr[2])))


def _shape_of_logical(query: Query, shapes: Mapping[str, list[int]], result: list[int] | None) -> list[int]:
    """Checks a logical query and returns its shape. It may read what has `shapes`; `result` is the shape that a query
    of the program has."""
    op, expr = query["op"], query["expr"]
    indices, output = names_at(query["indices"], "indices"), names_at(query["output"], "output")
    _require((op is None) == (not indices), "op and indices do not go together", op=op, indices=indices)
    # May be deeper than a program's: the aggregate over an index that no leaf has becomes a map.
    expression_of(expr if op is None else ["agg", op, indices, expr], "expr", level=1 - MOST_LEVELS)
    _require(not _has_aggregate(expr), "an aggregate below another one", expr=expr)
    leaves = _leaves(expr)
    extents = _extents_of(leaves, shapes)
    lost = sorted(set(extents) - {*indices, *output})
    _require(not lost, "an index is neither reduced nor in the output", indices=lost)
    _require(set(indices) <= set(extents), "a reduced index is not in the expression", indices=indices, expr=expr)
    _require(not set(indices) & set(output), "a reduced index is in the output", indices=indices, output=output)
    _require(len(set(output)) == len(output), "the output has an index twice", output=output)
    if result is not None:
        extents = _extents_of([*leaves, (query["name"], output)], {**shapes, query["name"]: result})
    _require(set(output) <= set(extents), "an index of the output has no extent", output=output, expr=expr)
    for field in ("nnz_agg", "nnz_map", "cost"):
        _check_number(query, field)
    is_free = op is None and result is not None
    _require(not is_free or query["cost"] == 0, "a query without an aggregate has a cost", cost=query["cost"])
    return [extents[index] for index in output]


def _extents_of(leaves: Iterable[Leaf], shapes: Mapping[str, list[int]]) -> dict[str, int]:
    """The extent of each index of leaves that read what has these shapes."""
    extents: dict[str, int] = {}
    for name, indices in leaves:
        _require(name in shapes, "a leaf reads no tensor and no earlier query", leaf=name)
        shape = shapes[name]
        _require(len(indices) == len(shape), "not one index for each axis", leaf=name, indices=indices, shape=shape)
        for index, extent in zip(indices, shape, strict=True):
            known = extents.setdefault(index, extent)
            _require(known == extent, "an index has two extents", leaf=name, index=index, extents=[known, extent])
    return extents


def _check_loops(query: Query, planned: Query) -> None:
    """That there is a loop for each index, and a level for each of the output."""
    loops, output, formats = (names_at(query[field], field) for field in ("loops", "output", "formats"))
    indices = sorted({*planned["output"], *(index for _, own in _leaves(planned["expr"]) for index in own)})
    _require(sorted(loops) == indices, "the loops are not the indices, each once", loops=loops, indices=indices)
    iterations = _listed(query, "iterations")
    _require(len(iterations) == len(loops), "not one number of iterations for each loop", iterations=iterations)
    _require(output == list(planned["output"]), "the levels are not those of the output in its order", output=output)
    _require(len(formats) == len(output), "not one format for each level", formats=formats, output=output)
    _require(set(formats) <= set(FORMATS), "no such format", formats=formats)
    for field in ("iterations", "cost"):
        _check_number(query, field)


def _check_accesses(query: Query, planned: Query, between: set[str], stored: Mapping[str, list[int] | None]) -> None:
    """That leaves are read in the order of the loops: results `between` are stored in it, and tensors transposed."""
    leaves = _leaves(planned["expr"])
    accesses = [_with_fields(access, _ACCESS) for access in _listed(query, "accesses")]
    read = [access["tensor"] for access in accesses]
    _require(read == [name for name, _ in leaves], "the accesses are not the leaves, left to right", accesses=read)
    discordant = set()
    for access, (name, own) in zip(accesses, leaves, strict=True):
        order = [loop for loop in query["loops"] if loop in own]
        indices = names_at(access["indices"], "indices")
        _require(indices == order, "an access is not in the order of the loops", access=name, indices=indices)
        if name in between:
            # A map of the values of one result may be applied to them in the levels that they have.
            maps_values = planned["op"] is None and len(leaves) == 1 and sorted(own) == sorted(query["output"])
            wanted = list(query["output"]) if maps_values else order
            _require(own == wanted, "a result is not read in the order of the loops", leaf=name, indices=own)
        elif name in stored:
            axes = stored[name]
            levels = dict.fromkeys(own if axes is None else [own[axis] for axis in axes])
            discordant |= {name} if list(levels) != order else set()
    transposed = names_at(query["transposed"], "transposed")
    is_right = sorted(transposed) == sorted(discordant)
    _require(is_right, "transposed are not the tensors that disagree with the loops", transposed=transposed)


def _check_protocols(query: Query) -> None:
    """That one access walks each loop, or all do, or the loop visits its whole range."""
    whole = names_at(query["whole_range"], "whole_range")
    _require(sorted(whole) == sorted(set(whole) & set(query["loops"])), "whole_range names no loop", whole_range=whole)
    readers: dict[str, list[str]] = {loop: [] for loop in query["loops"]}
    for access in query["accesses"]:
        indices, protocols = access["indices"], names_at(access["protocols"], "protocols")
        _require(len(protocols) == len(indices), "not one protocol for each index", access=access)
        _require(set(protocols) <= {"walk", "lookup"}, "no such protocol", protocols=protocols)
        for index, protocol in zip(indices, protocols, strict=True):
            readers[index].append(protocol)
    for loop, protocols in readers.items():
        walkers = protocols.count("walk")
        _require(
            walkers > 0 or loop in whole,
            "a loop has no walker, and is not in whole_range",
            loop=loop,
            whole_range=whole,
        )
        _require(walkers in (0, 1, len(protocols)), "several accesses walk a loop, but not all", loop=loop)
