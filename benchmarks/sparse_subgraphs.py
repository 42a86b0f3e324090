"""Counting labelled subgraphs of real graphs, as in section 8.2 of Galley: joinsum beside DuckDB and GraphBLAS.

A query is a pattern of up to eight vertices with labels, which occurs in the graph; the number of its homomorphisms is
a sum of products of the adjacency matrix and a vector for each label. Of the eight families cliques have at most five
vertices, and flowers, two triangles that share a vertex, have five.

| graph | edges | labels |
|---|---|---|
| yeast, hprd, human | interactions of proteins | those of the data |
| packages | dependencies of Debian packages, in both directions | classes of in-degree: 0, 1, 2 to 3, 4 to 7, … |

| contender | what runs |
|---|---|
| joinsum | `Program.plan` and `run`, both in the figure, kernels cached |
| joinsum, cold | the same once, in a process and with a folder of its own: no kernel is compiled or cached before |
| duckdb | one SQL query that joins a table of edges for each edge with a table of vertices for each vertex |
| duckdb, joinsum's plan | the queries of joinsum's logical plan, a temporary table for each |
| graphblas | products of matrices and vectors by hand (sparse_subgraphs_graphblas.py), of patterns that need no more |

All counts are compared. Seconds are medians of `--turns` turns, contenders in turn; conversions to a contender's format
do not count. joinsum and GraphBLAS count once more right before they are timed: after another contender a query of less
than a millisecond takes two to four times as long. DuckDB is stopped after 60 seconds, which then count, and does not
run that query again. GraphBLAS takes part where it is installed (`pip install python-graphblas
"suitesparse-graphblas<10.1"`), without a figure for cliques and other patterns of a treewidth above two.

    python benchmarks/sparse_subgraphs.py [--graphs NAME,...] [--queries N] [--turns N] [--seed N] [--json FILE]
"""

from __future__ import annotations

import gzip
import json
import math
import multiprocessing
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

import click
import duckdb
import numpy as np
import torch
from joinsum import SparseTensor
from joinsum.sparse import Program
from sparse_subgraphs_graphblas import INSTALLED, Elimination, LabelledGraph, eliminable

DATA = Path(__file__).parent.parent / "data"
FAMILIES = ("chain", "star", "tree", "cycle", "clique", "petal", "flower", "graph")
LIMIT = 60.0  # seconds after which DuckDB is interrupted

Edges = list[tuple[int, int]]


def of_proteins(name: str) -> tuple[dict[int, str], Edges]:
    """The labels of the vertices, and the edges, of a protein-interaction graph."""
    labels: dict[int, str] = {}
    edges: Edges = []
    with gzip.open(DATA / "graphs" / f"{name}.graph.gz", "rt") as lines:
        for kind, first, second in (line.split() for line in lines):
            if kind == "v":
                labels[int(first)] = second
            else:
                edges.append((int(first), int(second)))
    return labels, edges


def of_packages() -> tuple[dict[int, str], Edges]:
    """The same of Debian's packages. A label is the least in-degree of its class: how many packages depend on it."""
    with gzip.open(DATA / "debian-dependencies" / "edges.txt.gz", "rt") as lines:
        needed = {name: others for name, *others in (line.split() for line in lines)}
    names = dict.fromkeys(name for package, others in needed.items() for name in (package, *others))
    number = {name: i for i, name in enumerate(names)}
    edges = [(number[package], number[other]) for package, others in needed.items() for other in others]
    degree = Counter(target for _, target in edges)
    return {i: str((1 << degree[i].bit_length()) >> 1) for i in number.values()}, edges


