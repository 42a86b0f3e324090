"""Calls of torch's operators as data, and the check that what may be divided may be."""

from __future__ import annotations

from typing import Any

import joinsum
import pytest
import torch
from joinsum import _C
from joinsum.capture.interpret import check_shards, check_undecomposed

X = torch.arange(6.0).reshape(2, 3)


def softmax(**options: Any) -> _C.Call:
    arguments = [_C.CallArgument.operand(0, ["a", "b"]), _C.CallArgument(1), _C.CallArgument(False)]
    return _C.Call(
        function="aten::_softmax",
        operands=["ab"],
        results=[("f32", ["a", "b"])],
        arguments=arguments,
        **options,
    )


def test_a_call_of_data_is_the_one_that_its_text_says() -> None:
    values = [None, True, 3, 0.5, "mean", [_C.CallArgument(2), _C.CallArgument.offset("a")]]
    arguments = [_C.CallArgument(value) for value in values]
    arguments += [_C.CallArgument.extent("ab"), _C.CallArgument.dtype("f16").named("dtype")]
    call = _C.Call(
        output=1,
        function="aten::x.y",
        operands=["ab"],
        results=[("f32", ["a", ""]), ("i64", ["ac"])],
        arguments=[_C.CallArgument.operand(0, ["ba", ""]), *arguments],
        undivided="c",
        reduce={"b": "add"},
        extents={"c": 5},
        flops=[(8, "ab"), (2, "")],
    )
    assert str(call) == (
        "1; aten::x.y; ab -> a:f32, ac:i64; "
        "(%0{ba,1}, none, true, 3, 0.5, 'mean', [2, @a], |ab|, dtype=f16) -> {a,1}, {ac}; "
        "undivided=c; reduce b=add; extents c=5; flops=8.0 ab + 2.0"
    )
    assert str(_C.Call.parse(str(call))) == str(call)
    assert (call.output, call.function, call.operands, call.result) == (1, "aten::x.y", ["ab"], "ac")
    assert (call.undivided, call.same, call.reduce, call.undecomposed) == ("c", "", {"b": "add"}, None)
    assert call.extents([[2, 3]]) == {"a": 2, "b": 3, "c": 5}


def test_a_result_may_be_stored_in_another_order_than_that_of_its_axes() -> None:
    call = softmax(stored=["ba"])
    assert str(call) == "0; aten::_softmax; ab -> ba:f32; (%0{a,b}, 1, false) -> {a,b}"
    assert str(_C.Call.parse(str(call))) == str(call)
    assert torch.equal(call.run([X]), torch.softmax(X, 1).T)
    with pytest.raises(joinsum.PlanError, match=r"stored has letters for each result: stored=.*, results=1"):
        softmax(stored=["ba", "a"])
    with pytest.raises(joinsum.PlanError, match="a letter stands once in a tensor"):
        softmax(stored=["bb"])


def test_calls_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(joinsum.PlanError, match="a text has no quotes"):
        _C.Call(function="aten::x", operands=["a"], results=[("f32", ["a"])], arguments=[_C.CallArgument("it's")])
    with pytest.raises(joinsum.PlanError, match="letters are a-z and A-Z"):
        _C.Call(function="aten::x", operands=["é"], results=[("f32", ["é"])], arguments=[])
    with pytest.raises(joinsum.PlanError, match="no such dtype"):
        _C.Call(function="aten::x", operands=["a"], results=[("f31", ["a"])], arguments=[])


def test_a_call_runs_on_all_and_on_a_shard() -> None:
    call = softmax(undivided="b")
    torch.testing.assert_close(call.run([X]), X.softmax(1))
    torch.testing.assert_close(call.run([X], {"a": (1, 2)}), X[1:].softmax(1))


def test_a_node_is_an_input_an_einsum_or_a_call() -> None:
    x = _C.einsum_input("x", "f32", [2, 3])
    rows = _C.einsum_call([x], softmax(undivided="b"))
    total = _C.einsum_vertex([rows], [["i", "j"]], ["i"], _C.Kernel("id"), _C.Kernel("add"), {})
    assert (x.inputs, x.einsum, x.call) == ([], None, None)
    assert rows.inputs == [x]
    assert rows.call is not None
    assert rows.call.function == "aten::_softmax"
    assert total.einsum is not None
    assert (total.einsum.operands, total.einsum.result) == ([["i", "j"]], ["i"])
    assert (str(total.einsum.join), str(total.einsum.aggregate)) == ("id", "add")
    assert x != _C.einsum_input("x", "f32", [2, 3])
    assert {total.inputs[0]: 1} == {rows: 1}


def test_a_mixed_axis_that_is_not_declared_undivided_is_found() -> None:
    check_shards(softmax(undivided="b"), [X], X.softmax(1))
    with pytest.raises(AssertionError, match="on shards along"):
        check_shards(softmax(), [X], X.softmax(1))


def test_an_undecomposed_call_is_compared_and_stands_for_its_decomposition() -> None:
    call = _C.Call(
        function="aten::div.Tensor",
        operands=["ab", "ab", "a"],
        results=[("f32", ["a", "b"])],
        arguments=[_C.CallArgument.operand(1, ["a", "b"]), _C.CallArgument.operand(2, ["a", ""])],
        undecomposed=([0], softmax(undivided="b")),
    )
    operands = [X, X.exp(), X.exp().sum(1)]
    check_undecomposed(call, operands, call.run(operands))
    with pytest.raises(AssertionError, match="undecomposed"):
        check_undecomposed(call, operands, 2 * call.run(operands))
    nodes = [_C.einsum_input(f"x{i}", "f32", list(each.shape)) for i, each in enumerate(operands)]
    plan = _C.EinsumPlan.make([("z", _C.einsum_call(nodes, call))]).with_undecomposed_calls()
    assert plan == _C.EinsumPlan.make([("z", _C.einsum_call(nodes[:1], softmax(undivided="b")))])
