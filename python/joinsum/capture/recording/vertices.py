"""Operations on the values of a program being recorded: views change labels alone, the others draft a vertex."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from joinsum.base.dtypes import dtype_name
from joinsum.capture.recording.axes import Axis, Dim, align, extent_of, fresh, leaves, split
from joinsum.capture.recording.symbolic_numbers import plain
from joinsum.capture.recording.values import (
    Arguments,
    BlockDraft,
    CallDraft,
    EinsumDraft,
    ExtentDraft,
    Names,
    Producer,
    Result,
    Scale,
    Value,
    axis_names,
    computed,
)

__all__ = [
    "CallRule",
    "Labels",
    "as_dtype",
    "call_operator",
    "cast_kernel",
    "einsum",
    "expanded",
    "mapped",
    "materialized",
    "permuted",
    "pointwise",
    "reshaped",
    "scaled",
    "with_factors_of",
]


@dataclass
class Labels:
    """The letters of one vertex: dims by the names of axes."""

    dims: dict[str, Axis] = field(default_factory=dict)

    def bind(self, value: Value, names: Names) -> Value:
        """Identifies the axes of an operand with those of the same name; returns the operand, copied with other factors
        where they do not nest."""
        for position, name in enumerate(names):
            axis = value.axes[position]
            if extent_of(axis) == 1:
                continue
            if name not in self.dims:
                self.dims[name] = tuple(Dim(dim.atom) for dim in leaves(axis))
            else:
                value = _aligned(value, position, self.dims[name])
        return value

    def of_producer(self, value: Value, names: Names) -> list[Dim]:
        """The letters of the axes of a bound operand's producer."""
        pairs: dict[Dim, Dim] = {}
        for name, axis in zip(names, value.axes, strict=True):
            if extent_of(axis) > 1:
                pairs |= zip(leaves(axis), leaves(self.dims[name]), strict=True)
        return [pairs[dim] for dim in leaves(value.producer.dims)]

    def axis(self, name: str) -> Axis:
        """The dims of a name; none where its extent is one."""
        return tuple(leaves(self.dims.get(name, ())))

    def all(self, names: Names) -> list[Dim]:
        """The dims of several names."""
        return [dim for name in names for dim in self.axis(name)]

    def block(self, operand: int, value: Value, names: Names) -> BlockDraft:
        """The argument that is an operand, whose axes of one element broadcast."""
        axes = zip(names, value.shape, strict=True)
        return BlockDraft(operand, tuple(self.axis(name) if extent > 1 else () for name, extent in axes))


# --- einsums ----------------------------------------------------------------------------------------------------------


def einsum(
    operands: Sequence[tuple[Value, Names]],
    result: Names,
    join: str | Scale,
    aggregate: str = "add",
    dtype: torch.dtype | None = None,
) -> Value:
    """⊕ over the names that the result lacks of ⊗ of the operands; axes of one element broadcast.

    The vertex lacks labels along which all operands repeat: the result repeats along them, or is multiplied.
    """
    labels = Labels()
    bound = [(labels.bind(value, names), names) for value, names in operands]
    letters = [labels.of_producer(value, names) for value, names in bound]
    known = {dim for operand in letters for dim in operand}
    axes = tuple(labels.axis(name) for name in result)
    draft = EinsumDraft([value.producer for value, _ in bound], letters, join, aggregate)
    dims = tuple(dim for axis in axes for dim in axis if dim in known)
    value = Value(Producer(draft, dims, dtype or bound[0][0].dtype), axes)
    remaining = {dim for axis in axes for dim in axis}
    lost = [dim for dim in labels.all(list(labels.dims)) if dim not in known and dim not in remaining]
    return scaled(value, extent_of(lost)) if lost and aggregate == "add" else value


def mapped(value: Value, kernel: str | Scale, dtype: torch.dtype | None = None) -> Value:
    """`value` through a kernel of one operand."""
    names = axis_names(len(value.axes))
    return einsum([(value, names)], names, kernel, dtype=dtype)


def scaled(value: Value, factor: float) -> Value:
    """`value` times a number."""
    return mapped(value, Scale(factor))


def cast_kernel(value: Value, dtype: torch.dtype) -> str:
    """The kernel that converts the elements of `value`."""
    return "id" if value.dtype is dtype else f"cast[{dtype_name('capture', dtype)}]"


