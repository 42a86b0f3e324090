"""The reference interpreter of captured programs, which torch runs vertex by vertex.

It also checks the property that distribution relies on: run on the shards of its operands along a letter that may be
divided, an operator gives the shards of its result, or, where the letter is reduced, results that reduce to the result.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch

from joinsum import _C
from joinsum.base.errors import PlanError
from joinsum.capture.recording.recorded import Recorded

__all__ = ["check_shards", "check_undecomposed", "interpret", "run_einsum"]

Shard = Mapping[str, tuple[int, int]]  # begin and end along each letter that is divided


def interpret(
    recorded: Recorded, tensors: Sequence[torch.Tensor], seed: int = 0, check: bool = False
) -> list[torch.Tensor]:
    """The outputs of a program.

    tensors   the values of the placeholders that are tensors, in their order
    check     whether each operator also runs on shards along each letter that may be divided
    """
    remaining = iter(tensors)
    values: dict[_C.EinsumNode, torch.Tensor] = {}
    checked: set[str] = set()
    for each, node in zip(recorded.inputs, recorded.input_nodes, strict=True):
        if each.name == recorded.seed:
            value = torch.tensor(seed)
        else:
            value = recorded.constants[each.name] if each.position is None else next(remaining)
        if tuple(value.shape) != each.shape or value.dtype != each.dtype:
            raise PlanError(f"capture: an input differs from the recorded one: input={each.name}, {list(value.shape)}")
        values[node] = value.detach().reshape(node.extents)
    for vertex in recorded.vertices:
        operands = [values[node] for node in vertex.inputs]
        call = vertex.call
        values[vertex] = run_einsum(vertex, operands) if call is None else call.run(operands)
        # Equal layers have equal calls; one of them is checked.
        if check and call is not None and str(call) not in checked:
            checked.add(str(call))
            check_shards(call, operands, values[vertex])
            check_undecomposed(call, operands, values[vertex])
    pairs = zip(recorded.outputs, recorded.output_nodes, strict=True)
    return [output.of(values[node]) for output, node in pairs]


def run_einsum(vertex: _C.EinsumNode, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """The result of an einsum, in its labels, which are letters.

    >>> a, b = _C.einsum_input("a", "f32", [2, 3]), _C.einsum_input("b", "f32", [3])
    >>> product = _C.einsum_vertex([a, b], [["i", "j"], ["j"]], ["i"], _C.Kernel("mul"), _C.Kernel("add"), {})
    >>> run_einsum(product, [torch.ones(2, 3), torch.ones(3)])
    tensor([3., 3.])
    """
    einsum = vertex.einsum
    assert einsum is not None
    known = list(dict.fromkeys(label for labels in einsum.operands for label in labels))
    kept = [label for label in known if label in einsum.result]
    if (str(einsum.join), str(einsum.aggregate)) == ("mul", "add") and len(operands) > 1:
        reduced = torch.einsum(f"{','.join(map(''.join, einsum.operands))}->{''.join(kept)}", *operands)
    else:
        reduced = _joined(einsum, operands, known)
        lost = [position for position, label in enumerate(known) if label not in kept]
        if lost:
            reduced = einsum.aggregate.reduce(reduced, lost)
    return _aligned(reduced, kept, einsum.result).expand(vertex.extents)


def _joined(einsum: _C.Einsum, operands: Sequence[torch.Tensor], labels: Sequence[str]) -> torch.Tensor:
    """⊗ of the operands, with an axis for each label."""
    kernel = einsum.join
    aligned = [_aligned(value, own, labels) for value, own in zip(operands, einsum.operands, strict=True)]
    if len(aligned) == 1:
        return kernel.run(aligned)
    pair = _C.Kernel(kernel.name)
    joined = functools.reduce(lambda left, right: pair.run([left, right]), aligned)
    return functools.reduce(lambda value, each: each.run([value]), kernel.epilogue, joined)


def _aligned(value: torch.Tensor, own: Sequence[str], labels: Sequence[str]) -> torch.Tensor:
    """With an axis for each of `labels`: of one element where `own`, those of the value, lacks it."""
    value = value.permute([own.index(label) for label in labels if label in own])
    for position, label in enumerate(labels):
        if label not in own:
            value = value.unsqueeze(position)
    return value


# --- the check --------------------------------------------------------------------------------------------------------


def check_shards(call: _C.Call, operands: Sequence[torch.Tensor], expected: torch.Tensor) -> None:
    """Runs the call on two and three uneven shards along each letter that may be divided, and along the first three of
    these letters together. Raises AssertionError where the assembled result differs from `expected`."""
    extents = call.extents([operand.shape for operand in operands])
    divisible = [letter for letter, extent in extents.items() if letter not in call.undivided and extent > 1]
    trials = [[(letter, count)] for letter in divisible for count in (2, 3) if extents[letter] >= count]
    trials += [[(letter, 2) for letter in divisible[:3]]] if len(divisible) > 1 else []
    for trial in trials:
        bounds = [(letter, _bounds(extents[letter], count)) for letter, count in trial]
        _assert_close(_assembled(call, operands, bounds, {}), expected, f"{call}\non shards along {trial}")


def check_undecomposed(call: _C.Call, operands: Sequence[torch.Tensor], expected: torch.Tensor) -> None:
    """Raises AssertionError where the undecomposed call has another result."""
    if call.undecomposed is not None:
        places, undecomposed = call.undecomposed
        found = undecomposed.run([operands[place] for place in places])
        _assert_close(found, expected, f"{call}\nundecomposed")


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
    call: _C.Call, operands: Sequence[torch.Tensor], bounds: Sequence[tuple[str, list[int]]], shard: Shard
) -> torch.Tensor:
    if not bounds:
        return call.run(operands, shard)
    (letter, marks), rest = bounds[0], bounds[1:]
    results = [_assembled(call, operands, rest, {**shard, letter: span}) for span in pairwise(marks)]
    if letter in call.result:
        return torch.cat(results, call.result.index(letter))
    if letter in call.same:
        for result in results[1:]:
            _assert_close(result, results[0], f"{call}\non shards along {letter}")
        return results[0]
    if letter not in call.reduce:
        raise AssertionError(
            f"a result lacks a letter that may be divided and is not reduced: letter={letter}, call={call}"
        )
    return _C.Kernel(call.reduce[letter]).reduce(torch.stack(results), [0])


def _tolerance(dtype: torch.dtype) -> float:
    scale = {torch.float64: 1e-9, torch.float32: 2e-5, torch.complex64: 2e-5, torch.complex128: 1e-9}.get(dtype)
    if scale is None:
        scale = 2e-2 if dtype.is_floating_point else 0.0
    return scale
