"""Slices, splits and joins of an axis: chunks of equal extents split its label in two, others leave it undivided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from joinsum.capture.recording.application import Application
from joinsum.capture.recording.axes import fresh, leaves, split
from joinsum.capture.recording.symbolic_numbers import is_symbolic
from joinsum.capture.recording.values import Arguments, BlockDraft, Result, Value, axis_names
from joinsum.capture.recording.vertices import CallRule, Labels, as_dtype, call_operator, permuted
from joinsum.capture.rules.form import form_of
from joinsum.capture.rules.row import Entry, Results, Traits, rows

__all__ = ["ROWS"]

# A slice splits the label of its axis if the axis has at most so many chunks of the slice's extent.
_CHUNKS = 8


def _is_chunk(begin: int, length: int, step: int, extent: int) -> bool:
    """Whether a slice is one of at most `_CHUNKS` equal chunks of an axis, for all sizes."""
    if is_symbolic(length, extent):
        return False
    return step == 1 and begin % length == 0 and extent % length == 0 and extent // length <= _CHUNKS


def _dim(application: Application) -> int:
    return application.dim("dim", len(application.value("self").axes))


def _repeats(value: Value, dim: int) -> bool:
    """Whether the elements repeat along all of an axis."""
    repeated = set(value.repeated())
    return all(leaf in repeated for leaf in leaves(value.axes[dim]))


# --- slices -----------------------------------------------------------------------------------------------------------


def _select(application: Application) -> Results:
    return [_selected(application, application.value("self"), _dim(application), application.number("index"))]


def _selected(application: Application, value: Value, dim: int, index: int) -> Value:
    """Element `index` of axis `dim`, which the result lacks."""
    if _repeats(value, dim):
        return Value(value.producer, (*value.axes[:dim], *value.axes[dim + 1 :]))
    names, shape = axis_names(len(value.axes)), list(value.shape)
    extent = shape.pop(dim)
    form = form_of([names], [[*names[:dim], *names[dim + 1 :]]], [names[dim]])
    arguments = {"self": value, "dim": dim, "index": index % extent}
    return form.apply(application, torch.ops.aten.select.int, arguments, (shape, value.dtype))[0]


def _unbind(application: Application) -> Results:
    value, dim = application.value("self"), _dim(application)
    return [_selected(application, value, dim, index) for index in range(value.shape[dim])]


def _slice(application: Application) -> Results:
    value, dim = application.value("self"), _dim(application)
    return [_sliced(application, value, dim, _bounds(application, value.shape[dim]))]


def _bounds(application: Application, extent: int) -> tuple[int, int, int]:
    """Begin, end and step of a slice of an axis."""
    arguments = application.arguments
    begin = 0 if arguments["start"] is None else application.number("start")
    end = extent if arguments["end"] is None else application.number("end")
    begin, end = _within(begin, extent), _within(end, extent)
    return begin, begin if end < begin else end, application.number("step")


def _within(index: int, extent: int) -> int:
    """An end of a slice, which counts from the end of the axis where it is negative, as an index from 0 to `extent`."""
    index = index + extent if index < 0 else index
    return 0 if index < 0 else extent if index > extent else index


def _sliced(application: Application, value: Value, dim: int, bounds: tuple[int, int, int]) -> Value:
    begin, end, step = bounds
    extent, length = value.shape[dim], (end - begin + step - 1) // step
    before, after = value.axes[:dim], value.axes[dim + 1 :]
    if (begin, length) == (0, extent):
        return value
    if _repeats(value, dim):
        return Value(value.producer, (*before, fresh(length), *after))
    if _is_chunk(begin, length, step, extent):
        factors = split(value.axes[dim], [extent // length, length])
        if factors is not None:
            return _selected(application, Value(value.producer, (*before, *factors, *after)), dim, begin // length)
    names, shape = axis_names(len(value.axes)), list(value.shape)
    shape[dim] = length
    form = form_of([names], [[*names[:dim], "cut", *names[dim + 1 :]]], [names[dim], "cut"])
    arguments = {"self": value, "dim": dim, "start": begin, "end": end, "step": step}
    return form.apply(application, torch.ops.aten.slice.Tensor, arguments, (shape, value.dtype))[0]


def _split(application: Application) -> Results:
    value, dim = application.value("self"), _dim(application)
    chunks: list[Value] = []
    begin = 0
    for shape, _ in application.types:
        end = begin + shape[dim]
        chunks.append(_sliced(application, value, dim, (begin, end, 1)))
        begin = end
    return chunks


# --- joins ------------------------------------------------------------------------------------------------------------


def _stack(application: Application) -> Results:
    dim = application.dim("dim", len(application.shape))
    return [_stacked(application.values("tensors"), dim, application.dtype)]


def _stacked(values: Sequence[Value], dim: int, dtype: torch.dtype) -> Value:
    """Values of one shape along a new axis `dim`, which is undivided."""
    values = [as_dtype(value, dtype) for value in values]
    names = axis_names(len(values[0].axes))

    def arguments(labels: Labels) -> Arguments:
        axes = tuple(labels.axis(name) for name in names)
        return [[BlockDraft(number, axes) for number in range(len(values))], 0], {}

    result = Result(dtype, [["chunk"], *([name] for name in names)], {"chunk": len(values)})
    operands = [(value, names) for value in values]
    (stacked,) = call_operator("aten::stack", operands, [result], arguments, CallRule(undivided=["chunk"]))
    return permuted(stacked, [*range(1, dim + 1), 0, *range(dim + 1, len(names) + 1)])


def _merged(value: Value, dim: int) -> Value:
    """`value` with axes `dim` and `dim + 1` as one."""
    axes = value.axes
    return replace(value, axes=(*axes[:dim], (*axes[dim], *axes[dim + 1]), *axes[dim + 2 :]))


def _cat(application: Application) -> Results:
    """Equal chunks are a new label in front of theirs; others become one undivided label."""
    values = [value for value in application.values("tensors") if 0 not in value.shape]
    dim = application.dim("dim", len(application.shape))
    if len(values) == 1:
        return [as_dtype(values[0], application.dtype)]
    extents = [value.shape[dim] for value in values]
    if len(extents) <= _CHUNKS and all(extent == extents[0] for extent in extents):
        return [_merged(_stacked(values, dim, application.dtype), dim)]
    return _concatenated(application, values, dim)


def _concatenated(application: Application, values: Sequence[Value], dim: int) -> Results:
    shared = axis_names(len(application.shape))
    names = [[*shared[:dim], f"chunk{number}", *shared[dim + 1 :]] for number in range(len(values))]

    def arguments(labels: Labels) -> Arguments:
        blocks = [BlockDraft(number, tuple(labels.axis(name) for name in own)) for number, own in enumerate(names)]
        return [blocks, dim], {}

    operands = list(zip((as_dtype(value, application.dtype) for value in values), names, strict=True))
    result = Result(application.dtype, [[name] for name in shared], {shared[dim]: application.shape[dim]})
    rule = CallRule(undivided=[shared[dim], *(own[dim] for own in names)])
    return call_operator("aten::cat", operands, [result], arguments, rule)


# --- gradients of slices ----------------------------------------------------------------------------------------------


def _select_backward(application: Application) -> Results:
    dim = application.dim("dim", len(application.shape))
    index, extent = application.number("index"), application.shape[dim]
    return [_placed(application, application.value("grad_output"), dim, (index, extent))]


def _placed(application: Application, grad: Value, dim: int, position: tuple[int, int]) -> Value:
    """`grad` at an index of a new axis, and zeros elsewhere. `position` is the index and the extent of the axis."""
    index, extent = position
    names = axis_names(len(grad.axes))
    shape = [*grad.shape[:dim], extent, *grad.shape[dim:]]
    form = form_of([names], [[*names[:dim], "new", *names[dim:]]], ["new"], "input_sizes")
    arguments = {"grad_output": grad, "input_sizes": shape, "dim": dim, "index": index % extent}
    return form.apply(application, torch.ops.aten.select_backward.default, arguments, (shape, grad.dtype))[0]


def _slice_backward(application: Application) -> Results:
    grad, shape = application.value("grad_output"), application.shape
    dim = application.dim("dim", len(shape))
    extent, length = shape[dim], grad.shape[dim]
    begin, _, step = _bounds(application, extent)
    if length == 0:
        return [application.recorder.filled(shape, torch.zeros((), dtype=application.dtype))]
    if length == extent:
        return [grad]
    if _is_chunk(begin, length, step, extent):
        return [_merged(_placed(application, grad, dim, (begin // length, extent // length)), dim)]
    names = axis_names(len(shape))
    cut = [*names[:dim], "cut", *names[dim + 1 :]]
    return form_of([cut], [names], [names[dim], "cut"], "input_sizes")(application)


def _scatter_along(application: Application) -> Results:
    """slice_scatter and select_scatter: the axis is undivided."""
    names, dim = axis_names(len(application.shape)), _dim(application)
    cut = ["cut"] if len(application.value("src").axes) == len(names) else []
    return form_of([names, [*names[:dim], *cut, *names[dim + 1 :]]], [names], [names[dim], *cut])(application)


_CHUNK = "labels only where it is one of at most 8 equal chunks, which a call picks; else the label is undivided"
_NEW = "a call with a new label, which is undivided"

ROWS = rows(
    "views",
    Entry("slice.Tensor", _slice, _CHUNK),
    Entry("split.Tensor split_with_sizes unsafe_split.Tensor", _split, _CHUNK),
    Entry("select.int", _select, "a call in which the axis is undivided"),
    Entry("unbind.int", _unbind, "a call for each element of the axis, which is undivided"),
    Entry("stack", _stack, _NEW),
    Entry(
        "cat",
        _cat,
        "at most 8 equal chunks: a new label in front of theirs; else the axis is undivided",
        Traits(without_elements=True),
    ),
    Entry("select_backward", _select_backward, _NEW),
    Entry(
        "slice_backward",
        _slice_backward,
        "one of at most 8 equal chunks: as select_backward; else undivided",
        Traits(without_elements=True),
    ),
    Entry("slice_scatter select_scatter", _scatter_along, "along `dim`, which is undivided"),
)
