"""Programs over sparse tensors: queries that are planned together, by the optimizer of Galley."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import torch

from joinsum import _C
from joinsum.base.arguments import is_number, show
from joinsum.base.errors import PlanError
from joinsum.sparse.expressions import expression_of, names_at, number_at, tensors_in
from joinsum.sparse.plan import Plan
from joinsum.sparse.sparse_tensor import SparseTensor

__all__ = ["Program"]


def _members(value: object, place: str, needed: set[str], optional: set[str]) -> dict[str, Any]:
    """An object with these members; raises PlanError naming the place."""
    if not isinstance(value, Mapping):
        raise PlanError(f"sparse program: an object is needed: at={place}, value={show(value)}")
    missing = needed - set(value)
    if missing:
        raise PlanError(f"sparse program: missing: at={place}, members={sorted(missing)}")
    unknown = set(value) - needed - optional
    if unknown:
        raise PlanError(f"sparse program: unknown members: at={place}, members={sorted(map(str, unknown))}")
    return dict(value)


def _extent(value: object, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise PlanError(f"sparse program: no extent: at={place}, value={show(value)}")
    return value


def _listed(value: object, place: str) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise PlanError(f"sparse program: a list is needed: at={place}, value={show(value)}")
    return list(value)


def _coordinates(entries: list[Any], rank: int, place: str) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Coordinates along each axis, and values."""
    axes: list[list[int]] = [[] for _ in range(rank)]
    values = []
    for number, entry in enumerate(entries):
        row = _listed(entry, f"{place}[{number}]")
        if len(row) != rank + 1:
            raise PlanError(
                f"sparse program: an entry has a coordinate for each axis, and a value: at={place}[{number}], "
                f"entry={show(entry)}, axes={rank}"
            )
        for axis, coordinate in enumerate(row[:-1]):
            if isinstance(coordinate, bool) or not isinstance(coordinate, int) or abs(coordinate) >= 2**63:
                raise PlanError(
                    f"sparse program: no coordinate: at={place}[{number}][{axis}], value={show(coordinate)}"
                )
            axes[axis].append(coordinate)
        values.append(number_at(row[-1], f"{place}[{number}][{rank}]"))
    return [torch.tensor(axis, dtype=torch.int64) for axis in axes], torch.tensor(values, dtype=torch.float64)


def _entries(shape: list[int], fill: float, coo: object, place: str) -> _C.SparseTensor:
    coordinates, values = _coordinates(_listed(coo, place), len(shape), place)
    if not shape and len(values) > 1:
        raise PlanError(f"sparse program: a scalar has one entry at most: at={place}, entries={len(values)}")
    axes = list(range(len(shape)))
    formats = ["sorted_list"] * len(shape)
    try:
        return _C.SparseTensor.from_coordinates(shape, coordinates, values, axes, formats, fill, None, 2**40)
    except PlanError as error:
        raise PlanError(f"{error}: at={place}") from None


def _degrees(value: object, place: str) -> list[tuple[list[int], list[int], float]]:
    degrees = []
    for number, each in enumerate(_listed(value, place)):
        row = _listed(each, f"{place}[{number}]")
        if len(row) != 3 or not is_number(row[2]):
            raise PlanError(
                f"sparse program: a degree is [axes, given axes, count]: at={place}[{number}], value={show(each)}"
            )
        axes, given = ([_extent(axis, f"{place}[{number}]") for axis in _listed(part, place)] for part in row[:2])
        degrees.append((axes, given, float(row[2])))
    return degrees


def _input(value: object, place: str) -> _C.SparseInput:
    if isinstance(value, SparseTensor):
        handle = value.to(torch.float64).handle
        return _C.SparseInput(handle.shape, handle.fill, handle, 0, [])
    members = _members(value, place, {"shape"}, {"fill", "coo", "nnz", "degrees"})
    shape = [_extent(each, f"{place}.shape") for each in _listed(members["shape"], f"{place}.shape")]
    fill = number_at(members.get("fill", 0), f"{place}.fill")
    degrees = _degrees(members.get("degrees", []), f"{place}.degrees")
    if "coo" in members:
        if "nnz" in members:
            raise PlanError(f"sparse program: entries and their number: at={place}; give coo or nnz")
        return _C.SparseInput(shape, fill, _entries(shape, fill, members["coo"], f"{place}.coo"), 0, degrees)
    if "nnz" not in members:
        raise PlanError(f"sparse program: neither entries nor their number: at={place}; give coo or nnz")
    nnz = members["nnz"]
    if not is_number(nnz):
        raise PlanError(f"sparse program: no number of entries: at={place}.nnz, value={show(nnz)}")
    return _C.SparseInput(shape, fill, None, float(nnz), degrees)


def _query(value: object, place: str) -> tuple[str, _C.SparseExpression, list[str]]:
    members = _members(value, place, {"name", "expr", "output"}, set())
    name = members["name"]
    if not isinstance(name, str) or not name:
        raise PlanError(f"sparse program: no name: at={place}.name, value={show(name)}")
    return name, expression_of(members["expr"], f"{place}.expr"), names_at(members["output"], f"{place}.output")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise PlanError(f"sparse program: an object has a name twice: name={min(twice)}")
    return dict(pairs)


def _no_constant(name: str) -> float:
    raise PlanError(f'sparse program: {name} is no JSON; write "inf" or "-inf"')


