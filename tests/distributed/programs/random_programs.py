"""Scenes of random graphs of einsums on process groups."""

from __future__ import annotations

import sys
from pathlib import Path

from stage import Scenes, enter, on_group, ranks, scene

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from compare_graphs import Seen, compare
from random_graphs import random_graph

SCENES: Scenes = {}

GRAPHS = 40


@scene(SCENES)
def random_graphs_have_torchs_values_and_gradients() -> list[int]:
    """How many values, gradients and bytes were compared."""
    enter(on_group())
    seen = Seen()
    for seed in range(100_000 * ranks(), 100_000 * ranks() + GRAPHS):
        try:
            seen += compare(random_graph(seed))
        except Exception as error:
            raise AssertionError(f"seed={seed}") from error
    return [seen.values, seen.gradients, seen.bytes]
