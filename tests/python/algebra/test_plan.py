"""Plans as values: built, printed, parsed, lowered, priced, run, traced; tied state is updated in place."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import joinsum
import pytest
import torch

DESCENT = """tra
input W: f32[4]<2>
input G: f32[4]<2>
output W2 -> W = join[0; 0; sub](W, transform[scale[$rate]](G))"""


@pytest.fixture(autouse=True)
def one_site() -> Iterator[None]:
    joinsum.init()
    yield
    joinsum.init()


def relation(name: str | None = None, value: float = 1.0) -> joinsum.Relation:
    return joinsum.relation(torch.full((4,), value), parts=2, name=name)


# --- plans as values --------------------------------------------------------------------------------------------------


def test_inputs_without_a_name_are_numbered_by_first_use() -> None:
    """Ranks that built other relations before still build equal plans."""
    unused = [relation() for _ in range(3)]
    a, b = relation(), relation()
    plan = b.join(a, on=([0], [0]), kernel="sub").plan()
    assert list(plan.inputs) == ["r0", "r1"]
    assert plan == unused[1].join(unused[0], on=([0], [0]), kernel="sub").plan()
    taken = relation("r0").join(relation(), on=([0], [0])).plan()
    assert list(taken.inputs) == ["r0", "r1"]


def test_a_plan_shares_what_its_outputs_share() -> None:
    x = relation("X").transform("relu")
    plan = joinsum.plan(Y=x, Z=x.aggregate(keep=[]))
    assert plan.text.count("transform[relu]") == 1
    assert list(plan.outputs) == ["Y", "Z"]
    outputs = joinsum.run(plan, {"X": torch.tensor([1.0, -2.0, 3.0, -4.0])})
    assert outputs["Y"].to_tensor().tolist() == [1, 0, 3, 0]
    assert outputs["Z"].to_tensor().tolist() == [4, 0]


def test_equal_plans_compare_hash_and_print_alike() -> None:
    one, same = (relation("X").transform("relu").plan() for _ in range(2))
    other = relation("X").transform("negate").plan()
    assert one == same
    assert hash(one) == hash(same)
    assert one.text == same.text
    assert one != other
    assert joinsum.parse(one.text) == one
    lowered = joinsum.lower(one)
    assert joinsum.parse(lowered.text) == lowered
    assert lowered != one


def test_a_relation_specifies_its_placement_in_the_plan() -> None:
    joinsum.init(sites=4)
    x = joinsum.relation(torch.ones(4, 4), parts=(2, 2), place=[1, "*"], name="X")
    assert "(1, *)" in joinsum.lower(x.transform("relu").plan()).text
    assert "input X: f32[4,4]<2,2> on 2x2 (0, 0)" in joinsum.lower(x.plan(), place={"X": "(0, 0)"}).text


def test_the_header_says_which_algebra_a_text_is_in() -> None:
    assert isinstance(joinsum.parse("# a comment\ntra\ninput X: f32[]<>\noutput Y = X"), joinsum.TraPlan)
    assert isinstance(joinsum.parse("ia on 1\ninput X: f32[]<> ()\noutput Y = X"), joinsum.IaPlan)
    with pytest.raises(joinsum.PlanError, match="a plan begins with `tra`, or with `ia on`"):
        joinsum.parse("output Y = X")


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", [1, 2, 5])
def test_a_run_takes_tensors_relations_and_stored_ones(sites: int) -> None:
    joinsum.init(sites=sites)
    plan = joinsum.parse("tra\ninput X: f32[4]<2>\ninput Y: f32[4]<2>\noutput Z = join[0; 0; sub](X, Y)")
    three = relation(value=1.0).transform("scale[3]")
    for x in (torch.full((4,), 3.0), relation(value=3.0), three, three.stored()):
        assert joinsum.run(plan, {"X": x, "Y": torch.ones(4)})["Z"].to_tensor().tolist() == [2, 2, 2, 2]


def test_a_relation_of_another_place_follows_a_physical_plan() -> None:
    joinsum.init(sites=2)
    plan = joinsum.parse("ia on 2\ninput X: f32[4]<2> (*)\noutput Y = X")
    lazy = relation(value=2.0).transform("negate")
    assert joinsum.run(plan, {"X": lazy})["Y"].to_tensor().tolist() == [-2] * 4
    with pytest.raises(joinsum.PlanError, match=r"at another placement; give its move\('\(\*\)'\)"):
        joinsum.run(plan, {"X": lazy.stored()})
    assert joinsum.run(plan, {"X": lazy.stored().move("(*)")})["Y"].to_tensor().tolist() == [-2] * 4


@pytest.mark.parametrize("sites", [1, 2, 3])
def test_tied_state_is_updated_in_place_and_the_old_handle_ends(sites: int) -> None:
    joinsum.init(sites=sites)
    plan = joinsum.parse(DESCENT)
    mine = torch.zeros(4)
    state = joinsum.run(plan, {"W": mine, "G": torch.ones(4)}, {"rate": 0.5})["W2"]
    assert torch.equal(mine, torch.zeros(4))
    newer = joinsum.run(plan, {"W": state, "G": torch.ones(4)}, {"rate": 0.25})["W2"]
    assert newer.to_tensor().tolist() == [-0.75] * 4
    assert not state.alive
    assert "overwritten" in repr(state)
    for use in (state.tuples, state.to_tensor, lambda: joinsum.run(plan, {"W": state, "G": mine}, {"rate": 1})):
        with pytest.raises(joinsum.PlanError, match="a run has overwritten it"):
            use()


def test_a_tied_run_never_writes_what_others_see() -> None:
    plan = joinsum.parse(DESCENT)
    lazy = relation("L").transform("negate")
    before = lazy.stored()
    joinsum.run(plan, {"W": lazy, "G": torch.ones(4)}, {"rate": 1.0})
    assert before.alive
    assert before.to_tensor().tolist() == [-1] * 4
    seen = torch.zeros(4)
    stored = joinsum.relation(seen, parts=2).stored()
    joinsum.run(plan, {"W": stored, "G": torch.ones(4)}, {"rate": 1.0})
    assert torch.equal(seen, torch.zeros(4))
    both = joinsum.relation(torch.ones(4), parts=2).transform("scale[2]").stored()
    assert joinsum.run(plan, {"W": both, "G": both}, {"rate": 0.5})["W2"].to_tensor().tolist() == [1] * 4


def test_a_refused_run_leaves_its_inputs_alone() -> None:
    plan = joinsum.parse(DESCENT)
    state = joinsum.run(plan, {"W": torch.zeros(4), "G": torch.ones(4)}, {"rate": 1.0})["W2"]
    with pytest.raises(joinsum.PlanError, match="scalar is not bound: scalar=rate"):
        joinsum.run(plan, {"W": state, "G": torch.ones(4)})
    assert state.alive
    assert joinsum.run(plan, {"W": state, "G": torch.ones(4)}, {"rate": torch.tensor(1.0)})["W2"].alive


def test_ties_are_named_by_output() -> None:
    w, g = relation("W"), relation("G")
    plan = joinsum.plan(W2=w.join(g, on=([0], [0]), kernel="sub"), ties={"W2": "W"})
    assert plan.ties == {"W2": "W"}
    assert joinsum.lower(plan).ties == {"W2": "W"}


def test_interpretation_takes_what_runs_take_and_agrees() -> None:
    joinsum.init(sites=3)
    plan = joinsum.parse(DESCENT)
    inputs: dict[str, Any] = {"W": relation(value=5.0), "G": torch.arange(4.0)}
    wanted = joinsum.interpret(plan, inputs, {"rate": 2.0})
    assert [array.tolist() for _, array in wanted["W2"]] == [[5, 3], [1, -1]]
    assert joinsum.run(plan, inputs, {"rate": 2.0})["W2"].to_tensor().tolist() == [5, 3, 1, -1]
    lowered = joinsum.interpret(joinsum.lower(plan), inputs, {"rate": 2.0})
    assert [array.tolist() for _, array in lowered["W2"]] == [[5, 3], [1, -1]]


# --- costs and traces -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", range(1, 9))
def test_counted_bytes_are_the_predicted_ones(sites: int) -> None:
    joinsum.init(sites=sites)
    turns = [axis % 2 for axis in range(len(joinsum.grid().axes))]
    x = joinsum.relation(torch.randn(7, 5), parts=(3, 2), place=turns)
    y = joinsum.relation(torch.randn(5, 6), parts=(2, 4), place=turns)
    product = x.join(y, on=([1], [0]), kernel="matmul").aggregate(keep=[0, 2])
    predicted = product.cost()
    product.stored()
    trace = joinsum.trace()
    assert trace.bytes_sent == predicted.wire_bytes == sum(node.wire_bytes for node in predicted.nodes)
    assert (trace.bytes_sent > 0) == (sites > 1)
    assert trace.seconds > 0


def test_costs_price_the_cluster_that_is_their_argument() -> None:
    slow = joinsum.Cluster("slow", flops_per_second=1e6, bytes_per_second=1e3, latency_seconds=1.0)
    joinsum.init(sites=2, cluster=slow)
    summed = joinsum.relation(torch.ones(4), parts=2, place=[0], name="X").aggregate(keep=[])
    assert summed.cost().cluster is slow
    assert math.isclose(summed.cost().seconds, 1.0 + 8 / 1e3 + 2 / 1e6, rel_tol=0.2)
    assert summed.cost(joinsum.Cluster()).seconds < 0.001
    assert "costs are for slow: 1e+06 flop/s" in str(summed.explain())
    tight = joinsum.Cluster(memory_bytes=10)
    with pytest.raises(joinsum.PlanError, match="memory"):
        summed.cost(tight)


def test_traces_and_costs_print_as_tables() -> None:
    joinsum.init(sites=2)
    summed = joinsum.relation(torch.ones(4), parts=2, place=[0], name="X").aggregate(keep=[])
    summed.tuples()
    header, rule, *rows = repr(joinsum.trace()).splitlines()
    assert header.split()[:4] == ["node", "operation", "sent", "B"]
    assert set(rule) <= {"-", " "}
    assert [row.split()[0] for row in rows] == ["X", "t0", "t1"]
    assert "total" in repr(summed.cost())


def test_lowered_outputs_end_where_they_are_placed() -> None:
    joinsum.init(sites=4)
    x = joinsum.relation(torch.arange(16.0).reshape(4, 4), parts=(2, 2), name="X")
    program = joinsum.plan(Y=x.rekey(lambda i, j: (j, i)), Z=x)
    lowered = joinsum.lower(program, output_place={"Y": [0, "*"], "Z": "replicated"})
    assert [str(type_).rpartition(" on ")[2] for type_ in lowered.outputs.values()] == ["2x2 (0, *)", "2x2 (*, *)"]
    found = joinsum.run(lowered, {"X": x})
    assert torch.equal(found["Z"].to_tensor(), torch.arange(16.0).reshape(4, 4))
    with pytest.raises(joinsum.PlanError, match="unknown output: output='V', outputs="):
        joinsum.lower(program, output_place={"V": "replicated"})
    with pytest.raises(joinsum.PlanError, match="output Y: placement"):
        joinsum.lower(program, output_place={"Y": [5, "*"]})
    tied = joinsum.plan(ties={"Y": "X"}, Y=x.transform("relu"))
    with pytest.raises(joinsum.PlanError, match="a tied output ends where its input starts: output=Y, input=X"):
        joinsum.lower(tied, output_place={"Y": "replicated"})


def test_a_relation_of_the_blocks_that_sites_have() -> None:
    joinsum.init(sites=3)
    type_ = joinsum.parse("ia on 3\ninput X: f32[5,2]<3,1> (0)\noutput Y = X").inputs["X"]
    blocks = [torch.full((rows, 2), float(site)) for site, rows in enumerate((2, 2, 1))]
    stored = joinsum.StoredRelation.of_blocks(blocks, type_)
    assert stored.to_tensor()[:, 0].tolist() == [0.0, 0.0, 1.0, 1.0, 2.0]
    blocks[2].fill_(7.0)  # shared, not copied
    assert stored.to_tensor()[4, 1] == 7.0
    with pytest.raises(joinsum.PlanError, match="too few blocks: given=2"):
        joinsum.StoredRelation.of_blocks(blocks[:2], type_)
    with pytest.raises(joinsum.PlanError, match="block does not fit the relation: site=0"):
        joinsum.StoredRelation.of_blocks([blocks[2], *blocks[1:]], type_)
    with pytest.raises(joinsum.PlanError, match=r"another dtype: wanted=torch\.float32, block=torch\.float64"):
        joinsum.StoredRelation.of_blocks([block.double() for block in blocks], type_)
