"""A captured program by torch, vertex by vertex, and the check that letters which are left free are free.

The property that distribution rests on: an operator run on each part of a letter gives the parts of its result, or,
where the letter is folded, results whose fold is the result.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import torch

from joinsum.capture.call import Argument, Block, Call, CallResult, LocalExtent, Offset
from joinsum.capture.recorded import EinsumVertex, Recorded
from joinsum.dtypes import torch_dtype
from joinsum.errors import InternalError, PlanError

__all__ = ["check_parts", "check_uncut", "evaluate", "run_call", "run_einsum"]

Cut = Mapping[str, tuple[int, int]]  # begin and end of the part of each letter that is divided

_PAIRS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
}
_FOLDS: dict[str, Callable[[torch.Tensor, list[int]], torch.Tensor]] = {
    "add": lambda value, dims: value.sum(dims, dtype=value.dtype),
    "max": lambda value, dims: value.amax(dims),
    "min": lambda value, dims: value.amin(dims),
    "logaddexp": lambda value, dims: value.logsumexp(dims),
    "mul": lambda value, dims: functools.reduce(lambda made, dim: made.prod(dim), reversed(dims), value),
}
_MAPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "id": lambda value: value,
    "negate": torch.neg,
    "square": torch.square,
    "abs": torch.abs,
    "sqrt": torch.sqrt,
}


def evaluate(recorded: Recorded, tensors: Sequence[torch.Tensor], seed: int, check: bool) -> list[torch.Tensor]:
    """The outputs of `recorded`; see `Recorded.evaluate`."""
    given = iter(tensors)
    values: list[torch.Tensor] = []
    checked: set[str] = set()
    for each in recorded.inputs:
        if each.name == recorded.seed:
            value = torch.tensor(seed)
        else:
            value = recorded.constants[each.name] if each.position is None else next(given)
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
            check_parts(vertex.call, operands, values[-1])
            check_uncut(vertex.call, operands, values[-1])
    return [output.of(values[output.node]) for output in recorded.outputs]


# --- einsums ----------------------------------------------------------------------------------------------------------


def run_einsum(vertex: EinsumVertex, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """The result of an einsum vertex, in its letters.

    >>> product = EinsumVertex((0, 1), ("ab", "b"), "a", "mul", "add")
    >>> run_einsum(product, [torch.ones(2, 3), torch.ones(3)])
    tensor([3., 3.])
    """
    met = "".join(dict.fromkeys("".join(vertex.operands)))
    left = [letter for letter in vertex.result if letter in met]
    if vertex.join == "mul" and vertex.aggregate == "add" and len(operands) > 1:
        folded = torch.einsum(f"{','.join(vertex.operands)}->{''.join(left)}", *operands)
    else:
        folded = _joined(vertex, operands, met)
        lost = [position for position, letter in enumerate(met) if letter not in vertex.result]
        if lost:
            folded = _FOLDS[vertex.aggregate](folded, lost)
        kept = [letter for letter in met if letter in vertex.result]
        folded = folded.permute([kept.index(letter) for letter in left])
    for position, letter in enumerate(vertex.result):
        if letter not in met:
            folded = folded.unsqueeze(position)
    return folded.expand([vertex.extents.get(letter, -1) for letter in vertex.result])


def _joined(vertex: EinsumVertex, operands: Sequence[torch.Tensor], letters: str) -> torch.Tensor:
    """⊗ of the operands in all letters."""
    first, *rest = (text.strip() for text in vertex.join.split("|"))
    spread = [_spread(value, own, letters) for value, own in zip(operands, vertex.operands, strict=True)]
    if len(spread) == 1:
        joined, rest = spread[0], [first, *rest]
    else:
        joined = spread[0]
        for value in spread[1:]:
            joined = _PAIRS[first](joined, value)
    for name in rest:
        joined = _map(name, joined)
    return joined


def _spread(value: torch.Tensor, own: str, letters: str) -> torch.Tensor:
    value = value.permute([own.index(letter) for letter in letters if letter in own])
    for position, letter in enumerate(letters):
        if letter not in own:
            value = value.unsqueeze(position)
    return value


def _map(name: str, value: torch.Tensor) -> torch.Tensor:
    if name.startswith("scale["):
        return value * float(name[6:-1])
    if name.startswith("cast["):
        return value.to(torch_dtype(name[5:-1]))
    return _MAPS[name](value)


# --- calls ------------------------------------------------------------------------------------------------------------


def run_call(call: Call, operands: Sequence[torch.Tensor], cut: Cut) -> list[torch.Tensor]:
    """The results of a call, in their letters, on the blocks of `operands` that `cut` says.

    >>> from joinsum.capture.call import Block, Call, CallResult
    >>> rows = CallResult("ab", torch.float32, ("a", "b"))
    >>> call = Call(0, "aten::_softmax", ("ab",), (rows,), (Block(0, ("a", "b")), 1, False), whole="b")
    >>> run_call(call, [torch.zeros(4, 2)], {"a": (0, 1)})
    [tensor([[0.5000, 0.5000]])]
    """
    extents = dict(call.extents)
    for letters, value in zip(call.operands, operands, strict=True):
        extents |= zip(letters, value.shape, strict=True)
    local = extents | {letter: end - begin for letter, (begin, end) in cut.items()}
    blocks = [_block(value, letters, cut) for value, letters in zip(operands, call.operands, strict=True)]

    def read(value: Argument) -> object:
        if isinstance(value, Block):
            return _shown(blocks[value.operand], call.operands[value.operand], value.groups)
        if isinstance(value, LocalExtent):
            return math.prod(local[letter] for letter in value.letters)
        if isinstance(value, Offset):
            return cut.get(value.letter, (0, 0))[0]
        if isinstance(value, (list, tuple)):
            return [read(each) for each in value]
        return value

    arguments = [read(value) for value in call.arguments]
    keywords = {name: read(value) for name, value in call.keywords}
    found = _function(call.function)(*arguments, **keywords)
    results: list[torch.Tensor] = list(found) if isinstance(found, (tuple, list)) else [found]
    return [_laid_out(call, value, result, local) for value, result in zip(results, call.results, strict=True)]


def _function(name: str) -> Callable[..., Any]:
    """`aten::sum.dim_IntList` as torch's dispatcher has it."""
    namespace, _, rest = name.partition("::")
    operator, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), operator)
    return cast(Callable[..., Any], getattr(packet, overload or "default"))


