"""Programs in each dtype, beside numpy's arithmetic."""

from __future__ import annotations

from typing import Any

import joinsum
import numpy as np
import pytest
import torch
from joinsum import PlanError, SparseTensor
from joinsum.sparse import Program

DTYPES = ("float32", "float64", "int32", "int64")

SUM = ["agg", "+", ["i"], ["in", "x", ["i"]]]


def program(tensors: dict[str, Any], expr: list[Any], output: list[str], dtype: Any = None) -> Program:
    data = {"tensors": tensors, "queries": [{"name": "y", "expr": expr, "output": output}]}
    return Program(data if dtype is None else data | {"dtype": dtype})


def vector(*values: Any, dtype: torch.dtype = torch.int64) -> SparseTensor:
    return SparseTensor.from_torch(torch.tensor(values, dtype=dtype))


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_and_results_have_the_dtype(dtype: str, engine: str, sites: int) -> None:
    joinsum.init(sites=sites)
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, (7, 7)) * (rng.random((7, 7)) < 0.4) for _ in range(2))
    tensors = {name: SparseTensor.from_torch(torch.from_numpy(x)) for name, x in (("A", a), ("B", b))}
    product = ["map", "*", [["in", "A", ["i", "j"]], ["in", "B", ["j", "k"]]]]
    made = program(tensors, ["agg", "+", ["j"], product], ["i", "k"], dtype)
    results = made.run() if engine == "interpreter" else made.plan().run(engine=engine)
    assert results["y"].dtype is getattr(torch, dtype)
    assert np.array_equal(results["y"].to_dense().numpy(), (a @ b).astype(dtype))
    joinsum.init()


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
def test_integers_beyond_those_of_float64_are_exact(engine: str) -> None:
    x = vector(2**62 + 1, 0, -(2**61) - 3, 5)
    result = program({"x": x}, SUM, [], "int64").plan().run(engine=engine)["y"]
    assert result.to_dense().item() == 2**62 + 1 - 2**61 - 3 + 5
    # Of an index that nothing has, the product is a power.
    cube = {"tensors": {"x": vector(3, 2_000_003)}, "index_sizes": {"j": 3}, "dtype": "int64"}
    expr = ["agg", "*", ["j"], ["in", "x", ["i"]]]
    made = Program(cube | {"queries": [{"name": "y", "expr": expr, "output": ["i"]}]})
    assert made.plan().run(engine=engine)["y"].to_dense().tolist() == [27, 2_000_003**3]


def test_sums_of_integers_wrap_around() -> None:
    x = vector(2**31 - 1, 2, dtype=torch.int32)
    assert program({"x": x}, SUM, [], torch.int32).run()["y"].to_dense().item() == -(2**31) + 1


def test_entries_of_json_are_whole_where_the_program_is() -> None:
    x = {"shape": [3], "coo": [[0, 2**62 + 1], [2, 4.0]]}
    assert program({"x": x}, SUM, [], "int64").run()["y"].to_dense().item() == 2**62 + 5
    assert program({"x": x}, SUM, []).run()["y"].to_dense().item() == float(2**62 + 1) + 4


@pytest.mark.parametrize("dtype", DTYPES)
def test_queries_without_tensors_have_the_dtype(dtype: str) -> None:
    data = {"index_sizes": {"i": 4}, "tensors": {}, "dtype": dtype}
    made = Program(data | {"queries": [{"name": "y", "expr": ["agg", "+", ["i"], ["lit", 3]], "output": []}]})
    result = made.run()["y"]
    assert (result.dtype, result.to_dense().item()) == (getattr(torch, dtype), 12)


def test_literals_join_tensors_of_any_dtype() -> None:
    x = vector(1.5, 2.0, dtype=torch.float32)
    queries = [
        {"name": "two", "expr": ["lit", 2], "output": []},
        {"name": "y", "expr": ["map", "*", [["in", "x", ["i"]], ["in", "two", []]]], "output": ["i"]},
    ]
    result = Program({"tensors": {"x": x}, "dtype": "float32", "queries": queries}).run()["y"]
    assert (result.dtype, result.to_dense().tolist()) == (torch.float32, [3.0, 4.0])


def test_the_query_that_follows_has_the_dtype() -> None:
    made = program({"x": vector(2**60 + 1, 1)}, SUM, [], "int64")
    after = made.with_query({"name": "z", "expr": ["map", "+", [["in", "y", []], ["lit", 1]]], "output": []})
    assert after.run()["z"].to_dense().item() == 2**60 + 3


@pytest.mark.parametrize(
    ("tensors", "expr", "dtype", "message"),
    [
        ({"x": vector(2**53 + 1)}, SUM, None, "torch.float64 does not hold all values"),
        ({"x": vector(0.5, dtype=torch.float32)}, SUM, "int64", "torch.int64 does not hold all values"),
        ({"x": vector(float("inf"), dtype=torch.float64)}, SUM, "int32", "torch.int32 does not hold all values"),
        ({"x": vector(2**31)}, SUM, "int32", "torch.int32 does not hold all values"),
        (
            {"x": {"shape": [1], "coo": [[0, 0.5]]}},
            SUM,
            "int64",
            "up to 2^53: at=$.tensors.x.coo[0][1]",
        ),
        ({"x": {"shape": [1], "coo": [[0, "inf"]]}}, SUM, "int64", "no value of the dtype: at=$.tensors.x.coo[0][1]"),
        ({"x": {"shape": [1], "coo": [[0, 2**31]]}}, SUM, "int32", "no value of the dtype: at=$.tensors.x.coo[0][1]"),
        (
            {"x": {"shape": [1], "fill": 0.5, "coo": []}},
            SUM,
            "int64",
            "up to 2^53: at=$.tensors.x.fill",
        ),
        (
            {"x": vector(4)},
            ["agg", "+", ["i"], ["map", "sqrt", [["in", "x", ["i"]]]]],
            "int64",
            "it gives no whole numbers; choose dtype float64: at=$.queries[0].expr[3][1], operator=sqrt",
        ),
        (
            {"x": vector(4)},
            ["agg", "+", ["i"], ["map", "*", [["in", "x", ["i"]], ["lit", 0.5]]]],
            "int64",
            "it gives no whole numbers; choose dtype float64: at=$.queries[0].expr[3][2][1][1], number=0.5",
        ),
        (
            {"x": vector(4)},
            SUM,
            "complex64",
            "there are float32, float64, int32, int64: at=$.dtype",
        ),
        ({"x": vector(4)}, SUM, torch.bool, "no dtype of programs"),
        ({"x": vector(4)}, SUM, 7, "no dtype of programs"),
        ({"x": vector(4)}, SUM, ["int64"], "no dtype of programs"),
    ],
)
def test_what_the_dtype_does_not_hold_is_refused(
    tensors: dict[str, Any], expr: list[Any], dtype: Any, message: str
) -> None:
    with pytest.raises(PlanError) as raised:
        program(tensors, expr, [], dtype)
    assert message in str(raised.value)
