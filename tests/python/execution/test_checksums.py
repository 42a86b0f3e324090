"""Checksums of tensors, by which ranks find that their operands differ."""

from __future__ import annotations

import itertools

import pytest
import torch
from joinsum.execution.operands import checksum, checksum_of


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bfloat16])
def test_constant_tensors_differ(dtype: torch.dtype) -> None:
    values = [0, 1, 2, 3, 4, 8, -1, -2, 64, *([] if dtype is torch.int64 else [0.5, -0.5, 0.25, 1.5])]
    assert len({checksum(torch.full((64, 64), value).to(dtype)) for value in values}) == len(values)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.float32])
def test_all_small_vectors_differ(dtype: torch.dtype) -> None:
    vectors = list(itertools.product(range(3), repeat=8))
    assert len({checksum(torch.tensor(vector, dtype=dtype)) for vector in vectors}) == len(vectors)


def test_places_and_signs_count() -> None:
    one = torch.zeros(256)
    one[0] = 2
    assert len({checksum(torch.roll(one, i)) for i in range(256)}) == 256
    x = torch.randn(8, 9, generator=torch.Generator().manual_seed(0))
    others = [x, -x, x.abs(), x.flip(0), x.flip(1), x.T.reshape(8, 9), x + torch.eye(8, 9) * 1e-7]
    assert len({checksum(each) for each in others}) == len(others)


def test_equal_elements_have_one_checksum_however_they_are_stored() -> None:
    x = torch.randn(40, 1700, generator=torch.Generator().manual_seed(1))
    wide = torch.zeros(40, 1703)
    wide[:, 3:] = x
    assert checksum(x) == checksum(wide[:, 3:]) == checksum(x.T.contiguous().T)
    assert checksum(x.to(torch.uint8)[:, 1:]) == checksum(x.to(torch.uint8)[:, 1:].clone())


def test_what_a_sparse_tensor_consists_of_counts() -> None:
    x = torch.eye(5)
    assert checksum_of(x.to_sparse().coalesce()) != checksum_of(x.roll(1, 0).to_sparse().coalesce())
    assert checksum_of(x.to_sparse().coalesce()) != checksum_of((2 * x).to_sparse().coalesce())
