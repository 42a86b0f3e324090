"""From drafts to the recorded program: each vertex gets letters of its own for its labels, which no longer split."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from joinsum import _C
from joinsum.base.dtypes import dtype_name
from joinsum.base.errors import PlanError
from joinsum.capture.recording.axes import Dim, leaves
from joinsum.capture.recording.recorded import Factor, Input, Output, Recorded
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
    drafts = [(producer, draft) for producer, draft in drafts if producer in producers or draft.position is not None]
    inputs = {producer: _input(producer, draft) for producer, draft in drafts}
    nodes = {producer: each.node for producer, each in inputs.items()}
    vertices = [producer for producer in producers if producer not in inputs]
    for producer in vertices:
        nodes[producer] = _vertex(producer, nodes)
    return Recorded(
        tuple(inputs.values()),
        tuple(nodes[producer] for producer in vertices),
        tuple(_output(output, nodes) for output in outputs),
        {draft.name: draft.value for _, draft in drafts if draft.value is not None},
        SEED if any(draft.name == SEED for _, draft in drafts) else None,
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
    dtype = dtype_name(f"capture: input {draft.name}", producer.dtype)
    node = _C.einsum_input(draft.name, dtype, [extent for axis in extents for extent in axis])
    return Input(draft.name, draft.position, draft.shape, producer.dtype, extents, node)


def _output(draft: OutputDraft, nodes: Mapping[Producer, _C.EinsumNode]) -> Output:
    value = draft.value
    places = {dim: place for place, dim in enumerate(leaves(value.producer.dims))}
    axes = tuple(tuple(Factor(places.get(dim), dim.extent) for dim in leaves(axis)) for axis in value.axes)
    return Output(draft.name, nodes[value.producer], axes, value.dtype, draft.tied, draft.position)


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


def _vertex(producer: Producer, nodes: Mapping[Producer, _C.EinsumNode]) -> _C.EinsumNode:
    draft = producer.draft
    assert not isinstance(draft, InputDraft)
    inputs = [nodes[each] for each in draft.inputs]
    if isinstance(draft, CallDraft):
        return _C.einsum_call(inputs, _call(producer.output, draft))
    letters = _Letters()
    operands = [letters.of(dims) for dims in draft.operands]
    result = letters.of(producer.dims)
    return _C.einsum_vertex(
        inputs,
        [list(each) for each in operands],
        list(result),
        _C.Kernel(draft.join),
        _C.Kernel(draft.aggregate),
        letters.extents(operands),
    )


def _call(output: int, draft: CallDraft) -> _C.Call:
    """The call whose result number `output` is wanted."""
    letters = _Letters()
    operands = [letters.of(dims) for dims in draft.operands]
    results = [(dtype_name("capture", dtype), [letters.of(axis) for axis in axes]) for dtype, axes in draft.results]
    keywords = [_argument(value, letters).named(name) for name, value in draft.keywords.items()]
    undecomposed = None
    if draft.undecomposed is not None:
        places = [draft.inputs.index(producer) for producer in draft.undecomposed.inputs]
        undecomposed = places, _call(output + draft.undecomposed_first, draft.undecomposed)
    return _C.Call(
        output=output,
        function=draft.function,
        operands=operands,
        results=results,
        arguments=[*(_argument(value, letters) for value in draft.arguments), *keywords],
        undivided=letters.of(draft.undivided),
        same=letters.of(draft.same),
        reduce={letter: kernel for dims, kernel in draft.reduce for letter in letters.of(dims)},
        extents=letters.extents(operands),
        flops=[(count, letters.of(dims)) for count, dims in draft.flops],
        undecomposed=undecomposed,
    )


def _argument(value: object, letters: _Letters) -> _C.CallArgument:
    if isinstance(value, BlockDraft):
        return _C.CallArgument.operand(value.operand, [letters.of(axis) for axis in value.axes])
    if isinstance(value, ExtentDraft):
        names = letters.of(value.axis)
        return _C.CallArgument.extent(names) if names else _C.CallArgument(1)
    if isinstance(value, ShardDraft):
        return _C.CallArgument(_shard(value, letters))
    if isinstance(value, torch.dtype):
        return _C.CallArgument.dtype(dtype_name("capture", value))
    if isinstance(value, (list, tuple)):
        return _C.CallArgument([_argument(each, letters) for each in value])
    assert value is None or isinstance(value, (bool, int, float, str)), value
    return _C.CallArgument(value)


def _shard(value: ShardDraft, letters: _Letters) -> list[_C.CallArgument]:
    dims = leaves(value.dims)
    names = letters.of(dims)
    lists = {
        "offset": [_C.CallArgument.offset(letter) for letter in names],
        "local": [_C.CallArgument.extent(letter) for letter in names],
        "extent": [_C.CallArgument(dim.extent) for dim in dims],
    }
    return lists[value.what] if value.what in lists else [each for part in lists.values() for each in part]
