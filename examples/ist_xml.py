"""Trains a classifier for 17,860 labels as random subnets, one on each site.

    python examples/ist_xml.py                                         # 4 sites in this process
    torchrun --nproc-per-node 4 examples/ist_xml.py                    # the same on 4 processes
    python examples/ist_xml.py --resume                                # goes on from the checkpoint in --out

Each site trains a fourth of the hidden units on batches of its own, and the sites exchange units every ten steps. The
full model is evaluated with BatchNorm's statistics computed anew; the curve is drawn in --out after each evaluation.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

import joinsum
import torch
import torch.nn.functional as F
from joinsum import extreme
from torch import Tensor, nn

DATA = Path(__file__).parents[1] / "data" / "debian-xml"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with train.txt.gz and test.txt.gz")
    parser.add_argument("--out", type=Path, default=Path("outputs/ist_xml"), help="folder of checkpoint and curve")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    parser.add_argument("--sites", type=int, default=4, help="sites in this process; under torchrun one per rank")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--every", type=int, default=10, help="steps of a round")
    parser.add_argument("--evaluate", type=int, default=10, help="rounds between two evaluations")
    parser.add_argument("--points", type=int, help="of the test file that are evaluated; by default all")
    parser.add_argument("--batch", type=int, default=64, help="of a site")
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--rate", type=float, default=3e-3)
    return parser.parse_args()


def network(features: int, hidden: int, labels: int) -> nn.Sequential:
    """The classifier, of one hidden layer."""
    return nn.Sequential(nn.Linear(features, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, labels))


def loss_of(scores: Tensor, target: Tensor) -> Tensor:
    """Binary cross entropy, summed over labels, mean over points."""
    return F.binary_cross_entropy_with_logits(scores, target, reduction="sum") / len(scores)


def batches(points: extreme.SparsePoints, batch: int, first: int) -> Iterator[tuple[Tensor, Tensor]]:
    """This process's batches from step `first` on: a step deals one to each site, in the order of the sites."""
    context = joinsum.context()
    step = batch * context.sites
    steps = len(points) // step
    number = first
    while True:
        generator = torch.Generator().manual_seed(number // steps)
        order = torch.randperm(len(points), generator=generator)[: steps * step].view(steps, context.sites, batch)
        for rows in order[number % steps :]:
            for site in context.local_sites:
                yield points.batch(rows[site])
            number += 1


@torch.no_grad()
def precision(model: nn.Module, points: extreme.SparsePoints, count: int, batch: int = 548) -> list[float]:
    """Precision at 1, 3 and 5 of the full model on the first points; every rank passes the same batches."""
    sums = torch.zeros(3, dtype=torch.float64)
    for start in range(0, count, batch):
        x, y = points.batch(range(start, min(start + batch, count)))
        sums += extreme.precision_sums(model(x), y, (1, 3, 5))
    return (sums / count).tolist()


def draw(curve: list[list[float]], path: Path) -> None:
    """Draws precision at 1, 3 and 5 by round."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for place, k in enumerate((1, 3, 5), start=1):
        axes.plot([point[0] for point in curve], [point[place] for point in curve], marker=".", label=f"P@{k}")
    axes.set(xlabel="round", ylabel="precision of the full model")
    axes.legend()
    figure.savefig(path)


def main() -> None:
    arguments = options()
    context = joinsum.init() if "RANK" in os.environ else joinsum.init(sites=arguments.sites)
    first = context.local_sites[0] == 0
    train, test = (extreme.load(arguments.data / f"{part}.txt.gz") for part in ("train", "test"))
    torch.manual_seed(0)
    model = network(train.header.features, arguments.hidden, train.header.labels)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate, fused=True)
    # Scores at full size: the output's bias has the right one then (docs/ist.md).
    ist = joinsum.IST(model, optimizer, every=arguments.every, scaled=True)
    curve: list[list[float]] = []
    if arguments.resume:
        curve = ist.load_checkpoint(arguments.out)["curve"]
    if first:
        arguments.out.mkdir(parents=True, exist_ok=True)
        print(str(ist.explain()).split("\n\nplan of")[0] if context.single_process else ist, flush=True)
    calibration = [train.batch(range(start, start + 512))[0] for start in range(0, 2048, 512)]
    begun, last = time.perf_counter(), ist.rounds
    for x, y in batches(train, arguments.batch, ist.rounds * arguments.every):
        if ist.rounds >= arguments.rounds:
            break
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
        if ist.rounds == last or ist.rounds % arguments.evaluate:
            continue
        seconds, last = time.perf_counter() - begun, ist.rounds
        with ist.full(calibrate=calibration, data="whole") as full:
            found = precision(full, test, min(arguments.points or len(test), len(test)))
        curve.append([ist.rounds, *found])
        ist.save_checkpoint(arguments.out, {"curve": curve})
        if first:
            text = ", ".join(f"P@{k} {value:.4f}" for k, value in zip((1, 3, 5), found, strict=True))
            print(f"round {ist.rounds}: {text}, {seconds:.0f} s of training", flush=True)
            draw(curve, arguments.out / "curve.png")
        begun = time.perf_counter()


if __name__ == "__main__":
    main()
