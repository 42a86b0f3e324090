"""Estimates of entries: uniform and exact as the reference has them, the chain bound never below the truth."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from joinsum import sparse

from .reference.expressions import ReferenceProgram, accesses
from .reference.notation import parse
from .reference.programs import KINDS, random_program
from .reference.statistics import estimate
from .reference.values import evaluate


def program_of(index_sizes: dict[str, int] | None = None, **tensors: dict[str, Any]) -> Any:
    """A program of these tensors; its one query is of no interest."""
    query = {"name": "unused", "expr": ["lit", 1], "output": []}
    filled = {name: {"fill": 0, **tensor} for name, tensor in tensors.items()}
    return sparse.Program.from_json(
        json.dumps({"index_sizes": index_sizes or {}, "tensors": filled, "queries": [query]})
    )


def matrix(*places: tuple[int, int], size: int = 4) -> dict[str, Any]:
    return {"shape": [size, size], "coo": [[row, column, 1] for row, column in places]}


def has_diagonal(expr: list[Any]) -> bool:
    return any(len(set(indices)) < len(indices) for _, _, indices in accesses(expr))


# --- by hand ----------------------------------------------------------------------------------------------------------

A = matrix((0, 0), (0, 1), (1, 0), (2, 3), (3, 3), (3, 0))
B = matrix((0, 0), (0, 1), (0, 2), (3, 1))


@pytest.mark.parametrize(
    ("text", "uniform", "chain", "exact"),
    [
        ("A[i, j]", 6, 6, 6),
        ("*(A[i, j], B[j, k])", 64 * 6 / 16 * 4 / 16, 12, 11),
        ("+(A[i, j], B[i, j])", 16 * (1 - 10 / 16 * 12 / 16), 10, 8),
        ("+[j] A[i, j]", 4 * (1 - (10 / 16) ** 4), 4, 4),
        ("+[i, j] A[i, j]", 1 - (10 / 16) ** 16, 1, 1),
        ("+[j] *(A[i, j], B[j, k])", 16 * (1 - (1 - 6 / 64) ** 4), 12, 10),
        ("exp(A[i, j])", 6, 6, 6),
        ("*(A[i, j], exp(B[i, j]))", 6, 6, 6),
        ("*(2, A[i, j])", 6, 6, 6),
        ("+(A[i, j], 1)", 6, 6, 6),
        ("or(A[i, j], B[i, j])", 16 * (1 - 10 / 16 * 12 / 16), 10, 8),
        ("and(A[i, j], B[i, j])", 16 * 6 / 16 * 4 / 16, 4, 2),
    ],
)
def test_estimates_are_the_ones_worked_out_by_hand(text: str, uniform: float, chain: float, exact: float) -> None:
    program = program_of(A=A, B=B)
    expected = {"uniform": uniform, "chain": chain, "exact": exact}
    found = {name: sparse.estimate(parse(text), program, name) for name in expected}
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("operator", "fill", "conjunctive"),
    [
        ("*", 0, True),
        ("*", 1, False),
        ("+", "inf", True),
        ("+", "-inf", True),
        ("+", 0, False),
        ("min", "-inf", True),
        ("min", "inf", False),
        ("max", "inf", True),
        ("max", "-inf", False),
        ("and", 0, True),
        ("and", 1, False),
        ("or", 1, True),
        ("or", 0, False),
        ("-", 0, False),
        ("eq", 0, False),
    ],
)
def test_a_map_joins_the_children_whose_fill_annihilates(operator: str, fill: Any, conjunctive: bool) -> None:
    vector = {"shape": [10], "fill": fill}
    u, v = [[[place, 7] for place in range(count)] for count in (5, 2)]
    program = program_of(U={**vector, "coo": u}, V={**vector, "coo": v})
    found = sparse.estimate(["map", operator, [["in", "U", ["i"]], ["in", "V", ["i"]]]], program, "uniform")
    assert found == pytest.approx(10 * 0.5 * 0.2 if conjunctive else 10 * (1 - 0.5 * 0.8))


def test_chain_bound_takes_the_cheapest_path_of_degrees() -> None:
    """Four columns a row in A, one row a column in B: 12 · 1 from A on beats 1000 · 4 from B on."""
    program = program_of(
        A={"shape": [1000, 1000], "nnz": 12, "degrees": [[[1], [0], 4]]},
        B={"shape": [1000, 1000], "nnz": 1000, "degrees": [[[1], [0], 1], [[0], [1], 300]]},
    )
    assert sparse.estimate(parse("*(A[i, j], B[j, k])"), program, "chain") == 12
    assert sparse.estimate(parse("+[j] *(A[i, j], B[j, k])"), program, "chain") == 12
    assert sparse.estimate(parse("*(B[i, j], A[j, k])"), program, "chain") == 12 * 300
    assert sparse.estimate(parse("*(A[i, j], A[i, k])"), program, "chain") == 48


def test_estimates_hold_where_sizes_exceed_64_bits() -> None:
    size = 10**7
    program = program_of(A={"shape": [size, size], "nnz": size}, B={"shape": [size, size], "nnz": size})
    product = parse("*(A[i, j], B[j, k])")
    assert sparse.estimate(product, program, "uniform") == pytest.approx(size, rel=1e-9)
    assert sparse.estimate(product, program, "chain") == pytest.approx(size * size, rel=1e-9)
    wide = parse("*(A[i, j], B[k, l])")
    assert sparse.estimate(wide, program, "uniform") == pytest.approx(size * size, rel=1e-9)
    union = parse("+(A[i, j], B[k, l])")
    assert sparse.estimate(union, program, "uniform") == pytest.approx(2.0 * size**3 * (1 - 0.5e-7), rel=1e-9)
    total = parse("+[i, j] A[i, j]")
    assert sparse.estimate(total, program, "uniform") == pytest.approx(1)
    rows = parse("+[j] A[i, j]")
    assert sparse.estimate(rows, program, "uniform") == pytest.approx(size * -math.expm1(-1), rel=1e-6)


def test_dense_and_empty_tensors_keep_their_counts() -> None:
    program = program_of(D={"shape": [3, 3], "nnz": 9}, E={"shape": [3, 3], "nnz": 0})
    for estimator in ("uniform", "chain"):
        assert sparse.estimate(parse("+[j] D[i, j]"), program, estimator) == 3
        assert sparse.estimate(parse("+(D[i, j], E[i, j])"), program, estimator) == 9
        assert sparse.estimate(parse("*(D[i, j], E[j, k])"), program, estimator) == 0


# --- against the reference --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_uniform_and_exact_estimates_are_the_reference_ones(kind: str) -> None:
    for number in range(80):
        value = random_program(kind, number)
        program, reference = sparse.Program.from_json(json.dumps(value)), ReferenceProgram.from_json(value)
        expr = value["queries"][0]["expr"]
        for name in ["exact"] if has_diagonal(expr) else ["exact", "uniform"]:
            found = sparse.estimate(expr, program, name)
            assert found == pytest.approx(estimate(expr, reference, name), rel=1e-9, abs=1e-12), (name, kind, number)


@pytest.mark.parametrize("kind", KINDS)
def test_chain_bound_is_the_reference_one_and_never_below_the_truth(kind: str) -> None:
    """Where the notes leave a tightening open, the bound lies from the tight to the loose reading."""
    equal = 0
    for number in range(250):
        value = random_program(kind, number)
        program, reference = sparse.Program.from_json(json.dumps(value)), ReferenceProgram.from_json(value)
        expr = value["queries"][0]["expr"]
        found = sparse.estimate(expr, program, "chain")
        tight, loose = (estimate(expr, reference, "chain", tight) for tight in (True, False))
        assert tight * (1 - 1e-9) <= found <= loose * (1 + 1e-9), (kind, number)
        assert found >= estimate(expr, reference, "exact") * (1 - 1e-9), (kind, number)
        equal += tight == loose
    assert equal > 180


@pytest.mark.parametrize("kind", KINDS)
def test_chain_bound_is_never_below_the_entries_of_the_values(kind: str) -> None:
    for number in range(120):
        value = random_program(kind, number)
        program = sparse.Program.from_json(json.dumps(value))
        query = value["queries"][0]
        array, fill = evaluate(value)[query["name"]]
        entries = (~np.isclose(array, fill)).sum()
        assert sparse.estimate(query["expr"], program, "chain") >= entries - 1e-9, (kind, number)


def test_statistics_in_place_of_entries_give_the_same_chain_bound() -> None:
    for number in range(60):
        value = random_program("sum_of_products", number)
        expr = value["queries"][0]["expr"]
        stated = json.loads(json.dumps(value))
        for tensor in stated["tensors"].values():
            tensor["nnz"], tensor["degrees"] = len(tensor["coo"]), degrees(tensor["coo"], len(tensor["shape"]))
            del tensor["coo"]
        counted, given = (sparse.Program.from_json(json.dumps(data)) for data in (value, stated))
        expected = sparse.estimate(expr, counted, "chain")
        assert sparse.estimate(expr, given, "chain") == pytest.approx(expected, rel=1e-9), number
        assert sparse.estimate(expr, given, "uniform") == sparse.estimate(expr, counted, "uniform")


def degrees(coo: list[list[int]], rank: int) -> list[list[Any]]:
    """Per axis: how many values it takes, and the most entries that share one."""
    found: list[list[Any]] = []
    for axis in range(rank):
        column = [entry[axis] for entry in coo]
        rest = [other for other in range(rank) if other != axis]
        found.append([[axis], [], len(set(column))])
        if rest:
            found.append([rest, [axis], max(map(column.count, column), default=0)])
    return found


def test_exact_estimates_need_entries() -> None:
    program = program_of(A={"shape": [3], "nnz": 2})
    with pytest.raises(ValueError, match="A"):
        sparse.estimate(["in", "A", ["i"]], program, "exact")
