"""Trains a classifier for 17,860 labels from an ordinary nn.Module: joinsum.train_step plans the step as a whole.

    python examples/train_xml.py                                       # 4 sites in this process
    torchrun --nproc-per-node 4 examples/train_xml.py                  # the same on 4 processes

The model, its initial weights, the batches and Adam are those of `joinsum train`, whose step is written in the tensor
relational algebra (`tra_ffnn.py`). So losses and precision are equal up to rounding.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import joinsum
import torch
import torch.nn.functional as F
from joinsum import extreme
from torch import Tensor, nn

DATA = Path(__file__).parents[1] / "data" / "debian-xml"


class Classifier(nn.Module):
    """Scores [n, labels] of points [n, features]: two layers without biases."""

    def __init__(self, features: int, hidden: int, labels: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first = nn.Parameter(torch.randn(features, hidden, generator=generator))
        self.second = nn.Parameter(torch.randn(hidden, labels, generator=generator) / hidden**0.5)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x @ self.first) @ self.second


def loss_of(scores: Tensor, target: Tensor) -> Tensor:
    """Binary cross entropy, summed over labels, mean over points."""
    return F.binary_cross_entropy_with_logits(scores, target, reduction="sum") / len(scores)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with train.txt.gz and test.txt.gz")
    parser.add_argument("--sites", type=int, default=4, help="sites in this process; under torchrun one per rank")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--steps", type=int, help="steps of an epoch at most")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=256)
    return parser.parse_args()


def say(text: str) -> None:
    if joinsum.context().local_sites[0] == 0:
        print(text, flush=True)


@torch.no_grad()
def precision(model: Classifier, points: extreme.SparsePoints, batch: int) -> list[float]:
    """Precision at 1, 3 and 5, of a model with plain weights."""
    sums = torch.zeros(3, dtype=torch.float64)
    for start in range(0, len(points), batch):
        x, y = points.batch(range(start, min(start + batch, len(points))))
        sums += extreme.precision_sums(model(x), y, (1, 3, 5))
    return (sums / len(points)).tolist()


def main() -> None:
    arguments = options()
    joinsum.init() if "RANK" in os.environ else joinsum.init(sites=arguments.sites)
    train, test = (extreme.load(arguments.data / f"{part}.txt.gz") for part in ("train", "test"))
    model = Classifier(train.header.features, arguments.hidden, train.header.labels, seed=0)
    step = joinsum.train_step(model, loss_of, torch.optim.Adam(model.parameters(), lr=2e-2))
    generator = torch.Generator().manual_seed(0)
    say(str(step.explain(*train.batch(range(arguments.batch)))))
    for epoch in range(1, arguments.epochs + 1):
        begun, total, trained = time.perf_counter(), 0.0, 0
        for number, rows in enumerate(train.minibatches(arguments.batch, generator)):
            if number == arguments.steps:
                break
            loss = step(*train.batch(rows)).item()
            total, trained = total + loss * len(rows), trained + len(rows)
        seconds = time.perf_counter() - begun
        step.sync()  # for the test, which is plain torch
        found = ", ".join(f"P@{k} {value:.4f}" for k, value in zip((1, 3, 5), precision(model, test, 512), strict=True))
        pace = seconds / trained * arguments.batch
        say(f"epoch {epoch}: mean loss {total / trained:.4f}, {found}, {pace:.2f} s a batch")


if __name__ == "__main__":
    main()
