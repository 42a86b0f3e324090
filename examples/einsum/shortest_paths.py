"""All-pairs shortest paths by (min, +): in how many steps one Debian package pulls in another one.

D <- min over j of D[i, j] + D[j, k], until nothing changes: each round doubles the number of steps that are covered.
"""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import joinsum
import torch

DATA = Path(__file__).resolve().parents[2] / "data" / "debian-dependencies" / "edges.txt.gz"


def dependencies() -> dict[str, list[str]]:
    """What each package depends on; the first is `gnome-core`, which needs all others."""
    lines = gzip.decompress(DATA.read_bytes()).decode().splitlines()
    return {package: needed for package, *needed in map(str.split, lines)}


def one_step(graph: dict[str, list[str]]) -> torch.Tensor:
    """0 from a package to itself, 1 to what it depends on, infinity to others."""
    number = {package: i for i, package in enumerate(graph)}
    steps = torch.full((len(graph), len(graph)), float("inf"))
    for package, needed in graph.items():
        steps[number[package], [number[name] for name in needed]] = 1
    return steps.fill_diagonal_(0)


def all_pairs(steps: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Least numbers of steps, and the rounds that it took."""
    for rounds in range(1, len(steps)):
        further = joinsum.einsum("ij,jk->ik", steps, steps, join="add", agg="min")
        assert isinstance(further, torch.Tensor)
        if torch.equal(further, steps):
            return steps, rounds
        steps = further
    return steps, len(steps)


def main() -> None:
    joinsum.init(sites=4)
    graph = dependencies()
    packages = list(graph)
    steps, rounds = all_pairs(one_step(graph))
    edges = sum(map(len, graph.values()))
    print(f"{len(packages)} packages, {edges} dependencies, on 4 sites: {rounds} rounds of (min, +)")

    from_first = Counter(int(n) for n in steps[0])
    print(f"steps from {packages[0]}  " + " ".join(f"{n:4}" for n in sorted(from_first)))
    print(f"{'packages':{len(packages[0])}}            " + " ".join(f"{from_first[n]:4}" for n in sorted(from_first)))
    finite = steps.where(steps.isfinite(), torch.tensor(-1.0))
    longest = int(finite.max())
    start, end = divmod(int(finite.argmax()), len(packages))
    print(f"pairs with a path: {int(steps.isfinite().sum()):,}; the longest shortest one: {longest} steps, ", end="")
    print(f"from {packages[start]} to {packages[end]}")
    users = steps.isfinite().sum(0)
    most = users.topk(5).indices.tolist()
    print("needed by most: " + ", ".join(f"{packages[i]} {int(users[i]) - 1}" for i in most))
    joinsum.init()


if __name__ == "__main__":
    main()
