"""Claims about sizes that depend on data: whatever the way in, the error names the operator and the user's line."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import joinsum
import pytest
import torch
from torch import Tensor
from ways_in import WAYS, Layer


@pytest.fixture(autouse=True)
def without_graphs() -> None:
    torch._dynamo.reset()


# On one site capture refuses what `compile` finds without gradients, where all sizes of inputs are numbers.
CALLS = [("train_step", True), ("distribute", True), ("distribute", False), ("compile", True)]


def masked(x: Tensor) -> Tensor:
    return x[x > 0].sum()


def written(x: Tensor) -> Tensor:
    x = x.clone()
    x[x[:, 0] > 0] *= 2
    return x


def selected(x: Tensor) -> Tensor:
    return x * torch.masked_select(x, x > 0).sum()


def counted(x: Tensor) -> Tensor:
    return x * torch.nonzero(x).shape[0]


def distinct(x: Tensor) -> Tensor:
    return x * torch.unique(x).numel()


def bins(x: Tensor) -> Tensor:
    return x.sum() * torch.bincount(x.detach().long().abs().flatten(), minlength=5)


OPERATORS = {
    masked: "aten::index.Tensor",
    written: "aten::index.Tensor",
    selected: "aten::masked_select",
    counted: "aten::nonzero",
    distinct: "aten::_unique2",
    bins: "aten::bincount",
}


# Where torch traces masked_select in a step the batch size becomes a number, too.
CASES = [
    pytest.param(depends, *call, sites, id=f"{depends.__name__}-{call}-{sites}")
    for depends, call, sites in itertools.product(OPERATORS, CALLS, (1, 2))
    if (depends, call[0], sites) != (selected, "train_step", 1)
]


@pytest.mark.parametrize(("depends", "way", "gradients", "sites"), CASES)
def test_shapes_that_depend_on_data_are_refused_with_the_line_and_without_warnings(
    depends: Callable[[Tensor], Tensor], way: str, gradients: bool, sites: int, capfd: pytest.CaptureFixture[str]
) -> None:
    joinsum.init(sites=sites)
    with pytest.raises(joinsum.CaptureError) as caught, torch.set_grad_enabled(gradients or way == "train_step"):
        WAYS[way](Layer(depends), torch.randn(8, 4))
    text = str(caught.value)
    assert text.startswith(f"capture: a shape or number depends on data: operator={OPERATORS[depends]}, at=")
    assert f"in {depends.__name__}: " in text
    assert "torch.where, or sums over a mask" in text
    assert "failed to eagerly compile" not in capfd.readouterr().err
