"""Scenes of sparse relations and operands on a group, against dense torch."""

from __future__ import annotations

import joinsum
import torch
from stage import Scenes, enter, on_group, scene
from torch import Tensor, nn

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
        b = joinsum.relation(x.to_sparse(), parts=(5, 4), place=["*"] * axes)
        pairs = a.join(b, on=([0], [0]), kernel="contract[ij,ik->jk]").aggregate(keep=[1, 2])
        assert torch.equal(pairs.to_tensor().to_dense(), x.T @ x)
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


@scene(SCENES)
def sparse_queries_are_divided_and_folded() -> int:
    """How many einsums moved something. The machine is described so that division pays."""
    joinsum.init(cluster=joinsum.Cluster("slow sites, fast links", 1e6, 1e12, 1e-9))
    divided = 0
    for seed, density in enumerate((0.0, 0.1, 0.5)):
        x, y = operands(seed, density)[0], operands(seed + 7, density)[0]
        a, b = joinsum.SparseTensor.from_torch(x, levels="csr"), joinsum.SparseTensor.from_torch(y, levels="csr")
        for equation in ("ij,kj->ik", "ij,ij->j", "ij,kj,ik->", "ij,ik->jk"):
            count = equation.count(",") + 1
            third = torch.ones(23, 23, dtype=torch.float64)
            given, wanted = (a, b, third)[:count], torch.einsum(equation, *(x, y, third)[:count])
            found = joinsum.einsum(equation, *given, out_format="auto" if equation.endswith(">") else "coo")
            assert torch.equal(found if isinstance(found, Tensor) else found.to_dense(), wanted)
            divided += any(entry.bytes_sent > 0 for entry in joinsum.trace())
    far = joinsum.SparseTensor.from_torch(torch.where(x == 0, torch.inf, x), levels="csr", fill=torch.inf)
    found = joinsum.einsum("ij,kj->ik", far, far, join="add", agg="min", out_format="coo")
    assert isinstance(found, joinsum.SparseTensor)
    assert torch.equal(found.to_dense(), (far.to_dense()[:, None] + far.to_dense()[None]).amin(2))
    return divided


@scene(SCENES)
def ranks_have_equal_work_on_a_power_law_graph() -> list[int]:
    """Flops of this rank in a product whose operand has most entries in its first rows, and in one of two such
    operands."""
    joinsum.init(cluster=joinsum.Cluster("slow sites, fast links", 1e6, 1e12, 1e-9))
    draw = torch.Generator().manual_seed(0)
    places = (torch.rand(2, 40_000, generator=draw) ** 4 * 1000).long().unique(dim=1)
    a = joinsum.SparseTensor.from_coordinates(places, torch.ones(places.shape[1], dtype=torch.float64), (1000, 1000))
    x = torch.randint(-4, 5, (1000, 3), generator=draw).double()
    flops = []
    for equation, other in (("ij,jk->ik", x), ("ij,kj->i", a)):
        found = joinsum.einsum(equation, a, other)
        dense = other if isinstance(other, Tensor) else other.to_dense()
        assert torch.equal(found, torch.einsum(equation, a.to_dense(), dense))
        flops.append(sum(entry.flops for entry in joinsum.trace()))
    return flops


class GraphConvolution(nn.Module):
    def __init__(self, adjacency: Tensor) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.register_buffer("adjacency", adjacency)
        self.layer = nn.Linear(19, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sparse.mm(self.adjacency, self.layer(x))


@scene(SCENES)
def models_with_sparse_buffers_train() -> list[float]:
    enter(on_group())
    adjacency, classes = operands(3, 0.3)[0][:, :19], torch.arange(19) % 5
    adjacency = adjacency[:19].float()
    features = torch.eye(19)
    plain, model = GraphConvolution(adjacency), GraphConvolution(adjacency.to_sparse())
    theirs = torch.optim.SGD(plain.parameters(), lr=0.1)
    step = joinsum.train_step(model, nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    losses = []
    for _ in range(3):
        theirs.zero_grad()
        wanted = nn.functional.cross_entropy(plain(features), classes)
        wanted.backward()
        theirs.step()
        found = step(features, classes)
        torch.testing.assert_close(found, wanted.detach())
        losses.append(found.item())
    return losses
