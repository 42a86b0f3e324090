"""Explanations as text."""

from __future__ import annotations

import joinsum
import torch
from explained_programs import GATHER, PROGRAM, STEP
from joinsum.explanation.text import tree_lines


def test_the_text_has_every_section() -> None:
    joinsum.init(sites=4)
    text = str(joinsum.explain(joinsum.parse(PROGRAM), minimize="wire_bytes"))
    for part in (
        "logical plan: what is computed\ntra\n",
        "physical plan: where tuples are stored and move, on 4 sites (2x2)",
        "costs are for 10 Gbit between sites, one device each",
        "the default cluster that joinsum ships, as nothing is calibrated",
        "search: least wire_bytes, found by",
        "rules applied",
        "alternatives to the chosen plan",
        "operator by operator",
    ):
        assert part in text


def test_one_plan_has_one_text() -> None:
    joinsum.init(sites=6)
    assert str(joinsum.explain(joinsum.parse(PROGRAM))) == str(joinsum.explain(joinsum.parse(PROGRAM)))


def test_the_tree_has_each_operator_once_and_shared_ones_by_name() -> None:
    plan = joinsum.parse("ia on 1\ninput X: f32[4]<1> ()\na = map[(k0); relu](X)\noutput Y = join[0; 0; add](a, a)")
    lines = [line for line, _ in tree_lines(plan)]  # type: ignore[arg-type]
    assert lines == [
        "output Y",
        "└─ t1 = local_join[0; 0; add]",
        "   ├─ t0 = local_map[(k0); relu]",
        "   │  └─ X = input",
        "   └─ t0 (above)",
    ]


def test_a_chain_of_ten_thousand_nodes_is_printed_in_lines_of_bounded_length() -> None:
    text = "ia on 1\ninput X: f32[4]<1> ()\nt0 = map[(k0); relu](X)\n"
    text += "".join(f"t{i} = map[(k0); relu](t{i - 1})\n" for i in range(1, 10_000))
    lines = [line for line, _ in tree_lines(joinsum.parse(text + "output Y = t9999"))]  # type: ignore[arg-type]
    assert len(lines) == 10_002
    assert max(map(len, lines)) < 100


def test_a_tied_output_names_its_input() -> None:
    joinsum.init(sites=2)
    assert "output V -> W" in str(joinsum.explain(joinsum.parse(STEP)))


def test_a_wrong_prediction_is_flagged_in_the_text() -> None:
    slow = joinsum.Cluster("slow", flops_per_second=1.0, bytes_per_second=1.0, latency_seconds=100.0)
    joinsum.init(sites=2, cluster=slow)
    text = str(joinsum.explain(joinsum.parse(GATHER), analyze=True, inputs={"X": torch.ones(8)}))
    (line,) = [line for line in text.splitlines() if line.startswith("t0 ")]
    assert "time " in line
    assert line.endswith("x")
