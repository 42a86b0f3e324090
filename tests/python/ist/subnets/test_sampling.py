"""Subnets are balanced random partitions: each neuron on one site, each site with probability 1/n, layers apart."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import joinsum
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from joinsum.ist.subnets.sampling import Chunks, assignment, chunk_count
from torch import nn


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


def probabilities(layer: Chunks) -> dict[int, list[Fraction]]:
    """For each size that chunks have, the probability of each site: in every draw a site has equally many chunks of a
    size, and which of them it has is left to chance alone (`test_marginals_are_those_of_many_draws`)."""
    drawn = Counter(zip(layer.sizes, assignment(layer, 0, 0, "fc").site, strict=True))
    other = Counter(zip(layer.sizes, assignment(layer, 7, 9, "other").site, strict=True))
    assert drawn == other
    chunks = Counter(layer.sizes)
    return {size: [Fraction(drawn[size, site], count) for site in range(layer.sites)] for size, count in chunks.items()}


# Where one chunk of another size, or a few, would be on the same sites in every round.
ODD = (
    *((17, 2), (33, 4), (65, 8), (100, 8), (1000, 3), (1001, 2), (1001, 4), (2561, 8), (17860, 3)),
    *((4097, sites) for sites in (2, 3, 4, 8)),
)


@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize("sites", [1, 2, 3, 4, 5, 8])
def test_marginals_are_as_near_to_one_nth_as_chunks_allow(sites: int, pairs: bool) -> None:
    """Exactly, for all numbers of neurons to some beyond 16n, and some large ones."""
    odd = [neurons for neurons, n in ODD if n == sites]
    for neurons in (*range(sites, 16 * sites + 30, 1 if pairs else 7), 1024, 4096, 5040, *odd):
        layer = Chunks(neurons, chunk_count(neurons, sites, pairs), sites)
        shares, found = layer.neurons_of_sites, probabilities(layer)
        assert max(shares) - min(shares) <= 1
        assert min(neurons, 8 * sites if pairs else 4096 // sites * sites) <= layer.count
        assert layer.count <= (16 * sites if pairs else 6144)
        if neurons % sites == 0 or layer.count == neurons:
            assert all(each == [Fraction(share, neurons) for share in shares] for each in found.values())
        else:
            away = max(abs(each - Fraction(1, sites)) for of_size in found.values() for each in of_size)
            assert away < Fraction(1, 4 * sites if pairs else 2000)


@pytest.mark.parametrize(
    ("neurons", "sites", "pairs"),
    [(24, 3, False), (30, 2, True), (33, 4, True), (65, 8, True), (100, 8, True), (1000, 3, True), (1024, 8, True)],
)
def test_marginals_are_those_of_many_draws(neurons: int, sites: int, pairs: bool) -> None:
    rounds = 600
    layer = Chunks(neurons, chunk_count(neurons, sites, pairs), sites)
    counts = torch.zeros(layer.count, sites)
    for number in range(rounds):
        drawn = torch.tensor(assignment(layer, 1, number, "fc").site)
        counts += torch.nn.functional.one_hot(drawn, sites)
    found = probabilities(layer)
    expected = torch.tensor([[float(each) for each in found[size]] for size in layer.sizes])
    assert ((counts - rounds * expected).abs() < 5 * (rounds * expected * (1 - expected)).sqrt()).all()


@pytest.mark.parametrize("sites", [2, 4, 8])
@pytest.mark.parametrize("neurons", [24, 25])  # for each site; of the second, chunks have two sizes
def test_weights_stay_spread_evenly_at_eight_chunks_for_each_site(sites: int, neurons: int) -> None:
    """A matrix between two hidden layers, whose blocks rest where they were trained last: in no round a site stores
    more than 1.3 times the mean."""
    layer = Chunks(neurons * sites, chunk_count(neurons * sites, sites, pairs=True), sites)
    assert layer.count == 8 * sites
    sizes = torch.tensor(layer.sizes, dtype=torch.float64)
    weights = (sizes[:, None] * sizes[None, :]).flatten()
    worst = 0.0
    for seed in range(3):
        where = torch.tensor(layer.site_of_position)[:, None].expand(layer.count, layer.count)
        for number in range(60):
            rows, columns = (torch.tensor(assignment(layer, seed, number, name).site) for name in ("rows", "columns"))
            where = torch.where(rows[:, None] == columns[None, :], rows[:, None], where)
            stored = torch.bincount(where.flatten(), weights, sites)
            worst = max(worst, float(stored.max() / stored.mean()))
    assert 1.0 < worst <= 1.3


@pytest.mark.parametrize(("sites", "neurons"), [(2, 128), (4, 128), (8, 128), (4, 20)])
def test_n_times_the_sum_of_what_the_subnets_compute_is_unbiased(sites: int, neurons: int) -> None:
    """E[n sum over sites of W_s x] = W x, of the sites' own tensors: with 8n chunks, and with chunks of one neuron."""
    joinsum.init(sites=sites)
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Linear(3, neurons), nn.LayerNorm(neurons), nn.ReLU()),
        *(nn.Linear(neurons, neurons, bias=False), nn.LayerNorm(neurons), nn.ReLU()),
        nn.Linear(neurons, 2),
    )
    full = model[3].weight.detach().uniform_(0.5, 1.5).clone()
    x = torch.rand(neurons) + 0.5
    ist = joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.0), every=None)
    rounds, total = 24, torch.zeros(neurons)
    for _ in range(rounds):
        seen = torch.zeros(neurons, neurons)
        for site in range(sites):
            rows, columns = torch.tensor(ist.neurons("3", site)), torch.tensor(ist.neurons("0", site))
            part = ist._subnets.value(site, "3.weight")
            assert torch.equal(part, full[rows[:, None], columns])
            seen[rows[:, None], columns] += 1
            total[rows] += part @ x[columns]
        assert seen.max() == 1  # each active weight on one site
        assert seen.sum() == neurons**2 / sites
        ist.end_round()
    # A row reads on its site C/n of the C chunks of columns, drawn without replacement.
    count = min(neurons, 8 * sites)
    chunks = (full * x).view(neurons, count, -1).sum(2)
    deviations = (sites**2 * (count / sites) * (1 - 1 / sites) * chunks.var(1) / rounds).sqrt()
    wanted = full @ x
    assert ((sites * total / rounds - wanted).abs() < 5 * deviations).all()
    assert (5 * deviations < 0.3 * wanted).all()  # so that another factor than n would show
