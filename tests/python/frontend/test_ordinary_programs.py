"""Claims about programs as people write them, on sites that divide the work: equal to plain torch, or a precise error
after which everything goes on."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import joinsum
import pytest
import torch
import torch.nn.functional as F
from joinsum import DistributedTensor
from joinsum.distributed.distributed_tensor import gathered
from torch import Tensor, nn
from training import CUTTING


@pytest.fixture(autouse=True, params=[1, 3])
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    joinsum.init(sites=request.param, cluster=CUTTING if request.param > 1 else None, plan_cache=False)
    yield request.param
    joinsum.init()


def same(actual: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    for x, y in zip(actual, wanted, strict=True):
        torch.testing.assert_close(gathered(x), y.detach(), rtol=tolerance, atol=tolerance)


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 5))


def batches(count: int = 3) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(7, 6, generator=generator), torch.randint(0, 5, (7,), generator=generator)) for _ in range(count)
    ]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, data: list[tuple[Tensor, Tensor]]) -> None:
    for x, y in data:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


# --- models -----------------------------------------------------------------------------------------------------------


class Routed(nn.Module):
    """Words to experts of a fixed capacity, by one_hot and cumsum."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(6, 4), nn.Parameter(torch.randn(4, 6, 5))

    def forward(self, x: Tensor) -> Tensor:
        score, chosen = self.gate(x).softmax(-1).max(-1)
        taken = F.one_hot(chosen, 4)
        place = (taken.cumsum(0) - 1) * taken
        sent = F.one_hot(place.clamp(max=2), 3) * ((place < 3) & (taken > 0)).unsqueeze(-1)
        routed = torch.einsum("tec,td->ecd", sent.float(), x)
        return torch.einsum("tec,ecd->td", sent.float(), torch.bmm(routed, self.experts)) * score[:, None]


class InHalves(nn.Module):
    """Norms of halves with weights in single precision."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(6, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.GELU(), nn.BatchNorm1d(8))
        self.norm = nn.LayerNorm(5)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.norm(self.body(x[..., None].expand(-1, -1, 5)).to(torch.bfloat16)).float()


class Remembering(nn.Module):
    """State that is assigned: buffers, plain attributes, a number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)
        self.register_buffer("mean", torch.zeros(5))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.last = torch.zeros(7, 5)
        self.count = 0

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer(x) + self.last + self.count
        self.mean = self.mean * 0.9 + 0.1 * hidden.detach().mean(0)
        self.calls += 1
        self.last = hidden.detach().tanh()
        self.count += 1
        return hidden - self.mean


class Mapped(nn.Module):
    """torch.func inside of a model."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 5))

    def forward(self, x: Tensor) -> Tensor:
        slope = torch.func.grad(lambda z: (z @ self.weight).tanh().sum())(x)
        return torch.vmap(lambda z: z @ self.weight)(x + slope)


class Differentiated(nn.Module):
    """Jacobians of a layer by each sample, both ways, and the second derivatives of its sum."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = x[:2]
        rows, columns = torch.func.jacrev(self._out)(x[0]), torch.func.jacfwd(self._out)(x[1] * 2)
        second = torch.func.hessian(lambda z: self._out(z).square().sum())(x[0])
        return rows.sum() + columns.square() + second.diagonal().sum()

    def _out(self, z: Tensor) -> Tensor:
        return torch.tanh(self.layer(z))


