"""Orders of joins, chosen together with placements."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import joinsum
import opt_einsum
import opt_einsum.testing
import pytest
import torch
from joinsum import _C, PlanError
from joinsum.algebra.plan import TraPlan
from joinsum.graphs.contraction_order import best_orders, paths_of
from joinsum.planner.search import SearchOptions, search_in_process

Path = list[tuple[int, int]]


def graph(equation: str, extents: dict[str, int], join: str = "mul", reduction: str = "add") -> _C.EinsumPlan:
    terms, result = equation.split("->")
    labels = [list(letters) for letters in terms.split(",")]
    inputs = [_C.einsum_input(f"x{i}", "f32", [extents[c] for c in each]) for i, each in enumerate(labels)]
    vertex = _C.einsum_vertex(inputs, labels, list(result), _C.Kernel(join), _C.Kernel(reduction), {})
    return _C.EinsumPlan.make([("z", vertex)])


def bytes_of(plan: _C.EinsumPlan, path: Path | None, everywhere: bool) -> int:
    """Wire bytes of the best plan that the optimizer finds for one order."""
    current = joinsum.context()
    pairs = plan.binary({} if path is None else {"t0": path})
    pins = {"z": _C.Placement.replicated(current.grid)} if everywhere else {}
    found = search_in_process(
        current,
        TraPlan(pairs.lower(pairs.even_cuts(current.sites))),
        SearchOptions({}, pins, "wire_bytes", current.cluster),
    )
    return joinsum.cost(found.plans[0].plan).wire_bytes


def every_order(operands: int) -> Iterator[Path]:
    if operands == 1:
        yield []
        return
    for pair in itertools.combinations(range(operands), 2):
        for rest in every_order(operands - 1):
            yield [pair, *rest]


def spread(equation: str, extents: list[int]) -> dict[str, int]:
    letters = sorted(set(equation) - set(",->"))
    return {letter: extents[i % len(extents)] for i, letter in enumerate(letters)}


@pytest.fixture(autouse=True)
def _one_site_afterwards() -> Iterator[None]:
    yield
    joinsum.init()


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("sites", [2, 3, 4])
@pytest.mark.parametrize(
    "equation",
    ["ijk,jr,kr->ir", "ab,bc,cd->ad", "ab,bc,cd,de->ae", "ab,ac,bd,cd->", "abc,bd,cd->a", "a,ab,b->", "ab,cd,bd->ac"],
)
def test_no_order_moves_less(equation: str, sites: int, everywhere: bool) -> None:
    joinsum.init(sites=sites)
    plan = graph(equation, spread(equation, [24, 8, 36, 12, 20]))
    path = best_orders(plan, joinsum.context(), everywhere, "wire_bytes")["t0"].path
    least = min(bytes_of(plan, each, everywhere) for each in every_order(len(plan.inputs)))
    assert bytes_of(plan, path, everywhere) == least


CHAIN = [64, 512, 32, 1024, 16, 256, 128, 64, 32, 512, 100]
LISTED = {
    "product of four": ("ab,bc,cd,de->ae", spread("abcde", [100, 2000, 50, 3000, 10])),
    "chain of six": ("ab,bc,cd,de,ef,fg->ag", spread("abcdefg", CHAIN)),
    "chain of ten": ("ab,bc,cd,de,ef,fg,gh,hi,ij,jk->ak", spread("abcdefghijk", CHAIN)),
    "MTTKRP": ("ijk,jr,kr->ir", {"i": 256, "j": 200, "k": 180, "r": 64}),
    "triangle update": ("bikc,bjkc->bijc", {"b": 8, "i": 64, "j": 48, "k": 40, "c": 32}),
    "gated triangle update": ("bikc,bjkc,bijc->bijc", {"b": 8, "i": 64, "j": 48, "k": 40, "c": 32}),
    "network of six": ("abc,bde,dfg,cfh,egij,hik->ajk", spread("abcdefghijk", [16])),
    "network of five": ("ab,acd,bce,def,fg->g", spread("abcdefg", [32])),
}


def random_network(operands: int, seed: int) -> tuple[str, dict[str, int]]:
    equation, shapes = opt_einsum.testing.rand_equation(operands, 3, n_out=2, d_min=4, d_max=12, seed=seed)[:2]
    extents: dict[str, int] = {}
    for letters, shape in zip(equation.split("->")[0].split(","), shapes, strict=True):
        extents.update(zip(letters, shape, strict=True))
    return equation, extents


CASES = LISTED | {
    f"random network of {n}, seed {seed}": random_network(n, seed)
    for n, seed in [(7, 0), (7, 1), (8, 2), (12, 0), (20, 0), (30, 0)]
}


def test_the_plans_move_no_more_than_those_of_opt_einsums_order_and_often_less() -> None:
    joinsum.init(sites=4)
    less = []
    for name, (equation, extents) in CASES.items():
        plan = graph(equation, extents)
        ours = best_orders(plan, joinsum.context(), True, "wire_bytes").get("t0")
        moved = bytes_of(plan, ours and ours.path, True)
        usual = bytes_of(plan, paths_of(plan).get("t0"), True)
        assert moved <= usual, name
        if moved < usual:
            less.append(name)
    assert {"chain of six", "chain of ten", "network of six", "network of five"} <= set(less)
    assert len(less) >= 8, less


@pytest.mark.parametrize(("operands", "seed", "sites"), [(14, 3, 6), (18, 1, 3), (30, 2, 4)])
def test_no_finder_of_opt_einsum_proposes_less_for_many_operands(operands: int, seed: int, sites: int) -> None:
    joinsum.init(sites=sites)
    equation, shapes = opt_einsum.testing.rand_equation(operands, 3, n_out=1, d_min=2, d_max=12, seed=seed)[:2]
    extents: dict[str, int] = {}
    for letters, shape in zip(equation.split("->")[0].split(","), shapes, strict=True):
        extents.update(zip(letters, shape, strict=True))
    plan = graph(equation, extents)
    ours = best_orders(plan, joinsum.context(), True, "wire_bytes")["t0"].path
    moved = bytes_of(plan, ours, True)
    for found in ("auto", "auto-hq"):
        theirs = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize=found)[0]
        pairs = [(step[0], step[1]) for step in theirs if len(step) == 2]
        assert moved <= bytes_of(plan, pairs, True), found


COMPARED = {
    # The proposal joins two operands without a common label, and costs less than any order that does not.
    "outer product first": ("a,b,ab->ab", spread("ab", [5, 7]), "all"),
    "chain": (LISTED["chain of ten"][0], LISTED["chain of ten"][1], "all"),
    "ring": ("ab,bc,cd,de,ef,fg,gh,hi,ij,ja->", spread("abcdefghij", [32, 16, 64]), "all"),
    "random network": (*random_network(10, 0), "all"),
    "dense random network": (*random_network(10, 1), "connected"),
    "random network of twelve": (*random_network(12, 0), "proposed"),
}


@pytest.mark.parametrize("name", COMPARED)
def test_a_plan_says_of_which_orders_it_has_the_best(name: str) -> None:
    joinsum.init(sites=4)
    equation, extents, compared = COMPARED[name]
    shapes = [[extents[c] for c in labels] for labels in equation.split("->")[0].split(",")]
    run = joinsum.einsum_plan(equation, *shapes)
    assert run.orders["t0"].compared == compared
    assert f"order (t0: {run.orders['t0']})" in repr(run)


def test_the_price_of_an_order_is_that_of_its_plan() -> None:
    current = joinsum.init(sites=4)
    for equation, extents in [LISTED["chain of six"], LISTED["network of six"], LISTED["MTTKRP"]]:
        plan = graph(equation, extents)
        proposals = [paths_of(plan)["t0"]]
        for everywhere in (False, True):
            path, price, flops, compared = _C.contraction_order(
                plan, "t0", proposals, current.grid, "wire_bytes", current.cluster.core(), everywhere
            )
            assert compared == "all"
            assert flops > 0
            assert price == bytes_of(plan, path, everywhere)


def test_other_products_than_that_of_numbers_have_an_order_too() -> None:
    joinsum.init(sites=4)
    plan = graph("ab,bc,cd->ad", spread("abcd", [30, 4, 50, 2]), "add", "min")
    assert len(best_orders(plan, joinsum.context(), True)["t0"].path) == 2
    x, y, z = torch.rand(30, 4), torch.rand(4, 50), torch.rand(50, 2)
    wanted = (x[:, :, None, None] + y[None, :, :, None] + z[None, None]).amin((1, 2))
    torch.testing.assert_close(joinsum.einsum("ab,bc,cd->ad", x, y, z, join="add", agg="min"), wanted)


def test_joins_that_are_taken_from_the_left_have_none() -> None:
    current = joinsum.init(sites=2)
    plan = graph("a,ab,b->a", {"a": 4, "b": 6}, "sub", "max")
    assert best_orders(plan, current, True) == {}
    with pytest.raises(PlanError, match="taken from the left, so there is no order to choose: join=sub"):
        _C.contraction_order(plan, "t0", [], current.grid, "seconds", current.cluster.core(), True)


def test_many_operands_need_a_proposal() -> None:
    current = joinsum.init(sites=2)
    plan = graph(*random_network(12, 0))
    with pytest.raises(PlanError, match="so many operands need a proposal: operands=12"):
        _C.contraction_order(plan, "t0", [], current.grid, "seconds", current.cluster.core(), True)


@pytest.mark.parametrize("operands", [63, 64, 65, 130])
def test_an_einsum_may_have_more_operands_than_there_are_sets_to_price(operands: int) -> None:
    joinsum.init(sites=3)
    tensors = [torch.rand(6, dtype=torch.float64) + 0.5 for _ in range(operands)]
    found = joinsum.einsum(",".join(["i"] * operands) + "->", *tensors)
    torch.testing.assert_close(found, torch.stack(tensors).prod(0).sum())


def test_pythons_random_numbers_go_on_as_they_would() -> None:
    current = joinsum.init(sites=2)
    random.seed(5)
    wanted = random.random()
    random.seed(5)
    best_orders(graph(*random_network(12, 0)), current, True)
    assert random.random() == wanted
