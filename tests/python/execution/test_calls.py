"""Calls of torch's operators on blocks: every way to divide them gives what torch gives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import joinsum
import pytest
import torch
from joinsum import _C
from joinsum.base.dtypes import dtype_name

NORM = (
    "{}; aten::native_layer_norm; abcd,cd,cd -> abcd:f64, ab:f64, ab:f64; (%0{{a,b,cd}}, [|cd|], %1{{cd}}, %2{{cd}}, "
    "1e-05) -> {{a,b,cd}}, {{a,b,1}}, {{a,b,1}}; undivided=cd; flops=8 abcd"
)
SOFTMAX = "0; aten::_softmax; abc -> abc:f64; (%0{a,b,c}, 2, false) -> {a,b,c}; undivided=c"
MERGED = "0; aten::tanh; abc -> cab:f64; (%0{b,ac}) -> {b,ac}"
ATTENTION = (
    "0; aten::_scaled_dot_product_flash_attention_for_cpu; bhqd,bhkd,bhkd -> bhqd:f64, bhq:f64; "
    "(%0{b,h,q,d}, %1{b,h,k,d}, %2{b,h,k,d}) -> {b,h,q,d}, {b,h,q}; undivided=kd; flops=4 bhqkd"
)
ARANGE = "0; aten::add.Tensor; a -> a:f64; (%0{a}, @a) -> {a}"
SUMMED = "0; aten::sum.dim_IntList; ab -> a:f64; (%0{a,b}, [1]) -> {a}; reduce b=add"
FIRST_ROWS = "0; aten::expand; b -> vb:f64; (%0{b}, [|v|, |b|]) -> {v,b}; extents v=4"
JOINED = "0; aten::cat; ab,cb -> db:f64; ([%0{a,b}, %1{c,b}], 0) -> {d,b}; undivided=ac; extents d=9"


def letters_of(call: str) -> list[str]:
    return [each.strip() for each in call.split(";")[2].split("->")[0].split(",")]


def divisions(call: str, grid: Sequence[int]) -> list[tuple[str, ...]]:
    """For each grid axis a letter that may be divided, or none."""
    undivided = call.split("undivided=")[1].split(";")[0] if "undivided=" in call else ""
    divisible = sorted(set("".join(letters_of(call))) - set(undivided))
    return list(itertools.product([*divisible, ""], repeat=len(grid)))


def run(call: str, tensors: Sequence[torch.Tensor], division: Sequence[str], sites: int) -> torch.Tensor:
    """The result of the call divided so, gathered."""
    current = joinsum.context()
    operands = letters_of(call)
    types = []
    for letters, tensor in zip(operands, tensors, strict=True):
        parts = [min(sites, extent) for extent in tensor.shape]
        cut = [axis for axis, count in enumerate(parts) if count > 1]
        keys = {letters[axis]: key for key, axis in enumerate(cut)}
        states = ", ".join(str(keys.get(letter, "*")) for letter in division)
        axes = ",".join(
            f"{extent}@{keys.get(letter, '-')}" for letter, extent in zip(letters, tensor.shape, strict=True)
        )
        frontier = ",".join(str(parts[axis]) for axis in cut)
        types.append(f"{dtype_name('test', tensor.dtype)}[{axes}]<{frontier}> ({states})")
    inputs = "\n".join(f"input x{i}: {type_}" for i, type_ in enumerate(types))
    names = ", ".join(f"x{i}" for i in range(len(types)))
    plan = _C.IaPlan.parse(
        f"ia on {current.grid}\n{inputs}\nt0 = local_call[{call}]({names})\noutput z = broadcast(t0)\n", {}
    )
    wanted = dict(plan.inputs)
    placed = {
        f"x{i}": _C.place_tensor(tensor, wanted[f"x{i}"], current.local_sites, current.store, False)
        for i, tensor in enumerate(tensors)
    }
    return current.execute(plan, placed, {})["z"].whole_tensor(current.store)


def cases() -> dict[str, tuple[str, list[torch.Tensor], torch.Tensor]]:
    torch.manual_seed(0)

    def rand(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64)

    x, w, b = rand(5, 3, 2, 4), rand(2, 4), rand(2, 4)
    norm = torch.native_layer_norm(x.reshape(5, 3, 8), [8], w.reshape(8), b.reshape(8), 1e-5)
    y, q, k, v = rand(3, 4, 5), rand(2, 4, 3, 8), rand(2, 4, 6, 8), rand(2, 4, 6, 8)
    attended = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    line, table = rand(7), rand(5, 6)
    first, second = rand(4, 3), rand(5, 3)
    return {
        "layer norm": (NORM.format(0), [x, w, b], norm[0].reshape(x.shape)),
        "mean of a layer norm": (NORM.format(1), [x, w, b], norm[1].reshape(5, 3)),
        "softmax": (SOFTMAX, [y], torch.softmax(y, 2)),
        "merged and permuted axes": (MERGED, [y], torch.tanh(y).permute(2, 0, 1)),
        "attention": (ATTENTION, [q, k, v], attended),
        "offsets": (SUMMED, [table], table.sum(1)),
        "a new letter": (FIRST_ROWS, [line], line.expand(4, 7)),
        "a list of operands": (JOINED, [first, second], torch.cat([first, second])),
    }


@pytest.mark.parametrize("sites", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("name", list(cases()))
def test_every_division_gives_what_torch_gives(name: str, sites: int) -> None:
    call, tensors, expected = cases()[name]
    current = joinsum.init(sites=sites)
    for division in divisions(call, current.grid.axes):
        result = run(call, tensors, division, sites)
        torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-10, msg=lambda m, d=division: f"{d}: {m}")


@pytest.mark.parametrize("sites", [1, 3, 4])
def test_an_offset_is_the_first_index_of_the_part(sites: int) -> None:
    current = joinsum.init(sites=sites)
    x = torch.zeros(7, dtype=torch.float64)
    parts = min(7, sites)
    for division in divisions(ARANGE, current.grid.axes):
        result = run(ARANGE, [x], division, sites)
        if all(letter == "a" for letter in division):
            begins = [-(-part * 7 // parts) for part in range(parts + 1)]
            expected = [float(begin) for begin, end in itertools.pairwise(begins) for _ in range(end - begin)]
            assert result.tolist() == expected


@pytest.mark.parametrize("sites", [2, 4])
def test_results_of_one_call_are_computed_once(sites: int) -> None:
    current = joinsum.init(sites=sites)
    x, w, b = torch.randn(4, 4, 2, 4, dtype=torch.float64), torch.ones(2, 4, dtype=torch.float64), torch.zeros(2, 4)
    b = b.double()
    types = ["f64[4@0,4@1,2@-,4@-]<4,4> " + "(0" + ", *" * (len(current.grid.axes) - 1) + ")"]
    types += ["f64[2@-,4@-]<> (" + ", ".join("*" * len(current.grid.axes)) + ")"] * 2
    inputs = "\n".join(f"input x{i}: {type_}" for i, type_ in enumerate(types))
    calls = "\n".join(f"t{k} = local_call[{NORM.format(k)}](x0, x1, x2)" for k in range(3))
    outputs = "\n".join(f"output z{k} = broadcast(t{k})" for k in range(3))
    plan = _C.IaPlan.parse(f"ia on {current.grid}\n{inputs}\n{calls}\n{outputs}\n", {})
    wanted = dict(plan.inputs)
    placed = {
        name: _C.place_tensor(value, wanted[name], current.local_sites, current.store, False)
        for name, value in {"x0": x, "x1": w, "x2": b}.items()
    }
    results = current.execute(plan, placed, {})
    expected = torch.native_layer_norm(x.reshape(4, 4, 8), [8], w.reshape(8), b.reshape(8), 1e-5)
    for k in range(3):
        whole = results[f"z{k}"].whole_tensor(current.store)
        torch.testing.assert_close(whole, expected[k].reshape(whole.shape))
    flops = [node.flops for node in current.last_trace if "local_call" in node.operation]
    assert sorted(flops) == [0, 0, math.prod(x.shape) * 8]
    predicted = joinsum.cost(joinsum.IaPlan(plan))
    priced = [node.flops for node in predicted.nodes if "local_call" in node.operation]
    assert priced == [math.prod(x.shape) * 8 // 2, 0, 0]
    assert predicted.flops == sum(node.flops for node in predicted.nodes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("0; aten::no_such; a -> a:f64; (%0{a}) -> {a}", "torch has no such operator: operator=aten::no_such"),
        ("0; aten::tanh; a -> a:f32; (%0{a}) -> {a}", "a result has another dtype: dtype=Double, expected=f32"),
        ("0; aten::unsqueeze; a -> a:f64; (%0{a}, 0) -> {a}", r"a result has another shape: shape=\[1, 4\]"),
        ("0; aten::tanh; a -> a:f64; (%0{a}, 3) -> {a}", "arguments that the operator does not take"),
        ("0; aten::softmax.int; a -> a:f64; (%0{a}) -> {a}", "an argument is missing: argument=dim"),
        ("0; aten::sum.dim_IntList; a -> a:f64; (%0{a}, 'x') -> {a}", "."),
        ("0; aten::view; a -> a:f64; (%0{a}, [3]) -> {a}", "torch's operator fails: operator=aten::view"),
    ],
)
def test_what_torch_does_not_do_raises_and_names_the_operator(call: str, message: str) -> None:
    joinsum.init(sites=1)
    with pytest.raises(joinsum.KernelError, match=message):
        run(call, [torch.zeros(4, dtype=torch.float64)], (), 1)


def test_calls_have_no_gradient_and_no_reference() -> None:
    joinsum.init(sites=2)
    x = _C.einsum_input("x", "f64", [3, 4, 5])
    graph = _C.EinsumPlan.make([("z", _C.einsum_call([x], _C.Call.parse(SOFTMAX)))])
    with pytest.raises(joinsum.PlanError, match="a call of a torch operator has no gradient here"):
        graph.gradient(["x"])
    with pytest.raises(joinsum.PlanError, match="has no reference here"):
        joinsum.Graph.of_core(graph).interpret({"x": torch.zeros(3, 4, 5, dtype=torch.float64)})
