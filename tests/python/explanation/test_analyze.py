"""Explanations with a run."""

from __future__ import annotations

import json

import joinsum
import pytest
import torch
from explained_programs import GATHER, PROGRAM, STEP, tensors


@pytest.mark.parametrize("sites", [1, 3, 4])
@pytest.mark.parametrize("minimize", ["seconds", "wire_bytes"])
def test_measured_bytes_are_the_predicted_ones_and_memory_stays_below(sites: int, minimize: str) -> None:
    joinsum.init(sites=sites)
    inputs = tensors()
    explained = joinsum.explain(joinsum.parse(PROGRAM), minimize=minimize, analyze=True, inputs=inputs)
    assert explained.measured is not None
    assert explained.measured.loopback
    for row in explained.comparisons:
        assert row.measured.wire_bytes == row.predicted.wire_bytes
        assert 0 < row.measured.peak_bytes <= row.predicted.peak_bytes
        assert row.measured.seconds > 0
    assert json.loads(explained.to_json())["measured"]["total"]["measured"]["wire_bytes"] == explained.cost.wire_bytes
    assert f"measured on {sites} site" in str(explained)


def test_each_operator_of_a_run_is_compared_but_for_joins_that_are_fused() -> None:
    joinsum.init(sites=4)
    explained = joinsum.explain(joinsum.parse(PROGRAM), analyze=True, inputs=tensors())
    ran = [row.node for row in explained.comparisons[:-1]]
    assert ran == [node.name for node in explained.plan.nodes if node.inputs and not node.fused]
    assert sum(row.predicted.seconds for row in explained.comparisons[:-1]) == pytest.approx(explained.cost.seconds)


def test_a_relation_is_run_on_its_own_data() -> None:
    joinsum.init(sites=3)
    x = joinsum.relation(torch.ones(9, 9), parts=(3, 3), name="X")
    explained = x.join(x, on=([1], [0]), kernel="matmul").aggregate(keep=[0, 2]).explain(analyze=True)
    assert explained.measured is not None
    assert explained.measured.total.wire_bytes == explained.cost.wire_bytes


def test_analysing_overwrites_nothing() -> None:
    joinsum.init(sites=2)
    w, g = torch.ones(8, 8), torch.ones(8, 8)
    stored = joinsum.relation(w, parts=(2, 2), name="W").stored()
    joinsum.explain(joinsum.parse(STEP), analyze=True, inputs={"W": stored, "G": g}, scalars={"rate": 0.5})
    assert stored.alive
    assert torch.equal(stored.to_tensor(), torch.ones(8, 8))
    assert torch.equal(w, torch.ones(8, 8))


@pytest.mark.parametrize("text", [PROGRAM, GATHER])
def test_torchs_profiler_names_the_nodes_as_the_trace_does(text: str) -> None:
    joinsum.init(sites=2)
    inputs = tensors() if text is PROGRAM else {"X": torch.arange(8.0)}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        joinsum.run(joinsum.parse(text), inputs)
    ran = [each for each in joinsum.trace() if each.kernel_calls or each.bytes_sent]
    assert any(each.bytes_sent for each in ran) == (text is GATHER)
    assert ran
    wanted = {f"{each.operation.partition('[')[0].partition('(')[0]} {each.node}" for each in ran}
    assert wanted <= {event.key for event in profile.key_averages()}
