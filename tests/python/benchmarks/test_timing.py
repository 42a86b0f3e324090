"""Statistics of turns."""

from __future__ import annotations

import doctest

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
    steps = {name: (lambda name=name: order.append(name)) for name in "abc"}
    count, seconds = take_turns(steps, turns=3)
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3, "c": 3}
    starts = order[3 :: 3 * count]
    assert starts == ["a", "b", "c"]
