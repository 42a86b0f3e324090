"""What programs look like: which labels there are, what is a view, what is carried, and what the planner gets of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import joinsum
import pytest
import torch
from joinsum import _C
from joinsum.capture import Recorded, record
from joinsum.capture.interpret import interpret
from rounding import assert_rounded
from torch.fx.experimental.proxy_tensor import make_fx


def recorded(function: Callable[..., Any], *given: torch.Tensor, **options: Any) -> Recorded:
    return record(make_fx(function, tracing_mode="fake")(*given), **options)


def check(function: Callable[..., torch.Tensor], *given: torch.Tensor) -> Recorded:
    """The program, after its evaluation has been compared with torch's."""
    program = recorded(function, *given)
    torch.testing.assert_close(interpret(program, list(given), check=True)[0], function(*given))
    return program


def calls(program: Recorded) -> list[_C.Call]:
    return [vertex.call for vertex in program.vertices if vertex.call is not None]


def divisible(call: _C.Call) -> set[str]:
    """The letters of a call's result along which it may be divided."""
    return set(call.result) - set(call.undivided)


def test_views_need_no_vertices() -> None:
    x, w = torch.randn(2, 5, 12), torch.randn(12, 12)
    program = check(lambda x, w: (x.reshape(10, 12) @ w).view(2, 5, 3, 4).transpose(1, 2).squeeze(), x, w)
    assert [vertex.call for vertex in program.vertices] == [None]
    assert program.outputs[0].shape == (2, 3, 5, 4)


def test_a_later_reshape_splits_the_labels_of_inputs() -> None:
    x, w, b = torch.randn(5, 8), torch.randn(8, 12), torch.randn(12)
    program = check(lambda x, w, b: (x @ w + b).view(5, 3, 4), x, w, b)
    assert [each.axes for each in program.inputs] == [((5,), (8,)), ((8,), (3, 4)), ((3, 4),)]


def test_repeated_heads_are_not_copied() -> None:
    """Grouped-query attention: keys lack the label along which they repeat."""
    q, k = torch.randn(2, 6, 5, 4), torch.randn(2, 3, 5, 4)

    def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        k = k[:, :, None].expand(2, 3, 2, 5, 4).reshape(12, 5, 4)
        return torch.bmm(q.reshape(12, 5, 4), k.transpose(1, 2))

    (vertex,) = check(scores, q, k).vertices
    assert vertex.einsum is not None
    assert [len(labels) for labels in vertex.einsum.operands] == [5, 4]


@pytest.mark.parametrize("numbers", [[0.0, -0.0], [complex(1, 0.0), complex(1, -0.0)]])
def test_zeros_of_both_signs_are_not_one_element_that_repeats(numbers: list[complex]) -> None:
    program = recorded(lambda x: torch.where(x, torch.tensor(numbers), 2.0), torch.tensor([True, True]))
    assert any(constant.shape == (2,) for constant in program.constants.values())


def test_equal_elements_are_one_constant() -> None:
    given = torch.ones(2, dtype=torch.bool)
    program = recorded(lambda x: torch.where(x, torch.tensor([-0.0, -0.0]), 2.0), given)
    assert all(constant.shape == () for constant in program.constants.values())
    assert interpret(program, [given])[0].signbit().all()


def test_factors_that_do_not_nest_are_a_copy_in_which_they_are_undivided() -> None:
    x = torch.randn(2, 6, 4)
    program = check(lambda x: torch.tanh(x).view(2, 8, 3), x)
    call = calls(program)[-1]
    assert call.function == "aten::clone"
    assert len(divisible(call)) == 1


def test_halves_of_an_axis_are_one_undivided_label_and_one_that_may_be_divided() -> None:
    x = torch.randn(5, 8)
    program = check(lambda x: torch.cat([-x[:, 4:], x[:, :4]], -1), x)
    assert {call.function for call in calls(program)} == {"aten::select.int", "aten::stack"}
    assert all(len(divisible(call)) == 2 for call in calls(program))


def test_the_gradient_of_an_activation_is_not_repeated_inside_of_the_call() -> None:
    """ATen's gelu_backward refuses operands of several shapes."""
    x = torch.randn(2, 4, 4, 64)
    check(lambda x: torch.ops.aten.gelu_backward(x.sum((1, 2), keepdim=True).expand(2, 4, 4, 64), x), x)


def test_constants_are_stored_once_and_uniform_ones_repeat() -> None:
    x = torch.randn(5, 8)
    program = check(lambda x: torch.where(torch.ones(5, 8).tril() > 0, x, torch.full((5, 8), -1.0)), x)
    assert sorted(value.dim() for value in program.constants.values()) == [0, 2]


def test_chunks_without_elements_need_no_vertex() -> None:
    """As in rotary embeddings of all features of a head, where no others are left."""
    x = torch.randn(5, 8)
    program = check(lambda x: torch.cat([torch.exp(x), torch.exp(x[:, 8:]) * 2], -1), x)
    assert [call.function for call in calls(program)] == ["aten::exp"]
    check(lambda x: torch.cat([x, x[:, 8:].double()], -1), x)
    check(lambda x: x + torch.ops.aten.slice_backward(x[:, 8:], [5, 8], 1, 8, 8, 1), x)