class DataGraph:
    """Neighbours and labels of the vertices, as all contenders read them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.neighbours: dict[int, set[int]] = defaultdict(set)
        self.labels, edges = of_packages() if name == "packages" else of_proteins(name)
        for first, second in edges:
            if first != second:
                self.neighbours[first].add(second)
                self.neighbours[second].add(first)
        pairs = [(a, b) for a in self.neighbours for b in self.neighbours[a]]
        size = max(self.labels) + 1
        self.tensors = {"E": SparseTensor.from_edges(pairs, size, weights=torch.ones(len(pairs), dtype=torch.float64))}
        by_label = defaultdict(list)
        for vertex, label in self.labels.items():
            by_label[label].append(vertex)
        for label, vertices in by_label.items():
            ones = torch.ones(len(vertices), dtype=torch.float64)
            self.tensors[f"L{label}"] = SparseTensor.from_coordinates([vertices], ones, (size,))
        self.database = duckdb.connect(config={"threads": torch.get_num_threads()})
        self.database.execute("CREATE TABLE E (c0 BIGINT, c1 BIGINT, v DOUBLE)")
        self.database.executemany("INSERT INTO E VALUES (?, ?, 1)", pairs[:1])
        columns = [np.array([pair[side] for pair in pairs[1:]]) for side in (0, 1)]
        self.database.execute("INSERT INTO E SELECT a, b, 1 FROM (SELECT unnest($1) AS a, unnest($2) AS b)", columns)
        for label, vertices in by_label.items():
            self.database.execute(
                f"CREATE TABLE L{label} AS SELECT unnest($1)::BIGINT AS c0, 1.0::DOUBLE AS v", [vertices]
            )
        named = {f"L{label}": vertices for label, vertices in by_label.items()}
        self.matrices = LabelledGraph(pairs, size, named, torch.get_num_threads()) if INSTALLED else None


def pattern(family: str, size: int, draw: random.Random) -> tuple[int, Edges]:
    """The number of vertices, and the edges, of a pattern; of the family `graph` those beside a spanning tree are found
    in the data."""
    chain = [(i, i + 1) for i in range(size - 1)]
    if family == "chain":
        return size, chain
    if family == "star":
        return size, [(0, i) for i in range(1, size)]
    if family in ("tree", "graph"):
        return size, [(draw.randrange(i), i) for i in range(1, size)]
    if family == "cycle":
        return size, [*chain, (size - 1, 0)]
    if family == "clique":
        size = min(size, 5)
        return size, [(i, j) for j in range(size) for i in range(j)]
    if family == "petal":
        return size, [edge for i in range(2, size) for edge in ((0, i), (i, 1))]
    return 5, [(0, 1), (1, 2), (2, 0), (0, 3), (3, 4), (4, 0)]


def embedding(graph: DataGraph, size: int, edges: Edges, draw: random.Random) -> list[int] | None:
    """Vertices of the data at which the pattern occurs, by a random search."""
    before = {i: [a if b == i else b for a, b in edges if max(a, b) == i] for i in range(size)}
    vertices = sorted(graph.neighbours)
    chosen: list[int] = []
    for i in range(size):
        common = set(vertices) if not before[i] else set.intersection(*(graph.neighbours[chosen[j]] for j in before[i]))
        candidates = sorted(common - set(chosen))
        if not candidates:
            return None
        chosen.append(draw.choice(candidates))
    return chosen


class Query:
    """A pattern with labels, as all contenders ask it."""

    def __init__(self, graph: DataGraph, family: str, draw: random.Random) -> None:
        self.graph, self.family = graph, family
        while True:
            size, edges = pattern(family, draw.randint(4, 8), draw)
            found = embedding(graph, size, edges, draw)
            if found is not None:
                break
        if family == "graph":
            edges = [(i, j) for j in range(size) for i in range(j) if found[i] in graph.neighbours[found[j]]]
        self.size, self.edges = size, edges
        self.labels = [f"L{graph.labels[vertex]}" for vertex in found]

    def data(self) -> dict[str, Any]:
        """The program that counts."""
        vertices = [f"v{i}" for i in range(self.size)]
        factors = [["in", "E", [vertices[i], vertices[j]]] for i, j in self.edges]
        factors += [["in", label, [vertex]] for label, vertex in zip(self.labels, vertices, strict=True)]
        tensors = {name: self.graph.tensors[name] for name in {"E", *self.labels}}
        expr = ["agg", "+", vertices, ["map", "*", factors]]
        return {"tensors": tensors, "queries": [{"name": "count", "expr": expr, "output": []}]}

    def sql(self) -> str:
        tables = [f"{label} AS l{i}" for i, label in enumerate(self.labels)]
        tables += [f"E AS e{number}" for number in range(len(self.edges))]
        conditions = [f"e{n}.c0 = l{i}.c0 AND e{n}.c1 = l{j}.c0" for n, (i, j) in enumerate(self.edges)]
        return f"SELECT count(*) FROM {', '.join(tables)} WHERE {' AND '.join(conditions)}"


def logical_sql(logical: list[dict[str, Any]]) -> list[str]:
    """joinsum's logical queries in SQL: sums of products of tables."""
    statements = []
    for query in logical:
        factors = query["expr"][2] if query["expr"][0] == "map" else [query["expr"]]
        tables, values, conditions = [], [], []
        first: dict[str, str] = {}
        for number, factor in enumerate(factors):
            if factor[0] == "lit":
                values.append(repr(float(factor[1])))
                continue
            tables.append(f"{factor[1]} AS t{number}")
            values.append(f"t{number}.v")
            for axis, index in enumerate(factor[2]):
                column = f"t{number}.c{axis}"
                if index in first:
                    conditions.append(f"{first[index]} = {column}")
                else:
                    first[index] = column
        columns = [f"{first[index]} AS c{axis}" for axis, index in enumerate(query["output"])]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        groups = f" GROUP BY {', '.join(first[index] for index in query['output'])}" if query["output"] else ""
        value = " * ".join(values)
        value = f"sum({value})" if query["op"] else value
        select = ", ".join([*columns, f"{value} AS v"])
        statements.append(
            f"CREATE TEMP TABLE {query['name']} AS SELECT {select} FROM {', '.join(tables)}{where}{groups}"
        )
    return statements


