"""Graph networks as torch_geometric writes them, by gathers and scatters along a list of edges, trained on several
sites: losses and parameters are plain torch's, which agree with a dense adjacency matrix."""

from __future__ import annotations

from collections.abc import Iterator

import joinsum
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from training import CUTTING, divided, rare, same, sgd

NODES, EDGES, WIDTH, CLASSES = 12, 40, 6, 3


@pytest.fixture(autouse=True)
def afterwards_one_site() -> Iterator[None]:
    yield
    joinsum.init()


class MeanOfNeighbours(nn.Module):
    """GraphSAGE: the mean of messages by `index_add`, beside the node's own features."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.own, self.theirs = nn.Linear(width, out), nn.Linear(width, out, bias=False)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        total = torch.zeros_like(x).index_add(0, target, x.index_select(0, source))
        count = x.new_zeros(len(x)).index_add(0, target, x.new_ones(edges.shape[1]))
        return self.own(x) + self.theirs(total / count.clamp(min=1)[:, None])


class AttentionToNeighbours(nn.Module):
    """GAT: a softmax over the edges into each node, by `scatter_reduce` and `scatter_add`."""

    def __init__(self, width: int, out: int, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.layer = heads, nn.Linear(width, heads * out, bias=False)
        self.source, self.target = nn.Parameter(torch.randn(heads, out)), nn.Parameter(torch.randn(heads, out))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        values = self.layer(x).unflatten(1, (self.heads, -1))
        scores = (values * self.source).sum(-1)[source] + (values * self.target).sum(-1)[target]
        scores = F.leaky_relu(scores, 0.2)
        places = target[:, None].expand_as(scores)
        most = torch.full_like(scores[: len(x)], -torch.inf).scatter_reduce(0, places, scores.detach(), "amax")
        weights = (scores - most[target]).exp()
        total = torch.zeros_like(scores[: len(x)]).scatter_add(0, places, weights)
        weighted = values[source] * (weights / total[target])[..., None]
        summed = torch.zeros_like(values).scatter_add(0, target[:, None, None].expand_as(weighted), weighted)
        return summed.flatten(1)


class GraphNetwork(nn.Module):
    """Classes of nodes; the edges belong to the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.attention = MeanOfNeighbours(WIDTH, 8), AttentionToNeighbours(8, 4)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.head(F.elu(self.attention(F.relu(self.mean(x, edges)), edges)))


def new_model() -> nn.Module:
    torch.manual_seed(7)
    return GraphNetwork().double()


def data(count: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Features, edges from node to node with one from each node to itself, and classes."""
    generator = torch.Generator().manual_seed(11)
    loops = torch.arange(NODES).expand(2, -1)
    return [
        (
            torch.randn(NODES, WIDTH, generator=generator, dtype=torch.float64),
            torch.cat([torch.randint(NODES, (2, EDGES - NODES), generator=generator), loops], 1),
            torch.randint(CLASSES, (NODES,), generator=generator),
        )
        for _ in range(count)
    ]


def train(model: nn.Module) -> list[float]:
    optimizer = sgd(model.parameters())
    losses = []
    for x, edges, classes in data(3):
        loss = F.cross_entropy(model(x, edges), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sites", "way"), [(2, "train_step"), rare(4, "train_step"), rare(2, "distribute"), (4, "distribute")]
)
def test_messages_along_edges_train_as_by_torch(sites: int, way: str) -> None:
    torch._dynamo.reset()
    joinsum.init(sites=sites, cluster=CUTTING)
    plain, model = new_model(), new_model()
    wanted = train(plain)
    if way == "train_step":
        step = joinsum.train_step(model, F.cross_entropy, sgd(model.parameters()))
        losses = [step(*batch).item() for batch in data(3)]
        assert divided(model)
        step.sync()
    else:
        joinsum.distribute(model, data(1)[0][:2])
        losses = train(model)
        joinsum.gather(model)
    assert losses == pytest.approx(wanted, rel=1e-10)
    same(model, plain, 1e-10)


def test_messages_along_edges_are_products_with_the_adjacency_matrix() -> None:
    """The plain layers, of which the test above takes the truth."""
    ((x, edges, _),) = data(1)
    matrix = torch.zeros(NODES, NODES, dtype=torch.float64).index_put(
        (edges[1], edges[0]), torch.ones(EDGES, dtype=torch.float64), accumulate=True
    )
    torch.manual_seed(0)
    mean = MeanOfNeighbours(WIDTH, 8).double()
    wanted = mean.own(x) + mean.theirs((matrix @ x) / matrix.sum(1, keepdim=True))
    torch.testing.assert_close(mean(x, edges), wanted)
    attention = AttentionToNeighbours(WIDTH, 4, heads=1).double()
    values = attention.layer(x)
    scores = F.leaky_relu((values @ attention.target[0])[:, None] + values @ attention.source[0], 0.2)
    weights = scores.exp() * matrix
    torch.testing.assert_close(attention(x, edges), weights / weights.sum(1, keepdim=True) @ values)
