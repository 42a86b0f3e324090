"""A training step of two layers, written in the tensor relational algebra and planned for 4 sites.

    python examples/tra_ffnn.py

Prints the step as a program of the algebra, what its two classical plans cost on this data, and the losses of a few
steps. `joinsum train` trains with it in full; `train_xml.py` does the same from an ordinary nn.Module.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import joinsum
import torch
from joinsum import extreme
from joinsum.extreme.classifier import Classifier, Sizes, choose, step_program

DATA = Path(__file__).parents[1] / "data" / "debian-xml" / "train.txt.gz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    joinsum.init(sites=arguments.sites)
    points = extreme.load(DATA)
    sizes = Sizes(points=256, features=points.header.features, hidden=256, labels=points.header.labels)
    print(step_program(sizes, arguments.sites))
    decision = choose(sizes, arguments.sites)
    for name, cost in decision.costs.items():
        print(f"{name} parallel: {cost.wire_bytes:,} B between sites, {cost.seconds * 1e3:.1f} ms predicted")
    print(f"runs: {decision.reason}")
    classifier = Classifier(sizes, decision.chosen)
    batches = points.minibatches(sizes.points, torch.Generator().manual_seed(0))
    for number, rows in zip(range(1, arguments.steps + 1), batches, strict=False):
        print(f"step {number}: loss {classifier.step(*points.batch(rows)):.4f}", flush=True)


if __name__ == "__main__":
    main()
