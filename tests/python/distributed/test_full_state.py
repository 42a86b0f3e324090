"""Claims about state dictionaries with unsharded tensors, and about pickling distributed ones."""

from __future__ import annotations

import copy
import io
from pathlib import Path

import joinsum
import pytest
import torch
from joinsum import DistributedTensor
from models import batches, new_model
from safetensors.torch import load_file, save_file
from torch import nn
from training import CUTTING


@pytest.fixture(autouse=True)
def three_sites() -> None:
    joinsum.init(sites=3, cluster=CUTTING)


def trained(name: str) -> tuple[nn.Module, torch.optim.Optimizer, nn.Module, torch.optim.Optimizer]:
    """A plain and a distributed model after one step, each with its optimizer."""
    out: list[object] = []
    ((x, _),) = batches(name, 1)
    for distributed in (False, True):
        model = new_model(name)
        if distributed:
            joinsum.distribute(model, x)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        model(x).square().mean().backward()
        optimizer.step()
        out += [model, optimizer]
    return tuple(out)  # type: ignore[return-value]


@pytest.mark.parametrize("name", ["mlp", "gpt"])
def test_it_has_the_plain_tensors_under_the_plain_names(name: str) -> None:
    plain, plain_optimizer, model, optimizer = trained(name)
    found, wanted = joinsum.full_state_dict(model), plain.state_dict()
    assert list(found) == list(wanted)
    assert all(type(x) is torch.Tensor for x in found.values())
    torch.testing.assert_close(found, dict(wanted), rtol=1e-5, atol=1e-5)
    state = joinsum.full_state_dict(optimizer)
    torch.testing.assert_close(state["state"], plain_optimizer.state_dict()["state"], rtol=1e-5, atol=1e-5)
    assert state["param_groups"] == plain_optimizer.state_dict()["param_groups"]


def test_tensors_of_several_names_stay_shared() -> None:
    layer = nn.Linear(6, 6, bias=False)
    model = nn.Sequential(layer, nn.Tanh(), layer)
    joinsum.distribute(model, torch.ones(3, 6))
    found = joinsum.full_state_dict(model)
    assert found["0.weight"] is found["2.weight"]


@pytest.mark.parametrize("sites", [1, 2])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad])
def test_optimizers_share_nothing_with_the_state_of_another(kind: type[torch.optim.Optimizer], sites: int) -> None:
    joinsum.init(sites=sites, cluster=CUTTING)
    x = batches("mlp", 1)[0][0]

    def stepped(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    model, other = (joinsum.distribute(new_model("mlp"), x) for _ in range(2))
    ours, theirs = kind(model.parameters()), kind(other.parameters())
    stepped(model, ours)
    state = joinsum.full_state_dict(ours)
    before = copy.deepcopy(state)
    theirs.load_state_dict(state)
    other.load_state_dict(joinsum.full_state_dict(model))
    stepped(other, theirs)
    torch.testing.assert_close(joinsum.full_state_dict(ours)["state"], before["state"], rtol=0, atol=0)
    stepped(model, ours)
    torch.testing.assert_close(joinsum.full_state_dict(theirs)["state"], joinsum.full_state_dict(ours)["state"])


def test_plain_tensors_are_copied_and_tied_ones_stay_tied() -> None:
    layer = nn.Linear(4, 4, bias=False)
    model = nn.Sequential(layer, nn.BatchNorm1d(4), layer)
    found = joinsum.full_state_dict(model)
    assert found["0.weight"] is found["2.weight"]
    assert found["0.weight"].data_ptr() != layer.weight.data_ptr()
    layer.weight.data.zero_()
    assert found["0.weight"].abs().sum() > 0
    assert isinstance(joinsum.full_state_dict(nn.LazyLinear(3))["weight"], nn.UninitializedParameter)


def test_a_state_dictionary_of_mixed_contents() -> None:
    x = DistributedTensor.of(torch.arange(6.0), parts=3)
    found = joinsum.full_state_dict({"a": {"x": x}, "n": 3, "list": [torch.ones(2), "text"]})
    assert torch.equal(found["a"]["x"], torch.arange(6.0))
    assert found["n"] == 3
    assert found["list"][1] == "text"


@pytest.mark.parametrize(("source", "options"), [([], {}), ({}, {"ranks": "second"})])
def test_what_has_no_state_is_refused(source: object, options: dict[str, str]) -> None:
    with pytest.raises(joinsum.PlanError, match="full_state_dict"):
        joinsum.full_state_dict(source, **options)  # type: ignore[arg-type]


def test_in_one_process_torch_saves_unsharded_tensors(tmp_path: Path) -> None:
    plain, _, model, optimizer = trained("mlp")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    loaded = torch.load(tmp_path / "state.pt", weights_only=True)
    torch.testing.assert_close(loaded["model"], dict(plain.state_dict()), rtol=1e-5, atol=1e-5)
    other = joinsum.distribute(copy.deepcopy(new_model("mlp")), batches("mlp", 1)[0][0])
    other_optimizer = torch.optim.SGD(other.parameters(), lr=0.01, momentum=0.9)
    other.load_state_dict(loaded["model"])
    other_optimizer.load_state_dict(loaded["optimizer"])
    ((x, _),) = batches("mlp", 1)
    for each, its_optimizer in ((model, optimizer), (other, other_optimizer)):
        its_optimizer.zero_grad()
        each(x).square().mean().backward()
        its_optimizer.step()
    torch.testing.assert_close(joinsum.full_state_dict(other), joinsum.full_state_dict(model), rtol=0, atol=0)


def test_a_parameter_is_pickled_as_a_tensor() -> None:
    buffer = io.BytesIO()
    torch.save(DistributedTensor.of(torch.arange(4.0), parts=2), buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer), torch.arange(4.0))


def test_safetensors_gets_unsharded_tensors_or_a_remedy(tmp_path: Path) -> None:
    _, _, model, _ = trained("mlp")
    with pytest.raises(joinsum.PlanError, match=r"joinsum\.full_state_dict"):
        save_file(model.state_dict(), tmp_path / "model.safetensors")
    save_file(joinsum.full_state_dict(model), tmp_path / "model.safetensors")
    torch.testing.assert_close(load_file(tmp_path / "model.safetensors"), joinsum.full_state_dict(model))
