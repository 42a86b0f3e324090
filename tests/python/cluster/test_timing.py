"""Times of actions, by a clock that only the actions move."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import pytest
from joinsum.cluster import timing
from joinsum.cluster.timing import Stopwatch


class Clock:
    """Actions that take the given seconds, one after the other, again and again."""

    def __init__(self) -> None:
        self.now = 0.0

    def taking(self, *seconds: float) -> Callable[[], float]:
        left = itertools.cycle(seconds)

        def action() -> float:
            taken = next(left)
            self.now += taken
            return taken

        return action


class OneSite:
    """A transport without other sites."""

    def all_reduce_max(self, values: Iterable[float]) -> list[float]:
        return list(values)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: made.now)
    monkeypatch.setattr(timing, "_own_seconds", lambda action: action())
    return made


def stopwatch(window: float, crowding: float = 1.0) -> Stopwatch:
    return Stopwatch(OneSite(), window, crowding)  # type: ignore[arg-type]


def test_an_exchange_takes_the_mean_of_several(clock: Clock) -> None:
    assert stopwatch(8.0).exchange(clock.taking(1.0, 3.0)) == pytest.approx(2.0)


def test_an_exchange_that_takes_longer_than_the_window_runs_once(clock: Clock) -> None:
    assert stopwatch(0.5).exchange(clock.taking(1.0, 100.0)) == pytest.approx(1.0)


def test_what_an_exchange_adds_to_work_is_without_the_work(clock: Clock) -> None:
    assert stopwatch(20.0).added(clock.taking(0.5), clock.taking(2.0)) == pytest.approx(0.5)


def test_work_takes_the_quieter_pass_and_counts_the_ranks_that_share_a_core(clock: Clock) -> None:
    # A pass warms up by one call and then measures for half of the window.
    disturbed = clock.taking(9.0, 9.0, 1.0, 1.0, 1.0, 1.0)
    assert stopwatch(8.0, crowding=2.0).work([disturbed]) == pytest.approx([2.0])
