"""Building a program: values whose axes are products of atomic labels, and the vertices that make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from joinsum.capture.axes import Axis, Dim, align, extent_of, fresh, leaves, split

__all__ = [
    "Arguments",
    "CallDraft",
    "Each",
    "EinsumDraft",
    "InputDraft",
    "Labels",
    "Names",
    "Recorder",
    "Result",
    "Shown",
    "Size",
    "Source",
    "Value",
    "axis_names",
]

Names = Sequence[str]  # a name for each axis; axes of one name are one label
Arguments = tuple[list[object], dict[str, object]]  # of a call, by position and by name

# A tensor of equal elements up to this size is recognised and repeats a single element.
_LOOKED_AT = 1 << 16


@dataclass(eq=False)
class InputDraft:
    """A tensor that the run is given, or that the program carries."""

    name: str
    position: int | None
    shape: tuple[int, ...]
    value: torch.Tensor | None = None


@dataclass(eq=False)
class EinsumDraft:
    """An einsum whose letters are dims."""

    inputs: list[Source]
    operands: list[list[Dim]]
    join: str
    aggregate: str


@dataclass(frozen=True)
class Shown:
    """Argument: an operand in these axes."""

    operand: int
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class Size:
    """Argument: the local extent of an axis."""

    axis: Axis


@dataclass(frozen=True)
class Each:
    """Argument: for each letter of these dims its `offset`, `local` extent, or `extent`; a list of numbers. All three,
    one after another, where it is `part`."""

    what: str
    dims: tuple[Dim, ...]


@dataclass(frozen=True)
class Result:
    """A result of a call: the names that each axis is the product of, and extents of those that operands lack."""

    dtype: torch.dtype
    axes: Sequence[Names]
    extents: Mapping[str, int]


@dataclass(eq=False)
class CallDraft:
    """A call whose letters are dims; `results` are dtype and axes of each. `uncut` reads some of its inputs, and
    has their results from number `uncut_first` on."""

    inputs: list[Source]
    operands: list[list[Dim]]
    function: str
    results: list[tuple[torch.dtype, tuple[Axis, ...]]]
    arguments: list[object]
    keywords: dict[str, object]
    whole: list[Dim]
    fold: list[tuple[list[Dim], str]]
    flops: list[tuple[int, list[Dim]]]
    same: list[Dim] = field(default_factory=list)
    uncut: CallDraft | None = None
    uncut_first: int = 0


@dataclass(eq=False)
class Source:
    """What makes a tensor of the axes `dims`: an input, or result `output` of a vertex."""

    draft: InputDraft | EinsumDraft | CallDraft
    dims: tuple[Dim, ...]
    dtype: torch.dtype
    output: int = 0


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the captured program: its axes are products of the source's dims, each in one place, and of others,
    along which the elements repeat.

    constant   the tensor itself where it does not depend on inputs and is small
    """

    source: Source
    axes: tuple[Axis, ...]
    constant: torch.Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of its axes."""
        return tuple(extent_of(axis) for axis in self.axes)

    @property
    def dtype(self) -> torch.dtype:
        """Its elements' dtype."""
        return self.source.dtype

    def repeated(self) -> list[Dim]:
        """The dims along which the elements repeat."""
        own = set(leaves(self.source.dims))
        return [dim for axis in self.axes for dim in leaves(axis) if dim not in own]


@dataclass
class Labels:
    """The letters of one vertex: dims by the names of axes."""

    recorder: Recorder
    dims: dict[str, Axis] = field(default_factory=dict)

    def bind(self, value: Value, names: Names) -> Value:
        """Identifies the axes of an operand with those of the same name; the operand, reshaped where that must be."""
        for position, name in enumerate(names):
            axis = value.axes[position]
            if extent_of(axis) == 1:
                continue
            if name not in self.dims:
                self.dims[name] = tuple(Dim(dim.atom) for dim in leaves(axis))
            elif not align(self.dims[name], axis):
                value = self.recorder.regrouped(value, [position], [extent_of(axis)])
                align(self.dims[name], value.axes[position])
        return value

    def of_source(self, value: Value, names: Names) -> list[Dim]:
        """The letters of the axes of a bound operand's source."""
        pairs: dict[Dim, Dim] = {}
        for name, axis in zip(names, value.axes, strict=True):
            if extent_of(axis) > 1:
                pairs |= zip(leaves(axis), leaves(self.dims[name]), strict=True)
        return [pairs[dim] for dim in leaves(value.source.dims)]

    def new(self, name: str, extent: int) -> None:
        """A letter that no operand has."""
        self.dims[name] = fresh(extent)

    def axis(self, name: str) -> Axis:
        """The dims of a name; none where its extent is one."""
        return tuple(leaves(self.dims.get(name, ())))

    def all(self, names: Names) -> list[Dim]:
        """The dims of several names."""
        return [dim for name in names for dim in self.axis(name)]


