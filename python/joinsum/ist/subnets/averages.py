"""Means over the sites of the tensors that every site trains whole, as local SGD takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import torch

from joinsum import _C
from joinsum.algebra.stored_relation import StoredRelation
from joinsum.cluster.context import context
from joinsum.execution.relation import Relation, relation

__all__ = ["Averages", "with_real_parts"]

Name = TypeVar("Name")


class Averages(Generic[Name]):
    """Means of tensors that all sites have, as the base plus the mean of the differences from it: what no site has
    changed stays as it is, bit for bit.

    The differences in all tensors of a dtype are one relation <site, part>; its sum over the sites is a reduce-scatter
    of the parts, and an all-gather of the sums.

    Complex tensors are pairs of real ones there.

    base    for each tensor, a value that all processes have
    values  for each site of this process, its own
    """

    def __init__(self, base: Mapping[Name, torch.Tensor], values: Sequence[Mapping[Name, torch.Tensor]]) -> None:
        self._complex = {name for name, tensor in base.items() if tensor.is_complex()}
        self._base = {name: with_real_parts(tensor) for name, tensor in base.items() if tensor.numel()}
        self._values = values
        self._context = context()
        self._by_dtype: dict[torch.dtype, list[Name]] = {}
        for name, tensor in self._base.items():
            self._by_dtype.setdefault(tensor.dtype, []).append(name)

    @property
    def outputs(self) -> list[str]:
        """Names of the plan's outputs; every site needs all of them."""
        return [_output(dtype) for dtype in self._by_dtype]

    def add(self, inputs: dict[str, Relation], outputs: dict[str, Relation]) -> None:
        """Adds the sums to a plan."""
        current = self._context
        for dtype, names in self._by_dtype.items():
            elements = sum(self._base[name].numel() for name in names)
            empty = torch.zeros((), dtype=dtype).expand(current.sites, elements)
            type_ = relation(empty, parts=(current.sites, min(current.sites, elements))).type
            placement = _C.Placement.fill(current.grid, [0], type_.frontier)
            placed = _C.PhysicalType.placed("IST", type_, current.grid, placement)
            blocks = [self._differences(values, names).unsqueeze(0) for values in self._values]
            name = f"differences_{_text(dtype)}"
            inputs[name] = relation(StoredRelation.of_blocks(blocks, placed), name=name)
            outputs[_output(dtype)] = inputs[name].aggregate(keep=[1], kernel="add")

    def _differences(self, values: Mapping[Name, torch.Tensor], names: Sequence[Name]) -> torch.Tensor:
        return torch.cat([_change(with_real_parts(values[name]), self._base[name]).reshape(-1) for name in names])

    def means(self, found: Mapping[str, StoredRelation]) -> dict[Name, torch.Tensor]:
        """The means, from the plan's outputs."""
        means = {}
        for dtype, names in self._by_dtype.items():
            mean = found[_output(dtype)].blocks()[0].reshape(-1) / self._context.sites
            parts = torch.split(mean, [self._base[name].numel() for name in names])
            for name, part in zip(names, parts, strict=True):
                own = self._base[name] + part.view(self._base[name].shape)
                means[name] = torch.view_as_complex(own) if name in self._complex else own
        return means


def with_real_parts(tensor: torch.Tensor) -> torch.Tensor:
    """A view of a complex tensor with a last axis of its real and imaginary parts; any other one as it is."""
    return torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor


def _change(value: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """The difference, 0 where the two are equal, infinities too."""
    return torch.where(value == base, torch.zeros_like(base), value - base)


def _text(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _output(dtype: torch.dtype) -> str:
    return f"sums_{_text(dtype)}"
