"""From what was recorded to what is planned: each vertex gets letters for the labels that it has in the end."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence

import torch

from joinsum.capture.axes import Dim, leaves
from joinsum.capture.call import Argument, Block, Call, CallResult, LocalExtent, Offset
from joinsum.capture.recorded import CallVertex, EinsumVertex, Input, Output, Part, Recorded, Vertex
from joinsum.capture.recorder import CallDraft, Each, EinsumDraft, InputDraft, Recorder, Shown, Size, Source, Value
from joinsum.errors import PlanError

__all__ = ["resolve"]

Draft = InputDraft | EinsumDraft | CallDraft
Named = tuple[str, Value, str | None]


def resolve(recorder: Recorder, outputs: Sequence[Named]) -> Recorded:
    """The program of the outputs: name, value, and the input that it becomes. What no output needs is left out."""
    sources = _in_order([value.source for _, value, _ in outputs])
    kept = [
        source
        for source in recorder.inputs
        if source in sources or (isinstance(source.draft, InputDraft) and source.draft.position is not None)
    ]
    made = [source for source in sources if not isinstance(source.draft, InputDraft)]
    numbers = {source: number for number, source in enumerate([*kept, *made])}
    constants = {}
    for source in kept:
        if isinstance(source.draft, InputDraft) and source.draft.value is not None:
            constants[source.draft.name] = source.draft.value
    return Recorded(
        tuple(_input(source) for source in kept),
        tuple(_vertex(source, numbers) for source in made),
        tuple(_output(name, value, tied, numbers) for name, value, tied in outputs),
        constants,
        recorder.seed_name if any(_is_seed(source, recorder) for source in kept) else None,
    )


def _is_seed(source: Source, recorder: Recorder) -> bool:
    return isinstance(source.draft, InputDraft) and source.draft.name == recorder.seed_name


def _in_order(wanted: Sequence[Source]) -> dict[Source, None]:
    """The sources that `wanted` are made of, each after its operands. A walk without recursion: chains are long."""
    order: dict[Source, None] = {}
    stack = [(source, False) for source in reversed(wanted)]
    while stack:
        source, ready = stack.pop()
        if source in order:
            continue
        if ready or isinstance(source.draft, InputDraft):
            order[source] = None
            continue
        stack.append((source, True))
        stack += [(each, False) for each in reversed(source.draft.inputs)]
    return order


def _input(source: Source) -> Input:
    assert isinstance(source.draft, InputDraft)
    shape = source.draft.shape
    axes, dims = [], list(source.dims)
    for extent in shape:
        axis = leaves([dims.pop(0)]) if extent != 1 else []
        axes.append(tuple(dim.extent for dim in axis))
    return Input(source.draft.name, source.draft.position, shape, source.dtype, tuple(axes))


def _output(name: str, value: Value, tied: str | None, numbers: Mapping[Source, int]) -> Output:
    places = {dim: place for place, dim in enumerate(leaves(value.source.dims))}
    axes = tuple(tuple(Part(places.get(dim), dim.extent) for dim in leaves(axis)) for axis in value.axes)
    return Output(name, numbers[value.source], axes, value.dtype, tied)


class _Letters:
    """Letters of one vertex, in the order in which they are met."""

    def __init__(self) -> None:
        self.known: dict[Dim, str] = {}

    def of(self, dims: Iterable[Dim]) -> str:
        """The letters of the labels that `dims` are the product of."""
        return "".join(self._letter(dim) for dim in leaves(dims))

    def _letter(self, dim: Dim) -> str:
        if dim not in self.known:
            if len(self.known) == len(string.ascii_letters):
                raise PlanError(f"capture: an operator has more labels than letters: labels={len(self.known) + 1}")
            self.known[dim] = string.ascii_letters[len(self.known)]
        return self.known[dim]

    def extents(self, operands: Sequence[str]) -> dict[str, int]:
        """Of the letters that no operand has."""
        met = set("".join(operands))
        return {letter: dim.extent for dim, letter in self.known.items() if letter not in met}


def _vertex(source: Source, numbers: Mapping[Source, int]) -> Vertex:
    draft = source.draft
    assert not isinstance(draft, InputDraft)
    letters = _Letters()
    inputs = tuple(numbers[each] for each in draft.inputs)
    operands = tuple(letters.of(dims) for dims in draft.operands)
    if isinstance(draft, EinsumDraft):
        result = letters.of(source.dims)
        return EinsumVertex(inputs, operands, result, draft.join, draft.aggregate, letters.extents(operands))
    return CallVertex(inputs, _call(source.output, draft, operands, letters))


def _call(output: int, draft: CallDraft, operands: tuple[str, ...], letters: _Letters) -> Call:
    results = tuple(_result(dtype, axes, letters) for dtype, axes in draft.results)
    return Call(
        output,
        draft.function,
        operands,
        results,
        tuple(_argument(value, letters) for value in draft.arguments),
        tuple((name, _argument(value, letters)) for name, value in draft.keywords.items()),
        letters.of(draft.whole),
        {letter: kernel for dims, kernel in draft.fold for letter in letters.of(dims)},
        letters.extents(operands),
        tuple((count, letters.of(dims)) for count, dims in draft.flops),
        letters.of(draft.same),
        None if draft.uncut is None else _uncut(output + draft.uncut_first, draft, draft.uncut),
    )


def _uncut(output: int, draft: CallDraft, once: CallDraft) -> tuple[tuple[int, ...], Call]:
    """Which inputs of `draft` the call `once` reads, and that call with its result number `output`."""
    letters = _Letters()
    places = tuple(draft.inputs.index(source) for source in once.inputs)
    operands = tuple(letters.of(dims) for dims in once.operands)
    return places, _call(output, once, operands, letters)


def _result(dtype: torch.dtype, axes: Sequence[Sequence[Dim]], letters: _Letters) -> CallResult:
    groups = tuple(letters.of(axis) for axis in axes)
    return CallResult("".join(groups), dtype, groups)


def _argument(value: object, letters: _Letters) -> Argument:
    if isinstance(value, Shown):
        return Block(value.operand, tuple(letters.of(axis) for axis in value.axes))
    if isinstance(value, Size):
        return LocalExtent(letters.of(value.axis))
    if isinstance(value, Each):
        return _each(value, letters)
    if isinstance(value, (list, tuple)):
        return tuple(_argument(each, letters) for each in value)
    assert value is None or isinstance(value, (int, float, bool, str, torch.dtype)), value
    return value


def _each(value: Each, letters: _Letters) -> Argument:
    dims = leaves(value.dims)
    if value.what == "extent":
        return tuple(dim.extent for dim in dims)
    names = letters.of(dims)
    offsets = tuple(Offset(letter) for letter in names)
    local = tuple(LocalExtent(letter) for letter in names)
    if value.what == "part":
        return (*offsets, *local, *(dim.extent for dim in dims))
    return offsets if value.what == "offset" else local
