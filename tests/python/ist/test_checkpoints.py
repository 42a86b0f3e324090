"""The full model beside the subnets, and checkpoints of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import joinsum
import pytest
import torch
import torch.distributed.checkpoint
from safetensors import safe_open
from stacked_subnets import OPTIMIZERS, Optimizer, Reference, batches, mlp, step, train_both
from torch import nn

# --- the full model ---------------------------------------------------------------------------------------------------


def test_the_full_model_is_the_one_that_gather_gives() -> None:
    joinsum.init(sites=3)
    model = mlp(6, 9, 20, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ist = joinsum.IST(model, optimizer, every=2)
    data = batches(14, 6, 3)
    for batch in data:  # in the middle of a round, and of the sites' turns
        step(model, optimizer, batch)
    with ist.full() as full, torch.no_grad():
        assert not full.training
        found, state = full(data[0][0]), joinsum.full_state_dict(full)
    with ist.full(calibrate=data, batches=4) as full, torch.no_grad():
        calibrated = full(data[0][0])
    step(model, optimizer, data[0])
    step(model, optimizer, data[1])
    ist.gather()
    plain = mlp(6, 9, 20, 3)
    plain.load_state_dict(state)
    torch.testing.assert_close(found, plain.eval()(data[0][0]))
    torch.optim.swa_utils.update_bn([x for x, _ in data[:4]], plain)
    torch.testing.assert_close(calibrated, plain.eval()(data[0][0]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sites", [1, 3])
def test_a_bag_of_embeddings_is_a_layer_whose_full_model_is_saved_for_the_plain_one(sites: int, tmp_path: Path) -> None:
    def network() -> nn.Sequential:
        layers = (nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 3))
        return nn.Sequential(nn.EmbeddingBag(30, 20, mode="sum", padding_idx=0), *layers)

    joinsum.init(sites=sites)
    torch.manual_seed(2)
    model = network()
    ist = joinsum.IST(model, torch.optim.Adam(model.parameters(), lr=0.01), every=2)
    assert model[0].weight.shape == (30, -(-20 // sites))
    generator = torch.Generator().manual_seed(5)
    data = [(torch.randint(30, (12, 7), generator=generator), classes) for _, classes in batches(4 * sites, 6, 3)]
    for batch in data:
        step(model, ist.optimizer, batch)
    assert ist.rounds == 2
    words = [each for each, _ in data]
    with ist.full(calibrate=words) as full, torch.no_grad():
        found = full(words[0])
        joinsum.save_safetensors(tmp_path / "model.safetensors", full)
    ist.gather()
    plain = network()
    joinsum.load_safetensors(tmp_path / "model.safetensors", plain)
    for (name, loaded), trained in zip(plain.named_parameters(), model.parameters(), strict=True):
        assert torch.equal(loaded, trained), name
    torch.testing.assert_close(found, plain.eval()(words[0]), rtol=1e-5, atol=1e-5)


def test_evaluation_changes_nothing_in_training() -> None:
    joinsum.init(sites=2)
    results = []
    for evaluates in (False, True):
        model = mlp(6, 9, 20, 3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        ist = joinsum.IST(model, optimizer, every=2)
        for number, batch in enumerate(batches(13, 6, 3)):
            step(model, optimizer, batch)
            if evaluates and number in (4, 5, 7):
                with ist.full(calibrate=[batch]) as full, torch.no_grad():
                    full(batch[0])
                ist.explain()
        results.append(ist.gather().state_dict())
    for name, wanted in results[0].items():
        assert torch.equal(results[1][name], wanted), name


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("later", [1, 2, 3, 5])
def test_a_checkpoint_goes_on_at_another_number_of_sites(later: int, tmp_path: Path) -> None:
    joinsum.init(sites=3)
    make = OPTIMIZERS["adam"]
    model = mlp(6, 9, 20, 3, dtype=torch.float64)
    optimizer = make(model.parameters())
    ist = joinsum.IST(model, optimizer, every=2, seed=4)
    for batch in batches(11, 6, 3, torch.float64):
        step(model, optimizer, batch)
    assert (ist.rounds, ist.steps) == (1, 3)
    ist.save_checkpoint(tmp_path, {"epoch": 1})
    saved = {name: tensor.clone() for name, tensor in ist.gather().state_dict().items()}
    states = {name: optimizer.state[p]["exp_avg"].clone() for name, p in model.named_parameters()}

    plain = mlp(6, 9, 20, 3, seed=9, dtype=torch.float64)
    joinsum.load_checkpoint(tmp_path, plain)
    assert all(torch.equal(plain.state_dict()[name], wanted) for name, wanted in saved.items())

    joinsum.init(sites=later)
    again = mlp(6, 9, 20, 3, seed=9, dtype=torch.float64)
    other = torch.optim.Adam(again.parameters(), lr=1.0)
    for goes_on in (False, True):
        resumed = joinsum.IST(again, other, every=2, seed=0)
        assert resumed.load_checkpoint(tmp_path) == {"epoch": 1}
        assert (resumed.rounds, resumed.steps) == (2, 3)
        assert other.param_groups[0]["lr"] == 0.01
        if goes_on:
            reference = Reference(model, make, later)
            reference.take(model, optimizer)
            train_both(reference, resumed, again, other, batches(4 * later, 6, 3, torch.float64), 2)
            assert resumed.steps == 7
        else:
            resumed.gather()
            assert all(torch.equal(again.state_dict()[name], wanted) for name, wanted in saved.items())
            for name, p in again.named_parameters():
                # The mean of what all sites have may differ in the last bit.
                tolerance = 1e-14 if name == "6.bias" else 0.0
                torch.testing.assert_close(other.state[p]["exp_avg"], states[name], rtol=tolerance, atol=0.0)


@pytest.mark.parametrize("state", ["carry", "reset"])
@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_checkpoints_of_all_optimizers_go_on_as_training_does(optimizer: str, state: Any, tmp_path: Path) -> None:
    class Scaled(nn.Module):
        """A first parameter that no layer cuts, and an MLP."""

        def __init__(self, seed: int) -> None:
            super().__init__()
            self.scale, self.inner = nn.Parameter(torch.ones(6)), mlp(6, 9, 20, 3, seed=seed)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x * self.scale)

    def begun(sites: int, seed: int) -> tuple[nn.Module, Optimizer, joinsum.IST]:
        joinsum.init(sites=sites)
        model = Scaled(seed)
        own = OPTIMIZERS[optimizer](model.parameters())
        return model, own, joinsum.IST(model, own, every=2, seed=4, state=state)

    def ended(ist: joinsum.IST, model: nn.Module, own: Optimizer) -> dict[str, torch.Tensor]:
        ist.gather()
        states = {
            f"{name}.{key}": value
            for name, p in model.named_parameters()
            for key, value in own.state.get(p, {}).items()
            if isinstance(value, torch.Tensor)
        }
        return {**model.state_dict(), **states}

    data = batches(21, 6, 3)
    for going_on, sites in (([], 3), ([], 1), (data[10:], 2)):
        model, own, ist = begun(2, 1)
        for batch in data[:10]:
            step(model, own, batch)
        ist.save_checkpoint(tmp_path)
        for batch in going_on:
            step(model, own, batch)
        wanted = ended(ist, model, own)
        again, other, resumed = begun(sites, 9)
        step(again, other, data[0])  # a checkpoint replaces what has been trained
        resumed.load_checkpoint(tmp_path)
        assert resumed.rounds == 3
        for batch in going_on:
            step(again, other, batch)
        found = ended(resumed, again, other)
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            if sites == 2:
                assert torch.equal(found[name], value), name
            else:  # a mean of equal moments rounds
                torch.testing.assert_close(found[name], value, rtol=1e-6, atol=0.0, msg=name)


class TiedEnds(nn.Module):
    """An embedding that is the last layer's weight, and a hidden layer between."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.up, self.norm = nn.Embedding(20, 6), nn.Linear(6, 10), nn.LayerNorm(10)
        self.down, self.last = nn.Linear(10, 6), nn.Linear(6, 20, bias=False)
        self.last.weight = self.words.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.down(self.norm(self.up(self.words(x))).relu()))


