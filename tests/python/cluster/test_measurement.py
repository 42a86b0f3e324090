"""What a measurement of the sites covers. No test asserts how long anything takes."""

from __future__ import annotations

import joinsum
import pytest
from joinsum import _C
from joinsum.cluster.machine import machine_of
from joinsum.cluster.measurement import FULL, QUICK, Coverage, Measurement, axis_sets, elementwise_families
from joinsum.cluster.profile import Profile
from joinsum.cluster.timing import lower_quartile


@pytest.mark.parametrize("coverage", [QUICK, FULL])
def test_a_profile_has_what_is_covered_and_survives_its_file(coverage: Coverage) -> None:
    sites = joinsum.init(sites=2)
    ticks: list[str] = []
    profile = Measurement(sites, machine_of(sites), 0.05, coverage, ticks.append).profile()
    assert profile.quick == (coverage is QUICK)
    assert {table.dtype for table in profile.products} == set(coverage.extents)
    families = elementwise_families()
    assert len(profile.elementwise) == 2 * len(families)
    assert all(row.seconds.sizes == tuple(map(float, coverage.elements)) for row in profile.elementwise)
    assert profile.copies.sizes == tuple(map(float, coverage.copy_bytes))
    assert profile.links == ()
    assert len(ticks) == coverage.steps(sites)
    assert Profile.of_json(profile.to_json()) == profile


def test_other_work_moves_no_more_than_three_quarters_of_the_calls() -> None:
    assert lower_quartile([1.0]) == 1.0
    assert lower_quartile([1.1, 50.0, 1.0, 40.0, 60.0]) == 1.1


def test_every_family_of_elementwise_kernels_is_measured_by_kernels_of_the_table() -> None:
    rows = {row.name: row for row in joinsum.kernels() if row.form == "elementwise"}
    for family, names in elementwise_families().items():
        for name in names:
            row = rows[name.split("[")[0]]
            assert (row.operands, row.flops_per_element) == family[:2]


@pytest.mark.parametrize("rank", range(1, 7))
def test_the_set_of_all_axes_is_always_measured(rank: int) -> None:
    sets = axis_sets(rank)
    assert tuple(range(rank)) in sets
    assert len(set(sets)) == len(sets)


def test_sub_grids_are_of_sites_that_differ_along_their_axes_only() -> None:
    grid = _C.Grid.of_sites(6)
    assert _C.SubGrids(grid, [1]).groups() == [[0, 1, 2], [3, 4, 5]]
    assert _C.SubGrids(grid, [0, 1]).groups() == [[0, 1, 2, 3, 4, 5]]
