"""Claims about whole training steps: what they compute is what plain torch computes."""

from __future__ import annotations

import copy
import dataclasses
import gc
import resource
from collections.abc import Callable, Iterator
from typing import Any

import joinsum
import pytest
import torch
from joinsum import _C
from joinsum.distributed.distributed_tensor import gathered
from joinsum.frontend.training.optimizers import UPDATES
from models import CASES, batches, new_model
from rounding import rounding
from torch import Tensor, fx, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from training import CUTTING, Make, compare, note_graphs, same, train_by_torch


@pytest.fixture(autouse=True)
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[fx.GraphModule]]:
    """The graphs of the steps, which three sites divide."""
    torch._dynamo.reset()
    joinsum.init(sites=3, cluster=CUTTING)
    yield note_graphs(monkeypatch)
    joinsum.init()


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1, maximize=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.1, betas=(0.8, 0.95)),
        lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True, maximize=True, eps=1e-6),
        lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01, dtype=torch.float64)),
    ],
)
def test_options_of_optimizers_are_torchs(optimizer: Make) -> None:
    compare("mlp", optimizer, torch.float64, 1e-12)


def test_gradients_are_clipped_over_all_batches_of_an_update() -> None:
    compare("mlp", lambda p: torch.optim.SGD(p, lr=1.0), torch.float64, 1e-12, max_norm=0.05, accumulate=2)
    compare("mlp", lambda p: torch.optim.AdamW(p, lr=0.01), torch.float64, 1e-12, max_norm=1e9)


def test_accumulated_batches_make_one_update(graphs: list[fx.GraphModule]) -> None:
    compare("cnn", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), torch.float64, 1e-12, accumulate=3)
    assert len(graphs) == 3  # the first batch, the next ones, the last


def test_schedules_and_groups_change_no_graph(graphs: list[fx.GraphModule]) -> None:
    plain, planned = new_model("mlp", torch.float64), new_model("mlp", torch.float64)
    data, loss = batches("mlp", 9, dtype=torch.float64), CASES["mlp"].loss

    def parts(model: nn.Module) -> tuple[torch.optim.Optimizer, Any]:
        groups = [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1}]
        groups += [{"params": [p for p in model.parameters() if p.dim() == 1], "lr": 0.5}]
        optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
        return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[0.2, 0.4], total_steps=10)

    (one, schedule1), (other, schedule2) = parts(plain), parts(planned)
    step = joinsum.train_step(planned, loss, other)
    for x, y in data:
        train_by_torch(plain, loss, one, [(x, y)])
        step(x, y)
        schedule1.step()
        schedule2.step()
    step.sync()
    same(planned, plain, 1e-12)
    assert len(graphs) == 1


def test_options_that_change_the_update_take_effect_in_the_next_step() -> None:
    plain, planned = new_model("mlp", torch.float64), new_model("mlp", torch.float64)
    data, loss = batches("mlp", 8, dtype=torch.float64), CASES["mlp"].loss
    one, other = (torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (plain, planned))
    step = joinsum.train_step(planned, loss, other)
    changes: dict[int, dict[str, Any]] = {2: {"weight_decay": 0.3}, 4: {"maximize": True}, 6: {"weight_decay": 0}}
    for i, (x, y) in enumerate(data):
        for optimizer in (one, other):
            optimizer.param_groups[0].update(changes.get(i, {}))
        train_by_torch(plain, loss, one, [(x, y)])
        step(x, y)
    step.sync()
    same(planned, plain, 1e-12)


def test_updates_of_equal_parameters_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known, shapes = UPDATES[torch.optim.Adam], []

    def noting(p: Tensor, *others: Any) -> Any:
        shapes.append(tuple(p.shape))
        return known.new(p, *others)

    monkeypatch.setitem(UPDATES, torch.optim.Adam, dataclasses.replace(known, new=noting))
    model = nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(5)))
    step = joinsum.train_step(model, nn.functional.mse_loss, torch.optim.Adam(model.parameters()))
    for _ in range(2):
        step(torch.ones(4, 6), torch.ones(4, 6))
    assert sorted(shapes) == [(6,), (6, 6)]


