"""How the arguments of a captured graph lie on the sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from joinsum import _C
from joinsum.algebra.stored_relation import StoredRelation, cores_of
from joinsum.cluster.context import Context
from joinsum.distributed.block_tensor import relations_of
from joinsum.distributed.distributed_tensor import DistributedTensor

__all__ = ["ArgumentLayout"]


@dataclass(frozen=True)
class ArgumentLayout:
    """How the arguments of a call lie, to see at once whether those of another call lie alike.

    count       of the arguments
    positions   of those that are distributed; the plan reads all of them as they lie
    names       of the inputs at these positions
    types       of their relations
    plain       positions of all other arguments
    others      names and positions of the inputs that the plan reads besides; constants have none
    """

    count: int
    positions: tuple[int, ...]
    names: tuple[str, ...]
    types: tuple[_C.PhysicalType, ...]
    plain: tuple[int, ...]
    others: tuple[tuple[str, int | None], ...]

    @staticmethod
    def of(
        stored: Mapping[int, StoredRelation],
        as_they_lie: Mapping[int, str],
        others: Sequence[tuple[str, int | None]],
        count: int,
    ) -> ArgumentLayout | None:
        """None where a distributed argument is not read in its own layout."""
        if stored.keys() != as_they_lie.keys():
            return None
        names = tuple(as_they_lie[position] for position in stored)
        types = tuple(relation.type for relation in stored.values())
        plain = tuple(i for i in range(count) if i not in stored)
        return ArgumentLayout(count, tuple(stored), names, types, plain, tuple(others))

    @cached_property
    def set_of_positions(self) -> frozenset[int]:
        return frozenset(self.positions)

    def cores(self, args: Sequence[Any], current: Context) -> list[_C.StoredRelation] | None:
        """The blocks of the distributed arguments; None where the arguments lie otherwise."""
        if len(args) != self.count or any(isinstance(args[i], DistributedTensor) for i in self.plain):
            return None
        relations = relations_of([args[i] for i in self.positions])
        return None if relations is None else cores_of(relations, self.types, current)
