"""Traces: what the nodes of a run did."""

from __future__ import annotations

import joinsum
import torch


def test_a_trace_adds_up_its_nodes_and_prints_one_line_for_each() -> None:
    joinsum.init(sites=2)
    plan = joinsum.parse("ia on 2\ninput X: f32[4]<2> (0)\noutput Y = map[(k0); negate](broadcast(X))")
    joinsum.run(plan, {"X": torch.ones(4)})
    trace = joinsum.trace()
    assert [entry.operation for entry in trace][1:] == ["broadcast[0]", "local_map[(k0); negate]"]
    assert trace.bytes_sent == sum(entry.bytes_sent for entry in trace) == 16
    assert trace.seconds == sum(entry.seconds for entry in trace)
    assert len(repr(trace).splitlines()) == 2 + len(trace)
    joinsum.init()


def test_an_empty_trace_has_no_pooled_bytes() -> None:
    assert type(joinsum.trace())().pooled_bytes == 0
