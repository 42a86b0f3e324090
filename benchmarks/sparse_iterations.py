"""Iterative graph algorithms as loops over planned sparse einsums and programs, as in section 8.3 of Galley: joinsum
beside scipy and torch.

`bfs` finds the levels of a breadth-first search: the next frontier is (frontier · A) and not visited. `pagerank` is 20
iterations with damping 0.85. `paths` are all-pairs shortest paths on small graphs, by (min, +) squaring until nothing
changes.

| contender | what runs |
|---|---|
| bfs: joinsum auto, dense, coo | an einsum in each iteration; the frontier's format is chosen, or always this one |
| bfs: joinsum program | a `Program` that is planned in each iteration |
| bfs: scipy products, order | the same loop over products of rows, and `breadth_first_order` |
| pagerank: joinsum, scipy | the transition matrix, transposed, times ranks; `pull`: rows of its transpose |
| pagerank: joinsum program | one `Program` of 20 queries |
| paths: joinsum auto, dense, csr | a sparse matrix of lengths to begin with; how squares are stored |
| paths: joinsum tensors, torch | dense throughout |

Graphs are the protein networks of `data/graphs`, an R-MAT graph, and a grid whose search has many iterations with few
vertices each. All results are compared. Seconds are medians of `--rounds` rounds, contenders in turn; what takes
seconds runs once. `first` is a run without any plan of the context, the first of them without compiled kernels, too;
`planning` is the part of it in which plans of sparse queries were made: in the constructor of `joinsum._C.SparsePlan`,
and again in runs of plans. Plans of dense einsums are not in it.

    python benchmarks/sparse_iterations.py [--threads N] [--rounds N] [--only NAME,...] [--json FILE]
"""

from __future__ import annotations

import json
import os
import platform
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import click
import joinsum
import numpy as np
import scipy.sparse
import torch
from joinsum import _C, SparseTensor
from joinsum.sparse import Program
from scipy.sparse import csgraph
from sparse_kernels import real, rmat, set_threads

ITERATIONS = 20
DAMPING = 0.85
MOST_JOINED = 1 << 24  # elements of a dense join that torch forms at once
SMALL = 500  # vertices of graphs for shortest paths
SLOW = 4.0  # seconds of a contender above which it runs once

Call = Callable[[], Any]
Array = np.ndarray[Any, Any]


@dataclass
class Graph:
    """A directed graph of stored edges, and where a search begins."""

    name: str
    edges: Any  # scipy's csr array

    def __str__(self) -> str:
        return f"{self.name} ({self.size:,} vertices, {self.edges.nnz:,} edges)"

    @property
    def size(self) -> int:
        return int(self.edges.shape[0])

    @cached_property
    def start(self) -> int:
        """The first vertex of most edges."""
        return int(np.argmax(np.diff(self.edges.indptr)))

    @cached_property
    def weights(self) -> SparseTensor:
        return SparseTensor.from_scipy(self.edges, levels="csr")

    @cached_property
    def adjacency(self) -> SparseTensor:
        return self.weights.to(torch.bool)

    @cached_property
    def transitions(self) -> Any:
        """Each edge's weight among those that leave its source."""
        out = np.maximum(np.diff(self.edges.indptr), 1)
        values = 1 / np.repeat(out, np.diff(self.edges.indptr))
        return scipy.sparse.csr_array((values, self.edges.indices, self.edges.indptr), shape=self.edges.shape)

    @cached_property
    def dangling(self) -> Array:
        """Vertices that no edge leaves."""
        return np.flatnonzero(np.diff(self.edges.indptr) == 0)


def grid(rows: int, columns: int) -> Graph:
    """Each vertex has an edge to and from those beside it."""
    number = np.arange(rows * columns).reshape(rows, columns)
    pairs = [(number[:-1], number[1:]), (number[:, :-1], number[:, 1:])]
    first, second = (np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1))
    places = np.concatenate([first, second]), np.concatenate([second, first])
    matrix = scipy.sparse.coo_array((np.ones(len(places[0])), places), shape=(rows * columns,) * 2).tocsr()
    matrix.sort_indices()
    found = Graph(f"grid {rows} x {columns}", matrix)
    found.start = 0
    return found


