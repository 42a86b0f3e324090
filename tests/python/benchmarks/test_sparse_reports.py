"""Tables that the sparse benchmarks print, and the package graph with its labels."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("scipy")

import sparse_joins
import sparse_subgraphs
from joinsum.sparse import Program
from sparse_joins import Figures

PACKAGES = Path(__file__).parents[3] / "data" / "debian-dependencies" / "edges.txt.gz"


def cells(table: str, name: str) -> dict[str, str]:
    """A line of a table by the names of its columns."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return next(dict(zip(lines[0], line, strict=True)) for line in lines if line[0] == name)


def lines_of_packages() -> list[list[str]]:
    """Each package with those that it depends on."""
    return [line.split() for line in gzip.decompress(PACKAGES.read_bytes()).decode().splitlines()]


@pytest.fixture(name="packages", scope="module")
def package_graph() -> sparse_subgraphs.DataGraph:
    return sparse_subgraphs.DataGraph("packages")


def test_packages_are_labelled_by_the_class_of_their_in_degree(packages: sparse_subgraphs.DataGraph) -> None:
    lines = lines_of_packages()
    names = list(dict.fromkeys(name for line in lines for name in line))
    assert len(packages.labels) == len(names) == 845
    for number in range(0, 845, 40):
        degree = sum(names[number] in line[1:] for line in lines)
        label = int(packages.labels[number])
        assert (label == degree == 0) or label <= degree < 2 * label


def test_packages_are_joined_in_both_directions(packages: sparse_subgraphs.DataGraph) -> None:
    joined = packages.tensors["E"].to_dense()
    assert joined.equal(joined.T)
    assert joined.diagonal().sum() == 0
    pairs = {frozenset((package, other)) for package, *others in lines_of_packages() for other in others}
    assert joined.sum() == 2 * len(pairs)


def test_a_query_counts_what_loops_and_sql_count(packages: sparse_subgraphs.DataGraph) -> None:
    query = sparse_subgraphs.Query(packages, "flower", random.Random(1))
    assert query.size == 5
    joined, labels = packages.neighbours, [label.removeprefix("L") for label in query.labels]
    named = {label: {vertex for vertex, own in packages.labels.items() if own == label} for label in labels}

    def triangles(middle: int, first: str, second: str) -> int:
        return sum(len(joined[a] & joined[middle] & named[second]) for a in joined[middle] & named[first])

    _, a, b, c, d = labels
    wanted = sum(triangles(v, a, b) * triangles(v, c, d) for v in named[labels[0]])
    assert wanted > 0
    plan = Program(query.data()).plan()
    assert plan.run()["count"].item() == wanted
    for name, count in sparse_subgraphs.contenders(query, plan.logical).items():
        assert count() == wanted, name


def subgraph_row(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"graph": "yeast", "family": "star", "planning": 0.001, "compile": 0.0, "joinsum": 0.002}
    return row | {"cold": 0.02, "duckdb": 0.02, "logical": 0.01, "stopped": []} | changes


def test_subgraphs_are_reported_with_compiling_the_logical_plan_and_the_slowest_query() -> None:
    rows = [
        subgraph_row(),
        subgraph_row(family="cycle", compile=0.3, cold=2.5, joinsum=0.004),
        subgraph_row(family="cycle", duckdb=60.0, stopped=["duckdb"]),
    ]
    whole = cells(sparse_subgraphs.report(rows), "yeast")
    assert whole["queries"] == "3"
    assert whole["compiling, mean"] == "100 ms"
    assert whole["joinsum's plan in DuckDB / warm"] == "5.0"
    assert whole["slowest query"] == "2.50 s"
    assert whole["DuckDB stopped"] == "1"
    assert whole["DuckDB / warm: median, least"] == "10.0, 5.0"
    assert cells(sparse_subgraphs.report(rows), "yeast, star")["slowest query"] == "0.02 s"


def test_subgraphs_are_reported_with_graphblas_for_the_queries_that_it_counts() -> None:
    rows = [subgraph_row(graphblas=0.001), subgraph_row(graphblas=0.003), subgraph_row(family="clique")]
    table = sparse_subgraphs.report(rows)
    column = "GraphBLAS / warm: median, least, queries"
    assert cells(table, "yeast")[column] == "1.00, 0.50, 2"
    assert cells(table, "yeast, clique")[column] == ""


def test_joins_are_reported_with_compiling_apart() -> None:
    figures = Figures("star", "linear", 10, 2, plan=0.008, compile=0.25, first_run=0.3, run=0.012)
    figures.others = {"torch, dense": 0.04, "numpy by hand": 0.01}
    refused = Figures("self", "covariance", 10, 2, refused="too large", others={"pandas": 1.0})
    table = sparse_joins.table([figures, refused])
    row = cells(table, "star: linear")
    assert (row["plan"], row["compile"], row["run"]) == ("8", "250", "12")
    assert (row["torch, dense"], row["numpy by hand"], row["pandas"]) == ("2.00", "0.50", "")
    assert cells(table, "self: covariance")["plan"] == "refused"
