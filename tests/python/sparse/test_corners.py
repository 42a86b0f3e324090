"""Programs at the edges: many paths and levels, infinities, empty ranges, colliding names, wrong types."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from joinsum import PlanError
from joinsum.sparse import Program, choose_formats, elimination_cost, estimate, minimal_sub_expressions, order_costs

ONES = {"shape": [3, 3], "coo": [[i, j, 1] for i in range(3) for j in range(3)]}
VECTOR = {"shape": [3], "coo": [[0, 1], [2, 5]]}


def at(tensor: str, *indices: str) -> list[Any]:
    return ["in", tensor, list(indices)]


def program(tensors: dict[str, Any], expr: list[Any], *output: str, **sizes: int) -> Program:
    query = {"name": "q", "expr": expr, "output": list(output)}
    return Program({"index_sizes": sizes, "tensors": tensors, "queries": [query]})


def test_products_of_many_sums_are_planned() -> None:
    sums = [
        ["map", "+", [at(f"A{2 * k}", f"i{k}", f"i{k + 1}"), at(f"A{2 * k + 1}", f"i{k}", f"i{k + 1}")]]
        for k in range(5)
    ]
    indices = [f"i{k}" for k in range(6)]
    over = program({f"A{k}": ONES for k in range(10)}, ["agg", "+", indices, ["map", "*", sums]])
    assert over.run()["q"].item() == 3**6 * 2**5


def test_squares_are_not_multiplied_out_below_a_minimum() -> None:
    tensors = {"A": {"shape": [], "coo": [[1e8]]}, "V": {"shape": [3], "coo": [[0, 1e8 + 1]]}}
    difference = ["map", "sq", [["map", "-", [at("A"), at("V", "i")]]]]
    assert program(tensors, ["agg", "min", ["i"], difference]).run()["q"].item() == 1
    assert program(tensors, ["agg", "max", ["i"], difference]).run()["q"].item() == 1e16


def test_sums_over_nothing_are_planned() -> None:
    tensors = {"V": VECTOR, "Z": {"shape": [2, 0], "coo": []}}
    square = ["map", "sq", [["map", "-", [["map", "sq", [at("V", "i")]], at("Z", "k", "l")]]]]
    over = program(tensors, ["agg", "+", ["k", "l"], square], "i")
    assert over.run()["q"].to_dense().tolist() == [0, 0, 0]


@pytest.mark.parametrize("products", [5, 24])
def test_sums_of_products_are_planned_summand_by_summand(products: int) -> None:
    """Branch and bound over all their paths at once would take seconds."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randint(1, 4, shape, generator=generator) for shape in ((products, 6, 5), (products, 5, 4)))
    tensors: dict[str, Any] = {}
    for name, each in (("A", x), ("B", y)):
        for q, matrix in enumerate(each.tolist()):
            coo = [[i, j, value] for i, row in enumerate(matrix) for j, value in enumerate(row)]
            tensors[f"{name}{q}"] = {"shape": list(each.shape[1:]), "coo": coo}
    terms = [["map", "*", [at(f"A{q}", "i", "j"), at(f"B{q}", "j", "k")]] for q in range(products)]
    over = program(tensors, ["agg", "+", ["j"], ["map", "+", terms]], "i", "k")
    assert over.plan(search="branch_and_bound").seconds["plan"] < 5
    assert torch.equal(over.run()["q"].to_dense(), (x.double() @ y.double()).sum(0))


