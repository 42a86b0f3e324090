"""Where a second copy of each block is, so that no site has the only one.

A block that moves to another site leaves its value of the round's beginning where it was: that is its copy, and costs
no message. A block that has been trained and stays gets a copy on the next site. All others keep theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["CopyChoice", "Key", "choose_copies", "first_copies"]

# A block's chunk in each of its one or two layers.
Key = tuple[int, ...]


@dataclass(frozen=True)
class CopyChoice:
    """For each block, by its number, the site of its copy, and whether that is made anew.

    counts   chunks of the layers
    """

    counts: tuple[int, ...]
    target: tuple[int, ...]
    fresh: tuple[bool, ...]

    def number(self, key: Sequence[Any]) -> Any:
        """A block's number: its chunks as one row-major index."""
        number = key[0]
        for count, component in zip(self.counts[1:], key[1:], strict=True):
            number = number * count + component
        return number

    def sites(self) -> dict[Key, int]:
        """The site of each block's copy."""
        return {key: self.target[self.number(key)] for key in keys_of(self.counts)}


def keys_of(counts: Sequence[int]) -> list[Key]:
    """All blocks, in the order of their numbers."""
    keys: list[Key] = [()]
    for count in counts:
        keys = [(*key, component) for key in keys for component in range(count)]
    return keys


def first_copies(counts: Sequence[int], owners: Mapping[Key, int], sites: int) -> CopyChoice:
    """Copies at the beginning: on the site after the owner."""
    keys = keys_of(counts)
    return CopyChoice(tuple(counts), tuple((owners[key] + 1) % sites for key in keys), (True,) * len(keys))


def choose_copies(
    counts: Sequence[int],
    owners: Mapping[Key, int],
    trained: Mapping[Key, int],
    next_trained: Mapping[Key, int],
    copies: Mapping[Key, int],
    sites: int,
) -> CopyChoice:
    """Copies for the next round.

    owners         the site of each block at the end of this round
    trained        of those that were trained in it, their sites; next_trained those of the next round
    copies         the sites of copies in this round
    """
    target, fresh = [], []
    for key in keys_of(counts):
        owner, after = owners[key], next_trained.get(key, owners[key])
        if key in trained:
            target.append(owner if after != owner else (owner + 1) % sites)
            fresh.append(True)
        else:
            moves_onto_copy = after == copies[key] != owner
            target.append(owner if moves_onto_copy else copies[key])
            fresh.append(moves_onto_copy)
    return CopyChoice(tuple(counts), tuple(target), tuple(fresh))
