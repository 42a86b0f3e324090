"""Plans are kept for programs and einsums that are alike, and counted."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Iterator

import joinsum
import pytest
import torch
from joinsum import SparseTensor
from joinsum.sparse import Program, plan_cache_clear, plan_cache_info


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    joinsum.init(sites=1)
    plan_cache_clear()
    yield
    plan_cache_clear()


def random_matrix(seed: int, entries: int, size: int = 30) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.zeros(size * size, dtype=torch.float64)
    matrix[torch.randperm(size * size, generator=generator)[:entries]] = 1 + torch.rand(
        entries, generator=generator, dtype=torch.float64
    )
    return matrix.reshape(size, size)


def product(x: torch.Tensor, *, levels: str = "csr", op: str = "*", name: str = "X") -> Program:
    body = ["map", op, [["in", name, ["i", "j"]], ["in", name, ["j", "k"]]]]
    tensors = {name: SparseTensor.from_torch(x).with_levels(levels)}
    return Program(
        {"tensors": tensors, "queries": [{"name": "q", "expr": ["agg", "+", ["j"], body], "output": ["i", "k"]}]}
    )


def test_a_program_that_is_alike_takes_the_plan_and_its_own_tensors() -> None:
    for seed in range(4):
        x = random_matrix(seed, entries=70 + seed)
        torch.testing.assert_close(product(x).run()["q"].to_dense(), x @ x)
    assert plan_cache_info() == (3, 1, 1)


@pytest.mark.parametrize(
    ("other", "options"),
    [
        (product(random_matrix(0, 200)), {}),
        (product(random_matrix(0, 70, size=31)), {}),
        (product(random_matrix(0, 70), levels="dcsr"), {}),
        (product(random_matrix(0, 70), op="max"), {}),
        (product(random_matrix(0, 70), name="Y"), {}),
        (product(random_matrix(0, 70)), {"mode": "single"}),
        (
            product(
                random_matrix(0, 70).index_put((torch.tensor(0), torch.tensor(0)), torch.tensor(math.inf).double())
            ),
            {},
        ),
    ],
    ids=["entries", "shape", "levels", "operator", "name", "options", "infinity"],
)
def test_others_are_planned(other: Program, options: dict[str, str]) -> None:
    product(random_matrix(1, 70)).run()
    other.run(**options)
    assert plan_cache_info().misses == 2
    other.run(**options)
    assert plan_cache_info() == (1, 2, 2)


def test_a_program_stays_what_it_was_made_of() -> None:
    ones = SparseTensor.from_torch(torch.ones(3, dtype=torch.float64))
    query = {"name": "q", "expr": ["agg", "+", ["i", "k"], ["in", "v", ["i"]]], "output": []}
    data = {"index_sizes": {"k": 2}, "tensors": {"v": ones}, "queries": [query]}
    program = Program(data)
    data["index_sizes"]["k"] = 3
    assert program.run()["q"].item() == 6
    assert Program(data).run()["q"].item() == 9


def test_zero_and_its_negative_are_other_fills() -> None:
    inverse = {"name": "q", "expr": ["map", "pow", [["in", "v", ["i"]], ["lit", -1]]], "output": ["i"]}
    for fill in (0.0, -0.0):
        v = SparseTensor.from_coordinates([[0]], [2.0], [2], levels="coo", fill=fill)
        found = Program({"tensors": {"v": v}, "queries": [inverse]}).run()["q"].to_dense()
        assert found.tolist() == [0.5, math.copysign(math.inf, fill)]


def test_einsums_count_and_share_plans_between_contexts() -> None:
    for sites in (1, 1, 3):
        joinsum.init(sites=sites)
        for seed in range(3):
            x = random_matrix(seed, entries=70)
            sparse = SparseTensor.from_torch(x).with_levels("dcsr")
            found = joinsum.einsum("ij,jk->ik", sparse, sparse)
            torch.testing.assert_close(found if isinstance(found, torch.Tensor) else found.to_dense(), x @ x)
    assert plan_cache_info().misses == 1
    assert plan_cache_info().hits >= 8


def test_plans_keep_no_tensors() -> None:
    program = product(random_matrix(0, 70))
    tensor = weakref.ref(program.handle)
    program.run()
    del program
    gc.collect()
    assert tensor() is None
    assert plan_cache_info().plans == 1


def test_the_least_recently_used_plan_is_dropped() -> None:
    from joinsum.sparse.plan_cache import PlanCache

    cache = PlanCache(most=2)
    for key in ("a", "b", "a", "c", "a", "b"):
        cache.get(key, lambda key=key: key.upper())
    assert cache.info() == (2, 4, 2)


def test_programs_and_plans_have_values_that_are_written_to() -> None:
    values = torch.ones(3, dtype=torch.float64)
    matrix = SparseTensor.from_coordinates(
        [[0, 0, 1], [0, 1, 0]], torch.ones(3, dtype=torch.float64), (2, 2), levels="csr"
    )
    held = matrix.with_values(values)
    sums = ["agg", "+", ["j"], ["in", "B", ["i", "j"]]]
    pairs = ["agg", "+", ["i"], ["map", "*", [["in", "B", ["i", "j"]], ["in", "B", ["j", "i"]]]]]
    queries = [{"name": "a", "expr": sums, "output": ["i"]}, {"name": "b", "expr": pairs, "output": ["j"]}]
    program = Program({"tensors": {"B": held}, "queries": queries})
    plan = program.plan()

    def found(results: dict[str, SparseTensor]) -> list[list[float]]:
        return [results[name].to_dense().tolist() for name in "ab"]

    assert found(program.run()) == [[2, 1], [2, 1]]
    values.mul_(2)
    assert found(program.run()) == [[4, 2], [8, 4]]
    assert found(plan.run()) == [[4, 2], [8, 4]]
    values[1] = math.inf
    assert found(program.run())[0] == [math.inf, 2]