class Laplacian(nn.Module):
    """The sum of second derivatives of each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.vmap(self._of_one)(x)

    def _of_one(self, q: Tensor) -> Tensor:
        return torch.func.hessian(lambda z: self.net(z).squeeze(-1))(q).diagonal().sum()


class Recurrent(nn.Module):
    """Layers that torch keeps as one operator, and that hold their weights twice."""

    def __init__(self) -> None:
        super().__init__()
        self.long = nn.LSTM(6, 4, num_layers=2, bidirectional=True, proj_size=3)
        self.gated, self.plain = nn.GRU(6, 7, batch_first=True), nn.RNN(7, 5)

    def forward(self, x: Tensor) -> Tensor:
        states, (hidden, _) = self.long(x[:6].reshape(3, 2, 6))
        return self.plain(self.gated(states)[0])[0].sum(1) + hidden.sum()


@pytest.mark.parametrize(
    ("make", "tolerance"),
    [
        *((make, 1e-5) for make in (Routed, Remembering, Mapped, Differentiated, Recurrent)),
        (InHalves, 0.05),
    ],
)
def test_models_train_in_steps_and_distributed_as_by_torch(make: Callable[[], nn.Module], tolerance: float) -> None:
    model = make()
    plain, stepped, spread = (copy.deepcopy(model) for _ in range(3))
    one, two, three = (torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (plain, stepped, spread))
    step = joinsum.train_step(stepped, lambda out, _: out.square().mean(), two)
    joinsum.distribute(spread, batches()[0][0])
    for x, y in batches():
        wanted = plain(x).square().mean()
        loss = spread(x).square().mean()
        for value, optimizer in ((wanted, one), (loss, three)):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        same([loss, step(x, y)], [wanted, wanted], tolerance)
    for trained in (stepped, spread):
        joinsum.gather(trained)
        same(trained.state_dict().values(), plain.state_dict().values(), tolerance)
        if isinstance(plain, Remembering):
            assert isinstance(trained, Remembering)
            same([trained.last], [plain.last])
            assert trained.count == plain.count


def test_second_derivatives_of_each_sample_train_distributed() -> None:
    """In `joinsum.train_step` torch's tracer fails on them, as it does without joinsum."""
    plain = Laplacian()
    spread = joinsum.distribute(copy.deepcopy(plain), batches()[0][0])
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (plain, spread)]
    for x, _ in batches():
        losses = [m(x).square().mean() for m in (plain, spread)]
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        same(losses[1:], losses[:1], 1e-5)
    joinsum.gather(spread)
    same(list(spread.parameters()), list(plain.parameters()), 1e-5)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_functions_of_recurrent_layers_are_captured(kind: type[nn.RNNBase]) -> None:
    layer, x = kind(6, 5), torch.randn(4, 3, 6)
    wanted = layer(x)[0]
    result = joinsum.compile(lambda x: layer(x)[0])(x)
    same([result], [wanted])
    weights = list(layer.parameters())
    same(torch.autograd.grad(result.square().sum(), weights), torch.autograd.grad(wanted.square().sum(), weights))


def test_a_recurrent_layer_that_was_gathered_sees_other_weights() -> None:
    layer, x = nn.GRU(6, 5), torch.randn(4, 3, 6)
    joinsum.gather(joinsum.distribute(layer, x))
    other = {name: torch.randn_like(weight) for name, weight in layer.named_parameters()}
    again = nn.GRU(6, 5)
    again.load_state_dict(other)
    same([torch.func.functional_call(layer, other, (x,))[0]], [again(x)[0]])


def test_weights_that_are_parts_of_one_storage_are_distributed() -> None:
    layer, x = nn.LSTM(6, 5), torch.randn(4, 3, 6)
    wanted = layer(x)[0].detach()
    flat = nn.utils.parameters_to_vector(layer.parameters()).detach()
    nn.utils.vector_to_parameters(flat, layer.parameters())
    assert len({weight.untyped_storage().data_ptr() for weight in layer.parameters()}) == 1
    same([joinsum.distribute(layer, x)(x)[0]], [wanted])


def test_encoder_layers_run_in_eval_mode_without_gradients() -> None:
    layer, x = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True).eval(), torch.randn(3, 4, 6)
    with torch.no_grad():
        same([joinsum.compile(layer)(x)], [layer(x)])
    assert torch.backends.mha.get_fastpath_enabled()


