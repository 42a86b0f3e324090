"""Claims about cross entropies: losses and gradients are torch's, also of shards of the classes, and no log softmax is
computed where the loss alone reads it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import joinsum
import pytest
import torch
import torch.nn.functional as F
from joinsum.capture import record
from joinsum.capture.decompositions.cross_entropy_nodes import use_cross_entropies
from joinsum.capture.interpret import interpret
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

ops = torch.ops.joinsum
REDUCTIONS = ["none", "mean", "sum"]


def sample(shape: tuple[int, ...], dtype: torch.dtype = torch.float64, scale: float = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(shape, dtype=dtype, generator=generator) * scale
    target = torch.randint(shape[1], (shape[0], *shape[2:]), generator=generator)
    target.view(-1)[0] = -100
    return scores, target


def gradient(loss: Callable[[Tensor], Tensor], scores: Tensor) -> tuple[Tensor, Tensor]:
    scores = scores.detach().requires_grad_()
    result = loss(scores)
    weights = torch.linspace(1, 2, result.numel(), dtype=result.dtype).view(result.shape)
    (slope,) = torch.autograd.grad((result * weights).sum(), scores)
    return result.detach(), slope


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("scale", [1, 1e4])
@pytest.mark.parametrize("shape", [(4, 7), (3, 9001), (3, 5, 2, 3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_loss_and_its_gradient_are_torchs(
    shape: tuple[int, ...], dtype: torch.dtype, scale: float, reduction: str, weighted: bool
) -> None:
    scores, target = sample(shape, dtype, scale)
    weight = torch.linspace(0, 3, shape[1], dtype=dtype) if weighted else None
    wanted, slope = gradient(lambda x: F.cross_entropy(x, target, weight, reduction=reduction), scores)
    number = REDUCTIONS.index(reduction)
    loss, total, share, lse = ops.cross_entropy(scores, target, weight, number, -100)
    grad = torch.linspace(1, 2, wanted.numel(), dtype=dtype).view(wanted.shape)
    found = ops.cross_entropy_backward(grad, scores, target, number, total, share, lse)
    slopes = composed(ops.cross_entropy_backward, grad, scores, target, number, total, share, lse)
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype is torch.float32 else {"rtol": 1e-10, "atol": 1e-12}
    torch.testing.assert_close(loss, wanted, **tolerance)
    torch.testing.assert_close(found, slope, **tolerance)
    torch.testing.assert_close(slopes, slope, **tolerance)
    over = scores.clone()
    given = ops.cross_entropy_backward.out(grad, over, target, number, total, share, lse, input_out=over)
    assert given is over
    assert torch.equal(over, found)


def composed(operator: Any, *arguments: object) -> Any:
    """What runs on devices that the operator has no kernel for."""
    return operator.default._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(6, 10), (3, 10, 4)], ids=str)
def test_shards_of_the_classes_compute_into_given_memory(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    scores, target = sample(shape, dtype)
    whole = scores.double().logsumexp(1)
    slope = torch.rand(target.shape).to(dtype)
    slope.view(-1)[0] = 0
    shards = list(pairwise([0, 3, 4, 10]))
    parts, sums, picked = [], [], []
    for begin, end in shards:
        shard = ([begin], [end - begin], [10])
        own = scores[:, begin:end].contiguous()
        sums.append(ops.class_lse.out(own, result_out=torch.empty_like(whole)))
        torch.testing.assert_close(sums[-1], ops.class_lse(own), rtol=1e-6, atol=1e-6)
        score, share = torch.empty_like(slope), torch.empty_like(slope)
        ops.class_scores.out(own, target, None, -100, *shard, score_out=score, share_out=share)
        assert all(map(torch.equal, (score, share), ops.class_scores(own, target, None, -100, *shard)))
        losses = ops.cross_entropy_of(whole, score, share)
        torch.testing.assert_close(losses, composed(ops.cross_entropy_of, whole, score, share))
        picked.append(score)
        functional = ops.cross_entropy_grad(own, target, whole, slope, *shard)
        torch.testing.assert_close(composed(ops.cross_entropy_grad, own, target, whole, slope, *shard), functional)
        assert ops.cross_entropy_grad.out(own, target, whole, slope, *shard, input_out=own) is own
        assert torch.equal(own, functional)
        parts.append(own)
    torch.testing.assert_close(torch.stack(sums).logsumexp(0), whole, rtol=1e-6, atol=1e-6)
    assert torch.equal(
        sum(picked)[target >= 0], scores.gather(1, target.clamp(min=0).unsqueeze(1)).squeeze(1)[target >= 0]
    )  # type: ignore[index]
    hot = torch.zeros(scores.shape).scatter_(1, target.clamp(min=0).unsqueeze(1), 1)
    wanted = (scores.float().softmax(1) - hot) * slope.float().unsqueeze(1)
    torch.testing.assert_close(
        torch.cat(parts, 1), wanted.to(dtype), rtol=2e-2 if dtype is torch.bfloat16 else 1e-5, atol=1e-3
    )


def test_a_shard_without_a_finite_score_adds_nothing() -> None:
    nothing = torch.full((2, 5), -torch.inf)
    found = ops.class_lse.out(nothing, result_out=torch.empty(2, dtype=torch.float64))
    assert found.tolist() == [-torch.inf] * 2
    assert ops.class_lse(nothing).tolist() == [-torch.inf] * 2


def test_a_class_out_of_range_is_named() -> None:
    scores, target = torch.zeros(2, 3), torch.tensor([1, 3])
    with pytest.raises(IndexError, match="an index is out of range: index=3, extent=3"):
        ops.cross_entropy(scores, target, None, 1, -100)


# --- where graphs have them -------------------------------------------------------------------------------------------


def traced(loss: Callable[..., Any], *arguments: Tensor) -> torch.fx.GraphModule:
    def step(scores: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
        return gradient(lambda x: loss(x, *rest), scores)

    return make_fx(step, tracing_mode="fake")(*arguments)


def names(gm: torch.fx.GraphModule) -> set[str]:
    return {node.target._opname for node in gm.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(4, 7), (3, 6, 2, 2)], ids=str)
def test_no_log_softmax_remains(shape: tuple[int, ...], weighted: bool, reduction: str) -> None:
    scores, target = sample(shape)
    given = [scores, target, *([torch.linspace(0, 3, shape[1], dtype=torch.float64)] if weighted else [])]
    gm = traced(lambda *x: F.cross_entropy(*x, reduction=reduction), *given)
    wanted = gm(*given)
    recorded = record(gm)
    assert use_cross_entropies(gm.graph) == 1
    gm.recompile()
    assert names(gm) >= {"cross_entropy", "cross_entropy_backward"}
    assert not names(gm) & {"_log_softmax", "_log_softmax_backward_data", "nll_loss_forward", "nll_loss_backward"}
    torch.testing.assert_close(gm(*given), wanted)
    text = str(recorded.graph())
    assert "log_softmax" not in text
    assert "nll" not in text
    for found, each in zip(interpret(recorded, given, check=True), wanted, strict=True):
        torch.testing.assert_close(found, each)


OTHERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "also its own result": lambda x, y: F.nll_loss(x.log_softmax(1), y) + x.log_softmax(1).sum(),
    "read twice": lambda x, y: (lambda scores: F.nll_loss(scores, y) + scores.square().mean())(x.log_softmax(1)),
    "another axis": lambda x, y: F.nll_loss(x.log_softmax(0), y),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_log_softmax_that_others_read_remains(name: str) -> None:
    given = sample((4, 7))
    gm = traced(OTHERS[name], *given)
    wanted = gm(*given)
    use_cross_entropies(gm.graph)
    gm.recompile()
    assert "_log_softmax" in names(gm)
    torch.testing.assert_close(gm(*given), wanted)


@pytest.mark.parametrize("sites", [1, 2, 4])
def test_a_training_step_on_divided_classes(sites: int) -> None:
    slow = joinsum.Cluster("slow sites, fast links", 1e6, 1e12, 1e-9)
    joinsum.init(sites=sites, cluster=slow, plan_cache=False)
    try:
        torch.manual_seed(3)
        plain, model = torch.nn.Linear(5, 12), torch.nn.Linear(5, 12)
        model.load_state_dict(plain.state_dict())
        x, target = torch.randn(2, 5), torch.tensor([11, 4])
        step = joinsum.train_step(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.5))
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            wanted = F.cross_entropy(plain(x), target)
            wanted.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            torch.testing.assert_close(step(x, target), wanted.detach())
        assert "log_softmax" not in str(step.explain())
        joinsum.gather(model)
        torch.testing.assert_close(model.weight.detach(), plain.weight.detach())
    finally:
        joinsum.init()