def test_a_product_of_sums_with_many_paths_is_summed_summand_by_summand() -> None:
    """The covariance of a star join: 16 summands over nine indices, 144 paths."""
    generator = torch.Generator().manual_seed(0)
    rows, features, tables = 400, 28, "SPOC"
    keys = torch.randint(0, 5, (rows, 4), generator=generator)
    join = {"shape": [rows, 5, 5, 5, 5], "coo": [[i, *key, 1] for i, key in enumerate(keys.tolist())]}
    values = torch.randint(-2, 3, (4, 5, features), generator=generator)
    values *= torch.arange(features) // 7 == torch.arange(4)[:, None, None]  # each table has columns of its own
    stored = [
        {"shape": [5, features], "coo": [[r, c, x] for r, row in enumerate(each) for c, x in enumerate(row) if x]}
        for each in values.tolist()
    ]

    def rows_of(column: str, tag: str) -> list[Any]:
        own = [f"{table}{tag}" for table in tables]
        features_of = ["map", "+", [at(table, index, column) for table, index in zip(tables, own, strict=True)]]
        return ["agg", "+", own, ["map", "*", [at("L", "i", *own), features_of]]]

    tensors = {"L": join, **dict(zip(tables, stored, strict=True))}
    over = program(tensors, ["agg", "+", ["i"], ["map", "*", [rows_of("j", "a"), rows_of("k", "b")]]], "j", "k")
    wanted = sum(values[t][keys[:, t]] for t in range(4)).double()  # type: ignore[union-attr]
    for search in ("greedy", "branch_and_bound"):
        plan = over.plan(search=search)
        assert len(plan.logical) > 16
        assert [query["op"] for query in plan.logical if query["name"] == "q"] == [None]
        assert plan.cost == pytest.approx(sum(query["cost"] for query in plan.logical))
        assert torch.equal(plan.run()["q"].to_dense(), wanted.T @ wanted)


def test_loops_do_not_walk_far_more_than_their_operands_share() -> None:
    """Loops s, t, i would count fewest entries of both operands, but walk 600 entries for each of 10,000 pairs."""
    degrees = [[[1, 2], [0], 1], [[0, 2], [1], 600], [[1], [], 100], [[2], [], 1000]]
    lines = {"shape": [60_000, 100, 1000], "nnz": 60_000, "degrees": degrees}
    product = ["map", "*", [at("A", "i", "s", "p"), at("A", "i", "t", "q")]]
    over = program({"A": lines}, ["agg", "+", ["i", "p", "q"], product], "s", "t")
    assert over.plan().physical[0]["loops"][0] == "i"


def test_innermost_loops_run_along_dense_operands_and_results() -> None:
    """Loops j, h, p would cost a little less, but write down the columns of the result."""
    tensors = {"P": {"shape": [10_000, 139], "nnz": 50_000}, "W": {"shape": [139, 25], "nnz": 139 * 25}}
    over = program(tensors, ["agg", "+", ["j"], ["map", "*", [at("P", "p", "j"), at("W", "j", "h")]]], "p", "h")
    assert over.plan(estimator="uniform").physical[0]["loops"] == ["p", "j", "h"]


@pytest.mark.parametrize("size", [0, 2, 4, 8, 128])
def test_large_queries_are_split_into_cheap_products(size: int) -> None:
    """A clique of five vertices, 20 occurrences of 5 indices: as many queries as the size asks for, one count."""
    generator = torch.Generator().manual_seed(1)
    adjacent = torch.rand(7, 7, generator=generator) < 0.6
    edges = {"shape": [7, 7], "coo": [[*place, 1] for place in adjacent.nonzero().tolist()]}
    pairs = [at("E", *pair) for pair in itertools.combinations("abcde", 2)]
    over = program({"E": edges}, ["agg", "+", list("abcde"), ["map", "*", pairs]])
    plan = over.plan(kernel_size=size)
    for query in plan.logical:
        leaves = [each[2] for each in ([query["expr"]] if query["expr"][0] == "in" else query["expr"][2])]
        repeated = sum(map(len, leaves)) - len(set(itertools.chain(*leaves)))
        assert repeated <= size or len(leaves) == 2
    assert (len(plan.logical) == 1) == (size >= 15)
    wanted = torch.einsum("ab,ac,ad,ae,bc,bd,be,cd,ce,de->", *[adjacent.double()] * 10)
    assert plan.run()["q"].item() == wanted.item()


@pytest.mark.parametrize("op", ["*", "+", "max"])
def test_a_map_may_have_more_operands_than_a_kernel(op: str) -> None:
    values = torch.rand(80, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64) + 0.5
    vectors = {
        f"v{i}": {"shape": [5], "coo": [[j, value] for j, value in enumerate(row.tolist())]}
        for i, row in enumerate(values)
    }
    over = program(vectors, ["agg", "+", ["i"], ["map", op, [at(name, "i") for name in vectors]]])
    joined = {"*": values.prod(0), "+": values.sum(0), "max": values.amax(0)}[op]
    assert over.run()["q"].item() == pytest.approx(joined.sum().item(), rel=1e-12)