class Recorder:
    """Collects the inputs of a program and makes its vertices."""

    def __init__(self) -> None:
        self.inputs: list[Source] = []
        self._scalars: dict[tuple[torch.dtype, str], Value] = {}
        self._seed: Value | None = None
        self.streams = 0

    # --- inputs ---------------------------------------------------------------------------------------------------

    def input(self, name: str, position: int | None, shape: Sequence[int], dtype: torch.dtype) -> Value:
        """A tensor that the run is given."""
        return self._input(InputDraft(name, position, tuple(shape)), dtype)

    def _input(self, draft: InputDraft, dtype: torch.dtype) -> Value:
        axes = tuple(fresh(extent) for extent in draft.shape)
        source = Source(draft, tuple(dim for axis in axes for dim in axis), dtype)
        self.inputs.append(source)
        return Value(source, axes)

    def constant(self, tensor: torch.Tensor) -> Value:
        """A tensor that the program carries; equal elements are carried once, and repeat."""
        tensor = tensor.detach()
        if not tensor.numel():
            return replace(self.filled(tensor.shape, torch.zeros((), dtype=tensor.dtype)), constant=tensor)
        if tensor.numel() <= _LOOKED_AT and _uniform(tensor):
            element = tensor.reshape(-1)[0].clone()
            return replace(self.filled(tensor.shape, element), constant=tensor)
        name = f"constant.{len(self.inputs)}"
        made = self._input(InputDraft(name, None, tuple(tensor.shape), tensor.contiguous()), tensor.dtype)
        return replace(made, constant=tensor if tensor.numel() <= _LOOKED_AT else None)

    def filled(self, shape: Sequence[int], element: torch.Tensor) -> Value:
        """The element of a tensor without axes, repeated along all axes of `shape`."""
        key = (element.dtype, repr(element.tolist()))
        if key not in self._scalars:
            draft = InputDraft(f"constant.{len(self.inputs)}", None, (), element)
            self._scalars[key] = replace(self._input(draft, element.dtype), constant=element)
        scalar = self._scalars[key]
        return Value(scalar.source, tuple(fresh(extent) for extent in shape), None if shape else element)

    def seed(self) -> Value:
        """The integer that random operators read."""
        if self._seed is None:
            self._seed = self.input("joinsum.seed", None, (), torch.int64)
        return self._seed

    @property
    def seed_name(self) -> str | None:
        """Name of the seed's input, where random operators occur."""
        return None if self._seed is None else "joinsum.seed"

    # --- vertices -------------------------------------------------------------------------------------------------

    def einsum(
        self,
        operands: Sequence[tuple[Value, Names]],
        result: Names,
        join: str,
        aggregate: str = "add",
        dtype: torch.dtype | None = None,
    ) -> Value:
        """⊕ over the names that the result lacks of ⊗ of the operands; axes of one element broadcast.

        Labels along which all operands repeat stay out of the vertex: the result repeats along them, or is multiplied.
        """
        labels = Labels(self)
        bound = [(labels.bind(value, names), names) for value, names in operands]
        letters = [labels.of_source(value, names) for value, names in bound]
        met = {dim for operand in letters for dim in operand}
        axes = tuple(labels.axis(name) for name in result)
        draft = EinsumDraft([value.source for value, _ in bound], letters, join, aggregate)
        dims = tuple(dim for axis in axes for dim in axis if dim in met)
        made = Value(Source(draft, dims, dtype or bound[0][0].dtype), axes)
        kept = {dim for axis in axes for dim in axis}
        lost = [dim for name in labels.dims for dim in labels.axis(name) if dim not in met and dim not in kept]
        return self.scaled(made, extent_of(lost)) if lost and aggregate == "add" else made

    def scaled(self, value: Value, factor: float) -> Value:
        """`value` times a number."""
        return self.mapped(value, f"scale[{factor!r}]")

    def mapped(self, value: Value, kernel: str, dtype: torch.dtype | None = None) -> Value:
        """`value` through a kernel of one operand."""
        names = axis_names(value)
        return self.einsum([(value, names)], names, kernel, dtype=dtype)

    def stored(self, value: Value) -> Value:
        """The same tensor, in which no elements repeat."""
        if not value.repeated():
            return value
        axes = tuple(tuple(Dim(dim.atom) for dim in leaves(axis)) for axis in value.axes)
        pairs: dict[Dim, Dim] = {}
        for old, new in zip(value.axes, axes, strict=True):
            pairs |= zip(leaves(old), new, strict=True)
        letters = [pairs[dim] for dim in leaves(value.source.dims)]
        dims = tuple(dim for axis in axes for dim in axis)
        own = set(letters)
        shown = Shown(0, tuple((dim,) if dim in own else () for dim in dims))
        sizes = [Size((dim,)) for dim in dims]
        result = (value.dtype, tuple((dim,) for dim in dims))
        draft = CallDraft([value.source], [letters], "aten::expand", [result], [shown, sizes], {}, [], [], [])
        return Value(Source(draft, dims, value.dtype), axes)

    def like(self, value: Value, other: Value) -> Value:
        """The same tensor, in which no elements repeat, with the factors that the axes of `other` have."""
        value = self.stored(value)
        for position, axis in enumerate(other.axes):
            if not align(value.axes[position], axis):
                value = self.regrouped(value, [position], [extent_of(axis)])
                align(value.axes[position], axis)
        return value

    def call(
        self,
        function: str,
        operands: Sequence[tuple[Value, Names]],
        results: Sequence[Result],
        arguments: Callable[[Labels], Arguments],
        whole: Names = (),
        fold: Mapping[str, str] | None = None,
        flops: Sequence[tuple[int, Names]] = (),
        same: Names = (),
    ) -> list[Value]:
        """The results of an operator on blocks.

        arguments   from the letters to the operator's arguments: `Shown`, `Size`, `Each` and plain values
        """
        labels = Labels(self)
        bound = [(labels.bind(self.stored(value), names), names) for value, names in operands]
        for result in results:
            for name in (name for names in result.axes for name in names if name not in labels.dims):
                labels.new(name, result.extents.get(name, 1))
        letters = [labels.of_source(value, names) for value, names in bound]
        given, keywords = arguments(labels)
        draft = CallDraft(
            [value.source for value, _ in bound],
            letters,
            function,
            [(result.dtype, tuple(tuple(labels.all(names)) for names in result.axes)) for result in results],
            given,
            keywords,
            labels.all(whole),
            [(labels.all([name]), kernel) for name, kernel in (fold or {}).items()],
            [(count, labels.all(names)) for count, names in flops],
            labels.all(same),
        )
        return _results(draft)

    def pointwise(
        self,
        function: str,
        operands: Sequence[Value],
        dtypes: Sequence[torch.dtype],
        arguments: Callable[[Sequence[object]], Arguments],
        flops: int,
    ) -> list[Value]:
        """The results of an operator that does the same to each element; shapes broadcast.

        Operands lack the letters along which they repeat; what all lack stays out of the call.
        """
        rank = max((len(value.axes) for value in operands), default=0)
        order = [f"a{position}" for position in range(rank)]
        labels = Labels(self)
        named = [order[rank - len(value.axes) :] for value in operands]
        bound = [labels.bind(value, names) for value, names in zip(operands, named, strict=True)]
        letters = [labels.of_source(value, names) for value, names in zip(bound, named, strict=True)]
        met = {dim for operand in letters for dim in operand}
        dims = [dim for dim in labels.all(order) if dim in met]
        shown: list[object] = []
        for number, (value, own) in enumerate(zip(bound, letters, strict=True)):
            seen: list[Axis] = [(dim,) if dim in own else () for dim in dims] or [()]
            shown.append(Shown(number, tuple(seen) if value.axes else ()))
        result: tuple[Axis, ...] = tuple((dim,) for dim in dims) or (((),) if rank else ())
        given, keywords = arguments(shown)
        draft = CallDraft(
            [value.source for value in bound],
            letters,
            function,
            [(dtype, result) for dtype in dtypes],
            given,
            keywords,
            [],
            [],
            [(flops, dims)],
        )
        axes = tuple(labels.axis(name) for name in order)
        return [Value(made.source, axes) for made in _results(draft)]

    # --- views ----------------------------------------------------------------------------------------------------

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        """The same elements, row-major, in other axes: labels split and merge where they can."""
        axes: list[Axis] = []
        for start, stop, extents in _runs(value.shape, shape):
            dims = [dim for axis in value.axes[start:stop] for dim in axis]
            made = split(dims, extents)
            if made is None:
                value = self.regrouped(value, range(start, stop), extents)
                return self.reshaped(value, shape)
            axes += made
        return Value(value.source, tuple(axes), _reshaped(value.constant, shape))

    def regrouped(self, value: Value, positions: Sequence[int], extents: Sequence[int]) -> Value:
        """Axes next to each other, as new ones of these extents: a copy in which both are whole."""
        first, last = positions[0], positions[-1] + 1
        before = axis_names(value)
        new = [f"n{position}" for position in range(len(extents))]
        groups = [*([name] for name in before[:first]), new, *([name] for name in before[last:])]

        def arguments(labels: Labels) -> Arguments:
            axes = [labels.axis(name) for name in before]
            merged = tuple(dim for axis in axes[first:last] for dim in axis)
            return [Shown(0, (*axes[:first], merged, *axes[last:]))], {}

        result = Result(value.dtype, groups, dict(zip(new, extents, strict=True)))
        (made,) = self.call("aten::clone", [(value, before)], [result], arguments, [*before[first:last], *new])
        dims = list(made.axes[first])
        axes: list[Axis] = [(dims.pop(0),) if extent > 1 else () for extent in extents]
        return Value(made.source, (*made.axes[:first], *axes, *made.axes[first + 1 :]))


