"""Random graphs of einsums on random numbers of sites have torch's values and gradients, and move what is predicted."""

from __future__ import annotations

import os

import joinsum
import pytest
from compare_graphs import Seen, compare
from random_graphs import random_graph

# `make nightly` asks for more.
GRAPHS = int(os.environ.get("JOINSUM_RANDOM_GRAPHS", "600"))
CHUNKS = 20


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_random_graph_has_torchs_values_and_gradients_and_moves_what_is_predicted(chunk: int) -> None:
    seen = Seen()
    seeds = range(chunk, GRAPHS, CHUNKS)
    for seed in seeds:
        graph = random_graph(seed)
        sites = 1 + seed % 8
        joinsum.init(sites=sites)
        try:
            seen += compare(graph)
        except Exception as error:
            raise AssertionError(f"seed={seed}, sites={sites}\n{graph.to_json()}") from error
        finally:
            joinsum.init()
    assert seen.values >= len(seeds)
    assert seen.gradients >= len(seeds)
    assert seen.bytes > 0
