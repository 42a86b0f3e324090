"""The JSON form of graphs of einsums: its one reader, its writer, and its schema agree."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joinsum import Error, Graph, PlanError, plan_graph
from joinsum.graphs.json_form import AGGREGATIONS, DTYPES, read_json, read_json_value

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "einsum_graph.schema.json").read_text("utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

GRAPH: dict[str, Any] = {
    "inputs": {"X": [4, 5], "Y": {"dtype": "f32", "extents": [5, 6]}},
    "ops": [
        {
            "name": "A",
            "inputs": ["X", "Y"],
            "in_labels": ["ij", "jk"],
            "out_labels": "ik",
            "join": "x * y + 1",
            "agg": "sum",
        },
        {
            "name": "B",
            "inputs": ["A"],
            "in_labels": [["row", "k"]],
            "out_labels": ["row", "n"],
            "agg": "max",
            "extents": {"n": 2},
        },
        {"name": "C", "inputs": ["B"], "in_labels": ["ab"], "out_labels": "a", "join": "exp", "agg": "logsumexp"},
    ],
    "outputs": {"Z": "C", "B": "B"},
}


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    op = SCHEMA["$defs"]["op"]["properties"]
    assert set(op["agg"]["enum"]) == set(AGGREGATIONS)
    dtypes = SCHEMA["properties"]["inputs"]["additionalProperties"]["oneOf"][1]["properties"]["dtype"]["enum"]
    assert dtypes == list(DTYPES)


def test_a_sparse_input_has_entries() -> None:
    sparse = {"dtype": "f32", "extents": [200, 300], "entries": 900}
    op = {"name": "Z", "inputs": ["X", "Y"], "in_labels": ["ij", "jk"], "out_labels": "ik", "agg": "sum"}
    graph: dict[str, Any] = {"inputs": {"X": sparse, "Y": [300, 5]}, "ops": [op], "outputs": ["Z"]}
    VALIDATOR.validate(graph)
    read = Graph.from_json(json.dumps(graph))
    assert "input X: f32[200,300] sparse{900}\n" in read.text
    assert json.loads(read.to_json())["inputs"]["X"] == sparse
    assert Graph.from_json(read.to_json()).text == read.text
    assert read.plan().cost.flops == 2 * 900 * 5
    for wrong in (-1, 1.5, "many", None):
        other = copy.deepcopy(graph)
        other["inputs"]["X"]["entries"] = wrong
        assert not VALIDATOR.is_valid(other)
        with pytest.raises(PlanError, match=re.escape("$.inputs.X.entries")):
            Graph.from_json(json.dumps(other))


def test_what_is_written_fits_the_schema_and_reads_back() -> None:
    VALIDATOR.validate(GRAPH)
    plan = Graph.from_json(json.dumps(GRAPH))
    written = plan.to_json()
    VALIDATOR.validate(json.loads(written))
    assert Graph.from_json(written) == plan
    graph = read_json_value("json", GRAPH)
    assert read_json("json", graph.text()) == graph


def paths(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Where something stands in a JSON value."""
    found = [path]
    if isinstance(value, dict):
        found += [each for name, inner in value.items() for each in paths(inner, (*path, name))]
    if isinstance(value, list):
        found += [each for i, inner in enumerate(value) for each in paths(inner, (*path, i))]
    return found


WRONG = st.sampled_from([None, True, -1, 1.5, "", "1", [], {}, [1], {"q": 1}, "mean", ["i", 2], 7, "ij"])


@given(path=st.sampled_from(paths(GRAPH)[1:]), wrong=WRONG)
def test_what_the_schema_refuses_the_reader_refuses(path: tuple[Any, ...], wrong: object) -> None:
    graph = copy.deepcopy(GRAPH)
    inside: Any = graph
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = wrong
    if not VALIDATOR.is_valid(graph):
        with pytest.raises(PlanError, match=r"at=\$"):
            read_json_value("json", graph)


@pytest.mark.parametrize("field", ["name", "inputs", "in_labels", "out_labels"])
def test_a_field_that_is_missing_is_refused_by_both(field: str) -> None:
    graph = copy.deepcopy(GRAPH)
    del graph["ops"][0][field]
    assert not VALIDATOR.is_valid(graph)
    with pytest.raises(PlanError, match=rf"json: a field is missing: at=\$\.ops\[0\], field='{field}'"):
        read_json_value("json", graph)


