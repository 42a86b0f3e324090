"""Plans of sparse programs: what was decided, as data, and its runs."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import torch

from joinsum import _C
from joinsum.base.arguments import integer, show
from joinsum.base.errors import PlanError
from joinsum.sparse.expressions import MOST_LEVELS, expression_of, written
from joinsum.sparse.sparse_tensor import SparseTensor

__all__ = ["Plan", "checked_threads"]

ENGINES = ("automatic", "interpreter", "compiled")


class Plan:
    """How a program is computed.

    logical     the queries in order, each with one aggregate: `name`, `op`, `indices`, `expr`, `output`, estimated
                entries `nnz_agg` and `nnz_map` of result and expression, `cost`
    cost        of all of them
    orders      the indices of each source query in the order in which they are eliminated
    physical    the loop nest of each query: `loops`, their `iterations`, `formats` of the result's levels, `accesses`
                (`tensor`, `indices`, and a protocol for each: "walk" or "lookup"), what is `transposed`, `cost`
    classes     names of queries that are one
    seconds     `plan`, `compile` and `run`, of the last run

    Source: Galley, sections 5 and 6.
    """

    # Set by joinsum.execution. Runs a plan on several sites; None of one site, and of a plan that is not divided.
    on_sites: ClassVar[Callable[[Plan], dict[str, SparseTensor] | None]]
    # Likewise. The graph of its queries with its plan for the sites there are.
    planned_on_sites: ClassVar[Callable[[Plan], Any]]
    # Around what may raise before a run: errors are raised on the other sites, too, so that they do not wait.
    preparing: ClassVar[Callable[[], AbstractContextManager[None]]]

    def __init__(
        self,
        handle: _C.SparsePlan,
        program: _C.SparseProgram,
        seconds: float,
        dtype: torch.dtype,
        live: Mapping[str, SparseTensor] | None = None,
    ) -> None:
        """`live` are tensors of the program whose values the caller has, and may write to."""
        self.handle = handle
        self._live = live or {}
        self.program = program
        self.dtype = dtype
        self.divided: Any = None  # how sites divide it, once they have
        # Of the last run: the handle may run for other tensors meanwhile.
        self._replanned: list[str] = []
        self._compiled: list[str] = []
        self._true_entries: dict[str, int] = {}
        data = handle.data()
        self.logical: list[dict[str, Any]] = [each | {"expr": written(each["expr"])} for each in data["logical"]]
        self.cost: float = data["cost"]
        self.orders: dict[str, list[str]] = data["orders"]
        self.physical: list[dict[str, Any]] = data["physical"]
        self.classes: list[list[str]] = data["classes"]
        # Whether branch and bound went through all orders of each source query, or gave up for the greedy one.
        self.search_complete: dict[str, bool] = data["search_complete"]
        self._planning = seconds
        self.seconds: dict[str, float] = {"plan": seconds, "compile": 0.0, "run": 0.0}

    def of(self, program: _C.SparseProgram, live: Mapping[str, SparseTensor] | None = None) -> Plan:
        """The same for the tensors of another program of the same structure."""
        plan = copy.copy(self)
        plan.program, plan.divided, plan._live = program, None, live or {}
        plan._replanned, plan._compiled, plan._true_entries = [], [], {}
        plan.seconds = dict(self.seconds)
        return plan

    def run(
        self,
        *,
        threads: int | None = None,
        engine: str = "automatic",
        cache: str | Path | None = None,
        adapt: bool = True,
        analyze: bool = False,
    ) -> dict[str, SparseTensor]:
        """The results of the program's queries by name. Raises PlanError where only statistics of a tensor are known.

        threads   that run kernels, by default as many as torch uses (`torch.set_num_threads`)
        engine    "compiled" generates C++ and compiles it with the system's compiler, "interpreter" needs none;
                  "automatic" compiles what would take longer to interpret, where that works. JOINSUM_JIT=0 in the
                  environment never compiles
        cache     folder of compiled kernels, by default `joinsum/kernels` in the user's cache folder
        adapt     whether the loops of a query that reads results of others are planned again once these are there, by
                  their true entries; later runs take such a plan where entries are the same within a factor of two
        analyze   whether `true_entries` are counted, once the run is over: the elements that differ from the fill; a
                  dense result also stores others

        This process computes all; `Program.run` divides a program among sites.
        """
        count = checked_threads(threads, engine)
        if not isinstance(adapt, bool) or not isinstance(analyze, bool):
            raise PlanError(f"run: adapt and analyze are True or False: adapt={show(adapt)}, analyze={show(analyze)}")
        tensors = {name: tensor for name, tensor in self.program.tensors.items() if tensor is not None}
        tensors |= {name: x.handle for name, x in self._live.items()}
        run = self.handle.run(tensors, count, engine, "" if cache is None else str(cache), adapt, False, analyze)
        self._replanned, self._compiled = run.replanned, run.compiled
        self._true_entries = {name: int(entries) for name, entries in run.true_entries.items()}
        again, self.seconds["compile"], self.seconds["run"] = run.seconds
        self.seconds["plan"] = self._planning + again
        # Queries without tensors have no dtype of their own.
        return {name: SparseTensor.of_handle(handle).to(self.dtype) for name, handle in run.results.items()}

    @property
    def site_plan(self) -> Any:
        """How the sites of `joinsum.init` divide the queries, as a `PlannedGraph` that prints, also where only
        statistics of tensors are known; None of one site, and where each process computes all."""
        return Plan.planned_on_sites(self)

    @property
    def replanned(self) -> list[str]:
        """Queries whose loops followed true entries in the last run."""
        return list(self._replanned)

    @property
    def compiled(self) -> list[str]:
        """Queries whose kernels ran compiled in the last run."""
        return list(self._compiled)

    @property
    def true_entries(self) -> dict[str, int]:
        """Entries of each query's result, also of those between, in the last run: what is stored, or with `analyze` the
        elements that differ from the fill."""
        return dict(self._true_entries)

    def data(self) -> dict[str, Any]:
        """All fields as JSON has them."""
        return {
            "logical": written(self.logical),
            "cost": written(self.cost),
            "orders": self.orders,
            "physical": written(self.physical),
            "classes": self.classes,
            "seconds": dict(self.seconds),
        }

    def to_json(self) -> str:
        """All fields as JSON text."""
        return json.dumps(self.data())

    def __str__(self) -> str:
        lines = [f"cost {self.cost:.6g}", *self.query_lines()]
        lines += [f"one: {' = '.join(members)}" for members in self.classes]
        return "\n".join(lines)

    __repr__ = __str__

    def query_lines(self) -> list[str]:
        """The logical queries as text, each with its entries, its cost and its loop nest."""
        lines = []
        true_entries = self.true_entries
        for logical, physical in zip(self.logical, self.physical, strict=True):
            reduced = f"{logical['op']}[{','.join(logical['indices'])}] " if logical["op"] else ""
            # Deeper than what users may write, where powers stand for aggregates.
            text = expression_of(logical["expr"], level=-MOST_LEVELS).text()
            lines.append(f"{logical['name']}[{','.join(logical['output'])}] = {reduced}{text}")
            known = true_entries.get(logical["name"])
            measured = "" if known is None else f" (true {known})"
            entries = f"{logical['nnz_agg']:.6g}{measured} of {logical['nnz_map']:.6g}"
            lines.append(f"    entries {entries}, cost {logical['cost']:.6g}")
            lines += _loop_lines(physical)
        return lines


def checked_threads(threads: object, engine: object) -> int:
    """The number of threads that run kernels; raises PlanError where it is none, or the engine is unknown."""
    count = torch.get_num_threads() if threads is None else integer("run", "threads", threads)
    if count < 1 or engine not in ENGINES:
        raise PlanError(
            f"run: threads is a number from 1 on, engine one of {', '.join(ENGINES)}: threads={show(threads)}, "
            f"engine={show(engine)}"
        )
    return count


def _loop_lines(physical: dict[str, Any]) -> list[str]:
    """The loop nest as pseudo-code."""
    lines = []
    for depth, (loop, iterations) in enumerate(zip(physical["loops"], physical["iterations"], strict=True)):
        readers: dict[str, list[str]] = {"walk": [], "lookup": []}
        for access in physical["accesses"]:
            for index, protocol in zip(access["indices"], access["protocols"], strict=True):
                if index == loop:
                    readers[protocol].append(access["tensor"])
        walked = f" in {' | '.join(readers['walk'])}" if readers["walk"] else ""
        looked_up = f", lookup {', '.join(readers['lookup'])}" if readers["lookup"] else ""
        lines.append(f"{'  ' * (depth + 2)}for {loop}{walked}{looked_up}   # {iterations:.6g} iterations")
    levels = " ".join(f"{index}:{form}" for index, form in zip(physical["output"], physical["formats"], strict=True))
    lines.append(f"    result {levels or 'scalar'}")
    if physical["transposed"]:
        lines.append(f"    transposes {', '.join(physical['transposed'])}")
    return lines
