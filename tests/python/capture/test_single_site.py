"""On one site torch runs captured graphs itself: the same numbers, with joinsum's random operators, in place."""

from __future__ import annotations

import weakref

import joinsum
import pytest
import torch
from joinsum.capture.captured_graph import CapturedGraph
from joinsum.capture.decompositions.random_nodes import with_random_operators
from joinsum.capture.executable import compile_fx
from joinsum.capture.in_place import add_products, merge_updates, overwrite_operands
from joinsum.capture.interpret import interpret
from joinsum.capture.operators.table import random_rule_of
from joinsum.capture.record import record
from joinsum.capture.single_site import SingleSiteExecutable
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode


def traced(function, *tensors):
    return make_fx(function, tracing_mode="fake")(*tensors)


def changed(function, *tensors, inputs=()):
    """The graph's result before and after operands are overwritten, and how many are."""
    gm = traced(function, *tensors)
    before = gm(*[x.clone() for x in tensors])
    count = overwrite_operands(gm.graph, inputs)
    gm.recompile()
    given = [x.clone() for x in tensors]
    after = gm(*given)
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    for position, (x, y) in enumerate(zip(tensors, given, strict=True)):
        assert position in inputs or torch.equal(x, y), "an input was overwritten"
    return count


X, Y = torch.rand(3, 4), torch.rand(3, 4)


def test_an_intermediate_value_that_nobody_reads_again_is_overwritten():
    assert changed(lambda x: torch.exp(x * 2 + 1), X) == 2


def test_a_value_that_is_read_later_is_not_overwritten():
    assert changed(lambda x: torch.exp(y := x * 2) + y, X) == 1


def test_a_value_whose_view_is_read_later_is_not_overwritten():
    assert changed(lambda x: ((y := x * 2).t(), torch.exp(y)), X) == 0


def test_a_returned_value_is_not_overwritten():
    assert changed(lambda x: ((y := x * 2), torch.exp(y)), X) == 0


def test_operands_of_another_shape_or_dtype_are_not_overwritten():
    assert changed(lambda x: (x.sum(0) * 2) + x, X) == 1
    assert changed(lambda x: (x * 2) > 1, X) == 0


def test_a_square_overwrites_and_a_product_with_a_view_of_itself_does_not():
    assert changed(lambda x: (y := x + 1) * y, X) == 1
    assert changed(lambda x: (y := x + 1) * y.t(), torch.rand(3, 3)) == 0


def test_only_inputs_that_may_be_are_overwritten():
    assert changed(lambda x, y: (x + y) * 2, X, Y) == 1
    assert changed(lambda x, y: (x + y) * 2, X, Y, inputs=[0]) == 2
    assert changed(lambda x, y: (x + y, x), X, Y, inputs=[0]) == 0


def adam(p, g, mean, square, *numbers):
    return torch.ops.joinsum.adam_update(p, g, mean, square, *numbers, True, False)


ADAM = [torch.rand(3, 4) for _ in range(4)], [torch.tensor(x) for x in (0.1, 0.1, 0.01, 1e-3, 0.2, 3.0)]


def test_an_update_overwrites_the_parameter_and_its_state():
    state, numbers = ADAM
    assert changed(adam, *state, *numbers, inputs=[0, 2, 3]) == 1
    assert changed(adam, *state, *numbers, inputs=[0, 1, 2]) == 0
    assert changed(lambda p, *rest: (*adam(p, *rest), p), *state, *numbers, inputs=[0, 2, 3]) == 0


def test_an_update_whose_operands_share_memory_overwrites_none():
    state, numbers = ADAM
    assert changed(lambda p, g, mean, *rest: adam(p, g, mean, mean, *rest), *state[:3], *numbers, inputs=[0, 2]) == 0


