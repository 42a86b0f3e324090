"""Several sites of a process beside one."""

from __future__ import annotations

import loopback
import pytest
from frame.timing import Spread
from workloads import semirings


def test_what_several_sites_keep_is_a_part_of_one_sites_speed():
    figure = loopback.Figure("ffnn:amazon", Spread(2.0, 1.9, 2.1), Spread(1.5, 1.4, 1.6))
    assert figure.kept == pytest.approx(0.75)
    assert loopback.table([figure], 4).splitlines()[1].split() == ["ffnn:amazon", "2.00", "1.50", "0.75"]


def test_every_cell_is_a_workload_of_the_bench():
    for cell in loopback.CELLS:
        workload, _, size = cell.partition(":")
        assert size in loopback.WORKLOADS[workload].sizes


@pytest.mark.slow
def test_sites_of_a_process_agree_with_torch_before_they_are_timed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(semirings.SIZES, "min-plus 256", semirings.Shape(256, "min"))
    assert loopback.ratio_on("semirings:min-plus 256", 2, 1).median > 0
