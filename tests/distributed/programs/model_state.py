"""Scenes of models and their state, one site per rank: tensors in blocks, DTensors, checkpoints."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import joinsum
import torch
import torch.distributed as dist
from joinsum import DistributedTensor
from stage import Scenes, error_of, rank, ranks, scene
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from models import new_model
from training import cut_type

SCENES: Scenes = {}


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


def common_folder() -> Path:
    """One folder for all ranks."""
    name = [tempfile.mkdtemp() if rank() == 0 else None]
    dist.broadcast_object_list(name)
    return Path(str(name[0]))


def cuts(x: torch.Tensor) -> list[DistributedTensor]:
    split = ", ".join(["0"] * len(joinsum.grid().axes))
    parts = [ranks(), 1]
    return [
        DistributedTensor.of(x, parts=parts, place=f"({split})"),
        DistributedTensor.of(x, parts=parts, place="replicated"),
        DistributedTensor.of(x, parts=[1, ranks()], place=f"({split.replace('0', '1')})"),
    ]


@scene(SCENES)
def blocks_on_ranks_compute_what_one_tensor_does() -> int:
    x = draw(7, 5)
    for cut in cuts(x):
        torch.testing.assert_close(cut.norm(), x.norm())
        torch.testing.assert_close(cut.sum(), x.sum())
        assert cut.max() == x.max()
        assert not (cut > 100).any()
        torch.testing.assert_close(
            torch.stack(torch._foreach_norm([cut, cut * 2])), torch.stack([x.norm(), 2 * x.norm()])
        )
        cut.mul_(2).add_(cut.clone(), alpha=0.5)
        assert torch.equal(cut.full_tensor(), x * 2 + x)
    return sum(block.numel() for block in cuts(x)[0].blocks())


@scene(SCENES)
def dtensors_are_the_same_memory() -> int:
    n, count = ranks(), 0
    axes = tuple(joinsum.grid().axes)
    placements: list[tuple[tuple[int, ...], list[Placement]]] = [
        ((n,), [Shard(0)]),
        ((n,), [Shard(1)]),
        ((n,), [Replicate()]),
    ]
    if len(axes) > 1:
        placements += [(axes, [Shard(0), Replicate()]), (axes, [Shard(1), Shard(0)]), (axes, [Shard(0), Shard(0)])]
    for shape, states in placements:
        x = draw(9, 6)  # nine rows are not even
        source = distribute_tensor(x.clone(), init_device_mesh("cpu", shape), states)
        own = joinsum.from_dtensor(source)
        assert torch.equal(own.full_tensor(), x)
        own.mul_(3)
        assert torch.equal(source.full_tensor(), 3 * x)
        back = joinsum.to_dtensor(own, source.device_mesh)
        assert torch.equal(back.full_tensor(), 3 * x)
        back.to_local().zero_()
        assert not own.full_tensor().any()
        count += 1
    return count


@scene(SCENES)
def what_dtensor_cannot_say_is_refused() -> list[str]:
    mesh = init_device_mesh("cpu", (ranks(),))
    partial = DTensor.from_local(draw(2, 2), mesh, [Partial()])
    absent = DistributedTensor.of(draw(2, 2), parts=[1, 1], place=f"({', '.join(['0'] * len(joinsum.grid().axes))})")
    return [error_of(lambda: joinsum.from_dtensor(partial))[1], error_of(lambda: joinsum.to_dtensor(absent))[1]]


def in_blocks() -> tuple[nn.Module, torch.optim.Optimizer]:
    from joinsum.distributed.distributed_tensor import replace_tensor

    model = new_model("mlp")
    for p in model.parameters():
        replace_tensor(p, DistributedTensor.stored_as(p, cut_type(p.shape, p.dtype)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    return model, optimizer


def full(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    state = [x for each in optimizer.state.values() for _, x in sorted(each.items())]
    every: list[Any] = [*model.state_dict().values(), *state]
    return [x.full_tensor() if isinstance(x, DistributedTensor) else x for x in every]


@scene(SCENES)
def checkpoints_go_to_other_numbers_of_sites_and_back() -> list[int]:
    folder = common_folder()
    group = joinsum.context()
    model, optimizer = in_blocks()
    joinsum.save_checkpoint(folder, model, optimizer, extra={"ranks": ranks()})
    wanted = full(model, optimizer)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    assert joinsum.load_checkpoint(folder, model, optimizer) == {"ranks": ranks()}
    assert all(torch.equal(x, y) for x, y in zip(full(model, optimizer), wanted, strict=True))
    sizes = []
    for sites in (1, 3, 8):  # each rank by itself
        from stage import enter

        enter(
            joinsum.Context(
                joinsum._C.make_loopback(sites), joinsum.Cluster(), None, 60.0, joinsum._C.make_store("memory")
            )
        )
        other, its = in_blocks()
        joinsum.load_checkpoint(folder, other, its)
        assert all(torch.equal(x, y) for x, y in zip(full(other, its), wanted, strict=True))
        sizes.append(sites)
        own = folder / f"of-{rank()}-{sites}"
        joinsum.save_checkpoint(own, other, its)
        enter(group)
        if rank() == 0:
            os.rename(own, folder / f"from-{sites}")
        dist.barrier()
        joinsum.load_checkpoint(folder / f"from-{sites}", model, optimizer)
        assert all(torch.equal(x, y) for x, y in zip(full(model, optimizer), wanted, strict=True))
    return sizes


@scene(SCENES)
def a_checkpoint_that_cannot_be_written_raises_everywhere() -> tuple[str, str, float]:
    folder = common_folder() / "file"
    if rank() == 0:
        folder.write_text("in the way")
    dist.barrier()
    model, optimizer = in_blocks()
    return error_of(lambda: joinsum.save_checkpoint(folder, model, optimizer))


class Slow(nn.Linear):
    """A model that takes its time to write a file."""

    def save_pretrained(self, path: Path) -> None:
        time.sleep(0.5)
        torch.save(self.state_dict(), path)


@scene(SCENES)
def a_pretrained_model_is_there_when_its_ranks_have_saved_it() -> bool:
    path = common_folder() / "weights"
    torch.manual_seed(0)
    model: Any = Slow(4, 6)
    weight = model.weight.detach().clone()
    joinsum.distribute(model, torch.ones(2, 4))
    model.save_pretrained(path)
    return torch.equal(torch.load(path)["weight"], weight)
