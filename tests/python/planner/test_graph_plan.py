"""Planning graphs of einsums from Python: the paper's numbers, JSON and its errors, pins, reports, time."""

from __future__ import annotations

import copy
import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joinsum
import pytest

PRODUCT = {
    "inputs": {"X": [8, 8], "Y": [8, 8]},
    "ops": [
        {
            "name": "Z",
            "inputs": ["X", "Y"],
            "in_labels": ["ij", "jk"],
            "out_labels": "ik",
            "join": "mul",
            "agg": "sum",
        }
    ],
    "outputs": ["Z"],
}

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "planning_graphs.py"


def changed(change: Callable[[Any], object]) -> Any:
    graph = copy.deepcopy(PRODUCT)
    change(graph)
    return graph


@pytest.mark.parametrize(
    ("parts", "join", "aggregation"),
    [((4, 1, 4), 512, 0), ((2, 1, 8), 640, 0), ((2, 4, 2), 256, 192), ((2, 2, 4), 384, 64)],
)
def test_the_products_of_the_papers_first_figure(parts: tuple[int, ...], join: int, aggregation: int) -> None:
    vertex = joinsum.plan_graph(PRODUCT, calls=16, pins={"Z": parts}).vertices[0]
    assert (vertex.join, vertex.aggregation, vertex.repartitions) == (join, aggregation, (0, 0))
    assert (vertex.calls, vertex.cost) == (16, join + aggregation)


def test_the_papers_repartition() -> None:
    pins = {"Z": {"i": 4, "j": 1, "k": 4}, "X": [2, 4]}
    assert joinsum.plan_graph(PRODUCT, calls=16, pins=pins).vertices[0].repartitions == (320, 0)


def test_a_plan_is_json_of_four_fields() -> None:
    found = joinsum.plan_graph(PRODUCT, calls=16).to_json()
    assert json.loads(json.dumps(found)) == {
        "plan": {"Z": {"i": 4, "j": 2, "k": 2}},
        "cost": 448,
        "exact": True,
        "lower_bound": 448,
    }


def test_a_file_is_planned_as_its_graph(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(PRODUCT))
    assert joinsum.plan_graph_file(path, calls=8).to_json() == joinsum.plan_graph(PRODUCT, calls=8).to_json()


def test_labels_may_be_lists_of_text_and_outputs_may_have_names() -> None:
    def change(graph: Any) -> None:
        graph["ops"][0] |= {"in_labels": [["row", "mid"], ["mid", "column"]], "out_labels": ["row", "column"]}
        graph["outputs"] = {"product": "Z"}

    found = joinsum.plan_graph(changed(change), calls=16, pins={"product": [2, 2]})
    assert found.plan == {"Z": {"row": 2, "mid": 4, "column": 2}}