def test_one_element_is_written_wherever_a_mask_is_true() -> None:
    def f(x: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        y, z = x * 2, x.clone()
        y[y > 0] = 0.5
        z[row > 0] = -1
        return y, z

    x, row = torch.randn(4, 5, requires_grad=True), torch.randn(4)
    result, wanted = joinsum.compile(f)(x, row), f(x, row)
    same(result, wanted)
    same(*([torch.autograd.grad(y.square().sum() + z.sum(), x)[0]] for y, z in (result, wanted)))


@pytest.mark.parametrize("shaped", [Tensor.nonzero, torch.unique, lambda x: x[x > 0].sum()])
def test_shapes_that_depend_on_data_are_refused_with_operator_and_line(shaped: Callable[[Tensor], Tensor]) -> None:
    def f(x: Tensor) -> Tensor:
        return shaped(x * 2)

    message = r"capture: .*: operator=aten::\S+, .*at=.*test_ordinary_programs.py"
    with pytest.raises(joinsum.CaptureError, match=message):
        joinsum.compile(f)(torch.randn(4, 5))


def test_numbers_keep_the_dtype_of_tensors_without_axes() -> None:
    def f(x: Tensor, i: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x.sum() / 20 + 0.5, i.max() + 1, torch.where(x > 0, x.sum(), 1.0)

    inputs = torch.randn(3, 2, dtype=torch.bfloat16), torch.arange(3, dtype=torch.int32)
    for result, wanted in zip(joinsum.compile(f)(*inputs), f(*inputs), strict=True):
        torch.testing.assert_close(result, wanted)


def test_losses_take_targets_that_repeat_one_number() -> None:
    def f(x: Tensor) -> Tensor:
        target = torch.full_like(x, 0.3)
        weighed = F.binary_cross_entropy_with_logits(x, target, pos_weight=torch.arange(5.0))
        return weighed + F.binary_cross_entropy(x.sigmoid(), target) + F.huber_loss(x, target)

    x = torch.randn(7, 5)
    torch.testing.assert_close(joinsum.compile(f)(x), f(x))


# --- bad input --------------------------------------------------------------------------------------------------------


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(9, 6), nn.Linear(6, 5)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.table(words) + F.one_hot(words.clamp(min=0) // 2, 6))


def test_a_step_goes_on_after_indices_that_are_out_of_range() -> None:
    plain = Words()
    model = copy.deepcopy(plain)
    words, classes = torch.arange(6), torch.tensor([0, 1, 2, 3, 4, 0])
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.1)
    step = joinsum.train_step(model, F.cross_entropy, torch.optim.AdamW(model.parameters(), lr=0.1))
    for _ in range(2):
        train(plain, optimizer, [(words, classes)])
        step(words, classes)
        for bad, error in ((words + 4, IndexError), (words + 90, (IndexError, RuntimeError)), (words - 1, IndexError)):
            with pytest.raises(error, match=r"out of range|smaller than num_classes"):
                step(bad, classes)
        for classes_given in (classes + 1, classes - 1):
            with pytest.raises(IndexError, match=r"out of (range|bounds)"):
                step(words, classes_given)
    step.sync()
    same(model.state_dict().values(), plain.state_dict().values())


def test_assertions_in_models_raise_and_the_step_goes_on() -> None:
    model = nn.Linear(3, 2)

    def loss(out: Tensor, classes: Tensor) -> Tensor:
        return (out * F.one_hot(classes, 2)).sum()

    step = joinsum.train_step(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))
    x = torch.randn(4, 3)
    with pytest.raises(RuntimeError, match="smaller than num_classes"):
        step(x, torch.tensor([0, 1, 2, 0]))
    assert step(x, torch.tensor([0, 1, 1, 0])).isfinite()


def test_empty_batches_and_side_effects_are_refused_with_their_line() -> None:
    if joinsum.sites() > 1:  # torch runs empty batches on one site
        with pytest.raises(joinsum.CaptureError, match=r"no elements: operator=aten::sum.*at least one element"):
            joinsum.compile(lambda x: x.tanh().sum())(torch.empty(0, 3))

    def loss(out: Tensor, _: Tensor) -> Tensor:
        torch.ops.aten._print("a loss")
        return out.sum()

    model = nn.Linear(3, 3)
    step = joinsum.train_step(model, loss, torch.optim.SGD(model.parameters()))
    with pytest.raises(joinsum.CaptureError, match=r"side effect: operator=aten._print.*move it out"):
        step(torch.randn(3, 3), torch.zeros(()))


def test_a_matrix_without_an_inverse_raises_torchs_error_and_trains_nothing() -> None:
    model = nn.Linear(3, 3, bias=False)
    step = joinsum.train_step(model, lambda out, _: torch.linalg.inv(out).sum(), torch.optim.SGD(model.parameters()))
    before = model.weight.detach().clone()
    with pytest.raises(torch.linalg.LinAlgError, match=r"linalg\.inv: .*singular"):
        step(torch.zeros(3, 3), torch.zeros(()))
    assert torch.equal(joinsum.full_state_dict(model)["weight"], before)
    plain = torch.linalg.inv(torch.eye(3) @ before.T).sum()
    torch.testing.assert_close(step(torch.eye(3), torch.zeros(())), plain)


def test_operators_without_a_rule_run_unsharded_on_request() -> None:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return (x @ torch.special.bessel_j0(w)).tanh()

    x, w = torch.randn(5, 6), 0.1 * torch.randn(6, 6)
    with pytest.raises(joinsum.CaptureError, match="operator=aten::special_bessel_j0"):
        joinsum.compile(f)(x, w)
    whole = ["aten::special_bessel_j0"]
    same([joinsum.compile(f, replicate=whole)(x, w)], [f(x, w)])
    torch._dynamo.reset()
    same([torch.compile(f, backend="joinsum", options={"replicate": whole})(x, w)], [f(x, w)])
    with pytest.raises(joinsum.PlanError, match="replicate is a list of operators"):
        joinsum.train_step(mlp(), None, torch.optim.SGD(mlp().parameters()), replicate="aten::special_bessel_j0")


# --- state, hooks, optimizers -----------------------------------------------------------------------------------------


def test_hooks_on_gradients_run_in_a_distributed_model_and_those_after_accumulation_are_refused_in_a_step() -> None:
    plain, model = mlp(), mlp()
    seen: list[int] = []
    handles = [m[0].weight.register_hook(lambda grad: grad * 2) for m in (plain, model)]
    model[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(id(p)))
    ((x, _),) = batches(1)
    joinsum.distribute(model, x)
    for _ in range(2):
        for m in (plain, model):
            m.zero_grad()
            m(x).sum().backward()
        same([p.grad for p in model.parameters()], [p.grad for p in plain.parameters()])
        for handle in handles:
            handle.remove()
    assert seen == [id(model[0].weight)] * 2
    joinsum.gather(model)
    step = joinsum.train_step(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(
        joinsum.PlanError, match=r"hooks on its accumulated gradient.*parameter=0\.weight.*joinsum\.distribute"
    ):
        step(*batches(1)[0])


def test_a_model_whose_result_is_in_autograd_is_refused_and_stays_plain() -> None:
    model = mlp()
    ((x, _),) = batches(1)
    loss = model(x).sum()
    with pytest.raises(joinsum.PlanError, match="needed by a result that is still in autograd"):
        joinsum.distribute(model, x)
    assert not any(isinstance(p, DistributedTensor) for p in model.parameters())
    del loss
    joinsum.distribute(model, x)
    assert all(isinstance(p, DistributedTensor) for p in model.parameters())


OPTIMIZERS: list[Callable[[Any], torch.optim.Optimizer]] = [
    lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, foreach=False),
    lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, fused=True),
    lambda p: torch.optim.Adagrad(p, lr=0.1),
    lambda p: torch.optim.Adamax(p, lr=0.1),
    lambda p: torch.optim.Rprop(p, lr=0.1),
]