def as_dtype(value: Value, dtype: torch.dtype) -> Value:
    """The same elements in another dtype."""
    return value if value.dtype is dtype else mapped(value, cast_kernel(value, dtype), dtype)


# --- calls of operators -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CallRule:
    """Which labels of a call may be divided, by the names of axes, and the work of the call.

    undivided  names that are never divided
    reduce     kernels that reduce the partial results where a name is divided that no result has
    same       names of which results that lack them do not depend: any shard of them gives the same results
    flops      coefficients of products of names
    """

    undivided: Names = ()
    reduce: Mapping[str, str] = field(default_factory=dict)
    same: Names = ()
    flops: Sequence[tuple[int, Names]] = ()


def call_operator(
    function: str,
    operands: Sequence[tuple[Value, Names]],
    results: Sequence[Result],
    arguments: Callable[[Labels], Arguments],
    rule: CallRule,
) -> list[Value]:
    """The results of an operator that runs on blocks.

    arguments   from the letters to the operator's arguments: `BlockDraft`, `ExtentDraft`, `ShardDraft` and plain values
    """
    labels = Labels()
    bound = [(labels.bind(materialized(value), names), names) for value, names in operands]
    for result in results:
        for name in (name for names in result.axes for name in names if name not in labels.dims):
            labels.dims[name] = fresh(result.extents.get(name, 1))
    letters = [labels.of_producer(value, names) for value, names in bound]
    positional, keywords = arguments(labels)
    draft = CallDraft(
        [value.producer for value, _ in bound],
        letters,
        function,
        [(result.dtype, tuple(tuple(labels.all(names)) for names in result.axes)) for result in results],
        positional,
        keywords,
        undivided=labels.all(rule.undivided),
        reduce=[(labels.all([name]), kernel) for name, kernel in rule.reduce.items()],
        flops=[(count, labels.all(names)) for count, names in rule.flops],
        same=labels.all(rule.same),
        stored=[labels.all(result.stored) for result in results],
    )
    return draft.values()


def pointwise(
    function: str,
    operands: Sequence[Value],
    dtypes: Sequence[torch.dtype],
    arguments: Callable[[Sequence[object]], Arguments],
    flops: int,
) -> list[Value]:
    """The results of an operator that does the same to each element; shapes broadcast.

    An operand lacks the letters along which it repeats; a letter that all operands lack is left out of the call.
    """
    order = axis_names(max((len(value.axes) for value in operands), default=0))
    labels = Labels()
    named = [order[len(order) - len(value.axes) :] for value in operands]
    bound = [labels.bind(value, names) for value, names in zip(operands, named, strict=True)]
    letters = [labels.of_producer(value, names) for value, names in zip(bound, named, strict=True)]
    known = {dim for operand in letters for dim in operand}
    dims = [dim for dim in labels.all(order) if dim in known]
    blocks: list[object] = []
    for number, (value, own) in enumerate(zip(bound, letters, strict=True)):
        axes: list[Axis] = [(dim,) if dim in own else () for dim in dims] or [()]
        blocks.append(BlockDraft(number, tuple(axes) if value.axes else ()))
    result: tuple[Axis, ...] = tuple((dim,) for dim in dims) or (((),) if order else ())
    positional, keywords = arguments(blocks)
    producers = [value.producer for value in bound]
    results = [(dtype, result) for dtype in dtypes]
    draft = CallDraft(producers, letters, function, results, positional, keywords, flops=[(flops, dims)])
    axes_of_results = tuple(labels.axis(name) for name in order)
    return [Value(value.producer, axes_of_results) for value in draft.values()]


def materialized(value: Value) -> Value:
    """The same tensor, in which no elements repeat."""
    if not value.repeated():
        return value
    axes = tuple(tuple(Dim(dim.atom) for dim in leaves(axis)) for axis in value.axes)
    pairs: dict[Dim, Dim] = {}
    for old, new in zip(value.axes, axes, strict=True):
        pairs |= zip(leaves(old), new, strict=True)
    letters = [pairs[dim] for dim in leaves(value.producer.dims)]
    dims = tuple(dim for axis in axes for dim in axis)
    block = BlockDraft(0, tuple((dim,) if dim in set(letters) else () for dim in dims))
    sizes = [ExtentDraft((dim,)) for dim in dims]
    result = (value.dtype, tuple((dim,) for dim in dims))
    draft = CallDraft([value.producer], [letters], "aten::expand", [result], [block, sizes])
    return Value(Producer(draft, dims, value.dtype), axes)


