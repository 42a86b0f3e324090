"""Cost constants that are measured: a fit that is not negative, whose kernels are what they say."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import joinsum
import pytest
import torch
from click.testing import CliRunner
from joinsum import PlanError
from joinsum.cli.main import main
from joinsum.sparse import MeasuredCost, MeasuredKernel, Program, measure_cost
from joinsum.sparse.measured_cost import _fit, _programs


def test_constants_of_exact_times_are_found() -> None:
    kernels = [
        MeasuredKernel("k", agg, whole, 3e-8 * agg + 2e-9 * whole + 1e-5)
        for agg, whole in product((1, 50, 900), (10, 4e4))
    ]
    assert _fit(kernels) == pytest.approx([3e-8, 2e-9, 1e-5])


def test_no_constant_is_negative() -> None:
    kernels = [MeasuredKernel("k", float(n), 1000.0 - n, 1e-6 * n) for n in (10, 100, 500)]
    assert min(_fit(kernels)) >= 0
    assert _fit(kernels)[0] == pytest.approx(1e-6)


def test_entries_of_kernels_are_counted() -> None:
    """The exact estimator counts the same."""
    for name, program, nnz_map in _programs(400):
        plan = program.plan(estimator="exact")
        plan.run(analyze=True)
        assert [each["nnz_map"] for each in plan.logical] == [nnz_map], name
        assert list(plan.true_entries.values()) == [each["nnz_agg"] for each in plan.logical], name


def test_plans_take_the_measured_constants() -> None:
    measured = measure_cost(threads=1, engine="interpreter", entries=[200, 2000])
    assert len(measured.kernels) == 18
    assert all(kernel.seconds > 0 for kernel in measured.kernels)
    assert str(measured).count("\n") == 18
    vector = {"shape": [3], "coo": [[0, 1], [2, 5]]}
    total = {"name": "q", "expr": ["agg", "+", ["i"], ["in", "V", ["i"]]], "output": []}
    plan = Program({"tensors": {"V": vector}, "queries": [total]}).plan(cost=measured.cost)
    assert plan.cost == pytest.approx(measured.cost[0] + 2 * measured.cost[1])


@pytest.mark.parametrize("entries", [[], [1000], [99, 1000], [1000, 10**30], 5, None, [torch.nan, 1000], "many"])
def test_sizes_are_checked(entries: object) -> None:
    with pytest.raises(PlanError, match="measure_cost: entries"):
        measure_cost(entries=entries)  # type: ignore[arg-type]


def test_the_command_takes_the_measured_constants(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(joinsum.sparse, "measure_cost", lambda threads: MeasuredCost((2.0, 0.5), 0.0, ()))
    total = {"name": "q", "expr": ["agg", "+", ["i"], ["in", "V", ["i"]]], "output": []}
    file = tmp_path / "program.json"
    file.write_text(json.dumps({"tensors": {"V": {"shape": [3], "nnz": 2}}, "queries": [total]}))
    result = CliRunner().invoke(main, ["sparse", str(file), "--json", "--cost", "measured"])
    assert json.loads(result.stdout)["cost"] == 3
    assert (
        "'measure' is not of the form A,B"
        in CliRunner().invoke(main, ["sparse", str(file), "--cost", "measure"]).output
    )
    assert "'' is not of the form BYTEMAP" in CliRunner().invoke(main, ["sparse", str(file), "--cutoffs", ""]).output
