"""Training steps in data parallelism, whatever the model: torch's two ways, and a hand-coded one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from frame.contenders import Absent, Contender, own_rows, ranks
from torch import Tensor, nn

__all__ = ["Training", "by_buckets", "by_ddp", "by_fsdp", "by_joinsum", "by_torch", "usual_contenders"]

BUCKET_BYTES = 4 << 20


@dataclass(frozen=True)
class Training:
    """How to make a model, its loss and an optimizer, and a batch; `max_norm` clips the gradients, 0 does not."""

    model: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    optimizer: Callable[[Sequence[Tensor]], torch.optim.Optimizer]
    inputs: Tensor
    target: Tensor
    max_norm: float = 0.0

    def new_model(self) -> nn.Module:
        """The same on every rank and for every contender."""
        torch.manual_seed(0)
        return self.model()


def _plain(model: nn.Module) -> list[Tensor]:
    """What training changes: parameters, and running statistics; of FSDP2's, full tensors (collective)."""
    state = [x.detach() for x in model.state_dict().values() if x.is_floating_point()]
    return [x.full_tensor() if hasattr(x, "full_tensor") else x for x in state]


def _trained(loss_of: Callable[[], Tensor], parameters: Iterable[Tensor], training: Training) -> Callable[[], Tensor]:
    """A step of the usual loop."""
    trained = list(parameters)
    optimizer = training.optimizer(trained)

    def step() -> Tensor:
        loss = loss_of()
        loss.backward()  # type: ignore[no-untyped-call]
        if training.max_norm:
            nn.utils.clip_grad_norm_(trained, training.max_norm)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def by_torch(training: Training) -> Contender:
    """Plain torch, the whole batch in this process."""
    model = training.new_model()
    step = _trained(lambda: training.loss(model(training.inputs), training.target), model.parameters(), training)
    return Contender(step, result=lambda: _plain(model))


def by_inductor(training: Training) -> Contender:
    """`torch.compile` of model and loss, in one process."""
    if shutil.which("g++") is None:
        raise Absent("inductor needs a C++ compiler")
    model = training.new_model()
    compiled = torch.compile(lambda inputs, target: training.loss(model(inputs), target))
    step = _trained(lambda: compiled(training.inputs, training.target), model.parameters(), training)
    return Contender(step, result=lambda: _plain(model))


def by_ddp(training: Training) -> Contender:
    """DistributedDataParallel: each rank has its shard of the batch, gradients are reduced in buckets."""
    model = training.new_model()
    # Buffers are equal on all ranks, and need not be sent.
    parallel = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, forward_sync_buffers=False)
    inputs, target = own_rows(training.inputs), own_rows(training.target)
    step = _trained(lambda: training.loss(parallel(inputs), target), model.parameters(), training)
    return Contender(step, result=lambda: _plain(model))


def by_fsdp(training: Training, layers: Callable[[Any], Sequence[nn.Module]]) -> Contender:
    """FSDP2: `fully_shard` of each layer and of the whole; weights stay gathered from forward to backward pass."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = training.new_model()
    mesh = init_device_mesh("cpu", (ranks(),))
    for layer in (*layers(model), model):
        fully_shard(layer, mesh=mesh, reshard_after_forward=False)
    inputs, target = own_rows(training.inputs), own_rows(training.target)
    step = _trained(lambda: training.loss(model(inputs), target), model.parameters(), training)
    return Contender(step, result=lambda: _plain(model))


class _Buckets:
    """All parameters in one array, and their gradients in another, which is reduced bucket by bucket while the backward
    pass goes on. The optimizer then updates one array."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = list(reversed(list(model.parameters())))  # roughly the order in which gradients come
        sizes = [p.numel() for p in self.parameters]
        self.weights = torch.cat([p.detach().flatten() for p in self.parameters])
        self.weights.grad = torch.zeros_like(self.weights)
        self._pending: list[dist.Work] = []
        ends = torch.tensor(sizes).cumsum(0).tolist()
        bucket, begin, count = 0, 0, 0
        self._members: list[int] = []
        self._slices: list[Tensor] = []
        for p, end, size in zip(self.parameters, ends, sizes, strict=True):
            p.data = self.weights[end - size : end].view_as(p)
            place = self.weights.grad[end - size : end].view_as(p)
            p.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda p, place=place, of=bucket: self._arrived(p, place, of)
            )
            count += 1
            if 4 * (end - begin) >= BUCKET_BYTES or end == ends[-1]:
                self._members.append(count)
                self._slices.append(self.weights.grad[begin:end])
                bucket, begin, count = bucket + 1, end, 0
        self._missing = list(self._members)

    def _arrived(self, p: Tensor, place: Tensor, bucket: int) -> None:
        assert p.grad is not None
        place.copy_(p.grad)
        p.grad = None
        self._missing[bucket] -= 1
        if self._missing[bucket] == 0:
            work = dist.all_reduce(self._slices[bucket], async_op=True)
            assert work is not None
            self._pending.append(work)

    def wait(self) -> None:
        for work in self._pending:
            work.wait()
        self._pending.clear()
        self._missing = list(self._members)


def by_buckets(training: Training) -> Contender:
    """Hand-coded: gradients are copied into one array, reduced in buckets while the backward pass goes on, and the
    optimizer's one call updates all weights as one array."""
    model = training.new_model()
    buckets = _Buckets(model)
    optimizer = training.optimizer([buckets.weights])
    inputs, target = own_rows(training.inputs), own_rows(training.target)

    def step() -> None:
        (training.loss(model(inputs), target) / ranks()).backward()  # type: ignore[no-untyped-call]
        buckets.wait()
        if training.max_norm:
            nn.utils.clip_grad_norm_([buckets.weights], training.max_norm)
        optimizer.step()

    return Contender(step, result=lambda: _plain(model))


def by_joinsum(training: Training) -> Contender:
    """`joinsum.train_step` as a new user calls it: every rank passes the whole batch, and nothing is pinned."""
    import joinsum

    joinsum.init()
    model = training.new_model()
    optimizer = training.optimizer(list(model.parameters()))
    train = joinsum.train_step(model, training.loss, optimizer, max_norm=training.max_norm or None)

    def result() -> list[Tensor]:
        train.sync()
        return _plain(model)

    def figures() -> dict[str, float]:
        cost = train.explain().passes[0].explanation.cost
        return {
            "predicted_seconds": cost.seconds,
            "predicted_peak_bytes": cost.peak_bytes,
            "predicted_wire_bytes": cost.wire_bytes,
            "sent_bytes_of_rank": joinsum.trace().bytes_sent,
            "moves_of_rank": sum(entry.bytes_sent > 0 for entry in joinsum.trace()),
        }

    return Contender(lambda: train(training.inputs, training.target), result, figures)


def usual_contenders(training: Training) -> dict[str, Callable[[], Contender]]:
    """joinsum; on one rank eager torch and its compiler, on several ones DDP."""
    found: dict[str, Callable[[], Contender]] = {"joinsum": lambda: by_joinsum(training)}
    if ranks() == 1:
        return found | {"torch": lambda: by_torch(training), "torch.compile": lambda: by_inductor(training)}
    return found | {"DDP": lambda: by_ddp(training)}
