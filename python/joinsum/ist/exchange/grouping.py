"""Which tensors travel together: few large ones in a bundle, and as many bundles in an exchange's plan as a limit on
what is under way allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from joinsum.ist.subnets.bundles import Bundle
from joinsum.ist.subnets.sampling import Chunks

__all__ = ["grouped", "with_few_slices"]

# What a site has under way at once, beside its tensors: weights and states that have left their tensors and those that
# arrive. More travels one part after another.
TOGETHER_BYTES = 64 << 20

# Larger tensors than this are bundles of their own: plans read them in their memory where stacked ones are copied.
ALONE_BYTES = 1 << 20


def with_few_slices(bundles: Iterable[Bundle], chunks: Mapping[str, Chunks]) -> list[Bundle]:
    """The same tensors in bundles of which those that are large have few slices."""
    split = []
    for bundle in bundles:
        size = bundle.local_bytes(chunks, 0) // len(bundle.slices)
        split += bundle.split(1 if size > ALONE_BYTES else max(TOGETHER_BYTES // max(size, 1), 1))
    return split


def grouped(bundles: Iterable[Bundle], chunks: Mapping[str, Chunks]) -> list[list[Bundle]]:
    """Bundles that travel together: as many as keep what is under way below the limit."""
    groups: list[list[Bundle]] = []
    size = 0
    for bundle in bundles:
        own = bundle.local_bytes(chunks, 0)  # equal on all ranks
        if not groups or size + own > TOGETHER_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(bundle)
        size += own
    return groups
