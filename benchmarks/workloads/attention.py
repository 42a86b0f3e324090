"""Attention alone, of one long sequence: forward, or a step that fits query, key and value to a target by SGD.

Each rank has its shard of the sequence and keeps it of the result, as between layers that are divided by sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from frame.contenders import Absent, Contender, Workload, own_rows, rank, ranks, whole
from torch import Tensor, nn

__all__ = ["WORKLOAD"]

HEAD = 64
RATE = 1.0


class Shape(NamedTuple):
    sequence: int
    heads: int
    trained: bool


SIZES: Mapping[str, Shape] = {
    "forward 4096": Shape(4096, 4, trained=False),
    "step 4096": Shape(4096, 4, trained=True),
    "forward 16384": Shape(16_384, 1, trained=False),
    "step 16384": Shape(16_384, 1, trained=True),
}


def operands(shape: Shape) -> list[Tensor]:
    """Query, key, value and target, [sequence, heads, 64]."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape.sequence, shape.heads, HEAD, generator=generator) for _ in range(4)]


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention of tensors [sequence, heads, 64]."""
    query, key, value = (x.transpose(0, 1).unsqueeze(0) for x in (query, key, value))
    return F.scaled_dot_product_attention(query, key, value).squeeze(0).transpose(0, 1)


def half_squares(result: Tensor, target: Tensor) -> Tensor:
    return (result - target).square().sum() / 2


def reference(size: str) -> Contender:
    return by_torch(SIZES[size], attend)


def contenders(size: str) -> dict[str, Callable[[], Contender]]:
    shape = SIZES[size]
    found = {"joinsum": lambda: by_train_step(shape) if shape.trained else by_distribute(shape)}
    if ranks() == 1:
        compiled = torch.compile(attend)
        return found | {"torch": lambda: by_torch(shape, attend), "torch.compile": lambda: by_torch(shape, compiled)}
    return found | {
        "hand-coded: gather": lambda: by_gather(shape),
        "hand-coded: ring": lambda: by_ring(shape),
        "hand-coded: heads": lambda: by_heads(shape),
        "context parallel": by_context_parallel,
    }


class _Attention(nn.Module):
    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value)


class _OfParameters(nn.Module):
    """Attention of tensors that are trained."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Parameter(x) for x in operands(shape)[:3])

    def forward(self) -> Tensor:
        return attend(self.query, self.key, self.value)


def by_distribute(shape: Shape) -> Contender:
    """`joinsum.distribute`, where every rank passes its shard and gets its shard."""
    import joinsum

    joinsum.init()
    *inputs, target = operands(shape)
    own = [own_rows(x).clone() for x in inputs]
    model = joinsum.distribute(_Attention(), tuple(own), data="sharded")
    result: list[Tensor] = []

    @torch.no_grad()
    def step() -> None:
        result[:] = [model(*own)]

    return Contender(step, lambda: [whole(result[0], target)])


def by_train_step(shape: Shape) -> Contender:
    """`joinsum.train_step`, whose parameters are stored as its plan wants."""
    import joinsum

    joinsum.init()
    model = _OfParameters(shape)
    target = operands(shape)[-1]
    train = joinsum.train_step(model, half_squares, torch.optim.SGD(model.parameters(), lr=RATE))

    def result() -> list[Tensor]:
        train.sync()
        return [x.detach() for x in model.parameters()]

    return Contender(lambda: train(target), result)


