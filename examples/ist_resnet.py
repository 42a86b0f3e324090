"""Trains a small ResNet on scikit-learn's digits as random subnets: each site has a share of the blocks' channels.

    python examples/ist_resnet.py                                      # 4 sites in this process
    torchrun --nproc-per-node 4 examples/ist_resnet.py                 # the same on 4 processes
    python examples/ist_resnet.py --resume                             # goes on from the checkpoint in --out

The channels between the two convolutions of each block are dealt out to the sites; stem, shortcuts and the sums of
blocks are trained by all sites and averaged. The full model is evaluated with BatchNorm's statistics computed anew; the
curve is drawn in --out after each evaluation. Needs scikit-learn for the images (1,797 of 8 x 8 pixels).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import joinsum
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """The basic block of a residual network."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """A stem, a block for each width, and a classifier; each block but the first halves height and width."""

    def __init__(self, widths: Sequence[int] = (32, 64, 128)) -> None:
        super().__init__()
        first, last = widths[0], widths[-1]
        self.stem = nn.Sequential(nn.Conv2d(1, first, 3, 1, 1, bias=False), nn.BatchNorm2d(first), nn.ReLU())
        narrowing = (Block(inputs, outputs, 2) for inputs, outputs in pairwise(widths))
        self.blocks = nn.Sequential(Block(first, first, 1), *narrowing)
        self.last = nn.Linear(last, 10)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.last(self.blocks(self.stem(x)).mean((2, 3)))
        return scores


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("outputs/ist_resnet"), help="folder of checkpoint and curve")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    parser.add_argument("--sites", type=int, default=4, help="sites in this process; under torchrun one per rank")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--every", type=int, default=5, help="steps of a round")
    parser.add_argument("--evaluate", type=int, default=5, help="rounds between two evaluations")
    parser.add_argument("--batch", type=int, default=32, help="of a site")
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 64, 128], help="channels of each block")
    return parser.parse_args()


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and labels to train on, and those to test on."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    x = (torch.from_numpy(images).float().view(-1, 1, 8, 8) / 16)[order]
    y = torch.from_numpy(labels).long()[order]
    return x[360:], y[360:], x[:360], y[:360]


def batches(points: int, batch: int, first: int) -> Iterator[Tensor]:
    """The rows of this process's batches from step `first` on, for each site in turn."""
    context = joinsum.context()
    step = first
    while True:
        generator = torch.Generator().manual_seed(step)
        drawn = torch.randint(0, points, (context.sites, batch), generator=generator)
        yield from (drawn[site] for site in context.local_sites)
        step += 1


def draw(curve: list[list[float]], path: Path) -> None:
    """Draws the accuracy by round."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([point[0] for point in curve], [point[1] for point in curve], marker=".")
    axes.set(xlabel="round", ylabel="accuracy of the full model")
    figure.savefig(path)


def main() -> None:
    arguments = options()
    context = joinsum.init() if "RANK" in os.environ else joinsum.init(sites=arguments.sites)
    x, y, test_x, test_y = digits()
    torch.manual_seed(0)
    model = ResNet(arguments.widths)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    ist = joinsum.IST(model, optimizer, every=arguments.every)
    curve: list[list[float]] = []
    if arguments.resume:
        curve = ist.load_checkpoint(arguments.out)["curve"]
    last = ist.rounds
    for rows in batches(len(x), arguments.batch, ist.rounds * arguments.every):
        if ist.rounds >= arguments.rounds:
            break
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
        if ist.rounds == last or ist.rounds % arguments.evaluate:
            continue
        last = ist.rounds
        with ist.full(calibrate=x.split(256), data="whole") as full, torch.no_grad():
            accuracy = (full(test_x).argmax(1) == test_y).float().mean().item()
        curve.append([ist.rounds, accuracy])
        ist.save_checkpoint(arguments.out, {"curve": curve})
        if context.local_sites[0] == 0:
            print(f"round {ist.rounds}: {accuracy:.3f} of the test images are right", flush=True)
            draw(curve, arguments.out / "curve.png")


if __name__ == "__main__":
    main()
