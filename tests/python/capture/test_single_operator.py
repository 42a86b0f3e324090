"""Claims about operators of distributed tensors outside of a captured model: parts of a distributed model that are
called by themselves, views, and plain operands."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import joinsum
import pytest
import torch
import torch.nn.functional as F
from joinsum import DistributedTensor
from joinsum.capture import executable
from joinsum.distributed.distributed_tensor import gathered
from torch import Tensor, nn
from training import CUTTING


@pytest.fixture(autouse=True, params=[1, 3])
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    torch._dynamo.reset()
    joinsum.init(sites=request.param, cluster=CUTTING)
    yield request.param
    joinsum.init()


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def blocks(x: Tensor, sites: int) -> DistributedTensor:
    return DistributedTensor.of(x, parts=(sites, *(1 for _ in x.shape[1:])))


class Parts(nn.Module):
    """Layers of the usual kinds, of which `forward` is one use and `encode` another."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.embedding = nn.Embedding(9, 6, padding_idx=0)
        self.norm = nn.LayerNorm(6)
        self.linear = nn.Linear(6, 12)
        self.conv = nn.Conv2d(2, 6, 3, padding=1, stride=2)

    def encode(self, ids: Tensor) -> Tensor:
        """Computes with parameters themselves besides layers."""
        table = self.embedding.weight
        return (F.gelu(self.linear(self.norm(self.embedding(ids)))) @ self.linear.weight) * table.mean(0) + table[3]

    def forward(self, ids: Tensor, images: Tensor) -> Tensor:
        return self.linear(self.norm(self.embedding(ids))).sum((1, 2)) + self.conv(images).sum((1, 2, 3))


IDS = torch.tensor([[1, 2, 0, 3], [4, 4, 8, 5], [7, 6, 2, 1]])
CALLS: dict[str, tuple[Callable[[Parts, Tensor], Tensor], Tensor]] = {
    "linear": (lambda model, x: model.linear(x), draw(3, 4, 6)),
    "linear of a vector": (lambda model, x: model.linear(x), draw(6)),
    "layer norm": (lambda model, x: model.norm(x), draw(3, 4, 6)),
    "embedding": (lambda model, x: model.embedding(x), IDS),
    "convolution": (lambda model, x: model.conv(x), draw(3, 2, 6, 6)),
    "encode": (lambda model, x: model.encode(x), IDS),
}


def distributed_parts() -> tuple[Parts, Parts]:
    plain = Parts()
    return plain, joinsum.distribute(copy.deepcopy(plain), (IDS, draw(3, 2, 6, 6)))


@pytest.mark.parametrize(
    ("name", "differentiable"),
    [*((name, True) for name in CALLS), *((name, False) for name in ("linear", "layer norm", "convolution"))],
)
def test_parts_of_a_distributed_model_called_by_themselves_are_torchs(name: str, differentiable: bool) -> None:
    call, x = CALLS[name]
    plain, model = distributed_parts()
    inputs = [x.clone().requires_grad_(differentiable and x.is_floating_point()) for _ in range(2)]
    results = [call(each, given) for each, given in zip((plain, model), inputs, strict=True)]
    torch.testing.assert_close(gathered(results[1]), results[0])
    for result in results:
        (result * draw(*result.shape, seed=5)).sum().backward()
    if inputs[0].requires_grad:
        torch.testing.assert_close(gathered(inputs[1].grad), inputs[0].grad)
    for (key, p), q in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), key
        if q.grad is not None:
            torch.testing.assert_close(gathered(p.grad), q.grad)


@pytest.mark.parametrize("part_first", [True, False])
def test_gradients_of_parts_add_up_with_those_of_the_model(part_first: bool) -> None:
    plain, model = distributed_parts()
    for each in (plain, model):
        calls = [lambda each=each: each.encode(IDS), lambda each=each: each(IDS, draw(3, 2, 6, 6))]
        for call in calls if part_first else calls[::-1]:
            call().square().sum().backward()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(gathered(p.grad), q.grad)


