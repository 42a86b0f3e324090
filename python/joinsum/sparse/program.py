"""Programs over sparse tensors: queries that are planned together, by the optimizer of Galley."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import torch

from joinsum import _C
from joinsum.base.arguments import show
from joinsum.base.errors import PlanError
from joinsum.sparse.densified import check_programs_not_densified
from joinsum.sparse.expressions import expression_of, fraction_in, indices_in, name_at, names_at, tensors_in
from joinsum.sparse.json_fields import extent_at, list_at, object_at, without_duplicates
from joinsum.sparse.plan import Plan, checked_threads
from joinsum.sparse.plan_cache import PLANS
from joinsum.sparse.plan_options import plan_options
from joinsum.sparse.program_tensors import input_at
from joinsum.sparse.sparse_tensor import SparseTensor

__all__ = ["Program"]

# Indices of a query whose orders `run` searches by branch and bound.
_MOST_SEARCHED = 10
# What programs compute in.
_DTYPES = {"float32": torch.float32, "float64": torch.float64, "int32": torch.int32, "int64": torch.int64}


def _dtype_at(value: object, place: str) -> torch.dtype:
    """A dtype of torch's, or its name; raises PlanError naming the place."""
    dtype = _DTYPES.get(value) if isinstance(value, str) else value
    if not isinstance(dtype, torch.dtype) or dtype not in _DTYPES.values():
        names = ", ".join(_DTYPES)
        raise PlanError(f"sparse program: no dtype of programs; there are {names}: at={place}, value={show(value)}")
    return dtype


def _query(value: object, dtype: torch.dtype, place: str) -> tuple[str, _C.SparseExpression, list[str]]:
    members = object_at(value, place, {"name", "expr", "output"}, set())
    name = name_at(members["name"], f"{place}.name")
    expression = expression_of(members["expr"], f"{place}.expr")
    fraction = None if dtype.is_floating_point else fraction_in(members["expr"], f"{place}.expr")
    if fraction is not None:
        at, what = fraction
        raise PlanError(
            f"sparse program: it gives no whole numbers; choose dtype float64: at={at}, {what}, dtype={dtype}"
        )
    return name, expression, names_at(members["output"], f"{place}.output")


def _no_constant(name: str) -> float:
    raise PlanError(f'sparse program: {name} is no JSON; write "inf" or "-inf"')


