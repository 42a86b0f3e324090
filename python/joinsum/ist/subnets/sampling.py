"""Which site trains which neurons in a round: a balanced random partition, derived from numbers that all sites know.

A hidden layer's neurons are cut into chunks as `joinsum.relation` cuts an axis into parts. A round gives each chunk a
position; sites own consecutive positions. Chunks of one size share the positions of that size, so that what a site
trains has the same shape in every round: of c chunks of a size, k positions are a site's, and each of these chunks is
there with probability k/c. `chunk_count` keeps that near 1/n. A site's positions are in the order of their chunks, so
that one site trains the layer as it is.

Source: thesis, section 2.3 (every neuron on exactly one site, marginal probability 1/n, layers independent).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch

__all__ = ["Assignment", "Chunks", "assignment", "chunk_count"]

# A layer has so many chunks for each site where a matrix lies between it and another cut layer; others are dealt out
# neuron by neuron up to so many. Where n does not divide the neurons, there may be some more.
_CHUNKS_FOR_EACH_SITE = 8
_SINGLE_NEURONS = 4096


def cut(extent: int, parts: int, part: int) -> int:
    """Where part number `part` of an axis begins, as joinsum divides axes: at ceil(part extent / parts)."""
    return -(-part * extent // parts)


def chunk_count(neurons: int, sites: int, pairs: bool) -> int:
    """How many chunks a layer is dealt out in: few, and such that each neuron is on each site with a probability near
    1/n. It is a multiple of n or the number of neurons, so the shares of the sites differ by one neuron at most.

    pairs   whether a matrix lies between this layer and another one that is cut, so that keys are pairs of chunks

    Where n divides the neurons, every multiple of n spreads both sizes of chunks evenly over the sites. Elsewhere a
    chunk of a size that c chunks have is on a site with a probability within 1/c of 1/n, so each size has half as many
    chunks as are wanted at least (4n with `pairs`), or every chunk is one neuron.

    >>> chunk_count(1024, sites=4, pairs=True), chunk_count(1024, sites=4, pairs=False)
    (32, 1024)
    >>> chunk_count(33, sites=4, pairs=True), chunk_count(1001, sites=4, pairs=True)  # 41 of 17 neurons, 19 of 16
    (33, 60)
    """
    wanted = _CHUNKS_FOR_EACH_SITE * sites if pairs else max(_SINGLE_NEURONS // sites, 1) * sites
    if neurons <= wanted or neurons % sites == 0:
        return min(neurons, wanted)
    for count in range(wanted, neurons, sites):
        larger = neurons % count
        if min(larger, count - larger) >= wanted // 2:
            return count
    return neurons


@dataclass(frozen=True)
class Chunks:
    """A hidden layer's neurons in chunks, and the sites that share them.

    >>> Chunks(neurons=10, count=8, sites=4).neurons_of_sites
    [3, 2, 3, 2]
    """

    neurons: int
    count: int
    sites: int

    @cached_property
    def sizes(self) -> list[int]:
        """Neurons of each chunk, and so of each position."""
        return [cut(self.neurons, self.count, i + 1) - cut(self.neurons, self.count, i) for i in range(self.count)]

    @cached_property
    def starts(self) -> list[int]:
        """The first neuron of each chunk."""
        return [cut(self.neurons, self.count, i) for i in range(self.count)]

    @cached_property
    def site_of_position(self) -> list[int]:
        """The site that owns each position."""
        return [site for site in range(self.sites) for _ in self.positions(site)]

    @cached_property
    def neurons_of_sites(self) -> list[int]:
        """How many neurons each site trains."""
        return [sum(self.sizes[position] for position in self.positions(site)) for site in range(self.sites)]

    @property
    def even(self) -> bool:
        """Whether sites have the parts of the axis that joinsum's even division gives them."""
        bounds = [cut(self.neurons, self.sites, site) for site in range(self.sites + 1)]
        return self.neurons_of_sites == [end - begin for begin, end in pairwise(bounds)]

    def positions(self, site: int) -> range:
        """The positions that a site owns."""
        return range(cut(self.count, self.sites, site), cut(self.count, self.sites, site + 1))


@dataclass(frozen=True)
class Assignment:
    """Where the chunks of a layer are trained in a round.

    position   of each chunk
    """

    chunks: Chunks
    position: tuple[int, ...]

    @cached_property
    def chunk(self) -> list[int]:
        """The chunk at each position."""
        inverse = [0] * len(self.position)
        for chunk, position in enumerate(self.position):
            inverse[position] = chunk
        return inverse

    @cached_property
    def site(self) -> list[int]:
        """The site that trains each chunk."""
        return [self.chunks.site_of_position[position] for position in self.position]

    def neurons(self, site: int) -> list[int]:
        """The neurons that a site trains, in the order of its parameters."""
        starts, sizes = self.chunks.starts, self.chunks.sizes
        own = [self.chunk[position] for position in self.chunks.positions(site)]
        return [neuron for chunk in own for neuron in range(starts[chunk], starts[chunk] + sizes[chunk])]


def assignment(chunks: Chunks, seed: int, round_number: int, layer: str) -> Assignment:
    """The assignment of a layer's chunks in a round, equal wherever it is computed.

    >>> drawn = assignment(Chunks(6, 6, 2), seed=1, round_number=0, layer="fc1")
    >>> sorted(drawn.neurons(0) + drawn.neurons(1))
    [0, 1, 2, 3, 4, 5]
    >>> assignment(Chunks(6, 6, 1), seed=1, round_number=0, layer="fc1").neurons(0)
    [0, 1, 2, 3, 4, 5]
    """
    digest = hashlib.sha256(f"{seed}/{round_number}/{layer}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    position = [0] * chunks.count
    for size in sorted(set(chunks.sizes)):
        alike = [chunk for chunk, extent in enumerate(chunks.sizes) if extent == size]
        drawn = [alike[i] for i in torch.randperm(len(alike), generator=generator).tolist()]
        for own in _by_site(chunks, alike):
            for place, chunk in zip(own, sorted(drawn[: len(own)]), strict=True):
                position[chunk] = place
            del drawn[: len(own)]
    return Assignment(chunks, tuple(position))


def _by_site(chunks: Chunks, positions: Sequence[int]) -> list[list[int]]:
    """The positions that each site owns among these."""
    owned: list[list[int]] = [[] for _ in range(chunks.sites)]
    for place in positions:
        owned[chunks.site_of_position[place]].append(place)
    return owned