def test_a_reduction_of_no_elements_is_refused() -> None:
    with pytest.raises(joinsum.CaptureError, match=r"a tensor has no elements: operator=aten::prod\.dim_int"):
        recorded(lambda x: x[:, 8:].exp().prod(1), torch.randn(5, 8))


def test_vertices_that_no_output_needs_are_left_out() -> None:
    def unused(x: torch.Tensor) -> torch.Tensor:
        torch.exp(x) @ x
        return x * 2

    assert len(recorded(unused, torch.randn(4, 4)).vertices) == 1


def test_a_write_into_an_input_is_an_output_tied_to_it() -> None:
    def step(w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        w.copy_(w - 0.5 * g)
        return w * 2

    w, g = torch.randn(3, 4), torch.randn(3, 4)
    program = recorded(step, w, g, names=["w", "g"])
    assert [(output.name, output.tied) for output in program.outputs] == [("w.new", "w"), ("output.0", None)]
    new, twice = interpret(program, [w, g])
    torch.testing.assert_close(new, w - 0.5 * g)
    torch.testing.assert_close(twice, 2 * new)


def test_symbolic_sizes_are_those_of_the_trace() -> None:
    x = torch.randn(5, 8)
    graph = make_fx(lambda x: x.sum(0) / x.shape[0], tracing_mode="symbolic")(x)
    torch.testing.assert_close(interpret(record(graph), [x])[0], x.mean(0))


def test_data_dependent_shapes_and_inner_writes_are_refused() -> None:
    x = torch.randn(5, 8)
    with pytest.raises(joinsum.CaptureError, match="only inputs are written to"):
        recorded(lambda x: (x * 2).copy_(x), x)


@pytest.mark.parametrize("sites", [1, 4])
def test_programs_of_einsums_alone_run_on_sites(sites: int) -> None:
    """Through the planner, as any graph of einsums."""
    joinsum.init(sites=sites)
    x, w, b = torch.randn(6, 8), torch.randn(8, 12), torch.randn(12)

    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (x @ w + b).view(6, 3, 4).sum(1) * 0.5

    program = recorded(function, x, w, b, names=["x", "w", "b"])
    planned = joinsum.Graph.of_core(program.graph()).plan(cache=False)
    inputs = zip(program.inputs, program.input_nodes, (x, w, b), strict=True)
    given = {each.name: value.reshape(node.extents) for each, node, value in inputs}
    (output,) = program.outputs
    torch.testing.assert_close(output.of(planned(**given)[output.name]), function(x, w, b))
    joinsum.init()


# --- the rewrite ------------------------------------------------------------------------------------------------------

PRODUCTS: dict[str, tuple[Callable[..., torch.Tensor], list[tuple[int, ...]]]] = {
    "linear": (torch.nn.functional.linear, [(2, 3, 4), (5, 4), (5,)]),
    "matmul of vectors": (torch.matmul, [(4,), (4,)]),
    "matrix times vector": (lambda a, b: a @ b, [(2, 3, 4), (4,)]),
    "batches that broadcast": (torch.matmul, [(2, 1, 3, 4), (5, 4, 6)]),
    "bmm": (torch.bmm, [(2, 3, 4), (2, 4, 5)]),
    "method": (lambda a, b: a.matmul(b), [(3, 4), (4, 5)]),
    "addmm": (lambda a, b, c: torch.addmm(a, b, c, beta=0.5, alpha=2.0), [(5,), (3, 4), (4, 5)]),
    "baddbmm": (lambda a, b, c: torch.baddbmm(a, b, c, alpha=0.5), [(1, 3, 5), (2, 3, 4), (2, 4, 5)]),
    "einsum": (lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c), [(2, 3), (3, 4), (4, 5)]),
    "a label summed alone": (lambda a, b: torch.einsum("ijm,jk->ik", a, b), [(2, 3, 2), (3, 4)]),
}


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_rewritten_product_is_that_of_torch_and_so_are_its_gradients(name: str, autocast: bool) -> None:
    from joinsum.capture.rewrite import rewrite

    function, shapes = PRODUCTS[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    counts: list[int] = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        counts.append(rewrite(gm))
        return gm.forward

    def run(*given: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return function(*given)

    ours, theirs = ([torch.randn(shape).requires_grad_() for shape in shapes] for _ in range(2))
    for a, b in zip(ours, theirs, strict=True):
        b.data.copy_(a.data)
    found, expected = torch.compile(run, backend=backend, fullgraph=True)(*ours), run(*theirs)
    dtype = torch.bfloat16 if autocast else torch.float32
    assert_rounded(found, expected, dtype, terms=8)
    seed = torch.rand_like(expected)
    mine, true = (torch.autograd.grad(z, xs, seed) for z, xs in ((found, ours), (expected, theirs)))
    assert_rounded(mine, true, dtype, terms=30)
    assert counts == [1]


def test_equations_that_the_operator_does_not_support_are_not_rewritten() -> None:
    from joinsum.capture.rewrite import rewrite

    counts: list[int] = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        counts.append(rewrite(gm))
        return gm.forward

    x = torch.randn(3, 3)
    compiled = torch.compile(lambda x: torch.einsum("...ij->...ji", x) + torch.einsum("ii->i", x), backend=backend)
    torch.testing.assert_close(compiled(x), x.T + x.diagonal())
    assert counts == [0]