def axis_names(value: Value) -> list[str]:
    """A name of its own for each axis.

    >>> axis_names(Recorder().input("x", 0, (2, 3), torch.float32))
    ['a0', 'a1']
    """
    return [f"a{position}" for position in range(len(value.axes))]


def _results(draft: CallDraft) -> list[Value]:
    made = []
    for output, (dtype, axes) in enumerate(draft.results):
        dims = tuple(dim for axis in axes for dim in axis)
        made.append(Value(Source(draft, dims, dtype, output), axes))
    return made


def _uniform(tensor: torch.Tensor) -> bool:
    """Whether all elements are one number; 0 and -0 are two."""
    if tensor.is_complex():
        return _uniform(tensor.real) and _uniform(tensor.imag)
    first = tensor.reshape(-1)[0]
    same = tensor == first
    return bool((same & (tensor.signbit() == first.signbit()) if tensor.is_floating_point() else same).all())


def _reshaped(constant: torch.Tensor | None, shape: Sequence[int]) -> torch.Tensor | None:
    return None if constant is None else constant.reshape(tuple(shape))


def _runs(given: Sequence[int], wanted: Sequence[int]) -> list[tuple[int, int, list[int]]]:
    """Runs of axes and the extents that they become, as short as they can be.

    >>> _runs([4, 6, 5], [2, 2, 6, 1, 5])
    [(0, 1, [2, 2]), (1, 2, [6, 1]), (2, 3, [5])]
    """
    runs: list[tuple[int, int, list[int]]] = []
    i = j = 0
    while i < len(given) or j < len(wanted):
        start, taken = i, j
        left = right = 1
        if i < len(given):
            left, i = given[i], i + 1
        else:
            right, j = wanted[j], j + 1
        while left != right:
            if left < right:
                left, i = left * given[i], i + 1
            else:
                right, j = right * wanted[j], j + 1
        while j < len(wanted) and wanted[j] == 1:
            j += 1
        runs.append((start, i, list(wanted[taken:j])))
    return runs