def test_labels_that_only_the_result_has_need_an_extent() -> None:
    op = {"name": "B", "inputs": ["X"], "in_labels": ["ij"], "out_labels": "ijb", "extents": {"b": 4}}
    graph = {"inputs": {"X": [2, 1]}, "ops": [op], "outputs": ["B"]}
    assert joinsum.plan_graph(graph, calls=8).plan == {"B": {"i": 2, "j": 1, "b": 4}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda graph: graph.pop("ops"), "a field is missing: at=$, field='ops'"),
        (lambda graph: graph.update(op=[]), "no such field; there are inputs, ops, outputs: at=$.op"),
        (lambda graph: graph.update(inputs=[]), "not an object: at=$.inputs, got=[]"),
        (lambda graph: graph["inputs"].update(X=[8, 2.5]), "not a number of elements: at=$.inputs.X[1], got=2.5"),
        (lambda graph: graph["inputs"].update({"a b": 3}), 'not a list: at=$.inputs["a b"], got=3'),
        (lambda graph: graph["ops"].append(graph["ops"][0]), "two values have one name: at=$.ops[1].name, name='Z'"),
        (lambda graph: graph["ops"][0].update(name=""), "not a text of at least one letter: at=$.ops[0].name, got=''"),
        (lambda graph: graph["ops"][0].update(name=["Z"]), "not a text of at least one letter: at=$.ops[0].name, got"),
        (
            lambda graph: graph["ops"][0]["inputs"].__setitem__(1, "W"),
            "no such input or earlier operation: at=$.ops[0].inputs[1], name='W'",
        ),
        (lambda graph: graph["ops"][0].update(inputs=[]), "an operation has no operand: at=$.ops[0].inputs"),
        (
            lambda graph: graph["ops"][0]["in_labels"].pop(),
            "2 operands need as many lists of labels: at=$.ops[0].in_labels, in_labels=['ij']",
        ),
        (
            lambda graph: graph["ops"][0]["in_labels"].__setitem__(0, "ijj"),
            "an operand has 2 axes but 3 labels: at=$.ops[0].in_labels[0], labels=['i', 'j', 'j']",
        ),
        (
            lambda graph: graph["ops"][0]["in_labels"].__setitem__(0, "i,"),
            "a text of labels has letters only; give longer labels as a list: at=$.ops[0].in_labels[0][1], got=','",
        ),
        (
            lambda graph: graph["inputs"].update(Y=[4, 8]),
            "a label has two extents: at=$.ops[0].in_labels[1][0], label='j', extents=[8, 4]",
        ),
        (
            lambda graph: graph["ops"][0].update(out_labels="ix"),
            "a label has no extent; no operand has it, so name it in extents: at=$.ops[0].out_labels[1], label='x'",
        ),
        (
            lambda graph: graph["ops"][0].update(out_labels="ii"),
            "a result has a label twice: at=$.ops[0].out_labels[1], label='i'",
        ),
        (lambda graph: graph["ops"][0].pop("agg"), "labels vanish but nothing aggregates them: at=$.ops[0].agg"),
        (
            lambda graph: graph["ops"][0].update(agg="mean"),
            "no such aggregation; there are sum, prod, max, min, logsumexp, any, all, argmax, "
            "argmin: at=$.ops[0].agg, agg='mean'",
        ),
        (lambda graph: graph["ops"][0].update(join=3), "not a text of at least one letter: at=$.ops[0].join, got=3"),
        (lambda graph: graph["ops"][0].update(extents={"i": 4}), "a label has two extents: at=$.ops[0].extents.i"),
        (lambda graph: graph.update(outputs=["V"]), "no such input or earlier operation: at=$.outputs[0], name='V'"),
        (lambda graph: graph.update(outputs={"X": "Z"}), "an output has no name, or that of another value: at=$.out"),
    ],
)
def test_a_wrong_graph_is_named_with_its_json_path(change: Callable[[Any], object], message: str) -> None:
    with pytest.raises(joinsum.PlanError) as raised:
        joinsum.plan_graph(changed(change))
    assert str(raised.value).startswith(f"plan_graph: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON, unexpected end of input; expected string literal: file="),
        ('{"inputs": {"X": [1], "X": [2]}}', "an object has one name twice: file="),
        ("[]", "not an object: at=$, got=[]"),
    ],
)
def test_a_wrong_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(text)
    with pytest.raises(joinsum.PlanError) as raised:
        joinsum.plan_graph_file(path)
    assert str(raised.value).startswith(f"plan_graph: {message}")
    with pytest.raises(FileNotFoundError):
        joinsum.plan_graph_file(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"objective": "bytes"},
            "plan_graph: no such objective; there is paper, wire_bytes, seconds: objective='bytes'",
        ),
        ({"calls": 0}, "plan_graph: a number of calls or parts is at least 1, and fits 64 bits: calls=0"),
        ({"calls": 2.0}, "plan_graph: calls is an integer: calls=2.0"),
        ({"calls": 2**40}, "partition: the number of kernel calls is between 1 and 2^30: calls=1099511627776"),
        ({"seconds": -1}, "plan_graph: a limit is a number of seconds: seconds=-1"),
        ({"seconds": float("nan")}, "plan_graph: a limit is a number of seconds: seconds=nan"),
        ({"pins": [1]}, "plan_graph: pins are part counts by name: pins=[1]"),
        ({"pins": {"Z": 4}}, "plan_graph: part counts are given by label or as a list: pin=Z, parts=4"),
        (
            {"pins": {"Z": [4, 2]}},
            "plan_graph: a list of part counts needs one per label: pin=Z, parts=[4, 2], labels=",
        ),
        ({"pins": {"Z": {"i": 0}}}, "plan_graph: a number of calls or parts is at least 1, and fits 64 bits: Z.i=0"),
        ({"pins": {"V": [1]}}, "partition: a pin names no input, vertex or output: pin=V"),
        ({"pins": {"Z": {"i": 4, "k": 4}}}, "partition: pins contradict each other or the vectors of Z, whose parts"),
        ({"pins": {"X": [3, 1]}}, "partition: an input's parts are powers of two that divide its extents: pin=X.0=3"),
    ],
)
def test_wrong_arguments_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(joinsum.PlanError) as raised:
        joinsum.plan_graph(PRODUCT, **options)
    assert str(raised.value).startswith(message)


def test_contradicting_pins_are_the_smallest_set() -> None:
    with pytest.raises(joinsum.PlanError, match=r"pins=\[Z\.i=4, Z\.k=4\]$"):
        joinsum.plan_graph(PRODUCT, pins={"Z": {"i": 4, "j": 1, "k": 4}, "X": [1, 1]})


def llama(layers: int) -> Any:
    spec = importlib.util.spec_from_file_location("benchmark_graphs", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.llama(layers)


def test_layers_of_llama_are_planned_exactly_and_share_tables() -> None:
    graph = llama(1)
    start = time.perf_counter()
    plan = joinsum.plan_graph(graph, calls=8)
    # Four times what it may take alone, for machines under load.
    assert time.perf_counter() - start < 4
    assert plan.exact
    assert all(vertex.calls == 8 for vertex in plan.vertices)
    few, many = (joinsum.plan_graph(llama(layers), calls=8) for layers in (3, 6))
    assert few.tables[0] == many.tables[0] < many.tables[1] / 2
    assert many.exact


def test_a_deadline_gives_a_plan_and_a_bound() -> None:
    plan = joinsum.plan_graph(llama(4), calls=256, seconds=0.1)
    assert 0 < plan.lower_bound <= plan.cost == sum(vertex.cost for vertex in plan.vertices)
    assert "no plan moves less than" in repr(plan) or plan.exact


def test_a_long_report_is_cut() -> None:
    text = repr(joinsum.plan_graph(llama(1)))
    assert text.splitlines()[0].startswith("plan of 69 einsums for 8 calls each, found by elimination, proven best")
    assert text.endswith("and 9 more einsums")