def test_a_part_trains_in_the_users_loop_beside_the_whole_model() -> None:
    plain, model = distributed_parts()
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (plain, model)]
    for _ in range(2):
        for each, optimizer in zip((plain, model), optimizers, strict=True):
            optimizer.zero_grad()
            value = each(IDS, draw(3, 2, 6, 6)).square().mean() + each.encode(IDS).square().mean()
            value.backward()
            optimizer.step()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(gathered(p), q.detach())


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradients_parts_are_the_same(context: Callable[[], Any]) -> None:
    plain, model = distributed_parts()
    with context():
        torch.testing.assert_close(gathered(model.encode(IDS)), plain.encode(IDS))


def test_values_that_change_between_calls_are_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, model = distributed_parts()
    compiled: list[Any] = []
    original = executable.compile_fx
    monkeypatch.setattr(executable, "compile_fx", lambda graph: compiled.append(graph) or original(graph))
    x = draw(3, 4, 6)
    counts = []
    for i in range(3):
        with torch.no_grad():
            for each in (plain, model):
                each.linear.weight.mul_(i + 0.5)
            torch.testing.assert_close(gathered(model.linear(x * i)), plain.linear(x * i))
        counts.append(len(compiled))
    assert counts[0] == counts[2] > 0
    with torch.no_grad():
        torch.testing.assert_close(gathered(model.linear(x[0, :2])), plain.linear(x[0, :2]))


# --- views ------------------------------------------------------------------------------------------------------------

VIEWS: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.t(),
    lambda x: x[1],
    lambda x: x[:, 1:3],
    lambda x: x[::2],
    lambda x: x.view(-1),
    lambda x: x.reshape(2, 3, 4),
    lambda x: x.unsqueeze(1),
    lambda x: x.diagonal(),
    lambda x: x.expand(2, 6, 4),
    lambda x: x.view(6, 4),
    lambda x: x.T[2],
    lambda x: x.select(1, 0),
]


@pytest.mark.parametrize("index", range(len(VIEWS)))
def test_views_are_read_as_torchs(sites: int, index: int) -> None:
    x, view = draw(6, 4), VIEWS[index]
    wanted, found = view(x), view(blocks(x, sites))
    assert found.shape == wanted.shape
    torch.testing.assert_close(gathered(found), wanted, rtol=0, atol=0)
    torch.testing.assert_close(gathered(found * 2 + 1), wanted * 2 + 1)
    torch.testing.assert_close(found.sum(), wanted.sum())


@pytest.mark.parametrize("index", [0, 1, 2, 4, 7])
def test_gradients_go_through_views(sites: int, index: int) -> None:
    view = VIEWS[index]
    plain, cut = draw(6, 4).requires_grad_(), blocks(draw(6, 4), sites).requires_grad_()
    for x in (plain, cut):
        view(x).square().sum().backward()
    torch.testing.assert_close(gathered(cut.grad), plain.grad)


WRITES: list[Callable[[Tensor], Any]] = [
    lambda x: x[1].zero_(),
    lambda x: x[1].add_(1),
    lambda x: x.t().copy_(torch.ones(4, 6)),
    lambda x: x.view(-1).mul_(2),
    lambda x: x[:, 0].fill_(1),
    lambda x: torch._foreach_add_([x.t()], 1),
    lambda x: x.t().t().add_(1),
    lambda x: x.t().detach().add_(1),
    lambda x: torch.add(x.t(), 1, out=x.t()),
    lambda x: torch.mul(torch.ones(4), 2, out=x[1]),
    lambda x: x[1].data.add_(1),
    lambda x: x[1].view(4).add_(1),
    lambda x: x.split(2)[0].zero_(),
    lambda x: x.unbind(0)[1].zero_(),
    lambda x: x.__setitem__(1, 0.0),
    lambda x: x.__setitem__((slice(None), 0), torch.ones(6)),
]


