"""Claims about what modules hold: every change between two calls is seen, and assignments of a call can be undone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from joinsum.frontend.tracing.module_contents import AttributeCopies, ModuleTensors
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
        self.layers[1].bias = None
        self.norm = nn.BatchNorm1d(2)
        self.recurrent = nn.LSTM(2, 3)
        self.label, self.count = "x", 3


def _rename(model: Any) -> None:
    model.norm._parameters["scale"] = model.norm._parameters.pop("bias")


def _swap(model: Any) -> None:
    first, second = model.layers
    first.weight, second.weight = second.weight, first.weight


def _replace_dictionary(model: Any) -> None:
    model.norm._buffers = dict(model.norm._buffers)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "an equal parameter": lambda m: setattr(m.norm, "weight", nn.Parameter(m.norm.weight.detach().clone())),
    "a parameter in place of none": lambda m: setattr(m.layers[1], "bias", nn.Parameter(torch.ones(2))),
    "a parameter less": lambda m: delattr(m.norm, "bias"),
    "a parameter renamed": _rename,
    "two parameters swapped": _swap,
    "another buffer": lambda m: setattr(m.norm, "running_mean", torch.zeros(2)),
    "a buffer more": lambda m: m.register_buffer("extra", torch.zeros(2)),
    "another dictionary": _replace_dictionary,
    "another module": lambda m: setattr(m, "norm", nn.BatchNorm1d(2)),
    "a module more": lambda m: m.layers.append(nn.Linear(2, 2)),
    "a weight of a recurrent layer": lambda m: m.recurrent._flat_weights.__setitem__(0, torch.ones(12, 2)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_tensors_and_modules_are_seen(change: str) -> None:
    model = Model()
    held = ModuleTensors(model)
    assert held.unchanged()
    model.label, model.count = "y", 4
    model.eval()
    assert held.unchanged()
    CHANGES[change](model)
    assert not held.unchanged()
    assert ModuleTensors(model).unchanged()


def test_every_place_of_a_tensor_is_found() -> None:
    model = Model()
    held = ModuleTensors(model)
    assert all(where[name] is x for (where, name), x in zip(held.places, held.tensors, strict=True))
    wanted = {id(x) for x in (*model.parameters(), *model.buffers())}
    assert {id(x) for x in held.tensors} == wanted
    assert len(held.tensors) == len(wanted) + len(model.recurrent._flat_weights)


def test_assignments_are_converted_and_undone() -> None:
    model = Model()
    before = [list(m.__dict__.items()) for m in model.modules()]
    copies = AttributeCopies(list(model.modules()))
    converted: list[Any] = []
    copies.convert_assigned(converted.append)
    assert not converted
    bias = model.norm.bias
    model.count, model.new, model.norm.bias = 4, "new", None
    copies.convert_assigned(lambda value: converted.append(value) or value)  # type: ignore[func-returns-value]
    assert converted == [4, "new", None]
    copies.restore()
    assert model.norm.bias is bias
    assert [list(m.__dict__.items()) for m in model.modules()] == before