@pytest.mark.parametrize("size", [0, 128])
def test_the_fill_of_a_sum_of_infinities_is_that_of_the_first(size: int) -> None:
    tensors = {name: {"shape": [2], "fill": fill, "coo": []} for name, fill in (("A", "inf"), ("B", 0), ("C", "-inf"))}
    for order in itertools.permutations("ABC"):
        over = program(tensors, ["map", "+", [at(name, "j") for name in order]], "j")
        assert over.plan(kernel_size=size).run()["q"].fill == over.plan().run()["q"].fill


@pytest.mark.parametrize("depth", [65, 130])
def test_nested_maps_of_other_operators_may_have_many_operands(depth: int) -> None:
    values = torch.rand(depth, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    vectors = {
        f"v{i}": {"shape": [3], "coo": [[j, x] for j, x in enumerate(row)]} for i, row in enumerate(values.tolist())
    }
    expr, wanted = at("v0", "i"), values[0]
    for i in range(1, depth):
        expr = ["map", ("-", "max")[i % 2], [expr, at(f"v{i}", "i")]]
        wanted = torch.maximum(wanted, values[i]) if i % 2 else wanted - values[i]
    torch.testing.assert_close(program(vectors, expr, "i").run()["q"].to_dense(), wanted)


def test_the_size_of_kernels_is_checked() -> None:
    with pytest.raises(PlanError, match="kernel_size is a number that is not negative: kernel_size=-1"):
        program({"V": VECTOR}, at("V", "i"), "i").plan(kernel_size=-1)


def test_a_dense_result_is_not_visited_again_for_each_index_of_a_sum() -> None:
    """Loops h, k, i count fewest iterations, but read and write 2.4 MB for each pair of h and k."""
    tensors = {"X": {"shape": [300_000, 25], "nnz": 7_500_000}, "W": {"shape": [25, 25], "nnz": 625}}
    layer = ["agg", "+", ["h"], ["map", "*", [["map", "relu", [at("X", "i", "h")]], at("W", "h", "k")]]]
    over = program(tensors, layer, "i", "k")
    assert over.plan(estimator="uniform").physical[0]["loops"] == ["i", "h", "k"]


def test_sums_into_few_elements_of_a_dense_result_follow_their_operands() -> None:
    """Each i reaches one element of 500 x 500; loops that begin with s would read L at random places."""
    degrees = [[[1], [0], 1], [[2], [0], 1], [[0], [1], 700], [[1], [], 500], [[2], [], 10_000]]
    lines = {"shape": [300_000, 500, 10_000], "nnz": 300_000, "degrees": degrees}
    body = ["map", "*", [at("L", "i", "s", "p"), at("L", "i", "t", "q")]]
    over = program({"L": lines}, ["agg", "+", ["i", "p", "q"], body], "s", "t")
    assert over.plan().physical[0]["loops"][0] == "i"


@pytest.mark.parametrize("columns", [1000, 17_000, 300_000])
def test_sums_of_sparse_rows_run_along_dense_ones(columns: int) -> None:
    tensors = {
        "X": {"shape": [100, 500], "nnz": 10_000, "degrees": [[[1], [0], 100]]},
        "W": {"shape": [500, columns], "nnz": 500 * columns},
    }
    over = program(tensors, ["agg", "+", ["h"], ["map", "*", [at("X", "i", "h"), at("W", "h", "k")]]], "i", "k")
    assert over.plan().physical[0]["loops"] == ["i", "h", "k"]


def test_a_sparse_result_is_written_in_its_order_where_that_is_as_cheap() -> None:
    """Loops that start with the keys that both operands share would scatter millions of pairs."""
    pairs = {"shape": [30_000, 1000], "nnz": 30_000, "degrees": [[[1], [0], 1], [[0], [1], 50], [[1], [], 1000]]}
    body = ["map", "*", [at("L", "i", "p"), at("L", "j", "p")]]
    over = program({"L": pairs}, ["agg", "+", ["p"], body], "i", "j")
    assert over.plan().physical[0]["loops"] == ["i", "p", "j"]


@pytest.mark.parametrize("output", [("i", "k"), ("k", "i")])
@pytest.mark.parametrize("rows", [4, 400])
def test_a_map_of_a_sum_is_that_of_its_values(rows: int, output: tuple[str, str]) -> None:
    """Where nothing is stored, too: exp(0) is 1."""
    generator = torch.Generator().manual_seed(rows)
    x, y = (torch.randint(-1, 2, (rows, rows), generator=generator).double() for _ in range(2))
    x[torch.rand(x.shape, generator=generator) < 1 - 2 / rows] = 0
    y[torch.rand(y.shape, generator=generator) < 1 - 2 / rows] = 0
    coo = [
        [[*place, value] for place, value in zip(m.nonzero().tolist(), m[m != 0].tolist(), strict=True)] for m in (x, y)
    ]
    tensors = {name: {"shape": [rows, rows], "coo": each} for name, each in zip("XY", coo, strict=True)}
    total = ["agg", "+", ["j"], ["map", "*", [at("X", "i", "j"), at("Y", "j", "k")]]]
    found = program(tensors, ["map", "exp", [total]], *output).run()["q"]
    assert found.fill == 1
    wanted = (x @ y).exp()
    torch.testing.assert_close(found.to_dense(), wanted if output == ("i", "k") else wanted.T)


def test_indices_that_fall_idle_with_others_are_reduced() -> None:
    """Over an empty range a maximum is -inf, whatever it is of, and a sum of sums 0."""
    inner = ["agg", "+", ["n"], at("V", "n")]
    assert program({"V": VECTOR}, ["agg", "max", ["i"], inner], i=0).run()["q"].item() == -math.inf
    over = program({"V": VECTOR}, ["agg", "+", ["j", "m"], at("V", "j")], m=0)
    assert over.run()["q"].item() == 0
    assert sorted(over.plan().orders["q"]) == ["j", "m"]


@pytest.mark.parametrize(("agg", "wanted"), [("max", -math.inf), ("min", math.inf)])
@pytest.mark.parametrize("positive", ["sq", "relu"])
def test_an_extreme_of_an_empty_range_is_not_multiplied_by_zero(agg: str, wanted: float, positive: str) -> None:
    tensors = {"E": {"shape": [0], "coo": []}, "A": {"shape": [2], "coo": [[1, 3]]}}
    product = ["map", "*", [at("E", "i"), ["map", positive, [at("A", "k")]]]]
    found = program(tensors, ["agg", agg, ["i"], product], "k").run()["q"]
    assert found.to_dense().tolist() == [wanted] * 2


def test_estimates_of_huge_empty_results_are_numbers() -> None:
    sizes = {f"i{k}": 2**61 for k in range(20)}
    over = program({"V": {"shape": [3], "nnz": 0}}, at("V", "j"), "j", *sizes, **sizes)
    assert over.plan().logical[0]["nnz_agg"] == 0


def test_plans_that_are_deeper_than_their_programs_print() -> None:
    expr = at("V", "i")
    for _ in range(195):
        expr = ["map", "neg", [expr]]
    over = program({"V": VECTOR}, ["agg", "*", list("klmnopqr"), expr], "i", **dict.fromkeys("klmnopqr", 2))
    assert str(over.plan()).count("neg") == 195


def test_deep_expressions_are_planned_at_once() -> None:
    expr = at("V", "i")
    for _ in range(30):
        expr = ["map", "+", [at("V", "i"), ["map", "*", [at("V", "i"), expr]]]]
    over = program({"V": {"shape": [2], "coo": [[0, 0.5]]}}, expr, "i")
    assert over.plan().seconds["plan"] < 5
    assert over.run()["q"].to_dense()[0].item() == pytest.approx(1, rel=1e-6)
    for _ in range(150):
        expr = ["map", "neg", [expr]]
    with pytest.raises(PlanError, match="too deep"):
        program({"V": VECTOR}, expr, "i")


@pytest.mark.parametrize("rank", [14, 20, 40])
def test_tensors_of_many_axes_are_planned_at_once(rank: int) -> None:
    indices = [f"i{k}" for k in range(rank)]
    tensor = {"shape": [2] * rank, "coo": [[0] * rank + [1], [1] * rank + [2]]}
    over = program({"A": tensor}, ["agg", "+", indices, at("A", *indices)])
    assert over.plan().seconds["plan"] < 5
    assert over.run()["q"].item() == 3


def test_products_of_sums_stay_where_elements_are_infinite() -> None:
    difference = ["map", "-", [at("X", "i", "j"), ["map", "*", [at("U", "i"), at("W", "j")]]]]
    corner = {"shape": [2], "coo": [[0, 2]]}
    tensors = {"X": {"shape": [2, 2], "coo": [[0, 0, "inf"]]}, "U": corner, "W": corner}
    over = program(tensors, ["agg", "+", ["i", "j"], ["map", "sq", [difference]]])
    for estimator in ("uniform", "chain", "exact"):
        assert over.run(estimator=estimator)["q"].item() == math.inf


@pytest.mark.parametrize("infinite", ["", "summand", "factor", "elsewhere"])
def test_sums_are_multiplied_out_where_all_elements_are_finite(infinite: str) -> None:
    """Σ_j (A_ij + B_kj) t_j by its parts costs less; 1 · ∞ - 2 · ∞ would be no number."""
    generator = torch.Generator().manual_seed(0)
    a, b, t, c = (
        torch.randint(1, 4, shape, generator=generator).double() for shape in ((30, 20), (40, 20), (20,), (9,))
    )
    b = -2 * b - 0.5
    c[1] = -1
    {"summand": a[:2], "factor": t, "elsewhere": c}.get(infinite, torch.empty(1))[0] = math.inf
    tensors = {
        name: {"shape": list(x.shape), "coo": [[*at, x[tuple(at)].item()] for at in x.nonzero().tolist()]}
        for name, x in (("A", a), ("B", b), ("t", t), ("c", c))
    }
    body = ["map", "*", [["map", "+", [at("A", "i", "j"), at("B", "k", "j")]], at("t", "j")]]
    square = ["map", "sq", [["agg", "+", ["l"], at("c", "l")]]]
    over = program(tensors, ["map", "+", [["agg", "+", ["j"], body], square]], "i", "k")
    wanted = ((a[:, None] + b) * t).sum(2) + c.sum().square()
    torch.testing.assert_close(
        over.run()["q"].to_dense(), wanted
    )  # also by a plan that is cached for one that is alike
    assert over.plan().handle.distributed == (not infinite)


@pytest.mark.parametrize(
    ("op", "identity"), [("+", 0), ("*", 1), ("min", math.inf), ("max", -math.inf), ("and", 1), ("or", 0)]
)
def test_aggregates_of_nothing_are_the_identity(op: str, identity: float) -> None:
    empty = {"shape": [3, 0], "coo": []}
    for body in (at("V", "i"), ["map", op, [at("Z", "i", "k"), at("V", "i")]]):
        over = program({"V": VECTOR, "Z": empty}, ["agg", op, ["k"], body], "i", k=0)
        assert torch.equal(over.run()["q"].to_dense(), torch.full((3,), identity, dtype=torch.float64))


def test_aggregates_over_no_index_are_values_or_truths() -> None:
    for op, expected in (("+", [1, 0, 5]), ("max", [1, 0, 5]), ("or", [1, 0, 1]), ("and", [1, 0, 1])):
        over = program({"V": VECTOR}, ["agg", op, [], at("V", "i")], "i")
        assert over.run()["q"].to_dense().tolist() == expected


def test_loops_of_a_factor_that_does_not_annihilate_run_over_the_whole_range() -> None:
    tensors = {"S": {"shape": [], "coo": [[1]]}, "T": {"shape": [3], "fill": 1, "coo": []}}
    over = program(tensors, ["map", "*", [at("S"), at("T", "j")]], "j")
    assert over.plan(estimator="exact").physical[0]["iterations"] == [3]


def test_names_like_those_of_the_planner_are_free_to_use() -> None:
    tensors = {"A": ONES, "B": ONES, "C": {"shape": [3, 2], "coo": [[0, 0, 1], [1, 1, 2]]}}
    parts = [["map", "*", [at(name, "i", "k"), at("C", "i", "i#2")]] for name in "AB"]
    over = program(tensors, ["agg", "+", ["i", "i#2"], ["map", "+", parts]], "k")
    for search in ("greedy", "branch_and_bound"):
        assert over.run(search=search)["q"].to_dense().tolist() == [6, 6, 6]


def test_queries_name_their_indices_apart() -> None:
    inner = [
        ["agg", "+", [index], ["map", "*", [at(name, index, "a"), at(name, index, "b")]]]
        for name, index in (("X", "i"), ("Y", "i"), ("Z", "i_2"))
    ]
    tensors = dict.fromkeys("XYZ", ONES)
    over = program(tensors, ["agg", "+", ["a", "b"], ["map", "*", inner]])
    plan = over.plan(estimator="exact", mode="single", distribute=False, cover=False)
    for query in plan.logical:
        assert len(set(query["output"])) == len(query["output"])
    assert plan.run()["q"].item() == 9 * 27


def test_later_queries_follow_the_true_entries_of_earlier_ones() -> None:
    size = 400
    full = torch.arange(size).tolist()
    # A hub without a label bounds all degrees; the others have two neighbours.
    ring = [[i, (i + step) % (size - 1), 1] for i in full[:-1] for step in (2, size - 3)]
    hub = [[size - 1, j, 1] for j in full[:-1]] + [[i, size - 1, 1] for i in full[:-1]]
    star = {"shape": [size, size], "coo": ring + hub}
    label = {"shape": [size], "coo": [[i, 1] for i in full[::2]]}
    factors = [at("E", "a", "b"), at("E", "b", "c"), at("E", "c", "d"), at("E", "d", "a")]
    factors += [at("L", index) for index in "abcd"]
    over = program({"E": star, "L": label}, ["agg", "+", list("abcd"), ["map", "*", factors]])
    plan = over.plan()
    first = plan.run(adapt=False)["q"].item()
    assert plan.replanned == []
    assert plan.run()["q"].item() == first
    assert plan.replanned


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.plan(estimator=None),
        lambda p: p.plan(mode=1),
        lambda p: p.plan(cost=5),
        lambda p: p.plan(cost=(1, math.inf)),
        lambda p: p.plan(cutoffs=3),
        lambda p: p.plan(cutoffs={"dense": math.nan}),
        lambda p: p.plan(distribute="no"),
        lambda p: p.plan(most_loops=2.5),
        lambda p: p.run(threads=0),
        lambda p: p.run(engine=None),
        lambda p: order_costs(None, p, ["i"]),  # type: ignore[arg-type]
        lambda p: minimal_sub_expressions(at("A", "i"), 3),  # type: ignore[arg-type]
        lambda p: estimate(at("A", "i"), None),  # type: ignore[arg-type]
        lambda p: elimination_cost(p, None),  # type: ignore[arg-type]
        lambda p: choose_formats([10**20], [1], ["a"], ["a"]),
        lambda p: choose_formats([10], [1], ["a"], ["a"], {"foo": 1}),
        lambda p: Program.from_json(None),  # type: ignore[arg-type]
        lambda p: program({"A": {"shape": [3], "nnz": 10**400}}, at("A", "i"), "i"),
        lambda p: program({"V": VECTOR}, [["in"], 2], "i"),
        lambda p: program({"\ud800": VECTOR}, at("\ud800", "i"), "i"),
    ],
)
def test_arguments_of_wrong_types_are_named(call: Any) -> None:
    with pytest.raises(PlanError):
        call(program({"V": VECTOR}, at("V", "i"), "i"))


