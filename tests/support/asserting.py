"""Functions that assert something of the elements of a tensor: pytest rewrites assertions in files of tests."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["CHECKS", "rounded"]


def all_positive(x: Tensor) -> None:
    assert torch.all(x > 0).item(), "an element is not positive"


def checked_by_torch(x: Tensor) -> None:
    torch._check_tensor_all(x > 0)


def least(x: Tensor) -> None:
    assert x.min().item() > 0


def least_of_several(x: Tensor) -> None:
    smallest = x.min().item()
    assert smallest * 2 + 1 > 1
    assert smallest < 100


def whole_numbers(x: Tensor) -> None:
    assert (x > 0).sum().item() == 8


def rounded(x: Tensor) -> None:
    assert (x * 0.1).max().item() != 0.1


CHECKS = [all_positive, checked_by_torch, least, least_of_several, whole_numbers]