class Program:
    """Named sparse tensors, and queries over them: einsums of any nesting, with any operators.

    data            the program as docs/sparse.md describes it, a dict with
        index_sizes   extents of indices that no tensor has, {} where there are none
        dtype         that values and results have, and in which they are computed: "float64" unless given, "float32",
                      "int32" or "int64", or torch's own. Sums and products of integers wrap around, as in torch
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
        members = object_at(data, "$", {"tensors", "queries"}, {"index_sizes", "dtype"})
        sizes = members.get("index_sizes", {})
        if not isinstance(sizes, Mapping) or not isinstance(members["tensors"], Mapping):
            raise PlanError("sparse program: index_sizes and tensors are objects: at=$")
        self.dtype = _dtype_at(members.get("dtype", "float64"), "$.dtype")
        queries = list_at(members["queries"], "$.queries")
        self._queries = [_query(each, self.dtype, f"$.queries[{i}]") for i, each in enumerate(queries)]
        # A program does not change with what it was made of, but for values that are written to.
        self._data = members | {"index_sizes": dict(sizes), "tensors": dict(members["tensors"])}
        self._live = {
            name: each
            for name, each in self._data["tensors"].items()
            if isinstance(each, SparseTensor) and each.shared_values is not None
        }
        self._make()
        self._indices = max((len(indices_in(query["expr"])) for query in members["queries"]), default=0)

    def _make(self) -> None:
        """The core object, of the tensors as they are."""
        sizes = self._data["index_sizes"]
        self._handles = {name: x.handle for name, x in self._live.items()}
        self.handle = _C.SparseProgram(
            {name_at(name, "$.index_sizes"): extent_at(size, f"$.index_sizes.{name}") for name, size in sizes.items()},
            {
                name_at(name, "$.tensors"): input_at(each, self.dtype, f"$.tensors.{name}")
                for name, each in self._data["tensors"].items()
            },
            self._queries,
        )
        self._plans: dict[str, Plan] = {}

    @property
    def _live_in_dtype(self) -> dict[str, SparseTensor]:
        """Those of them that runs read as they are."""
        return {name: x for name, x in self._live.items() if x.dtype is self.dtype}

    def _refresh(self) -> None:
        """Takes the values that tensors have got since, of those whose values are the caller's."""
        if any(x.handle is not self._handles[name] for name, x in self._live.items()):
            self._make()

    def with_query(self, query: Mapping[str, Any]) -> Program:
        """The program of this query alone, over the same tensors and over the results of this program's queries."""
        tensors = dict(self._data["tensors"])
        results = {each["name"] for each in self._data["queries"]} & tensors_in(query.get("expr"))
        if results:
            # Of a result those elements count that differ from its fill.
            tensors |= {name: each.with_levels("coo") for name, each in self.run().items() if name in results}
        return Program(self._data | {"tensors": tensors, "queries": [query]})

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
        dependencies: bool = True,
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
        dependencies  whether a tensor that is joined with itself along an axis that determines its others, as a key
                     does, is read as one: no two stored elements have the same coordinate along such an axis

        Source: Galley, sections 5 and 6.
        """
        self._refresh()
        options = plan_options(
            estimator, cost, mode, search, cutoffs, distribute, cover, most_loops, kernel_size, dependencies
        )
        start = time.perf_counter()
        handle = _C.SparsePlan(self.handle, options)
        return Plan(handle, self.handle, time.perf_counter() - start, self.dtype, self._live_in_dtype)

    def run(self, *, threads: int | None = None, engine: str = "automatic", **options: Any) -> dict[str, SparseTensor]:
        """The results of all queries by name, their axes in the order of `output`. The first call with these `options`,
        which are those of `plan`, plans; later ones, also those of programs that are alike (`plan_cache_info`), reuse
        the plan and what was compiled. Orders of few indices are searched by branch and bound unless `search` says
        otherwise.

        On several sites the queries are divided among them, unless `threads` or `engine` are chosen; on a process group
        all ranks call."""
        with Plan.preparing():
            checked_threads(threads, engine)
            plan = self._known_plan(options)
        divided = Plan.on_sites(plan) if threads is None and engine == "automatic" else None
        return plan.run(threads=threads, engine=engine) if divided is None else divided

    def _known_plan(self, options: Mapping[str, Any]) -> Plan:
        """The plan that `run` takes."""
        self._refresh()
        if self._indices <= _MOST_SEARCHED:
            options = {"search": "branch_and_bound"} | dict(options)
        key = json.dumps(options, sort_keys=True, default=repr)
        if key in self._plans:
            PLANS.hit()
        else:
            plan = self._cached_plan(key, options)
            data = {"logical": plan.logical, "physical": plan.physical}
            check_programs_not_densified(data, self.handle.inputs, self._data["index_sizes"])
            self._plans[key] = plan
        return self._plans[key]

    def _cached_plan(self, key: str, options: Mapping[str, Any]) -> Plan:
        """The plan of a program that is alike; made where there is none, and where entries are not known."""
        traits = []
        for name, handle in self.handle.tensors.items():
            if handle is None:
                return self.plan(**options)
            traits.append((name, SparseTensor.of_handle(handle).traits))
        queries = [(name, json.dumps(expr.data()), tuple(output)) for name, expr, output in self._queries]
        sizes = tuple(sorted(self._data["index_sizes"].items()))
        facts = (self.handle.all_finite, repr(self.handle.dependencies))
        alike = ("program", key, self.dtype, tuple(queries), sizes, tuple(traits), *facts)

        def made() -> Plan:
            plan = self.plan(**options)
            return plan.of(plan.handle.forget_tensors())

        return PLANS.get(alike, made).of(self.handle, self._live_in_dtype)
