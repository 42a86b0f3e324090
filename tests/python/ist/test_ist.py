"""`joinsum.IST` around users' own loops, and what it refuses."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import joinsum
import joinsum.ist.layers.discovery
import pytest
import torch
from stacked_subnets import Optimizer, batches, mlp, step
from torch import nn

# --- loops ------------------------------------------------------------------------------------------------------------


def test_parameters_stay_the_same_objects_and_memory() -> None:
    joinsum.init(sites=1)
    joinsum.init(sites=2)
    model = mlp(6, 8, 3)
    optimizer = torch.optim.AdamW([{"params": model[0].parameters()}, {"params": model[1:].parameters(), "lr": 0.1}])
    parameters = list(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    ist = joinsum.IST(model, optimizer, every=2)
    for batch in batches(9, 6, 3):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    assert [id(p) for p in model.parameters()] == [id(p) for p in parameters]
    assert model[0].out_features == model[0].weight.shape[0] == model[1].num_features == 4
    ist.gather()
    assert model[0].out_features == model[0].weight.shape[0] == 8
    step(model, optimizer, batches(1, 6, 3)[0])  # plain training goes on


@pytest.mark.parametrize("sites", [1, 3])
def test_a_model_without_memory_is_cut_tensor_by_tensor(sites: int) -> None:
    joinsum.init(sites=sites)
    plain = mlp(200, 180, 100, 5)
    with joinsum.init_empty():
        model = mlp(200, 180, 100, 5)
    assert model[0].weight.is_meta
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    ist = joinsum.IST(model, optimizer, every=1)
    for batch in batches(2 * sites, 200, 5):
        step(model, optimizer, batch)
    ist.gather()
    for (name, found), wanted in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(found, wanted), name
    other = nn.Sequential(nn.Linear(4, 8, device="meta"), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    assert "init_empty" in refused(other)


def test_rounds_of_the_loops_own_length() -> None:
    joinsum.init(sites=2)
    model = mlp(6, 8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ist = joinsum.IST(model, optimizer, every=None)
    for count in (4, 7):
        with ist.round():
            for batch in batches(count, 6, 3):
                step(model, optimizer, batch)
    assert (ist.rounds, ist.site) == (2, 0)


def test_an_error_in_the_loop_leaves_the_block_as_it_is() -> None:
    joinsum.init(sites=2)
    model = mlp(6, 8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ZeroDivisionError), joinsum.IST(model, optimizer) as ist:
        raise ZeroDivisionError
    assert model[0].weight.shape == (4, 6)
    assert ist.gather()[0].weight.shape == (8, 6)


class Masked(nn.Module):
    """A transformer's embedding and head in one, a mask of infinities, a counter that its forward pass writes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.embedding, self.head = nn.Embedding(20, 12), nn.Linear(12, 20, bias=False)
        self.head.weight = self.embedding.weight
        self.norm1, self.up, self.down, self.norm2 = (
            nn.LayerNorm(12),
            nn.Linear(12, 24),
            nn.Linear(24, 12),
            nn.LayerNorm(12),
        )
        self.register_buffer("mask", torch.triu(torch.full((5, 5), -torch.inf), 1))
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
        x = x + self.down(nn.functional.gelu(self.up(self.norm1(x))))
        return self.head(self.norm2(x))


def test_tied_weights_masks_and_written_buffers_of_uncut_modules(tmp_path: Path) -> None:
    joinsum.init(sites=3)
    model, plain = Masked(), Masked()
    joinsum.ist.layers.discovery.find_layers(model, False, None)
    assert type(model.mean) is torch.Tensor  # tracing has left nothing behind
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    ist = joinsum.IST(model, optimizer, every=1)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randint(0, 20, (3, 5))).square().mean().backward()
        optimizer.step()
    with ist.full() as full:
        assert full.head.weight is full.embedding.weight
    ist.save_checkpoint(tmp_path)
    ist.gather()
    assert torch.equal(model.mask, plain.mask)
    for (name, found), wanted in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(found, wanted), name


def test_a_parameter_that_is_unfrozen_is_averaged_from_then_on() -> None:
    joinsum.init(sites=2)
    model = mlp(6, 8, 3)
    model[3].bias.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ist = joinsum.IST(model, optimizer, every=1)
    found = []
    for number, batch in enumerate(batches(6, 6, 3)):
        if number == 2:
            model[3].bias.requires_grad_(True)
        step(model, optimizer, batch)
        if number >= 4:
            found.append(model[3].bias.detach().clone())
    assert ist.rounds == 3
    assert torch.equal(found[-1], model[3].bias)
    ist._subnets.next_turn()
    assert torch.equal(found[-1], model[3].bias)


