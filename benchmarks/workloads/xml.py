"""Training of the extreme classifier on Debian's packages: an epoch, batch by batch, with Adam.

A step takes the next batch of 256 points from the file's sparse points, makes it dense and trains on it, so that an
epoch takes as many times a step as it has batches. Each contender makes dense what it reads: a rank of DDP its rows.
Source: TRA paper, section 5.4.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from frame.contenders import Contender, Workload, rank, ranks
from torch import Tensor, nn

__all__ = ["WORKLOAD"]

DATA = Path(__file__).resolve().parents[2] / "data" / "debian-xml" / "train.txt.gz"
BATCH = 256
RATE = 2e-2
# Hidden units.
SIZES: Mapping[str, int] = {"256": 256, "1024": 1024}


@functools.cache
def points() -> Any:
    from joinsum import extreme

    return extreme.load(DATA)


def batches(own: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless full batches, in one order for all contenders; with `own`, this rank's rows of each."""
    from joinsum import extreme

    header = points().header
    generator = torch.Generator().manual_seed(0)
    count = BATCH // ranks() if own else BATCH
    buffers = extreme.DenseBatch(torch.empty(count, header.features), torch.empty(count, header.labels))
    while True:
        for rows in points().minibatches(BATCH, generator):
            if len(rows) == BATCH:
                yield points().batch(rows[rank() * count : (rank() + 1) * count] if own else rows, out=buffers)


class _Model(nn.Module):
    """The classifier's two layers, with its initial weights."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        header, generator = points().header, torch.Generator().manual_seed(0)
        self.w1 = nn.Parameter(torch.randn(header.features, hidden, generator=generator))
        self.w2 = nn.Parameter(torch.randn(hidden, header.labels, generator=generator) / hidden**0.5)

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.w1).relu() @ self.w2


def reference(size: str) -> Contender:
    return by_torch(SIZES[size])


def contenders(size: str) -> dict[str, Callable[[], Contender]]:
    hidden = SIZES[size]
    found = {"joinsum": lambda: by_joinsum(hidden)}
    if ranks() == 1:
        return found | {"torch": lambda: by_torch(hidden), "torch.compile": lambda: by_torch(hidden, torch.compile)}
    return found | {"DDP": lambda: by_torch(hidden, _distributed)}


def by_joinsum(hidden: int) -> Contender:
    """`joinsum.extreme.classifier`, with the plan that it chooses."""
    import joinsum
    from joinsum.extreme.classifier import Classifier, Sizes, Training

    joinsum.init()
    header = points().header
    classifier = Classifier(Sizes(BATCH, header.features, hidden, header.labels), training=Training(rate=RATE))
    stream = batches(own=False)

    def result() -> list[Tensor]:
        state = classifier.state_dict()
        return [state["W1"], state["W2"]]

    return Contender(lambda: classifier.step(*next(stream)), result, figures)


def figures() -> dict[str, float]:
    return {"steps_of_an_epoch": len(points()) / BATCH}


def _distributed(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)


def by_torch(hidden: int, parallel: Callable[[Any], Any] = lambda model: model) -> Contender:
    """The same model and update in plain torch; `parallel` compiles it, or makes it DDP's."""
    model = _Model(hidden)
    forward = parallel(model)
    adam = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
    stream = batches(own=parallel is _distributed)

    def step() -> float:
        x, y = next(stream)
        loss = F.binary_cross_entropy_with_logits(forward(x), y, reduction="sum") / len(x)
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
        adam.zero_grad()
        return loss.item()

    return Contender(step, lambda: [x.detach() for x in model.parameters()], figures)


# Of the weights. Adam's first steps have the gradients' signs, which rounding errors decide where these are tiny.
WORKLOAD = Workload(list(SIZES), reference, contenders, checked_steps=2, tolerance=1e-4)
