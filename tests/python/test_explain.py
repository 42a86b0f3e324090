"""Explanations: complete, true to the cost and the run, and documented as JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import joinsum
import jsonschema
import pytest
import torch
from joinsum.explanation.document import schema
from joinsum.explanation.measured import Comparison, Figures
from joinsum.explanation.text import tree_lines

PROGRAM = """tra
input X: f32[24,18]<6,6>
input W1: f32[18,30]<6,6>
input W2: f32[30,12]<6,6>
output Y = aggregate[0, 2; add](join[1; 0; matmul](
    transform[relu](aggregate[0, 2; add](join[1; 0; matmul](X, W1))), W2))
"""
STEP = """tra
input W: f32[8,8]<2,2>
input G: f32[8,8]<2,2>
output V -> W = join[0, 1; 0, 1; sgd_update[$rate]](W, G)
"""
GATHER = "ia on 2\ninput X: f32[8]<2> (0)\noutput Y = broadcast(X)"


def program() -> Any:
    return joinsum.parse(PROGRAM)


def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = {"X": (24, 18), "W1": (18, 30), "W2": (30, 12)}
    return {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}


def told_json(told: joinsum.Explanation) -> Any:
    value = json.loads(told.to_json())
    jsonschema.Draft202012Validator(schema()).validate(value)
    return value


# --- what is told -----------------------------------------------------------------------------------------------------


def test_the_text_has_every_section() -> None:
    joinsum.init(sites=4)
    text = str(joinsum.explain(program(), minimize="wire_bytes"))
    for part in (
        "logical plan: what is computed\ntra\n",
        "physical plan: where tuples lie and move, on 4 sites (2x2)",
        "costs are for 10 Gbit between sites, one device each",
        "the default cluster that joinsum ships, as nothing is calibrated",
        "search: least wire_bytes, found by",
        "rules applied",
        "alternatives to the chosen plan",
        "operator by operator",
    ):
        assert part in text


def test_the_same_plan_is_told_alike_every_time() -> None:
    joinsum.init(sites=6)
    assert str(joinsum.explain(program())) == str(joinsum.explain(program()))


def test_the_tree_has_each_operator_once_and_shared_ones_by_name() -> None:
    plan = joinsum.parse("ia on 1\ninput X: f32[4]<1> ()\na = map[(k0); relu](X)\noutput Y = join[0; 0; add](a, a)")
    lines = [line for line, _ in tree_lines(plan)]  # type: ignore[arg-type]
    assert lines == [
        "output Y",
        "└─ t1 = local_join[0; 0; add]",
        "   ├─ t0 = local_map[(k0); relu]",
        "   │  └─ X = input",
        "   └─ t0 (above)",
    ]


def test_a_chain_of_ten_thousand_nodes_is_told_in_lines_of_bounded_length() -> None:
    text = "ia on 1\ninput X: f32[4]<1> ()\nt0 = map[(k0); relu](X)\n"
    text += "".join(f"t{i} = map[(k0); relu](t{i - 1})\n" for i in range(1, 10_000))
    lines = [line for line, _ in tree_lines(joinsum.parse(text + "output Y = t9999"))]  # type: ignore[arg-type]
    assert len(lines) == 10_002
    assert max(map(len, lines)) < 100


def test_a_tied_output_names_its_input() -> None:
    joinsum.init(sites=2)
    assert "output V -> W" in str(joinsum.explain(joinsum.parse(STEP)))


def test_alternatives_are_the_plans_that_lost_and_by_how_much() -> None:
    joinsum.init(sites=6)
    found = joinsum.optimize(program(), minimize="wire_bytes")
    told = joinsum.explain(found)
    assert [other.name for other in told.alternatives] == [each.name for each in found.candidates[1:]]
    for other in told.alternatives:
        assert other.loses == other.cost.wire_bytes - told.cost.wire_bytes >= 0
    assert [other.loses for other in told.alternatives] == sorted(other.loses for other in told.alternatives)


def test_an_exact_search_says_so_and_one_without_placement_does_not() -> None:
    joinsum.init(sites=4)
    assert joinsum.explain(program(), minimize="wire_bytes").exact
    plain = joinsum.explain(program(), without=["placement", "products", "rewrite"])
    assert not plain.exact
    assert "not exact: no proof" in str(plain)
    assert "alternatives: none" in str(plain)


def test_a_relation_is_explained_with_its_own_inputs_and_places() -> None:
    joinsum.init(sites=4)
    x = joinsum.relation(torch.ones(8, 8), parts=(2, 2), place=[0, 1], name="X")
    told = x.aggregate(keep=[0]).explain(minimize="wire_bytes")
    assert str(told.plan.inputs["X"]).endswith("(0, 1)")
    assert told.minimized == "wire_bytes"
    assert joinsum.explain(x.aggregate(keep=[0]), minimize="wire_bytes").plan == told.plan


def test_a_physical_plan_is_shown_as_it_is() -> None:
    joinsum.init(sites=2)
    told = joinsum.explain(joinsum.parse(GATHER))
    assert told.program is None
    assert told.found is None
    assert told.alternatives == ()
    assert "search" not in str(told)


@pytest.mark.parametrize(
    ("cluster", "origin"),
    [
        (joinsum.Cluster(), "default"),
        (joinsum.Cluster(memory_bytes=10**9), "default"),
        (joinsum.Cluster("mine", bytes_per_second=1e8), "given"),
    ],
)
def test_the_cluster_is_named_with_its_origin(cluster: joinsum.Cluster, origin: str) -> None:
    joinsum.init(sites=2)
    told = joinsum.explain(program(), cluster=cluster)
    assert told.cluster.origin == origin
    assert f"costs are for {cluster.name}" in str(told)
    assert told_json(told)["cluster"]["origin"] == origin


# --- JSON and graph ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", [1, 3, 4, 6])
def test_the_json_follows_its_schema(sites: int) -> None:
    joinsum.init(sites=sites)
    told = joinsum.explain(program())
    value = told_json(told)
    assert value["sites"]["count"] == sites
    assert sum(node["cost"]["wire_bytes"] for node in value["plan"]["nodes"]) == value["cost"]["wire_bytes"]
    assert joinsum.parse(value["plan"]["text"]) == told.plan
    assert joinsum.parse(value["program"]) == told.program


def test_a_phase_after_which_no_plan_fits_has_no_best_cost() -> None:
    joinsum.init(sites=4)
    tight = joinsum.Cluster(memory_bytes=joinsum.explain(program(), minimize="wire_bytes").cost.peak_bytes)
    told = joinsum.explain(program(), {"X": [0, 0]}, minimize="wire_bytes", cluster=tight)
    assert told_json(told)["search"]["phases"][0] | {"seconds": 0} == {
        "name": "lower",
        "plans": 1,
        "best": None,
        "seconds": 0,
    }
    assert "none fits" in str(told)


def test_the_schema_refuses_what_is_not_documented() -> None:
    joinsum.init(sites=2)
    value = json.loads(joinsum.explain(program()).to_json())
    value["plan"]["nodes"][0]["colour"] = "red"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, schema())


def test_every_field_of_the_schema_is_described() -> None:
    objects = [schema(), *schema()["$defs"].values()]
    for each in objects:
        for name, field in each["properties"].items():
            assert "description" in field or "const" in field, name


def test_a_move_tells_who_holds_what() -> None:
    move = told_json(joinsum.explain(joinsum.parse(GATHER)))["plan"]["nodes"][1]["move"]
    assert move["keys"] == [[0], [1]]
    assert (move["before"], move["after"]) == ([[0], [1]], [[0, 1], [0, 1]])
    assert (move["partial_before"], move["partial_after"]) == (False, False)


def test_irregular_keys_are_told_once_each() -> None:
    plan = "ia on 2\ninput X: f32[2@-]<3> keys{<0>,<2>,<2>} (0)\noutput Y = broadcast(X)"
    move = told_json(joinsum.explain(joinsum.parse(plan)))["plan"]["nodes"][1]["move"]
    assert move["keys"] == [[0], [2]]
    assert move["after"] == [[0, 1], [0, 1]]


def test_of_many_tuples_some_are_told() -> None:
    plan = "ia on 2\ninput X: f32[1000,1000]<1000,1000> (0)\noutput Y = broadcast(X)"
    move = told_json(joinsum.explain(joinsum.parse(plan)))["plan"]["nodes"][1]["move"]
    assert move["tuples"] == 1_000_000
    assert len(move["keys"]) == 64
    assert move["keys"][0] == [0, 0]
    assert move["keys"] == sorted(move["keys"])


def test_the_graph_has_an_arrow_for_each_operand_and_output() -> None:
    joinsum.init(sites=4)
    told = joinsum.explain(program())
    arrows = told.to_dot().count(" -> ")
    assert arrows == sum(len(node.inputs) for node in told.plan.nodes) + len(told.plan.outputs)


# --- measured ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", [1, 3, 4])
@pytest.mark.parametrize("minimize", ["seconds", "wire_bytes"])
def test_measured_bytes_are_the_predicted_ones_and_memory_stays_below(sites: int, minimize: str) -> None:
    joinsum.init(sites=sites)
    given = tensors()
    told = joinsum.explain(program(), minimize=minimize, analyze=True, inputs=given)
    assert told.measured is not None
    assert told.measured.loopback
    for row in told.comparisons:
        assert row.measured.wire_bytes == row.predicted.wire_bytes
        assert 0 < row.measured.peak_bytes <= row.predicted.peak_bytes
        assert row.measured.seconds > 0
    assert told_json(told)["measured"]["total"]["measured"]["wire_bytes"] == told.cost.wire_bytes
    assert f"measured on {sites} site" in str(told)


def test_each_operator_of_a_run_is_compared_but_for_joins_that_are_fused() -> None:
    joinsum.init(sites=4)
    told = joinsum.explain(program(), analyze=True, inputs=tensors())
    ran = [row.node for row in told.comparisons[:-1]]
    assert ran == [node.name for node in told.plan.nodes if node.inputs and not node.fused]
    assert sum(row.predicted.seconds for row in told.comparisons[:-1]) == pytest.approx(told.cost.seconds)


def test_a_relation_is_run_on_its_own_data() -> None:
    joinsum.init(sites=3)
    x = joinsum.relation(torch.ones(9, 9), parts=(3, 3), name="X")
    told = x.join(x, on=([1], [0]), kernel="matmul").aggregate(keep=[0, 2]).explain(analyze=True)
    assert told.measured is not None
    assert told.measured.total.wire_bytes == told.cost.wire_bytes


def test_analysing_overwrites_nothing() -> None:
    joinsum.init(sites=2)
    w, g = torch.ones(8, 8), torch.ones(8, 8)
    stored = joinsum.relation(w, parts=(2, 2), name="W").stored()
    joinsum.explain(joinsum.parse(STEP), analyze=True, inputs={"W": stored, "G": g}, scalars={"rate": 0.5})
    assert stored.alive
    assert torch.equal(stored.to_tensor(), torch.ones(8, 8))
    assert torch.equal(w, torch.ones(8, 8))


@pytest.mark.parametrize(
    ("predicted", "measured", "errors"),
    [
        (Figures(8, 1.0, 100), Figures(8, 2.0, 50), {}),
        (Figures(8, 1.0, 100), Figures(17, 0.4, 201), {"wire_bytes": 2.125, "seconds": 2.5, "peak_bytes": 2.01}),
        (Figures(0, 0.0, 1), Figures(4, 1e-6, 1), {"wire_bytes": math.inf}),
    ],
)
def test_figures_wrong_by_more_than_a_factor_of_two_are_flagged(
    predicted: Figures, measured: Figures, errors: dict[str, float]
) -> None:
    assert Comparison("t0", "", predicted, measured).errors == pytest.approx(errors)


def test_a_wrong_prediction_is_flagged_in_the_text() -> None:
    slow = joinsum.Cluster("slow", flops_per_second=1.0, bytes_per_second=1.0, latency_seconds=100.0)
    joinsum.init(sites=2, cluster=slow)
    text = str(joinsum.explain(joinsum.parse(GATHER), analyze=True, inputs={"X": torch.ones(8)}))
    (line,) = [line for line in text.splitlines() if line.startswith("t0 ")]
    assert "time " in line
    assert line.endswith("x")


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (3, {}, "explain: give a relation, a plan or what joinsum.optimize found: got=int"),
        (PROGRAM, {"analyze": True}, "explain: an input is not given: input=X"),
        (PROGRAM, {"inputs": {"X": 1}}, "explain: data are for analyze=True only: given=['inputs']"),
        (PROGRAM, {"without": ["R9-9"]}, "optimize: no such phase or rule: name='R9-9'"),
        (GATHER, {"minimize": "seconds"}, "explain: the plan is chosen already, so nothing is searched: "),
        (GATHER, {"place": {"X": "(0)"}}, "explain: the plan is chosen already"),
        (GATHER, {"analyze": True, "inputs": {"X": torch.ones(7)}}, "explain: input X: it has another shape"),
    ],
)
def test_wrong_arguments_are_named(x: Any, options: dict[str, Any], message: str) -> None:
    joinsum.init(sites=2)
    with pytest.raises(joinsum.PlanError) as error:
        joinsum.explain(joinsum.parse(x) if isinstance(x, str) else x, **options)
    assert str(error.value).startswith(message)


def test_a_relation_takes_no_other_inputs_and_a_found_plan_no_other_cluster() -> None:
    joinsum.init(sites=2)
    x = joinsum.relation(torch.ones(4), parts=2, name="X")
    with pytest.raises(joinsum.PlanError, match="a relation has its own inputs"):
        joinsum.explain(x, analyze=True, inputs={"X": torch.ones(4)})
    with pytest.raises(joinsum.PlanError, match="the plan was chosen for a cluster already"):
        joinsum.explain(joinsum.optimize(program()), cluster=joinsum.Cluster("other", bytes_per_second=1.0))