def test_torch_reads_a_checkpoint_with_tied_weights_into_the_plain_model(tmp_path: Path) -> None:
    joinsum.init(sites=2)
    torch.manual_seed(0)
    model = TiedEnds()
    ist = joinsum.IST(model, torch.optim.Adam(model.parameters(), lr=0.01), every=1)
    for seed in range(4):
        ist.optimizer.zero_grad()
        model(torch.randint(20, (5, 3), generator=torch.Generator().manual_seed(seed))).square().mean().backward()
        ist.optimizer.step()
    ist.save_checkpoint(tmp_path)
    plain, read = TiedEnds(), TiedEnds()
    joinsum.load_checkpoint(tmp_path, plain)
    folder = tmp_path / json.loads((tmp_path / "current.json").read_text())["data"]
    torch.distributed.checkpoint.load({"model": read.state_dict()}, checkpoint_id=folder, no_dist=True)
    wanted = ist.gather().state_dict()
    assert "last.weight" in wanted
    for found in (plain.state_dict(), read.state_dict()):
        assert all(torch.equal(found[name], value) for name, value in wanted.items())


def test_a_compiled_model_is_the_module_inside(tmp_path: Path) -> None:
    joinsum.init(sites=2)
    compiled: Any = torch.compile(mlp(6, 8, 3), backend="eager")
    ist = joinsum.IST(compiled, torch.optim.Adam(compiled.parameters(), lr=0.01), every=2)
    data = batches(8, 6, 3)
    for batch in data:
        step(compiled, ist.optimizer, batch)
    with ist.full() as full, torch.no_grad():
        found = full(data[0][0])
    ist.save_checkpoint(tmp_path)
    plain = mlp(6, 8, 3)
    joinsum.load_checkpoint(tmp_path, plain)
    torch.testing.assert_close(found, plain.eval()(data[0][0]))
    ist.gather()
    torch.testing.assert_close(compiled.eval()(data[0][0]), found)


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path: Path) -> None:
    joinsum.init(sites=2)
    model = mlp(6, 9, 3)
    optimizer = torch.optim.Adam(model.parameters())
    ist = joinsum.IST(model, optimizer, every=1)
    for batch in batches(2, 6, 3):
        step(model, optimizer, batch)
    ist.save_checkpoint(tmp_path)
    for other in (torch.optim.Rprop, torch.optim.Adagrad):
        again = mlp(6, 9, 3)
        resumed = joinsum.IST(again, other(again.parameters()))
        with pytest.raises(joinsum.CheckpointError, match=r"another optimizer: saved=\['exp_avg.*wanted="):
            resumed.load_checkpoint(tmp_path)