def interrupted(connection: duckdb.DuckDBPyConnection, call: Callable[[], float]) -> float | None:
    """The number that a call gives; None where it takes too long."""
    timer = threading.Timer(LIMIT, connection.interrupt)
    timer.start()
    try:
        return call()
    except duckdb.InterruptException:
        return None
    finally:
        timer.cancel()


def value_of(database: duckdb.DuckDBPyConnection, statement: str) -> float:
    """The only value of a statement's result; 0 for NULL, which is the sum of no rows."""
    row = database.execute(statement).fetchone()
    assert row is not None
    return float(row[0] or 0)


def by_duckdb(query: Query) -> float | None:
    database = query.graph.database
    return interrupted(database, lambda: value_of(database, query.sql()))


def by_logical_plan(query: Query, logical: list[dict[str, Any]]) -> float | None:
    database = query.graph.database

    def run() -> float:
        try:
            for statement in logical_sql(logical):
                database.execute(statement)
            return value_of(database, f"SELECT v FROM {logical[-1]['name']}")
        finally:
            for each in logical:
                database.execute(f"DROP TABLE IF EXISTS {each['name']}")

    return interrupted(database, run)


def contenders(query: Query, logical: list[dict[str, Any]]) -> dict[str, Callable[[], float | None]]:
    """The others than joinsum, as rows name them."""
    found: dict[str, Callable[[], float | None]] = {
        "duckdb": lambda: by_duckdb(query),
        "logical": lambda: by_logical_plan(query, logical),
    }
    matrices = query.graph.matrices
    if matrices is not None and eliminable(query.edges):
        found["graphblas"] = lambda: Elimination(matrices, query.labels, query.edges).count()
    return found


