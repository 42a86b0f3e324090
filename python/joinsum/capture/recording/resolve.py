"""From drafts to the recorded program: each vertex gets letters for its labels, which no longer split."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from joinsum.base.errors import PlanError
from joinsum.capture.recording.axes import Dim, leaves
from joinsum.capture.recording.call import Argument, Block, Call, CallResult, LocalExtent, Offset
from joinsum.capture.recording.recorded import CallVertex, EinsumVertex, Factor, Input, Output, Recorded, Vertex
from joinsum.capture.recording.recorder import SEED, Recorder
from joinsum.capture.recording.values import (
    BlockDraft,
    CallDraft,
    EinsumDraft,
    ExtentDraft,
    InputDraft,
    Producer,
    ShardDraft,
    Value,
)

__all__ = ["Draft", "OutputDraft", "resolve"]

Draft = InputDraft | EinsumDraft | CallDraft


@dataclass(frozen=True)
class OutputDraft:
    """A result of the program.

    tied       name of the input that it overwrites
    position   in the graph's results; None of a tensor that the graph writes into an input
    """

    name: str
    value: Value
    tied: str | None = None
    position: int | None = None


def resolve(recorder: Recorder, outputs: Sequence[OutputDraft], modules: Mapping[Draft, str]) -> Recorded:
    """The program that computes the outputs, without vertices and constants that no output needs.

    modules   the user's module of each vertex, where it is known
    """
    producers = _in_order([output.value.producer for output in outputs])
    drafts = [(producer, producer.draft) for producer in recorder.inputs if isinstance(producer.draft, InputDraft)]
    inputs = [(producer, draft) for producer, draft in drafts if producer in producers or draft.position is not None]
    vertices = [producer for producer in producers if not isinstance(producer.draft, InputDraft)]
    numbers = {producer: number for number, producer in enumerate([*(producer for producer, _ in inputs), *vertices])}
    return Recorded(
        tuple(_input(producer, draft) for producer, draft in inputs),
        tuple(_vertex(producer, numbers) for producer in vertices),
        tuple(_output(output, numbers) for output in outputs),
        {draft.name: draft.value for _, draft in inputs if draft.value is not None},
        SEED if any(draft.name == SEED for _, draft in inputs) else None,
        tuple(modules.get(producer.draft, "") for producer in vertices),
    )


def _in_order(wanted: Sequence[Producer]) -> dict[Producer, None]:
    """The producers that compute the wanted ones, each after its operands; without recursion, as chains are long."""
    order: dict[Producer, None] = {}
    stack = [(producer, False) for producer in reversed(wanted)]
    while stack:
        producer, ready = stack.pop()
        if producer in order:
            continue
        if ready or isinstance(producer.draft, InputDraft):
            order[producer] = None
            continue
        stack.append((producer, True))
        stack += [(each, False) for each in reversed(producer.draft.inputs)]
    return order


def _input(producer: Producer, draft: InputDraft) -> Input:
    dims = iter(producer.dims)
    axes = [leaves([next(dims)]) if extent != 1 else [] for extent in draft.shape]
    extents = tuple(tuple(dim.extent for dim in axis) for axis in axes)
    return Input(draft.name, draft.position, draft.shape, producer.dtype, extents)


def _output(draft: OutputDraft, numbers: Mapping[Producer, int]) -> Output:
    value = draft.value
    places = {dim: place for place, dim in enumerate(leaves(value.producer.dims))}
    axes = tuple(tuple(Factor(places.get(dim), dim.extent) for dim in leaves(axis)) for axis in value.axes)
    return Output(draft.name, numbers[value.producer], axes, value.dtype, draft.tied, draft.position)


class _Letters:
    """Letters of one vertex, in the order of first use."""

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
        own = set("".join(operands))
        return {letter: dim.extent for dim, letter in self.known.items() if letter not in own}


def _vertex(producer: Producer, numbers: Mapping[Producer, int]) -> Vertex:
    draft = producer.draft
    assert not isinstance(draft, InputDraft)
    letters = _Letters()
    inputs = tuple(numbers[each] for each in draft.inputs)
    operands = tuple(letters.of(dims) for dims in draft.operands)
    if isinstance(draft, EinsumDraft):
        result = letters.of(producer.dims)
        return EinsumVertex(inputs, operands, result, draft.join, draft.aggregate, letters.extents(operands))
    return CallVertex(inputs, _call(producer.output, draft, operands, letters))


def _call(output: int, draft: CallDraft, operands: tuple[str, ...], letters: _Letters) -> Call:
    results = tuple(_result(dtype, axes, letters) for dtype, axes in draft.results)
    return Call(
        output,
        draft.function,
        operands,
        results,
        tuple(_argument(value, letters) for value in draft.arguments),
        tuple((name, _argument(value, letters)) for name, value in draft.keywords.items()),
        letters.of(draft.undivided),
        {letter: kernel for dims, kernel in draft.reduce for letter in letters.of(dims)},
        letters.extents(operands),
        tuple((count, letters.of(dims)) for count, dims in draft.flops),
        letters.of(draft.same),
        None
        if draft.undecomposed is None
        else _undecomposed(output + draft.undecomposed_first, draft, draft.undecomposed),
    )


def _undecomposed(output: int, draft: CallDraft, undecomposed: CallDraft) -> tuple[tuple[int, ...], Call]:
    """Which inputs of `draft` the call `undecomposed` reads, and that call with its result number `output`."""
    letters = _Letters()
    places = tuple(draft.inputs.index(producer) for producer in undecomposed.inputs)
    operands = tuple(letters.of(dims) for dims in undecomposed.operands)
    return places, _call(output, undecomposed, operands, letters)


def _result(dtype: torch.dtype, axes: Sequence[Sequence[Dim]], letters: _Letters) -> CallResult:
    groups = tuple(letters.of(axis) for axis in axes)
    return CallResult("".join(groups), dtype, groups)


def _argument(value: object, letters: _Letters) -> Argument:
    if isinstance(value, BlockDraft):
        return Block(value.operand, tuple(letters.of(axis) for axis in value.axes))
    if isinstance(value, ExtentDraft):
        return LocalExtent(letters.of(value.axis))
    if isinstance(value, ShardDraft):
        return _shard(value, letters)
    if isinstance(value, (list, tuple)):
        return tuple(_argument(each, letters) for each in value)
    assert value is None or isinstance(value, (int, float, bool, str, torch.dtype)), value
    return value


def _shard(value: ShardDraft, letters: _Letters) -> Argument:
    dims = leaves(value.dims)
    if value.what == "extent":
        return tuple(dim.extent for dim in dims)
    names = letters.of(dims)
    offsets = tuple(Offset(letter) for letter in names)
    local = tuple(LocalExtent(letter) for letter in names)
    if value.what == "shard":
        return (*offsets, *local, *(dim.extent for dim in dims))
    return offsets if value.what == "offset" else local
