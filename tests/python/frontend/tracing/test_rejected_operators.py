"""Claims about operators that reject their operands in a traced call: errors have sizes and the module, and torch logs
nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import joinsum
import pytest
import torch
from joinsum.frontend.tracing.rejected_operators import rejected_operators
from torch import Tensor, nn

LOGGER = logging.getLogger("torch._subclasses.fake_tensor")


class Records(logging.Handler):
    """What reaches a logger's handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture
def records() -> Iterator[list[str]]:
    torch._dynamo.reset()
    joinsum.init(sites=2)
    handler = Records()
    LOGGER.addHandler(handler)
    yield handler.texts
    LOGGER.removeHandler(handler)
    joinsum.init()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 4))

    def forward(self, x: Tensor) -> Any:
        return self.layers(x)


def step_of(model: nn.Module) -> Callable[[Tensor], Any]:
    step = joinsum.train_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    return lambda x: step(x, x.new_ones(len(x), 4))


WAYS: dict[str, Callable[[nn.Module], Callable[[Tensor], Any]]] = {
    "train_step": step_of,
    "distribute": lambda model: joinsum.distribute(model, torch.ones(8, 10)),
}
PLACE = r": at \S+test_rejected_operators\.py:\d+ in forward, code=return self\.layers\(x\)$"


@pytest.mark.parametrize("way", WAYS)
def test_a_wrong_number_of_features_is_said_with_sizes_module_and_line(way: str, records: list[str]) -> None:
    call = WAYS[way](Model())
    call(torch.ones(8, 10))
    for rows in (8, 6):
        wanted = rf"^{way}: RuntimeError: .*same reduction dim, but got \[{rows}, 11\] X \[10, 24\]: module=layers\.0"
        with pytest.raises(joinsum.CaptureError, match=wanted + PLACE):
            call(torch.ones(rows, 11))
    assert records == []
    call(torch.ones(8, 10))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_a_wrong_dtype_is_said_with_module_and_line(way: str, dtype: torch.dtype, records: list[str]) -> None:
    call = WAYS[way](Model())
    call(torch.ones(8, 10))
    with pytest.raises(joinsum.PlanError) as caught:
        call(torch.ones(8, 10).to(dtype))
    text = str(caught.value)
    assert text.startswith(
        f"capture: a product of tensors of several dtypes: dtypes=[{dtype}, torch.float32], module=lay"
    )
    assert "module=layers.0, at=File" in text
    assert text.endswith("in forward: return self.layers(x); convert them to one, as with x.to(torch.float32)")
    assert records == []


def test_torch_logs_again_outside_of_a_call(records: list[str]) -> None:
    with rejected_operators() as rejected:
        LOGGER.error("failed while attempting to run meta for %s", "aten.mm.default")
        LOGGER.error("something else")
    LOGGER.error("failed while attempting to run meta for %s", "aten.add.Tensor")
    assert records == ["something else", "failed while attempting to run meta for aten.add.Tensor"]
    assert (rejected.sizes, rejected.module) == ({}, "")
