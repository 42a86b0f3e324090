"""Programs of elementwise operators in captured graphs against the graphs as they were."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import joinsum
import pytest
import torch
from joinsum.capture.fusion import FUSED, fuse_elementwise
from joinsum.capture.in_place import overwrite_operands
from joinsum.capture.interpret import interpret
from joinsum.capture.record import record_with_template
from joinsum.capture.views import merge_views
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

_FUSED_ = torch.ops.joinsum.fused_.default


def _traced(function: Callable[..., Any], *operands: torch.Tensor) -> fx.GraphModule:
    traced = make_fx(function, tracing_mode="fake")(*operands)
    merge_views(traced.graph)
    return traced


def _programs(graph: fx.Graph) -> list[str]:
    return [str(node.args[1]) for node in graph.nodes if node.target in (FUSED, _FUSED_)]


def _results(traced: fx.GraphModule, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    traced.graph.lint()
    traced.recompile()
    return list(traced(*(x.clone() for x in operands)))


def _check(function: Callable[..., Any], operands: Sequence[torch.Tensor], inputs: Sequence[int] = ()) -> fx.Graph:
    """Compares a function's graph before and after, also where results overwrite operands."""
    traced = _traced(function, *operands)
    expected = _results(traced, operands)
    fuse_elementwise(traced.graph)
    fused = _results(traced, operands)
    overwrite_operands(traced.graph, inputs)
    overwritten = _results(traced, operands)
    for each in (fused, overwritten):
        for actual, wanted in zip(each, expected, strict=True):
            assert actual.dtype is wanted.dtype
            assert actual.stride() == wanted.stride()
            scale = float(wanted.double().abs().nan_to_num(posinf=0).sum() / max(1, wanted.numel()))
            torch.testing.assert_close(actual, wanted, rtol=1e-5, atol=1e-5 * scale, equal_nan=True)
    return traced.graph


def test_results_that_others_read_are_stored() -> None:
    x, w = torch.randn(64, 96), torch.randn(96, 96)

    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        shifted = torch.tanh(x) * 2
        return shifted @ w, torch.exp(shifted) + x, shifted

    graph = _check(function, (x, w))
    # The product stands before the exponential, which reads what the first program stores.
    assert _programs(graph) == ["tanh x0; mul t0 2.0 -> t1", "exp x0; add t0 x1 -> t1"]


def test_one_pass_for_operands_that_broadcast_and_for_sums() -> None:
    x, row, column = torch.randn(70, 90), torch.randn(90), torch.randn(70, 1)

    def function(x: torch.Tensor, row: torch.Tensor, column: torch.Tensor) -> Any:
        y = (x * row + column).sigmoid()
        return y, y.mean(), (y - x).square().sum(), y > 0.5

    graph = _check(function, (x, row, column))
    assert len(_programs(graph)) == 1
    assert [node for node in graph.nodes if node.target is torch.ops.aten.sum.default] == []


def test_what_takes_little_is_computed_again_in_the_backward_pass() -> None:
    x, w = torch.randn(64, 128), torch.randn(128, 128)

    def step(x: torch.Tensor, w: torch.Tensor) -> Any:
        with torch.enable_grad():
            w = w.detach().requires_grad_()
            hidden = x @ w
            y = torch.relu(hidden * 2 + 1) * (hidden + 3)
            loss = (y @ w).sum()
        return loss, torch.autograd.grad(loss, [w])[0]

    graph = _check(step, (x, w))
    stored = sum(len(node.meta["val"]) for node in graph.nodes if node.target in (FUSED, _FUSED_))
    assert stored == 2  # y, and the gradient by what it is of


def test_exponentials_of_tanh_and_powers_are_stored() -> None:
    x, w = torch.randn(64, 128), torch.randn(128, 128)

    def step(x: torch.Tensor, w: torch.Tensor) -> Any:
        with torch.enable_grad():
            w = w.detach().requires_grad_()
            loss = ((torch.tanh(x @ w) * 2) @ w).sum()
        return loss, torch.autograd.grad(loss, [w])[0]

    graph = _check(step, (x, w))
    assert sum("tanh" in each for each in _programs(graph)) == 1


def test_results_overwrite_what_nobody_reads_later() -> None:
    x, w = torch.randn(80, 80), torch.randn(80, 80)

    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        product = x @ w
        return (torch.exp(product) + x * 2,)

    graph = _check(function, (x, w))
    (node,) = [node for node in graph.nodes if node.target is _FUSED_]
    assert node.args[2] == [0]
    assert len(node.users) == 0


