"""Scenes of sparse relations and operands on a group, against dense torch."""

from __future__ import annotations

import joinsum
import torch
from stage import Scenes, enter, on_group, scene
from torch import Tensor

SCENES: Scenes = {}


def operands(seed: int, density: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(1, 5, (23, 19), generator=generator).double()
    x = x * (torch.rand(23, 19, generator=generator) < density)
    return x, torch.randint(-4, 5, (19, 8), generator=generator).double()


@scene(SCENES)
def sparse_relations_move_and_are_multiplied() -> int:
    enter(on_group())
    axes, moved = len(joinsum.grid().axes), 0
    for seed, density in enumerate((0.0, 0.1, 0.6)):
        x, y = operands(seed, density)
        stored = joinsum.relation(x.to_sparse(), parts=(5, 4), place=[0] * axes).stored()
        for place in ([1] * axes, ["*"] * axes, [0, *["*"] * (axes - 1)], [0] * axes):
            stored = stored.move(place)
            assert torch.equal(stored.to_tensor().to_dense(), x)
            moved += 1
        a = joinsum.relation(stored)
        product = a.join(joinsum.relation(y, parts=(4, 2)), on=([1], [0]), kernel="matmul").aggregate(keep=[0, 2])
        assert torch.equal(product.to_tensor(), x @ y)
    return moved


@scene(SCENES)
def sparse_operands_are_divided() -> int:
    enter(on_group())
    for seed, density in enumerate((0.0, 0.2)):
        x, y = operands(seed, density)
        y.requires_grad_()
        value = joinsum.einsum("ij,jk->ik", joinsum.SparseTensor.from_torch(x.to_sparse()), y)
        assert isinstance(value, Tensor)
        assert torch.equal(value, x @ y)
        (found,) = torch.autograd.grad(value.square().sum(), y)
        (wanted,) = torch.autograd.grad((x @ y).square().sum(), y)
        assert torch.equal(found, wanted)
    return joinsum.sites()
