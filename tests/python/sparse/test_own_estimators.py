"""Estimators that users write plan as those of C++ do, and what they do wrong is an error that names them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from joinsum import PlanError, SparseTensor
from joinsum.sparse import Estimator, Program, estimate, estimator_names, register_estimator

from .reference.programs import KINDS, random_program

Statistics = tuple[tuple[int, ...], float]
A = SparseTensor.from_coordinates([[0, 1, 2], [1, 2, 0]], [1.0, 2.0, 3.0], [3, 4])
SUM = ["agg", "+", ["j"], ["in", "A", ["i", "j"]]]


class Uniform(Estimator):
    """Indices, and the probability that an element is stored."""

    def of_tensor(self, shape: Sequence[int], fill: float, nnz: float, degrees: Any, entries: Any) -> Statistics:
        assert entries is None or (entries.nnz, list(entries.shape), entries.fill) == (nnz, list(shape), fill)
        elements = math.prod(shape)
        return tuple(range(len(shape))), nnz / elements if elements else 0.0

    def relabelled(self, statistics: Statistics, numbers: dict[int, int], sizes: Sequence[int]) -> Statistics:
        return tuple(sorted({numbers[index] for index in statistics[0]})), statistics[1]

    def join(self, children: Sequence[Statistics], indices: tuple[int, ...], sizes: Sequence[int]) -> Statistics:
        return indices, math.prod(density for _, density in children)

    def unite(self, children: Sequence[Statistics], indices: tuple[int, ...], sizes: Sequence[int]) -> Statistics:
        logarithms = [math.log1p(-density) if density < 1 else -math.inf for _, density in children]
        return indices, -math.expm1(sum(logarithms))

    def aggregate(self, statistics: Statistics, indices: tuple[int, ...], sizes: Sequence[int]) -> Statistics:
        own, density = statistics
        reduced = math.prod(sizes[index] for index in own if index not in indices)
        if set(own) == set(indices) or density >= 1 or reduced == 0:
            return indices, density if reduced else 0.0
        return indices, -math.expm1(reduced * math.log1p(-density))

    def estimate(self, statistics: Statistics, sizes: Sequence[int]) -> float:
        return statistics[1] * math.prod(sizes[index] for index in statistics[0])


class Broken(Uniform):
    """Estimates by a function that the test gives."""

    by: Callable[[], Any] = staticmethod(lambda: 1.0)

    def estimate(self, statistics: Statistics, sizes: Sequence[int]) -> Any:
        return self.by()


@pytest.fixture(scope="module")
def own() -> str:
    register_estimator("own uniform", Uniform())
    return "own uniform"


@pytest.fixture(scope="module")
def broken() -> Broken:
    made = Broken()
    register_estimator("broken", made)
    return made


def sums() -> Program:
    return Program({"tensors": {"A": A}, "queries": [{"name": "q", "expr": SUM, "output": ["i"]}]})


def programs() -> Iterator[tuple[str, Program]]:
    for kind in KINDS:
        for number in range(12):
            yield f"{kind} {number}", Program.from_json(json.dumps(random_program(kind, number)))


def close(found: Any, wanted: Any) -> Any:
    """Data with numbers that may differ by rounding."""
    if isinstance(wanted, dict):
        assert set(found) == set(wanted)
        return all(close(found[name], wanted[name]) for name in wanted)
    if isinstance(wanted, (list, tuple)):
        return len(found) == len(wanted) and all(close(a, b) for a, b in zip(found, wanted, strict=True))
    if isinstance(wanted, float):
        return found == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    return found == wanted


def test_a_copy_of_the_uniform_estimator_plans_as_it_does(own: str) -> None:
    for label, program in programs():
        found, wanted = (program.plan(estimator=name).data() for name in (own, "uniform"))
        for field in ("logical", "cost", "orders", "physical", "classes"):
            assert close(found[field], wanted[field]), (label, field)


def test_runs_plan_again_by_it(own: str) -> None:
    program = sums()
    assert own in estimator_names()
    assert estimate(SUM, program, own) == pytest.approx(estimate(SUM, program, "uniform"))
    assert program.run(estimator=own)["q"].to_torch().tolist() == [1, 2, 3]


@pytest.mark.parametrize("wrong", [-1, math.nan, "many", None])
def test_a_wrong_estimate_is_refused(broken: Broken, wrong: Any) -> None:
    broken.by = lambda: wrong
    program = sums()
    with pytest.raises(PlanError, match=r"estimator broken: estimate raised ValueError: an estimate is a number"):
        program.plan(estimator="broken")


def test_what_it_raises_names_it_and_what_was_asked(broken: Broken) -> None:
    def fail() -> None:
        raise KeyError("degree")

    broken.by = fail
    program = sums()
    with pytest.raises(PlanError, match=r"estimator broken: estimate raised KeyError: 'degree'"):
        program.plan(estimator="broken")


def test_names_and_kinds_are_checked(own: str) -> None:
    with pytest.raises(PlanError, match="the name is taken: estimator=own uniform"):
        register_estimator(own, Uniform())
    with pytest.raises(PlanError, match="the name is taken: estimator=chain"):
        register_estimator("chain", Uniform())
    with pytest.raises(PlanError, match="a name is needed: at=register_estimator"):
        register_estimator("", Uniform())
    with pytest.raises(PlanError, match="an Estimator: type=object"):
        register_estimator("object", object())  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="no such estimator: estimator=unknown"):
        estimate(
            SUM, Program({"tensors": {"A": A}, "queries": [{"name": "q", "expr": SUM, "output": ["i"]}]}), "unknown"
        )