@pytest.mark.parametrize("index", range(len(OPTIMIZERS)))
def test_optimizers_that_were_built_before_step_on_the_blocks(index: int) -> None:
    plain, model = mlp(), mlp()
    one, two = OPTIMIZERS[index](plain.parameters()), OPTIMIZERS[index](model.parameters())
    joinsum.distribute(model, batches()[0][0])
    train(plain, one, batches())
    train(model, two, batches())
    same(model.state_dict().values(), plain.state_dict().values())


def test_a_distributed_model_goes_on_from_plain_states() -> None:
    plain, model = mlp(), mlp()
    one, two = torch.optim.AdamW(plain.parameters()), torch.optim.AdamW(model.parameters())
    data = batches(4)
    joinsum.distribute(model, data[0][0])
    train(plain, one, data[:2])
    train(model, two, [(x + 1, y) for x, y in data[:2]])
    model.load_state_dict(plain.state_dict())
    two.load_state_dict(copy.deepcopy(one.state_dict()))
    train(plain, one, data[2:])
    train(model, two, data[2:])
    same(model.state_dict().values(), plain.state_dict().values())


def test_a_distributed_model_is_copied_but_not_pickled() -> None:
    plain, model = mlp(), mlp()
    joinsum.distribute(model, batches()[0][0])
    copied = copy.deepcopy(model)
    train(plain, torch.optim.SGD(plain.parameters(), lr=0.1), batches())
    train(copied, torch.optim.SGD(copied.parameters(), lr=0.1), batches())
    assert all(isinstance(p, DistributedTensor) for p in copied.parameters())
    same(copied.state_dict().values(), plain.state_dict().values())
    same(model.state_dict().values(), mlp().state_dict().values())
    with pytest.raises(joinsum.PlanError, match=r"joinsum\.(gather|save_checkpoint)"):
        pickle.dumps(model)


