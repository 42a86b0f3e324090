"""The optimizer's pieces on their own: sub-expressions, order of eliminations, costs of orders, formats."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from joinsum import PlanError, sparse

from .reference.elimination import Settings, elimination_cost, start
from .reference.expressions import ReferenceProgram, free_indices
from .reference.loops import Kernel, choose_formats
from .reference.notation import canonical, parse, same
from .reference.programs import Dialect, Writer, random_program
from .reference.subexpressions import aggregates, closure, minimal_sub_expressions, must_precede, normalise

CHAIN = "+[j, k, l] *(A[i, j], B[j, k], C[k, l], D[l, m])"
INFERENCE = "sigmoid(+[j, p, c] *(S[i, p, c], +(*(P[p, j], T[j]), *(C[c, j], T[j]))))"
TRIANGLES = "+[i, j, k] *(E[i, j], E[j, k], E[i, k])"

# Expression, index, and its minimal sub-expressions.
SUB_EXPRESSIONS: list[tuple[str, str, list[str]]] = [
    (CHAIN, "j", ["*(A[i, j], B[j, k])"]),
    (CHAIN, "k", ["*(B[j, k], C[k, l])"]),
    (CHAIN, "l", ["*(C[k, l], D[l, m])"]),
    ("+[k] *(S[i, j], U[i, k], V[k, j])", "k", ["*(U[i, k], V[k, j])"]),
    ("+[j] *(A[i, k], +(B[i, j], C[j, k]))", "j", ["B[i, j]", "C[j, k]"]),
    ("sigmoid(+[j] *(X[i, j], T[j]))", "j", ["*(X[i, j], T[j])"]),
    (INFERENCE, "j", ["*(P[p, j], T[j])", "*(C[c, j], T[j])"]),
    (INFERENCE, "p", ["*(S[i, p, c], +(*(P[p, j], T[j]), *(C[c, j], T[j])))"]),
    (INFERENCE, "c", ["*(S[i, p, c], +(*(P[p, j], T[j]), *(C[c, j], T[j])))"]),
    ("+[j] sqrt(*(A[i, j], B[j, k]))", "j", ["sqrt(*(A[i, j], B[j, k]))"]),
    ("+[i] sqrt(+[j] A[i, j])", "i", ["sqrt(+[j] A[i, j])"]),
    ("+[i] sqrt(+[j] A[i, j])", "j", ["A[i, j]"]),
    ("+[i] sqrt(+[j] sqrt(+[k] *(A[i, j], B[j, k], C[k])))", "k", ["*(B[j, k], C[k])"]),
    ("+[i] sqrt(+[j] sqrt(+[k] *(A[i, j], B[j, k])))", "j", ["sqrt(+[k] *(A[i, j], B[j, k]))"]),
    ("+[i] +(A[i], B[i])", "i", ["A[i]", "B[i]"]),
    ("+[i] +(A[i], B[j], 3)", "i", ["A[i]"]),
    ("+[i] *(A[j], +(B[i], *(C[i], D[j]), E[k]))", "i", ["B[i]", "C[i]"]),
    ("+[i] +(*(A[i], B[i]), *(C[i], D[j]), sqrt(F[i]))", "i", ["*(A[i], B[i])", "C[i]", "sqrt(F[i])"]),
    ("max[i] +(A[i, j], B[j])", "i", ["A[i, j]"]),
    ("max[i] +(A[i, j], B[i], C[j])", "i", ["+(A[i, j], B[i])"]),
    ("min[k] +(A[i, k], B[k, j], C[i, j])", "k", ["+(A[i, k], B[k, j])"]),
    ("max[i] max(A[i, j], B[j], C[i])", "i", ["A[i, j]", "C[i]"]),
    ("max[i] min(A[i, j], B[j])", "i", ["A[i, j]"]),
    ("min[i] max(A[i], B[i], C[j])", "i", ["max(A[i], B[i])"]),
    ("+[i] max(A[i], B[j])", "i", ["max(A[i], B[j])"]),
    ("max[i] *(A[i], B[j])", "i", ["*(A[i], B[j])"]),
    ("max[i] +[j] *(A[i, j], B[j])", "i", ["+[j] *(A[i, j], B[j])"]),
    ("max[i] +[j] *(A[i, j], B[j])", "j", ["*(A[i, j], B[j])"]),
    ("or[i] and(A[i, j], B[j])", "i", ["A[i, j]"]),
    ("or[i] or(A[i, j], B[i], C[j])", "i", ["A[i, j]", "B[i]"]),
    ("and[i] or(A[i, j], B[j])", "i", ["A[i, j]"]),
    ("and[i] and(A[i, j], B[i])", "i", ["A[i, j]", "B[i]"]),
    ("*[i] *(A[i, j], B[j])", "i", ["A[i, j]"]),
    ("*[i] +(A[i], B[j])", "i", ["+(A[i], B[j])"]),
    ("*(sqrt(+[i] A[i]), exp(+[j] *(B[j], C[k])))", "i", ["A[i]"]),
    ("*(sqrt(+[i] A[i]), exp(+[j] *(B[j], C[k])))", "j", ["B[j]"]),
    ("+[i] *(A[i], sqrt(*(B[i, j], C[j])))", "i", ["*(A[i], sqrt(*(B[i, j], C[j])))"]),
    ("+[i] *(A[j], sqrt(B[i, j]))", "i", ["sqrt(B[i, j])"]),
    ("+[i] *(A[i, i], B[j])", "i", ["A[i, i]"]),
    ("+[i] *(2, A[i, j])", "i", ["A[i, j]"]),
    ("+[i, j] *(A[i], B[j])", "i", ["A[i]"]),
    (TRIANGLES, "i", ["*(E[i, j], E[i, k])"]),
    (TRIANGLES, "j", ["*(E[i, j], E[j, k])"]),
    ("+[j] *(A[i, j], *(B[j, k], C[k, l]))", "j", ["*(A[i, j], B[j, k])"]),
    ("+[i] +[j] *(A[i, j], B[j])", "i", ["A[i, j]"]),
]  # fmt: skip

# Expression and its pairs, closed under transitivity; a second set is as right.
ORDERS: list[tuple[str, list[str]]] = [
    (CHAIN, [""]),
    (INFERENCE, [""]),
    ("max[i] +[j] A[i, j]", ["ji"]),
    ("+[i] sqrt(+[j] A[i, j])", ["ji"]),
    ("+[i] sqrt(+[j] sqrt(+[k] *(A[i, j], B[j, k])))", ["kj ki ji"]),
    ("max[i] +[j] max[k] A[i, j, k]", ["kj ki ji"]),
    ("+[i] +[j] A[i, j]", [""]),
    ("max[i] max[j] A[i, j]", [""]),
    ("+[i] *(B[i], +[j] A[i, j])", [""]),
    ("+[i] +(B[i], +[j] A[i, j])", [""]),
    ("+[i] +(B[i], sqrt(+[j] A[i, j]))", ["ji"]),
    ("+[i] *(B[i], sqrt(+[j] C[j]))", [""]),
    ("*(+[i] A[i], sqrt(+[j] B[j]))", [""]),
    ("*(sqrt(+[i] A[i]), exp(+[j] B[j]))", [""]),
    ("max[i] *(B[i], +[j] A[i, j])", ["ji"]),
    ("max[i] +(B[i], max[j] A[i, j])", [""]),
    ("max[i] max(B[i], +[j] A[i, j])", ["ji"]),
    ("max[i] +(A[i], +[j] B[j])", ["", "ji"]),
    ("min[i] max[j] A[i, j]", ["ji"]),
    ("*[i] +[j] A[i, j]", ["ji"]),
    ("or[i] and[j] A[i, j]", ["ji"]),
    ("or[i] and(A[i], or[j] B[i, j])", [""]),
    ("exp(max[i] +[j, k] *(A[i, j], B[j, k]))", ["ji ki"]),
    ("+[i, j] sqrt(+[k] *(A[i, k], B[k, j]))", ["ki kj"]),
    ("max[i] sqrt(max[j] A[i, j])", ["ji"]),
]


@pytest.mark.parametrize(("text", "index", "expected"), SUB_EXPRESSIONS)
def test_sub_expression_is_the_least_that_the_index_needs(text: str, index: str, expected: list[str]) -> None:
    found = {canonical(expr) for expr in sparse.minimal_sub_expressions(parse(text), index)}
    assert found == {same(item) for item in expected}


@pytest.mark.parametrize(("text", "choices"), ORDERS)
def test_order_holds_the_pairs_that_do_not_commute(text: str, choices: list[str]) -> None:
    found = closure({(x, y) for x, y in sparse.must_precede(parse(text))})
    assert found in [{(pair[0], pair[1]) for pair in choice.split()} for choice in choices]


@pytest.mark.parametrize(("text", "index", "expected"), SUB_EXPRESSIONS)
def test_reference_agrees_with_the_expected_sub_expressions(text: str, index: str, expected: list[str]) -> None:
    found = {canonical(expr) for expr in minimal_sub_expressions(parse(text), index)}
    assert found == {same(item) for item in expected}


@pytest.mark.parametrize(("text", "choices"), ORDERS)
def test_reference_agrees_with_the_expected_orders(text: str, choices: list[str]) -> None:
    found = closure(must_precede(parse(text)))
    assert found in [{(pair[0], pair[1]) for pair in choice.split()} for choice in choices]


def random_expressions() -> list[list[Any]]:
    """Nested maps and aggregates of one aggregate operator, whose indices all occur and are apart."""
    dialects = [
        Dialect(("+",), ("*", "*", "+"), ("sqrt", "exp", "sqrt"), (0,), (1, 2)),
        Dialect(("max",), ("+", "min", "max"), (), ("-inf",), (1, 2)),
        Dialect(("min",), ("+", "min", "max"), (), ("inf",), (1, 2)),
        Dialect(("or",), ("and", "or"), (), (0,), (1,)),
    ]
    seed = random.Random(17)
    found = []
    while len(found) < 150:
        writer = Writer(seed, seed.choice(dialects), dict.fromkeys("ijklmn", 2))
        expr = writer.expression(["i", "j"], 4)
        summed = list(aggregates(normalise(expr)))
        names = [name for node in summed for name in node[2]]
        used = all(name in free_indices(node[3]) for node in summed for name in node[2])
        if names and used and not any("#" in name for name in names) and not {"i", "j"} & set(names):
            found.append(expr)
    return found


def test_sub_expressions_and_orders_of_random_expressions_are_the_reference_ones() -> None:
    for expr in random_expressions():
        for index in [name for node in aggregates(expr) for name in node[2]]:
            found = {canonical(normalise(item)) for item in sparse.minimal_sub_expressions(expr, index)}
            expected = {canonical(normalise(item)) for item in minimal_sub_expressions(expr, index)}
            assert found == expected, (canonical(expr), index)
        assert closure({(x, y) for x, y in sparse.must_precede(expr)}) == closure(must_precede(expr)), canonical(expr)


# --- loops and formats ------------------------------------------------------------------------------------------------


def test_loops_over_one_entry_first_are_cheap() -> None:
    """Example of §6.1: A has one entry, B and C five a row and a column."""
    band = [[row, (row + step) % 8, 1] for row in range(8) for step in range(5)]
    expr = parse("+[j, k] *(A[i, j], B[j, k], C[k, l])")
    query = {"name": "D", "expr": expr, "output": ["i", "l"]}
    tensors = {"A": [[3, 4, 1]], "B": band, "C": band}
    value = {"tensors": {name: {"shape": [8, 8], "coo": coo, "fill": 0} for name, coo in tensors.items()}}
    program = sparse.Program.from_json(json.dumps({"index_sizes": {}, **value, "queries": [query]}))
    forward = sparse.order_costs(query, program, ["i", "j", "k", "l"])
    assert forward == {"iterations": [1, 1, 5, 25], "transposes": 0, "total": 32}
    backward = sparse.order_costs(query, program, ["l", "k", "j", "i"])
    assert backward == {"iterations": [8, 40, 25, 25], "transposes": 81, "total": 179}


@pytest.mark.parametrize("number", range(40))
def test_order_costs_count_the_join_of_projections(number: int) -> None:
    value = random_program("sum_of_products", number)
    (query,) = value["queries"]
    program, reference = sparse.Program.from_json(json.dumps(value)), ReferenceProgram.from_json(value)
    kernel = Kernel.of(query, reference)
    orders = list(itertools.permutations(kernel.loops()))
    for order in random.Random(number).sample(orders, min(len(orders), 24)):
        found = sparse.order_costs(query, program, list(order))
        assert found["iterations"] == pytest.approx(kernel.iterations(order))
        permuted = kernel.permuted(order)
        if len({name for name, _ in permuted}) == len(permuted):
            assert found["transposes"] == kernel.transposes(order)
        assert found["total"] == pytest.approx(sum(found["iterations"]) + found["transposes"])


def test_a_tensor_discordant_in_two_accesses_is_transposed_once() -> None:
    value = {"shape": [3, 3], "fill": 0, "coo": [[0, 1, 1], [1, 2, 1]]}
    query = {"name": "q", "expr": parse("+[k] *(A[k, i], A[k, j])"), "output": ["i", "j"]}
    data = {"index_sizes": {}, "tensors": {"A": value}, "queries": [query]}
    program = sparse.Program.from_json(json.dumps(data))
    assert sparse.order_costs(query, program, ["i", "j", "k"])["transposes"] in (2, 4)


def test_formats_follow_the_strict_cutoffs() -> None:
    cutoffs = {"bytemap": 0.05, "dense": 0.5}
    shape, order = [100, 100, 100], ["i", "j", "k"]
    assert sparse.choose_formats(shape, [50, 250, 251 * 25], order, order, cutoffs) == [
        "bytemap", "sorted_list", "bytemap"]  # fmt: skip
    assert sparse.choose_formats([100], [51], ["i"], ["i"], cutoffs) == ["dense"]
    assert sparse.choose_formats([100], [5], ["i"], ["j", "i"], cutoffs) == ["hash"]
    assert sparse.choose_formats([100, 100], [5, 10], ["i", "k"], ["i", "j", "k"], cutoffs) == ["sorted_list", "hash"]
    assert sparse.choose_formats([], [], [], ["i"], cutoffs) == []


def test_formats_of_random_shapes_are_the_reference_ones() -> None:
    seed = random.Random(3)
    for _ in range(500):
        output = seed.sample("ijkl", seed.randint(1, 4))
        loops = seed.choice([output, seed.sample("ijklm", 5), [*output, "n"]])
        shape = [seed.choice([1, 2, 10, 100]) for _ in output]
        counts: list[int] = []
        for size in shape:
            last = counts[-1] if counts else 1
            counts.append(seed.randint(last, last * size))
        cutoffs = {"bytemap": seed.choice([0.05, 0.2]), "dense": seed.choice([0.5, 0.9])}
        expected = choose_formats(shape, counts, output, loops, cutoffs)
        assert sparse.choose_formats(shape, counts, output, loops, cutoffs) == expected


# --- orders of elimination --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["single", "absorb"])
@pytest.mark.parametrize("estimator", ["uniform", "chain", "exact"])
def test_elimination_cost_is_the_reference_cost_for_all_orders(estimator: str, mode: str) -> None:
    for number in range(40):
        value = random_program("sum_of_products", number)
        program, reference = sparse.Program.from_json(json.dumps(value)), ReferenceProgram.from_json(value)
        settings = Settings(estimator, ((1, 1), (60, 1), (0.5, 2))[number % 3], mode)
        orders = list(itertools.permutations(start(reference, settings).remaining))
        for order in random.Random(number).sample(orders, min(len(orders), 8)):
            listed = skip_absorbed(reference, list(order), settings)
            found = sparse.elimination_cost(program, listed, estimator=estimator, cost=settings.cost, mode=mode)
            assert found == pytest.approx(elimination_cost(reference, listed, settings), rel=1e-9), (number, order)


def skip_absorbed(program: ReferenceProgram, order: list[str], settings: Settings) -> list[str]:
    """Leaves out of an order the indices that earlier ones absorb."""
    state, listed = start(program, settings), []
    for index in order:
        if index in state.remaining:
            state = state.eliminate(index)
            listed.append(index)
    return listed


def test_absorbing_sums_what_occurs_nowhere_else() -> None:
    """A over (i, j) and B over (j, k): j takes i and k with it; alone it makes a matrix of them."""
    dense = [[row, column, 1] for row in range(4) for column in range(4)]
    matrix = {"shape": [4, 4], "fill": 0, "coo": dense}
    query = {"name": "q", "expr": parse("+[i, j, k] *(A[i, j], B[j, k])"), "output": []}
    value = {"index_sizes": {}, "tensors": {"A": matrix, "B": matrix}, "queries": [query]}
    program = sparse.Program.from_json(json.dumps(value))
    options: dict[str, Any] = {"estimator": "exact", "cost": (10, 1)}
    assert sparse.elimination_cost(program, ["j"], mode="absorb", **options) == 10 * 1 + 64
    assert sparse.elimination_cost(program, ["j", "i", "k"], mode="single", **options) == 160 + 64 + 40 + 16 + 10 + 4
    assert sparse.elimination_cost(program, ["i", "j"], mode="absorb", **options) == 40 + 16 + 10 + 16


def stored(shape: list[int], entries: int, fill: float | str = 0) -> dict[str, Any]:
    places = list(itertools.product(*map(range, shape)))[:entries]
    return {"shape": shape, "fill": fill, "coo": [[*place, 5] for place in places]}


@pytest.mark.parametrize("estimator", ["chain", "uniform", "exact"])
def test_a_factor_without_a_loop_yet_leaves_all_coordinates_to_the_other_ones(estimator: str) -> None:
    def iterations(text: str, tensors: dict[str, Any], loops: list[str]) -> list[float]:
        query = {"name": "q", "expr": parse(text), "output": sorted(loops)}
        program = sparse.Program({"tensors": tensors, "queries": [query]})
        if estimator == "exact":
            return list(sparse.order_costs(query, program, loops)["iterations"])
        physical = program.plan(estimator=estimator).physical[0]
        return list(physical["iterations"])

    if estimator == "exact":
        infinite = {"A": stored([4], 2, "-inf"), "B": stored([3], 1)}
        assert iterations("neg(+(A[a], B[d]))", infinite, ["d", "a"]) == [3, 6]
        mixed = {"A": stored([20], 2), "B": stored([20], 7, 1), "C": stored([20], 1)}
        assert iterations("+(*(A[a], B[d]), C[d])", mixed, ["d", "a"]) == [20, 58]
    else:
        mixed = {"A": stored([20], 2), "B": stored([20], 7, 1), "C": stored([20], 1)}
        assert all(each >= 2 for each in iterations("+(*(A[a], B[d]), C[d])", mixed, ["d", "a"]))


def test_truths_of_numbers_are_estimated_as_written() -> None:
    program = sparse.Program(
        {"tensors": {"A": stored([3], 2)}, "queries": [{"name": "q", "expr": ["in", "A", ["i"]], "output": ["i"]}]}
    )
    assert sparse.estimate(parse("or(A[i], or(3, 0))"), program, "exact") == 0
    assert sparse.estimate(parse("or(A[i], or(1, 0))"), program, "exact") == 0
    assert sparse.estimate(parse("or(A[i], or(0, 0))"), program, "exact") == 2


def test_exact_statistics_of_too_many_elements_are_refused() -> None:
    half = {"shape": [100_000], "coo": [[i, 1] for i in range(0, 100_000, 2)]}
    read = [["in", "v", ["i"]], ["in", "v", ["j"]]]
    for body in (["map", "*", read], ["map", "sq", [["map", "+", read]]]):
        query = {"name": "q", "expr": ["agg", "+", ["i", "j"], ["map", "sqrt", [body]]], "output": []}
        program = sparse.Program({"tensors": {"v": half}, "queries": [query]})
        with pytest.raises(PlanError, match="too many elements to count exactly"):
            program.plan(estimator="exact")
