"""Claims about comparisons by identity: they ask for the same objects and never for their values."""

from __future__ import annotations

import torch
from joinsum.base.identity import identical


def test_equal_tensors_are_not_identical_and_values_are_not_compared() -> None:
    x, y = torch.ones(3), torch.ones(3)
    assert identical([x, y], (x, y))
    assert not identical([x, y], [y, x])
    assert not identical([x], [x, y])
    assert identical([], ())
