"""joinsum.einsum_plan and joinsum.Graph: planned once, run often."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Iterator
from typing import Any

import joinsum
import pytest
import torch
from joinsum import PlanError


@pytest.fixture(params=[1, 2, 4])
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    joinsum.init(sites=request.param)
    yield request.param
    joinsum.init()


# --- einsum_plan ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ii,ij->j", "ij,jk,kl->li", "...i,ij->...j"])
def test_a_planned_einsum_has_torchs_values_and_gradients(sites: int, equation: str) -> None:
    operands = [torch.rand(4, 4, dtype=torch.float64, requires_grad=True) for _ in equation.split("->")[0].split(",")]
    run = joinsum.einsum_plan(equation, *operands)
    for _ in range(2):
        got, wanted = run(*operands), torch.einsum(equation, *operands)
        torch.testing.assert_close(got, wanted)
        for x, y in zip(
            torch.autograd.grad(got.sum(), operands), torch.autograd.grad(wanted.sum(), operands), strict=True
        ):
            torch.testing.assert_close(x, y)


def test_shapes_and_tensors_without_data_are_planned_as_tensors_are(sites: int) -> None:
    shaped = joinsum.einsum_plan("ij,jk->ik", (8, 6), (6, 4), dtype=torch.float64)
    assert (
        joinsum.einsum_plan(
            "ij,jk->ik", torch.empty(8, 6, device="meta", dtype=torch.float64), [6, 4], dtype=torch.float64
        ).plan
        == shaped.plan
    )
    x, y = torch.rand(8, 6, dtype=torch.float64), torch.rand(6, 4, dtype=torch.float64)
    torch.testing.assert_close(shaped(x, y), x @ y)


def test_a_plan_is_cached_unless_the_caller_declines(sites: int) -> None:
    first = joinsum.einsum_plan("ij,jk->ik", (8, 6), (6, 4))
    assert joinsum.einsum_plan("ij,jk->ik", torch.ones(8, 6), torch.ones(6, 4)) is first
    assert joinsum.einsum_plan("ij,jk->ik", (8, 6), (6, 4), cache=False) is not first
    assert joinsum.einsum_plan("ij,jk->ik", (8, 6), (6, 5)) is not first
    assert joinsum.einsum_plan("ij,jk->ik", (8, 6), (6, 4), join="add") is not first


@pytest.mark.parametrize(
    ("operands", "said"),
    [
        ((torch.ones(8, 6),), "another number of operands: planned=2, given=1"),
        ((torch.ones(8, 6), torch.ones(6, 5)), r"operand=1, planned=\[6, 4\], given=\[6, 5\]"),
        ((torch.ones(8, 6), torch.ones(6, 4).double()), "operand=1, planned=torch.float32, given=torch.float64"),
        ((torch.ones(8, 6), 3.0), "operand 1: not a tensor"),
    ],
)
def test_operands_other_than_planned_are_named(operands: Any, said: str) -> None:
    run = joinsum.einsum_plan("ij,jk->ik", (8, 6), (6, 4))
    with pytest.raises(PlanError, match=f"plan: .*{said}"):
        run(*operands)


def test_a_run_of_named_inputs_says_how_to_call() -> None:
    graph = joinsum.Graph()
    graph.output("Y", graph.einsum("ij->i", graph.input("X", (2, 3))))
    with pytest.raises(PlanError, match=r"call the plan itself: plan\(X=\.\.\.\)"):
        graph.plan().run({"X": torch.ones(2, 3)})


def test_a_plan_of_other_sites_is_refused() -> None:
    joinsum.init(sites=2)
    run = joinsum.einsum_plan("ij->i", (4, 4))
    joinsum.init(sites=4)
    with pytest.raises(PlanError, match="made for other sites; plan again"):
        run(torch.ones(4, 4))
    joinsum.init()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ij,jk->ik", (2, 3), (4, 5)), r"label=j, operand 0=3, operand 1=4\n  ij,jk->ik\n     \^"),
        (("ij->i", "ab"), "operand=0, given='ab'"),
        (("ij->i", (2, -1)), r"operand=0, given=\(2, -1\)"),
        (("ij->i",), "at least one operand"),
        (((2, 3), "ij"), "operands and lists of labels are given in turn: got='ij'"),
        ((), "einsum_plan: give an equation and operands"),
    ],
)
def test_what_cannot_be_planned_is_said(arguments: Any, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        joinsum.einsum_plan(*arguments)


# --- steps ------------------------------------------------------------------------------------------------------------


def test_steps_tell_the_partition_vectors_and_bytes_of_the_plan() -> None:
    joinsum.init(sites=4, cluster=joinsum.Cluster(bytes_per_second=1e12, latency_seconds=0.0))
    run = joinsum.einsum_plan("ab,bc->ac", (512, 512), (512, 512))
    work = run.steps[0]
    assert work.operation.startswith("local_join")
    assert set(work.parts) == {"a", "b", "c"}
    assert math.prod(work.parts.values()) == 4  # all sites take part
    assert sum(step.wire_bytes for step in run.steps) == run.cost.wire_bytes > 0
    assert run.steps[-1].parts == {"a": 1, "c": 1}  # every site has the result
    before = joinsum.context().transport.bytes_sent()
    run(torch.ones(512, 512), torch.ones(512, 512))
    assert joinsum.context().transport.bytes_sent() - before == run.cost.wire_bytes
    joinsum.init()


def test_labels_that_are_not_one_have_two_names_in_steps() -> None:
    joinsum.init(sites=2)
    g = joinsum.Graph()
    x, y, w = g.input("X", (64, 32)), g.input("Y", (32, 16)), g.input("W", (16, 8))
    g.output("Z", g.einsum("ij,jk->ik", g.einsum("ij,jk->ik", x, y), w))
    labels = set().union(*(step.parts for step in g.plan().steps))
    assert labels == {"i", "j", "k", "k'"}
    joinsum.init()


def test_the_table_names_order_steps_placement_bytes_and_seconds() -> None:
    joinsum.init(sites=4)
    text = repr(joinsum.einsum_plan("ij,jk,kl->il", (64, 512), (512, 64), (64, 512)))
    lines = text.splitlines()
    assert lines[:2] == ["ij,jk,kl->il", "plan of x0, x1, x2 -> z, on 4 sites (2x2), planned here"]
    assert any(line.split() == ["(1)", "ij,jk->ik", "x0,", "x1"] for line in lines)
    header = next(line for line in lines if line.startswith("step "))
    assert header.split() == ["step", "operation", "parts", "placement", "wire", "B", "time"]
    joinsum.init()


# --- graphs -----------------------------------------------------------------------------------------------------------


def attention() -> joinsum.Graph:
    """Softmax attention."""
    g = joinsum.Graph()
    q, k, v = (g.input(name, (6, 4), torch.float64) for name in "QKV")
    scores = g.einsum("id,jd->ij", q, k)
    total = g.einsum("ij->i", scores, agg="logsumexp")
    g.output(
        "out", g.einsum("ij,jd->id", g.einsum("ij->ij", g.einsum("ij,i->ij", scores, total, join="sub"), join="exp"), v)
    )
    g.output("best", g.einsum("ij->i", scores, agg="max"))
    return g


def test_a_graph_has_the_values_and_gradients_of_its_definition(sites: int) -> None:
    run = attention().plan()
    q, k, v = (torch.rand(6, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    wanted = {"out": torch.softmax(q @ k.T, 1) @ v, "best": (q @ k.T).amax(1)}
    got = run(Q=q, K=k, V=v)
    assert set(got) == {"out", "best"}
    for name, value in wanted.items():
        torch.testing.assert_close(got[name], value)
    slopes = torch.autograd.grad(sum(x.sin().sum() for x in got.values()), (q, k, v))
    for x, y in zip(slopes, torch.autograd.grad(sum(x.sin().sum() for x in wanted.values()), (q, k, v)), strict=True):
        torch.testing.assert_close(x, y)


def test_names_that_gradients_use_are_free(sites: int) -> None:
    g = joinsum.Graph()
    x, d = g.input("x0", (3, 3), torch.float64), g.input("d_Z", (3, 3), torch.float64)
    g.output("Z", g.einsum("ij,jk,k...->ik", x, d, d))
    run = g.plan()
    operands = [torch.rand(3, 3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(lambda x, d: run(x, d)["Z"], operands)
    assert torch.autograd.gradgradcheck(lambda x, d: run(x, d)["Z"], operands)


def test_outputs_without_gradient_stand_beside_those_with_one(sites: int) -> None:
    g = joinsum.Graph()
    x, n = g.input("X", (4, 3), torch.float64), g.input("N", (4,), torch.int64)
    g.output("Z", g.einsum("ij->j", x))
    g.output("count", g.einsum("i->", n))
    leaf = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    results = g.plan()(leaf, torch.arange(4))
    assert results["Z"].requires_grad
    assert not results["count"].requires_grad
    assert int(results["count"]) == 6
    results["Z"].sum().backward()
    assert torch.equal(leaf.grad, torch.ones(4, 3, dtype=torch.float64))


def test_what_einsum_converts_and_repeats_a_graph_does_too(sites: int) -> None:
    g = joinsum.Graph()
    n, thin, wide = g.input("n", (3, 2), torch.int32), g.input("thin", (2, 1)), g.input("wide", (3, 4))
    total, product = g.einsum("ij->i", n), g.einsum("ij,jk->ik", thin, wide)
    g.output("total", total)
    g.output("product", product)
    numbers, a, b = torch.arange(6, dtype=torch.int32).reshape(3, 2), torch.rand(2, 1), torch.rand(3, 4)
    results = g.plan()(n=numbers, thin=a, wide=b)
    for name, value, wanted in (
        ("total", total, torch.einsum("ij->i", numbers)),
        ("product", product, torch.einsum("ij,jk->ik", a, b)),
    ):
        assert (value.shape, value.dtype) == (wanted.shape, wanted.dtype)
        torch.testing.assert_close(results[name], wanted)


def test_a_graph_is_read_from_what_it_is_written_as() -> None:
    g = attention()
    again = joinsum.Graph.from_json(g.to_json())
    assert again == g
    assert joinsum.Graph.parse(g.text) == g
    more = again.outputs["best"]
    again.output("top", again.einsum("i->", more, agg="max"))
    q, k, v = (torch.rand(6, 4, dtype=torch.float64) for _ in range(3))
    torch.testing.assert_close(again.plan()(Q=q, K=k, V=v)["top"], (q @ k.T).max())


def test_graphs_are_explained() -> None:
    joinsum.init(sites=4)
    g = joinsum.Graph()
    g.output("Z", g.einsum("ij,jk->ik", g.input("X", (512, 512)), g.input("Y", (512, 512))))
    run = g.plan()
    explained = joinsum.explain(g)
    assert explained.found is not None
    assert explained.plan == run.plan
    assert joinsum.explain(run.graph).plan == run.plan
    shown = joinsum.explain(run, analyze=True, inputs={"X": torch.rand(512, 512), "Y": torch.rand(512, 512)})
    assert shown.program == run.program
    assert shown.comparisons[-1].predicted.wire_bytes == shown.comparisons[-1].measured.wire_bytes
    joinsum.init()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda g, x: g.input("X", (2,)), "an input of that name is there: name=X"),
        (lambda g, x: g.input("2", (2,)), "an identifier: name='2'"),
        (lambda g, x: g.einsum("ij,jk->ik", x, x), r"label=j, operand 0=3, operand 1=2\n  ij,jk->ik\n     \^"),
        (lambda g, x: g.einsum("ij->i", torch.ones(2, 3)), "values of this graph: operand 0=tensor"),
        (lambda g, x: joinsum.Graph().einsum("ij->i", x), "values of this graph: operand 0=<GraphValue X"),
        (lambda g, x: g.output("Z", 3), "an output is a value of this graph"),
        (lambda g, x: g.plan(), "no output yet"),
        (lambda g, x: g.einsum("ij->i", x, agg="mean"), "no such aggregation: agg='mean'"),
    ],
)
def test_what_a_graph_cannot_record_is_said(call: Any, said: str) -> None:
    g = joinsum.Graph()
    with pytest.raises(PlanError, match=said):
        call(g, g.input("X", (2, 3)))


@pytest.mark.parametrize(
    ("positional", "named", "said"),
    [
        (1, {}, "an input is not given: input=Y"),
        (3, {}, "too many inputs: given=3"),
        (2, {"X": torch.ones(2, 3)}, "given twice: input='X'"),
        (2, {"W": torch.ones(2, 3)}, "no such input: input='W'"),
        (0, {"X": torch.ones(2, 3), "Y": [1.0]}, "input=Y, given=list"),
    ],
)
def test_inputs_of_a_plan_are_checked(positional: int, named: dict[str, Any], said: str) -> None:
    g = joinsum.Graph()
    g.output("Z", g.einsum("ij,jk->ik", g.input("X", (2, 3)), g.input("Y", (3, 2))))
    tensors = [torch.ones(2, 3), torch.ones(3, 2), torch.ones(1)][:positional]
    with pytest.raises(PlanError, match=f"plan: .*{said}"):
        g.plan()(*tensors, **named)


def test_plans_inside_autocast_are_others(sites: int) -> None:
    plain = joinsum.einsum_plan("ij,jk->ik", (4, 6), (6, 5))
    x, y = torch.rand(4, 6), torch.rand(6, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        halved = joinsum.einsum_plan("ij,jk->ik", (4, 6), (6, 5))
        assert halved(x, y).dtype is torch.bfloat16
    assert plain(x, y).dtype is torch.float32


def test_a_copy_of_a_module_with_a_plan_runs_it_and_a_pickle_says_what_to_keep() -> None:
    joinsum.init(sites=2)
    run = joinsum.einsum_plan("ij,jk->ik", (2, 3), (3, 4), cache=False)
    module = torch.nn.Linear(3, 4)
    module.run = run
    x, y = torch.rand(2, 3), torch.rand(3, 4)
    assert torch.allclose(copy.deepcopy(module).run(x, y), x @ y)
    with pytest.raises(PlanError, match=r"is not pickled; pickle its graph"):
        pickle.dumps(run)
    loaded = pickle.loads(pickle.dumps(run.graph))
    assert loaded == run.graph == copy.deepcopy(run.graph)
    assert torch.allclose(loaded.plan()(x, y)["z"], x @ y)
