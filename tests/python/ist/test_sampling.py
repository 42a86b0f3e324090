"""Subnets are balanced random partitions: each neuron on one site, each site with probability 1/n, layers apart."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from joinsum.ist.sampling import Chunks, assignment


@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 8), st.integers(0, 1000), st.integers(0, 50))
def test_every_neuron_is_on_one_site_and_shares_keep_their_size(
    neurons: int, chunks: int, sites: int, seed: int, round_number: int
) -> None:
    sites = min(sites, neurons)
    layer = Chunks(neurons, min(neurons, chunks * sites), sites)
    drawn = assignment(layer, seed, round_number, "fc")
    held = [drawn.neurons(site) for site in range(sites)]
    assert sorted(neuron for each in held for neuron in each) == list(range(neurons))
    assert [len(each) for each in held] == layer.neurons_of_sites
    assert max(layer.neurons_of_sites) - min(layer.neurons_of_sites) <= 1
    assert [layer.sizes[chunk] for chunk in drawn.chunk] == layer.sizes  # positions keep their extents
    assert drawn == assignment(layer, seed, round_number, "fc")


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 100))
def test_one_site_has_the_layer_as_it_is(neurons: int, chunks: int, seed: int) -> None:
    drawn = assignment(Chunks(neurons, min(neurons, chunks), 1), seed, 0, "fc")
    assert drawn.neurons(0) == list(range(neurons))


def test_rounds_layers_and_seeds_draw_apart() -> None:
    layer = Chunks(64, 64, 4)
    drawn = {
        assignment(layer, seed, round_number, name).position
        for seed in range(3)
        for round_number in range(3)
        for name in ("a", "b")
    }
    assert len(drawn) == 18


@pytest.mark.parametrize("sites", [2, 4, 8])
def test_the_sum_over_sites_times_n_is_unbiased(sites: int) -> None:
    """A weight between two hidden layers is active on some site with probability 1/n, so the sum of the subnets'
    matrices is the full one over n: the factor is n, where the thesis prints n squared (its equation 2.2)."""
    rounds, first, second = 600, Chunks(16, 16, sites), Chunks(24, 24, sites)
    active = torch.zeros(24, 16)
    for number in range(rounds):
        rows, columns = (torch.tensor(assignment(each, 0, number, str(each.neurons)).site) for each in (second, first))
        active += rows[:, None] == columns[None, :]
    factor = rounds * active.numel() / float(active.sum())
    assert abs(factor - sites) < 0.02 * sites
    # No weight is more likely than another: within five standard deviations of its count.
    expected, deviation = rounds / sites, (rounds / sites * (1 - 1 / sites)) ** 0.5
    assert float((active - expected).abs().max()) < 5 * deviation


@pytest.mark.parametrize(("neurons", "chunks", "sites"), [(12, 12, 3), (32, 16, 4), (30, 16, 2)])
def test_marginals_are_uniform(neurons: int, chunks: int, sites: int) -> None:
    rounds = 900
    counts: Counter[tuple[int, int]] = Counter()
    layer = Chunks(neurons, chunks, sites)
    for number in range(rounds):
        drawn = assignment(layer, 1, number, "fc")
        counts.update((neuron, site) for site in range(sites) for neuron in drawn.neurons(site))
    expected = rounds / sites
    assert all(
        abs(counts[neuron, site] - expected) < 5 * expected**0.5 for neuron in range(neurons) for site in range(sites)
    )