@pytest.mark.parametrize("index", range(len(WRITES)))
def test_writes_into_views_are_torchs_or_refused(sites: int, index: int) -> None:
    """They are not lost, although a view may be a copy."""
    x, wanted = blocks(draw(6, 4), sites), draw(6, 4)
    WRITES[index](wanted)
    try:
        WRITES[index](x)
    except joinsum.PlanError:
        wanted = draw(6, 4)
    torch.testing.assert_close(x.full_tensor(), wanted, rtol=0, atol=0)


def test_views_of_the_same_shape_are_written(sites: int) -> None:
    x = blocks(draw(6, 4), sites)
    x.view(6, 4).add_(1)
    torch.testing.assert_close(x.full_tensor(), draw(6, 4) + 1)


# --- operators of plain and distributed tensors -----------------------------------------------------------------------

PAIRS: list[tuple[Callable[[Tensor, Tensor], Tensor], tuple[int, ...]]] = [
    (lambda x, y: x + y, (6, 4)),
    (lambda x, y: x * y, (4,)),
    (lambda x, y: y - x, (6, 1)),
    (lambda x, y: x / y, (1, 4)),
    (lambda x, y: torch.where(x > y, x, y), (4,)),
    (lambda x, y: x + y, (2, 6, 4)),
    (lambda x, y: y * x, (3, 1, 1)),
    (lambda x, y: x + y, ()),
    (lambda x, y: x @ y, (4, 5)),
    (lambda x, y: y @ x, (5, 6)),
    (lambda x, y: x.lerp(y, 0.25), (1, 4)),
    (lambda x, y: torch.cat([x, y]), (2, 4)),
    (lambda x, y: F.linear(y, x), (5, 4)),
]


@pytest.mark.parametrize("index", range(len(PAIRS)))
def test_a_plain_and_a_distributed_operand_are_combined_as_by_torch(sites: int, index: int) -> None:
    function, shape = PAIRS[index]
    plain = draw(6, 4).requires_grad_(), draw(*shape, seed=2).requires_grad_()
    cut = blocks(draw(6, 4), sites).requires_grad_(), draw(*shape, seed=2).requires_grad_()
    results = [function(*each) for each in (plain, cut)]
    torch.testing.assert_close(gathered(results[1]), results[0])
    for result in results:
        result.square().sum().backward()
    for p, q in zip(cut, plain, strict=True):
        torch.testing.assert_close(gathered(p.grad), q.grad)


def test_two_distributed_operands_of_different_shapes_are_broadcast(sites: int) -> None:
    x, row, column = draw(6, 4), draw(4, seed=2), draw(6, 1, seed=3)
    found = blocks(x, sites) * blocks(row, sites) + blocks(column, sites)
    torch.testing.assert_close(gathered(found), x * row + column)


SEVERAL: list[Callable[[Tensor], Any]] = [
    lambda x: x.topk(2),
    lambda x: x.max(1),
    lambda x: x.split([1, 3], 1),
    lambda x: x.sort(1),
    lambda x: x.unbind(1),
    lambda x: torch.var_mean(x, 0),
    lambda x: x.sum(0),
    lambda x: x.argmax(1),
    lambda x: x.softmax(0),
    lambda x: x.cumsum(1),
]


@pytest.mark.parametrize("index", range(len(SEVERAL)))
def test_other_operators_run_as_plans_of_their_own(sites: int, index: int) -> None:
    function, x = SEVERAL[index], draw(6, 4)
    wanted, found = function(x), function(blocks(x, sites))
    if isinstance(wanted, Tensor):
        wanted, found = (wanted,), (found,)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(gathered(one), other)


def test_an_operator_without_a_rule_raises_with_the_remedy(sites: int) -> None:
    x = blocks(draw(4, 4), sites)
    for call in (
        lambda: torch.pdist(x),
        lambda: torch.segment_reduce(x, "sum", lengths=torch.tensor([4])),
        lambda: x[x > 0],
    ):
        with pytest.raises(joinsum.PlanError, match=r"operator=aten\..*full_tensor"):
            call()
