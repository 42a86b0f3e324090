"""Explanations of graphs with sparse values: their queries are readable, and expected bytes are marked."""

from __future__ import annotations

import json
from typing import Any

import joinsum
import jsonschema
import pytest
import torch
from explained_programs import GATHER
from joinsum import Explanation, Graph, SparseTensor
from joinsum.explanation.document import schema
from joinsum.explanation.model_text import Pass
from joinsum.sparse import Plan, Program

SIZE, ENTRIES = 64, 200
MARK = "~ by the estimated entries of sparse values"
MOVES = """ia on 2
input X: f32[8]<2> sparse{3} (0)
input D: f32[8]<2> (0)
output Y = broadcast(X)
output E = broadcast(D)
"""


def two_queries() -> Graph:
    graph = Graph()
    a = graph.input("A", (SIZE, SIZE), entries=ENTRIES)
    masked = graph.einsum("ij,jk,ik->ik", a, a, a)
    graph.output("Z", graph.einsum("ik,k->i", masked, graph.input("v", (SIZE,)), agg="max"))
    return graph


def divided(**options: Any) -> Explanation:
    """A is stored in parts, which every site needs."""
    joinsum.init(sites=4)
    return joinsum.explain(two_queries(), {"A": [0, 1], "v": "(*, *)"}, **options)


def checked(explained: Explanation) -> Any:
    value = json.loads(explained.to_json())
    jsonschema.Draft202012Validator(schema()).validate(value)
    return value


# --- queries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", [1, 4])
def test_each_query_is_readable_below_the_plan(sites: int) -> None:
    joinsum.init(sites=sites)
    explained = joinsum.explain(two_queries())
    (section,) = [part for part in str(explained).split("\n\n") if part.startswith("sparse queries: ")]
    assert list(explained.queries) == [node.name for node in explained.plan.nodes if node.kind == "local_call"]
    for name, plan in explained.queries.items():
        assert f"\n{name}[" in section
        assert "\n".join(str(plan).split("\n")[1:]) in section
    if sites == 1:
        assert "= +[c] (A[a,c] * A[c,b] * A[a,b])\n    entries " in section
    assert "for " in section
    assert "result " in section


def test_the_tree_names_queries_shortly() -> None:
    joinsum.init(sites=1)
    physical = str(joinsum.explain(two_queries())).split("\n\n")[1]
    assert "= sparse_query[ac,cb,ab -> ab] " in physical
    assert "joinsum::sparse_query" not in physical


def test_the_json_has_the_fields_of_the_plan_of_each_query() -> None:
    explained = divided()
    nodes = checked(explained)["plan"]["nodes"]
    assert {node["name"] for node in nodes if node["query"] is not None} == set(explained.queries)
    for node in nodes:
        if node["query"] is not None:
            plan = explained.queries[node["name"]]
            assert node["query"] == json.loads(plan.to_json())
            assert node["query"]["logical"][0]["name"] == node["name"]
            assert {access["tensor"] for access in node["query"]["physical"][0]["accesses"]} == set(node["inputs"])


def test_a_planned_graph_is_explained_with_its_queries() -> None:
    joinsum.init(sites=2)
    planned = two_queries().plan(cache=False)
    assert len(joinsum.explain(planned).queries) == 2


def test_dense_plans_have_no_queries() -> None:
    joinsum.init(sites=2)
    explained = joinsum.explain(joinsum.parse(GATHER))
    assert explained.queries == {}
    assert "sparse queries" not in str(explained)
    assert all(node["query"] is None for node in checked(explained)["plan"]["nodes"])


# --- bytes ------------------------------------------------------------------------------------------------------------


def test_bytes_of_moved_sparse_values_are_marked() -> None:
    joinsum.init(sites=2)
    explained = joinsum.explain(joinsum.parse(MOVES))
    lines = str(explained).split("\n")
    cells = {line.split(" = ")[0].split()[-1]: line.split()[-3] for line in lines if "broadcast" in line}
    sparse, dense = (explained.plan.output_nodes[name] for name in ("Y", "E"))
    assert cells[sparse].startswith("~")
    assert not cells[dense].startswith("~")
    (total,) = [line for line in lines if line.startswith("total")]
    (peak,) = [line for line in lines if line.startswith("peak")]
    assert " ~" in total
    assert " ~" in peak
    assert sum(line.startswith(MARK) for line in lines) == 1
    assert explained.to_dot().count("\\n~") == 1
    nodes = {node["name"]: node["cost"]["estimated"] for node in checked(explained)["plan"]["nodes"]}
    assert (nodes[sparse], nodes[dense]) == (["wire_bytes", "peak_bytes"], ["peak_bytes"])
    assert checked(explained)["cost"]["estimated"] == ["wire_bytes", "peak_bytes"]


