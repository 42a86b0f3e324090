"""Values of programs: equal to dense evaluation whatever the plan, and errors that name the place."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joinsum import PlanError, sparse
from training import takes_long

from .reference.formats import in_drawn_levels
from .reference.notation import parse
from .reference.programs import VALUED_KINDS, random_program
from .reference.values import evaluate

MODES = ("single", "absorb")
SEARCHES = ("greedy", "branch_and_bound")
ESTIMATORS = ("uniform", "chain", "exact")
# The usual ones, then: all levels sorted lists or hash tables, all bytemaps, all dense.
CUTOFFS = [{"bytemap": b, "dense": d} for b, d in ((0.05, 0.5), (2, 2), (0, 2), (0, 0))]
SHORT = {"shape": [2], "fill": 0, "coo": [[0, 1], [1, 2]]}


def program_of(*queries: tuple[str, str, str], sizes: dict[str, int] | None = None, **tensors: Any) -> dict[str, Any]:
    """Queries as (name, text, output), one letter an index of the output; tensors as nested lists or data."""
    data = {name: tensor if isinstance(tensor, dict) else from_dense(tensor) for name, tensor in tensors.items()}
    listed = [{"name": name, "expr": parse(text), "output": list(output)} for name, text, output in queries]
    return {"index_sizes": sizes or {}, "tensors": data, "queries": listed}


def from_dense(values: Any) -> dict[str, Any]:
    array = np.asarray(values)
    coo = [[*place.tolist(), array[tuple(place)].item()] for place in np.argwhere(array)]
    return {"shape": list(array.shape), "fill": 0, "coo": coo}


def dense(tensor: Any) -> np.ndarray[Any, Any]:
    """A result over its full shape, fill included."""
    return np.asarray(tensor.to_torch().to_dense().numpy())


def assert_values(value: dict[str, Any], label: Any = None, **options: Any) -> None:
    """Every query has the shape, fill and values of the dense evaluation."""
    assert_results(sparse.Program.from_json(json.dumps(value)).run(**options), value, label)


def assert_results(results: Mapping[str, Any], value: dict[str, Any], label: Any) -> None:
    expected = evaluate(value)
    assert set(results) == set(expected), label
    for name, (array, fill) in expected.items():
        assert tuple(results[name].shape) == array.shape, (label, name)
        np.testing.assert_allclose(float(results[name].fill), fill, rtol=1e-9, err_msg=f"fill of {name}: {label}")
        np.testing.assert_allclose(dense(results[name]), array, rtol=1e-9, atol=1e-9, err_msg=f"{name}: {label}")


@pytest.mark.parametrize("kind", VALUED_KINDS)
def test_values_of_random_programs_are_those_of_dense_evaluation(kind: str) -> None:
    for number in range(60):
        seed = random.Random(number)
        options = {
            "kernel_size": seed.choice((128, 0, 1, 3)),
            "mode": seed.choice(MODES),
            "search": seed.choice(SEARCHES),
            "estimator": seed.choice(ESTIMATORS),
            "cutoffs": seed.choice(CUTOFFS),
        }
        assert_values(random_program(kind, number), (kind, number, options), **options)


@takes_long
@pytest.mark.parametrize("kind", VALUED_KINDS)
def test_values_of_random_programs_that_are_compiled_are_those_of_dense_evaluation(kind: str, tmp_path: Path) -> None:
    """Kernels of programs so small would be interpreted; the compiler runs once for each that is new."""
    for number in range(100, 130):
        seed = random.Random(number)
        options = {"mode": seed.choice(MODES), "kernel_size": seed.choice((128, 0, 2)), "cutoffs": seed.choice(CUTOFFS)}
        threads, value = seed.choice((1, 2, 3)), random_program(kind, number)
        plan = sparse.Program(in_drawn_levels(value, number)).plan(**options)
        results = plan.run(engine="compiled", threads=threads, cache=tmp_path)
        assert plan.compiled
        assert_results(results, value, (kind, number, threads, options))


@pytest.mark.parametrize("kind", VALUED_KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_logical_plans_mean_what_the_program_means(kind: str, mode: str) -> None:
    """The logical plan, taken as a program of its own, evaluates to the same arrays: execution is not trusted."""
    for number in range(60, 100):
        value = random_program(kind, number)
        search, estimator = SEARCHES[number % 2], ESTIMATORS[number % 3]
        size = (128, 0, 2)[number % 3]
        program = sparse.Program.from_json(json.dumps(value))
        plan = program.plan(mode=mode, search=search, estimator=estimator, kernel_size=size)
        found, expected = evaluate(logical_program(value, plan.logical)), evaluate(value)
        for name, (array, fill) in expected.items():
            label = f"{name}: {(kind, number, mode, search, estimator)}"
            np.testing.assert_allclose(found[name][0], array, rtol=1e-9, atol=1e-9, err_msg=label)
            np.testing.assert_allclose(found[name][1], fill, rtol=1e-9, err_msg=label)


def logical_program(value: dict[str, Any], logical: list[dict[str, Any]]) -> dict[str, Any]:
    queries = []
    for query in logical:
        assert "agg" not in str(query["expr"]), query
        expr = query["expr"] if query["op"] is None else ["agg", query["op"], query["indices"], query["expr"]]
        queries.append({"name": query["name"], "expr": expr, "output": query["output"]})
    return {**value, "queries": queries}


# --- corners ----------------------------------------------------------------------------------------------------------

A = [[1, 0, 2], [0, 0, 3], [4, 0, 0]]
V = [1, 0, 5]
FILLED = {"shape": [3], "fill": 2, "coo": [[1, 7]]}


@pytest.mark.parametrize(
    ("text", "output", "expected", "fill"),
    [
        ("A[i, i]", "i", [1, 0, 0], 0),
        ("+[i] A[i, i]", "", 1, 0),
        ("A[i, j]", "ji", [[1, 0, 4], [0, 0, 0], [2, 3, 0]], 0),
        ("+[k] A[i, j]", "ij", [[4, 0, 8], [0, 0, 12], [16, 0, 0]], 0),
        ("*[k] V[i]", "i", [1, 0, 625], 0),
        ("max[k] V[i]", "i", [1, 0, 5], 0),
        ("+[i] F[i]", "", 11, 6),
        ("*[i] F[i]", "", 28, 8),
        ("min[i] F[i]", "", 2, 2),
        ("and[i] F[i]", "", 1, 1),
        ("+[i] +(F[i], V[i])", "", 17, 6),
        ("exp(+[j] A[i, j])", "i", [math.exp(3), math.exp(3), math.exp(4)], 1),
        ("*(+[j] A[i, j], +[j] A[j, i])", "i", [15, 0, 20], 0),
        ("+[j] *(A[i, j], +[j] V[j])", "i", [18, 18, 24], 0),
        ("+[i] sqrt(+[j] sq(A[i, j]))", "", math.sqrt(5) + 3 + 4, 0),
        ("max[i] +[j] A[i, j]", "", 4, 0),
        ("+[i, j] sq(-(A[i, j], *(V[i], V[j])))", "", 0 + 0 + 9 + 0 + 0 + 9 + 1 + 0 + 625, 0),
        ("gt(V[i], F[i])", "i", [0, 0, 1], 0),
        ("eq(V[i], W[i])", "i", [1, 1, 0], 1),
        ("pow(V[i], 2)", "i", [1, 0, 25], 0),
        ("pow(2, V[i])", "i", [2, 1, 32], 1),
        ("min(inf, V[i])", "i", [1, 0, 5], 0),
        ("min[i] +(D[i], D[i])", "", 2, math.inf),
        ("neg(D[i])", "i", [-1, -math.inf, -3], -math.inf),
        ("or(and(V[i], W[i]), gt(V[i], 4))", "i", [1, 0, 1], 0),
        ("relu(neg(V[i]))", "i", [0, 0, 0], 0),
        ("sigmoid(V[i])", "i", [1 / (1 + math.exp(-1)), 0.5, 1 / (1 + math.exp(-5))], 0.5),
        ("*(S[], V[i])", "i", [6, 0, 30], 0),
        ("7", "", 7, 7),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_corners_have_these_values(text: str, output: str, expected: Any, fill: float, mode: str) -> None:
    distances = {"shape": [3], "fill": "inf", "coo": [[0, 1], [2, 3]]}
    scalar = {"shape": [], "fill": 0, "coo": [[6]]}
    value = program_of(("q", text, output), sizes={"k": 4}, A=A, V=V, W=[1, 0, 2], F=FILLED, D=distances, S=scalar)
    (result,) = sparse.Program.from_json(json.dumps(value)).run(mode=mode).values()
    np.testing.assert_allclose(dense(result), expected, rtol=1e-12)
    assert float(result.fill) == pytest.approx(fill)
    reference, reference_fill = evaluate(value)["q"]
    np.testing.assert_allclose(reference, expected, rtol=1e-12)
    assert reference_fill == pytest.approx(fill)


def test_later_queries_read_earlier_ones_by_position() -> None:
    value = program_of(("p", "+[k] *(A[i, k], A[k, j])", "ji"), ("q", "+[j] *(p[i, j], V[j])", "i"), A=A, V=V)
    results = sparse.Program.from_json(json.dumps(value)).run()
    np.testing.assert_array_equal(dense(results["p"]), (np.array(A) @ np.array(A)).T)
    np.testing.assert_array_equal(dense(results["q"]), (np.array(A) @ np.array(A)).T @ np.array(V))


def test_a_program_runs_again_with_the_same_values() -> None:
    program = sparse.Program.from_json(json.dumps(program_of(("q", "+[j] *(A[i, j], V[j])", "i"), A=A, V=V)))
    first, second = program.run()["q"], program.run()["q"]
    np.testing.assert_array_equal(dense(first), dense(second))
    assert first.shape == second.shape


def test_item_is_the_value_of_a_scalar() -> None:
    program = sparse.Program.from_json(json.dumps(program_of(("q", "+[i, j] A[i, j]", ""), A=A)))
    assert program.run()["q"].item() == 10


# --- errors -----------------------------------------------------------------------------------------------------------

GOOD = program_of(("p", "+[j] *(A[i, j], V[j])", "i"), A=A, V=V)


def changed(**parts: Any) -> dict[str, Any]:
    return {**GOOD, **parts}


def query(text: str, output: str = "i", name: str = "q") -> dict[str, Any]:
    return {"name": name, "expr": parse(text), "output": list(output)}


def raw(expr: Any, output: str = "i") -> dict[str, Any]:
    return changed(queries=[{"name": "q", "expr": expr, "output": list(output)}])


def tensor(**parts: Any) -> dict[str, Any]:
    return changed(tensors={**GOOD["tensors"], "V": {"shape": [3], "fill": 0, "coo": [[0, 1]], **parts}})


ERRORS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("unknown tensor", changed(queries=[query("Missing[i]")]), ["Missing"]),
    ("wrong rank", changed(queries=[query("+[j] A[i]")]), ["A"]),
    ("rank too large", changed(queries=[query("+[j] V[i, j]")]), ["V"]),
    ("unknown map", raw(["map", "tangle", [["in", "V", ["i"]]]]), ["tangle"]),
    ("unknown aggregate", raw(["agg", "median", ["j"], ["in", "A", ["i", "j"]]]), ["median"]),
    ("an aggregate that is a map", raw(["agg", "exp", ["j"], ["in", "A", ["i", "j"]]]), ["exp"]),
    ("unknown node", raw(["loop", "V", ["i"]]), ["loop"]),
    ("expression cut short", raw(["map", "*"]), []),
    ("an expression that is no list", raw("V"), []),
    ("sizes that differ", changed(queries=[query("*(V[i], B[i])")], tensors={**GOOD["tensors"], "B": SHORT}),
     ["i", "2", "3"]),
    ("sizes against index_sizes", changed(index_sizes={"i": 5}), ["i", "5", "3"]),
    ("a missing size", changed(queries=[query("+[z] V[i]")]), ["z"]),
    ("a size below zero", changed(index_sizes={"z": -2}, queries=[query("+[z] V[i]")]), ["z"]),
    ("an entry out of range", tensor(coo=[[3, 1]]), ["V", "3"]),
    ("a negative place", tensor(coo=[[-1, 1]]), ["V", "-1"]),
    ("an entry of the wrong length", tensor(coo=[[0, 1, 1]]), ["V"]),
    ("a value that is no number", tensor(coo=[[0, "seven"]]), ["V"]),
    ("a negative size", tensor(shape=[-3]), ["V"]),
    ("no entries and no count", changed(tensors={**GOOD["tensors"], "V": {"shape": [3], "fill": 0}}), ["V"]),
    ("a degree of an axis that is not there", changed(
        tensors={**GOOD["tensors"], "V": {"shape": [3], "fill": 0, "nnz": 2, "degrees": [[[1], [0], 2]]}}), ["V"]),
    ("duplicate names", changed(queries=[query("V[i]"), query("V[i]")]), ["q"]),
    ("a query named as a tensor", changed(queries=[query("V[i]", name="A")]), ["A"]),
    ("an alias to a later query", changed(queries=[query("later[i]"), query("V[i]", name="later")]), ["later"]),
    ("an alias to itself", changed(queries=[query("q[i]")]), ["q"]),
    ("an output index that is not there", changed(queries=[query("V[i]", "iz")]), ["z"]),
    ("an output index that is summed", changed(queries=[query("+[j] A[i, j]", "ij")]), ["j"]),
    ("an index left out of the output", changed(queries=[query("A[i, j]", "i")]), ["j"]),
    ("an output index twice", changed(queries=[query("A[i, j]", "iji")]), ["i"]),
    ("no queries", {"index_sizes": {}, "tensors": {}}, ["queries"]),
    ("too many arguments", raw(["map", "sqrt", [["in", "V", ["i"]], ["in", "V", ["i"]]]]), ["sqrt"]),
    ("too few arguments", raw(["map", "gt", [["in", "V", ["i"]]]]), ["gt"]),
    ("a map of nothing", raw(["map", "*", []], ""), ["*"]),
]  # fmt: skip


@pytest.mark.parametrize(("value", "named"), [case[1:] for case in ERRORS], ids=[case[0] for case in ERRORS])
def test_malformed_programs_are_errors_that_name_the_place(value: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(PlanError) as raised:
        sparse.Program.from_json(json.dumps(value)).plan()
    assert all(name in str(raised.value) for name in named), raised.value


@pytest.mark.parametrize("text", ["", "[]", "{", "nonsense", '{"queries": 3}'])
def test_text_that_is_no_program_is_an_error(text: str) -> None:
    with pytest.raises(PlanError):
        sparse.Program.from_json(text)


def test_statistics_alone_plan_but_do_not_run() -> None:
    value = program_of(("q", "+[j] *(A[i, j], V[j])", "i"), A=A, V={"shape": [3], "fill": 0, "nnz": 2})
    program = sparse.Program.from_json(json.dumps(value))
    assert program.plan(estimator="chain").cost > 0
    with pytest.raises(PlanError, match="V"):
        program.run()
    with pytest.raises(PlanError, match="V"):
        program.plan(estimator="exact")


@pytest.mark.parametrize(
    ("option", "value"),
    [("estimator", "oracle"), ("mode", "double"), ("search", "luck"), ("cost", (-1, 1)), ("cutoffs", {"depth": 1})],
)
def test_unknown_options_are_errors_that_name_them(option: str, value: Any) -> None:
    program = sparse.Program.from_json(json.dumps(GOOD))
    with pytest.raises(ValueError, match=option):
        program.plan(**{option: value})


# Of a matrix X and factors U, V: sums of squares of what is summed itself, whose copies have indices of their own.
FACTORISATIONS = [
    "+[i, j] sq(-(X[i, j], +[k] *(U[i, k], V[k, j])))",
    "+[i, j] *(-(X[i, j], +[k] *(U[i, k], V[k, j])), -(X[i, j], +[k] *(U[i, k], V[k, j])))",
    "+[i, j] *(B[i, j], sq(-(X[i, j], +[k] *(U[i, k], V[k, j]))))",
    "+[i, j] sq(+(+[k] *(U[i, k], V[k, j]), +(X[i, j], +[k] *(U[i, k], W[k, j]))))",
    "+[i] sq(-(y[i], +[k] *(U[i, k], sq(+(v[k], +[j] V[k, j])))))",
    "+[i, j, l] *(-(X[i, j], +[k] *(U[i, k], V[k, j])), -(X[i, l], +[k] *(U[i, k], V[k, l])))",
]


def factorisation(text: str, rows: int, columns: int, rank: int, entries: int) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    x = np.zeros((rows, columns))
    x.ravel()[draw.choice(rows * columns, entries, replace=False)] = draw.integers(1, 5, entries)
    tensors = {"X": x, "B": (x > 2) * 1.0, "y": draw.integers(0, 3, rows) * 1.0, "v": draw.integers(0, 3, rank) * 1.0}
    tensors |= {name: draw.integers(-2, 3, (rank, columns)) * 1.0 for name in "VW"}
    tensors["U"] = draw.integers(-2, 3, (rows, rank)) * 1.0
    used = {name: each for name, each in tensors.items() if f"{name}[" in text}
    return program_of(("q", text, ""), **used)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("text", FACTORISATIONS)
def test_squares_of_sums_have_the_values_of_dense_evaluation(text: str, search: str, mode: str) -> None:
    for distribute in (True, False):
        assert_values(factorisation(text, 7, 6, 2, 9), text, search=search, mode=mode, distribute=distribute)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("text", FACTORISATIONS[:2])
def test_the_squared_error_of_a_factorisation_needs_no_dense_product(text: str, estimator: str) -> None:
    value = factorisation(text, 80, 60, 3, 100)
    program = sparse.Program.from_json(json.dumps(value))
    cost = program.plan(estimator=estimator).cost
    assert cost < 80 * 60
    assert cost < program.plan(estimator=estimator, distribute=False).cost / 5
    assert_values(value, text)


@pytest.mark.parametrize(("squares", "indices"), [(1, 12), (4, 4), (2, 20)])
def test_squares_whose_copies_have_too_many_indices_are_planned_as_they_are(squares: int, indices: int) -> None:
    tensors = {"y": {"shape": [5], "fill": 0, "coo": [[1, 1.0]]}}
    summands: list[Any] = []
    for k in range(squares):
        names = [f"a{k}_{j}" for j in range(indices)]
        tensors[f"T{k}"] = {"shape": [5] + [2] * indices, "fill": 0, "coo": [[1] * (indices + 1) + [3.0]]}
        summed = ["agg", "+", names, ["in", f"T{k}", ["i", *names]]]
        summands.append(["map", "sq", [["map", "-", [["in", "y", ["i"]], summed]]]])
    expression = ["agg", "+", ["i"], ["map", "+", summands] if squares > 1 else summands[0]]
    program = sparse.Program({"tensors": tensors, "queries": [{"name": "q", "expr": expression, "output": []}]})
    (result,) = program.run().values()
    assert result.item() == squares * 4


def test_copies_that_would_need_too_many_indices_are_not_made() -> None:
    """Each factor has twelve indices of its own, so that two copies of all have more than there may be."""
    indices = [f"k{i}" for i in range(12)]
    chain = [
        "agg",
        "+",
        indices,
        ["map", "*", [["in", "T", [a, b]] for a, b in itertools.pairwise(indices)]],
    ]
    expression: Any = ["in", "v", ["i"]]
    for _ in range(4):
        expression = ["map", "sq", [["map", "+", [expression, chain]]]]
    tensors = {"v": from_dense([1.0, 0.0, 2.0]), "T": from_dense(np.eye(2))}
    query = {"name": "q", "expr": ["agg", "+", ["i"], expression], "output": []}
    (result,) = sparse.Program({"tensors": tensors, "queries": [query]}).run().values()
    values = np.array([1.0, 0.0, 2.0])
    for _ in range(4):
        values = (values + 2) ** 2
    assert result.item() == values.sum()