@pytest.mark.parametrize("make", [torch.optim.Adagrad, torch.optim.Adam])
def test_a_checkpoint_without_states_gives_an_optimizer_new_ones(make: Any, tmp_path: Path) -> None:
    joinsum.init(sites=2)
    model = mlp(6, 9, 3)
    optimizer = make(model.parameters(), lr=0.1)
    ist = joinsum.IST(model, optimizer, every=2, state="reset")
    for batch in batches(4, 6, 3):
        step(model, optimizer, batch)
    ist.save_checkpoint(tmp_path)
    ist.gather()
    plain, fresh = mlp(6, 9, 3, seed=4), mlp(6, 9, 3, seed=5)
    own = make(plain.parameters(), lr=0.01)
    step(plain, own, batches(1, 6, 3)[0])
    joinsum.load_checkpoint(tmp_path, plain, own)
    fresh.load_state_dict(model.state_dict())
    other = make(fresh.parameters(), lr=0.1)
    for batch in batches(3, 6, 3):
        step(plain, own, batch)
        step(fresh, other, batch)
    assert all(torch.equal(found, wanted) for found, wanted in zip(plain.parameters(), fresh.parameters(), strict=True))
    joinsum.save_checkpoint(tmp_path, plain)
    with pytest.raises(joinsum.CheckpointError, match=r"missing=\['optimizer\."):
        joinsum.load_checkpoint(tmp_path, plain, own)


