"""Measured figures beside predicted ones."""

from __future__ import annotations

import math

import pytest
from joinsum.explanation.measured import Comparison, Figures


@pytest.mark.parametrize(
    ("predicted", "measured", "errors"),
    [
        (Figures(8, 1.0, 100), Figures(8, 2.0, 50), {}),
        (Figures(8, 1.0, 100), Figures(17, 0.4, 201), {"wire_bytes": 2.125, "seconds": 2.5, "peak_bytes": 2.01}),
        (Figures(0, 0.0, 1), Figures(4, 1e-6, 1), {"wire_bytes": math.inf}),
    ],
)
def test_figures_wrong_by_more_than_a_factor_of_two_are_flagged(
    predicted: Figures, measured: Figures, errors: dict[str, float]
) -> None:
    assert Comparison("t0", "", predicted, measured).errors == pytest.approx(errors)
