"""Nearest neighbours by squared distances, on real data: predicts dependencies by the most similar package.

Packages are the words that describe them (data/debian-xml), projected at random to 64 directions.
"""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from pathlib import Path

import joinsum
import torch
from joinsum import extreme

DATA = Path(__file__).resolve().parents[2] / "data" / "debian-xml"
KNOWN, QUERIES, DIRECTIONS = 4000, 500, 64


def projected(path: Path, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first `count` points as vectors, [count, 64], and their labels, [count, labels]."""
    with closing(extreme.read_points(path)) as stream:
        directions = torch.randn(stream.header.features, DIRECTIONS, generator=torch.Generator().manual_seed(0))
        vectors = torch.zeros(count, DIRECTIONS)
        labels = torch.zeros(count, stream.header.labels, dtype=torch.bool)
        for i, point in enumerate(islice(stream, count)):
            vectors[i] = torch.from_numpy(point.values) @ directions[point.features]
            labels[i, point.labels] = True
    return vectors / DIRECTIONS**0.5, labels


def main() -> None:
    joinsum.init(sites=4)
    known, known_labels = projected(DATA / "train.txt.gz", KNOWN)
    queries, query_labels = projected(DATA / "test.txt.gz", QUERIES)
    distances = joinsum.einsum("ad,kd->ak", queries, known, join="squared_difference")
    nearest = distances.min(1)
    as_torch = torch.allclose(distances, torch.cdist(queries, known) ** 2, rtol=1e-4, atol=1e-4)
    print(f"{QUERIES} packages against {KNOWN}, {DIRECTIONS} directions, on 4 sites; as torch.cdist: {as_torch}")

    right = (known_labels[nearest.indices] & query_labels).sum()
    predicted = known_labels[nearest.indices].sum()
    frequent = known_labels.sum(0).topk(5).indices
    baseline = query_labels[:, frequent].float().mean()
    print(f"dependencies that the nearest package has too: {right / query_labels.sum():.3f} of those there are")
    print(f"precision: {right / predicted:.3f}; of the five most frequent dependencies: {baseline:.3f}")
    joinsum.init()


if __name__ == "__main__":
    main()
