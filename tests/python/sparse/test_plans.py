"""Plans as data: logical cost, loop orders, formats, protocols, classes, and the command that prints them."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from joinsum import sparse
from joinsum.cli import main

from .reference.elimination import Settings, elimination_cost, greedy_costs, least_cost, start
from .reference.expressions import ReferenceProgram, accesses, rename_apart
from .reference.loops import Kernel, choose_formats
from .reference.notation import parse
from .reference.programs import KINDS, random_program
from .reference.statistics import Exact, annotate, estimate
from .reference.values import evaluate

FIELDS = {"logical", "cost", "orders", "physical", "classes", "seconds"}
COSTS = [(1, 1), (60, 1), (0.5, 2)]


def planned(value: dict[str, Any], **options: Any) -> Any:
    return sparse.Program.from_json(json.dumps(value)).plan(**options)


def as_program(value: dict[str, Any], logical: list[dict[str, Any]]) -> dict[str, Any]:
    """The logical plan as a program of its own: its queries are the source queries and what they read."""
    queries = []
    for query in logical:
        expr = query["expr"] if query["op"] is None else ["agg", query["op"], query["indices"], query["expr"]]
        queries.append({"name": query["name"], "expr": expr, "output": query["output"]})
    return {**value, "queries": queries}


# --- logical ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["single", "absorb"])
@pytest.mark.parametrize("estimator", ["uniform", "chain", "exact"])
def test_greedy_plans_cost_what_greedy_elimination_costs(estimator: str, mode: str) -> None:
    for number in range(60):
        value = random_program("sum_of_products", number)
        reference = ReferenceProgram.from_json(value)
        settings = Settings(estimator, COSTS[number % 3], mode)
        options: dict[str, Any] = {"estimator": estimator, "cost": settings.cost, "mode": mode, "search": "greedy"}
        plan = planned(value, **options, cover=False, distribute=False, dependencies=False)
        costs = greedy_costs(reference, settings)
        assert any(plan.cost == pytest.approx(cost, rel=1e-9) for cost in costs), (number, plan.cost, costs)
        assert planned(value, **options).cost <= plan.cost * (1 + 1e-9), number
        assert plan.cost == pytest.approx(elimination_cost(reference, plan.orders["q0"], settings), rel=1e-9), number


@pytest.mark.parametrize("mode", ["single", "absorb"])
@pytest.mark.parametrize("estimator", ["uniform", "chain", "exact"])
def test_branch_and_bound_costs_at_most_what_greedy_costs(estimator: str, mode: str) -> None:
    for number in range(60):
        value = random_program("sum_of_products", number)
        options: dict[str, Any] = {"estimator": estimator, "cost": COSTS[number % 3], "mode": mode}
        assert planned(value, search="branch_and_bound", **options).cost <= planned(value, **options).cost * (1 + 1e-9)
        options |= {"cover": False, "distribute": False, "dependencies": False}
        greedy = planned(value, search="greedy", **options).cost
        found = planned(value, search="branch_and_bound", **options)
        assert found.cost <= greedy * (1 + 1e-9), number
        settings = Settings(estimator, options["cost"], mode)
        cost = elimination_cost(ReferenceProgram.from_json(value), found.orders["q0"], settings)
        assert found.cost == pytest.approx(cost, rel=1e-9), number


def test_branch_and_bound_with_exact_statistics_finds_the_least_of_all_orders() -> None:
    for number in range(60, 110):
        value = random_program("sum_of_products", number)
        settings = Settings("exact", COSTS[number % 3], "single")
        if len(start(ReferenceProgram.from_json(value), settings).remaining) < 6 or number < 66:
            plan = planned(value, estimator="exact", cost=settings.cost, mode="single", search="branch_and_bound")
            assert plan.cost <= least_cost(ReferenceProgram.from_json(value), settings) * (1 + 1e-9), number


@pytest.mark.parametrize("kind", KINDS)
def test_logical_queries_say_their_entries_and_costs(kind: str) -> None:
    for number in range(40):
        value = random_program(kind, number)
        estimator, cost = ("uniform", "exact")[number % 2], COSTS[number % 3]
        plan = planned(value, estimator=estimator, cost=cost)
        reference = ReferenceProgram.from_json(as_program(value, plan.logical))
        names = [query["name"] for query in plan.logical]
        assert len(set(names)) == len(names)
        for query in plan.logical:
            label = (kind, number, query["name"])
            if query["op"] is None:
                assert (query["indices"], query["cost"]) == ([], 0), label
                continue
            assert query["cost"] == pytest.approx(cost[0] * query["nnz_agg"] + cost[1] * query["nnz_map"]), label
            if estimator == "exact":
                whole = reference.queries[query["name"]].expr
                assert query["nnz_agg"] == estimate(whole, reference, "exact"), label
                assert query["nnz_map"] == estimate(whole[3], reference, "exact"), label
        assert plan.cost == pytest.approx(sum(query["cost"] for query in plan.logical))
        for query in value["queries"]:
            assert next(found for found in plan.logical if found["name"] == query["name"])["output"] == query["output"]
            assert set(plan.orders) == {query["name"] for query in value["queries"]}


def test_a_matrix_chain_is_multiplied_from_its_cheap_end() -> None:
    """Right to left, a vector at the end makes every product a matrix times a vector."""
    square = {"shape": [50, 50], "fill": 0, "nnz": 2500}
    tensors = {"A": square, "B": square, "v": {"shape": [50], "fill": 0, "nnz": 50}}
    query = {"name": "q", "expr": parse("+[j, k] *(A[i, j], B[j, k], v[k])"), "output": ["i"]}
    plan = planned({"index_sizes": {}, "tensors": tensors, "queries": [query]}, cost=(1, 1), mode="single")
    assert plan.orders == {"q": ["k", "j"]}
    assert plan.cost == pytest.approx(2 * (2500 + 50))
    assert [step["indices"] for step in plan.logical] == [["k"], ["j"]]


# --- physical ---------------------------------------------------------------------------------------------------------


def kernels(value: dict[str, Any], plan: Any) -> list[tuple[dict[str, Any], dict[str, Any], Kernel]]:
    """Each physical query of a logical one, that logical query, and the reference kernel."""
    program = as_program(value, plan.logical)
    reference = ReferenceProgram.from_json(program)
    logical = {query["name"]: query for query in program["queries"]}
    return [
        (physical, logical[physical["name"]], Kernel.of(logical[physical["name"]], reference))
        for physical in plan.physical
        if physical["name"] in logical
    ]


def checked_kernels(kind: str, numbers: range, **options: Any) -> Any:
    for number in numbers:
        value = random_program(kind, number)
        plan = planned(value, estimator="exact", **options)
        names = {physical["name"] for physical in plan.physical}
        classes = [set(names) for names in plan.classes]
        for query in value["queries"]:
            assert query["name"] in names or any(query["name"] in known and known & names for known in classes)
        for physical, query, kernel in kernels(value, plan):
            yield (kind, number, physical["name"]), physical, query, kernel


@pytest.mark.parametrize("kind", KINDS)
def test_loops_are_a_permutation_of_the_indices(kind: str) -> None:
    for label, physical, query, kernel in checked_kernels(kind, range(40)):
        indices = {*kernel.loops(), *query["output"]}
        assert len(set(physical["loops"])) == len(physical["loops"]), label
        assert indices <= set(physical["loops"]) <= {*indices, *kernel.sizes}, label
        assert len(physical["iterations"]) == len(physical["loops"]), label


def test_loops_of_products_take_the_iterations_that_their_order_costs() -> None:
    for label, physical, _, kernel in checked_kernels("sum_of_products", range(60)):
        assert physical["iterations"] == pytest.approx(kernel.iterations(physical["loops"])), label
        assert physical["cost"] == pytest.approx(kernel.total(physical["loops"])), label


def test_loop_orders_of_products_are_the_cheapest_of_all() -> None:
    for mode, search in itertools.product(["single", "absorb"], ["greedy", "branch_and_bound"]):
        for label, physical, _, kernel in checked_kernels("sum_of_products", range(30), mode=mode, search=search):
            if len(kernel.loops()) <= 5:
                assert kernel.total(physical["loops"]) == pytest.approx(kernel.least_total()), (label, mode, search)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cutoffs", [(0.05, 0.5), (0.3, 0.3), (0.0, 0.9)])
def test_results_have_the_formats_of_their_entries(kind: str, cutoffs: tuple[float, float]) -> None:
    options = {"cutoffs": dict(zip(("bytemap", "dense"), cutoffs, strict=True))}
    seen = 0
    for label, physical, query, kernel in checked_kernels(kind, range(30), **options):
        order = physical.get("output", query["output"] if query["name"].startswith("q") else None)
        if order is None or sorted(order) != sorted(query["output"]):
            continue
        expr = rename_apart(query["expr"])
        pattern = annotate(expr, Exact(kernel.program), kernel.sizes).statistics
        shape = [kernel.sizes[index] for index in order]
        full = np.broadcast_to(pattern.over(list(order)), shape)
        counts = [full.any(axis=tuple(range(depth + 1, len(order)))).sum() for depth in range(len(order))]
        expected = choose_formats(shape, counts, order, physical["loops"], options["cutoffs"])
        assert physical["formats"] == expected, (label, shape, counts, order, physical["loops"])
        seen += len(order)
    assert seen


@pytest.mark.parametrize("kind", KINDS)
def test_one_conjunctive_input_walks_each_loop_and_without_one_all_walk(kind: str) -> None:
    for label, physical, query, kernel in checked_kernels(kind, range(60)):
        leaders = {}
        for leads, (_, name, indices) in zip(kernel.leaders(), accesses(kernel.tree), strict=True):
            leaders.setdefault((name, tuple(indices)), []).append(leads)
        found = [(access["tensor"], tuple(access["indices"]), access["protocols"]) for access in physical["accesses"]]
        if any(len(set(indices)) < len(indices) for _, indices, _ in found) or {key[:2] for key in found} != set(
            leaders
        ):
            continue
        for loop in physical["loops"]:
            holding = [
                (any(leaders[name, at]), protocols[at.index(loop)]) for name, at, protocols in found if loop in at
            ]
            first = [protocol for leads, protocol in holding if leads]
            others = [protocol for leads, protocol in holding if not leads]
            if first:
                assert sorted(first) == ["lookup"] * (len(first) - 1) + ["walk"], (label, loop, query)
                assert set(others) <= {"lookup"}, (label, loop, query)
            else:
                assert set(others) <= {"walk"}, (label, loop, query)


def test_inputs_met_out_of_order_are_transposed_and_results_of_the_plan_are_not() -> None:
    for label, physical, _, kernel in checked_kernels("sum_of_products", range(40)):
        discordant = {name for name, _ in kernel.permuted(physical["loops"])}
        assert bool(physical["transposed"]) == bool(discordant), (label, physical["transposed"], discordant)


# --- common sub-expressions -------------------------------------------------------------------------------------------

MATRIX = {"shape": [4, 4], "fill": 0, "coo": [[0, 1, 2], [1, 3, 1], [3, 0, 5]]}
VECTOR = {"shape": [4], "fill": 0, "coo": [[0, 1], [3, 2]]}


def classes_of(*queries: tuple[str, str, str]) -> list[set[str]]:
    listed = [{"name": name, "expr": parse(text), "output": list(output)} for name, text, output in queries]
    tensors = {"A": MATRIX, "B": MATRIX, "v": VECTOR}
    value = {"index_sizes": {}, "tensors": tensors, "queries": listed}
    results = sparse.Program.from_json(json.dumps(value)).run()
    for name, (array, _) in evaluate(value).items():
        np.testing.assert_array_equal(results[name].to_torch().to_dense().numpy(), array)
    return [set(names) for names in planned(value).classes]


def together(classes: list[set[str]], *names: str) -> bool:
    return any(set(names) <= known for known in classes)


def test_queries_equal_up_to_names_and_order_of_arguments_are_one() -> None:
    classes = classes_of(("p", "+[j] *(A[i, j], v[j])", "i"), ("q", "+[k] *(v[k], A[l, k])", "l"))
    assert together(classes, "p", "q")


def test_queries_that_read_equal_queries_are_one() -> None:
    classes = classes_of(
        ("p", "+[j] *(A[i, j], v[j])", "i"),
        ("q", "+[k] *(v[k], A[l, k])", "l"),
        ("r", "+[i] *(B[h, i], p[i])", "h"),
        ("s", "+[j] *(B[i, j], q[j])", "i"),
    )
    assert together(classes, "p", "q")
    assert together(classes, "r", "s")
    assert not together(classes, "p", "r")


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("+[i] *(A[i, l], v[i])", "l"),
        ("+[k] *(B[l, k], v[k])", "l"),
        ("max[k] *(A[l, k], v[k])", "l"),
        ("+[k] +(A[l, k], v[k])", "l"),
        ("+[k] *(A[l, k], v[k], 2)", "l"),
    ],
)
def test_queries_that_differ_are_apart(text: str, output: str) -> None:
    assert not together(classes_of(("p", "+[j] *(A[i, j], v[j])", "i"), ("q", text, output)), "p", "q")


# --- the command ------------------------------------------------------------------------------------------------------

PRODUCT = {
    "index_sizes": {"i": 4},
    "tensors": {"A": MATRIX, "v": VECTOR},
    "queries": [
        {"name": "y", "expr": parse("+[j] *(A[i, j], v[j])"), "output": ["i"]},
        {"name": "s", "expr": parse("max[i] y[i]"), "output": []},
        {"name": "z", "expr": parse("-(+[i] y[i], 12)"), "output": []},
        {"name": "f", "expr": parse("neg(+(v[i], inf))"), "output": ["i"]},
    ],
}


def call(folder: Path, value: Any, *options: object) -> Result:
    path = folder / "program.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return CliRunner().invoke(main, ["sparse", str(path), *map(str, options)])


def test_the_command_prints_one_object_with_the_fields_of_the_plan(tmp_path: Path) -> None:
    done = call(tmp_path, PRODUCT, "--json")
    assert done.exit_code == 0, done.stderr
    value = json.loads(done.stdout)
    assert set(value) >= FIELDS
    assert "values" not in value
    plan = planned(PRODUCT)
    kept = {name for name in FIELDS - {"seconds"} if value[name] == json.loads(json.dumps(getattr(plan, name)))}
    assert kept == FIELDS - {"seconds"}
    assert json.loads(plan.to_json())["logical"] == value["logical"]


def test_the_command_runs_and_prints_values(tmp_path: Path) -> None:
    done = call(tmp_path, PRODUCT, "--json", "--run")
    assert done.exit_code == 0, done.stderr
    value = json.loads(done.stdout)
    assert set(value["seconds"]) == {"plan", "compile", "run"}
    values = value["values"]
    assert {**values["y"], "coo": sorted(values["y"]["coo"])} == {"shape": [4], "fill": 0, "coo": [[1, 2], [3, 5]]}
    assert values["s"] == {"shape": [], "fill": 0, "coo": [[5]]}
    assert values["z"] == {"shape": [], "fill": -12, "coo": [[-5]]}
    assert values["f"] == {"shape": [4], "fill": "-inf", "coo": []}


def test_the_options_of_the_command_are_those_of_plan(tmp_path: Path) -> None:
    options = [
        "--estimator",
        "exact",
        "--cost",
        "60,1",
        "--mode",
        "single",
        "--search",
        "greedy",
        "--cutoffs",
        "0.2,0.9",
    ]
    value = json.loads(call(tmp_path, PRODUCT, "--json", *options).stdout)
    plan = planned(PRODUCT, estimator="exact", cost=(60, 1), mode="single", search="greedy",
                   cutoffs={"bytemap": 0.2, "dense": 0.9})  # fmt: skip
    assert value["cost"] == pytest.approx(plan.cost)
    assert [step["formats"] for step in value["physical"]] == [step["formats"] for step in plan.physical]


@pytest.mark.parametrize(
    ("value", "options"),
    [
        ("nonsense", []),
        ({**PRODUCT, "queries": [{"name": "q", "expr": ["in", "Missing", ["i"]], "output": ["i"]}]}, []),
        ({**PRODUCT, "tensors": {"A": MATRIX, "v": {"shape": [4], "fill": 0, "nnz": 2}}}, ["--run"]),
        (PRODUCT, ["--estimator", "oracle"]),
        (PRODUCT, ["--cost", "one"]),
        (PRODUCT, ["--cutoffs", "0.5"]),
    ],
)
def test_mistakes_end_the_command_with_a_message_and_no_output(tmp_path: Path, value: Any, options: list[str]) -> None:
    done = call(tmp_path, value, "--json", *options)
    assert done.exit_code != 0
    assert done.stdout == ""
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr


# --- threads ----------------------------------------------------------------------------------------------------------


def of_rows(rows: int) -> sparse.Program:
    """The sums of a matrix of six entries, in so many of its rows."""
    tensor = sparse.SparseTensor.from_coordinates([[i % rows for i in range(6)], list(range(6))], [1.0] * 6, (8, 8))
    query = {"name": "q", "expr": ["agg", "+", ["j"], ["in", "E", ["i", "j"]]], "output": ["i"]}
    return sparse.Program({"tensors": {"E": tensor}, "queries": [query]})


def test_what_a_run_did_is_its_own_while_threads_run_the_same_plan() -> None:
    shared = of_rows(6).plan()

    def run(rows: int) -> None:
        plan = shared.of(of_rows(rows).handle)
        for _ in range(200):
            result = plan.run(analyze=True)
            assert plan.true_entries == {"q": rows}
            assert int((result["q"].to_dense() != 0).sum()) == rows

    with ThreadPoolExecutor(3) as pool:
        for each in [pool.submit(run, rows) for rows in (2, 3, 6)]:
            each.result()


def test_a_step_of_distribution_is_taken_where_it_is_cheaper() -> None:
    """The search gives up on plans that cost more than the best one, and compares the others with that alone."""
    n = 2000
    tensors = {
        "B": {"shape": [n], "nnz": 10},
        "C": {"shape": [n, n], "nnz": 20000},
        "D": {"shape": [n], "nnz": 1500},
    }
    b, c, d = ["in", "B", ["c"]], ["in", "C", ["c", "d"]], ["in", "D", ["d"]]
    forms = (
        ["map", "*", [b, ["map", "+", [c, d]]]],
        ["map", "+", [["map", "*", [b, c]], ["map", "*", [b, d]]]],
    )
    costs = [
        planned(
            {"tensors": tensors, "queries": [{"name": "q", "expr": ["agg", "+", ["d"], form], "output": ["c"]}]},
            estimator="uniform",
        ).cost
        for form in forms
    ]
    assert costs[0] <= costs[1] * (1 + 1e-9)


def product_of_sums(number: int) -> dict[str, Any]:
    """Over tensors of which statistics are known."""
    seed = random.Random(number)
    sizes = {name: seed.choice([4, 8]) for name in "abcd"}
    tensors: dict[str, Any] = {}

    def read() -> list[Any]:
        indices = seed.sample("abcd", seed.choice([1, 2]))
        shape = [sizes[index] for index in indices]
        name = f"T{len(tensors)}"
        tensors[name] = {"shape": shape, "nnz": seed.randint(1, int(0.6 * math.prod(shape)))}
        return ["in", name, indices]

    def summand() -> list[Any]:
        return read() if seed.random() < 0.7 else ["map", "*", [read(), read()]]

    sums = [["map", "+", [summand() for _ in range(seed.choice([2, 3]))]] for _ in range(2)]
    expr = ["map", "*", [*sums, read()]]
    free = sorted({index for name in re.findall(r"'([abcd])'", str(expr)) for index in name})
    reduced = seed.sample(free, 1)
    query = {
        "name": "q",
        "expr": ["agg", "+", reduced, expr],
        "output": [index for index in free if index not in reduced],
    }
    return {"index_sizes": sizes, "tensors": tensors, "queries": [query]}


def test_distributed_plans_cost_no_more_once_their_queries_are_split() -> None:
    for number in range(150):
        value = product_of_sums(number)
        options: dict[str, Any] = {"estimator": "uniform", "mode": "single", "kernel_size": 4}
        assert planned(value, **options).cost <= planned(value, distribute=False, **options).cost * (1 + 1e-9), number


@pytest.mark.parametrize("search", ["greedy", "branch_and_bound"])
@pytest.mark.parametrize(
    "text",
    [
        "min[l] min(+[i] A[l, i], v[l])",
        "+[l] +(sqrt(+[i] A[l, i]), v[l])",
        "max[l] *(+[m, j] +(B[m, j], A[l, i], w[j]))",
        "max[k, m] max[j] min[i] min[l] min(T[l, m, j], A[k, l])",
    ],
)
def test_orders_are_possible_ones(text: str, search: str) -> None:
    shapes = {"A": [3, 3], "B": [3, 3], "T": [3, 3, 3], "v": [3], "w": [3]}
    expr = parse(text)
    output = [name for name in "i" if "max[l]" in text]
    sizes = dict.fromkeys("ijklm", 3)
    tensors = {name: {"shape": shape, "nnz": 3} for name, shape in shapes.items()}
    data = {"index_sizes": sizes, "tensors": tensors, "queries": [{"name": "q", "expr": expr, "output": output}]}
    program = sparse.Program.from_json(json.dumps(data))
    order = program.plan(search=search, cover=False, distribute=False).orders["q"]
    for first, second in sparse.must_precede(expr):
        assert first not in order or second not in order or order.index(first) < order.index(second)
    sparse.elimination_cost(program, order)
