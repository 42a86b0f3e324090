"""A program while it is recorded: values, whose axes are products of labels, and drafts of the vertices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from joinsum.capture.recording.axes import Axis, Dim, extent_of, leaves
from joinsum.capture.recording.symbolic_numbers import SymbolicNumber

__all__ = [
    "Arguments",
    "BlockDraft",
    "CallDraft",
    "EinsumDraft",
    "ExtentDraft",
    "InputDraft",
    "Names",
    "Producer",
    "Recipe",
    "Result",
    "Scale",
    "ShardDraft",
    "Value",
    "axis_names",
    "computed",
]

Recipe = Callable[[Sequence[Any]], torch.Tensor]  # a tensor for the values of all symbolic numbers
Names = Sequence[str]  # a name for each axis; axes of one name are one label
Arguments = tuple[list[object], dict[str, object]]  # of a call, by position and by name


@dataclass(eq=False)
class InputDraft:
    """A tensor that is an argument of each run, or a constant of the program.

    recipe    of a constant that depends on symbolic numbers
    entries   of a sparse argument: about how many elements it stores
    """

    name: str
    position: int | None
    shape: tuple[int, ...]
    value: torch.Tensor | None = None
    recipe: Recipe | None = None
    entries: int | None = None


@dataclass(frozen=True)
class Scale:
    """The kernel that multiplies by a number."""

    factor: float


@dataclass(eq=False)
class EinsumDraft:
    """An einsum whose letters are dims."""

    inputs: list[Producer]
    operands: list[list[Dim]]
    join: str | Scale
    aggregate: str


@dataclass(frozen=True)
class BlockDraft:
    """Argument of a call: an operand, reshaped to these axes."""

    operand: int
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class ExtentDraft:
    """Argument of a call: the local extent of an axis."""

    axis: Axis


@dataclass(frozen=True)
class ShardDraft:
    """Argument of a call: a list with one number for each letter of these dims.

    what   `offset`, `local` (extent) or (global) `extent`; `shard` is all three lists, one after another
    """

    what: str
    dims: tuple[Dim, ...]


@dataclass(frozen=True)
class Result:
    """A result of a call: the names that each axis is the product of, and extents of those that operands lack.

    stored   the names in the order in which the operator stores the elements; that of the axes if empty
    """

    dtype: torch.dtype
    axes: Sequence[Names]
    extents: Mapping[str, int]
    stored: Names = ()


@dataclass(eq=False)
class CallDraft:
    """A call whose letters are dims.

    results              dtype and axes of each result
    stored               the dims of each result in the order in which it is stored; that of the axes if empty
    undecomposed         the undecomposed call, whose inputs are some of this one's
    undecomposed_first   which result of `undecomposed` is the first result of this call
    """

    inputs: list[Producer]
    operands: list[list[Dim]]
    function: str
    results: list[tuple[torch.dtype, tuple[Axis, ...]]]
    arguments: list[object]
    keywords: dict[str, object] = field(default_factory=dict)
    undivided: list[Dim] = field(default_factory=list)
    reduce: list[tuple[list[Dim], str]] = field(default_factory=list)
    flops: list[tuple[int, list[Dim]]] = field(default_factory=list)
    same: list[Dim] = field(default_factory=list)
    stored: list[list[Dim]] = field(default_factory=list)
    undecomposed: CallDraft | None = None
    undecomposed_first: int = 0

    def values(self) -> list[Value]:
        """The results of this call."""
        return [
            Value(Producer(self, tuple(self.dims_of(output)), dtype, output), axes)
            for output, (dtype, axes) in enumerate(self.results)
        ]

    def dims_of(self, output: int) -> list[Dim]:
        """The dims of a result in the order in which it is stored."""
        stored = self.stored[output] if self.stored else []
        return stored or [dim for axis in self.results[output][1] for dim in axis]


@dataclass(eq=False)
class Producer:
    """What computes a tensor of the axes `dims`: an input, or result `output` of a vertex."""

    draft: InputDraft | EinsumDraft | CallDraft
    dims: tuple[Dim, ...]
    dtype: torch.dtype
    output: int = 0


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the captured program. Its axes are products of its producer's dims, each used once, and of other
    dims, along which the elements repeat as after `torch.Tensor.expand`.

    constant   the tensor itself where it does not depend on inputs and is small
    recipe     of a constant that depends on symbolic numbers
    """

    producer: Producer
    axes: tuple[Axis, ...]
    constant: torch.Tensor | None = None
    recipe: Recipe | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of its axes."""
        return tuple(extent_of(axis) for axis in self.axes)

    @property
    def dtype(self) -> torch.dtype:
        """Its elements' dtype."""
        return self.producer.dtype

    def repeated(self) -> list[Dim]:
        """The dims along which the elements repeat."""
        own = set(leaves(self.producer.dims))
        return [dim for axis in self.axes for dim in leaves(axis) if dim not in own]


def computed(value: Any, numbers: Sequence[Any]) -> Any:
    """An argument with tensors in place of constant values, and `numbers` in place of symbolic ones."""
    if isinstance(value, Value):
        return value.constant if value.recipe is None else value.recipe(numbers)
    if isinstance(value, SymbolicNumber):
        return numbers[value.place.number]
    return [computed(each, numbers) for each in value] if isinstance(value, (list, tuple)) else value


def axis_names(rank: int) -> list[str]:
    """A different name for each axis.

    >>> axis_names(2)
    ['a0', 'a1']
    """
    return [f"a{axis}" for axis in range(rank)]
