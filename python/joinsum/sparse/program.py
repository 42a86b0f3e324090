"""Programs over sparse tensors: queries that are planned together, by the optimizer of Galley."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch

from joinsum import _C
from joinsum.base.arguments import integer, is_number, show
from joinsum.base.errors import PlanError
from joinsum.sparse.expressions import expression_of, indices_in, name_at, names_at, number_at, tensors_in
from joinsum.sparse.plan import Plan
from joinsum.sparse.plan_cache import PLANS
from joinsum.sparse.sparse_tensor import SparseTensor

__all__ = ["Program"]

# Of one query.
MOST_INDICES = 64
# Indices of a query whose orders `run` searches by branch and bound.
_MOST_SEARCHED = 10


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


def extent_at(value: object, place: str) -> int:
    """An extent, or the number of an axis; raises PlanError naming the place."""
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
        if len(row) != 3:
            raise PlanError(
                f"sparse program: a degree is [axes, given axes, count]: at={place}[{number}], value={show(each)}"
            )
        axes, given = ([extent_at(axis, f"{place}[{number}]") for axis in _listed(part, place)] for part in row[:2])
        degrees.append((axes, given, number_at(row[2], f"{place}[{number}][2]")))
    return degrees


def _input(value: object, place: str) -> _C.SparseInput:
    if isinstance(value, SparseTensor):
        handle = value.to(torch.float64).handle
        return _C.SparseInput(handle.shape, handle.fill, handle, 0, [])
    members = _members(value, place, {"shape"}, {"fill", "coo", "nnz", "degrees"})
    shape = [extent_at(each, f"{place}.shape") for each in _listed(members["shape"], f"{place}.shape")]
    fill = number_at(members.get("fill", 0), f"{place}.fill")
    degrees = _degrees(members.get("degrees", []), f"{place}.degrees")
    if "coo" in members:
        if "nnz" in members:
            raise PlanError(f"sparse program: entries and their number: at={place}; give coo or nnz")
        return _C.SparseInput(shape, fill, _entries(shape, fill, members["coo"], f"{place}.coo"), 0, degrees)
    if "nnz" not in members:
        raise PlanError(f"sparse program: neither entries nor their number: at={place}; give coo or nnz")
    return _C.SparseInput(shape, fill, None, number_at(members["nnz"], f"{place}.nnz"), degrees)


def _query(value: object, place: str) -> tuple[str, _C.SparseExpression, list[str]]:
    members = _members(value, place, {"name", "expr", "output"}, set())
    name = name_at(members["name"], f"{place}.name")
    return name, expression_of(members["expr"], f"{place}.expr"), names_at(members["output"], f"{place}.output")


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of a JSON object; raises PlanError for one that stands twice."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise PlanError(f"sparse program: an object has a name twice: name={name}")
        found[name] = value
    return found


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
        queries = _listed(members["queries"], "$.queries")
        self._queries = [_query(each, f"$.queries[{i}]") for i, each in enumerate(queries)]
        self.handle = _C.SparseProgram(
            {name_at(name, "$.index_sizes"): extent_at(size, f"$.index_sizes.{name}") for name, size in sizes.items()},
            {
                name_at(name, "$.tensors"): _input(each, f"$.tensors.{name}")
                for name, each in members["tensors"].items()
            },
            self._queries,
        )
        # A program does not change with what it was made of.
        self._data = members | {"index_sizes": dict(sizes), "tensors": dict(members["tensors"])}
        self._indices = max((len(indices_in(query["expr"])) for query in members["queries"]), default=0)
        self._plans: dict[str, Plan] = {}

    def with_query(self, query: Mapping[str, Any]) -> Program:
        """The program of this query alone, over the same tensors and over the results of this program's queries."""
        tensors = dict(self._data["tensors"])
        results = {each["name"] for each in self._data["queries"]} & tensors_in(query.get("expr"))
        if results:
            # Of a result those elements count that differ from its fill.
            tensors |= {name: each.with_levels("coo") for name, each in self.run().items() if name in results}
        return Program({"index_sizes": self._data.get("index_sizes", {}), "tensors": tensors, "queries": [query]})

    @classmethod
    def from_json(cls, text: str) -> Program:
        """The program that a JSON text holds.

        >>> Program.from_json("{")
        Traceback (most recent call last):
        ...
        joinsum.PlanError: sparse program: not JSON: Expecting property name enclosed in double quotes: line=1, column=2
        """
        if not isinstance(text, (str, bytes)):
            raise PlanError(f"sparse program: no text: type={type(text).__name__}; give a dict to Program itself")
        try:
            data = json.loads(text, object_pairs_hook=without_duplicates, parse_constant=_no_constant)
        except PlanError:
            raise
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
        kernel_size: int = 128,
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
        kernel_size  occurrences of indices in the operands of one query, beyond the distinct indices, above which the
                     cheapest product of some of its factors becomes a query of its own

        Source: Galley, sections 5 and 6.
        """
        options = plan_options(estimator, cost, mode, search, cutoffs, distribute, cover, most_loops, kernel_size)
        start = time.perf_counter()
        handle = _C.SparsePlan(self.handle, options)
        return Plan(handle, self.handle, time.perf_counter() - start)

    def run(self, *, threads: int | None = None, engine: str = "automatic", **options: Any) -> dict[str, SparseTensor]:
        """The results of all queries by name, their axes in the order of `output`. The first call with these `options`,
        which are those of `plan`, plans; later ones, also those of programs that are alike (`plan_cache_info`), reuse
        the plan and what was compiled. Orders of few indices are searched by branch and bound unless `search` says
        otherwise.

        On several sites the queries are divided among them, unless `threads` or `engine` are chosen; on a process group
        all ranks call."""
        if self._indices <= _MOST_SEARCHED:
            options = {"search": "branch_and_bound"} | options
        key = json.dumps(options, sort_keys=True, default=repr)
        if key in self._plans:
            PLANS.hit()
        else:
            self._plans[key] = self._cached_plan(key, options)
        plan = self._plans[key]
        divided = Plan.on_sites(plan) if threads is None and engine == "automatic" else None
        return plan.run(threads=threads, engine=engine) if divided is None else divided

    def _cached_plan(self, key: str, options: Mapping[str, Any]) -> Plan:
        """The plan of a program that is alike; made where there is none, and where entries are not known."""
        traits = []
        for name, handle in self.handle.tensors.items():
            if handle is None:
                return self.plan(**options)
            traits.append((name, SparseTensor.of_handle(handle).traits))
        queries = [(name, json.dumps(expr.data()), tuple(output)) for name, expr, output in self._queries]
        sizes = tuple(sorted(self._data["index_sizes"].items()))
        alike = ("program", key, tuple(queries), sizes, tuple(traits), self.handle.all_finite)

        def made() -> Plan:
            plan = self.plan(**options)
            plan.program = plan.handle.forget_tensors()
            return plan

        return PLANS.get(alike, made).of(self.handle)


def _is_finite(value: object) -> bool:
    return is_number(value) and abs(value) <= sys.float_info.max


def checked_cutoffs(who: str, cutoffs: object) -> tuple[float, float]:
    """The densities above which a level is a bytemap, and dense; raises PlanError for others."""
    if cutoffs is not None and not isinstance(cutoffs, Mapping):
        raise PlanError(f'{who}: cutoffs are numbers for "bytemap" and "dense": cutoffs={show(cutoffs)}')
    densities: dict[Any, Any] = {"bytemap": 0.05, "dense": 0.5} | dict(cutoffs or {})
    if set(densities) != {"bytemap", "dense"} or not all(map(_is_finite, densities.values())):
        raise PlanError(f'{who}: cutoffs are numbers for "bytemap" and "dense": cutoffs={show(cutoffs)}')
    return float(densities["bytemap"]), float(densities["dense"])


def plan_options(
    estimator: str = "chain",
    cost: tuple[float, float] = (1.0, 1.0),
    mode: str = "absorb",
    search: str = "greedy",
    cutoffs: Mapping[str, float] | None = None,
    distribute: bool = True,
    cover: bool = True,
    most_loops: int = 10,
    kernel_size: int = 128,
) -> _C.SparsePlanOptions:
    """The options of `Program.plan`, checked."""
    for name, value in (("estimator", estimator), ("mode", mode), ("search", search)):
        if not isinstance(value, str):
            raise PlanError(f"plan: {name} is a name: {name}={show(value)}")
    for name, switch in (("distribute", distribute), ("cover", cover)):
        if type(switch) is not bool:
            raise PlanError(f"plan: {name} is True or False: {name}={show(switch)}")
    most_loops = integer("plan", "most_loops", most_loops)
    if not 0 <= most_loops <= MOST_INDICES:
        raise PlanError(f"plan: most_loops is a number from 0 to {MOST_INDICES}: most_loops={show(most_loops)}")
    kernel_size = integer("plan", "kernel_size", kernel_size)
    if not 0 <= kernel_size < 2**31:
        raise PlanError(f"plan: kernel_size is a number that is not negative: kernel_size={show(kernel_size)}")
    if not isinstance(cost, (list, tuple)) or len(cost) != 2 or not all(map(_is_finite, cost)) or min(cost) < 0:
        raise PlanError(f"plan: cost is two finite numbers that are not negative: cost={show(cost)}")
    densities = checked_cutoffs("plan", cutoffs)
    return _C.SparsePlanOptions(
        estimator,
        (float(cost[0]), float(cost[1])),
        mode,
        search,
        *densities,
        distribute,
        cover,
        most_loops,
        kernel_size,
    )