def weighted(graph: Graph, most: int) -> Graph:
    """The first `most` vertices of a search, with lengths from 1 to 9."""
    order = csgraph.breadth_first_order(graph.edges, graph.start, return_predecessors=False)[:most]
    kept = np.sort(order)
    matrix = graph.edges[kept][:, kept].tocsr()
    matrix.sort_indices()
    matrix.data = np.random.default_rng(0).integers(1, 10, matrix.nnz).astype(np.float32)
    return Graph(graph.name, matrix)


# --- breadth-first search -------------------------------------------------------------------------------------------


@dataclass
class Search:
    """The level of each vertex, -1 of those that are not reached, and how often frontiers had which format."""

    levels: Array
    formats: Counter[str] = field(default_factory=Counter)


def without_zeros(reached: SparseTensor | torch.Tensor) -> tuple[torch.Tensor, SparseTensor | torch.Tensor]:
    """The vertices of a frontier, and the frontier without elements that are stored and zero: their rows would be
    visited for nothing, and so on."""
    if isinstance(reached, torch.Tensor):
        return reached.nonzero()[:, 0], reached
    (places,), values = reached.coordinates(), reached.values()
    found = places[values.bool()]
    if len(found) == len(places) or reached.levels == ("dense",):
        return found, reached
    return found, vertices(found, reached.shape[0], reached.dtype, reached.levels[0])


def vertices(places: torch.Tensor, size: int, dtype: torch.dtype, level: str = "sorted_list") -> SparseTensor:
    return SparseTensor.from_coordinates([places], torch.ones(len(places), dtype=dtype), (size,), levels=[level])


def searched(graph: Graph, frontier: Any, advance: Callable[[Any, torch.Tensor], Any]) -> Search:
    """`advance` gives what the frontier's edges lead to and is not visited yet."""
    levels, unvisited = torch.full((graph.size,), -1), torch.ones(graph.size, dtype=frontier.dtype)
    levels[graph.start], unvisited[graph.start] = 0, 0
    search, level = Search(levels.numpy()), 0
    while True:
        found, frontier = without_zeros(advance(frontier, unvisited))
        if len(found) == 0:
            return search
        level += 1
        levels[found], unvisited[found] = level, 0
        search.formats["dense" if isinstance(frontier, torch.Tensor) else frontier.levels[0]] += 1


def by_einsum(graph: Graph, out_format: str) -> Search:
    sparse = vertices(torch.tensor([graph.start]), graph.size, torch.bool)

    def advance(frontier: SparseTensor | torch.Tensor, unvisited: torch.Tensor) -> Any:
        return joinsum.einsum("i,ij,j->j", frontier, graph.adjacency, unvisited, agg="any", out_format=out_format)

    return searched(graph, sparse.to_dense() if out_format == "dense" else sparse, advance)


def by_program(graph: Graph) -> Search:
    """Elements are float64, as programs have no others."""
    factors = [["in", "frontier", ["i"]], ["in", "A", ["i", "j"]], ["in", "unvisited", ["j"]]]
    query = {"name": "next", "expr": ["agg", "or", ["i"], ["map", "*", factors]], "output": ["j"]}

    def advance(frontier: SparseTensor, unvisited: torch.Tensor) -> SparseTensor:
        tensors = {"frontier": frontier, "A": graph.weights, "unvisited": SparseTensor.from_torch(unvisited)}
        return Program({"tensors": tensors, "queries": [query]}).run()["next"]

    return searched(graph, vertices(torch.tensor([graph.start]), graph.size, torch.float64), advance)


def by_scipy_products(graph: Graph) -> Search:
    levels = np.full(graph.size, -1)
    levels[graph.start] = 0
    found, level = np.array([graph.start]), 0
    while True:
        row = (np.ones(len(found)), found, [0, len(found)])
        reached = (scipy.sparse.csr_array(row, shape=(1, graph.size)) @ graph.edges).indices
        found = reached[levels[reached] < 0]
        if len(found) == 0:
            return Search(levels)
        level += 1
        levels[found] = level


