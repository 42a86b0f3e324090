"""Training steps of two wide layers with SGD: a network in the TRA paper's two shapes.

`amazon` has many features and labels and a small batch, so that its gradients are far larger than its activations; and
`speech` a large batch and a wide hidden layer.
Source: TRA paper, section 5.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from frame.contenders import Contender, Workload, own_rows, ranks, whole
from torch import Tensor, nn

from workloads.data_parallel import Training, by_torch, usual_contenders

__all__ = ["WORKLOAD"]


class Shape(NamedTuple):
    features: int
    hidden: int
    classes: int
    batch: int


SIZES: Mapping[str, Shape] = {"amazon": Shape(60_000, 500, 1_500, 100), "speech": Shape(1_600, 10_000, 10, 1_000)}
RATE = 0.1


def sgd(parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=RATE, fused=True)


def training_of(shape: Shape) -> Training:
    def model() -> nn.Module:
        first = nn.Linear(shape.features, shape.hidden, bias=False)
        return nn.Sequential(first, nn.ReLU(), nn.Linear(shape.hidden, shape.classes, bias=False))

    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(shape.batch, shape.features, generator=generator)
    target = torch.randint(shape.classes, (shape.batch,), generator=generator)
    return Training(model, F.cross_entropy, sgd, inputs, target)


def reference(size: str) -> Contender:
    return by_torch(training_of(SIZES[size]))


def contenders(size: str) -> dict[str, Callable[[], Contender]]:
    training = training_of(SIZES[size])
    found = usual_contenders(training)
    if ranks() == 1:
        return found | {"hand-coded: fused": lambda: by_hidden_split(training)}
    return found | {
        "hand-coded: data parallel": lambda: by_data(training),
        "hand-coded: model parallel": lambda: by_model(training),
        "hand-coded: hidden split": lambda: by_hidden_split(training),
    }


def _weights(training: Training) -> list[Tensor]:
    return [p.detach() for p in training.new_model().parameters()]


def _all_reduce(x: Tensor, operation: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> Tensor:
    if ranks() > 1:
        dist.all_reduce(x, operation)
    return x


def _gradient(scores: Tensor, target: Tensor, points: int) -> Tensor:
    """Of the mean cross entropy, by the scores; in their memory."""
    found = torch.softmax(scores, 1)
    found[torch.arange(len(target)), target] -= 1
    return found.div_(points)


def by_data(training: Training) -> Contender:
    """Each rank has its shard of the batch; a gradient is reduced while the next one is computed."""
    w1, w2 = _weights(training)
    x, target = own_rows(training.inputs), own_rows(training.target)
    g1, g2 = torch.empty_like(w1), torch.empty_like(w2)

    def step() -> None:
        hidden = (x @ w1.T).relu_()
        slope = _gradient(hidden @ w2.T, target, len(training.inputs))
        torch.mm(slope.T, hidden, out=g2)
        second = dist.all_reduce(g2, async_op=True)
        back = (slope @ w2).mul_(hidden > 0)
        torch.mm(back.T, x, out=g1)
        first = dist.all_reduce(g1, async_op=True)
        for work, w, g in ((second, w2, g2), (first, w1, g1)):
            assert work is not None
            work.wait()
            w.add_(g, alpha=-RATE)

    return Contender(step, result=lambda: [w1, w2])


def by_hidden_split(training: Training) -> Contender:
    """Each rank has its share of the hidden units; only the scores are reduced, and each gradient's product adds to the
    weights at once."""
    full = _weights(training)
    w1, w2 = own_rows(full[0]).clone(), own_rows(full[1], 1).contiguous()
    x, target = training.inputs, training.target

    def step() -> None:
        hidden = (x @ w1.T).relu_()
        slope = _gradient(_all_reduce(hidden @ w2.T), target, len(x))
        back = (slope @ w2).mul_(hidden > 0)
        w2.addmm_(slope.T, hidden, alpha=-RATE)
        w1.addmm_(back.T, x, alpha=-RATE)

    return Contender(step, result=lambda: [whole(w1, full[0]), whole(w2, full[1], 1)])


def by_model(training: Training) -> Contender:
    """Each rank has its share of the features and of the classes; hidden units and their gradients are reduced, and the
    softmax's largest scores and sums."""
    full = _weights(training)
    w1, w2 = own_rows(full[0], 1).contiguous(), own_rows(full[1]).clone()
    x, points = own_rows(training.inputs, 1).contiguous(), len(training.inputs)
    hot = own_rows(F.one_hot(training.target, len(full[1])).float(), 1).contiguous()

    def step() -> None:
        hidden = _all_reduce(x @ w1.T).relu_()
        scores = hidden @ w2.T
        exponentials = scores.sub_(_all_reduce(scores.amax(1, keepdim=True), dist.ReduceOp.MAX)).exp_()
        total = _all_reduce(exponentials.sum(1, keepdim=True))
        slope = exponentials.div_(total).sub_(hot).div_(points)
        back = _all_reduce(slope @ w2).mul_(hidden > 0)
        w2.addmm_(slope.T, hidden, alpha=-RATE)
        w1.addmm_(back.T, x, alpha=-RATE)

    return Contender(step, result=lambda: [whole(w1, full[0], 1), whole(w2, full[1])])


WORKLOAD = Workload(list(SIZES), reference, contenders, checked_steps=3, tolerance=1e-5)