def test_argmax_becomes_its_vertices() -> None:
    op = {"name": "Z", "inputs": ["X"], "in_labels": ["ij"], "out_labels": "i", "agg": "argmax"}
    VALIDATOR.validate({"inputs": {"X": [4, 5]}, "ops": [op], "outputs": ["Z"]})
    plan = Graph.from_json(json.dumps({"inputs": {"X": [4, 5]}, "ops": [op], "outputs": ["Z"]}))
    assert str(plan) == (
        "einsum\n"
        "input X: f32[4,5]\n"
        "input Z.positions: i64[5]\n"
        "t0 = einsum[ij->i; id; max](X): f32[4]\n"
        "t1 = einsum[ij,i->ij; expression[2, where(x0==x1,1,x0!=x0)]; add](X, t0): f32[4,5]\n"
        "t2 = einsum[ij->ij; cast[i64]; add](t1): i64[4,5]\n"
        "t3 = einsum[ij,j->i; expression[2, where(x0==1,x1,5)]; min](t2, Z.positions): i64[4]\n"
        "output Z = t3\n"
    )


def with_op(**changed: Any) -> dict[str, Any]:
    """A graph of one operation, with other fields."""
    op = {"name": "Z", "inputs": ["X"], "in_labels": ["ij"], "out_labels": "i", "agg": "sum"} | changed
    return {"inputs": {"X": [4, 8]}, "ops": [op], "outputs": [op["name"]]}


SHORT = '{"inputs": {"X": [4]}, "ops": [], "outputs": ["X"]}'
HUGE = 2**62
FAULTS = {
    "a name with a blank": (with_op(name="a b"), "$.ops[0].name"),
    "an input's name with a blank": ({"inputs": {"a b": [4]}, "ops": [], "outputs": ["a b"]}, '$.inputs["a b"]'),
    "an output's name with a blank": (with_op() | {"outputs": {"a b": "Z"}}, '$.outputs["a b"]'),
    "a label with a blank": (with_op(in_labels=[["i", "a b"]], out_labels=["i"]), "$.ops[0].in_labels[0][1]"),
    "no output": (with_op() | {"outputs": []}, "$.outputs"),
    "an input of too many elements": (with_op() | {"inputs": {"X": [HUGE, 8]}}, "$.inputs.X"),
    "a result of too many elements": (with_op(out_labels="ijk", extents={"k": HUGE}), "$.ops[0]"),
    "an unknown join": (with_op(join="squared"), "$.ops[0].join"),
    "half of an expression": (with_op(join="x +"), "$.ops[0].join"),
    "a join of two operands": (with_op(join="sub"), "$.ops[0].join"),
    "a join that is none of truth values": (
        with_op(join="exp") | {"inputs": {"X": {"dtype": "bool", "extents": [4, 8]}}},
        "$.ops[0]",
    ),
    "a cycle": (with_op(inputs=["Z"]), "$.ops[0].inputs[0]"),
    "the name of positions": (
        with_op(agg="argmax") | {"inputs": {"X": [4, 8], "Z.positions": [8]}, "outputs": ["Z", "Z.positions"]},
        '$.inputs["Z.positions"]',
    ),
    "a name twice": (SHORT.replace('"X": [4]', '"Y": [1], "X": [4], "X": [5]'), "$.inputs.X"),
    "a field twice": (SHORT.replace('"ops": []', '"ops": [1, {"name": "A", "name": "B"}]'), "$.ops[1].name"),
    "lists in lists": (SHORT.replace("[4]", "[4, " + "[" * 40 + "]" * 41), "$.inputs.X[1]" + "[0]" * 28),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_is_named_by_its_path(name: str) -> None:
    graph, path = FAULTS[name]
    text = graph if isinstance(graph, str) else json.dumps(graph)
    with pytest.raises(Error) as raised:
        Graph.from_json(text)
    message = str(raised.value)
    assert message.startswith("json: ")
    assert re.search(rf"at={re.escape(path)}(,|\n|$)", message), message
    if isinstance(graph, dict):
        for objective in ("wire_bytes", "seconds"):
            with pytest.raises(PlanError, match=rf"^plan_graph: .*at={re.escape(path)}(,|\n|$)"):
                plan_graph(graph, objective=objective)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400", "01", "0x10"])
def test_what_is_no_number_of_json_is_named_by_line_and_column(number: str) -> None:
    text = SHORT.replace("[4]", f"[4,\n  {number}]")
    with pytest.raises(PlanError, match=r"^json: not JSON, .*: line=2, column=\d+$"):
        Graph.from_json(text)
