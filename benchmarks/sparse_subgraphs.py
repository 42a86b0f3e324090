"""Counting labelled subgraphs of protein-interaction graphs, as in section 8.2 of Galley: joinsum beside DuckDB.

A query is a pattern of up to eight vertices with labels, which occurs in the graph; the number of its homomorphisms is
a sum of products of the adjacency matrix and a vector for each label.

| contender | what runs |
|---|---|
| joinsum | `Program.plan` and `run`, both in the figure; `cold`: the first run of each query, no kernel cached |
| duckdb | one SQL query that joins a table of edges for each edge with a table of vertices for each vertex |
| duckdb, joinsum's plan | the queries of joinsum's logical plan, a temporary table for each |

All counts are compared. Seconds are medians of `--turns` turns, contenders in turn.

    python benchmarks/sparse_subgraphs.py [--graphs NAME,...] [--queries N] [--turns N] [--seed N] [--json FILE]
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import click
import duckdb
import torch
from joinsum import SparseTensor
from joinsum.sparse import Program

GRAPHS = Path(__file__).parent.parent / "data" / "graphs"
FAMILIES = ("chain", "star", "tree", "cycle", "clique", "petal", "flower", "graph")
LIMIT = 60.0  # seconds after which DuckDB is interrupted

Edges = list[tuple[int, int]]


class DataGraph:
    """Neighbours and labels of the vertices, as both contenders read them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.labels: dict[int, str] = {}
        self.neighbours: dict[int, set[int]] = defaultdict(set)
        with gzip.open(GRAPHS / f"{name}.graph.gz", "rt") as lines:
            for kind, first, second in (line.split() for line in lines):
                if kind == "v":
                    self.labels[int(first)] = second
                elif first != second:
                    self.neighbours[int(first)].add(int(second))
                    self.neighbours[int(second)].add(int(first))
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
        edges = torch.tensor(pairs[1:]).numpy()
        first, second = edges[:, 0], edges[:, 1]
        self.database.execute(
            "INSERT INTO E SELECT a, b, 1 FROM (SELECT unnest($1) AS a, unnest($2) AS b)", [first, second]
        )
        for label, vertices in by_label.items():
            self.database.execute(
                f"CREATE TABLE L{label} AS SELECT unnest($1)::BIGINT AS c0, 1.0::DOUBLE AS v", [vertices]
            )


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
    """A pattern with labels, as both contenders ask it."""

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

    def program(self) -> Program:
        vertices = [f"v{i}" for i in range(self.size)]
        factors = [["in", "E", [vertices[i], vertices[j]]] for i, j in self.edges]
        factors += [["in", label, [vertex]] for label, vertex in zip(self.labels, vertices, strict=True)]
        tensors = {name: self.graph.tensors[name] for name in {"E", *self.labels}}
        expr = ["agg", "+", vertices, ["map", "*", factors]]
        return Program({"tensors": tensors, "queries": [{"name": "count", "expr": expr, "output": []}]})

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
        tables, values, conditions, first = [], [], [], {}
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


def interrupted(connection: duckdb.DuckDBPyConnection, call: Any) -> float | None:
    """The number that a call gives; None where it takes too long."""
    timer = threading.Timer(LIMIT, connection.interrupt)
    timer.start()
    try:
        return float(call() or 0)
    except duckdb.InterruptException:
        return None
    finally:
        timer.cancel()


def by_duckdb(query: Query) -> float | None:
    database = query.graph.database
    return interrupted(database, lambda: database.execute(query.sql()).fetchone()[0])


def by_logical_plan(query: Query, logical: list[dict[str, Any]]) -> float | None:
    database = query.graph.database

    def run() -> float:
        try:
            for statement in logical_sql(logical):
                database.execute(statement)
            return database.execute(f"SELECT v FROM {logical[-1]['name']}").fetchone()[0]
        finally:
            for each in logical:
                database.execute(f"DROP TABLE IF EXISTS {each['name']}")

    return interrupted(database, run)


def timed(call: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    value = call()
    return value, time.perf_counter() - start


def measure(query: Query, turns: int, cache: Path) -> dict[str, Any]:
    program = query.program()
    plan, planning = timed(program.plan)
    count, cold = timed(lambda: plan.run(cache=cache)["count"].item())
    seconds: dict[str, list[float]] = defaultdict(list)
    plans = []
    for _ in range(turns):
        fresh, planned = timed(query.program().plan)
        value, ran = timed(lambda: fresh.run(cache=cache)["count"].item())  # noqa: B023
        plans.append(planned)
        seconds["joinsum"].append(planned + ran)
        for name, call in (
            ("duckdb", lambda: by_duckdb(query)),
            ("logical", lambda: by_logical_plan(query, plan.logical)),
        ):
            other, took = timed(call)
            seconds[name].append(took)
            if (other is not None and other != count) or value != count:
                raise click.ClickException(
                    f"{query.graph.name} {query.family}: counts differ: {count}, {value}, {other}"
                )
    return {
        "graph": query.graph.name,
        "family": query.family,
        "vertices": query.size,
        "edges": len(query.edges),
        "count": count,
        "cold": planning + cold,
        "compile": plan.seconds["compile"],
        "planning": median(plans),
        **{name: median(values) for name, values in seconds.items()},
    }


def report(rows: list[dict[str, Any]]) -> None:
    print("graph  family  queries  plan ms  joinsum ms  duckdb ms  duckdb/joinsum  least  logical/joinsum  duckdb/cold")
    groups = defaultdict(list)
    for row in rows:
        groups[row["graph"], row["family"]].append(row)
        groups[row["graph"], "all"].append(row)
    for (graph, family), each in sorted(groups.items()):
        ratios = [row["duckdb"] / row["joinsum"] for row in each]
        cold = median(row["duckdb"] / row["cold"] for row in each)
        logical = median(row["logical"] / row["joinsum"] for row in each)
        times = [1e3 * median(row[name] for row in each) for name in ("planning", "joinsum", "duckdb")]
        print(
            f"{graph:6} {family:7} {len(each):7} {times[0]:8.1f} {times[1]:11.1f} {times[2]:10.1f} "
            f"{median(ratios):15.1f} {min(ratios):6.2f} {logical:16.1f} {cold:12.1f}"
        )


@click.command()
@click.option("--graphs", default="yeast,hprd,human", help="Names of data graphs.")
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
    report(rows)
    if file is not None:
        file.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
