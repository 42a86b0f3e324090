"""Timing on all sites at once: what `joinsum.calibrate` measures with."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

import torch

from joinsum import _C
from joinsum.dtypes import torch_dtype

__all__ = ["Bench", "Stopwatch"]

_WINDOWS = 5
_MOST_CALLS = 500


class Bench:
    """Runs plans of one node on one site, in this process alone, with the executor that runs every plan."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._store = _C.make_memory_store()
        self._executor = _C.Executor(_C.make_loopback(1), self._store)

    def node(self, text: str) -> Callable[[], float]:
        """A call runs the plan `text` on arrays of ones and gives the seconds of its last node.

        >>> seconds = Bench(torch.device("cpu")).node("input A: f32[8]<1> ()\\noutput Z = map[(k0); relu](A)")
        >>> seconds() > 0
        True
        """
        plan = _C.IaPlan.parse(f"ia on 1\n{text}\n")
        inputs = {name: self._ones(type_) for name, type_ in plan.inputs}
        if self.device.type != "cuda":
            return lambda: self._executor.run(plan, inputs, {})[1][-1].seconds
        return lambda: self.timed(lambda: self._executor.run(plan, inputs, {}))

    def timed(self, action: Callable[[], object]) -> float:
        """Seconds of `action` on the device."""
        self._finish()
        start = time.perf_counter()
        action()
        self._finish()
        return time.perf_counter() - start

    def _finish(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _ones(self, type_: _C.PhysicalType) -> _C.StoredRelation:
        relation = type_.relation
        shape = [axis.extent for axis in relation.axes]
        keys = itertools.product(*map(range, relation.frontier))
        ones = torch.ones(shape, dtype=torch_dtype(relation.dtype), device=self.device)
        return _C.place_tuples([(list(key), ones) for key in keys], type_, [0], self._store, True)


class Stopwatch:
    """Times actions that all sites take at the same time. Every site gets the same answers: the slowest site's.

    window    seconds for each action; one that takes longer runs once or twice
    """

    def __init__(self, transport: _C.Transport, window: float) -> None:
        self.transport = transport
        self.window = window
        self._start = time.perf_counter()

    def elapsed(self) -> float:
        """Seconds since the start, equal on all sites."""
        return self.transport.greatest([time.perf_counter() - self._start])[0]

    def work(self, action: Callable[[], float]) -> float:
        """Mean seconds of an action that moves nothing; it returns its own. Sites go on together for one window, so that
        they are in each other's way as they are in a run; the median of parts of the window counts."""
        action()
        (first,) = self.transport.greatest([action()])
        if first > self.window:
            return first
        means = []
        for _ in range(_WINDOWS):
            spent, calls, end = 0.0, 0, time.perf_counter() + self.window / _WINDOWS
            while calls == 0 or (time.perf_counter() < end and calls < _MOST_CALLS):
                spent += action()
                calls += 1
            means.append(spent / calls)
        return self.transport.greatest([statistics.median(means)])[0]

    def exchange(self, action: Callable[[], object]) -> float:
        """Mean seconds of an action in which sites wait for each other; all take it equally often."""
        action()
        (first,) = self.transport.greatest([_seconds(action)])
        if first > self.window:
            return first
        calls = max(1, min(_MOST_CALLS, round(self.window / _WINDOWS / max(first, 1e-6))))
        means = [_seconds(action, calls) / calls for _ in range(_WINDOWS)]
        return self.transport.greatest([statistics.median(means)])[0]


def _seconds(action: Callable[[], object], calls: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        action()
    return time.perf_counter() - start