def test_steps_after_the_first_run_its_plan() -> None:
    model = new_model("gpt")
    step = joinsum.train_step(model, CASES["gpt"].loss, torch.optim.AdamW(model.parameters()))
    planned = []
    for x, y in batches("gpt", 3):
        step(x, y)
        planned.append(step.captured_or_last().planned)
    assert planned[0] is planned[1] is planned[2]


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("kind", ["gpt", "cnn"])
def test_steps_after_the_first_ones_take_no_memory_from_the_system(kind: str, sites: int) -> None:
    joinsum.init(sites=sites, cluster=CUTTING if sites > 1 else None)
    model = new_model(kind)
    step = joinsum.train_step(model, CASES[kind].loss, torch.optim.AdamW(model.parameters()), max_norm=1.0)
    ((x, y),) = batches(kind, 1)
    for _ in range(4):
        step(x, y)
    steps, allocations = 8, _C.system_allocations()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    losses = [step(x, y) for _ in range(steps)]
    assert _C.system_allocations() == allocations
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults <= 10 * steps
    assert losses[-1] < losses[0]


def test_a_loss_outlives_the_sites_that_computed_it() -> None:
    model = new_model("mlp")
    step = joinsum.train_step(model, CASES["mlp"].loss, torch.optim.SGD(model.parameters(), lr=0.1))
    losses = [step(x, y) for x, y in batches("mlp", 3)]
    numbers = [loss.item() for loss in losses]
    del step
    joinsum.init(sites=2)
    gc.collect()
    assert [loss.item() for loss in losses] == numbers


def test_state_stays_on_the_sites_under_the_users_keys() -> None:
    model = new_model("cnn")
    keys, weight = list(model.state_dict()), model.conv.weight
    optimizer = torch.optim.AdamW(model.parameters())
    step = joinsum.train_step(model, CASES["cnn"].loss, optimizer)
    for x, y in batches("cnn", 2):
        step(x, y)
    assert list(model.state_dict()) == keys
    assert model.conv.weight is weight
    assert isinstance(weight, nn.Parameter)
    moment = optimizer.state[weight]["exp_avg"]
    assert all(isinstance(x, joinsum.DistributedTensor) for x in (weight, moment, model.norm.running_mean))
    assert int(model.norm.num_batches_tracked.full_tensor()) == 2


def test_a_synced_model_goes_on_by_itself_and_in_another_step() -> None:
    plain, planned = new_model("mlp", torch.float64), new_model("mlp", torch.float64)
    data, loss = batches("mlp", 6, dtype=torch.float64), CASES["mlp"].loss
    one, other = torch.optim.Adam(plain.parameters()), torch.optim.Adam(planned.parameters())
    train_by_torch(plain, loss, one, data)
    step = joinsum.train_step(planned, loss, other)
    for x, y in data[:2]:
        step(x, y)
    step.sync()
    train_by_torch(planned, loss, other, data[2:4])
    for x, y in data[4:]:
        step(x, y)
    step.sync()
    same(planned, plain, 1e-12)
    assert other.state_dict()["state"][0]["step"] == 6


def test_frozen_and_unused_parameters_stay() -> None:
    plain, planned = new_model("mlp", torch.float64), new_model("mlp", torch.float64)
    for model in (plain, planned):
        model.unused = nn.Parameter(torch.ones(3, dtype=torch.float64))
        model.layers[0].requires_grad_(False)
    data, loss = batches("mlp", 6, dtype=torch.float64), CASES["mlp"].loss
    one, other = (torch.optim.AdamW(m.parameters(), weight_decay=0.5) for m in (plain, planned))
    step = joinsum.train_step(planned, loss, other)
    for i, (x, y) in enumerate(data):
        if i == 3:
            for model in (plain, planned):
                model.layers[0].requires_grad_(True)
        train_by_torch(plain, loss, one, [(x, y)])
        step(x, y)
    step.sync()
    same(planned, plain, 1e-12)
    assert torch.equal(planned.unused, torch.ones(3, dtype=torch.float64))


