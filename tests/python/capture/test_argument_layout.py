"""How arguments lie: recognised where they lie as before, and only there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import joinsum
import pytest
import torch
from joinsum import DistributedTensor
from joinsum.capture.argument_layout import ArgumentLayout


@pytest.fixture(autouse=True)
def two_sites() -> Iterator[None]:
    joinsum.init(sites=2, plan_cache=False)
    yield
    joinsum.init()


def rows(number: float) -> DistributedTensor:
    return DistributedTensor.of(torch.full((4, 6), number, dtype=torch.float32), parts=(2, 1))


def layout(args: list[Any], read: dict[int, str]) -> ArgumentLayout | None:
    stored = {i: x.stored for i, x in enumerate(args) if isinstance(x, DistributedTensor)}
    return ArgumentLayout.of(stored, read, [("y", 1)], len(args))


def test_arguments_that_lie_as_before_give_their_blocks() -> None:
    weight = rows(1)
    known = layout([weight, torch.ones(4)], {0: "w"})
    assert known is not None
    assert (known.names, known.plain, known.set_of_positions) == (("w",), (1,), frozenset({0}))
    cores = known.cores([weight, torch.zeros(4)], joinsum.context())
    assert cores is not None
    assert [block.tolist() for block in cores[0].blocks()] == [[[1.0] * 6] * 2] * 2


def test_arguments_that_lie_otherwise_are_not_recognised() -> None:
    known = layout([rows(1), torch.ones(4)], {0: "w"})
    assert known is not None
    columns = DistributedTensor.of(torch.ones(4, 6), parts=(1, 2))
    for args in (
        [columns, torch.ones(4)],
        [torch.ones(4, 6), torch.ones(4)],
        [rows(1), DistributedTensor.of(torch.ones(4), parts=(2,))],
        [rows(1)],
        [rows(1), torch.ones(4), torch.ones(4)],
    ):
        assert known.cores(args, joinsum.context()) is None


def test_arguments_that_the_plan_does_not_read_as_they_lie_have_no_layout() -> None:
    assert layout([rows(1), torch.ones(4)], {}) is None