def test_bytes_of_dense_plans_are_exact() -> None:
    joinsum.init(sites=2)
    explained = joinsum.explain(joinsum.parse(GATHER))
    value = checked(explained)
    assert "~" not in str(explained)
    assert value["cost"]["estimated"] == []
    assert all(node["cost"]["estimated"] == [] for node in value["plan"]["nodes"])


def test_bytes_that_do_not_move_are_no_estimates_of_the_wire() -> None:
    joinsum.init(sites=1)
    value = checked(joinsum.explain(two_queries()))
    assert value["cost"]["estimated"] == ["peak_bytes"]


def test_alternatives_and_the_minimised_cost_are_marked() -> None:
    explained = divided(minimize="wire_bytes")
    moving = [each for each in explained.alternatives if each.cost.wire_bytes]
    assert moving
    assert all("wire_bytes" in each.estimated for each in moving)
    (found,) = [part for part in str(explained).split("\n\n") if part.startswith("search: ")]
    priced = [line for line in found.split("\n") if line.endswith(" B")]
    assert priced
    assert all("~" in line for line in priced)
    for each, written in zip(explained.alternatives, checked(explained)["alternatives"], strict=True):
        assert written["cost"]["estimated"] == list(each.estimated)


def test_measured_bytes_stand_beside_marked_ones_without_a_mark() -> None:
    joinsum.init(sites=2)
    x = SparseTensor.from_torch(torch.tensor([0.0, 1, 1, 1, 1, 0, 0, 0])).to_torch("coo")
    inputs = {"X": x, "D": torch.ones(8)}
    explained = joinsum.explain(joinsum.parse(MOVES), analyze=True, inputs=inputs)
    assert explained.measured is not None
    (section,) = [part for part in str(explained).split("\n\n") if part.startswith("measured on ")]
    name = explained.plan.output_nodes["Y"]
    (line,) = [line for line in section.split("\n") if line.startswith(f"{name} ")]
    predicted, measured = line.split()[2:4]
    assert predicted.startswith("~")
    assert measured == f"{explained.measured.nodes[name].wire_bytes:,}"


# --- programs and their plans -----------------------------------------------------------------------------------------


def test_a_program_and_its_plan_are_explained_by_the_plan() -> None:
    query = {"name": "s", "expr": ["agg", "+", ["j"], ["in", "A", ["i", "j"]]], "output": ["i"]}
    tensors = {"A": {"shape": [4, 5], "coo": [[0, 1, 2.0], [3, 2, 1.0], [3, 4, -1.0]]}}
    program = Program({"tensors": tensors, "queries": [query]})
    plan = joinsum.explain(program)
    assert isinstance(plan, Plan)
    assert str(plan) == str(program.plan())
    assert joinsum.explain(plan) is plan
    assert plan.true_entries == {}
    assert joinsum.explain(program, analyze=True).true_entries == {"s": 1}  # 1 - 1 is the fill
    with pytest.raises(joinsum.PlanError, match="there is only analyze=True"):
        joinsum.explain(plan, minimize="seconds")  # type: ignore[call-overload]


def test_an_einsum_is_explained_by_its_plan() -> None:
    joinsum.init(sites=1)
    x = SparseTensor.from_torch(torch.eye(4))
    plan = joinsum.einsum_plan("ij,jk->ik", x, x)
    assert joinsum.explain(plan) is plan


def test_the_text_of_a_model_marks_bytes_and_shows_queries() -> None:
    explained = divided()
    shown = Pass("forward", "planned here", explained)
    (moved,) = [vertex for vertex in shown.vertices if vertex.moves and vertex.wire_bytes]
    assert moved.estimated == ("wire_bytes", "peak_bytes")
    text = str(shown)
    assert f"~{explained.cost.wire_bytes:,} B between sites" in text.split("\n")[0]
    assert MARK in text
    assert f"~{moved.wire_bytes:,}" in next(line for line in text.split("\n") if line.startswith("move "))
    assert "\n\nsparse queries: " in text
    (exact,) = Pass("forward", "planned here", joinsum.explain(joinsum.parse(GATHER))).vertices
    assert exact.estimated == ()