def _block(value: torch.Tensor, letters: str, cut: Cut) -> torch.Tensor:
    for axis, letter in enumerate(letters):
        if letter in cut:
            begin, end = cut[letter]
            value = value.narrow(axis, begin, end - begin)
    return value


def _shown(block: torch.Tensor, letters: str, groups: Sequence[str]) -> torch.Tensor:
    """The block in the axes that the operator sees; each letter stands in one group."""
    extents = dict(zip(letters, block.shape, strict=True))
    shape = [math.prod(extents[letter] for letter in group) for group in groups]
    return block.permute([letters.index(letter) for letter in "".join(groups)]).reshape(shape)


def _laid_out(call: Call, value: torch.Tensor, result: CallResult, local: Mapping[str, int]) -> torch.Tensor:
    shape = [math.prod(local[letter] for letter in group) for group in result.groups]
    if list(value.shape) != shape or value.dtype != result.dtype:
        raise InternalError(
            f"capture: an operator's result is not what its row says: operator={call.function}, "
            f"expected={shape} {result.dtype}, found={list(value.shape)} {value.dtype}, call={call.text}"
        )
    order = "".join(result.groups)
    value = value.reshape([local[letter] for letter in order])
    return value.permute([order.index(letter) for letter in result.letters])


# --- the check --------------------------------------------------------------------------------------------------------


def check_parts(call: Call, operands: Sequence[torch.Tensor], expected: torch.Tensor) -> None:
    """Runs the call in two and three uneven parts along each letter that it may be divided along, and along the first
    three of them at once. Raises AssertionError where what is assembled differs from `expected`."""
    extents = dict(call.extents)
    for letters, value in zip(call.operands, operands, strict=True):
        extents |= zip(letters, value.shape, strict=True)
    divisible = [letter for letter in call.letters if letter not in call.whole and extents[letter] > 1]
    trials = [[(letter, count)] for letter in divisible for count in (2, 3) if extents[letter] >= count]
    trials += [[(letter, 2) for letter in divisible[:3]]] if len(divisible) > 1 else []
    for trial in trials:
        bounds = [(letter, _bounds(extents[letter], count)) for letter, count in trial]
        _assert_close(_assembled(call, operands, bounds, {}), expected, f"{call.text}\nin parts along {trial}")


def check_uncut(call: Call, operands: Sequence[torch.Tensor], expected: torch.Tensor) -> None:
    """Raises AssertionError where the call that runs in the place of this one has another result."""
    if call.uncut is not None:
        places, once = call.uncut
        found = run_call(once, [operands[place] for place in places], {})[once.output]
        _assert_close(found, expected, f"{call.text}\nat once")


def _assert_close(found: torch.Tensor, expected: torch.Tensor, where: str) -> None:
    tolerance = _tolerance(expected.dtype)
    torch.testing.assert_close(
        found, expected, equal_nan=True, rtol=tolerance, atol=tolerance, msg=lambda text: f"{where}: {text}"
    )


def _bounds(extent: int, count: int) -> list[int]:
    """Begin of each part, and the end; uneven.

    >>> _bounds(7, 2), _bounds(7, 3)
    ([0, 2, 7], [0, 2, 3, 7])
    """
    first = max(1, extent // 3)
    return [0, first, extent] if count == 2 else [0, first, first + 1, extent]


def _assembled(
    call: Call, operands: Sequence[torch.Tensor], bounds: Sequence[tuple[str, list[int]]], cut: Cut
) -> torch.Tensor:
    if not bounds:
        return run_call(call, operands, cut)[call.output]
    (letter, marks), rest = bounds[0], bounds[1:]
    pieces = [_assembled(call, operands, rest, {**cut, letter: span}) for span in pairwise(marks)]
    letters = call.results[call.output].letters
    if letter in letters:
        return torch.cat(pieces, letters.index(letter))
    if letter in call.same:
        for piece in pieces[1:]:
            _assert_close(piece, pieces[0], f"{call.text}\nof parts along {letter}")
        return pieces[0]
    if letter not in call.fold:
        raise AssertionError(f"a result lacks a letter that is divided freely: letter={letter}, call={call.text}")
    return _FOLDS[call.fold[letter]](torch.stack(pieces), [0])


def _tolerance(dtype: torch.dtype) -> float:
    scale = {torch.float64: 1e-9, torch.float32: 2e-5, torch.complex64: 2e-5, torch.complex128: 1e-9}.get(dtype)
    if scale is None:
        scale = 2e-2 if dtype.is_floating_point else 0.0
    return scale
