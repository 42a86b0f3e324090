"""`joinsum.plan_graph` on real placements: by bytes on the wire and by seconds."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import joinsum
import pytest
from joinsum.cluster.profile import Curve, Elementwise, Products, Profile, Reductions

PRODUCT = {
    "inputs": {"X": [64, 64], "Y": [64, 64]},
    "ops": [{"name": "Z", "inputs": ["X", "Y"], "in_labels": ["ij", "jk"], "out_labels": "ik", "agg": "sum"}],
    "outputs": {"product": "Z"},
}
# Rates as `joinsum.calibrate` measures them: large products take less for each element than small ones.
MEASURED = joinsum.Cluster(
    "measured",
    profile=Profile(
        run_seconds=1e-4,
        node_seconds=2e-5,
        links=(),
        products=(Products("f32", (1.0, 16.0, 256.0), tuple(2e-5 + 1e-7 * size for size in range(27))),),
        elementwise=(Elementwise(1, 1, "any", 4, Curve((0.0, 1e6), (2e-5, 1e-3))),),
        reductions=(Reductions(4, Curve((0.0, 1e6), (2e-5, 1e-3)), Curve((0.0, 1e6), (2e-5, 1e-3))),),
        copies=Curve((0.0, 1e6), (0.0, 1e-3)),
    ),
)
# A step of training: X W1, relu, W2; gradients of both weights.
STEP = {
    "inputs": {"X": [64, 32], "W1": [32, 48], "W2": [48, 16], "dY": [64, 16]},
    "ops": [
        {"name": "A", "inputs": ["X", "W1"], "in_labels": ["bi", "ih"], "out_labels": "bh", "agg": "sum"},
        {"name": "H", "inputs": ["A"], "in_labels": ["bh"], "out_labels": "bh", "join": "relu"},
        {"name": "Y", "inputs": ["H", "W2"], "in_labels": ["bh", "ho"], "out_labels": "bo", "agg": "sum"},
        {"name": "dW2", "inputs": ["H", "dY"], "in_labels": ["bh", "bo"], "out_labels": "ho", "agg": "sum"},
        {"name": "dH", "inputs": ["dY", "W2"], "in_labels": ["bo", "ho"], "out_labels": "bh", "agg": "sum"},
        {"name": "dA", "inputs": ["dH", "A"], "in_labels": ["bh", "bh"], "out_labels": "bh", "join": "mul"},
        {"name": "dW1", "inputs": ["X", "dA"], "in_labels": ["bi", "bh"], "out_labels": "ih", "agg": "sum"},
    ],
    "outputs": ["Y", "dW1", "dW2"],
}


def random_graph(seed: int, scale: int = 1) -> dict[str, Any]:
    """Products, maps and sums of matrices of few extents, some read twice."""
    draw = random.Random(seed)
    sizes = {label: scale * draw.choice([3, 4, 6, 8, 16]) for label in "abcd"}
    values = {}
    inputs: dict[str, list[int]] = {}
    ops: list[dict[str, Any]] = []
    for name in ("X", "Y", "W"):
        values[name] = draw.sample("abcd", 2)
        inputs[name] = [sizes[label] for label in values[name]]
    for step in range(draw.randint(1, 4)):
        left = draw.choice(list(values))
        right = draw.choice([name for name in values if set(values[name]) & set(values[left])])
        labels = list(dict.fromkeys(values[left] + values[right]))
        out = draw.sample(labels, draw.randint(1, min(2, len(labels))))
        in_labels = [values[left], values[right]]
        name = f"t{step}"
        ops.append({"name": name, "inputs": [left, right], "in_labels": in_labels, "out_labels": out, "agg": "sum"})
        values[name] = out
    used = {name for op in ops for name in op["inputs"]}
    outputs = [op["name"] for op in ops if op["name"] not in used]
    return {"inputs": {name: inputs[name] for name in inputs}, "ops": ops, "outputs": outputs}


def random_pins(graph: dict[str, Any], axes: int, draw: random.Random) -> dict[str, str]:
    """What each axis of the grid divides of every value of a graph."""
    pins = {}
    for name, extents in graph["inputs"].items():
        pins[name] = [*map(str, range(len(extents))), "*"]
    for op in graph["ops"]:
        pins[op["name"]] = sorted({label for labels in op["in_labels"] for label in labels})
    read = {name for op in graph["ops"] for name in op["inputs"]} | {op["name"] for op in graph["ops"]}
    return {
        name: f"({', '.join(draw.choice(ways) for _ in range(axes))})" for name, ways in pins.items() if name in read
    }


def test_a_product_of_stored_operands_moves_what_it_must() -> None:
    # Each of 4 sites has 16 columns of X and 16 of Y. For a quarter of Z it lacks 48 columns of 32 rows of X, and 16 of
    # the 32 columns of Y.
    plan = joinsum.plan_graph(PRODUCT, "wire_bytes", sites=4, pins={"X": [1, 4], "Y": [1, 4]})
    assert plan.cost == 4 * (32 * 48 + 64 * 16) * 4
    assert plan.exact
    assert plan.cost == plan.wire_bytes == joinsum.cost(plan.physical).wire_bytes


@pytest.mark.parametrize("objective", ["wire_bytes", "seconds"])
@pytest.mark.parametrize("sites", [2, 3, 4, 6])
def test_rows_add_up_to_the_cost_of_the_physical_plan(objective: str, sites: int) -> None:
    plan = joinsum.plan_graph(STEP, objective, sites=sites)
    assert plan.physical is not None
    priced = joinsum.cost(plan.physical)
    assert plan.cost == pytest.approx(getattr(priced, objective), rel=1e-12)
    rows = (*plan.inputs, *plan.vertices)
    assert sum(row.wire_bytes for row in rows) == priced.wire_bytes
    assert sum(row.seconds for row in rows) == pytest.approx(priced.seconds)
    assert plan.peak_bytes == priced.peak_bytes


@pytest.mark.parametrize("objective", ["wire_bytes", "seconds"])
def test_no_baseline_of_random_graphs_costs_less(objective: str) -> None:
    compared = 0
    for seed in range(100):
        sites = (2, 3, 4, 8)[seed % 4]
        plan = joinsum.plan_graph(random_graph(seed), objective, sites=sites)
        assert plan.lower_bound <= plan.cost
        assert not plan.exact or plan.lower_bound == plan.cost
        for baseline in plan.baselines:
            assert (baseline.cost is None) == (baseline.reason is not None)
            if baseline.cost is not None:
                compared += 1
                assert plan.cost <= baseline.cost
    assert compared > 100


@pytest.mark.parametrize("objective", ["wire_bytes", "seconds"])
def test_no_pinned_plan_costs_less_than_the_bound(objective: str) -> None:
    free = joinsum.plan_graph(STEP, objective, sites=8)
    assert 0 < free.lower_bound <= free.cost
    draw = random.Random(0)
    for _ in range(60):
        pins = {}
        for op in STEP["ops"]:
            labels = sorted({*"".join(op["in_labels"])})
            pins[op["name"]] = f"({', '.join(draw.choice(labels) for _ in range(3))})"
        chosen = dict(draw.sample(list(pins.items()), draw.randint(1, len(pins))))
        assert joinsum.plan_graph(STEP, objective, sites=8, pins=chosen).cost >= free.lower_bound, chosen


def test_thousands_of_sites_are_planned() -> None:
    wide = {**STEP, "inputs": {"X": [4096, 2048], "W1": [2048, 8192], "W2": [8192, 2048], "dY": [4096, 2048]}}
    plan = joinsum.plan_graph(wide, "wire_bytes", sites=2048)
    assert plan.lower_bound == joinsum.plan_graph(wide, "wire_bytes", sites=64).lower_bound > 0
    assert not plan.exact
    assert plan.cost == sum(vertex.wire_bytes for vertex in (*plan.inputs, *plan.vertices)) > 0
    assert all(plan.cost <= baseline.cost for baseline in plan.baselines if baseline.cost is not None)
    named = [baseline.name for baseline in plan.baselines]
    assert plan.method == "elimination" or plan.method in named
    pinned = joinsum.plan_graph(wide, "wire_bytes", sites=2048, pins={"A": "(b, h, h, b)"})
    assert {vertex.name: vertex.placement for vertex in pinned.vertices}["A"] == "(b, h, h, b)"


def test_baselines_of_a_training_step_are_what_people_write() -> None:
    plan = joinsum.plan_graph(STEP, "wire_bytes", sites=4)
    costs = {baseline.name: baseline.cost for baseline in plan.baselines}
    # Gradients are summed over 4 sites and left on all of them: 2 * 3 of 4 parts, on 4 sites.
    weights = (32 * 48 + 48 * 16) * 4
    assert costs["data parallel"] == 2 * 3 * weights
    # Weights are gathered, once each, and gradients scattered.
    assert costs["fully sharded data parallel"] == 2 * 3 * weights
    # Results of the layer are summed over the sites, and stay there.
    assert costs["tensor parallel"] == 2 * 3 * 64 * 16 * 4
    assert plan.cost <= min(cost for cost in costs.values() if cost is not None)
    assert "data parallel" in repr(plan)
    report = json.loads(json.dumps(plan.to_json()))
    assert report["baselines"][0]["loses"] == 6 * weights - plan.cost


def test_a_baseline_that_a_graph_cannot_have_is_listed_with_the_reason() -> None:
    plan = joinsum.plan_graph(STEP, "wire_bytes", sites=128)
    reasons = {baseline.name: baseline.reason for baseline in plan.baselines}
    assert reasons["data parallel"] == "64 elements for 128 sites along axis 0 of X"
    assert "64 elements for 128 sites" in repr(plan)


def op(name: str, equation: str, *inputs: str, **functions: str) -> dict[str, Any]:
    terms, out = equation.split("->")
    return {"name": name, "inputs": list(inputs), "in_labels": terms.split(","), "out_labels": out, **functions}


UNEVEN_MLP = {
    "inputs": {"X": [96, 48], "U": [48, 336], "V": [336, 144], "W": [144, 16], "dY": [96, 16]},
    "ops": [
        op("A", "bi,ih->bh", "X", "U", agg="sum"),
        op("H", "bh->bh", "A", join="relu"),
        op("B", "bh,hm->bm", "H", "V", agg="sum"),
        op("Y", "bm,mo->bo", "B", "W", agg="sum"),
        op("dW", "bm,bo->mo", "B", "dY", agg="sum"),
        op("dB", "bo,mo->bm", "dY", "W", agg="sum"),
        op("dV", "bh,bm->hm", "H", "dB", agg="sum"),
        op("dH", "bm,hm->bh", "dB", "V", agg="sum"),
        op("dA", "bh,bh->bh", "dH", "A"),
        op("dU", "bi,bh->ih", "X", "dA", agg="sum"),
    ],
    "outputs": ["Y", "dU", "dV", "dW"],
}
ATTENTION = {
    "inputs": {"X": [48, 64, 96], "Q": [96, 12, 8], "K": [96, 12, 8], "V": [96, 12, 8], "O": [12, 8, 96]},
    "ops": [
        op("q", "bsa,ahd->bshd", "X", "Q", agg="sum"),
        op("k", "bsa,ahd->bshd", "X", "K", agg="sum"),
        op("v", "bsa,ahd->bshd", "X", "V", agg="sum"),
        op("scores", "bshd,bthd->bhst", "q", "k", agg="sum"),
        op("top", "bhst->bhs", "scores", agg="max"),
        op("exp", "bhst,bhs->bhst", "scores", "top", join="sub | exp"),
        op("total", "bhst->bhs", "exp", agg="sum"),
        op("p", "bhst,bhs->bhst", "exp", "total", join="div"),
        op("o", "bhst,bthd->bshd", "p", "v", agg="sum"),
        op("Y", "bshd,hda->bsa", "o", "O", agg="sum"),
        op("Z", "bsa,bsa->bsa", "X", "Y", join="add"),
    ],
    "outputs": ["Z"],
}
DIAMONDS = {
    "inputs": {"X": [96, 144], "L": [144, 48], "R": [144, 48], "M": [48, 144]},
    "ops": [
        op("left", "bi,ij->bj", "X", "L", agg="sum"),
        op("right", "bi,ij->bj", "X", "R", agg="sum"),
        op("both", "bj,bj->bj", "left", "right", join="add"),
        op("back", "bj,ji->bi", "both", "M", agg="sum"),
        op("sides", "bj,bj->b", "left", "right", agg="sum"),
        op("scaled", "bi,b->bi", "back", "sides"),
        op("out", "bi,bi->bi", "scaled", "X", join="add"),
    ],
    "outputs": ["out", "both"],
}


@pytest.mark.parametrize("objective", ["wire_bytes", "seconds"])
@pytest.mark.parametrize("sites", [6, 12, 16])
@pytest.mark.parametrize("graph", [UNEVEN_MLP, ATTENTION, DIAMONDS], ids=["mlp", "attention", "diamonds"])
def test_the_search_itself_is_no_worse_than_any_baseline(graph: Any, sites: int, objective: str) -> None:
    plan = joinsum.plan_graph(graph, objective, sites=sites)
    costs = [baseline.cost for baseline in plan.baselines if baseline.cost is not None]
    assert len(costs) >= 2
    assert plan.cost <= min(costs)
    assert plan.method == "elimination"  # not a baseline's name
    assert 0.9 * plan.cost <= plan.lower_bound <= plan.cost


@pytest.mark.parametrize("sites", [64, 96, 4096])
def test_seconds_on_grids_of_many_prime_factors_are_bounded_by_the_work(sites: int) -> None:
    wide = {**STEP, "inputs": {"X": [8192, 64], "W1": [64, 96], "W2": [96, 32], "dY": [8192, 32]}}
    plan = joinsum.plan_graph(wide, "seconds", sites=sites, cluster=joinsum.Cluster("described", 1e9, 1e9, 0.0))
    products = 2 * 8192 * 96 * (2 * 64 + 3 * 32)
    assert plan.lower_bound >= products / 1e9 / sites
    assert plan.lower_bound <= plan.cost
    assert plan.exact == (plan.cost == plan.lower_bound)
    # The work of one product is repeated by no more than the uneven parts.
    assert plan.lower_bound <= 1.1 * products / 1e9 / sites


def test_measured_rates_bound_plans_of_many_sites() -> None:
    wide = {**STEP, "inputs": {"X": [8192, 64], "W1": [64, 96], "W2": [96, 32], "dY": [8192, 32]}}
    plan = joinsum.plan_graph(wide, "seconds", sites=128, cluster=MEASURED)
    assert 0.5 * plan.cost <= plan.lower_bound <= plan.cost
    # What opens a run, and the four nodes that work.
    assert plan.lower_bound > 1e-4 + 4 * 2e-5


@pytest.mark.parametrize("cluster", [MEASURED, joinsum.Cluster("described", 1e9, 1e12, 0.0)], ids=["measured", "flat"])
@pytest.mark.parametrize("seed", range(4))
def test_no_plan_of_any_grid_takes_less_than_its_work(cluster: joinsum.Cluster, seed: int) -> None:
    # Six prime factors of two on their own, and merged: the bound of the merged ones holds for all.
    graph = random_graph(seed, scale=16)
    bound = joinsum.plan_graph(graph, "seconds", sites=128, cluster=cluster).lower_bound
    assert bound > 0
    draw = random.Random(seed)
    least = math.inf
    for _ in range(40):
        pins = {}
        for op in graph["ops"]:
            labels = [*sorted({label for labels in op["in_labels"] for label in labels}), "*"]
            pins[op["name"]] = f"({', '.join(draw.choice(labels) for _ in range(4))})"
        plan = joinsum.plan_graph(graph, "seconds", sites=128, pins=pins, cluster=cluster)
        least = min(least, plan.cost)
        assert plan.lower_bound <= plan.cost
    assert bound <= least


def test_sixty_four_sites_are_planned_exactly() -> None:
    plan = joinsum.plan_graph(UNEVEN_MLP, "wire_bytes", sites=64)
    assert plan.exact
    assert plan.cost == plan.lower_bound > 0


@pytest.mark.parametrize("seed", range(12))
def test_merged_axes_are_bounded_by_fewer_sites_where_these_divide_all_work(seed: int) -> None:
    graph = random_graph(seed, scale=64)
    few = joinsum.plan_graph(graph, "wire_bytes", sites=64)
    for sites in (128, 192, 256):
        many = joinsum.plan_graph(graph, "wire_bytes", sites=sites)
        assert many.lower_bound == few.lower_bound <= many.cost
        assert many.exact == (many.cost == few.lower_bound)


def test_pins_count_in_the_bound_of_merged_axes() -> None:
    graph = random_graph(3, scale=64)
    first = graph["ops"][0]["inputs"][0]
    for pin in ("", "0", "1"):
        few = joinsum.plan_graph(graph, "wire_bytes", sites=64, pins={first: f"({', '.join([pin or '*'] * 6)})"})
        many = joinsum.plan_graph(graph, "wire_bytes", sites=256, pins={first: f"({', '.join([pin or '*'] * 4)})"})
        assert many.lower_bound == few.lower_bound <= many.cost, pin


def test_merged_axes_have_no_bound_where_products_are_too_small_for_all_sites() -> None:
    plan = joinsum.plan_graph(random_graph(0), "wire_bytes", sites=128)
    assert plan.cost > plan.lower_bound == 0
    assert not plan.exact


def test_plans_have_what_is_pinned() -> None:
    pins: dict[str, Any] = {"A": {"b": 2, "h": 2}, "H": "(h, h)", "W1": [4, 1], "dW2": {"o": 1, "b": 4}}
    plan = joinsum.plan_graph(STEP, "wire_bytes", sites=4, pins=pins)
    assert plan.plan["A"] == {"b": 2, "i": 1, "h": 2}
    assert plan.plan["dW2"] == {"b": 4, "h": 1, "o": 1}
    placements = {vertex.name: vertex.placement for vertex in (*plan.vertices, *plan.inputs)}
    assert placements["H"] == "(h, h)"
    assert placements["W1"] == "(0, 0)"
    assert plan.cost > joinsum.plan_graph(STEP, "wire_bytes", sites=4).cost


def test_an_output_ends_as_it_is_pinned() -> None:
    pins = {"X": [4, 1], "Y": [1, 1]}
    free = joinsum.plan_graph(PRODUCT, "wire_bytes", sites=4, pins=pins)
    planned = joinsum.plan_graph(PRODUCT, "wire_bytes", sites=4, pins=pins | {"product": [1, 4]})
    assert free.cost == 0
    # Y is everywhere, so is X only by 3 of 4 parts; of Z each site lacks 3 of the 4 blocks of its columns.
    assert planned.cost == min(4 * 3 * 16 * 16 * 4, 4 * 48 * 64 * 4)
    assert joinsum.plan_graph(PRODUCT, "wire_bytes", sites=4, pins=pins | {"product": "(i, i)"}).cost == 0


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        ({"Z": {"i": 2, "j": 1, "k": 4}}, r"pins=\[Z\.i=2, Z\.k=4\]"),
        ({"Z": {"i": 3, "k": 2}}, r"pins=\[Z\.i=3\]"),
        ({"V": {"i": 2}}, "a pin names no input, vertex or output: pin=V"),
        ({"Z": {"x": 2}}, "a pin names a label that its value lacks: pin=Z, label=x"),
        ({"Z": "(i)"}, "a placement says of each axis of the grid which label it divides: pin=Z, axes=1, grid=2x2"),
        ({"Z": "i, j"}, "a placement names a label or"),
    ],
)
def test_wrong_pins_are_named(pins: Any, message: str) -> None:
    with pytest.raises(joinsum.PlanError, match=message):
        joinsum.plan_graph(PRODUCT, "wire_bytes", sites=4, pins=pins)


def test_a_plan_fits_the_memory_or_says_what_is_missing() -> None:
    free = joinsum.plan_graph(STEP, "wire_bytes", sites=4)
    small = joinsum.plan_graph(
        STEP, "wire_bytes", sites=4, cluster=joinsum.Cluster(memory_bytes=free.peak_bytes * 3 // 4)
    )
    assert small.peak_bytes <= free.peak_bytes * 3 // 4
    assert small.cost >= free.cost
    assert joinsum.cost(small.physical).peak_bytes == small.peak_bytes
    with pytest.raises(joinsum.PlanError) as raised:
        joinsum.plan_graph(STEP, "wire_bytes", sites=4, cluster=joinsum.Cluster(memory_bytes=2000))
    message = str(raised.value)
    assert "short by=" in message
    assert "largest tensor=" in message
    short, needs = (int(message.split(f"{name}=")[1].split(" ")[0]) for name in ("short by", "needs"))
    assert needs - short == 2000


def test_a_plan_fits_whatever_memory_pins_show_to_be_enough() -> None:
    # X lies divided along its last axis, which no price of all resident bytes together makes the best.
    graph = {
        "inputs": {"X": [5, 12, 2]},
        "ops": [
            {"name": "v", "inputs": ["X", "X"], "in_labels": ["abc", "dbc"], "out_labels": "dca", "agg": "sum"},
            {"name": "w", "inputs": ["v", "v"], "in_labels": ["abc", "abc"], "out_labels": "bc", "agg": "sum"},
        ],
        "outputs": ["w"],
    }
    pinned = joinsum.plan_graph(graph, "wire_bytes", sites=3, pins={"X": "(2)", "v": "(c)", "w": "(b)"})
    found = joinsum.plan_graph(graph, "wire_bytes", sites=3, cluster=joinsum.Cluster(memory_bytes=pinned.peak_bytes))
    assert found.peak_bytes <= pinned.peak_bytes < joinsum.plan_graph(graph, "wire_bytes", sites=3).peak_bytes


@pytest.mark.parametrize("objective", ["wire_bytes", "seconds"])
@pytest.mark.parametrize("seed", range(6))
def test_small_graphs_get_the_cheapest_plan_that_fits(seed: int, objective: str) -> None:
    # Pins show which memory is enough, and at what cost.
    draw = random.Random(seed)
    graph = random_graph(seed)
    sites = draw.choice([2, 3, 4])
    shown = {}
    for _ in range(40):
        pins = random_pins(graph, 2 if sites == 4 else 1, draw)
        plan = joinsum.plan_graph(graph, objective, sites=sites, pins=pins)
        shown[plan.peak_bytes] = min(plan.cost, shown.get(plan.peak_bytes, math.inf))
    costs = []
    for memory in sorted(shown)[:3]:
        costs.append(shown[memory])
        found = joinsum.plan_graph(graph, objective, sites=sites, cluster=joinsum.Cluster(memory_bytes=memory))
        assert found.peak_bytes <= memory
        assert found.cost <= min(costs) * (1 + 1e-9)


def test_the_error_says_whether_no_plan_fits_or_none_was_found() -> None:
    with pytest.raises(joinsum.PlanError, match=r"no plan fits a site's memory; .*short by=\d+ B.*largest tensor="):
        joinsum.plan_graph(
            PRODUCT, "wire_bytes", sites=4, cluster=joinsum.Cluster(memory_bytes=3 * 64 * 64 * 4 // 4 - 1)
        )
    chain = {
        "inputs": {f"W{step}": [64, 64] for step in range(25)},
        "ops": [
            {
                "name": f"T{step}",
                "inputs": [f"T{step - 1}" if step > 1 else "W0", f"W{step}"],
                "in_labels": ["ij", "jk"],
                "out_labels": "ik",
                "agg": "sum",
            }
            for step in range(1, 25)
        ],
        "outputs": ["T24"],
    }
    with pytest.raises(joinsum.PlanError, match=r"no plan that was found fits .*short by=\d+ B.*largest tensor="):
        joinsum.plan_graph(
            chain, "wire_bytes", sites=4, cluster=joinsum.Cluster(memory_bytes=25 * 64 * 64 * 4 // 4 + 100)
        )


def test_memory_that_the_inputs_alone_pass_is_refused() -> None:
    with pytest.raises(joinsum.PlanError, match=r"short by=\d+ B, needs=\d+ B, memory_bytes=100"):
        joinsum.plan_graph(PRODUCT, "wire_bytes", sites=4, cluster=joinsum.Cluster(memory_bytes=100))


CHAIN = {
    "inputs": {"A": [8, 8], "B": [8, 8], "C": [8, 8]},
    "ops": [
        {"name": "Z", "inputs": ["A", "B", "C"], "in_labels": ["ij", "jk", "kl"], "out_labels": "il", "agg": "sum"}
    ],
    "outputs": ["Z"],
}


@pytest.mark.parametrize("objective", ["wire_bytes", "seconds"])
@pytest.mark.parametrize("sites", [1, 3, 4])
def test_an_operation_of_three_operands_is_planned_in_steps_with_their_labels(sites: int, objective: str) -> None:
    plan = joinsum.plan_graph(CHAIN, objective, sites=sites)
    labels = {name: set(parts) for name, parts in plan.plan.items()}
    assert labels in ({"Z.1": set("ijk"), "Z": set("ikl")}, {"Z.1": set("jkl"), "Z": set("ijl")})
    # The second axis of the data, j, is reduced by the first step alone: that one is divided along it.
    assert {baseline.name for baseline in plan.baselines if baseline.cost is not None} >= {
        "data parallel",
        "fully sharded data parallel",
        "tensor parallel",
        "sequence split",
    }
    assert all(plan.cost <= baseline.cost for baseline in plan.baselines if baseline.cost is not None)


def test_options_of_other_objectives_are_refused() -> None:
    with pytest.raises(joinsum.PlanError, match="an option of other objectives: objective=paper, sites=4"):
        joinsum.plan_graph(PRODUCT, sites=4)
    with pytest.raises(joinsum.PlanError, match="an option of other objectives: objective=seconds, calls=4"):
        joinsum.plan_graph(PRODUCT, "seconds", calls=4)


def test_plans_of_einsums_keep_their_dtypes() -> None:
    halves = joinsum.Graph.parse(
        "einsum\ninput X: f16[64,64]\ninput Y: f16[64,64]\noutput Z = einsum[ij,jk->ik; mul; add](X, Y)"
    )
    pins = {"X": [1, 4], "Y": [1, 4]}
    plan = joinsum.plan_graph(halves, "wire_bytes", sites=4, pins=pins)
    assert plan.cost == joinsum.plan_graph(PRODUCT, "wire_bytes", sites=4, pins=pins).cost / 2
