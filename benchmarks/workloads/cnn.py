"""Training steps of residual convolutional networks with batch norm, by SGD with momentum.

All contenders normalise by the statistics of the whole batch, as one process does, so that they train the same model.
Torch has no `SyncBatchNorm` for CPUs; DDP, FSDP2 and the hand-coded loop use the batch norm below, which reduces two
numbers a channel over the ranks in each direction. Their running statistics are then equal, and are never sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from frame.contenders import Contender, Workload, ranks
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from workloads.data_parallel import Training, by_buckets, by_fsdp, by_joinsum, by_torch, usual_contenders

__all__ = ["WORKLOAD"]

CLASSES = 10


class Shape(NamedTuple):
    """Stages of `blocks` residual blocks; each stage after the first doubles the width and halves the image."""

    width: int
    stages: int
    blocks: int
    image: int
    batch: int


SIZES: Mapping[str, Shape] = {"3x16": Shape(16, 3, 1, 32, 64), "4x32": Shape(32, 4, 2, 32, 32)}


class _OfAllRanks(torch.autograd.Function):
    """Batch norm by the statistics of equal shards on all ranks, in torch's own kernels and two sums."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, running: tuple[Tensor, Tensor], eps: float
    ) -> Tensor:
        mean, variance = torch.batch_norm_update_stats(x, None, None, 0.0)
        moments = torch.stack([mean, variance + mean.square()])
        dist.all_reduce(moments)
        mean, square = moments.div_(ranks())
        variance = square - mean.square()
        points = ranks() * x.numel() // len(weight)
        running[0].lerp_(mean, 0.1)
        running[1].lerp_(variance * (points / (points - 1)), 0.1)
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.eps, ctx.points = eps, points
        return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance = ctx.saved_tensors
        _, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
            slope, x, weight, mean, variance, None, None, False, ctx.eps, [False, True, True]
        )
        sums = torch.stack([of_weight, of_bias])
        dist.all_reduce(sums)
        inverse = (variance + ctx.eps).rsqrt()
        scale = weight * inverse
        per_x = -scale * inverse * sums[0] / ctx.points
        rest = -scale * sums[1] / ctx.points - per_x * mean
        scale, per_x, rest = (each[:, None, None] for each in (scale, per_x, rest))
        return torch.addcmul(rest, slope, scale).addcmul_(x, per_x), of_weight, of_bias, None, None


class _BatchNorm(nn.BatchNorm2d):
    def forward(self, x: Tensor) -> Tensor:
        running = (self.running_mean, self.running_var)
        result: Tensor = _OfAllRanks.apply(x, self.weight, self.bias, running, self.eps)  # type: ignore[no-untyped-call]
        return result


Norm = Callable[[int], nn.Module]


class Block(nn.Module):
    """Two convolutions of 3 x 3 and a shortcut, with one of 1 x 1 where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = norm(outputs), norm(outputs)
        same = stride == 1 and inputs == outputs
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.first(x)))
        return F.relu(self.norm2(self.second(y)) + self.shortcut(x))


class Network(nn.Module):
    def __init__(self, shape: Shape, norm: Norm) -> None:
        super().__init__()
        width = shape.width
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), norm(width), nn.ReLU())
        self.blocks = nn.ModuleList()
        for stage in range(shape.stages):
            for index in range(shape.blocks):
                grows = stage > 0 and index == 0
                self.blocks.append(Block(width, width * (1 + grows), 1 + grows, norm))
                width *= 1 + grows
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        result: Tensor = self.head(x.mean((2, 3)))
        return result


def momentum(parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    # Torch's fused SGD does not take FSDP2's parameters.
    fused = not any(isinstance(p, DTensor) for p in parameters)
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4, fused=fused, foreach=not fused)


def training_of(shape: Shape, norm: Norm) -> Training:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(shape.batch, 3, shape.image, shape.image, generator=generator)
    target = torch.randint(CLASSES, (shape.batch,), generator=generator)
    return Training(lambda: Network(shape, norm), F.cross_entropy, momentum, images, target)


def reference(size: str) -> Contender:
    return by_torch(training_of(SIZES[size], nn.BatchNorm2d))


def contenders(size: str) -> dict[str, Callable[[], Contender]]:
    plain = training_of(SIZES[size], nn.BatchNorm2d)
    if ranks() == 1:
        return usual_contenders(plain)
    divided = training_of(SIZES[size], _BatchNorm)
    return usual_contenders(divided) | {
        "joinsum": lambda: by_joinsum(plain),
        "FSDP2": lambda: by_fsdp(divided, lambda model: list(model.blocks)),
        "hand-coded: buckets": lambda: by_buckets(divided),
    }


# Of weights and running statistics, which three steps change by a sixth. Activations near zero amplify rounding errors.
WORKLOAD = Workload(list(SIZES), reference, contenders, checked_steps=3, tolerance=1e-3)