def test_a_step_of_a_distributed_model_names_the_remedy() -> None:
    model = nn.Sequential(mlp(), nn.Linear(5, 5))
    joinsum.distribute(model[0], batches()[0][0])
    step = joinsum.train_step(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(joinsum.PlanError, match=r"module=0; joinsum\.gather"):
        step(*batches()[0])
    joinsum.gather(model[0])
    assert step(*batches()[0]).isfinite()


def test_a_second_backward_pass_and_penalties_on_parameters_add_up() -> None:
    plain, model = mlp(), mlp()
    ((x, _),) = batches(1)
    joinsum.distribute(model, x)
    for m in (plain, model):
        result = m(x)
        result.sum().backward(retain_graph=True)
        (result.square().sum() + sum(p.norm() + p.abs().sum() for p in m.parameters())).backward()
    same([p.grad for p in model.parameters()], [p.grad for p in plain.parameters()])


def test_a_scaler_of_gradients_skips_steps_that_are_no_numbers() -> None:
    plain, model = mlp(), mlp()
    joinsum.distribute(model, batches()[0][0])
    data = batches()
    data[1] = (data[1][0] * float("inf"), data[1][1])
    for m in (plain, model):
        optimizer, scaler = torch.optim.SGD(m.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
        for x, y in data:
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(m(x), y)).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(m.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == 2.0**15
    same(model.state_dict().values(), plain.state_dict().values())


def test_a_step_that_stores_its_results_names_the_remedy() -> None:
    class Storing(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            self.last = super().forward(x)
            return self.last

    model = Storing(4, 3)
    step = joinsum.train_step(model, F.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(joinsum.CaptureError, match=r"attribute or a list: .*return it from forward.*value\.detach\(\)"):
        step(torch.ones(2, 4), torch.ones(2, 3))


def test_products_of_several_dtypes_are_refused_as_by_torch() -> None:
    model = joinsum.distribute(nn.Linear(4, 2), torch.ones(3, 4))
    with pytest.raises((joinsum.PlanError, RuntimeError), match="dtype"):  # of one site torch's own
        model(torch.ones(3, 4, dtype=torch.float64))
    assert model(torch.ones(3, 4)).dtype is torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert model(torch.ones(3, 4)).dtype is torch.bfloat16


def test_a_model_that_cannot_be_gathered_yet_stays_distributed() -> None:
    joinsum.init(sites=3)
    model = joinsum.distribute(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), torch.ones(2, 4))
    before = model(torch.ones(2, 4))
    with pytest.raises(joinsum.PlanError, match="still in autograd"):
        joinsum.gather(model)
    torch.testing.assert_close(model(torch.ones(2, 4)), before)
    del before
    joinsum.init(sites=2)
    with pytest.raises(joinsum.PlanError, match="made for other sites"):
        model(torch.ones(2, 4))
    assert all(type(p) is nn.Parameter for p in joinsum.gather(model).parameters())
    assert model(torch.ones(2, 4)).shape == (2, 4)


def test_a_process_captures_many_models_and_functions() -> None:
    """Dynamo counts the graphs of torch's own `forward`s, and of a function that is defined again and again, as those
    of one function."""
    joinsum.init(sites=2)
    x = torch.randn(3, 4)
    for _ in range(66):
        joinsum.distribute(nn.Sequential(nn.Linear(4, 2)), x)
    for i in range(66):
        assert torch.equal(joinsum.compile(lambda x, i=i: x + i)(x), x + i)
    joinsum.init()


BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "maximum": torch.maximum,
    "pow": torch.pow,
    "atan2": torch.atan2,
    "copysign": torch.copysign,
    "where": lambda a, b: torch.where(a > b, a, b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
}


@pytest.mark.parametrize("sites", [1, 2, 3])
@pytest.mark.parametrize("name", BINARY)
def test_a_value_of_no_axes_is_not_overwritten_by_a_larger_result(name: str, sites: int) -> None:
    joinsum.init(sites=sites)
    for other in (lambda w: torch.zeros(1), lambda w: torch.full((5,), 0.4), lambda w: w * 2):

        def function(w: Tensor, other: Callable[[Tensor], Tensor] = other) -> Tensor:
            return BINARY[name](w.mean(), other(w))

        compiled = joinsum.compile(function)
        for _ in range(3):
            w = torch.rand(5)
            torch.testing.assert_close(compiled(w), function(w))


@pytest.mark.parametrize("sites", [1, 2])
def test_a_gradient_that_is_zero_by_definition(sites: int) -> None:
    """That of `sgn`, for which torch has a tensor without memory."""

    class Signs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([-2.0, 0.0, 3.0]))

        def forward(self, x: Tensor) -> Tensor:
            return (self.weight.sgn() * x).sum()

    joinsum.init(sites=sites)
    for make in (torch.optim.SGD, torch.optim.Adam):
        model = Signs()
        step = joinsum.train_step(model, None, make(model.parameters(), lr=0.1))
        assert [step(torch.arange(3.0)).item() for _ in range(2)] == [2.0, 2.0]
        step.sync()
        assert model.weight.tolist() == [-2.0, 0.0, 3.0]
    distributed = joinsum.distribute(Signs(), torch.arange(3.0))
    distributed(torch.arange(3.0)).sum().backward()
    assert torch.equal(gathered(distributed.weight.grad), torch.zeros(3))
