"""Expressions, positions, words as labels and new labels in planned einsums, graphs and torch's transforms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joinsum
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from joinsum import PlanError

SITES = [1, 2, 3]
F64 = torch.float64


@pytest.fixture(params=SITES)
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    joinsum.init(sites=request.param)
    yield request.param
    joinsum.init()


# --- planned einsums and graphs ---------------------------------------------------------------------------------------


def test_a_planned_einsum_takes_expressions_words_and_new_labels(sites: int) -> None:
    x, y = (torch.rand(*shape, dtype=F64, requires_grad=True) for shape in [(4, 3), (3, 5)])
    equation = "{row}j,j{out}->{row}{out}{copy}"
    run = joinsum.einsum_plan(equation, x, y, join="exp(x - y) * 2", extents={"copy": 2})
    wanted = (torch.exp(x[:, :, None] - y) * 2).sum(1)[:, :, None].expand(4, 5, 2)
    torch.testing.assert_close(run(x, y), wanted)
    weights = torch.rand(4, 5, 2, dtype=F64)
    slopes = [torch.autograd.grad(value, (x, y), weights) for value in (run(x, y), wanted)]
    torch.testing.assert_close(*slopes)


@pytest.mark.parametrize(
    "form",
    [
        lambda x, y: ("ij,jk->ik", x, y),
        lambda x, y: ("ij,jk->ik", [x, y]),
        lambda x, y: ("...j,jk->...k", x, y),
        lambda x, y: ("{row}j,j{out}->{row}{out}", x, y),
        lambda x, y: (x, [0, 1], y, [1, 2], [0, 2]),
        lambda x, y: (x, [0, 1], y, [1, 2]),
        lambda x, y: (x, ["row", "j"], y, ["j", "out"], ["row", "out"]),
        lambda x, y: (x, [..., 1], y, [1, 2], [..., 2]),
    ],
)
def test_plans_and_graphs_take_all_forms_of_einsum(sites: int, form: Any) -> None:
    x, y = torch.rand(4, 3), torch.rand(3, 5)
    for arguments in (form(x, y), form((4, 3), (3, 5))):
        torch.testing.assert_close(joinsum.einsum_plan(*arguments)(x, y), x @ y)
    g = joinsum.Graph()
    g.output("Z", g.einsum(*form(g.input("X", (4, 3)), g.input("Y", (3, 5)))))
    torch.testing.assert_close(g.plan()(X=x, Y=y)["Z"], x @ y)


def test_a_list_of_numbers_is_a_shape() -> None:
    joinsum.init()
    x = torch.rand(4, 3)
    torch.testing.assert_close(joinsum.einsum_plan("ij->i", [4, 3])(x), x.sum(1))
    assert joinsum.einsum_plan("->", ())(torch.tensor(2.0)) == 2.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "graph: give an equation and operands"),
        (("ij->i",), "graph: at least one operand"),
        (("ij->i", torch.ones(2, 2)), "graph: operands are values of this graph: operand 0=tensor"),
        (([0, 1],), "graph: give an equation and operands"),
        (((2, 2), "ij"), "graph: operands and lists of labels are given in turn: got='ij'"),
        (((2, 2), [0, 99]), "graph: a label of a list is text, 0 to 51, or ...: label=99"),
    ],
)
def test_what_a_graph_cannot_record_is_said(arguments: Any, said: str) -> None:
    with pytest.raises(PlanError) as caught:
        joinsum.Graph().einsum(*arguments)
    assert said in str(caught.value)


@pytest.mark.parametrize("agg", ["argmax", "argmin"])
def test_positions_are_no_arguments(sites: int, agg: str) -> None:
    find = {"argmax": torch.argmax, "argmin": torch.argmin}[agg]
    x = torch.randperm(35).reshape(5, 7).to(F64)
    run = joinsum.einsum_plan("{row}{column}->{row}", x, agg=agg)
    assert torch.equal(run(x), find(x, dim=1))
    assert "plan of x0 -> z, on" in repr(run)
    g = joinsum.Graph()
    value = g.input("X", (5, 7), F64)
    shift = g.input("shift", (7,), F64)
    g.output("first", g.einsum("ij->i", value, agg=agg))
    g.output("shifted", g.einsum("ij,j->i", value, shift, join="x + y", agg=agg))
    g.output("scaled", g.einsum("ij->ijk", value, join="x * 3", extents={"k": 2}))
    assert list(g.inputs) == ["X", "shift"]
    moved = torch.randperm(7).to(F64) * 100
    leaf = x.clone().requires_grad_()
    meant = g.interpret({"X": x, "shift": moved})
    assert torch.equal(meant["first"].long(), find(x, dim=1))
    for graph in (g, joinsum.Graph.from_json(g.to_json())):
        assert list(graph.inputs) == ["X", "shift"]
        results = graph.plan()(leaf, shift=moved)
        assert torch.equal(results["first"], find(x, dim=1))
        assert torch.equal(results["shifted"], find(x + moved, dim=1))
        assert torch.equal(results["scaled"], (x * 3)[:, :, None].expand(5, 7, 2))
        assert not results["first"].requires_grad
        (slope,) = torch.autograd.grad(results["scaled"].sum(), leaf)
        assert torch.equal(slope, torch.full_like(x, 6))
    with pytest.raises(PlanError, match=r"no such input: input='e1.positions', inputs=\['X', 'shift'\]"):
        g.plan()(x, moved, **{"e1.positions": torch.arange(7)})


def test_more_is_added_to_a_graph_that_has_positions() -> None:
    joinsum.init(sites=2)
    g = joinsum.Graph()
    g.output("first", g.einsum("ij->i", g.input("X", (5, 7), F64), agg="argmax"))
    again = joinsum.Graph.parse(g.text)
    again.output("all", again.einsum("ij->", again.inputs["X"], agg="argmin"))
    x = torch.randperm(35).reshape(5, 7).to(F64)
    results = again.plan()(x)
    assert torch.equal(results["first"], x.argmax(1))
    assert torch.equal(results["all"], x.argmin())
    joinsum.init()


def test_positions_of_repeated_axes_are_in_the_order_of_the_operands(sites: int) -> None:
    x, y = torch.tensor([[0.0, 10.0, 20.0]]), torch.tensor([[3.0, 1.0, 2.0], [6.0, 5.0, 4.0]])
    wanted = (x + y).argmax()
    assert torch.equal(joinsum.einsum("ij,ij->", x, y, join="add", agg="argmax"), wanted)
    g = joinsum.Graph()
    g.output("Z", g.einsum("ij,ij->", g.input("X", (1, 3)), g.input("Y", (2, 3)), join="add", agg="argmax"))
    assert torch.equal(g.plan()(x, y)["Z"], wanted)


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.float16, torch.int64])
def test_a_new_label_leaves_torchs_dtype(sites: int, dtype: torch.dtype) -> None:
    x = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    if dtype is torch.bool:
        got = joinsum.einsum("ij,ij->ik", x, x, agg="any", extents={"k": 2})
        assert torch.equal(got, x.any(1)[:, None].expand(2, 2))
        return
    wanted = torch.einsum("ij->i", x)
    for equation, extents in (("ij->ik", {"k": 2}), ("ij->i{new}", {"new": 2}), ("i{j}->{i}k", {"k": 2, "j": 3})):
        got = joinsum.einsum(equation, x, extents=extents)
        assert isinstance(got, torch.Tensor)
        assert got.dtype == wanted.dtype
        assert torch.equal(got, wanted[:, None].expand(2, 2))


# --- torch ------------------------------------------------------------------------------------------------------------


@given(
    words=st.lists(
        st.sampled_from(["a", "b", "Z", "row", "col", "x1", "Row.1", "_"]), min_size=3, max_size=3, unique=True
    ),
    implicit=st.booleans(),
    count=st.sampled_from(SITES),
)
@settings(max_examples=60, deadline=None)
def test_any_words_are_labels_on_any_sites(words: list[str], implicit: bool, count: int) -> None:
    joinsum.init(sites=count)
    left, mid, right = words
    x, y = torch.rand(2, 3, dtype=F64), torch.rand(3, 4, dtype=F64)
    result = sorted([left, right]) if implicit else [right, left]
    wanted = x @ y if result == [left, right] else (x @ y).T
    lists = (x, [left, mid], y, [mid, right])
    torch.testing.assert_close(joinsum.einsum(*lists, *([] if implicit else [result])), wanted)
    braced = f"{{{left}}}{{{mid}}},{{{mid}}}{{{right}}}" + ("" if implicit else f"->{{{right}}}{{{left}}}")
    torch.testing.assert_close(joinsum.einsum(braced, x, y), wanted)
    joinsum.init()


def test_what_is_no_label_is_refused_on_any_sites(sites: int) -> None:
    x = torch.rand(2, 3)
    for equation, said in (("{a b}j->j", "a label is letters, digits, _ and ."), ("{a", "a brace is not closed")):
        with pytest.raises(PlanError, match=said):
            joinsum.einsum(equation, x)
    with pytest.raises(PlanError, match="join is text such as 'mul': got=3"):
        joinsum.einsum("ij->i", x, join=3)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="einsum: extents of a label differ: label=j, operand 0=3, given=4"):
        joinsum.einsum("ij->i", x, extents={"j": 4})


def test_transforms_of_expressions_and_layers_are_torchs(sites: int) -> None:
    def ours(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scores = joinsum.einsum("{query}d,{key}d->{query}{key}", x, y, join="tanh(x) * y")
        assert isinstance(scores, torch.Tensor)
        return joinsum.nn.functional.softmax(scores, 1).square().sum()

    def torchs(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.tanh(x) @ y.T, 1).square().sum()

    x, y = torch.rand(5, 4, 3, dtype=F64), torch.rand(2, 3, dtype=F64)
    results = [
        (
            torch.func.vmap(torch.func.grad(f), in_dims=(0, None))(x, y),
            torch.func.hessian(f)(x[0], y),
            torch.func.jvp(f, (x[0], y), (x[1], y.cos())),
        )
        for f in (ours, torchs)
    ]
    torch.testing.assert_close(*results)


def test_positions_of_each_sample(sites: int) -> None:
    x = torch.randperm(60).reshape(5, 4, 3).to(F64)
    got = torch.func.vmap(lambda x: joinsum.einsum("ij->", x, agg="argmax"))(x)
    assert torch.equal(got, x.reshape(5, 12).argmax(1))
    out = torch.empty(5, 4, dtype=torch.int64)
    assert joinsum.einsum("bij->bi", x, agg="argmin", out=out) is out
    assert torch.equal(out, x.argmin(2))


def test_operands_that_an_expression_does_not_read_have_no_gradient(
    sites: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JOINSUM_PLAN_CACHE", "8")
    x, y = (torch.rand(4, 3, dtype=F64, requires_grad=True) for _ in range(2))
    wanted = y.detach().square()
    for origin in ("planned here", "cached in"):
        joinsum.init(sites=sites)
        run = joinsum.einsum_plan("ij,ij->ij", x, y, join="y * y")
        assert run.origin.startswith(origin)
        got = joinsum.einsum("ij,ij->ij", x, y, join="y * y")
        assert isinstance(got, torch.Tensor)
        assert torch.equal(got, wanted)
        slopes = torch.autograd.grad(got.sum(), (x, y), allow_unused=True)
        assert slopes[0] is None or not slopes[0].any()
        assert slopes[1] is not None
        torch.testing.assert_close(slopes[1], 2 * y.detach())
        unmoved = torch.func.jvp(lambda x, run=run: run(x, y.detach()), (x.detach(),), (torch.ones_like(x),))[1]
        assert not unmoved.any()
    joinsum.init()


def test_relations_take_expressions_and_words_but_no_positions() -> None:
    joinsum.init(sites=2)
    x = torch.rand(4, 6, dtype=F64)
    relation = joinsum.relation(x, parts=(2, 2), name="X")
    lazy = joinsum.einsum("{row}j,{other}j->{row}{other}", relation, relation, join="exp(x - y)")
    assert isinstance(lazy, joinsum.Relation)
    torch.testing.assert_close(lazy.to_tensor(), torch.exp(x[:, None] - x[None]).sum(2))
    with pytest.raises(PlanError, match=r"argmax is of tensors; give to_tensor\(\) of each relation"):
        joinsum.einsum("ij->i", relation, agg="argmax")
    joinsum.init()


def test_a_graph_multiplies_truth_values_as_einsum_does(sites: int) -> None:
    x, y = (torch.rand(3, 4) > 0.5 for _ in range(2))
    graph = joinsum.Graph()
    values = [graph.input(name, (3, 4), torch.bool) for name in ("X", "Y")]
    graph.output("Z", graph.einsum("ij,ij->ij", *values))
    assert graph.plan()(x, y)["Z"].equal(x & y)
