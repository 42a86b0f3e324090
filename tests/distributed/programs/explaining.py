"""Scenes of explanations on a process group: every rank tells the same, and what was measured is of all ranks."""

from __future__ import annotations

import joinsum
import torch
from stage import Scenes, error_of, rank, ranks, scene

SCENES: Scenes = {}
PROGRAM = """tra
input X: f32[24,18]<6,6>
input W: f32[18,30]<6,6>
output Y = transform[relu](aggregate[0, 2; add](join[1; 0; matmul](X, W)))
"""


@scene(SCENES)
def explanations_are_alike_and_measured_on_all_ranks() -> object:
    joinsum.init(cluster=joinsum.Cluster())
    program = joinsum.parse(PROGRAM)
    inputs = {"X": torch.ones(24, 18), "W": torch.ones(18, 30)}
    place = {"X": [1] * len(joinsum.grid().axes), "W": [0] * len(joinsum.grid().axes)}
    explained = joinsum.explain(program, place, analyze=True, inputs=inputs)
    assert explained.measured is not None
    assert not explained.measured.loopback
    for row in explained.comparisons:
        assert row.measured.wire_bytes == row.predicted.wire_bytes
        assert 0 < row.measured.peak_bytes <= row.predicted.peak_bytes
    assert explained.measured.total.wire_bytes == explained.cost.wire_bytes > 0
    return [explained.measured.sites, str(explained), ranks()]


@scene(SCENES)
def data_that_are_wrong_on_one_rank_stop_all_of_them() -> object:
    joinsum.init(cluster=joinsum.Cluster())
    inputs = {"X": torch.ones(24, 18 + rank()), "W": torch.ones(18, 30)}
    kind, text, _ = error_of(lambda: joinsum.explain(joinsum.parse(PROGRAM), analyze=True, inputs=inputs))
    return [kind, text]
