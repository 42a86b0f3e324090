"""Training goes on without sites that were lost, with what the others have written."""

from __future__ import annotations

import copy
from pathlib import Path

import joinsum
import pytest
import torch
from stacked_subnets import batches, mlp, step
from torch import nn


@pytest.mark.parametrize(("sites", "lost", "left"), [(2, 0, 1), (3, 2, 2), (4, 1, 3), (4, 3, 1), (5, 0, 4), (4, 2, 6)])
@pytest.mark.parametrize("steps", [0, 2, 5, 9])
def test_weights_outlive_a_site(sites: int, lost: int, left: int, steps: int, tmp_path: Path) -> None:
    """Without learning, whatever the phase, what is put together is the model that was cut."""
    joinsum.init(sites=sites)
    model, plain = mlp(6, 9, 20, 11, 3), mlp(6, 9, 20, 11, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    ist = joinsum.IST(model, optimizer, every=2, buddy=True)
    for batch in batches(steps * sites, 6, 3):
        step(model, optimizer, batch)
    ist.save_survivor(tmp_path)
    (tmp_path / f"site_{lost}.pt").unlink()
    joinsum.init(sites=left)
    again = mlp(6, 9, 20, 11, 3, seed=8)
    other = torch.optim.Adam(again.parameters(), lr=0.5)
    resumed = joinsum.IST(again, other, every=2, buddy=True)
    resumed.load_survivors(tmp_path)
    assert (resumed.rounds, resumed.steps) == (steps // 2, 2 * (steps // 2))
    assert other.param_groups[0]["lr"] == 0.0
    for batch in batches(4 * left, 6, 3):
        step(again, other, batch)
    assert (resumed.rounds, resumed.steps) == (steps // 2 + 2, 2 * (steps // 2) + 4)
    resumed.gather()
    for (name, found), wanted in zip(again.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(found, wanted), name


def test_a_lost_sites_weights_are_those_of_the_rounds_beginning(tmp_path: Path) -> None:
    sites, lost = 3, 1
    joinsum.init(sites=sites)
    model = mlp(6, 9, 20, 3, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    ist = joinsum.IST(model, optimizer, every=2, buddy=True)
    data = batches(9 * sites, 6, 3, torch.float64)
    for batch in data[: 8 * sites]:
        step(model, optimizer, batch)
    with ist.full() as full:
        begun = copy.deepcopy(joinsum.full_state_dict(full))  # the next call gives the same module other weights
    for batch in data[8 * sites :]:  # one step into the round
        step(model, optimizer, batch)
    with ist.full() as full:
        trained = joinsum.full_state_dict(full)
    gone = {layer: set(ist.neurons(layer, lost)) for layer in ("0", "3")}
    ist.save_survivor(tmp_path)
    (tmp_path / f"site_{lost}.pt").unlink()
    joinsum.init(sites=2)
    again = mlp(6, 9, 20, 3, seed=8, dtype=torch.float64)
    resumed = joinsum.IST(again, torch.optim.SGD(again.parameters(), lr=0.1, momentum=0.9), buddy=True)
    resumed.load_survivors(tmp_path)
    found = resumed.gather().state_dict()
    for neuron in range(9):
        source = begun if neuron in gone["0"] else trained
        assert torch.equal(found["0.weight"][neuron], source["0.weight"][neuron])
    for i in range(20):
        for j in range(9):
            source = begun if i in gone["3"] and j in gone["0"] else trained
            assert found["3.weight"][i, j] == source["3.weight"][i, j]
    assert torch.equal(found["6.bias"], begun["6.bias"])


def test_what_is_lost_with_its_copies_is_named(tmp_path: Path) -> None:
    for buddy, gone in ((False, [1]), (True, [1, 2])):
        joinsum.init(sites=3)
        model = mlp(6, 9, 20, 3)
        ist = joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1), buddy=buddy)
        folder = tmp_path / str(buddy)
        ist.save_survivor(folder)
        for site in gone:
            (folder / f"site_{site}.pt").unlink()
        joinsum.init(sites=1)
        again = mlp(6, 9, 20, 3)
        resumed = joinsum.IST(again, torch.optim.SGD(again.parameters(), lr=0.1))
        with pytest.raises(joinsum.CheckpointError, match=r"lost with all their copies.*tensor=0.weight, chunks="):
            resumed.load_survivors(folder)
    with pytest.raises(joinsum.CheckpointError, match="no site has written"):
        resumed.load_survivors(tmp_path / "empty")
    torch.save({"other": 1}, folder / "site_0.pt")
    with pytest.raises(joinsum.CheckpointError, match="not the weights of a site"):
        resumed.load_survivors(folder)


def test_files_of_an_earlier_loss_do_not_count(tmp_path: Path) -> None:
    joinsum.init(sites=4)
    model, plain = mlp(6, 9, 20, 3), mlp(6, 9, 20, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    ist = joinsum.IST(model, optimizer, every=2, buddy=True)
    for batch in batches(4, 6, 3):  # in the middle of the first round
        step(model, optimizer, batch)
    earlier = b""
    for sites, lost in ((4, 3), (3, 1)):
        ist.save_survivor(tmp_path)
        (tmp_path / f"site_{lost}.pt").unlink()
        if earlier:  # what the lost site wrote at the first loss
            (tmp_path / "site_1.pt").write_bytes(earlier)
        earlier = (tmp_path / "site_1.pt").read_bytes()
        joinsum.init(sites=sites - 1)
        model = mlp(6, 9, 20, 3, seed=5)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
        ist = joinsum.IST(model, optimizer, every=2, buddy=True)
        ist.load_survivors(tmp_path)
        for batch in batches(3 * (sites - 1), 6, 3):
            step(model, optimizer, batch)
    ist.gather()
    for (name, found), wanted in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(found, wanted), name


@pytest.mark.parametrize("left", [1, 2, 4])
def test_weights_with_fixed_homes_go_on_where_no_site_is_lost(left: int, tmp_path: Path) -> None:
    joinsum.init(sites=3)
    model, plain = mlp(6, 9, 20, 3), mlp(6, 9, 20, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    ist = joinsum.IST(model, optimizer, every=2, homes="fixed")
    for batch in batches(3 * 3, 6, 3):  # one step into the round
        step(model, optimizer, batch)
    ist.save_survivor(tmp_path)
    wanted = ist.gather().state_dict()
    joinsum.init(sites=left)
    resumed = joinsum.IST(plain, torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9), every=2, homes="fixed")
    resumed.load_survivors(tmp_path)
    found = resumed.gather().state_dict()
    for name in ("0.weight", "0.bias", "1.bias", "3.weight", "4.weight", "6.weight"):
        assert torch.equal(found[name], wanted[name]), name


def test_files_of_another_model_or_optimizer_are_refused(tmp_path: Path) -> None:
    joinsum.init(sites=2)
    model = mlp(6, 9, 20, 3)
    joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1), buddy=True).save_survivor(tmp_path)

    def refused(*widths: int, norm: type[nn.Module] = nn.BatchNorm1d, groups: int = 1, sites: int = 2) -> str:
        joinsum.init(sites=sites)
        other = mlp(*widths, norm=norm)
        parameters = list(other.parameters())
        lists = [parameters] if groups == 1 else [parameters[:2], parameters[2:]]
        ist = joinsum.IST(other, torch.optim.SGD([{"params": each} for each in lists], lr=0.1), buddy=True)
        with pytest.raises(joinsum.CheckpointError, match="of another model") as why:
            ist.load_survivors(tmp_path)
        return str(why.value)

    for sites in (1, 2, 3):
        assert "hidden layers: saved=['0', '3'], own=['0', '3', '6']" in refused(6, 9, 20, 8, 3, sites=sites)
        assert "neurons of layer 0: saved=9, own=10" in refused(6, 10, 20, 3, sites=sites)
        assert "elements of tensor 0.weight: saved=54, own=63" in refused(7, 9, 20, 3, sites=sites)
        assert "only one of them has: ['1.num_batches" in refused(6, 9, 20, 3, norm=nn.LayerNorm, sites=sites)
        assert "parameter groups of the optimizer: saved=1, own=2" in refused(6, 9, 20, 3, groups=2, sites=sites)


def test_writing_what_sites_have_leaves_the_turn_as_it_is(tmp_path: Path) -> None:
    found = []
    for writes in (False, True):
        joinsum.init(sites=3)
        model = mlp(6, 9, 20, 3)
        ist = joinsum.IST(model, torch.optim.Adam(model.parameters(), lr=0.1), every=2)
        for place, batch in enumerate(batches(15, 6, 3)):
            step(model, ist.optimizer, batch)
            if writes and place in (1, 4, 9):
                ist.save_survivor(tmp_path)
                assert ist.site == (place + 1) % 3
        found.append(ist.gather().state_dict())
    assert all(torch.equal(found[0][name], value) for name, value in found[1].items())