def _freeze(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.layers[0].requires_grad_(False)


def _add_group(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.add_param_group({"params": [optimizer.param_groups[0]["params"].pop()], "lr": 0.5})


def _restart(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for state in optimizer.state.values():
        state["step"].fill_(1)
        state["exp_avg"] = torch.zeros_like(state["exp_avg"])


def _load_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    state = torch.optim.AdamW(copy.deepcopy(optimizer.param_groups)).state_dict()
    optimizer.load_state_dict(state)


def _replace_parameter(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    old = next(iter(model.layers[0].parameters()))
    new = nn.Parameter(torch.full(tuple(old.shape), 0.25, dtype=old.dtype))
    names = [name for name, p in model.named_parameters() if p is old]
    owner, _, name = names[0].rpartition(".")
    setattr(model.get_submodule(owner), name, new)
    group = optimizer.param_groups[0]["params"]
    group[[x is old for x in group].index(True)] = new
    optimizer.state.pop(old)


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("change", [_freeze, _add_group, _restart, _load_state, _replace_parameter])
def test_changes_between_steps_take_effect_in_the_next_one(
    change: Callable[[nn.Module, torch.optim.Optimizer], None], sites: int
) -> None:
    joinsum.init(sites=sites, cluster=CUTTING)
    plain, planned = new_model("mlp", torch.float64), new_model("mlp", torch.float64)
    data, loss = batches("mlp", 6, dtype=torch.float64), CASES["mlp"].loss
    one, other = (torch.optim.AdamW(m.parameters(), lr=0.01, weight_decay=0.1) for m in (plain, planned))
    step = joinsum.train_step(planned, loss, other)
    for i, (x, y) in enumerate(data):
        if i == 3:
            change(plain, one)
            change(planned, other)
        train_by_torch(plain, loss, one, [(x, y)])
        step(x, y)
    step.sync()
    same(planned, plain, 1e-12)
    counts = [[int(state["step"]) for state in each.state.values()] for each in (one, other)]
    assert counts[0] == counts[1]


def test_hooks_on_gradients_run_from_the_step_after_which_they_come() -> None:
    plain, planned = new_model("mlp", torch.float64), new_model("mlp", torch.float64)
    loss, data = CASES["mlp"].loss, batches("mlp", 6, dtype=torch.float64)
    one, other = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (plain, planned))
    step = joinsum.train_step(planned, loss, other, accumulate=2)
    train_by_torch(plain, loss, one, data[:2], accumulate=2)
    for x, y in data[:2]:
        step(x, y)
    hooks = [next(m.parameters()).register_hook(lambda g: g.clamp(min=0) * 3) for m in (plain, planned)]
    train_by_torch(plain, loss, one, data[2:4], accumulate=2)
    for x, y in data[2:4]:
        step(x, y)
    for hook in hooks:
        hook.remove()
    train_by_torch(plain, loss, one, data[4:], accumulate=2)
    for x, y in data[4:]:
        step(x, y)
    step.sync()
    same(planned, plain, 1e-12)


def test_hooks_after_the_accumulation_of_gradients_are_refused_after_steps_too() -> None:
    model = new_model("mlp")
    step = joinsum.train_step(model, CASES["mlp"].loss, torch.optim.SGD(model.parameters(), lr=0.1))
    ((x, y),) = batches("mlp", 1)
    step(x, y)
    hook = next(model.parameters()).register_post_accumulate_grad_hook(lambda p: None)
    with pytest.raises(joinsum.PlanError, match="hooks on its accumulated gradient"):
        step(x, y)
    hook.remove()
    step(x, y)


@pytest.mark.parametrize("made", ["before the first step", "after it"])
def test_averages_of_weights_are_torchs(made: str) -> None:
    plain, planned = new_model("mlp", torch.float64), new_model("mlp", torch.float64)
    loss, data = CASES["mlp"].loss, batches("mlp", 4, dtype=torch.float64)
    one, other = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (plain, planned))
    step = joinsum.train_step(planned, loss, other)

    def averaged(model: nn.Module) -> AveragedModel:
        return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))

    averages = [averaged(plain), averaged(planned)] if made == "before the first step" else []
    for i, (x, y) in enumerate(data):
        train_by_torch(plain, loss, one, [(x, y)])
        step(x, y)
        averages = averages or [averaged(plain), averaged(planned)]
        if i > 0:
            averages[0].update_parameters(plain)
            averages[1].update_parameters(planned)
    for wanted, found in zip(*(each.parameters() for each in averages), strict=True):
        torch.testing.assert_close(gathered(found), wanted.detach(), rtol=1e-12, atol=1e-12)


