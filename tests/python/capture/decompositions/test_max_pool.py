"""Max pools give torch's elements and places, also of elements that are no numbers, and refuse what torch refuses."""

from __future__ import annotations

from typing import Any

import joinsum  # noqa: F401  # defines the operator
import pytest
import torch

POOL, ATENS = torch.ops.joinsum.max_pool2d, torch.ops.aten.max_pool2d_with_indices


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 9, 11), (3, 8, 8), (1, 2, 70, 150), (0, 3, 8, 8)], ids=str)
@pytest.mark.parametrize("window", [1, 2, 3, (2, 3), 5], ids=str)
@pytest.mark.parametrize("stride", [[], 1, 2, 3, (1, 2)], ids=str)
def test_elements_and_places_are_torchs(window: Any, stride: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape).round(decimals=1)  # with equal elements
    x.view(-1)[::37] = float("nan")
    x.view(-1)[::5] = -float("inf")
    x = x.to(dtype)
    for padding in (0, 1):
        for dilation in (1, 2):
            for ceil_mode in (False, True):
                arguments = (window, stride, padding, dilation, ceil_mode)
                try:
                    wanted = ATENS(x, *arguments)
                except RuntimeError:
                    with pytest.raises(RuntimeError):
                        POOL(x, *arguments)
                    continue
                found = POOL(x, *arguments)
                torch.testing.assert_close(found[0], wanted[0], rtol=0, atol=0, equal_nan=True)
                assert torch.equal(found[1], wanted[1]), arguments


def test_other_layouts_are_torchs() -> None:
    x = torch.randn(2, 3, 8, 9)
    for other in (x.contiguous(memory_format=torch.channels_last), x.transpose(2, 3), x[:, :, ::2]):
        for found, wanted in zip(POOL(other, 2), ATENS(other, 2), strict=True):
            assert torch.equal(found, wanted)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x = torch.randn(8, 16, 40, 40)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        several = POOL(x, 3, 2, 1)
        torch.set_num_threads(1)
        for found, wanted in zip(several, POOL(x, 3, 2, 1), strict=True):
            assert torch.equal(found, wanted)
    finally:
        torch.set_num_threads(before)
