"""Statistics of turns."""

from __future__ import annotations

import doctest
import time

import frame.timing
from frame.timing import ratio, spread, take_turns


def test_the_examples_hold():
    assert doctest.testmod(frame.timing).failed == 0


def test_one_value_is_its_own_median_and_quartiles():
    assert spread([2.0]) == (2.0, 2.0, 2.0)


def test_a_ratio_is_taken_within_each_turn():
    """A turn beside other load is slow for both; the medians alone would give 10 / 1."""
    assert ratio([1.0, 10.0, 1.0], [1.0, 10.0, 10.0]).median == 1.0


def test_every_contender_is_in_every_turn_and_none_always_comes_first():
    order: list[str] = []
    # Each does as many steps in a turn as fit into it, here the most.
    steps = {name: (lambda name=name: order.append(name)) for name in "abc"}
    counts, seconds = take_turns(steps, turns=3)
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3, "c": 3}
    starts = order[3 :: sum(counts.values())]
    assert starts == ["a", "b", "c"]


def test_turns_of_slow_and_fast_contenders_take_about_as_long():
    calls = {"fast": 0, "slow": 0}

    def step(name: str, seconds: float) -> None:
        calls[name] += 1
        time.sleep(seconds)

    counts, _ = take_turns({"fast": lambda: step("fast", 0.01), "slow": lambda: step("slow", 0.2)}, turns=1)
    assert 10 <= counts["fast"] <= 25
    assert counts["slow"] == 2
    assert calls == {name: count + 1 for name, count in counts.items()}