def test_parameters_and_moments_are_updated_in_their_memory() -> None:
    p, m, g = torch.randn(70, 70), torch.randn(70, 70), torch.randn(70, 70)

    def update(p: torch.Tensor, m: torch.Tensor, g: torch.Tensor) -> Any:
        new = m * 0.9 + g
        return p - new * 0.1, new

    graph = _check(update, (p, m, g), inputs=[0, 1])
    (node,) = [node for node in graph.nodes if node.target is _FUSED_]
    assert len(node.users) == 0
    assert {each.name for each in graph.output_node().args[0]} == {"p_1", "m_1"}


def test_an_operand_is_not_overwritten_while_a_view_of_it_is_read() -> None:
    x = torch.randn(80, 80)

    def function(x: torch.Tensor) -> Any:
        y = x @ x
        return (y * 2 + y.t(),)

    graph = _check(function, (x,))
    assert not any(node.target is _FUSED_ for node in graph.nodes)


@pytest.mark.parametrize("shape", [(), (1,), (0, 4), (3, 1, 5)])
def test_small_shapes(shape: tuple[int, ...]) -> None:
    x, y = torch.randn(shape), torch.randn(shape)
    _check(lambda x, y: (torch.exp(x * y + 1) * x, (x - y).abs().mean(), (x * x + y).sum()), (x, y))


def test_images_with_channels_last() -> None:
    x = torch.randn(4, 8, 24, 24).contiguous(memory_format=torch.channels_last)
    bias, other = torch.randn(8, 1, 1), torch.randn(4, 8, 24, 24)
    graph = _check(lambda x, bias, other: (torch.relu(x + bias) * 2 + x, other * 2 + 1), (x, bias, other))
    assert len(_programs(graph)) == 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64, torch.int64])
def test_other_dtypes(dtype: torch.dtype) -> None:
    x = torch.arange(5000).to(dtype)
    traced = _traced(lambda x: ((x * 2 + 1) * x,), x)
    expected = _results(traced, [x])
    assert (fuse_elementwise(traced.graph) > 0) is (dtype is torch.float64)
    assert torch.equal(_results(traced, [x])[0], expected[0])


def test_numbers_of_other_dtypes_beside_tensors() -> None:
    x, one = torch.randn(5000), torch.tensor(0.1, dtype=torch.float64)
    _check(lambda x, one: ((x * one + 1) * x, torch.where(x > one, x, one.float())), (x, one))


def test_constants_are_numbers() -> None:
    x = torch.randn(100, 100)
    graph = _check(lambda x: ((x + torch.ones_like(x)) * torch.full((1,), 2.0).expand(100, 100),), (x,))
    assert _programs(graph) == ["add x0 1.0; mul t0 2.0 -> t1"]


_UNARY = [torch.tanh, torch.exp, torch.sigmoid, torch.relu, torch.neg, torch.sin, torch.abs, torch.nn.functional.gelu]
_BINARY = [torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum]


def _random_function(seed: int) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    rows, columns = draw.choice([1, 7, 64, 90]), draw.choice([5, 64, 80])
    shapes = [(rows, columns), (rows, columns), (columns,), (rows, 1), (columns, columns), ()]
    dtype = draw.choice([torch.float32, torch.float64])
    operands = [torch.randn(shape, dtype=dtype) * 0.5 for shape in shapes]
    plan = [(draw.random(), draw.random(), draw.random(), draw.randrange(1000)) for _ in range(draw.randint(4, 25))]

    def forward(*given: torch.Tensor) -> list[torch.Tensor]:
        known = [*given[:4], given[5]]
        whole = [given[0], given[1]]
        for kind, one, two, which in plan:
            a, b = known[int(one * len(known))], known[int(two * len(known))]
            x = whole[int(one * len(whole))]
            if kind < 0.3:
                y = _UNARY[which % len(_UNARY)](a.clamp(-3, 3))
            elif kind < 0.65:
                y = _BINARY[which % len(_BINARY)](a, b)
            elif kind < 0.75:
                y = torch.where(a > 0, b, a * 0.5)
            elif kind < 0.83:
                y = x @ given[4] / columns
            elif kind < 0.88:
                y = x.t().reshape(x.shape) + b
            elif kind < 0.94:
                y = x.mean(-1, keepdim=True) * a
            else:
                y = (x * x).mean() + a
            known.append(y)
            if y.shape == given[0].shape:
                whole.append(y)
        return known[-3:]

    def step(*given: torch.Tensor) -> list[torch.Tensor]:
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in given]
            results = forward(*leaves)
            loss = sum((y.square().mean() for y in results), start=leaves[5] * 0)
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        updated = [x if g is None else x - 0.1 * g for x, g in zip(leaves, gradients, strict=True)]
        return [loss.detach(), *(x.detach() for x in (*results, *updated))]

    return (step if draw.random() < 0.7 else lambda *given: [y.clone() for y in forward(*given)]), operands


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_random_functions_and_their_training_steps(first: int) -> None:
    for seed in range(first, first + 25):
        function, operands = _random_function(seed)
        try:
            _check(function, operands)
        except AssertionError as error:
            raise AssertionError(f"seed={seed}") from error