def levels_of(search: Any) -> Array:
    """Levels of a search, or of scipy's order and predecessors."""
    if isinstance(search, Search):
        return search.levels
    order, predecessors = search
    levels = np.full(len(predecessors), -1)
    levels[order[0]] = 0
    for vertex in order[1:]:
        levels[vertex] = levels[predecessors[vertex]] + 1
    return levels


def bfs(graph: Graph) -> dict[str, Call]:
    return {
        "joinsum auto": lambda: by_einsum(graph, "auto"),
        "joinsum dense": lambda: by_einsum(graph, "dense"),
        "joinsum coo": lambda: by_einsum(graph, "coo"),
        # A grid of 1,000 rows is planned for minutes.
        **({} if graph.name.startswith("grid") else {"joinsum program": lambda: by_program(graph)}),
        "scipy products": lambda: by_scipy_products(graph),
        "scipy order": lambda: csgraph.breadth_first_order(graph.edges, graph.start),
    }


# --- PageRank -------------------------------------------------------------------------------------------------------


def ranked(graph: Graph, multiply: Callable[[Any], Any], rank: Any) -> Any:
    """`multiply` moves ranks along the edges."""
    for _ in range(ITERATIONS):
        lost = rank[graph.dangling].sum()
        rank = DAMPING * (multiply(rank) + lost / graph.size) + (1 - DAMPING) / graph.size
    return rank


def rank_program(graph: Graph, transitions: SparseTensor, first: torch.Tensor) -> Program:
    """All iterations; each query reads the one before."""
    ones = torch.ones(len(graph.dangling), dtype=torch.float64)
    dangling = SparseTensor.from_coordinates([torch.from_numpy(graph.dangling)], ones, (graph.size,))
    queries = []
    for number in range(ITERATIONS):
        moved = ["agg", "+", ["i"], ["map", "*", [["in", "P", ["i", "j"]], ["in", f"r{number}", ["i"]]]]]
        lost = ["agg", "+", ["k"], ["map", "*", [["in", "dangling", ["k"]], ["in", f"r{number}", ["k"]]]]]
        each = ["map", "+", [moved, ["map", "*", [["lit", 1 / graph.size], lost]]]]
        expr = ["map", "+", [["map", "*", [["lit", DAMPING], each]], ["lit", (1 - DAMPING) / graph.size]]]
        queries.append({"name": f"r{number + 1}", "expr": expr, "output": ["j"]})
    tensors = {"P": transitions, "dangling": dangling, "r0": SparseTensor.from_torch(first)}
    return Program({"tensors": tensors, "queries": queries})


def pagerank(graph: Graph) -> dict[str, Call]:
    matrix = graph.transitions
    transposed = matrix.T.tocsr()
    transposed.sort_indices()
    by_columns, by_rows = (SparseTensor.from_scipy(each, levels="csr") for each in (matrix, transposed))
    of_torch = by_rows.to_torch("csr")
    first = np.full(graph.size, 1 / graph.size)
    tensor = torch.from_numpy(first)
    programs: dict[Any, Program] = {}

    def by_one_program() -> Any:
        # The program caches its plan: a context without plans gets a new program.
        key = joinsum.context()
        if key not in programs:
            programs.clear()
            programs[key] = rank_program(graph, by_columns, tensor)
        return programs[key].run()[f"r{ITERATIONS}"].to_dense()

    def by_joinsum(equation: str, transitions: SparseTensor) -> Call:
        return lambda: ranked(graph, lambda rank: joinsum.einsum(equation, transitions, rank), tensor)

    return {
        "joinsum": by_joinsum("ij,i->j", by_columns),
        "joinsum pull": by_joinsum("ji,i->j", by_rows),
        "joinsum program": by_one_program,
        "scipy": lambda: ranked(graph, lambda rank: matrix.T @ rank, first),
        "scipy pull": lambda: ranked(graph, lambda rank: transposed @ rank, first),
        "torch pull": lambda: ranked(graph, lambda rank: of_torch @ rank, tensor),
    }