def test_a_plain_checkpoint_begins_the_first_round(tmp_path: Path) -> None:
    joinsum.init(sites=2)
    model = mlp(6, 9, 20, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step(model, optimizer, batches(1, 6, 3)[0])
    joinsum.save_checkpoint(tmp_path, model, optimizer, {"epoch": 4})
    again = mlp(6, 9, 20, 3, seed=9)
    other = torch.optim.Adam(again.parameters())
    ist = joinsum.IST(again, other)
    assert (ist.load_checkpoint(tmp_path), ist.rounds) == ({"epoch": 4}, 0)
    ist.gather()
    for (name, found), wanted in zip(again.named_parameters(), model.parameters(), strict=True):
        assert torch.equal(found, wanted), name
        assert torch.equal(other.state[found]["exp_avg"], optimizer.state[wanted]["exp_avg"]), name


@pytest.mark.parametrize("later", [2, 3])
def test_weights_in_a_safetensors_file_go_on_as_a_checkpoint_does(later: int, tmp_path: Path) -> None:
    def begun(sites: int, seed: int) -> tuple[nn.Module, Optimizer, joinsum.IST]:
        joinsum.init(sites=sites)
        model = mlp(6, 9, 20, 3, seed=seed, dtype=torch.float64)
        own = torch.optim.SGD(model.parameters(), lr=0.05)
        return model, own, joinsum.IST(model, own, every=2, seed=4 if seed == 1 else 0)

    path, data = tmp_path / "model.safetensors", batches(13, 6, 3, torch.float64)
    model, own, ist = begun(3, 1)
    for batch in data[:8]:  # the second round has begun
        step(model, own, batch)
    ist.save_safetensors(path)
    assert (ist.rounds, ist.steps) == (2, 2)
    ist.save_checkpoint(tmp_path / "whole")
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert json.loads(metadata["joinsum.IST"]) == {"round": 2, "step": 2, "seed": 4}
    plain = mlp(6, 9, 20, 3, seed=9, dtype=torch.float64)
    joinsum.load_safetensors(path, plain)
    wanted = ist.gather().state_dict()
    assert all(torch.equal(plain.state_dict()[name], value) for name, value in wanted.items())

    results = []
    for from_file in (True, False):
        model, own, ist = begun(later, 9)
        step(model, own, data[0])  # the file replaces what has been trained
        if from_file:
            ist.load_safetensors(path)
        else:
            ist.load_checkpoint(tmp_path / "whole")
        assert (ist.rounds, ist.steps) == (2, 2)
        for batch in data[8:]:
            step(model, own, batch)
        results.append(ist.gather().state_dict())
    assert all(torch.equal(value, results[1][name]) for name, value in results[0].items())


def test_a_safetensors_file_leaves_no_state_of_the_optimizer(tmp_path: Path) -> None:
    joinsum.init(sites=2)
    model = mlp(6, 9, 3)
    optimizer = torch.optim.Adam(model.parameters())
    ist = joinsum.IST(model, optimizer, every=1)
    for batch in batches(4, 6, 3):
        step(model, optimizer, batch)
    joinsum.save_safetensors(tmp_path / "plain.safetensors", mlp(6, 9, 3, seed=7))
    ist.load_safetensors(tmp_path / "plain.safetensors")
    assert (ist.rounds, ist.steps, dict(optimizer.state)) == (0, 0, {})
    ist.gather()
    wanted = mlp(6, 9, 3, seed=7).state_dict()
    assert all(torch.equal(value, wanted[name]) for name, value in model.state_dict().items())


def test_safetensors_files_that_are_not_of_this_model_are_refused(tmp_path: Path) -> None:
    joinsum.init(sites=2)
    model = mlp(6, 9, 3)
    ist = joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1))
    path = tmp_path / "model.safetensors"
    joinsum.save_safetensors(path, mlp(6, 12, 3))
    with pytest.raises(joinsum.CheckpointError, match="weights of another model"):
        ist.load_safetensors(path)
    for note in ("[]", "{", '{"round": "x"}', '{"round": null}', '{"round": Infinity}', '{"step": -1}'):
        joinsum.save_safetensors(path, mlp(6, 9, 3), {"joinsum.IST": note})
        with pytest.raises(joinsum.CheckpointError, match="not rounds of subnets"):
            ist.load_safetensors(path)
    with pytest.raises(FileNotFoundError):
        ist.load_safetensors(tmp_path / "none")