# --- on several sites -------------------------------------------------------------------------------------------------


def _planned(function: Callable[..., Any], *operands: torch.Tensor, apart: Sequence[str] = ()) -> list[str]:
    """The programs in a function's graph as several sites plan it."""
    graph = _traced(function, *operands).graph
    fuse_elementwise(graph, divided=True, apart=apart)
    graph.lint()
    return _programs(graph)


def test_elementwise_operators_are_one_vertex_of_the_plan() -> None:
    x, w, mask = torch.randn(64, 96), torch.randn(96, 80), torch.rand(64, 1)

    def function(x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor) -> Any:
        hidden = torch.tanh(x @ w + 1) * mask
        return hidden, hidden > 0.5

    traced = _traced(function, x, w, mask)
    recorded, _ = record_with_template(traced, None, (), None, None, None, fuse=True)
    assert len(recorded.vertices) == 3
    assert str(recorded.graph()).count("call[") == str(recorded.graph()).count("joinsum::fused") == 2
    for actual, wanted in zip(interpret(recorded, [x, w, mask], check=True), function(x, w, mask), strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-5, atol=1e-5)


def test_what_partial_sums_pass_through_is_planned_by_itself() -> None:
    x, w = torch.randn(64, 96), torch.randn(96, 96)
    assert _planned(lambda x, w: (x @ w + x @ w.t()).tanh() * 2, x, w) == ["tanh x0; mul t0 2.0 -> t1"]
    moved = _planned(lambda x, w: ((x @ w).t() + (x @ w.t()).t() - x.sum(0, True).t()).exp() * 2, x, w)
    assert moved == ["exp x0; mul t0 2.0 -> t1"]
    of_multiples: list[Callable[..., torch.Tensor]] = [
        lambda x, w: torch.tanh(0.5 * (x @ w) - (x @ w.t()) / 3) * 2,
        lambda x, w: torch.tanh(-(x @ w) + x[:, :1] * (x @ w.t())) * 2,
        lambda x, w: torch.tanh((x @ w.t()) * x - torch.cat([x @ w, x @ w], 1)[:, :96] / x.exp()) * 2,
    ]
    for function in of_multiples:
        assert _planned(function, x, w) == ["tanh x0; mul t0 2.0 -> t1"]
    assert _planned(lambda x, w: (x @ w * 0.5).tanh(), x, w) == ["mul x0 0.5; tanh t0 -> t1"]
    # One operand that is no partial sum asks for the other's total.
    assert _planned(lambda x, w: (x @ w + x).tanh(), x, w) == ["add x0 x1; tanh t0 -> t1"]


def test_products_that_are_summed_and_what_is_larger_than_its_operands_are_planned_by_themselves() -> None:
    x, y = torch.randn(64, 96), torch.randn(80, 96)
    assert _planned(lambda x: ((x + 1).exp() * x).sum(0), x) == ["add x0 1.0; exp t0 -> t1"]
    assert _planned(lambda x, y: (x[:, None] - y).abs().mul(2).exp().sum(-1), x, y) == []
    assert _planned(lambda x: (x + 1).exp().mean() + (x * x).sum(), x) == ["add x0 1.0; exp t0 -> t1"]