# --- shortest paths -------------------------------------------------------------------------------------------------


def same(first: Any, second: Any) -> bool:
    """Whether a square equals what was squared, of which every stored element is stored in it too."""
    if type(first) is not type(second):
        return False
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    return bool(first.nnz == second.nnz and torch.equal(first.values(), second.values()))


def closed(distances: Any, square: Callable[[Any], Any]) -> Any:
    while True:
        longer = square(distances)
        if same(longer, distances):
            return longer
        distances = longer


def squared_by_torch(distances: torch.Tensor) -> torch.Tensor:
    step = max(1, MOST_JOINED // distances.numel())
    pieces = (distances[begin : begin + step] for begin in range(0, len(distances), step))
    return torch.cat([(piece[:, :, None] + distances).amin(1) for piece in pieces])


def paths(graph: Graph) -> dict[str, Call]:
    places = graph.edges.tocoo()
    every = np.arange(graph.size)
    coordinates = [np.concatenate([axis, every]) for axis in places.coords]
    lengths = np.concatenate([places.data, np.zeros(graph.size, dtype=np.float32)])
    shape = (graph.size, graph.size)
    sparse = SparseTensor.from_coordinates(coordinates, lengths, shape, levels="csr", fill=float("inf"), fold="min")
    dense = sparse.to_dense()

    def by_joinsum(distances: SparseTensor | torch.Tensor, out_format: str) -> Call:
        return lambda: closed(
            distances, lambda d: joinsum.einsum("ij,jk->ik", d, d, join="add", agg="min", out_format=out_format)
        )

    return {
        "joinsum auto": by_joinsum(sparse, "auto"),
        "joinsum dense": by_joinsum(sparse, "dense"),
        "joinsum csr": by_joinsum(sparse, "csr"),
        "joinsum tensors": by_joinsum(dense, "auto"),
        "scipy shortest_path": lambda: csgraph.shortest_path(graph.edges),
        "torch": lambda: closed(dense, squared_by_torch),
    }


# --- the comparison -------------------------------------------------------------------------------------------------


def dense_of(result: Any) -> Array:
    if isinstance(result, (Search, tuple)):
        return levels_of(result)
    return np.asarray(result.to_dense() if isinstance(result, (SparseTensor, torch.Tensor)) else result)


@contextmanager
def plans_timed() -> Iterator[Callable[[], float]]:
    """Gives the seconds of all plans of sparse queries that are made inside."""
    seconds: list[float] = []
    plan, run = _C.SparsePlan, _C.SparsePlan.run

    def timed_plan(*arguments: Any) -> _C.SparsePlan:
        start = time.perf_counter()
        made = plan(*arguments)
        seconds.append(time.perf_counter() - start)
        return made

    def timed_run(self: _C.SparsePlan, *arguments: Any) -> _C.SparseRun:
        did = run(self, *arguments)
        seconds.append(did.seconds[0])
        return did

    with mock.patch.object(plan, "run", timed_run), mock.patch.object(_C, "SparsePlan", timed_plan):
        yield lambda: sum(seconds)


def first_run(call: Call) -> tuple[Any, float, float]:
    """The result of a call without plans, its seconds and those of planning in it."""
    joinsum.init()
    joinsum.sparse.plan_cache_clear()
    with plans_timed() as planning:
        start = time.perf_counter()
        result = call()
        return result, time.perf_counter() - start, planning()


def first_runs(name: str, call: Call, wanted: Array, rounds: int) -> dict[str, Any]:
    """Medians of a contender's first runs; raises where a result differs."""
    runs: list[tuple[Any, float, float]] = []
    while len(runs) < rounds and (not runs or runs[0][1] < SLOW):
        runs.append(first_run(call))
    result = runs[0][0]
    np.testing.assert_allclose(dense_of(result), wanted, rtol=1e-9, err_msg=name)
    formats = dict(result.formats) if isinstance(result, Search) else {}
    found: dict[str, Any] = {"first": median(run[1] for run in runs), "planning": median(run[2] for run in runs)}
    return found | {"fraction": median(run[2] / run[1] for run in runs), "formats": formats}


def timed(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Seconds of a call, after a round in which plans are made; those of slow ones are of that round."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            if found[name] and found[name][0] > SLOW:
                continue
            if number == 1:
                found[name].clear()
            repeats, start = 0, time.perf_counter()
            while repeats == 0 or (repeats < 50 and time.perf_counter() - start < 0.05):
                call()
                repeats += 1
            found[name].append((time.perf_counter() - start) / repeats)
    return {name: median(each) for name, each in found.items()}


def compared(calls: dict[str, Call], rounds: int) -> dict[str, Any]:
    """The figures of all contenders, whose results are compared with the last one's."""
    wanted = dense_of(calls[list(calls)[-1]]())
    first = {}
    for name, call in calls.items():
        if name.startswith("joinsum"):
            first[name] = first_runs(name, call, wanted, min(rounds, 3))
        else:
            np.testing.assert_allclose(dense_of(call()), wanted, rtol=1e-9, err_msg=name)
    return {"seconds": timed(calls, rounds), "first": first}


ALGORITHMS: dict[str, Callable[[Graph], dict[str, Call]]] = {"bfs": bfs, "pagerank": pagerank, "paths": paths}


# By the first words of their names.
GRAPHS: dict[str, Callable[[], Graph]] = {
    "yeast": lambda: Graph("yeast", real("yeast").scipy),
    "human": lambda: Graph("human", real("human").scipy),
    "hprd": lambda: Graph("hprd", real("hprd").scipy),
    "R-MAT": lambda: Graph("R-MAT 16", rmat(16, 1_000_000).scipy),
    "grid": lambda: grid(1000, 200),
}
SMALL_GRAPHS: dict[str, Callable[[], Graph]] = {
    "yeast": lambda: weighted(GRAPHS["yeast"](), SMALL),
    "R-MAT": lambda: weighted(Graph("R-MAT 10", rmat(10, 8_000).scipy), SMALL),
    "grid": lambda: weighted(grid(SMALL // 20, 20), SMALL),
}


def graphs(algorithm: str, names: set[str]) -> Iterator[Graph]:
    for name, make in (SMALL_GRAPHS if algorithm == "paths" else GRAPHS).items():
        if not names or name in names:
            yield make()


def printed(row: dict[str, Any]) -> None:
    print(f"{row['algorithm']}, {row['graph']}")
    best = min(seconds for name, seconds in row["seconds"].items() if not name.startswith("joinsum"))
    for name, seconds in row["seconds"].items():
        line = f"  {name:20}{1e3 * seconds:10.2f} ms {seconds / best:8.2f}"
        if name in row["first"]:
            first = row["first"][name]
            line += f"   first {1e3 * first['first']:.2f}, planning {1e3 * first['planning']:.2f} ms"
            line += f" = {100 * first['fraction']:.0f} %"
            line += "".join(f", {count} {each}" for each, count in first["formats"].items())
        print(line, flush=True)


@click.command(help=__doc__)
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--only", default="", help="Algorithms, and first words of graphs' names, separated by commas.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the figures here too.")
def main(threads: int, rounds: int, only: str, json_file: Path | None) -> None:
    warnings.simplefilter("ignore")
    set_threads(threads)
    processor = platform.processor() or platform.machine()
    print(f"{processor}, {threads} threads, torch {torch.__version__}, scipy {scipy.__version__}")
    print("Milliseconds, and their ratio to those of the fastest contender that is not joinsum.")
    wanted = {each for each in only.split(",") if each}
    algorithms, names = wanted & set(ALGORITHMS), wanted - set(ALGORITHMS)
    rows = []
    with TemporaryDirectory() as kernels, mock.patch.dict(os.environ, {"JOINSUM_KERNEL_CACHE": kernels}):
        for algorithm in algorithms or ALGORITHMS:
            for graph in graphs(algorithm, names):
                row = {"algorithm": algorithm, "graph": str(graph), "threads": threads}
                rows.append(row | compared(ALGORITHMS[algorithm](graph), rounds))
                printed(rows[-1])
    if json_file is not None:
        json_file.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