def merged(function, *tensors, inputs):
    """How many updates are one operator in the graph, whose results, and what it overwrites, are as before."""
    gm = traced(function, *tensors)
    overwrite_operands(gm.graph, inputs)
    gm.recompile()
    given, again = ([x.clone() for x in tensors] for _ in range(2))
    before = gm(*given)
    count = merge_updates(gm.graph, inputs)
    gm.graph.lint()
    gm.recompile()
    torch.testing.assert_close(gm(*again), before, rtol=0, atol=0)
    torch.testing.assert_close(again, given, rtol=0, atol=0)
    return count


def two_steps(p, q, g, *rest):
    """Adam's updates of two parameters with one gradient."""
    state, numbers = rest[:4], rest[4:]
    return *adam(p, g * 2, *state[:2], *numbers), *adam(q, g * 3, *state[2:], *numbers)


def test_updates_with_the_same_numbers_are_one_operator():
    state, numbers = [torch.rand(3, 4) for _ in range(7)], ADAM[1]
    assert merged(two_steps, *state, *numbers, inputs=[0, 1, 3, 4, 5, 6]) == 2
    # One of the two does not write over its operands.
    assert merged(two_steps, *state, *numbers, inputs=[0, 3, 4, 5, 6]) == 0


def test_an_update_is_not_put_off_beyond_a_reader_of_its_results():
    def step(p, q, g, *rest):
        first = adam(p, g * 2, *rest[:2], *rest[4:])
        return *first, *adam(q, g * first[0], *rest[2:])

    state, numbers = [torch.rand(3, 4) for _ in range(7)], ADAM[1]
    assert merged(step, *state, *numbers, inputs=[0, 1, 3, 4, 5, 6]) == 0


def test_updates_with_other_numbers_or_large_gradients_stay_apart():
    def with_two_rates(p, q, g, *rest):
        state, numbers = rest[:4], rest[4:]
        other = numbers[0] * 2
        return *adam(p, g * 2, *state[:2], *numbers), *adam(q, g * 3, *state[2:], other, *numbers[1:])

    state, numbers = [torch.rand(3, 4) for _ in range(7)], ADAM[1]
    assert merged(with_two_rates, *state, *numbers, inputs=[0, 1, 3, 4, 5, 6]) == 0
    large = [torch.rand(600, 512) for _ in range(7)]
    assert merged(two_steps, *large, *numbers, inputs=[0, 1, 3, 4, 5, 6]) == 0


def with_added_products(step, *tensors, inputs):
    """The graph after products are added to inputs, which computes what it did before."""
    gm = traced(step, *tensors)
    before = gm(*[x.clone() for x in tensors])
    add_products(gm.graph, inputs)
    overwrite_operands(gm.graph, inputs)
    gm.graph.lint()
    gm.recompile()
    torch.testing.assert_close(gm(*[x.clone() for x in tensors]), before)
    return gm.graph


def targets(graph):
    """The overload packets that a graph calls, in order."""
    return [node.target.overloadpacket for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload)]


ATEN = torch.ops.aten
W, A, B, RATE = torch.rand(3, 4), torch.rand(5, 3), torch.rand(5, 4), torch.tensor(-0.1)


@pytest.mark.parametrize(
    "step",
    [
        lambda w, a, b, rate: torch.addcmul(w, a.t() @ b, rate),
        lambda w, a, b, rate: torch.addcmul(w, (b.t() @ a).t(), rate),
        lambda w, a, b, rate: torch.addcmul(w, (a.t() @ b).t().t(), rate),
    ],
)
def test_a_product_that_sgd_alone_reads_is_added_to_the_weight(step):
    called = targets(with_added_products(step, W, A, B, RATE, inputs=[0]))
    assert ATEN.addmm_ in called
    assert ATEN.mm not in called
    assert ATEN.addcmul not in called