def test_what_depends_on_no_argument_is_computed_once() -> None:
    x = torch.randn(64, 96)

    def function(x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(96, dtype=torch.float32)
        return torch.exp(x) * torch.cos(places * 0.1 + 1)

    assert _planned(function, x) == ["exp x0; mul t0 x1 -> t1"]
    recorded, _ = record_with_template(_traced(function, x), None, (), None, None, None, fuse=True)
    assert len(recorded.vertices) == 1
    torch.testing.assert_close(interpret(recorded, [x])[0], function(x), rtol=1e-5, atol=1e-5)


def test_operators_that_run_on_every_site_are_planned_by_themselves() -> None:
    x = torch.randn(64, 96)
    assert _planned(lambda x: torch.tanh(x * 2) + x, x) == ["mul x0 2.0; tanh t0; add t1 x0 -> t2"]
    assert _planned(lambda x: torch.tanh(x * 2) + x, x, apart=["aten::tanh"]) == []


@pytest.mark.parametrize("sites", [2, 3, 4])
@pytest.mark.parametrize("seed", range(8))
def test_random_functions_on_several_sites(sites: int, seed: int) -> None:
    function, operands = _random_function(1000 + seed)
    slow = joinsum.Cluster("slow sites, fast links", 1e6, 1e12, 1e-9)
    joinsum.init(sites=sites, cluster=slow, plan_cache=False)
    expected = [y for y in function(*operands) if isinstance(y, torch.Tensor)]
    with torch.no_grad():
        actual = joinsum.compile(function)(*operands)
    for own, wanted in zip(actual, expected, strict=True):
        scale = float(wanted.double().abs().sum() / max(1, wanted.numel()))
        torch.testing.assert_close(own, wanted, rtol=1e-5, atol=1e-5 * scale, equal_nan=True)


def test_a_step_on_several_sites_overwrites_moments_in_their_memory() -> None:
    joinsum.init(sites=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 32))
    twin = copy.deepcopy(model)
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}
    step = joinsum.train_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), **options))
    optimizer = torch.optim.SGD(twin.parameters(), **options)
    x, y = torch.randn(64, 64), torch.randn(64, 32)
    for _ in range(4):
        step(x, y)
        nn.functional.mse_loss(twin(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    for own, wanted in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(own.detach().full_tensor(), wanted.detach(), rtol=1e-5, atol=1e-6)
    assert "joinsum::fused" in str(step.explain())


# --- as they run ------------------------------------------------------------------------------------------------------


def _compiled(function: Callable[..., Any], *operands: torch.Tensor) -> Any:
    joinsum.init(sites=1)
    with torch.no_grad():
        actual = joinsum.compile(function)(*operands)
        torch.testing.assert_close(actual, function(*operands), rtol=1e-5, atol=1e-5)
    return actual


@pytest.mark.parametrize("operator", [lambda x: torch.roll(x, 1, -1), torch.nn.functional.logsigmoid])
def test_results_whose_layout_fake_tensors_do_not_say(operator: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.randn(4, 8, 24, 24).contiguous(memory_format=torch.channels_last)
    _compiled(lambda x: torch.exp(operator(x) * 0.2 + 0.1) * 3, x)


@pytest.mark.parametrize("optimizer", [torch.optim.Adagrad, torch.optim.RMSprop, torch.optim.Adadelta])
def test_weights_with_channels_last_are_trained(optimizer: type[torch.optim.Optimizer]) -> None:
    joinsum.init(sites=1)
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)]
    plain = nn.Sequential(*layers).to(memory_format=torch.channels_last)
    planned = copy.deepcopy(plain)
    step = joinsum.train_step(planned, nn.functional.cross_entropy, optimizer(planned.parameters()))
    own = optimizer(plain.parameters())
    x, y = torch.randn(4, 3, 12, 12), torch.randint(5, (4,))
    for _ in range(3):
        loss = nn.functional.cross_entropy(plain(x), y)
        own.zero_grad()
        loss.backward()
        own.step()
        assert float(step(x, y)) == pytest.approx(float(loss), rel=1e-5)


def test_the_gradient_of_a_group_norm_whose_operands_lie_differently() -> None:
    joinsum.init(sites=1)
    torch.manual_seed(1)
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.Hardswish(), nn.AdaptiveAvgPool2d(1)]
    plain = nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 10)).double()
    planned = copy.deepcopy(plain)
    x = torch.randn(8, 3, 16, 16).double().contiguous(memory_format=torch.channels_last)
    y = torch.randint(10, (8,))
    joinsum.train_step(planned, nn.functional.cross_entropy, torch.optim.SGD(planned.parameters(), lr=0.05))(x, y)
    nn.functional.cross_entropy(plain(x), y).backward()
    torch.optim.SGD(plain.parameters(), lr=0.05).step()
    trained = joinsum.gather(planned)[0].weight
    torch.testing.assert_close(trained, plain[0].weight, rtol=0, atol=1e-12)


def test_masks_of_masks_have_memory_of_their_own() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        mask = torch.tril(x > 0)
        both = mask & (w > 0.1)
        return torch.where(both, x, w).sin(), both

    _compiled(function, torch.randn(80, 80), torch.randn(80, 80))


def test_a_program_whose_results_are_all_computed_elsewhere() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y, z = x * 2 + 1, x
        for _ in range(46):
            z = torch.tanh(z)
        return z * y

    _compiled(function, torch.randn(80, 80))


