"""Axes as products of labels: splits and merges do to labels what reshapes do to tensors."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from joinsum.capture.interpret import interpret
from joinsum.capture.recording.axes import Atom, Dim, align, extent_of, fresh, leaves, split
from joinsum.capture.recording.recorder import Recorder
from joinsum.capture.recording.resolve import OutputDraft, resolve
from joinsum.capture.recording.vertices import reshaped


def test_an_axis_splits_everywhere_it_was_identified() -> None:
    width, bias = fresh(768), fresh(768)
    assert align(width, bias)
    result = split(width, [12, 64])
    assert result is not None
    assert [extent_of(axis) for axis in result] == [12, 64]
    assert [dim.extent for dim in leaves(bias)] == [12, 64]


def test_factors_that_do_not_nest_are_not_forced() -> None:
    first, second = fresh(24), fresh(24)
    assert split(first, [6, 4])
    assert split(second, [8, 3])
    assert not align(first, second)
    assert split(first, [8, 3]) is None


def test_two_places_of_one_atom_split_alike() -> None:
    atom = Atom(12)
    scores = (Dim(atom), Dim(atom))
    result = split(scores, [12, 3, 4])
    assert result is not None
    assert [dim.extent for dim in leaves(scores)] == [3, 4, 3, 4]


@given(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4), st.data())
def test_a_reshape_is_that_of_torch_whether_labels_can_say_it_or_not(shape: list[int], data: st.DataObject) -> None:
    """Any number of reshapes and permutations in turn."""
    recorder = Recorder()
    tensor = torch.arange(float(math.prod(shape))).reshape(shape)
    value, expected = recorder.input("x", 0, shape, torch.float32), tensor
    for _ in range(data.draw(st.integers(1, 4))):
        order = data.draw(st.permutations(range(expected.dim())))
        expected = expected.permute(order)
        value = type(value)(value.producer, tuple(value.axes[axis] for axis in order))
        wanted = data.draw(_factorisations(expected.numel()))
        value, expected = reshaped(value, wanted), expected.reshape(wanted)
    program = resolve(recorder, [OutputDraft("z", value)], {})
    (found,) = interpret(program, [tensor], check=True)
    assert torch.equal(found, expected)


@st.composite
def _factorisations(draw: st.DrawFn, count: int) -> list[int]:
    extents = []
    while count > 1 and len(extents) < 3:
        extents.append(draw(st.sampled_from([each for each in range(1, count + 1) if count % each == 0])))
        count //= extents[-1]
    return [*extents, count]