@pytest.mark.parametrize(
    ("step", "inputs"),
    [
        (lambda w, a, b, rate: torch.addcmul(w, a.t() @ b, rate), [1]),
        (lambda w, a, b, rate: (torch.addcmul(w, g := a.t() @ b, rate), g), [0]),
        (lambda w, a, b, rate: (torch.addcmul(w, (g := a.t() @ b).t().t(), rate), g.sum()), [0]),
        (lambda w, a, b, rate: torch.addcmul(w, a.t() @ b, rate, value=2), [0]),
        (lambda w, a, b, rate: torch.addcmul(w, a.t() @ b, rate * torch.ones(4)), [0]),
        (lambda w, a, b, rate: torch.addcmul(w * 2, a.t() @ b, rate), [0]),
    ],
)
def test_other_sums_keep_their_product(step, inputs):
    called = targets(with_added_products(step, W, A, B, RATE, inputs=inputs))
    assert ATEN.mm in called


def test_a_product_is_added_once_the_weight_is_read_no_more_and_before_other_work():
    def step(w, a, b, rate):
        gradient = a.t() @ b
        read = (b @ w.t()).exp()  # by a view
        return torch.addcmul(w, gradient, rate), read.sin()

    called = targets(with_added_products(step, W, A, B, RATE, inputs=[0]))
    readers = [i for i, each in enumerate(called) if each in (ATEN.mm, ATEN.exp_)]
    assert readers[0] < called.index(ATEN.addmm_) < readers[1]


def test_products_that_read_each_others_weights_are_stored():
    def step(w, v, x, y, rate):  # of (x @ w) @ v, whose gradients read the other weight
        return torch.addcmul(w, x.t() @ (y @ v.t()), rate), torch.addcmul(v, w.t() @ (x.t() @ y), rate)

    tensors = torch.rand(4, 2), torch.rand(2, 4), torch.rand(5, 4), torch.rand(5, 4), RATE
    called = targets(with_added_products(step, *tensors, inputs=[0, 1]))
    assert (called.count(ATEN.addmm_), called.count(ATEN.addcmul_)) == (1, 1)


def test_a_product_is_added_only_after_assertions_have_held():
    def step(w, a, b, rate):
        gradient = a.t() @ b
        return torch.addcmul(w, gradient, rate), torch.ops.joinsum.checked((b > 0).all(), "a value is negative")

    called = targets(with_added_products(step, W, A, B, RATE, inputs=[0]))
    assert called.index(torch.ops.joinsum.checked) < called.index(ATEN.addmm_)


def test_a_weight_that_the_graph_returns_as_it_was_stays():
    graph = with_added_products(lambda w, a, b, rate: (torch.addcmul(w, a.t() @ b, rate), w), W, A, B, RATE, inputs=[0])
    assert ATEN.addmm in targets(graph)