def test_a_reset_optimizer_of_any_kind_ends_in_the_middle_of_a_round() -> None:
    joinsum.init(sites=2)
    model = mlp(6, 8, 3)
    optimizer = torch.optim.Adafactor(model.parameters(), lr=0.01)
    with joinsum.IST(model, optimizer, every=2, state="reset"):
        for batch in batches(6, 6, 3):
            step(model, optimizer, batch)
    assert model[0].weight.shape == (8, 6)
    step(model, optimizer, batches(1, 6, 3)[0])


class Complex(nn.Module):
    """A filter of complex weights before a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.weight, self.head = nn.Parameter(torch.randn(6, dtype=torch.complex64)), mlp(6, 8, 3)
        self.register_buffer("phase", torch.ones(6, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(torch.fft.ifft(torch.fft.fft(x) * self.weight * self.phase).real)


def test_complex_parameters_and_their_moments_are_averaged() -> None:
    joinsum.init(sites=2)
    model = Complex()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    ist = joinsum.IST(model, optimizer, every=1)
    trained, first = [], model.weight.detach().clone()
    optimizer.register_step_pre_hook(lambda *_: trained.append(model.weight.detach().clone() - 0.1 * model.weight.grad))
    for batch in batches(2, 6, 3):
        step(model, optimizer, batch)
    assert ist.rounds == 1
    assert not torch.equal(trained[0], trained[1])
    torch.testing.assert_close(model.weight.detach(), first + ((trained[0] - first) + (trained[1] - first)) / 2)
    moments = []
    for _ in range(2):
        moments.append(optimizer.state[model.weight]["momentum_buffer"].clone())
        ist._subnets.next_turn()
    assert not torch.equal(*moments)
    ist.gather()
    torch.testing.assert_close(optimizer.state[model.weight]["momentum_buffer"], sum(moments) / 2)
    assert torch.equal(model.phase, torch.ones(6, dtype=torch.complex64))


class Following(nn.Module):
    """Subtracts a running mean, for which each call makes a new tensor, and counts in one of more and more elements."""

    def __init__(self) -> None:
        super().__init__()
        self.head = mlp(6, 8, 3)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> Any:
        self.mean = 0.5 * self.mean + 0.5 * x.mean(0)
        self.calls = torch.zeros(len(self.calls) + 1)
        return self.head(x - self.mean.detach())


def test_buffers_that_the_forward_pass_makes_anew_are_each_sites_and_averaged() -> None:
    joinsum.init(sites=2)
    model = Following()
    ist = joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1), every=2)
    own = [torch.zeros(6), torch.zeros(6)]
    for place, batch in enumerate(batches(8, 6, 3)):
        step(model, ist.optimizer, batch)
        own[place % 2] = 0.5 * own[place % 2] + 0.5 * batch[0].mean(0)
        if place % 4 == 3:
            own = [(own[0] + own[1]) / 2] * 2
            torch.testing.assert_close(model.mean, own[0])
        if place % 4 == 1:
            assert ist.explain().round_bytes
            with ist.full() as full:
                torch.testing.assert_close(joinsum.full_state_dict(full)["mean"], (own[0] + own[1]) / 2)
    ist.gather()
    torch.testing.assert_close(model.mean, own[0])


def test_buffers_that_two_rounds_leave_alone_stay_the_same_objects() -> None:
    joinsum.init(sites=2)
    model = mlp(6, 8, 3)
    mean = model[1].running_mean
    with joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1), every=1) as ist:
        for batch in batches(4, 6, 3):
            step(model, ist.optimizer, batch)
    assert model[1].running_mean is mean


# --- refusals ---------------------------------------------------------------------------------------------------------


def refused(model: nn.Module, optimizer: Optimizer | None = None, sites: int = 2, **options: Any) -> str:
    joinsum.init(sites=sites)
    with pytest.raises(joinsum.PlanError) as caught:
        joinsum.IST(model, optimizer or torch.optim.SGD(model.parameters(), lr=0.1), **options)
    return str(caught.value)


def test_what_cannot_be_cut_is_refused_by_name() -> None:
    assert "producer=0, consumer=2" in refused(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    assert "0: they reach the output" in refused(nn.Sequential(nn.Linear(4, 8), nn.ReLU()))
    assert "layer=0, neurons=3, sites=4" in refused(mlp(4, 3, 2), sites=4)
    tied = mlp(4, 4, 4, 2)
    tied[3].weight = tied[0].weight
    assert "parameter=0.weight" in refused(tied)
    assert "module='head'" in refused(mlp(4, 8, 2), layers=[("0", "1", "head")])
    assert "module=2, kind=ReLU" in refused(mlp(4, 8, 2), layers=[("0", "1", "2")])
    assert "producer=0, consumer=3" in refused(mlp(4, 8, 2), layers=[("0", (), "3")])
    other = nn.Linear(2, 2)
    assert "shapes=[[2, 2], [2]]" in refused(mlp(4, 8, 2), torch.optim.SGD(other.parameters(), lr=0.1))
    assert "layers=[]" in refused(mlp(4, 8, 2), layers=[])
    assert 'homes="fixed"' in refused(mlp(4, 8, 2), buddy=True, homes="fixed")
    part = mlp(4, 8, 2)
    assert "parameter=0.weight" in refused(part, torch.optim.SGD(part[1:].parameters(), lr=0.1))
    computed = mlp(4, 8, 2)
    nn.utils.parametrizations.weight_norm(computed[0])
    assert "tensor=0.weight" in refused(computed)
    waves = nn.Sequential(nn.Linear(4, 8, dtype=torch.complex64), nn.Linear(8, 2, dtype=torch.complex64))
    assert "tensor=0.weight, dtype=torch.complex64" in refused(waves, unnormalised=True)
    lazy = nn.Sequential(nn.LazyLinear(8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    assert "parameter=0.weight" in refused(lazy)
    assert "every=0" in refused(mlp(4, 8, 2), every=0)
    assert "state='keep'" in refused(mlp(4, 8, 2), state="keep")
    assert "homes='here'" in refused(mlp(4, 8, 2), homes="here")
    assert "wire=torch.int8" in refused(mlp(4, 8, 2), wire=torch.int8)
    assert 'homes="fixed"' in refused(mlp(4, 8, 2), wire=torch.bfloat16, homes="fixed")
    placed = mlp(4, 8, 2)
    trained = joinsum.train_step(placed, nn.functional.cross_entropy, torch.optim.SGD(placed.parameters(), lr=0.1))
    trained(torch.ones(4, 4), torch.zeros(4, dtype=torch.long))
    assert "joinsum.gather(model) first: parameter=0.weight" in refused(placed)


def test_a_parameter_of_another_optimizer_is_refused_where_sites_take_turns() -> None:
    model = mlp(4, 8, 2)
    most = [p for p in model.parameters() if p is not model[3].bias]
    assert "one optimizer with parameter groups" in refused(model, torch.optim.SGD(most, lr=0.1))
    assert "parameter=3.bias" in refused(model, torch.optim.SGD(most, lr=0.1))
    model[3].bias.requires_grad_(False)
    joinsum.init(sites=2)
    joinsum.IST(model, torch.optim.SGD(most, lr=0.1))


def embedding() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(11, 6, sparse=True), nn.LayerNorm(6), nn.Linear(6, 3))


def test_states_that_are_sparse_are_refused_by_name() -> None:
    model = embedding()
    text = refused(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    assert "parameter=0.weight, optimizer=SGD, state=momentum_buffer" in text
    for options in ({"lr": 0.1}, {"lr": 0.1, "momentum": 0.9, "state": "reset"}):
        joinsum.init(sites=2)
        model = embedding()
        state: Any = options.pop("state", "carry")
        ist = joinsum.IST(model, torch.optim.SGD(model.parameters(), **options), every=1, state=state)
        for _ in range(4):
            ist.optimizer.zero_grad()
            model(torch.randint(0, 11, (4,))).square().mean().backward()
            ist.optimizer.step()
        assert ist.gather()[0].weight.shape == (11, 6)


def test_another_dtype_in_the_middle_of_training_is_named() -> None:
    joinsum.init(sites=2)
    model = mlp(6, 8, 3)
    ist = joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1))
    model.double()
    for call in (ist.end_round, lambda: step(model, ist.optimizer, batches(1, 6, 3, torch.float64)[0])):
        with pytest.raises(joinsum.PlanError, match=r"tensor=0.weight, dtype=torch.float64, former=torch.float32"):
            call()


def test_an_optimizer_that_is_not_elementwise_is_refused_by_name_or_reset() -> None:
    joinsum.init(sites=2)
    model = mlp(6, 8, 3)
    optimizer = torch.optim.Adafactor(model.parameters(), lr=0.01)
    with pytest.raises(joinsum.PlanError, match="optimizer=Adafactor, state=row_var"):
        joinsum.IST(model, optimizer)
    ist = joinsum.IST(model, optimizer, every=1, state="reset")
    for batch in batches(4, 6, 3):
        step(model, optimizer, batch)
    assert ist.rounds == 2


def test_the_subnets_tensors_are_not_saved_as_the_models() -> None:
    joinsum.init(sites=2)
    model = mlp(6, 8, 3)
    ist = joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(joinsum.PlanError, match="save_checkpoint"):
        model.state_dict()
    for part in (ist.optimizer, model[0]):
        with pytest.raises(joinsum.PlanError, match="save_checkpoint"):
            part.state_dict()
    with pytest.raises(joinsum.PlanError, match="copy or average the full one"):
        copy.deepcopy(model)
    with pytest.raises(joinsum.PlanError, match="has subnets already"):
        joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(joinsum.PlanError, match="site=2, sites=2"):
        ist.neurons("0", 2)
    ist.gather()
    assert model.state_dict()["0.weight"].shape == (8, 6)
    with pytest.raises(joinsum.PlanError, match="has ended"):
        ist.end_round()