def test_a_program_whose_shape_a_result_tells_that_must_stay() -> None:
    def function(x: torch.Tensor, column: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        stored = torch.ones(80, 80) * column
        return (stored * x) * ((stored @ w).tanh() * x)

    _compiled(function, torch.randn(80, 80), torch.randn(80, 1), torch.randn(80, 80) / 9)


@pytest.mark.parametrize("beside", [lambda x: x * 2 + 1, lambda x: x - 2, lambda x: x / 0 * 0])
def test_binary_cross_entropy_of_what_is_no_probability(beside: Callable[[torch.Tensor], torch.Tensor]) -> None:
    joinsum.init(sites=1)
    run = joinsum.compile(lambda x, y: nn.functional.binary_cross_entropy(beside(x), y))
    with torch.no_grad(), pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
        run(torch.rand(80, 80), torch.rand(80, 80))


def test_sums_of_products_do_not_wait_for_one_another() -> None:
    x, weights = torch.randn(64, 64), [torch.randn(64, 64) for _ in range(6)]

    def function(x: torch.Tensor, *weights: torch.Tensor) -> Any:
        total = x @ weights[0]
        for w in weights[1:]:
            total = total + x @ w
        return (total,)

    assert _programs(_check(function, (x, *weights))) == []


def test_zeros_keep_their_signs() -> None:
    z = torch.full((5000,), -0.0)
    for function in (torch.relu, torch.tanh, lambda x: x.clamp(-1, 0.0), lambda x: nn.functional.hardtanh(x, 0.0, 1.0)):
        assert torch.equal(_compiled(lambda x, function=function: 1 / function(x), z), 1 / function(z))


@pytest.mark.parametrize("sites", [1, 2])
def test_gradients_with_symbolic_strides_are_captured(sites: int) -> None:
    """Those of attention, which reach SGD's update without an operator between."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.operands = nn.ParameterList(torch.randn(48, 2, 16) for _ in range(3))

        def forward(self) -> torch.Tensor:
            query, key, value = (x.transpose(0, 1).unsqueeze(0) for x in self.operands)
            return nn.functional.scaled_dot_product_attention(query, key, value).squeeze(0).transpose(0, 1)

    joinsum.init(sites=sites)
    torch.manual_seed(0)
    model, target = Attention(), torch.randn(48, 2, 16)
    reference = copy.deepcopy(model)

    def half_squares(result: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (result - target).square().sum() / 2

    step = joinsum.train_step(model, half_squares, torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    for _ in range(3):
        loss = half_squares(reference(), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(step(target), loss.detach())
    step.sync()
    for mine, its in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine, its)


class _Trained(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor], *shape: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.p = nn.Parameter(torch.randn(*shape))
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.p, x)


def _check_training(function: Callable[..., torch.Tensor], shape: Sequence[int], x: torch.Tensor, sites: int) -> None:
    """Four steps beside torch's: operands are overwritten from the second step on."""
    joinsum.init(sites=sites)
    model, reference = _Trained(function, *shape), _Trained(function, *shape)
    step = joinsum.train_step(model, None, torch.optim.SGD(model.parameters(), lr=0.05))
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05)
    for _ in range(4):
        loss = reference(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(step(x), loss.detach())


@pytest.mark.parametrize("sites", [1, 2, 3])
@pytest.mark.parametrize("turned", [lambda p: p.flip(0), lambda p: p.roll(1, 0)])
def test_two_results_are_not_written_to_one_operand(turned: Callable[..., torch.Tensor], sites: int) -> None:
    """The power is two operands of the backward pass, which are one memory and die there."""
    _check_training(lambda p, _: (p.exp() ** turned(p)).pow(2).mean(), (4,), torch.ones(1), sites)


@pytest.mark.parametrize("sites", [1, 2])
@pytest.mark.parametrize("activation", [nn.functional.elu, nn.functional.silu, nn.functional.softplus])
def test_an_operand_of_no_axes_is_not_a_result_of_two(activation: Callable[..., torch.Tensor], sites: int) -> None:
    _check_training(lambda p, x: activation(p.mean() + x).tanh().mean(), (1, 6), torch.ones(1, 1), sites)


@pytest.mark.parametrize("sites", [1, 2])
def test_numbers_are_rounded_to_their_own_dtype(sites: int) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        tenth = torch.full((), 0.1)
        return (x == tenth).double() * x * 2 + x * tenth + x.clamp(max=torch.full((), 0.3))

    joinsum.init(sites=sites)
    x = torch.linspace(0, 0.5, 6, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(joinsum.compile(function)(x), function(x), rtol=1e-12, atol=0)
