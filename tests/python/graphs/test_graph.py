"""Graphs of einsums: text, JSON, gradients, and relations as operands."""

from __future__ import annotations

import json

import joinsum
import pytest
import torch
from joinsum import Graph, KernelError, PlanError

GRAPH = """einsum
input X: f32[4,5]
input Y: f32[5,6]
t0 = einsum[ij,jk->ik; mul; add](X, Y): f32[4,6]
t1 = einsum[{row}j->jn; square; max; n=2](t0): f32[6,2]
output Z = t1
"""


def test_text_reads_back() -> None:
    graph = Graph.parse(GRAPH)
    assert str(graph) == GRAPH
    assert Graph.parse(graph.text) == graph
    assert hash(Graph.parse(graph.text)) == hash(graph)
    types = {name: (value.dtype, value.shape) for name, value in (graph.inputs | graph.outputs).items()}
    assert types == {"X": (torch.float32, (4, 5)), "Y": (torch.float32, (5, 6)), "Z": (torch.float32, (6, 2))}
    assert list(graph.outputs) == ["Z"]


def test_json_reads_back() -> None:
    graph = Graph.parse(GRAPH)
    assert Graph.from_json(graph.to_json()) == graph
    assert json.loads(graph.to_json())["ops"][1] == {
        "name": "t1",
        "inputs": ["t0"],
        "in_labels": [["row", "j"]],
        "out_labels": "jn",
        "join": "square",
        "agg": "max",
        "extents": {"n": 2},
    }


def test_json_has_defaults_and_dtypes() -> None:
    graph = Graph.from_json(
        """{"inputs": {"X": {"dtype": "f64", "extents": [4, 5]}, "Y": {"dtype": "f64", "extents": [5]}},
            "ops": [{"name": "Z", "inputs": ["X", "Y"], "in_labels": ["ij", "j"], "out_labels": "i", "agg": "sum"}],
            "outputs": ["Z"]}"""
    )
    text = "einsum\ninput X: f64[4,5]\ninput Y: f64[5]\noutput Z = einsum[ij,j->i; mul; add](X, Y)"
    assert graph == Graph.parse(text)


def op(**fields: object) -> str:
    known: dict[str, object] = {"name": "Z", "inputs": ["X"], "in_labels": ["ij"], "out_labels": "i", "agg": "sum"}
    graph = {"inputs": {"X": [4, 5]}, "ops": [known | fields], "outputs": ["Z"]}
    return json.dumps(graph)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "json: not JSON, unexpected end of input; expected '[', '{', or a literal: line=1, column=2"),
        ("[]", "json: not an object: at=$, got=[]"),
        ('{"inputs": {}}', "json: a field is missing: at=$, field='ops'"),
        ('{"inputs": {"X": [1], "X": [2]}}', "json: an object has one name twice: at=$.inputs.X"),
        (op().replace("[4, 5]", "[4, -1]"), "json: not a number of elements: at=$.inputs.X[1], got=-1"),
        (op().replace("[4, 5]", '{"extents": [1]}'), "json: a field is missing: at=$.inputs.X, field='dtype'"),
        (
            op().replace("[4, 5]", '{"dtype": "f31", "extents": [1]}'),
            "json: no such dtype; there are bool, u8, i8, i16, i32, i64, f16, bf16, f32, f64, c64, c128: "
            "at=$.inputs.X.dtype, dtype='f31'",
        ),
        (op().replace("X", ".X"), "and does not begin with a point: name=`.X`: at=$.inputs"),
        ('{"input": {}}', "json: no such field; there are inputs, ops, outputs: at=$.input"),
        (op(inputs=["Y"]), "json: no such input or earlier operation: at=$.ops[0].inputs[0], name='Y'"),
        (op(agg="mean"), "at=$.ops[0].agg, agg='mean'"),
        (op(in_labels=["i"]), "json: an operand has 2 axes but 1 labels: at=$.ops[0].in_labels[0], labels=['i']"),
        (op(out_labels="ik"), "no operand has it, so name it in extents: at=$.ops[0].out_labels[1], label='k'"),
        (
            op(in_labels=["i "]),
            "a text of labels has letters only; give longer labels as a list: at=$.ops[0].in_labels",
        ),
        (op(in_labels=[["i", "a b"]]), "a label is letters, digits, _ and .: label=`a b`: at=$.ops[0].in_labels[0][1]"),
        (op(join="x + y"), "no such operand: name=y, operands=1: at=$.ops[0].join\n  x + y\n      ^"),
        (op(name="X"), "json: two values have one name: at=$.ops[0].name, name='X'"),
        (op().replace('"outputs": ["Z"]', '"outputs": ["W"]'), "at=$.outputs[0], name='W'"),
    ],
)
def test_what_is_wrong_in_json_is_named_by_its_path(text: str, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        Graph.from_json(text)
    assert message in str(caught.value)


def test_an_unknown_kernel_in_json_is_named_by_its_path() -> None:
    with pytest.raises(KernelError, match=r"at=\$\.ops\[0\]"):
        Graph.from_json(op(join="sqare"))


def test_a_graph_runs_as_a_logical_plan() -> None:
    joinsum.init(sites=3)
    graph = Graph.parse(GRAPH)
    x, y = torch.rand(4, 5), torch.rand(5, 6)
    program = graph.lower(sites=3)
    z = joinsum.run(program, {"X": x, "Y": y})["Z"].to_tensor()
    torch.testing.assert_close(z, graph.interpret({"X": x, "Y": y})["Z"].float())
    joinsum.init()


# --- relations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", [1, 2, 4])
def test_relations_give_a_relation(sites: int) -> None:
    joinsum.init(sites=sites)
    x, y, z = torch.rand(5, 6), torch.rand(6, 7), torch.rand(7)
    a, b = joinsum.relation(x, parts=(2, 3)), joinsum.relation(y, parts=(3, 2))
    product = joinsum.einsum("ij,jk->ki", a, b)
    assert isinstance(product, joinsum.Relation)
    assert str(product.type) == "f32[7,5]<2,2>"
    torch.testing.assert_close(product.to_tensor(), (x @ y).T)
    chain = joinsum.einsum("ij,jk,k->i", a, b, joinsum.relation(z, parts=2))
    assert isinstance(chain, joinsum.Relation)
    torch.testing.assert_close(chain.to_tensor(), x @ y @ z)
    again = joinsum.einsum("ki,ki->", product, product, join="max", agg="min")
    assert isinstance(again, joinsum.Relation)
    torch.testing.assert_close(again.to_tensor(), (x @ y).min())
    joinsum.init()


def test_relations_that_do_not_fit_are_refused() -> None:
    joinsum.init(sites=2)
    a, b = joinsum.relation(torch.rand(4, 4), parts=(2, 2)), joinsum.relation(torch.rand(4, 4), parts=(4, 1))
    with pytest.raises(PlanError, match=r"label=j, cuts=\[0, 2, 4\] and \[0, 1, 2, 3, 4\]"):
        joinsum.einsum("ij,jk->ik", a, b)
    with pytest.raises(PlanError, match="all tensors or all relations: operand 1=Tensor"):
        joinsum.einsum("ij,jk->ik", a, torch.rand(4, 4))
    with pytest.raises(PlanError, match="each key dimension cuts one axis"):
        joinsum.einsum("ij->i", joinsum.relation({(0, 0): torch.rand(2, 2), (1, 1): torch.rand(2, 2)}))
    joinsum.init()
