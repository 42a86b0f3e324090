"""Plans of sparse programs and einsums, cached for later ones that are alike."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeVar, cast

__all__ = ["PLANS", "PlanCacheInfo", "plan_cache_clear", "plan_cache_info"]

Value = TypeVar("Value")


class PlanCacheInfo(NamedTuple):
    """How often a plan was found, how often it was made, and how many are cached.

    hits     runs of programs and einsums that took a plan made before
    misses   those that were planned
    plans    that are cached
    """

    hits: int
    misses: int
    plans: int


class PlanCache:
    """Plans by what they were made for; the least recently used ones are dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._plans: OrderedDict[Hashable, object] = OrderedDict()
        self._lock = threading.Lock()
        self.hits = 0
        self.misses = 0

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The plan for `key`, which is made if there is none. Threads that need one at the same time may each make
        it."""
        with self._lock:
            if key in self._plans:
                self._plans.move_to_end(key)
                self.hits += 1
                return cast(Value, self._plans[key])
        made = make()
        with self._lock:
            self.misses += 1
            self._plans[key] = made
            if len(self._plans) > self._most:
                self._plans.popitem(last=False)
        return made

    def hit(self) -> None:
        """Counts a plan that its user has at hand."""
        with self._lock:
            self.hits += 1

    def clear(self) -> None:
        """Forgets all plans and counts."""
        with self._lock:
            self._plans.clear()
            self.hits = self.misses = 0

    def info(self) -> PlanCacheInfo:
        """The counts."""
        with self._lock:
            return PlanCacheInfo(self.hits, self.misses, len(self._plans))


PLANS = PlanCache(most=1000)


def plan_cache_info() -> PlanCacheInfo:
    """How often `Program.run` and einsums with sparse operands found a plan in this process.

    A plan serves programs and einsums of the same expressions and names, options, shapes, fills, levels and dtypes,
    whose tensors have numbers of entries within the same factor of two and are all finite, or not.

    >>> import joinsum, torch
    >>> plan_cache_clear()
    >>> for seed in range(3):
    ...     x = torch.eye(4) * (1 + seed)
    ...     y = joinsum.einsum("ij,jk->ik", joinsum.SparseTensor.from_torch(x), torch.ones(4, 2))
    >>> plan_cache_info()
    PlanCacheInfo(hits=2, misses=1, plans=1)
    """
    return PLANS.info()


def plan_cache_clear() -> None:
    """Forgets the plans and their counts."""
    PLANS.clear()