def with_factors_of(other: Value, value: Value) -> Value:
    """`value` with the factors that the axes of `other` have, in which no elements repeat."""
    value = materialized(value)
    for position, axis in enumerate(other.axes):
        value = _aligned(value, position, axis)
    return value


def _aligned(value: Value, position: int, axis: Axis) -> Value:
    """`value` with an axis that is identified with `axis`; a copy where their factors do not nest."""
    if not align(axis, value.axes[position]):
        value = _regrouped(value, [position], [extent_of(axis)])
        align(axis, value.axes[position])
    return value


# --- views ------------------------------------------------------------------------------------------------------------


def permuted(value: Value, order: Sequence[int]) -> Value:
    """`value` with its axes in another order."""
    return Value(value.producer, tuple(value.axes[axis] for axis in order))


def expanded(value: Value, shape: Sequence[int]) -> Value:
    """`value` with its elements repeated along new axes in front, and along axes of one element."""
    missing = len(shape) - len(value.axes)
    axes = [fresh(extent) for extent in shape[:missing]]
    for axis, own, extent in zip(value.axes, value.shape, shape[missing:], strict=True):
        axes.append(axis if own == extent or extent == -1 else fresh(extent))
    return Value(value.producer, tuple(axes))


def reshaped(value: Value, shape: Sequence[int]) -> Value:
    """The same elements, row-major, in other axes: labels split and merge where their factors nest."""
    axes: list[Axis] = []
    for start, stop, extents in _runs(value.shape, shape):
        factors = split([dim for axis in value.axes[start:stop] for dim in axis], extents)
        if factors is None:
            return reshaped(_regrouped(value, range(start, stop), extents), shape)
        axes += factors
    constant, recipe = value.constant, value.recipe
    return Value(
        value.producer,
        tuple(axes),
        None if constant is None else constant.reshape(plain(tuple(shape))),
        None if recipe is None else lambda numbers: recipe(numbers).reshape(computed(shape, numbers)),
    )


def _regrouped(value: Value, positions: Sequence[int], extents: Sequence[int]) -> Value:
    """Adjacent axes as new ones of these extents: a copy in which neither are divided."""
    first, last = positions[0], positions[-1] + 1
    before = axis_names(len(value.axes))
    new = [f"n{position}" for position in range(len(extents))]
    groups = [*([name] for name in before[:first]), new, *([name] for name in before[last:])]

    def arguments(labels: Labels) -> Arguments:
        axes = [labels.axis(name) for name in before]
        merged = tuple(dim for axis in axes[first:last] for dim in axis)
        return [BlockDraft(0, (*axes[:first], merged, *axes[last:]))], {}

    result = Result(value.dtype, groups, dict(zip(new, extents, strict=True)))
    rule = CallRule(undivided=[*before[first:last], *new])
    (copy,) = call_operator("aten::clone", [(value, before)], [result], arguments, rule)
    dims = list(copy.axes[first])
    axes: list[Axis] = [(dims.pop(0),) if extent > 1 else () for extent in extents]
    return Value(copy.producer, (*copy.axes[:first], *axes, *copy.axes[first + 1 :]))


def _runs(own: Sequence[int], wanted: Sequence[int]) -> list[tuple[int, int, list[int]]]:
    """The shortest runs of axes that together become axes of the wanted extents: begin, end and these extents.

    >>> _runs([4, 6, 5], [2, 2, 6, 1, 5])
    [(0, 1, [2, 2]), (1, 2, [6, 1]), (2, 3, [5])]
    """
    runs: list[tuple[int, int, list[int]]] = []
    i = j = 0
    while i < len(own) or j < len(wanted):
        start, taken = i, j
        left = right = 1
        if i < len(own):
            left, i = own[i], i + 1
        else:
            right, j = wanted[j], j + 1
        while left != right:
            if left < right:
                left, i = left * own[i], i + 1
            else:
                right, j = right * wanted[j], j + 1
        while j < len(wanted) and wanted[j] == 1:
            j += 1
        runs.append((start, i, list(wanted[taken:j])))
    return runs