@pytest.mark.parametrize("depth", [12, 60])
def test_nested_squares_are_not_multiplied_out_without_end(depth: int) -> None:
    value: list[Any] = at("V", "i")
    for _ in range(depth):
        value = ["map", "sq", [["map", "*", [["lit", 0.5], ["map", "+", [value, at("V", "i")]]]]]]
    over = program({"V": {"shape": [3], "coo": [[0, 1], [1, 0.5]]}}, ["agg", "+", ["i"], value])
    wanted = torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64)
    start = wanted.clone()
    for _ in range(depth):
        wanted = (0.5 * (wanted + start)).square()
    assert over.run()["q"].item() == pytest.approx(float(wanted.sum()), rel=1e-12)


def test_orders_of_cheap_queries_are_not_searched_for_long() -> None:
    """Each copy of the tensor has a path of its own for both indices: there are 4^12 sets of paths."""
    copies = [at("A", "l", "m") for _ in range(12)]
    body = ["map", "+", [*copies, ["agg", "max", ["l"], at("A", "l", "m")]]]
    over = program({"A": {"shape": [2, 1], "coo": [[0, 0, 1]]}}, ["agg", "+", ["l", "m"], body])
    assert over.plan(search="branch_and_bound").search_complete == {"q": False}
    assert over.run()["q"].item() == 14


