"""Cells of the bench: a workload at one size, on a number of ranks, over one network; and the sets of cells to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from network import Link

__all__ = ["SUITES", "Asked", "Cell", "Suite", "cells", "chosen_cells"]


class Cell(NamedTuple):
    """One setting. `network` is `open`, where the ranks meet on this machine, or a link of `network.py`."""

    workload: str
    size: str
    ranks: int
    network: str

    def __str__(self) -> str:
        return f"{self.workload} {self.size}, {self.ranks} rank{'s' * (self.ranks > 1)}, {self.network}"


class Suite(NamedTuple):
    """Blocks of cells (workloads, their sizes, ranks, networks), and the turns of each contender.

    No sizes stand for all of a workload, and no workloads for all.
    """

    turns: int
    blocks: Sequence[tuple[Sequence[str], Sequence[str], Sequence[int], Sequence[str]]]


_NETWORKS = ("1gbit", "10gbit")
SUITES = {
    "quick": Suite(
        7,
        [
            (["language_model"], ["gpt-4x256"], (1, 2, 4), ["open"]),
            (["ffnn"], ["amazon", "speech"], (2,), ["open"]),
            (["cnn"], ["3x16"], (2,), ["open"]),
            (["attention"], ["forward 4096"], (2,), ["open"]),
            (["semirings"], ["min-plus 1024"], (2,), ["open"]),
            (["products"], ["4000x4000x4000"], (2,), ["open"]),
        ],
    ),
    "standard": Suite(
        7,
        [
            ([], ["gpt-4x256", "gpt-4x512", "llama-4x256", "amazon", "speech"], (1, 2, 4), ["open"]),
            ([], ["3x16", "step 4096", "min-plus 1024", "logsumexp 1024"], (1, 2, 4), ["open"]),
            (["xml"], ["256"], (1, 2, 4), ["open"]),
            (["embeddings"], ["1e6 sgd"], (1, 2, 4), ["open"]),
            (["products"], ["4000x4000x4000", "600x38400x600", "4800x600x4800"], (1, 2, 4), ["open"]),
            (["nearest_neighbour"], ["50000x1200"], (1, 2, 4), ["open"]),
            ([], ["gpt-4x256", "amazon", "speech"], (2, 4), _NETWORKS),
            (["products"], ["4000x4000x4000"], (2, 4), _NETWORKS),
        ],
    ),
    "full": Suite(11, [([], [], (1, 2, 4), ("open", *_NETWORKS, "2x1gbit"))]),
}


def cells(suite: Suite, sizes: Mapping[str, Sequence[str]]) -> Iterator[Cell]:
    """The suite's cells, each once, in order; `sizes` are those of each workload."""
    found = set()
    for workloads, chosen, ranks, networks in suite.blocks:
        for workload, known in sizes.items():
            if workloads and workload not in workloads:
                continue
            for network in networks:
                for size in known:
                    for count in ranks:
                        cell = Cell(workload, size, count, network)
                        if (not chosen or size in chosen) and _exists(cell) and cell not in found:
                            found.add(cell)
                            yield cell


class Asked(NamedTuple):
    """What flags name; numbers of ranks and networks with commas between them."""

    workloads: Sequence[str]
    sizes: Sequence[str]
    ranks: str | None
    networks: str | None


def chosen_cells(suite: str, known: Mapping[str, Sequence[str]], asked: Asked) -> list[Cell]:
    """The suite's cells; flags that name something choose among all that exist. `known` are the sizes of each workload.

    >>> chosen_cells("quick", {"ffnn": ["amazon"]}, Asked([], [], "4", "1gbit"))
    [Cell(workload='ffnn', size='amazon', ranks=4, network='1gbit')]
    """
    chosen = SUITES[suite]
    if any(asked):
        counts = [int(count) for count in (asked.ranks or "1,2,4").split(",")]
        networks = (asked.networks or "open").split(",")
        chosen = Suite(chosen.turns, [(asked.workloads, asked.sizes, counts, networks)])
    for _, _, _, links in chosen.blocks:
        for link in links:
            if link != "open":
                Link.parse(link)
    return list(cells(chosen, known))


def _exists(cell: Cell) -> bool:
    """A network has at least two hosts."""
    hosts = cell.ranks // int(cell.network.split("x")[0]) if "x" in cell.network else cell.ranks
    return cell.network == "open" or hosts > 1
