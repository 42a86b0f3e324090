"""Graphs of einsums as sparse programs: results are what the graph means, and statistics are those that were given."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from joinsum import Graph, KernelError, PlanError
from joinsum.graphs.json_form import read_json_value
from joinsum.graphs.sparse_program import sparse_program
from joinsum.sparse import SparseTensor


def op(name: str, inputs: str, in_labels: str, out_labels: str, **others: Any) -> dict[str, Any]:
    """An operation, its operands separated by commas."""
    fields = {"name": name, "inputs": inputs.split(","), "in_labels": in_labels.split(","), "out_labels": out_labels}
    return fields | others


def graph_of(shapes: dict[str, Any], *ops: dict[str, Any]) -> dict[str, Any]:
    return {"inputs": shapes, "ops": list(ops), "outputs": [each["name"] for each in ops]}


SQUARES = {"X": [6, 6], "Y": [6, 6], "v": [6]}
GRAPHS = {
    "a product, masked": graph_of(
        SQUARES,
        op("Z", "X,Y", "ij,jk", "ik", agg="sum"),
        op("M", "Z,X", "ab,ab", "ab"),
        op("s", "M", "ab", "", agg="max"),
    ),
    "a diagonal": graph_of(SQUARES, op("d", "X", "ii", "i"), op("t", "Y", "ii", "", agg="sum")),
    "three operands": graph_of(SQUARES, op("Z", "X,Y,v", "ij,jk,k", "i", agg="sum")),
    "a join that is an expression": graph_of(SQUARES, op("Z", "X,v", "ij,j", "ij", join="exp(x - y) * 2 + 1")),
    "a chain of kernels": graph_of(SQUARES, op("Z", "X,Y", "ij,ij", "j", join="sub | square", agg="prod")),
    "an aggregation that nothing needs": graph_of(SQUARES, op("Z", "X", "ij", "ji", agg="max")),
    "shortest paths": graph_of(SQUARES, op("Z", "X,Y", "ij,jk", "ik", join="add", agg="min")),
    "long labels": graph_of(
        SQUARES, op("Z", "X,v", "ij,j", "") | {"in_labels": [["row", "j"], ["j"]], "out_labels": ["row"], "agg": "sum"}
    ),
    "labels that only results have": graph_of(
        SQUARES,
        op("Z", "v", "i", "in", extents={"n": 3}),
        op("W", "v", "i", "ni", extents={"n": 2}),
        op("V", "X,X", "nm,nm", "m", agg="sum"),
        op("U", "Z", "in", "ink", extents={"k": 2}),
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_results_of_the_program_are_those_of_the_graph(name: str) -> None:
    graph = GRAPHS[name]
    values = {
        name: torch.randint(-4, 5, shape, dtype=torch.float64) * (torch.rand(shape) < 0.4)
        for name, shape in graph["inputs"].items()
    }
    sparse = {name: SparseTensor.from_torch(value, levels="coo") for name, value in values.items() if name != "Y"}
    program = sparse_program(
        "plan", read_json_value("plan", graph), sparse | {"Y": SparseTensor.from_torch(values["Y"])}
    )
    wanted = Graph.from_json(json.dumps(graph))
    found = program.run()
    for output, value in wanted.interpret({name: values[name] for name in wanted.inputs}).items():
        torch.testing.assert_close(found[output].to_dense(), value, check_dtype=False)


def test_each_operation_is_a_query_of_its_name() -> None:
    graph = read_json_value("plan", GRAPHS["a product, masked"])
    assert sparse_program("plan", graph, {}).handle.queries == ["Z", "M", "s"]


def test_inputs_have_the_given_statistics_or_those_of_the_graph_or_all_elements() -> None:
    graph = GRAPHS["a product, masked"] | {
        "inputs": {"X": [60, 60], "Y": {"dtype": "f32", "extents": [60, 60], "entries": 7}, "v": [60]}
    }
    graph["ops"] = [op("x", "X", "ij", "ij"), op("y", "Y", "ij", "ij"), op("w", "v", "i", "i")]
    graph["outputs"] = ["x", "y", "w"]
    plan = sparse_program("plan", read_json_value("plan", graph), {"X": {"nnz": 40, "fill": 0}}).plan()
    assert [query["nnz_agg"] for query in plan.logical] == [40, 7, 60]
    plan = sparse_program("plan", read_json_value("plan", graph), {"Y": {"nnz": 9, "shape": [60, 60]}}).plan()
    assert [query["nnz_agg"] for query in plan.logical] == [3600, 9, 60]


@pytest.mark.parametrize(
    ("operation", "inputs", "message"),
    [
        (op("Z", "X", "ij", "i", agg="argmax"), {}, "cannot be reduced by agg='argmax'; .*: at=\\$.ops\\[0\\]$"),
        (op("Z", "X,Y", "ij,ij", "ij", join="where(x > y, x, y)"), {}, "cannot be joined by .*: at=\\$.ops\\[0\\]$"),
        (
            op("Z", "X", "ij", "ij", join="squared"),
            {},
            "^plan: kernel: unknown name: name=squared.*at=\\$.ops\\[0\\].join",
        ),
        (
            op("Z", "X", "ij", "ij"),
            {"Y": SparseTensor.from_edges([[0, 1]], 5)},
            "^plan: an input has another shape than in the graph: input=Y, shape=\\[5, 5\\], graph=\\[6, 6\\]$",
        ),
        (op("Z", "X", "ij", "ij"), {"X": {"nnz": 1, "shape": [6]}}, "input=X, shape=\\[6\\], graph=\\[6, 6\\]$"),
        (op("Z", "X", "ij", "ij"), {"X": {"nnz": 1, "shape": 6}}, "input=X, shape=6, graph=\\[6, 6\\]$"),
        (op("Z", "X", "ij", "ij"), {"X": {"nnz": 37}}, "more entries than elements, .*tensor=X, nnz=37"),
        (op("Z", "X", "ij", "ij"), {"X": {"entries": 3}}, "unknown members: at=\\$.tensors.X, members=\\['entries'\\]"),
    ],
)
def test_what_no_program_has_is_named_with_its_place(operation: Any, inputs: Any, message: str) -> None:
    graph = read_json_value("plan", graph_of(SQUARES, operation))
    with pytest.raises((PlanError, KernelError), match=message):
        sparse_program("plan", graph, inputs)