def test_steps_of_sgd_that_store_no_gradient_train_as_torch_does():
    joinsum.init(sites=1)
    torch.manual_seed(0)
    plain, stepped = (nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4, bias=False)) for _ in range(2))
    stepped.load_state_dict(plain.state_dict())
    one, other = (torch.optim.SGD(m.parameters(), lr=0.3) for m in (plain, stepped))
    step = joinsum.train_step(stepped, nn.functional.cross_entropy, other)
    for _ in range(4):
        x, y = torch.rand(7, 6), torch.randint(4, (7,))
        one.zero_grad()
        nn.functional.cross_entropy(plain(x), y).backward()
        one.step()
        step(x, y)
        other.param_groups[0]["lr"] *= 0.5
        one.param_groups[0]["lr"] *= 0.5
    step.sync()
    for wanted, found in zip(plain.parameters(), stepped.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_each_draw_has_the_numbers_of_recording():
    def draws(x):
        # As AOTAutograd writes torch.nn.functional.dropout.
        dropped, _ = torch.native_dropout(x, 0.5, True)
        return torch.rand_like(x), dropped, torch.randn(3), torch.randint(2, 9, (5,))

    gm = traced(draws, X)
    recorded = record(gm)
    truth = interpret(recorded, [X], seed=7)
    gm.graph, seed = with_random_operators(gm.graph, random_rule_of)
    assert seed is not None
    for result, expected in zip(gm(X, torch.tensor(7)), truth, strict=True):
        assert torch.equal(result, expected)


def test_dropout_has_the_mask_of_more_sites():
    class Dropped(nn.Module):
        def forward(self, x):
            return nn.functional.dropout(x, 0.5) + torch.rand_like(x)

    x = torch.rand(8, 6)
    result = []
    for sites in (1, 4):
        joinsum.init(sites=sites)
        torch._dynamo.reset()
        torch.manual_seed(3)
        result.append(torch.compile(Dropped(), backend="joinsum", fullgraph=True)(x))
    torch.testing.assert_close(result[0], result[1])


def test_a_step_overwrites_its_own_state_and_no_tensor_of_the_users():
    joinsum.init(sites=1)
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    kept = model.weight.detach()  # the user's own memory
    before = kept.clone()
    step = joinsum.train_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    x, y = torch.rand(5, 4), torch.rand(5, 3)
    step(x, y)
    assert torch.equal(kept, before)
    first = model.weight.blocks()[0].data_ptr()
    step(x, y)
    assert model.weight.blocks()[0].data_ptr() == first
    step.sync()
    assert not torch.equal(model.weight, before)


@pytest.mark.parametrize("sites", [1, 2])
def test_what_shares_a_parameters_memory_sees_its_updates_as_in_torch(sites):
    joinsum.init(sites=sites)
    model = nn.Linear(4, 3)
    step = joinsum.train_step(model, nn.functional.mse_loss, torch.optim.AdamW(model.parameters(), lr=0.1))
    x, y = torch.rand(5, 4), torch.rand(5, 3)
    step(x, y)
    parameter, shared = model.weight, model.weight.detach()
    before = shared.clone()
    step(x, y)
    assert model.weight is parameter
    assert torch.equal(shared.full_tensor(), parameter.full_tensor())
    assert not torch.equal(before.full_tensor(), parameter.full_tensor())


def test_two_inputs_of_one_memory_are_not_overwritten():
    joinsum.init(sites=1)
    gm = traced(lambda x, y: (x + 1, y * 2), X, Y)
    shared = joinsum.DistributedTensor.of(X)
    run = SingleSiteExecutable(CapturedGraph(gm, [X, Y], ties={0: 0}, stay=[0]), lambda: None)
    first, second = run([shared, shared.blocks()[0]])
    assert torch.equal(first.full_tensor(), X + 1)
    assert torch.equal(second, X * 2)


def test_an_operator_without_a_rule_is_refused_as_on_more_sites():
    joinsum.init(sites=1)
    run = torch.compile(lambda x: torch.special.bessel_j0(x) + 1, backend="joinsum", fullgraph=True)
    with pytest.raises(Exception, match="there is no rule for this operator: operator=aten::special_bessel_j0"):
        run(torch.eye(3))


def test_a_graph_of_other_sites_is_refused():
    joinsum.init(sites=1)
    run = SingleSiteExecutable(CapturedGraph(traced(lambda x: x + 1, X), [X]), lambda: None)
    joinsum.init(sites=2)
    with pytest.raises(joinsum.PlanError, match="compile again"):
        run([X])


def test_a_value_that_only_the_list_of_inputs_holds_is_freed_once_it_is_read():
    joinsum.init(sites=1)
    alive = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if func.namespace == "aten":
                alive.append([each() is not None for each in seen])
            return result

    given = [torch.rand(3), torch.rand(3), torch.rand(3)]
    graph = traced(lambda x, y, unread: (torch.cumsum(torch.cat([torch.cumsum(x, 0), y]), 0),), *given)
    run = compile_fx(CapturedGraph(graph, given))
    wanted = torch.cumsum(torch.cat([torch.cumsum(given[0], 0), given[1]]), 0)
    seen = [weakref.ref(x) for x in given]
    with Watch():
        (result,) = run(given)
    assert given == []
    assert torch.equal(result, wanted)
    # While the first sums, the concatenation and the second sums run.
    assert alive == [[True, True, False], [False, True, False], [False, False, False]]
    joinsum.init()
