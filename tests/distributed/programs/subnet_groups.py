"""Scenes of independent subnet training for four ranks: on one dimension of a mesh, in a job that uses all of it."""

from __future__ import annotations

import joinsum
import torch
import torch.distributed as dist
from joinsum import _C
from stage import Scenes, enter, error_of, everywhere, leave, rank, scene
from subnets import batches, equal, mlp, step
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

SCENES: Scenes = {}

EVERY = 3


def mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "ist"))


def new(row: int, place: int, group: object | None = None) -> tuple[joinsum.IST, nn.Module]:
    """Of each row another model and other subnets; ranks begin with the values of the row's first one."""
    model = mlp(10 * row + place)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return joinsum.IST(model, optimizer, every=EVERY, seed=row, group=group), model


def sent() -> int:
    """Bytes that the sites of this process sent in the last exchange."""
    return sum(entry.bytes_sent for entry in joinsum.trace())


@scene(SCENES)
def each_row_of_a_mesh_trains_what_two_loopback_sites_train() -> None:
    whole = mesh()
    row, place = whole.get_local_rank("data"), whole.get_local_rank("ist")
    rounds = 2 + 2 * row  # rows need not wait for each other
    data = batches(2 * (EVERY * rounds + 1))  # one step beyond the last round
    group = whole["ist"].get_group()
    ist, model = new(row, place, group if row == 0 else whole["ist"])
    assert joinsum.context().group is group
    assert (joinsum.sites(), ist.site) == (2, place)
    moved = []
    for number, batch in enumerate(data[place::2], 1):
        step(model, ist.optimizer, batch)
        if number % EVERY == 0:
            moved.append(sent())
        elif number > 1:
            assert ist.explain().ahead_bytes > 0
    assert ist.rounds == rounds
    own = ist.gather().state_dict()
    total = torch.tensor(moved)
    dist.all_reduce(total, group=group)
    assert everywhere(1) == 4

    enter(joinsum.Context(_C.make_loopback(2), joinsum.Cluster(), None, 60.0, _C.make_store("memory")))
    ist, model = new(row, 0)
    counted = []
    for number, batch in enumerate(data, 1):
        step(model, ist.optimizer, batch)
        if number % (2 * EVERY) == 0:
            counted.append(sent())
    assert equal(own, ist.gather().state_dict())
    # In the first round moments begin where the weights are that move while it lasts.
    assert total.tolist()[1:] == counted[1:]
    assert 0 < total[0] < counted[0]


@scene(SCENES)
def groups_that_do_not_fit_are_refused() -> list[str]:
    whole = mesh()
    pair = dist.new_group([0, 1])
    texts = []
    for group in (whole, "ist", *([pair] if rank() > 1 else [])):
        name, text, _ = error_of(lambda group=group: new(0, 0, group))  # type: ignore[misc]
        assert name == "PlanError", text
        texts.append(text)
    if rank() < 2:
        ist, _ = new(0, rank(), pair)
        assert (joinsum.sites(), ist.site) == (2, rank())
        ist.gather()
    assert everywhere(1) == 4
    return texts


@scene(SCENES)
def a_group_that_is_the_first_to_be_set_up_waits_for_no_other_rank() -> None:
    pair = dist.new_group([0, 2])
    if rank() in (0, 2):
        leave()
        ist, _ = new(0, rank(), pair)  # rank 0 is in more groups than rank 2
        assert joinsum.context().group is pair
        ist.gather()
    dist.barrier()
