"""Plans keep the rules of their dialects, and what breaks one of them is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from joinsum import PlanError, SparseTensor
from joinsum.sparse import Program
from joinsum.sparse.dialects import check_logical, check_physical

from .reference.programs import KINDS, random_program

Data = dict[str, Any]
Change = Callable[[Data], Data]


def check(program: Program, logical: list[Data], physical: list[Data]) -> None:
    check_logical(logical, program)
    check_physical(physical, logical, program)


# --- plans of the planner ---------------------------------------------------------------------------------------------

OPTIONS: list[Data] = [
    {"estimator": "uniform", "mode": "single", "search": "branch_and_bound"},
    {"estimator": "chain", "mode": "absorb", "search": "branch_and_bound", "cutoffs": {"bytemap": 2, "dense": 2}},
    {"estimator": "chain", "mode": "single", "search": "greedy", "cover": False, "distribute": False},
    {"estimator": "exact", "mode": "absorb", "search": "greedy", "cutoffs": {"bytemap": 0, "dense": 2}},
    {"estimator": "uniform", "mode": "absorb", "search": "greedy", "most_loops": 0, "cost": (60, 1)},
]


@pytest.mark.parametrize("kind", KINDS)
def test_plans_of_random_programs_keep_the_rules_also_as_json(kind: str) -> None:
    for number in range(80):
        program = Program.from_json(json.dumps(random_program(kind, number)))
        for options in (OPTIONS[number % 5], OPTIONS[(number + 2) % 5]):
            plan = program.plan(**options)
            check(program, plan.logical, plan.physical)
            sent = json.loads(plan.to_json())
            check(program, sent["logical"], sent["physical"])


def test_plans_with_infinite_estimates_keep_the_rules_as_json() -> None:
    vector = {"shape": [2], "nnz": 1}
    outputs = [f"i{axis}" for axis in range(20)]
    query = {"name": "q", "expr": ["in", "V", ["i"]], "output": ["i", *outputs]}
    program = Program({"index_sizes": dict.fromkeys(outputs, 2**60), "tensors": {"V": vector}, "queries": [query]})
    sent = json.loads(program.plan().to_json())
    assert sent["logical"][0]["nnz_agg"] == "inf"
    check(program, sent["logical"], sent["physical"])


def test_expressions_of_plans_may_be_deeper_than_those_of_programs() -> None:
    """Each of the aggregates becomes a power."""
    expr = ["in", "V", ["i"]]
    for _ in range(198):
        expr = ["map", "neg", [expr]]
    reduced = [f"j{number}" for number in range(8)]
    query = {"name": "q", "expr": ["agg", "*", reduced, expr], "output": ["i"]}
    tensors = {"V": {"shape": [2], "nnz": 1}}
    program = Program({"index_sizes": dict.fromkeys(reduced, 3), "tensors": tensors, "queries": [query]})
    plan = program.plan()
    check(program, plan.logical, plan.physical)


def test_tensors_are_transposed_that_are_not_stored_in_the_order_of_the_loops() -> None:
    matrix = SparseTensor.from_torch(torch.eye(3))
    query = {"name": "q", "expr": ["in", "M", ["i", "j"]], "output": ["i", "j"]}
    rows, columns = (
        Program({"tensors": {"M": matrix.with_levels(levels)}, "queries": [query]}) for levels in ("csr", "csc")
    )
    plan = rows.plan()
    assert (plan.physical[0]["loops"], plan.physical[0]["transposed"]) == (["i", "j"], [])
    check_physical(plan.physical, plan.logical, rows)
    moved = changed(plan.physical, "q", {"transposed": ["M"]})
    check_physical(moved, plan.logical, columns)
    for program, other in ((columns, plan.physical), (rows, moved)):
        with pytest.raises(PlanError, match="transposed are not the tensors that disagree with the loops"):
            check_physical(other, plan.logical, program)


# --- a plan by hand, and what breaks it -------------------------------------------------------------------------------


def at(tensor: str, *indices: str) -> list[Any]:
    return ["in", tensor, list(indices)]


def product(*factors: list[Any]) -> list[Any]:
    return ["map", "*", list(factors)]


def aggregate(name: str, op: str, indices: str, expr: list[Any], output: str) -> Data:
    numbers = {"nnz_agg": 4, "nnz_map": "inf", "cost": "inf"}
    return {"name": name, "op": op, "indices": list(indices), "expr": expr, "output": list(output), **numbers}


def mapped(name: str, expr: list[Any], output: str) -> Data:
    numbers = {"nnz_agg": 4, "nnz_map": 4, "cost": 0}
    return {"name": name, "op": None, "indices": [], "expr": expr, "output": list(output), **numbers}


def nest(name: str, loops: str, output: str, accesses: str, whole_range: str = "", transposed: str = "") -> Data:
    """Accesses as `A:i-walk,j-lookup B:j-walk`."""
    read = []
    for text in accesses.split():
        tensor, _, levels = text.partition(":")
        pairs = [level.split("-") for level in levels.split(",") if level]
        read.append({"tensor": tensor, "indices": [i for i, _ in pairs], "protocols": [p for _, p in pairs]})
    return {
        "name": name,
        "loops": list(loops),
        "iterations": [3.5 for _ in loops],
        "output": list(output),
        "formats": ["hash" for _ in output],
        "accesses": read,
        "transposed": transposed.split(),
        "cost": 9,
        "whole_range": list(whole_range),
    }


PRODUCT = product(at("A", "i", "j"), at("B", "k", "j"))
CYCLE = product(at("E", "i", "j"), at("E", "j", "k"), at("E", "k", "i"), at("D", "i"))
LARGEST = product(at("f", "k", "i"), at("A", "i", "j"))
PROGRAM = Program(
    {
        "index_sizes": {"z": 2},
        "tensors": {
            "A": {"shape": [5, 4], "nnz": 6},
            "B": {"shape": [6, 4], "nnz": 6},
            "S": {"shape": [], "nnz": 1},
            "T": {"shape": [3], "fill": 1, "nnz": 1},
            "E": {"shape": [7, 7], "nnz": 9},
            "D": {"shape": [7], "nnz": 3},
        },
        "queries": [
            {"name": "f", "expr": ["map", "exp", [["agg", "+", ["j"], PRODUCT]]], "output": ["k", "i"]},
            {"name": "g", "expr": ["agg", "+", ["i"], ["agg", "max", ["k"], LARGEST]], "output": ["j"]},
            {"name": "h", "expr": product(at("S"), at("T", "l")), "output": ["l", "z"]},
            {"name": "c", "expr": ["agg", "+", ["i", "j", "k"], CYCLE], "output": []},
        ],
    }
)
LOGICAL = [
    aggregate("f_1", "+", "j", PRODUCT, "ki"),
    mapped("f", ["map", "exp", [at("f_1", "k", "i")]], "ki"),
    aggregate("g_1", "max", "k", LARGEST, "ji"),
    aggregate("g", "+", "i", at("g_1", "j", "i"), "j"),
    mapped("h", product(at("S"), at("T", "l")), "lz"),
    aggregate("c", "+", "ijk", CYCLE, ""),
]
PHYSICAL = [
    nest("f_1", "ikj", "ki", "A:i-walk,j-walk B:k-walk,j-lookup"),
    nest("f", "ik", "ki", "f_1:i-walk,k-walk"),
    nest("g_1", "ijk", "ji", "f:i-lookup,k-walk A:i-walk,j-walk", whole_range="k"),
    nest("g", "ji", "j", "g_1:j-walk,i-walk"),
    nest("h", "zl", "lz", "S T:l-walk", whole_range="zl"),
    nest("c", "ijk", "", "E:i-walk,j-walk E:j-lookup,k-walk E:i-lookup,k-lookup D:i-lookup", transposed="E"),
]


def changed(plan: list[Data], name: str, change: Data | Change) -> list[Data]:
    """The plan with other fields of the query `name`."""
    fields = change if callable(change) else lambda _: change
    return [query | fields(query) if query["name"] == name else query for query in plan]


def accessed(number: int, **fields: Any) -> Change:
    """Other fields of one access."""
    return lambda query: {
        "accesses": [each | fields if i == number else each for i, each in enumerate(query["accesses"])]
    }


def test_a_plan_may_be_written_by_hand() -> None:
    check(PROGRAM, LOGICAL, PHYSICAL)


@pytest.mark.parametrize(
    ("name", "change", "rule"),
    [
        ("f_1", {"name": "A"}, "the name is taken"),
        ("f", {"name": "f_1"}, "the name is taken"),
        ("f_1", {"name": 1}, "a name is needed"),
        ("f_1", {"output": "ki"}, "a list of names is needed"),
        ("f_1", {"op": None}, "op and indices do not go together"),
        ("f_1", {"indices": []}, "op and indices do not go together"),
        ("f_1", {"op": "mean"}, "no such operator"),
        ("f_1", {"op": "exp"}, "no aggregate"),
        ("f_1", {"indices": ["j", "j"]}, "an aggregate names an index twice"),
        ("f_1", {"expr": ["agg", "max", ["l"], product(PRODUCT, at("T", "l"))]}, "an aggregate below another one"),
        ("f_1", {"expr": product(at("A", "i", "j"), ["agg", "+", ["l"], at("T", "l")])}, "an aggregate below another"),
        ("f_1", {"expr": ["map", "mean", [PRODUCT]]}, "no such operator"),
        ("f_1", {"expr": ["map", "exp", [PRODUCT, PRODUCT]]}, "number of arguments"),
        ("f_1", {"expr": ["sum", PRODUCT]}, "an expression is a list that begins with"),
        ("f_1", {"expr": at("Q", "i", "j")}, "a leaf reads no tensor and no earlier query"),
        ("f_1", {"expr": product(PRODUCT, at("f_1", "k", "i"))}, "a leaf reads no tensor and no earlier query"),
        ("f_1", {"expr": product(PRODUCT, at("g", "j"))}, "a leaf reads no tensor and no earlier query"),
        ("f_1", {"expr": at("A", "i")}, "not one index for each axis"),
        ("f", {"expr": at("f_1", "k")}, "not one index for each axis"),
        ("f_1", {"expr": product(at("A", "i", "j"), at("B", "k", "i"))}, "an index has two extents"),
        ("g_1", {"expr": product(at("f", "i", "k"), at("A", "i", "j"))}, "an index has two extents"),
        ("f", {"output": ["i", "k"]}, "an index has two extents"),
        ("f", {"output": ["k", "i", "z"]}, "not one index for each axis"),
        ("f_1", {"output": ["k"]}, "an index is neither reduced nor in the output"),
        ("f_1", {"indices": ["j", "x"]}, "a reduced index is not in the expression"),
        ("f_1", {"output": ["k", "i", "j"]}, "a reduced index is in the output"),
        ("f_1", {"output": ["k", "i", "i"]}, "the output has an index twice"),
        ("f_1", {"output": ["k", "i", "x"]}, "an index of the output has no extent"),
        ("f_1", {"nnz_agg": -1}, "a negative number"),
        ("f_1", {"nnz_map": "-inf"}, "a negative number"),
        ("f_1", {"cost": -0.5}, "a negative number"),
        ("f_1", {"cost": "nan"}, "no number"),
        ("f", {"cost": 4}, "a query without an aggregate has a cost"),
    ],
)
def test_each_rule_of_logical_plans_is_checked(name: str, change: Data, rule: str) -> None:
    with pytest.raises(PlanError, match=rf"^logical plan: .*{rule}.*, query={change.get('name', name)}$"):
        check_logical(changed(LOGICAL, name, change), PROGRAM)


def test_queries_between_may_cost_something_without_an_aggregate() -> None:
    part = mapped("f_2", product(at("A", "i", "j"), at("B", "k", "j")), "ijk") | {"cost": 5}
    check_logical([part, *changed(LOGICAL, "f_1", {"expr": at("f_2", "i", "j", "k")})], PROGRAM)


def test_all_queries_of_the_program_are_planned() -> None:
    with pytest.raises(PlanError, match=r"queries of the program are missing: queries=\['c'\]"):
        check_logical(LOGICAL[:-1], PROGRAM)


@pytest.mark.parametrize(
    ("name", "change", "rule"),
    [
        ("f_1", {"loops": ["i", "k"]}, "the loops are not the indices, each once"),
        ("f_1", {"loops": ["i", "k", "j", "j"]}, "the loops are not the indices, each once"),
        ("h", {"loops": ["l"]}, "the loops are not the indices, each once"),
        ("f_1", {"iterations": [1, 2]}, "not one number of iterations for each loop"),
        ("f_1", {"iterations": None}, "a list is needed"),
        ("f_1", {"iterations": [1, -2, 3]}, "a negative number"),
        ("f_1", {"cost": -1}, "a negative number"),
        ("f_1", {"output": ["i", "k"]}, "the levels are not those of the output in its order"),
        ("f_1", {"formats": ["dense"]}, "not one format for each level"),
        ("f_1", {"formats": ["dense", "csr"]}, "no such format"),
        ("f_1", {"accesses": []}, "the accesses are not the leaves"),
        ("f_1", lambda nest: {"accesses": nest["accesses"][::-1]}, "the accesses are not the leaves"),
        ("f_1", {"accesses": ["A", "B"]}, "an object is needed"),
        ("f_1", {"accesses": [{"tensor": "A"}, {"tensor": "B"}]}, "fields are missing"),
        ("f_1", accessed(0, indices=["j", "i"]), "an access is not in the order of the loops"),
        ("f_1", accessed(0, indices=["i"]), "an access is not in the order of the loops"),
        ("g", nest("g", "ij", "j", "g_1:i-walk,j-walk"), "a result is not read in the order of the loops"),
        ("f_1", {"transposed": ["A"]}, "transposed are not the tensors that disagree with the loops"),
        ("c", {"transposed": []}, "transposed are not the tensors that disagree with the loops"),
        ("c", {"transposed": ["E", "E"]}, "transposed are not the tensors that disagree with the loops"),
        ("f_1", accessed(0, protocols=["walk"]), "not one protocol for each index"),
        ("f_1", accessed(0, protocols=["walk", "hop"]), "no such protocol"),
        ("f_1", accessed(0, protocols=["walk", "lookup"]), "a loop has no walker, and is not in whole_range"),
        ("f_1", accessed(0, protocols=["lookup", "walk"]), "a loop has no walker, and is not in whole_range"),
        ("h", {"whole_range": ["l"]}, "a loop has no walker, and is not in whole_range"),
        ("c", accessed(3, protocols=["walk"]), "several accesses walk a loop, but not all"),
        ("f_1", {"whole_range": ["x"]}, "whole_range names no loop"),
        ("h", {"whole_range": ["z", "z"]}, "whole_range names no loop"),
    ],
)
def test_each_rule_of_physical_plans_is_checked(name: str, change: Data | Change, rule: str) -> None:
    with pytest.raises(PlanError, match=rf"^physical plan: .*{rule}.*, query={name}$"):
        check_physical(changed(PHYSICAL, name, change), LOGICAL, PROGRAM)


def test_physical_queries_are_those_of_the_logical_plan_in_their_order() -> None:
    for other in (PHYSICAL[:-1], PHYSICAL[::-1], [*PHYSICAL, PHYSICAL[0]]):
        with pytest.raises(PlanError, match="not the queries of the logical plan"):
            check_physical(other, LOGICAL, PROGRAM)


def test_a_loop_over_the_whole_range_needs_no_walker() -> None:
    looked_up = accessed(0, protocols=["lookup", "walk"])(PHYSICAL[0])
    check_physical(changed(PHYSICAL, "f_1", looked_up | {"whole_range": ["i"]}), LOGICAL, PROGRAM)


@pytest.mark.parametrize(
    ("change", "reads"),
    [
        ({"expr": ["map", "exp", [at("f_1", "i", "k")]], "output": ["k", "i"]}, ["f_1"]),
        ({"op": "max", "indices": ["k"]}, ["f_1"]),
        ({"expr": product(at("f_1", "k", "i"), at("f_1", "k", "i"))}, ["f_1", "f_1"]),
    ],
)
def test_only_maps_of_one_result_read_it_in_the_order_of_their_output(change: Data, reads: list[str]) -> None:
    """The loops of `f` are in another one."""
    accesses = [{"tensor": name, "indices": ["i", "k"], "protocols": ["walk", "walk"]} for name in reads]
    with pytest.raises(PlanError, match="a result is not read in the order of the loops"):
        check_physical(changed(PHYSICAL, "f", {"accesses": accesses}), changed(LOGICAL, "f", change), PROGRAM)


@pytest.mark.parametrize("field", sorted(LOGICAL[0]))
def test_no_field_of_a_logical_query_may_be_missing(field: str) -> None:
    without = {name: value for name, value in LOGICAL[0].items() if name != field}
    with pytest.raises(PlanError, match=rf"^logical plan: fields are missing: fields=\['{field}'\]"):
        check_logical([without, *LOGICAL[1:]], PROGRAM)


@pytest.mark.parametrize("field", sorted(PHYSICAL[0]))
def test_no_field_of_a_physical_query_may_be_missing(field: str) -> None:
    without = {name: value for name, value in PHYSICAL[0].items() if name != field}
    with pytest.raises(PlanError, match=rf"^physical plan: fields are missing: fields=\['{field}'\]"):
        check_physical([without, *PHYSICAL[1:]], LOGICAL, PROGRAM)


def test_queries_that_are_no_objects_are_named() -> None:
    with pytest.raises(PlanError, match="an object is needed"):
        check_logical([None, *LOGICAL], PROGRAM)  # type: ignore[list-item]
    with pytest.raises(PlanError, match="an object is needed"):
        check_physical(["f_1"], LOGICAL, PROGRAM)  # type: ignore[list-item]