def test_train_and_eval_are_different_steps() -> None:
    plain, planned = new_model("cnn", torch.float64), new_model("cnn", torch.float64)
    data, loss = batches("cnn", 4, dtype=torch.float64), CASES["cnn"].loss
    one, other = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (plain, planned))
    step = joinsum.train_step(planned, loss, other)
    for i, (x, y) in enumerate(data):
        for model in (plain, planned):
            model.train(i % 2 == 0)
        train_by_torch(plain, loss, one, [(x, y)])
        step(x, y)
    step.sync()
    same(planned, plain, 1e-12)
    assert planned.norm.num_batches_tracked == 2


def test_another_batch_size_is_another_graph_of_the_same_state(graphs: list[fx.GraphModule]) -> None:
    plain, planned = new_model("gpt", torch.float64), new_model("gpt", torch.float64)
    loss = CASES["gpt"].loss
    data = [pair for n in (2, 5, 2) for pair in batches("gpt", 1, n)]
    one, other = (torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (plain, planned))
    step = joinsum.train_step(planned, loss, other)
    train_by_torch(plain, loss, one, data)
    for x, y in data:
        step(x, y)
    step.sync()
    same(planned, plain, 1e-12)
    assert len(graphs) == 2


def test_what_a_model_reads_may_change_between_steps() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.scale = nn.Linear(2, 1, bias=False), 1.0

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) * self.scale

    model = Scaled()
    step = joinsum.train_step(model, lambda z, _: z.sum(), torch.optim.SGD(model.parameters(), lr=0.0))
    x = torch.ones(3, 2)
    first = step(x, x)
    model.scale = -2.0
    torch.testing.assert_close(step(x, x), -2 * first)


def test_checkpointed_layers_give_the_same_step() -> None:
    plain, planned = new_model("llama", torch.float64), new_model("llama", torch.float64)
    planned.checkpointed = True
    data, loss = batches("llama", 3), CASES["llama"].loss
    one, other = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (plain, planned))
    train_by_torch(plain, loss, one, data)
    step = joinsum.train_step(planned, loss, other)
    for x, y in data:
        step(x, y)
    step.sync()
    same(planned, plain, 1e-12)