def by_torch(shape: Shape, attention: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Contender:
    """All in this process."""
    *inputs, target = operands(shape)
    result: list[Tensor] = []

    def step() -> None:
        if not shape.trained:
            result[:] = [attention(*inputs)]
            return
        leaves = [x.requires_grad_() for x in inputs]
        half_squares(attention(*leaves), target).backward()  # type: ignore[no-untyped-call]
        _update(inputs, [x.grad for x in leaves])
        result[:] = inputs

    return Contender(step, lambda: [x.detach() for x in result])


@torch.no_grad()
def _update(inputs: list[Tensor], gradients: list[Any]) -> None:
    for x, gradient in zip(inputs, gradients, strict=True):
        x.add_(gradient, alpha=-RATE)
        x.grad = None


class _Shards:
    """This rank's rows of all operands, heads first as torch's kernels want them, and of the forward result."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.full = operands(shape)[-1]
        own = [own_rows(x).transpose(0, 1).unsqueeze(0).contiguous() for x in operands(shape)]
        self.inputs, self.target = own[:3], own[3]
        self.result = own[3]

    def gathered(self) -> list[Tensor]:
        found = self.inputs if self.shape.trained else [self.result]
        return [whole(x.detach().squeeze(0).transpose(0, 1), self.full) for x in found]

    def contender(self, forward: Callable[[], None], backward: Callable[[Tensor], list[Tensor]]) -> Contender:
        """`forward` sets `result`; `backward` gives the inputs' gradients for that of the result."""

        @torch.no_grad()
        def step() -> None:
            forward()
            if self.shape.trained:
                _update(self.inputs, list(backward(self.result - self.target)))

        return Contender(step, self.gathered)


# Kernels with the logarithms of the softmax's sums, which merge parts of the keys.
_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def by_gather(shape: Shape) -> Contender:
    """Keys and values are gathered; the gradients of all are reduced to the ranks that have them."""
    own = _Shards(shape)
    pair = torch.empty(ranks(), *torch.stack(own.inputs[1:]).shape)
    saved: list[Tensor] = []

    def forward() -> None:
        dist.all_gather(list(pair), torch.stack(own.inputs[1:]))
        key, value = torch.cat(pair.unbind(), -2)
        own.result, sums = _forward(own.inputs[0], key, value)
        saved[:] = [key, value, own.result, sums]

    def backward(slope: Tensor) -> list[Tensor]:
        of_query, *of_pair = _backward(slope, own.inputs[0], *saved, 0.0, False)
        parts = torch.stack(of_pair).tensor_split(ranks(), -2)
        reduced = torch.empty_like(parts[rank()].contiguous())
        dist.reduce_scatter(reduced, [x.contiguous() for x in parts])
        return [of_query, *reduced]

    return own.contender(forward, backward)


def by_heads(shape: Shape) -> Contender:
    """All-to-all exchanges give each rank the whole sequence for its share of the heads, and its rows of the result."""
    if shape.heads % ranks() != 0:
        raise Absent(f"the heads do not divide evenly: heads={shape.heads}, ranks={ranks()}")
    own = _Shards(shape)
    saved: list[Tensor] = []

    def exchanged(tensors: list[Tensor], from_dim: int, to_dim: int) -> list[Tensor]:
        """Tensors [1, heads, sequence, 64] that were whole along `from_dim` and are now whole along `to_dim`."""
        parts = [x.contiguous() for x in torch.stack(tensors).tensor_split(ranks(), from_dim)]
        arrived = [torch.empty_like(x) for x in parts]
        dist.all_to_all(arrived, parts)
        return list(torch.cat(arrived, to_dim))

    def forward() -> None:
        inputs = exchanged(own.inputs, 2, 3)
        result, sums = _forward(*inputs)
        (own.result,) = exchanged([result], 3, 2)
        saved[:] = [*inputs, result, sums]

    def backward(slope: Tensor) -> list[Tensor]:
        (of_heads,) = exchanged([slope], 2, 3)
        return exchanged(list(_backward(of_heads, *saved, 0.0, False)), 3, 2)

    return own.contender(forward, backward)


def _nothing() -> None:
    """Waits for no message."""


def by_ring(shape: Shape) -> Contender:
    """Ring attention: keys and values go around while those before are attended to; in the backward pass once more,
    and the sums of their gradients follow one turn behind and end at their rank."""
    own = _Shards(shape)
    following, before = (rank() + 1) % ranks(), (rank() - 1) % ranks()
    saved: list[Tensor] = []

    def pass_on(x: Tensor, tag: int) -> tuple[Tensor, Callable[[], None]]:
        arriving = torch.empty_like(x)
        works = [dist.isend(x, following, tag=tag), dist.irecv(arriving, before, tag=tag)]

        def wait() -> None:
            for work in works:
                assert work is not None
                work.wait()

        return arriving, wait

    def forward() -> None:
        pair = torch.stack(own.inputs[1:])
        total = sums = torch.empty(0)
        for turn in range(ranks()):
            arriving, wait = pass_on(pair, turn) if turn + 1 < ranks() else (pair, _nothing)
            part, of_part = _forward(own.inputs[0], *pair)
            if turn == 0:
                total, sums = part, of_part
            else:
                merged = torch.logaddexp(sums, of_part)
                total = total * (sums - merged).exp().unsqueeze(-1)
                total.addcmul_(part, (of_part - merged).exp().unsqueeze(-1))
                sums = merged
            wait()
            pair = arriving
        own.result = total
        saved[:] = [total, sums]

    def backward(slope: Tensor) -> list[Tensor]:
        pair = torch.stack(own.inputs[1:])
        of_query = torch.zeros_like(slope)
        sent, arrive = torch.zeros_like(pair), _nothing
        for turn in range(ranks()):
            arriving, wait = pass_on(pair, turn) if turn + 1 < ranks() else (pair, _nothing)
            part, *of_pair = _backward(slope, own.inputs[0], *pair, *saved, 0.0, False)
            of_query += part
            arrive()
            sent, arrive = pass_on(torch.stack(of_pair).add_(sent), ranks() + turn)
            wait()
            pair = arriving
        arrive()
        return [of_query, *sent]

    return own.contender(forward, backward)


def by_context_parallel() -> Contender:
    raise Absent(
        "torch's `context_parallel` has no rules for the kernels of CPUs: the result comes back divided by heads, and "
        "the backward pass raises NotImplementedError"
    )


# Of the result, or of query, key and value after three steps.
WORKLOAD = Workload(list(SIZES), reference, contenders, checked_steps=3, tolerance=1e-5)
