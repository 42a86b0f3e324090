"""Plans that use functional dependencies: a tensor joined with itself by a key."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
import torch
from joinsum import PlanError, SparseTensor
from joinsum.sparse import Program, elimination_cost, plan_cache_clear, plan_cache_info

from .test_program_values import assert_results

EXTENTS = {"i": 6, "s": 4, "p": 3, "j": 3}
FILLS = {("+", "*"): 0, ("min", "+"): "inf", ("max", "+"): "-inf", ("or", "and"): 0}


def keyed(seed: random.Random, determined: bool, fill: float | str) -> dict[str, Any]:
    """L[i, s, p] with at most one element for each i, or as many as there are places."""
    places = [(i, s, p) for i in range(6) for s in range(4) for p in range(3) if seed.random() < 0.4]
    if determined:
        places = list({i: (i, s, p) for i, s, p in places}.values())
    coo = [[*place, seed.choice((1, 2, 3))] for place in places]
    return {"shape": [6, 4, 3], "fill": fill, "coo": coo}


def matrix(seed: random.Random, rows: int, fill: float | str) -> dict[str, Any]:
    coo = [[i, j, seed.choice((1, 2, 4))] for i in range(rows) for j in range(3) if seed.random() < 0.7]
    return {"shape": [rows, 3], "fill": fill, "coo": coo}


def random_join(number: int) -> dict[str, Any]:
    """Products of reads of L that share some of their indices, and of features, aggregated along the rest."""
    seed = random.Random(number)
    (aggregate, join), fill = seed.choice(list(FILLS.items()))
    extents: dict[str, int] = {}

    def index(kind: str) -> str:
        name = f"{kind}{seed.randrange(1, 3)}"
        extents[name] = EXTENTS[kind]
        return name

    factors: list[Any] = [["in", "L", [index("i"), index("s"), index("p")]] for _ in range(seed.randrange(2, 4))]
    used = list(extents)
    for _ in range(seed.randrange(3)):
        kind = seed.choice([each for each in used if each[0] in "sp"])
        factors.append(["in", {"s": "S", "p": "P"}[kind[0]], [kind, index("j")]])
    if seed.random() < 0.3:
        factors[-1] = ["map", "+", [factors[-1], ["lit", 1]]]
    body = ["map", join, factors]
    names = sorted(extents)
    seed.shuffle(names)
    outputs = names[: seed.randrange(3)]
    bound = names[len(outputs) :]
    inner = bound[: seed.randrange(len(bound) + 1)]
    expr: Any = ["agg", aggregate, inner, body] if inner else body
    if seed.random() < 0.2:
        expr = ["map", "sq", [expr]]
    outer = [name for name in bound if name not in inner]
    expr = ["agg", aggregate, outer, expr] if outer else expr
    tensors = {"L": keyed(seed, seed.random() < 0.8, fill)}
    tensors |= {"S": matrix(seed, 4, fill), "P": matrix(seed, 3, fill)}
    return {"index_sizes": extents, "tensors": tensors, "queries": [{"name": "q", "expr": expr, "output": outputs}]}


def test_values_are_those_of_dense_evaluation() -> None:
    fewer = 0
    for number in range(400):
        value = random_join(number)
        program = Program.from_json(json.dumps(value))
        assert_results(program.run(), value, number)
        without = program.plan(dependencies=False)
        fewer += program.plan().cost < without.cost
    assert fewer > 30


def squared_features(read: Any) -> dict[str, Any]:
    """Xᵀ X for X[i, j] = Σ_s L[i, s] S[s, j]."""
    x = [
        ["agg", "+", [s], ["map", "*", [["in", "L", ["i", s]], ["in", "S", [s, j]]]]]
        for s, j in (("s", "j"), ("t", "k"))
    ]
    ones = SparseTensor.from_torch(torch.arange(12, dtype=torch.float64).reshape(4, 3) + 1)
    query = {"name": "q", "expr": ["agg", "+", ["i"], ["map", "*", x]], "output": ["j", "k"]}
    return {"tensors": {"L": read, "S": ones}, "queries": [query]}


def entries(columns: list[int], rows: list[int] | None = None) -> SparseTensor:
    places = [list(range(len(columns))) if rows is None else rows, columns]
    return SparseTensor.from_coordinates(places, np.arange(1.0, len(columns) + 1), (8, 4))


def test_a_plan_is_not_that_of_tensors_with_other_dependencies() -> None:
    plan_cache_clear()
    keys, repeated = entries([0, 1, 2, 3, 0]), entries([0, 1, 2, 3, 0], rows=[0, 1, 2, 3, 3])
    for each in (keys, repeated, keys):
        data = squared_features(each)
        x = each.to_dense() @ data["tensors"]["S"].to_dense()
        torch.testing.assert_close(Program(data).run()["q"].to_dense(), x.T @ x)
    assert plan_cache_info().misses == 2
    plan_cache_clear()


def test_a_key_leaves_out_an_index_which_stays_in_the_order() -> None:
    program = Program(squared_features(entries([0, 1, 2, 3, 0])))
    plan = program.plan()
    reads = [query["expr"] for query in plan.logical if "L" in json.dumps(query["expr"])]
    assert len(reads) == 1
    assert sorted(plan.orders["q"]) == ["i", "s", "t"] or sorted(plan.orders["q"]) == ["s", "t"]
    assert elimination_cost(program, plan.orders["q"]) >= plan.cost


def test_stated_degrees_count_where_entries_are_unknown() -> None:
    def planned(degree: float) -> float:
        data = json.loads(json.dumps({"queries": squared_features(entries([0]))["queries"]}))
        known = {"shape": [1000, 50], "nnz": 900, "degrees": [[[1], [0], degree]]}
        tensors = {"L": known, "S": {"shape": [50, 30], "nnz": 1500}}
        return Program({"tensors": tensors, **data}).plan().cost

    assert planned(1) < planned(1.5)


def test_it_can_be_left_out() -> None:
    program = Program(squared_features(entries([0, 1, 2, 3, 0])))
    assert len(program.plan(dependencies=False).orders["q"]) == 3
    with pytest.raises(PlanError, match="dependencies is True or False"):
        program.plan(dependencies=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("aggregate", ["or", "and"])
def test_truths_stay_truths_where_nothing_is_left_to_reduce(aggregate: str) -> None:
    read = {"shape": [2, 2], "fill": 0, "coo": [[0, 1, 5]]}
    pair = ["map", "*", [["in", "L", ["i", "s"]], ["in", "L", ["i", "t"]]]]
    query = {"name": "q", "expr": ["agg", aggregate, ["t"], pair], "output": ["i", "s"]}
    value = {"index_sizes": {}, "tensors": {"L": read}, "queries": [query]}
    assert_results(Program.from_json(json.dumps(value)).run(), value, aggregate)