class Program:
    """Named sparse tensors, and queries over them: einsums of any nesting, with any operators.

    data            the program as docs/sparse.md describes it, a dict with
        index_sizes   extents of indices that no tensor has, {} where there are none
        tensors       by name: a SparseTensor; `shape`, `fill` (0 unless given) and the entries `coo`, rows of
                      coordinates and a value; or only their number `nnz`, and `degrees`
        queries       `name`, `expr` and `output`, the indices of the result in their order

    Raises PlanError with the JSON path of what is wrong.

    Source: Galley, section 4.

    >>> program = Program({
    ...     "tensors": {"A": {"shape": [2, 3], "coo": [[0, 1, 2.0], [1, 2, 3.0]]}},
    ...     "queries": [{"name": "sums", "expr": ["agg", "+", ["j"], ["in", "A", ["i", "j"]]], "output": ["i"]}],
    ... })
    >>> program.run()["sums"].to_torch().tolist()
    [2.0, 3.0]
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        members = _members(data, "$", {"tensors", "queries"}, {"index_sizes"})
        sizes = members.get("index_sizes", {})
        if not isinstance(sizes, Mapping) or not isinstance(members["tensors"], Mapping):
            raise PlanError("sparse program: index_sizes and tensors are objects: at=$")
        self.handle = _C.SparseProgram(
            {str(name): _extent(size, f"$.index_sizes.{name}") for name, size in sizes.items()},
            {str(name): _input(each, f"$.tensors.{name}") for name, each in members["tensors"].items()},
            [_query(each, f"$.queries[{i}]") for i, each in enumerate(_listed(members["queries"], "$.queries"))],
        )
        self._data = members
        self._plans: dict[str, Plan] = {}

    def with_query(self, query: Mapping[str, Any]) -> Program:
        """The program of this query alone, over the same tensors and over the results of this program's queries."""
        tensors = dict(self._data["tensors"])
        results = {each["name"] for each in self._data["queries"]} & tensors_in(query.get("expr"))
        if results:
            tensors |= {name: each for name, each in self.run().items() if name in results}
        return Program({"index_sizes": self._data.get("index_sizes", {}), "tensors": tensors, "queries": [query]})

    @classmethod
    def from_json(cls, text: str) -> Program:
        """The program that a JSON text holds.

        >>> Program.from_json("{")
        Traceback (most recent call last):
        ...
        joinsum.PlanError: sparse program: not JSON: Expecting property name enclosed in double quotes: line=1, column=2
        """
        try:
            data = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_no_constant)
        except json.JSONDecodeError as error:
            raise PlanError(
                f"sparse program: not JSON: {error.msg}: line={error.lineno}, column={error.colno}"
            ) from None
        except UnicodeDecodeError as error:
            raise PlanError(f"sparse program: not JSON: no UTF-8: byte={error.start}") from None
        except RecursionError:
            raise PlanError("sparse program: lists and objects are nested too deep") from None
        except ValueError as error:
            raise PlanError(f"sparse program: not JSON: {error}") from None
        return cls(data)

    def plan(
        self,
        *,
        estimator: str = "chain",
        cost: tuple[float, float] = (1.0, 1.0),
        mode: str = "absorb",
        search: str = "greedy",
        cutoffs: Mapping[str, float] | None = None,
        distribute: bool = True,
        cover: bool = True,
        most_loops: int = 10,
    ) -> Plan:
        """How the queries are computed, as data that prints.

        estimator    how numbers of entries are estimated: "chain" (an upper bound), "uniform", "exact" (counts them),
                     or one that was registered
        cost         of an entry of an aggregate's result, and of one of the expression that it reduces
        mode         "single" reduces an index at a time, "absorb" also all others that occur nowhere else
        search       "greedy", or "branch_and_bound" through the sets of indices that are eliminated
        cutoffs      densities of a result's level above which it is a "bytemap" (0.05) or "dense" (0.5)
        distribute   whether products of sums may become sums of products
        cover        whether a query may also have the factors all of whose indices it has anyway, where that is cheaper
        most_loops   of a kernel whose loops are ordered by search; above, greedily

        Source: Galley, sections 5 and 6.
        """
        options = plan_options(estimator, cost, mode, search, cutoffs, distribute, cover, most_loops)
        start = time.perf_counter()
        handle = _C.SparsePlan(self.handle, options)
        return Plan(handle, time.perf_counter() - start)

    def run(self, *, threads: int | None = None, engine: str = "automatic", **options: Any) -> dict[str, SparseTensor]:
        """The results of all queries by name, their axes in the order of `output`. The first call with these `options`,
        which are those of `plan`, plans; later ones reuse the plan and what was compiled."""
        key = json.dumps(options, sort_keys=True, default=repr)
        if key not in self._plans:
            self._plans[key] = self.plan(**options)
        return self._plans[key].run(threads=threads, engine=engine)


def plan_options(
    estimator: str = "chain",
    cost: tuple[float, float] = (1.0, 1.0),
    mode: str = "absorb",
    search: str = "greedy",
    cutoffs: Mapping[str, float] | None = None,
    distribute: bool = True,
    cover: bool = True,
    most_loops: int = 10,
) -> _C.SparsePlanOptions:
    """The options of `Program.plan`, checked."""
    if len(cost) != 2 or not all(is_number(each) and each >= 0 for each in cost):
        raise PlanError(f"plan: cost is two numbers that are not negative: cost={show(cost)}")
    densities = {"bytemap": 0.05, "dense": 0.5} | dict(cutoffs or {})
    unknown = set(densities) - {"bytemap", "dense"}
    if unknown or not all(is_number(each) for each in densities.values()):
        raise PlanError(f'plan: cutoffs are numbers for "bytemap" and "dense": cutoffs={show(cutoffs)}')
    return _C.SparsePlanOptions(
        estimator,
        (float(cost[0]), float(cost[1])),
        mode,
        search,
        float(densities["bytemap"]),
        float(densities["dense"]),
        distribute,
        cover,
        most_loops,
    )
