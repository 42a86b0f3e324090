"""Scenes for four ranks: joinsum on one dimension of a mesh, inside a job that uses the whole world."""

from __future__ import annotations

import joinsum
import torch
import torch.distributed as dist
from stage import Scenes, error_of, everywhere, on_loopback, rank, scene
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

SCENES: Scenes = {}


def mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    left, right = joinsum.relation(x, parts=(3, 2)), joinsum.relation(y, parts=(2, 2))
    return left.join(right, on=([1], [0]), kernel="matmul").aggregate(keep=[0, 2]).to_tensor()


@scene(SCENES)
def each_row_of_a_mesh_computes_its_own() -> None:
    for dimension in ("model", "data"):
        whole = mesh()
        context = joinsum.init(group=whole[dimension], cluster=joinsum.Cluster(), timeout=60.0)
        assert (joinsum.sites(), context.local_sites) == (2, [whole.get_local_rank(dimension)])
        other = whole.get_local_rank("data" if dimension == "model" else "model")
        # Each pair has numbers of its own, and runs as often as it likes.
        generator = torch.Generator().manual_seed(other)
        for _ in range(1 + 4 * other):
            x, y = (torch.randint(-5, 6, (7, 6), generator=generator) for _ in range(2))
            assert torch.equal(product(x, y.T.contiguous()), x @ y.T)
        assert everywhere(1) == 4


@scene(SCENES)
def one_row_that_disagrees_leaves_the_other_alone() -> str:
    whole = mesh()
    joinsum.init(group=whole["model"], cluster=joinsum.Cluster(), timeout=60.0)
    row, place = whole.get_local_rank("data"), whole.get_local_rank("model")
    x = joinsum.relation(torch.ones(9 if (row, place) == (0, 1) else 6), parts=3)
    name, text, _ = error_of(lambda: x.aggregate(keep=[]).tuples())
    assert name == ("TransportError" if row == 0 else ""), text
    assert torch.equal(product(torch.ones(4, 4), torch.ones(4, 4)), torch.full((4, 4), 4.0))
    return text


@scene(SCENES)
def the_world_works_before_within_and_after() -> None:
    plain = torch.tensor([float(rank())])
    dist.all_reduce(plain)
    assert plain.item() == 6.0
    context = joinsum.init(cluster=joinsum.Cluster(), timeout=60.0)
    assert context.sites == 4
    x = torch.arange(24).reshape(4, 6)
    assert torch.equal(product(x, x.T.contiguous()), x @ x.T)
    assert str(context.grid) == str(on_loopback().grid) == "2x2"
    assert everywhere(1) == 4


@scene(SCENES)
def groups_that_do_not_fit_are_refused() -> None:
    name, text, _ = error_of(lambda: joinsum.init(group=mesh()))
    assert name == "PlanError", text
    name, text, _ = error_of(lambda: joinsum.init(sites=3))
    assert name == "PlanError", text
