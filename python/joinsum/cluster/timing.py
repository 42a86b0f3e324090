"""Timing: on one device, and on all sites at once for `joinsum.calibrate`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

import torch

from joinsum import _C
from joinsum.base.dtypes import torch_dtype

__all__ = ["Bench", "Stopwatch", "lower_quartile", "synchronize", "timed"]

_MOST_CALLS = 500
_LEAST_EXCHANGES = 4
_MOST_EXCHANGES = 40
_PASSES = 2


def synchronize(device: torch.device) -> None:
    """Waits until the device has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(device: torch.device, action: Callable[[], object]) -> float:
    """Seconds that `action` takes on the device."""
    synchronize(device)
    start = time.perf_counter()
    action()
    synchronize(device)
    return time.perf_counter() - start


def lower_quartile(seconds: Sequence[float]) -> float:
    """The time that a quarter of them do not exceed: other work on a machine makes some longer, and none shorter.

    >>> lower_quartile([4.0, 1.0, 2.0, 3.0, 9.0])
    2.0
    """
    return sorted(seconds)[(len(seconds) - 1) // 4]


class Bench:
    """Runs plans of one node on one site of this process, with the executor that runs every plan."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._store = _C.make_store("memory")
        self._executor = _C.Executor(_C.make_loopback(1), self._store)

    def node(self, text: str) -> Callable[[], float]:
        """A function that runs the plan `text` on arrays of ones and returns the seconds of its last node.

        >>> seconds = Bench(torch.device("cpu")).node("input A: f32[8]<1> ()\\noutput Z = map[(k0); relu](A)")
        >>> seconds() > 0
        True
        """
        plan = _C.IaPlan.parse(f"ia on 1\n{text}\n")
        inputs = {name: self._ones(type_) for name, type_ in plan.inputs}
        if self.device.type == "cuda":
            return lambda: timed(self.device, lambda: self._executor.run(plan, inputs, {}))
        return lambda: self._executor.run(plan, inputs, {})[1].entries()[-1].seconds

    def _ones(self, type_: _C.PhysicalType) -> _C.StoredRelation:
        relation = type_.relation
        shape = [axis.extent for axis in relation.axes]
        keys = itertools.product(*map(range, relation.frontier))
        ones = torch.ones(shape, dtype=torch_dtype(relation.dtype), device=self.device)
        return _C.place_tuples([(list(key), ones) for key in keys], type_, [0], self._store, True)


class Stopwatch:
    """Times actions that all sites perform at the same time. Every site gets the same result: the slowest site's.

    window     seconds for each action; a longer action runs once or twice
    crowding   factor by which work takes longer because sites share cores: their threads for each core
    """

    def __init__(self, transport: _C.Transport, window: float, crowding: float = 1.0) -> None:
        self.transport = transport
        self.window = window
        self.crowding = crowding
        self._start = time.perf_counter()

    def elapsed(self) -> float:
        """Seconds since the start, equal on all sites."""
        return self.transport.all_reduce_max([time.perf_counter() - self._start])[0]

    def work(self, actions: Sequence[Callable[[], float]]) -> list[float]:
        """Seconds of each of several actions that move nothing; an action returns its own. All sites start together, so
        that they share caches and memory as in a run. The result is the slowest site's lower quartile, the less of two
        passes, without the time in which another process had its core, times `crowding`."""
        slowest = []
        for _ in range(_PASSES):
            self.transport.all_reduce_max([0.0])
            slowest.append(self.transport.all_reduce_max([self._undisturbed(action) for action in actions]))
        return [self.crowding * min(passes) for passes in zip(*slowest, strict=True)]

    def _undisturbed(self, action: Callable[[], float]) -> float:
        action()
        end = time.perf_counter() + self.window / _PASSES
        seconds: list[float] = []
        while not seconds or (time.perf_counter() < end and len(seconds) < _MOST_CALLS):
            seconds.append(_own_seconds(action))
        return lower_quartile(seconds)

    def exchange(self, action: Callable[[], object]) -> float:
        """Seconds of an action in which sites wait for each other: the mean of several in a row. All sites call it
        equally often."""
        first = self._mean(action, 1)
        return first if first > self.window else self._mean(action, self._calls(first))

    def added(self, action: Callable[[], object], work: Callable[[], object]) -> float:
        """Seconds that such an action adds to work that each site does before it."""

        def both() -> None:
            work()
            action()

        calls = self._calls(self._mean(both, 1))
        return self._mean(both, calls) - self._mean(work, calls)

    def _calls(self, seconds: float) -> int:
        return max(_LEAST_EXCHANGES, min(_MOST_EXCHANGES, round(self.window / max(seconds, 1e-6))))

    def _mean(self, action: Callable[[], object], calls: int) -> float:
        self.transport.all_reduce_max([0.0])
        start = time.perf_counter()
        for _ in range(calls):
            action()
        (seconds,) = self.transport.all_reduce_max([time.perf_counter() - start])
        return max(seconds / calls, 1e-7)


def _own_seconds(action: Callable[[], float]) -> float:
    """Those of the seconds that `action` returns in which this thread had a core; all of them where kernels use several
    threads."""
    start = time.thread_time()
    wall = action()
    own = time.thread_time() - start
    return min(wall, own) if torch.get_num_threads() == 1 and not torch.cuda.is_available() else wall
