"""Claims about the ways in that keep the user's own loop: results and gradients are plain torch's."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from typing import Any

import joinsum
import pytest
import torch
from joinsum import DistributedTensor
from joinsum.capture import executable
from joinsum.capture.captured_graph import CapturedGraph, Executable
from joinsum.distributed.distributed_tensor import gathered
from models import CASES, batches, new_model
from rounding import assert_rounded
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from training import CUTTING, note_graphs


@pytest.fixture(autouse=True)
def three_sites() -> Iterator[None]:
    torch._dynamo.reset()
    joinsum.init(sites=3, cluster=CUTTING)
    yield
    joinsum.init()


def same_state(actual: nn.Module, wanted: nn.Module) -> None:
    for x, y in zip(actual.state_dict().values(), wanted.state_dict().values(), strict=True):
        torch.testing.assert_close(gathered(x), y)


@pytest.mark.parametrize("name", CASES)
def test_a_distributed_model_trains_in_the_users_loop(name: str) -> None:
    plain, model = new_model(name), new_model(name)
    loss, data = CASES[name].loss, batches(name, 3)
    keys, weights = list(model.state_dict()), list(model.parameters())
    one, other = (torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (plain, model))
    assert joinsum.distribute(model, data[0][0]) is model
    assert list(model.state_dict()) == keys
    assert all(p is q for p, q in zip(model.parameters(), weights, strict=True))
    assert all(isinstance(p, DistributedTensor) and isinstance(p, nn.Parameter) for p in weights)
    for x, y in data:
        for each, optimizer in ((plain, one), (model, other)):
            value = loss(each(x), y)
            optimizer.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(each.parameters(), 0.5)
            optimizer.step()
        for p, q in zip(model.parameters(), plain.parameters(), strict=True):
            assert isinstance(p.grad, DistributedTensor)
            assert p.grad.physical_type == p.physical_type
            torch.testing.assert_close(p.grad.full_tensor(), q.grad)
    same_state(model, plain)
    plain.eval()
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(model(data[0][0]), plain(data[0][0]))


@pytest.mark.parametrize("name", ["cnn", "llama"])
def test_torch_compile_finds_the_backend(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, model = new_model(name), new_model(name)
    ((x, y),), loss = batches(name, 1), CASES[name].loss
    graphs = note_graphs(monkeypatch)
    compiled = torch.compile(model, backend="joinsum", fullgraph=True)
    loss(plain(x), y).backward()
    loss(compiled(x), y).backward()
    assert len(graphs) == 2
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)
    same_state(model, plain)


def test_a_function_that_is_not_one_graph_is_reported_with_its_line() -> None:
    def halved(x: Tensor) -> Tensor:
        doubled = x * 2
        return doubled if doubled.sum() < 0 else doubled - 1

    line = halved.__code__.co_firstlineno + 2
    with pytest.warns(
        UserWarning,
        match=rf"not one graph: at .*test_models_in_own_loops.py:{line} in halved; torch runs the code",
    ):
        torch.testing.assert_close(torch.compile(halved, backend="joinsum")(torch.ones(3)), torch.ones(3))


def test_what_the_backward_pass_needs_stays_on_the_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    stayed: list[int] = []
    original = executable.compile_fx

    def noting(graph: CapturedGraph) -> Executable:
        stayed.append(len(graph.stay))
        return original(graph)

    monkeypatch.setattr(executable, "compile_fx", noting)
    model = torch.compile(new_model("mlp"), backend="joinsum", fullgraph=True)
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        model(batches("mlp", 1)[0][0])
    assert stayed[0] > 0
    assert sum(isinstance(x, DistributedTensor) for x in saved) == stayed[0]


def test_a_compiled_function_is_torchs_and_keeps_its_name() -> None:
    @joinsum.compile
    def attend(query: Tensor, key: Tensor, value: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
        """Attention."""
        weights = torch.softmax(query @ key.T * scale, -1)
        return weights @ value, weights

    query, key, value = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    made_, weights = attend(query, key, value, scale=0.5)
    wanted = torch.softmax(query @ key.T * 0.5, -1)
    torch.testing.assert_close(weights, wanted)
    torch.testing.assert_close(made_, wanted @ value)
    actual = torch.autograd.grad(made_.square().sum(), [query, key, value])
    torch.testing.assert_close(actual, torch.autograd.grad((wanted @ value).square().sum(), [query, key, value]))
    assert attend.__name__ == "attend"
    assert attend.__doc__ == "Attention."


def test_writing_into_an_argument_writes_into_it() -> None:
    @joinsum.compile
    def count(total: Tensor, x: Tensor) -> Tensor:
        total += x.sum()
        return total * 2

    total = torch.ones(2)
    assert torch.equal(count(total, torch.ones(3)), torch.full((2,), 8.0))
    assert torch.equal(total, torch.full((2,), 4.0))


def test_data_dependent_branches_name_their_line() -> None:
    @joinsum.compile
    def choose(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x
        return -x

    line = inspect.getsourcelines(inspect.unwrap(choose))[1] + 2
    with pytest.raises(joinsum.CaptureError, match=rf"test_models_in_own_loops.py:{line} in choose.*torch.where"):
        choose(torch.ones(2))
    assert torch.equal(joinsum.compile(lambda x: x * 2)(torch.ones(2)), torch.full((2,), 2.0))


def test_errors_of_the_planner_reach_the_user_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*_: Any, **__: Any) -> Any:
        raise joinsum.CaptureError("aten::svd: not captured")

    monkeypatch.setattr(executable, "compile_fx", refusing)
    with pytest.raises(joinsum.CaptureError, match="aten::svd: not captured"):
        joinsum.compile(lambda x: x * 2)(torch.ones(2))
    with pytest.raises(joinsum.CaptureError, match="aten::svd: not captured"):
        joinsum.distribute(new_model("mlp"), torch.ones(2, 6))


def test_wrong_shapes_raise_torchs_reason_and_leave_the_model_usable() -> None:
    model = joinsum.distribute(new_model("mlp"), torch.ones(2, 6))
    with pytest.raises(
        joinsum.CaptureError, match=r"same reduction dim.*models.py:\d+ in forward, code=return self.layers\(x\)$"
    ):
        model(torch.ones(2, 7))
    assert model(torch.ones(4, 6)).shape == (4, 3)


def test_a_model_without_values_does_not_run() -> None:
    model = joinsum.distribute(new_model("mlp").to("meta"), torch.ones(2, 6, device="meta"))
    with pytest.raises(joinsum.PlanError, match="no values yet"):
        model(torch.ones(2, 6))


def test_distributing_twice_is_refused_and_gathering_undoes_it() -> None:
    model = joinsum.distribute(new_model("mlp"), torch.ones(2, 6))
    with pytest.raises(joinsum.PlanError, match="already"):
        joinsum.distribute(model, torch.ones(2, 6))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 6)).sum().backward()
    optimizer.step()
    joinsum.gather(model, optimizer)
    assert all(type(p) is nn.Parameter and type(p.grad) is Tensor for p in model.parameters())
    assert all(type(x) is Tensor for state in optimizer.state.values() for x in state.values())
    assert type(model).forward is type(new_model("mlp")).forward
    assert "forward" not in model.__dict__
    model(torch.ones(2, 6)).sum().backward()
    optimizer.step()


def test_frozen_and_shared_parameters_are_as_before() -> None:
    plain, model = new_model("gpt"), new_model("gpt")
    for each in (plain, model):
        each.positions.weight.requires_grad_(False)
    ((x, y),), loss = batches("gpt", 1), CASES["gpt"].loss
    joinsum.distribute(model, x)
    assert model.head.weight is model.tokens.weight
    for each in (plain, model):
        loss(each(x), y).backward()
    assert model.positions.weight.grad is None
    torch.testing.assert_close(model.head.weight.grad.full_tensor(), plain.head.weight.grad)


def test_autocast_and_checkpointed_layers_are_captured() -> None:
    plain, model = new_model("llama"), new_model("llama")
    model.checkpointed = True
    ((x, y),), loss = batches("llama", 1), CASES["llama"].loss
    joinsum.distribute(model, x)
    for each in (plain, model):
        loss(each(x), y).backward()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad.full_tensor(), q.grad)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(x).dtype is torch.bfloat16
        assert_rounded(model(x), plain(x), torch.bfloat16, terms=24, roundings=4)


def test_checkpointed_layers_have_one_mask_in_both_passes() -> None:
    """What is linear in the weight is the weight times its gradient, if both passes drop the same elements."""
    weight, x = torch.rand(8, requires_grad=True), torch.rand(4, 8)

    def layer(x: Tensor) -> Tensor:
        attended = nn.functional.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None])[0, 0]
        return nn.functional.dropout(attended * weight, 0.5)

    def step(x: Tensor) -> Tensor:
        hidden: Tensor = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
        return hidden.sum()

    total = joinsum.compile(step)(x)
    total.backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.detach() @ weight.grad, total.detach())


def test_equal_gradients_are_two_tensors() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.a + self.b

    model = joinsum.distribute(Twice(), torch.ones(2, 4))
    model(torch.ones(2, 4)).sum().backward()
    model.a.grad.mul_(5)
    assert torch.equal(model.b.grad.full_tensor(), torch.full((4,), 2.0))


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_an_optimizer_that_is_not_elementwise(line_search: str | None) -> None:
    models = new_model("mlp"), joinsum.distribute(new_model("mlp"), torch.ones(2, 6))
    for model in models:
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=5, line_search_fn=line_search)

        def closure(model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer) -> Tensor:
            optimizer.zero_grad()
            value = model(torch.ones(2, 6)).square().sum()
            value.backward()
            return value

        for _ in range(2):
            optimizer.step(closure)
    for plain, distributed in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(distributed.full_tensor(), plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("foreach", [False, True])
def test_an_optimizer_that_takes_norms_along_axes(foreach: bool) -> None:
    models = new_model("mlp"), joinsum.distribute(new_model("mlp"), torch.ones(2, 6))
    for model in models:
        optimizer = torch.optim.Adafactor(model.parameters(), lr=0.1, foreach=foreach)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 6)).square().sum().backward()
            optimizer.step()
    for plain, distributed in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(distributed.full_tensor(), plain, rtol=1e-5, atol=1e-5)


# --- distributed_einsum -----------------------------------------------------------------------------------------------


def contractions(x: Tensor, y: Tensor, v: Tensor) -> list[Tensor]:
    linear = torch.nn.functional.linear
    return [
        x[0] @ y[0],
        torch.matmul(x, y[0]),
        x.matmul(y),
        x[:1] @ y,
        x @ v,
        v @ y,
        v @ v,
        torch.mm(x[0], y[0]),
        x.bmm(y),
        linear(x, y[0].T),
        linear(x, y[0].T, torch.arange(5.0)),
        torch.einsum("bij,bjk->ik", x, y),
        torch.einsum("bij,bjk->bk", [x, y]),
    ]


def test_contractions_inside_the_block_run_on_the_sites() -> None:
    draw = torch.Generator().manual_seed(3)
    x, y = torch.randn(2, 3, 4, generator=draw), torch.randn(2, 4, 5, generator=draw)
    v = torch.randn(4, generator=draw).requires_grad_()
    wanted = contractions(x, y, v)
    with joinsum.distributed_einsum():
        actual = contractions(x, y, v)
    torch.testing.assert_close(actual, wanted)
    for mine, theirs in zip(actual[4:7], wanted[4:7], strict=True):
        torch.testing.assert_close(torch.autograd.grad(mine.sum(), v), torch.autograd.grad(theirs.sum(), v))


def test_a_model_inside_the_block_is_torchs_and_runs_joinsums_plans() -> None:
    plain, model = new_model("llama"), new_model("llama")
    ((x, y),), loss = batches("llama", 1), CASES["llama"].loss
    value = loss(plain(x), y)
    value.backward()
    runs: list[int] = []
    original = joinsum.Context.execute

    def counting(self: Any, *args: Any, **options: Any) -> Any:
        runs.append(1)
        return original(self, *args, **options)

    with pytest.MonkeyPatch.context() as patch, joinsum.distributed_einsum():
        patch.setattr(joinsum.Context, "execute", counting)
        mine = loss(model(x), y)
        mine.backward()
    torch.testing.assert_close(mine, value)
    assert len(runs) == 15 + 15  # seven linear layers a block and the head, forward and backward
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_layers_are_computed_again_inside_of_the_block(reentrant: bool, inside: bool, sites: int) -> None:
    joinsum.init(sites=sites)
    plain, model = new_model("mlp"), new_model("mlp")
    ((x, y),), loss = batches("mlp", 1), CASES["mlp"].loss
    loss(plain(x), y).backward()
    contracted: list[int] = []

    def counting(*args: Any) -> Any:
        contracted.append(1)
        return joinsum.einsum(*args)

    x.requires_grad_()  # which reentrant checkpoints need
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("joinsum.frontend.distributed_einsum.einsum", counting)
        with joinsum.distributed_einsum():
            value = loss(checkpoint(model, x, use_reentrant=reentrant), y)
            forward = len(contracted)
            if inside:
                value.backward()
        if not inside:
            value.backward()
        assert forward > 0
        assert len(contracted) == 2 * forward
        for p, q in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)
        # Outside of blocks checkpoints are torch's.
        loss(checkpoint(model, x, use_reentrant=reentrant), y).backward()
        assert len(contracted) == 2 * forward


@pytest.mark.parametrize("way", ["backend", "distribute"])
def test_images_of_several_convolutions_train_on_one_site(way: str) -> None:
    """torch's convolutions choose the layout of their results at the time of the run."""
    joinsum.init(sites=1)
    torch.manual_seed(0)
    parts = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 6, 3)]
    plain = nn.Sequential(*parts, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(6 * 9, 5))
    model = copy.deepcopy(plain)
    x = torch.randn(16, 3, 16, 16)
    called = torch.compile(model, backend="joinsum") if way == "backend" else joinsum.distribute(model, x)
    for each in (plain, called):
        each(x).square().sum().backward()
        with torch.no_grad():
            each(x)
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(gathered(p.grad), q.grad, rtol=1e-4, atol=1e-4)
    plain.eval()
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(gathered(called(x)), plain(x), rtol=1e-4, atol=1e-4)