def test_an_index_is_eliminated_once() -> None:
    over = program({"A": ONES}, ["agg", "+", ["i", "j"], at("A", "i", "j")])
    with pytest.raises(PlanError, match=r"eliminated twice: order=\['j', 'j'\]"):
        elimination_cost(over, ["j", "j"])


def test_numbers_of_entries_are_not_negative() -> None:
    with pytest.raises(PlanError, match=r"not negative: nnz_of_prefix=\[2, -1\]"):
        choose_formats([3, 3], [2, -1], ["i", "j"], ["i", "j"])


def test_an_extent_that_is_too_large_is_named_with_its_axis() -> None:
    with pytest.raises(PlanError, match=r"whole number below 2\^62: at=\$\.tensors\.A\.shape\[1\]"):
        Program({"tensors": {"A": {"shape": [3, 2**62], "coo": []}}, "queries": []})


def test_fills_that_are_computed_in_another_order_are_those_that_were_planned() -> None:
    tensors = {"A": {"shape": [5, 5], "coo": [[0, 0, 2]]}, "B": {"shape": [3, 5], "coo": [[0, 0, 2]]}}
    tensors["C"] = {"shape": [2], "coo": [[0, 2]]}
    body = ["map", "+", [["lit", 0.1], at("C", "k"), at("A", "l", "j"), at("B", "i", "l")]]
    found = program(tensors, ["agg", "+", ["i", "k", "j"], body], "l").run()["q"].to_dense()
    torch.testing.assert_close(found, torch.tensor([65.0, 33, 33, 33, 33], dtype=torch.float64))


