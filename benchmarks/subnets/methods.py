"""Ways to train one module on several ranks. All have AdamW on each rank, and exchange every `every` steps.

| method | what the ranks exchange |
|---|---|
| ddp | gradients, in every step: torch's DistributedDataParallel |
| local_sgd | parameters, whose mean all take: torch's PeriodicModelAverager, as its PostLocalSGDOptimizer calls it |
| diloco | the sum of a round's changes, which an outer SGD with Nesterov's momentum applies |
| ist | neurons with their AdamW moments: joinsum.IST |
| ist_reset | neurons; the moments start at zero in every round |
| ist_scaled | as ist; in training, what the consumers read is multiplied by the number of ranks |
| ist_bf16 | as ist_scaled; what moves is rounded to bfloat16 |

Source of diloco: Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", algorithm 1
and section 3 (outer learning rate 0.7, momentum 0.9).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import joinsum
import torch
import torch.distributed as dist
from subnets.tasks import Batch, Task
from torch import Tensor, nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.optim.swa_utils import update_bn

__all__ = ["METHODS", "Method"]

OUTER_RATE = 0.7
OUTER_MOMENTUM = 0.9


class Method(ABC):
    """A model in training.

    every   steps between exchanges; 1 where every step has one
    """

    def __init__(self, task: Task, rate: float, every: int, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.task, self.every, self.seed = task, every, seed
        self.model = task.model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate, fused=True)
        self.prepare()

    def prepare(self) -> None:  # noqa: B027
        """Sets up what the method adds."""

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.model(x)
        return scores

    def step(self, batch: Batch) -> None:
        x, y = batch
        self.optimizer.zero_grad()
        self.task.loss(self.forward(x), y).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.exchange()

    def exchange(self) -> None:  # noqa: B027
        """After each step."""

    @abstractmethod
    def whole(self, batches: int) -> AbstractContextManager[nn.Module]:
        """The model as it would be used, for batches of each rank, its norms calibrated on so many; collective."""


class _Replicated(Method):
    """The ranks have the whole model, which is the same after an exchange."""

    @contextmanager
    def whole(self, batches: int) -> Iterator[nn.Module]:
        model = copy.deepcopy(self.model)
        update_bn(self.task.shard("train", batches), model)
        for name, buffer in model.named_buffers():
            if "running" in name:
                dist.all_reduce(buffer)
                buffer /= dist.get_world_size()
        yield model.eval()


class Ddp(_Replicated):
    def prepare(self) -> None:
        self.every = 1
        self.parallel = nn.parallel.DistributedDataParallel(self.model, gradient_as_bucket_view=True)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.parallel(x)
        return scores


class LocalSgd(_Replicated):
    def prepare(self) -> None:
        # The averager counts from 0 and averages at once without a warm-up.
        self.averager = PeriodicModelAverager(period=self.every, warmup_steps=self.every - 1)

    def exchange(self) -> None:
        self.averager.average_parameters(self.model.parameters())


class DiLoCo(_Replicated):
    def prepare(self) -> None:
        self.steps = 0
        self.outer = [nn.Parameter(each.detach().clone()) for each in self.model.parameters()]
        self.outer_optimizer = torch.optim.SGD(self.outer, lr=OUTER_RATE, momentum=OUTER_MOMENTUM, nesterov=True)

    @torch.no_grad()
    def exchange(self) -> None:
        self.steps += 1
        if self.steps % self.every:
            return
        inner = list(self.model.parameters())
        changes = torch.cat([(x - y).view(-1) for x, y in zip(self.outer, inner, strict=True)])
        dist.all_reduce(changes)
        changes /= dist.get_world_size()
        for x, change in zip(self.outer, torch.split(changes, [x.numel() for x in inner]), strict=True):
            x.grad = change.view_as(x)
        self.outer_optimizer.step()
        for x, y in zip(self.outer, inner, strict=True):
            y.copy_(x)


class Ist(Method):
    options: Mapping[str, Any] = {}

    def prepare(self) -> None:
        self.subnets = joinsum.IST(self.model, self.optimizer, every=self.every, seed=self.seed, **self.options)

    def whole(self, batches: int) -> AbstractContextManager[nn.Module]:
        return self.subnets.full(calibrate=self.task.shard("train", batches), batches=batches)


class IstReset(Ist):
    options: Mapping[str, Any] = {"state": "reset"}


class IstScaled(Ist):
    options: Mapping[str, Any] = {"scaled": True}


class IstBf16(Ist):
    options: Mapping[str, Any] = {"scaled": True, "wire": torch.bfloat16}


METHODS: Mapping[str, type[Method]] = {
    "ddp": Ddp,
    "local_sgd": LocalSgd,
    "diloco": DiLoCo,
    "ist": Ist,
    "ist_reset": IstReset,
    "ist_scaled": IstScaled,
    "ist_bf16": IstBf16,
}
