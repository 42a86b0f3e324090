"""From drafts to the recorded program: each vertex gets letters of its own for its labels, which no longer split."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from joinsum import _C
from joinsum.base.dtypes import dtype_name
from joinsum.base.errors import CaptureError, PlanError
from joinsum.capture.recording.axes import Dim, leaves
from joinsum.capture.recording.recorded import Factor, Input, Output, Recorded
from joinsum.capture.recording.recorder import SEED, Recorder
from joinsum.capture.recording.symbolic_numbers import SymbolicNumber, plain
from joinsum.capture.recording.values import (
    BlockDraft,
    CallDraft,
    EinsumDraft,
    ExtentDraft,
    InputDraft,
    Producer,
    Scale,
    ShardDraft,
    Value,
)
from joinsum.cluster.context import context

__all__ = ["Draft", "OutputDraft", "resolve"]

Draft = InputDraft | EinsumDraft | CallDraft


def _with_empty_parts(dims: Iterable[Dim]) -> list[Dim]:
    """Those with fewer elements than there are sites, some of which would have none to compute results from that all
    sites have."""
    return [leaf for leaf in leaves(dims) if plain(leaf.extent) < context().sites]


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


def resolve(
    recorder: Recorder,
    outputs: Sequence[OutputDraft],
    modules: Mapping[Draft, str],
    number: Callable[[Any], Any] = plain,
) -> Recorded:
    """The program that computes the outputs, without vertices and constants that no output needs.

    modules   the user's module of each vertex, where it is known
    number    what stands in the program for a symbolic number
    """
    return _Resolver(number).run(recorder, outputs, modules)


class _Resolver:
    def __init__(self, number: Callable[[Any], Any]) -> None:
        self._number = number
        self._nodes: dict[Producer, _C.EinsumNode] = {}

    def run(self, recorder: Recorder, outputs: Sequence[OutputDraft], modules: Mapping[Draft, str]) -> Recorded:
        wanted = [output.value.producer for output in outputs]
        _multiply_sparse_sums(recorder, _in_order(wanted))
        producers = _in_order(wanted)
        drafts = [(producer, producer.draft) for producer in recorder.inputs if isinstance(producer.draft, InputDraft)]
        drafts = [
            (producer, draft) for producer, draft in drafts if producer in producers or draft.position is not None
        ]
        inputs = {producer: self._input(producer, draft) for producer, draft in drafts}
        vertices = [producer for producer in producers if producer not in inputs]
        for producer in vertices:
            self._nodes[producer] = self._vertex(producer)
        return Recorded(
            inputs=tuple(inputs.values()),
            outputs=tuple(self._output(output) for output in outputs),
            constants={draft.name: draft.value for _, draft in drafts if draft.value is not None},
            seed=SEED if any(draft.name == SEED for _, draft in drafts) else None,
            input_nodes=tuple(self._nodes[producer] for producer in inputs),
            vertices=tuple(self._nodes[producer] for producer in vertices),
            output_nodes=tuple(self._nodes[output.value.producer] for output in outputs),
            modules=tuple(modules.get(producer.draft, "") for producer in vertices),
        )

    def _input(self, producer: Producer, draft: InputDraft) -> Input:
        dims = iter(producer.dims)
        axes = [leaves([next(dims)]) if extent != 1 else [] for extent in draft.shape]
        extents = tuple(tuple(self._number(dim.extent) for dim in axis) for axis in axes)
        dtype = dtype_name(f"capture: input {draft.name}", producer.dtype)
        flat = [extent for axis in extents for extent in axis]
        shape = tuple(map(self._number, draft.shape))
        # A sparse tensor of one element is stored densely, as it has no axis.
        self._nodes[producer] = _C.einsum_input(draft.name, dtype, flat, draft.entries if flat else None)
        return Input(draft.name, draft.position, shape, producer.dtype, extents)

    def _output(self, draft: OutputDraft) -> Output:
        value = draft.value
        places = {dim: place for place, dim in enumerate(leaves(value.producer.dims))}
        axes = tuple(
            tuple(Factor(places.get(dim), self._number(dim.extent)) for dim in leaves(axis)) for axis in value.axes
        )
        return Output(draft.name, axes, value.dtype, draft.tied, draft.position)

    def _vertex(self, producer: Producer) -> _C.EinsumNode:
        draft = producer.draft
        assert not isinstance(draft, InputDraft)
        self._check_sparse(draft)
        inputs = [self._nodes[each] for each in draft.inputs]
        if isinstance(draft, CallDraft):
            return _C.einsum_call(inputs, self._call(producer.output, draft))
        letters = _Letters()
        operands = [letters.of(dims) for dims in draft.operands]
        result = letters.of(producer.dims)
        join = draft.join
        return _C.einsum_vertex(
            inputs,
            [list(each) for each in operands],
            list(result),
            _C.Kernel(f"scale[{self._number(join.factor)!r}]" if isinstance(join, Scale) else join),
            _C.Kernel(draft.aggregate),
            self._extents(letters, operands),
        )

    @staticmethod
    def _check_sparse(draft: EinsumDraft | CallDraft) -> None:
        """Raises where a sparse input meets another operator than sums of products with dense ones."""
        sparse = _sparse_inputs(draft)
        if not sparse:
            return
        product = isinstance(draft, EinsumDraft) and (draft.join, draft.aggregate) == ("mul", "add")
        if not product or len(sparse) > 1 or len(draft.inputs) == 1:
            found = draft.function if isinstance(draft, CallDraft) else f"einsum of {draft.join}, {draft.aggregate}"
            found = "SparseLinear" if found.startswith("joinsum::sparse_mm") else found
            raise CaptureError(
                "capture: a sparse tensor is taken in products with dense ones (torch.sparse.mm, @, addmm) and in sums "
                f"alone; give this operator its to_dense(): input={sparse[0].name}, operator={found}"
            )

    def _call(self, output: int, draft: CallDraft) -> _C.Call:
        """The call whose result number `output` is wanted."""
        letters = _Letters()
        operands = [letters.of(dims) for dims in draft.operands]
        results = [(dtype_name("capture", dtype), [letters.of(axis) for axis in axes]) for dtype, axes in draft.results]
        keywords = [self._argument(value, letters).named(name) for name, value in draft.keywords.items()]
        whole = _with_empty_parts(draft.same)
        undecomposed = None
        if draft.undecomposed is not None:
            places = [draft.inputs.index(producer) for producer in draft.undecomposed.inputs]
            undecomposed = places, self._call(output + draft.undecomposed_first, draft.undecomposed)
        return _C.Call(
            output=output,
            function=draft.function,
            operands=operands,
            results=results,
            arguments=[*(self._argument(value, letters) for value in draft.arguments), *keywords],
            undivided=letters.of([*draft.undivided, *whole]),
            same=letters.of(dim for dim in leaves(draft.same) if dim not in whole),
            reduce={letter: kernel for dims, kernel in draft.reduce for letter in letters.of(dims)},
            extents=self._extents(letters, operands),
            stored=[letters.of(draft.dims_of(number)) for number in range(len(results))],
            flops=[(self._number(count), letters.of(dims)) for count, dims in draft.flops],
            undecomposed=undecomposed,
        )

    def _extents(self, letters: _Letters, operands: Sequence[str]) -> dict[str, int]:
        """The extents of the letters that no operand has."""
        own = set("".join(operands))
        return {letter: self._number(dim.extent) for dim, letter in letters.known.items() if letter not in own}

    def _argument(self, value: object, letters: _Letters) -> _C.CallArgument:
        if isinstance(value, BlockDraft):
            return _C.CallArgument.operand(value.operand, [letters.of(axis) for axis in value.axes])
        if isinstance(value, ExtentDraft):
            names = letters.of(value.axis)
            return _C.CallArgument.extent(names) if names else _C.CallArgument(1)
        if isinstance(value, ShardDraft):
            return _C.CallArgument(self._shard(value, letters))
        if isinstance(value, torch.dtype):
            return _C.CallArgument.dtype(dtype_name("capture", value))
        if isinstance(value, (list, tuple)):
            return _C.CallArgument([self._argument(each, letters) for each in value])
        if isinstance(value, SymbolicNumber):
            value = self._number(value)
        assert value is None or isinstance(value, (bool, int, float, str)), value
        return _C.CallArgument(value)

    def _shard(self, value: ShardDraft, letters: _Letters) -> list[_C.CallArgument]:
        dims = leaves(value.dims)
        names = letters.of(dims)
        lists = {
            "offset": [_C.CallArgument.offset(letter) for letter in names],
            "local": [_C.CallArgument.extent(letter) for letter in names],
            "extent": [_C.CallArgument(self._number(dim.extent)) for dim in dims],
        }
        return lists[value.what] if value.what in lists else [each for part in lists.values() for each in part]


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


def _multiply_sparse_sums(recorder: Recorder, producers: Iterable[Producer]) -> None:
    """Sums of a sparse input become sums of its products with one, in which sparse tensors are taken."""
    for producer in producers:
        draft = producer.draft
        if isinstance(draft, EinsumDraft) and (draft.join, draft.aggregate) == ("id", "add") and _sparse_inputs(draft):
            one = recorder.filled((), torch.ones((), dtype=producer.dtype))
            draft.inputs.append(one.producer)
            draft.operands.append([])
            draft.join = "mul"


def _sparse_inputs(draft: EinsumDraft | CallDraft) -> list[InputDraft]:
    drafts = (each.draft for each in draft.inputs)
    return [each for each in drafts if isinstance(each, InputDraft) and each.entries is not None]


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