@pytest.mark.parametrize("engine", ["compiled", "interpreter"])
def test_a_product_is_equal_to_itself_in_every_query(engine: str) -> None:
    chosen = torch.Generator().manual_seed(0)
    x = torch.randn(60, 60, generator=chosen, dtype=torch.float64)
    entries = [[i, j, x[i, j].item()] for i in range(60) for j in range(60) if (i + j) % 3 == 0]
    tensors: dict[str, Any] = {"x": {"shape": [60, 60], "coo": entries}}
    for name in ("y", "z"):
        values = torch.randn(60, generator=chosen, dtype=torch.float64)
        tensors[name] = {"shape": [60], "coo": [[i, value] for i, value in enumerate(values.tolist())]}
    product = ["map", "*", [at("x", "i", "j"), at("y", "j"), at("z", "i")]]
    queries = [
        {"name": "w", "expr": product, "output": ["i", "j"]},
        {"name": "m", "expr": ["agg", "max", ["j"], at("w", "i", "j")], "output": ["i"]},
        {
            "name": "r",
            "expr": ["agg", "+", ["i", "j"], ["map", "eq", [at("m", "i"), product]]],
            "output": [],
        },
    ]
    assert Program({"tensors": tensors, "queries": queries}).run(engine=engine)["r"].item() == 60