def timed(call: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    value = call()
    return value, time.perf_counter() - start


def first_run(data: dict[str, Any]) -> dict[str, float]:
    """Seconds to plan and to run a program of which no kernel is cached, and those to compile among them. Meant for a
    process of its own, as compiled kernels stay loaded."""
    small = SparseTensor.from_edges([[0, 0]], 1, dtype=torch.float64)
    query = {"name": "q", "expr": ["agg", "+", ["i", "j"], ["in", "E", ["i", "j"]]], "output": []}
    Program({"tensors": {"E": small}, "queries": [query]}).plan().run(engine="interpreter")  # loads what is loaded late
    with tempfile.TemporaryDirectory() as folder:
        plan, planning = timed(Program(data).plan)
        results, running = timed(lambda: plan.run(cache=Path(folder) / "kernels"))
    return {"count": results["count"].item(), "cold": planning + running, "compile": plan.seconds["compile"]}


def cold(query: Query) -> dict[str, float]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(first_run, (query.data(),))


def same(count: float, other: float | None) -> bool:
    """Whether two counts agree, as far as float64 has whole numbers; None is that of a contender that was stopped."""
    if other is None or count == other:
        return True
    return count > 2**53 and math.isclose(count, other, rel_tol=1e-12)


def measure(query: Query, turns: int, cache: Path) -> dict[str, Any]:
    first = cold(query)
    count = first.pop("count")
    plan = Program(query.data()).plan()
    others = contenders(query, plan.logical)
    seconds: dict[str, list[float]] = defaultdict(list)
    stopped: set[str] = set()
    for _ in range(turns):
        plan.run(cache=cache)
        fresh, planned = timed(Program(query.data()).plan)
        value, ran = timed(lambda: fresh.run(cache=cache)["count"].item())  # noqa: B023
        seconds["planning"].append(planned)
        seconds["joinsum"].append(planned + ran)
        counts = {"joinsum": value}
        for name in others.keys() - stopped:
            if name == "graphblas":  # like joinsum above, with its data in the processor's caches
                others[name]()
            counts[name], took = timed(others[name])
            seconds[name].append(took)
            if counts[name] is None:
                stopped.add(name)
        if not all(same(count, other) for other in counts.values()):
            raise click.ClickException(f"{query.graph.name} {query.family}: counts differ: {count}, {counts}")
    return {
        "graph": query.graph.name,
        "family": query.family,
        "vertices": query.size,
        "edges": len(query.edges),
        "count": count,
        **first,
        **{name: median(values) for name, values in seconds.items()},
        "stopped": sorted(stopped),
    }


def of_graphblas(rows: list[dict[str, Any]]) -> str:
    """The median and the least ratio, and of how many queries; nothing where it applies to none."""
    ratios = [row["graphblas"] / row["joinsum"] for row in rows if "graphblas" in row]
    return f"{median(ratios):.2f}, {min(ratios):.2f}, {len(ratios)}" if ratios else ""


COLUMNS: dict[str, Callable[[list[dict[str, Any]]], str]] = {
    "queries": lambda rows: str(len(rows)),
    "planning": lambda rows: f"{1e3 * median(row['planning'] for row in rows):.1f} ms",
    "compiling, mean": lambda rows: f"{1e3 * mean(row['compile'] for row in rows):.0f} ms",
    "warm": lambda rows: f"{1e3 * median(row['joinsum'] for row in rows):.1f} ms",
    "DuckDB": lambda rows: f"{1e3 * median(row['duckdb'] for row in rows):.0f} ms",
    "DuckDB / warm: median, least": lambda rows: (
        f"{median(row['duckdb'] / row['joinsum'] for row in rows):.1f}, "
        f"{min(row['duckdb'] / row['joinsum'] for row in rows):.1f}"
    ),
    "joinsum's plan in DuckDB / warm": lambda rows: f"{median(row['logical'] / row['joinsum'] for row in rows):.1f}",
    "DuckDB / cold": lambda rows: f"{median(row['duckdb'] / row['cold'] for row in rows):.1f}",
    "slowest query": lambda rows: f"{max(max(row['joinsum'], row['cold']) for row in rows):.2f} s",
    "DuckDB stopped": lambda rows: str(sum("duckdb" in row["stopped"] for row in rows)),
    "GraphBLAS / warm: median, least, queries": of_graphblas,
}


def report(rows: list[dict[str, Any]]) -> str:
    """A table of medians, and of the least ratio and the slowest query, by graph, then by graph and family."""
    groups = defaultdict(list)
    for row in rows:
        groups[row["graph"]].append(row)
    for row in rows:
        groups[f"{row['graph']}, {row['family']}"].append(row)
    lines = [f"| network | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, own in groups.items():
        lines.append(f"| {name} | {' | '.join(column(own) for column in COLUMNS.values())} |")
    return "\n".join(lines)


@click.command()
@click.option("--graphs", default="yeast,hprd,human,packages", help="Names of data graphs.")
@click.option("--queries", default=32, help="Of each graph, an equal number of each family.")
@click.option("--turns", default=3)
@click.option("--seed", default=0)
@click.option("--json", "file", type=click.Path(path_type=Path), help="File for all rows.")
def main(graphs: str, queries: int, turns: int, seed: int, file: Path | None) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in graphs.split(","):
            graph = DataGraph(name)
            draw = random.Random(seed)
            for number in range(queries):
                query = Query(graph, FAMILIES[number % len(FAMILIES)], draw)
                rows.append(measure(query, turns, Path(folder) / "kernels"))
                print(json.dumps(rows[-1]), file=sys.stderr)
    print(report(rows))
    if file is not None:
        file.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
