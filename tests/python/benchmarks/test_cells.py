"""Which cells a suite has."""

from __future__ import annotations

from frame.cells import SUITES, Cell, Suite, cells
from workloads import WORKLOADS

SIZES = {"ffnn": ["amazon", "speech"], "products": ["square"]}


def test_no_names_stand_for_all():
    found = list(cells(Suite(1, [([], [], (2,), ["open"])]), SIZES))
    assert found == [Cell("ffnn", size, 2, "open") for size in SIZES["ffnn"]] + [Cell("products", "square", 2, "open")]


def test_a_cell_of_two_blocks_is_run_once():
    block = (["ffnn"], ["speech"], (1, 2), ["open"])
    assert len(list(cells(Suite(1, [block, block]), SIZES))) == 2


def test_a_network_has_two_hosts_at_least():
    found = cells(Suite(1, [(["products"], [], (1, 2, 4), ["1gbit", "2x1gbit"])]), SIZES)
    assert [(cell.ranks, cell.network) for cell in found] == [(2, "1gbit"), (4, "1gbit"), (4, "2x1gbit")]


def test_every_name_of_a_suite_exists():
    sizes = {size for workload in WORKLOADS.values() for size in workload.sizes}
    for suite in SUITES.values():
        for workloads, chosen, _, _ in suite.blocks:
            assert set(workloads) <= set(WORKLOADS)
            assert set(chosen) <= sizes
