"""The plans of queries that are vertices of graphs: as they were estimated when the graph was built."""

from __future__ import annotations

import joinsum
import pytest
from joinsum import Graph, GraphValue, IaPlan
from joinsum.graphs.query_vertices import is_query, query_plan
from joinsum.sparse import Plan, Program

SIZE = 200


@pytest.fixture(autouse=True)
def one_site() -> None:
    joinsum.init(sites=1)


def plans_of(graph: Graph) -> dict[str, Plan]:
    plan: IaPlan = graph.plan(cache=False).plan
    relations = {node.name: node.type.relation for node in plan.nodes}
    return {
        node.name: query_plan(node.name, node.core.call, [(each, relations[each]) for each in node.inputs])
        for node in plan.nodes
        if node.core.call is not None and is_query(node.core.call)
    }


def graph_of(equation: str, *entries: int | None, **options: str) -> Graph:
    graph = Graph()
    operands = equation.split("->")[0].split(",")
    values: list[GraphValue] = [
        graph.input(f"A{i}", (SIZE,) * len(labels), entries=count)
        for i, (labels, count) in enumerate(zip(operands, entries, strict=True))
    ]
    graph.output("Z", graph.einsum(equation, *values, **options))
    return graph


@pytest.mark.parametrize(
    ("equation", "entries", "body"),
    [
        ("ac,cb->ab", (300, 500), ["agg", "+", ["c"], ["map", "*", [["A0", "ac"], ["A1", "cb"]]]]),
        ("ac,cb,ab->ab", (300, 500, 90), ["agg", "+", ["c"], ["map", "*", [["A0", "ac"], ["A1", "cb"], ["A2", "ab"]]]]),
    ],
)
def test_a_query_is_planned_as_a_program_of_the_same_entries_is(
    equation: str, entries: tuple[int, ...], body: list[object]
) -> None:
    def expression(data: list[object]) -> list[object]:
        if isinstance(data[0], str) and data[0].startswith("A"):
            return ["in", data[0], list(str(data[1]))]
        if data[0] == "agg":
            assert isinstance(data[3], list)
            return [*data[:3], expression(data[3])]
        assert isinstance(data[2], list)
        return ["map", data[1], [expression(each) for each in data[2]]]

    (plan,) = plans_of(graph_of(equation, *entries)).values()
    tensors = {f"A{i}": {"shape": [SIZE, SIZE], "nnz": count} for i, count in enumerate(entries)}
    query = {"name": "Z", "expr": expression(body), "output": ["a", "b"]}
    expected = Program({"tensors": tensors, "queries": [query], "dtype": "float32"}).plan(estimator="uniform")
    assert plan.logical[0]["expr"] == expected.logical[0]["expr"]
    for field in ("nnz_agg", "nnz_map", "cost", "op", "indices", "output"):
        assert plan.logical[0][field] == expected.logical[0][field], field
    for field in ("loops", "iterations", "formats", "accesses", "transposed"):
        assert plan.physical[0][field] == expected.physical[0][field], field


def test_estimated_entries_are_those_of_the_type() -> None:
    graph = graph_of("ij,jk->ik", 300, 500)
    (plan,) = plans_of(graph).values()
    node = graph.plan(cache=False).plan.nodes[-1]
    assert node.type.relation.entries == round(plan.logical[0]["nnz_agg"])
    assert 600 < plan.logical[0]["nnz_agg"] < 750  # 300 * 500 / 200, and some twice


def test_a_dense_result_has_dense_levels() -> None:
    (plan,) = plans_of(graph_of("ij->ji", 300, out_format="dense")).values()
    assert plan.physical[0]["formats"] == ["dense", "dense"]


def test_joins_aggregates_and_new_labels_are_those_of_the_einsum() -> None:
    graph = Graph()
    a, v = graph.input("A", (SIZE, SIZE), entries=40), graph.input("v", (SIZE,))
    z = graph.einsum("ij,j->ik", a, v, join="max", agg="min", extents={"k": 3}, out_format="dense")
    graph.output("Z", z)
    reduced, repeated = plans_of(graph).values()
    assert (reduced.logical[0]["op"], reduced.logical[0]["expr"][:2]) == ("min", ["map", "max"])
    assert {access["tensor"] for access in reduced.physical[0]["accesses"]} == {"A", "v"}
    assert len(repeated.logical[0]["output"]) == 2
    assert repeated.physical[0]["formats"] == ["dense", "dense"]


def test_queries_are_in_the_order_of_the_plan_and_read_each_other() -> None:
    graph = Graph()
    a = graph.input("A", (SIZE, SIZE), entries=300)
    graph.output("Z", graph.einsum("ij,jk->ik", graph.einsum("ij,jk->ik", a, a), a))
    first, second = plans_of(graph).values()
    assert {access["tensor"] for access in second.physical[0]["accesses"]} == {first.logical[0]["name"], "A"}


def test_a_plan_without_entries_is_not_run() -> None:
    (plan,) = plans_of(graph_of("ij,jk->ik", 300, 500)).values()
    with pytest.raises(joinsum.PlanError):
        plan.run()
