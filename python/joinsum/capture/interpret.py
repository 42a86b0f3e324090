"""The reference interpreter of captured programs: torch runs them, vertex by vertex.

It also checks the property that distribution relies on: run on the shards of its operands along a letter that may be
divided, an operator gives the shards of its result, or, where the letter is reduced, results that reduce to the result.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import torch

from joinsum import _C
from joinsum.base.errors import InternalError, PlanError
from joinsum.capture.recording.call import Argument, Block, Call, CallResult, LocalExtent, Offset
from joinsum.capture.recording.recorded import EinsumVertex, Recorded

__all__ = ["check_shards", "check_undecomposed", "interpret", "run_call", "run_einsum"]

Shard = Mapping[str, tuple[int, int]]  # begin and end along each letter that is divided


def interpret(
    recorded: Recorded, tensors: Sequence[torch.Tensor], seed: int = 0, check: bool = False
) -> list[torch.Tensor]:
    """The outputs of a program.

    tensors   the values of the placeholders that are tensors, in their order
    check     whether each operator also runs on shards along each letter that may be divided
    """
    remaining = iter(tensors)
    values: list[torch.Tensor] = []
    checked: set[str] = set()
    for each in recorded.inputs:
        if each.name == recorded.seed:
            value = torch.tensor(seed)
        else:
            value = recorded.constants[each.name] if each.position is None else next(remaining)
        if tuple(value.shape) != each.shape or value.dtype != each.dtype:
            raise PlanError(f"capture: an input differs from the recorded one: input={each.name}, {list(value.shape)}")
        values.append(value.detach().reshape(each.extents))
    for vertex in recorded.vertices:
        operands = [values[number] for number in vertex.inputs]
        if isinstance(vertex, EinsumVertex):
            values.append(run_einsum(vertex, operands))
            continue
        values.append(run_call(vertex.call, operands, {})[vertex.call.output])
        # Equal layers have equal calls; one of them is checked.
        if check and vertex.call.text not in checked:
            checked.add(vertex.call.text)
            check_shards(vertex.call, operands, values[-1])
            check_undecomposed(vertex.call, operands, values[-1])
    return [output.of(values[output.node]) for output in recorded.outputs]


# --- einsums ----------------------------------------------------------------------------------------------------------


def run_einsum(vertex: EinsumVertex, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """The result of an einsum vertex, in its letters.

    >>> product = EinsumVertex((0, 1), ("ab", "b"), "a", "mul", "add")
    >>> run_einsum(product, [torch.ones(2, 3), torch.ones(3)])
    tensor([3., 3.])
    """
    known = "".join(dict.fromkeys("".join(vertex.operands)))
    left = [letter for letter in vertex.result if letter in known]
    if vertex.join == "mul" and vertex.aggregate == "add" and len(operands) > 1:
        reduced = torch.einsum(f"{','.join(vertex.operands)}->{''.join(left)}", *operands)
    else:
        reduced = _joined(vertex, operands, known)
        lost = [position for position, letter in enumerate(known) if letter not in vertex.result]
        if lost:
            reduced = _C.Kernel(vertex.aggregate).reduce(reduced, lost)
        reduced = reduced.permute([[each for each in known if each in left].index(letter) for letter in left])
    for position, letter in enumerate(vertex.result):
        if letter not in known:
            reduced = reduced.unsqueeze(position)
    return reduced.expand([vertex.extents.get(letter, -1) for letter in vertex.result])


def _joined(vertex: EinsumVertex, operands: Sequence[torch.Tensor], letters: str) -> torch.Tensor:
    """⊗ of the operands, with an axis for each letter."""
    kernel = _C.Kernel(vertex.join)
    aligned = [_aligned(value, own, letters) for value, own in zip(operands, vertex.operands, strict=True)]
    if len(aligned) == 1:
        return kernel.run(aligned)
    pair = _C.Kernel(kernel.name)
    joined = functools.reduce(lambda left, right: pair.run([left, right]), aligned)
    return functools.reduce(lambda value, each: each.run([value]), kernel.epilogue, joined)


def _aligned(value: torch.Tensor, own: str, letters: str) -> torch.Tensor:
    value = value.permute([own.index(letter) for letter in letters if letter in own])
    for position, letter in enumerate(letters):
        if letter not in own:
            value = value.unsqueeze(position)
    return value


# --- calls ------------------------------------------------------------------------------------------------------------


def run_call(call: Call, operands: Sequence[torch.Tensor], shard: Shard) -> list[torch.Tensor]:
    """The results of a call, in their letters, on a shard of `operands`.

    >>> from joinsum.capture.recording.call import Block, Call, CallResult
    >>> rows = CallResult("ab", torch.float32, ("a", "b"))
    >>> call = Call(0, "aten::_softmax", ("ab",), (rows,), (Block(0, ("a", "b")), 1, False), undivided="b")
    >>> run_call(call, [torch.zeros(4, 2)], {"a": (0, 1)})
    [tensor([[0.5000, 0.5000]])]
    """
    local = _extents(call, operands)
    local |= {letter: end - begin for letter, (begin, end) in shard.items()}
    blocks = [_block(value, letters, shard) for value, letters in zip(operands, call.operands, strict=True)]

    def read(value: Argument) -> object:
        if isinstance(value, Block):
            return _grouped(blocks[value.operand], call.operands[value.operand], value.groups)
        if isinstance(value, LocalExtent):
            return math.prod(local[letter] for letter in value.letters)
        if isinstance(value, Offset):
            return shard.get(value.letter, (0, 0))[0]
        if isinstance(value, (list, tuple)):
            return [read(each) for each in value]
        return value

    arguments = [read(value) for value in call.arguments]
    keywords = {name: read(value) for name, value in call.keywords}
    found = _function(call.function)(*arguments, **keywords)
    values: list[torch.Tensor] = list(found) if isinstance(found, (tuple, list)) else [found]
    return [_in_letters(call, value, result, local) for value, result in zip(values, call.results, strict=True)]


def _extents(call: Call, operands: Sequence[torch.Tensor]) -> dict[str, int]:
    """The global extents of all letters of a call."""
    extents = dict(call.extents)
    for letters, value in zip(call.operands, operands, strict=True):
        extents |= zip(letters, value.shape, strict=True)
    return extents


def _function(name: str) -> Callable[..., Any]:
    """The operator of torch's dispatcher: `aten::sum.dim_IntList`."""
    namespace, _, rest = name.partition("::")
    operator, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), operator)
    return cast(Callable[..., Any], getattr(packet, overload or "default"))