def test_autocast_computes_in_half_width(graphs: list[fx.GraphModule]) -> None:
    plain, planned = new_model("mlp"), new_model("mlp")
    loss = CASES["mlp"].loss
    ((x, y),) = batches("mlp", 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted = loss(plain(x), y)
    step = joinsum.train_step(planned, loss, torch.optim.SGD(planned.parameters(), lr=0.1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = step(x, y)
    exact = loss(plain(x), y)
    torch.testing.assert_close(actual, wanted.detach(), rtol=1e-3, atol=0)
    assert actual != exact
    wanted.backward()
    torch.optim.SGD(plain.parameters(), lr=0.1).step()
    step.sync()
    same(planned, plain, 0.1 * rounding(torch.bfloat16, terms=12, roundings=2))
    half = any(
        isinstance(value, Tensor) and value.dtype is torch.bfloat16
        for node in graphs[-1].graph.nodes
        for value in [node.meta.get("val")]
    )
    assert half


def test_a_model_that_gives_its_loss_needs_no_loss_function() -> None:
    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: Tensor, labels: Tensor) -> Any:
            return torch.nn.functional.mse_loss(self.layer(x), labels)

    model = WithLoss()
    wanted = model(torch.ones(3, 2), labels=torch.zeros(3, 2)).detach()
    step = joinsum.train_step(model, None, torch.optim.SGD(model.parameters(), lr=0.1))
    torch.testing.assert_close(step(torch.ones(3, 2), labels=torch.zeros(3, 2)), wanted)


def test_losses_that_are_no_numbers_propagate() -> None:
    model = new_model("mlp")
    step = joinsum.train_step(model, CASES["mlp"].loss, torch.optim.SGD(model.parameters(), lr=0.1))
    ((x, y),) = batches("mlp", 1)
    assert step(x * float("nan"), y).isnan()
    step.sync()
    assert all(p.isnan().any() for p in model.parameters())


# --- bad input --------------------------------------------------------------------------------------------------------


def test_other_optimizers_are_refused_with_the_remedy() -> None:
    model = new_model("mlp")
    with pytest.raises(joinsum.PlanError, match=r"optimizer=LBFGS, supported=\['SGD'.*joinsum.distribute"):
        joinsum.train_step(model, None, torch.optim.LBFGS(model.parameters()))

    class Mine(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    with pytest.raises(joinsum.PlanError, match="optimizer=Mine"):
        joinsum.train_step(model, None, Mine(model.parameters()))


def test_hooks_on_the_optimizers_step_are_refused() -> None:
    model = new_model("mlp")
    optimizer = torch.optim.SGD(model.parameters())
    step = joinsum.train_step(model, CASES["mlp"].loss, optimizer)
    optimizer.register_step_post_hook(lambda *_: None)
    with pytest.raises(joinsum.PlanError, match="hooks"):
        step(*batches("mlp", 1)[0])


def test_branches_on_values_name_their_line() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, x: Tensor) -> Tensor:
            if self.layer(x).sum() > 0:
                return x
            return -x

    model = Branching()
    before = copy.deepcopy(model.state_dict())
    step = joinsum.train_step(model, lambda z, _: z.sum(), torch.optim.SGD(model.parameters()))
    with pytest.raises(joinsum.CaptureError, match=r"test_train_step.py:\d+ in forward, code=if self.layer"):
        step(torch.ones(1, 2), torch.ones(1))
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert not any(isinstance(p, joinsum.DistributedTensor) for p in model.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [({"max_norm": 0.0}, "positive norm"), ({"accumulate": 0}, "at least one batch"), ({"accumulate": 1.5}, "integer")],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    model = new_model("mlp")
    with pytest.raises(joinsum.PlanError, match=message):
        joinsum.train_step(model, None, torch.optim.SGD(model.parameters()), **options)


def test_parameters_that_share_memory_but_are_two_are_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight.data = model[0].weight.data
    with pytest.raises(joinsum.PlanError, match=r"share memory: first=0.weight, second=1.weight"):
        joinsum.train_step(model, None, torch.optim.SGD(model.parameters()))


# --- optimizers of other parameters -----------------------------------------------------------------------------------


def test_an_optimizer_with_none_of_the_models_parameters_is_refused() -> None:
    model, other = nn.Linear(6, 3), nn.Linear(6, 3)
    step = joinsum.train_step(model, nn.functional.cross_entropy, torch.optim.SGD(other.parameters(), lr=0.1))
    x, y = torch.randn(8, 6), torch.arange(8) % 3
    for _ in range(2):
        with pytest.raises(
            joinsum.PlanError, match=r"none of the model's parameters.*parameters=2; .*model\.parameters"
        ):
            step(x, y)


def test_an_optimizer_with_some_of_the_models_parameters_trains_these() -> None:
    model, other = nn.Linear(6, 3), nn.Linear(6, 3)
    before = model.bias.detach().clone()
    optimizer = torch.optim.SGD([model.bias, *other.parameters()], lr=0.1)
    step = joinsum.train_step(model, nn.functional.cross_entropy, optimizer)
    step(torch.randn(8, 6), torch.arange(8) % 3)
    assert not torch.equal(gathered(model.bias), before)


def test_an_optimizer_whose_parameters_the_loss_alone_reads_trains_them() -> None:
    model, scale = nn.Linear(6, 3), nn.Parameter(torch.ones(3))

    def loss(out: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(out * scale, target)

    joinsum.train_step(model, loss, torch.optim.SGD([scale], lr=0.1))(torch.randn(8, 6), torch.arange(8) % 3)
    assert not torch.equal(scale, torch.ones(3))


class Bounded(nn.Module):
    """A table whose rows are bounded, or a weight that is, in the forward pass."""

    def __init__(self, max_norm: float | None) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 4, max_norm=max_norm)
        self.layer = nn.Linear(4, 1)

    def forward(self, words: Tensor) -> Tensor:
        if self.table.max_norm is None:
            with torch.no_grad():
                self.layer.weight.clamp_(-0.1, 0.1)
        found: Tensor = self.layer(self.table(words))
        return found


@pytest.mark.parametrize(("max_norm", "parameter"), [(0.5, "table.weight"), (None, "layer.weight")])
def test_writing_to_a_trained_parameter_in_the_forward_pass_is_refused(max_norm: float | None, parameter: str) -> None:
    joinsum.init(sites=1)
    model = Bounded(max_norm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = joinsum.train_step(model, nn.functional.mse_loss, optimizer, replicate=["aten::embedding_renorm"])
    with pytest.raises(joinsum.CaptureError, match=f"writes to a parameter that is trained.*parameter={parameter}"):
        step(torch.tensor([1, 2, 3]), torch.zeros(3, 1))