def _block(value: torch.Tensor, letters: str, shard: Shard) -> torch.Tensor:
    for axis, letter in enumerate(letters):
        if letter in shard:
            begin, end = shard[letter]
            value = value.narrow(axis, begin, end - begin)
    return value


def _grouped(block: torch.Tensor, letters: str, groups: Sequence[str]) -> torch.Tensor:
    """The block reshaped for the operator; each letter is in one group."""
    extents = dict(zip(letters, block.shape, strict=True))
    shape = [math.prod(extents[letter] for letter in group) for group in groups]
    return block.permute([letters.index(letter) for letter in "".join(groups)]).reshape(shape)


def _in_letters(call: Call, value: torch.Tensor, result: CallResult, local: Mapping[str, int]) -> torch.Tensor:
    shape = [math.prod(local[letter] for letter in group) for group in result.groups]
    if list(value.shape) != shape or value.dtype != result.dtype:
        raise InternalError(
            f"capture: an operator's result has another type than its rule gives: operator={call.function}, "
            f"expected={shape} {result.dtype}, found={list(value.shape)} {value.dtype}, call={call.text}"
        )
    order = "".join(result.groups)
    value = value.reshape([local[letter] for letter in order])
    return value.permute([order.index(letter) for letter in result.letters])


# --- the check --------------------------------------------------------------------------------------------------------


def check_shards(call: Call, operands: Sequence[torch.Tensor], expected: torch.Tensor) -> None:
    """Runs the call on two and three uneven shards along each letter that may be divided, and along the first three of
    these letters together. Raises AssertionError where the assembled result differs from `expected`."""
    extents = _extents(call, operands)
    divisible = [letter for letter in call.divisible if extents[letter] > 1]
    trials = [[(letter, count)] for letter in divisible for count in (2, 3) if extents[letter] >= count]
    trials += [[(letter, 2) for letter in divisible[:3]]] if len(divisible) > 1 else []
    for trial in trials:
        bounds = [(letter, _bounds(extents[letter], count)) for letter, count in trial]
        _assert_close(_assembled(call, operands, bounds, {}), expected, f"{call.text}\non shards along {trial}")


def check_undecomposed(call: Call, operands: Sequence[torch.Tensor], expected: torch.Tensor) -> None:
    """Raises AssertionError where the undecomposed call has another result."""
    if call.undecomposed is not None:
        places, undecomposed = call.undecomposed
        found = run_call(undecomposed, [operands[place] for place in places], {})[undecomposed.output]
        _assert_close(found, expected, f"{call.text}\nundecomposed")


def _assert_close(found: torch.Tensor, expected: torch.Tensor, where: str) -> None:
    tolerance = _tolerance(expected.dtype)
    torch.testing.assert_close(
        found, expected, equal_nan=True, rtol=tolerance, atol=tolerance, msg=lambda text: f"{where}: {text}"
    )


def _bounds(extent: int, count: int) -> list[int]:
    """Begins of uneven shards of an axis, and its end.

    >>> _bounds(7, 2), _bounds(7, 3)
    ([0, 2, 7], [0, 2, 3, 7])
    """
    first = max(1, extent // 3)
    return [0, first, extent] if count == 2 else [0, first, first + 1, extent]


def _assembled(
    call: Call, operands: Sequence[torch.Tensor], bounds: Sequence[tuple[str, list[int]]], shard: Shard
) -> torch.Tensor:
    if not bounds:
        return run_call(call, operands, shard)[call.output]
    (letter, marks), rest = bounds[0], bounds[1:]
    results = [_assembled(call, operands, rest, {**shard, letter: span}) for span in pairwise(marks)]
    letters = call.results[call.output].letters
    if letter in letters:
        return torch.cat(results, letters.index(letter))
    if letter in call.same:
        for result in results[1:]:
            _assert_close(result, results[0], f"{call.text}\non shards along {letter}")
        return results[0]
    if letter not in call.reduce:
        raise AssertionError(
            f"a result lacks a letter that may be divided and is not reduced: letter={letter}, call={call.text}"
        )
    return _C.Kernel(call.reduce[letter]).reduce(torch.stack(results), [0])


def _tolerance(dtype: torch.dtype) -> float:
    scale = {torch.float64: 1e-9, torch.float32: 2e-5, torch.complex64: 2e-5, torch.complex128: 1e-9}.get(dtype)
    if scale is None:
        scale = 2e-2 if dtype.is_floating_point else 0.0
    return scale
