"""Views are labels: reshapes split and merge them, slices and joins touch only the label that they cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from joinsum.capture.application import Application
from joinsum.capture.axes import Axis, fresh, leaves, split
from joinsum.capture.operators.along import Along
from joinsum.capture.operators.elementwise import as_dtype, expanded
from joinsum.capture.operators.form import Form
from joinsum.capture.operators.row import Made, Row, rows
from joinsum.capture.recorder import Arguments, Labels, Recorder, Result, Shown, Value, axis_names

__all__ = ["ROWS", "permuted"]


def permuted(value: Value, order: Sequence[int]) -> Value:
    """`value` with its axes in another order."""
    return Value(value.source, tuple(value.axes[axis] for axis in order))


def _view(recorder: Recorder, application: Application) -> Made:
    return [recorder.reshaped(application.value("self"), application.shape)]


def _permute(recorder: Recorder, application: Application) -> Made:
    value = application.value("self")
    return [permuted(value, application.dims("dims", len(value.axes)))]


def _transpose(recorder: Recorder, application: Application) -> Made:
    value = application.value("self")
    rank = len(value.axes)
    order = list(range(rank))
    if application.name == "aten::t":
        return [permuted(value, order[::-1])]
    first, second = application.dim("dim0", rank), application.dim("dim1", rank)
    if rank:
        order[first], order[second] = order[second], order[first]
    return [permuted(value, order)]


def _expand(recorder: Recorder, application: Application) -> Made:
    return [expanded(application.value("self"), application.shape)]


def _repeat(recorder: Recorder, application: Application) -> Made:
    """Repeating is an axis along which the elements repeat, in front of the axis itself."""
    value, counts = application.value("self"), application.numbers("repeats")
    missing = len(counts) - len(value.axes)
    axes: list[Axis] = [*[()] * missing, *value.axes]
    pairs = zip(counts, axes, strict=True)
    return [Value(value.source, tuple((*fresh(count), *axis) for count, axis in pairs))]


# --- parts of an axis -------------------------------------------------------------------------------------------------

# A slice splits its axis into so many pieces at most; into more, it is whole.
_PIECES = 8


def _select(recorder: Recorder, application: Application) -> Made:
    value = application.value("self")
    dim = application.dim("dim", len(value.axes))
    return [_selected(recorder, application, value, dim, application.number("index"))]


def _selected(recorder: Recorder, application: Application, value: Value, dim: int, index: int) -> Value:
    """Without axis `dim`, of which element `index` is taken."""

    rest = (*value.axes[:dim], *value.axes[dim + 1 :])
    if _repeats(value, dim):
        return Value(value.source, rest)
    names = [f"a{axis}" for axis in range(len(value.axes))]
    shape = [extent for axis, extent in enumerate(value.shape) if axis != dim]
    form = Form(f"{' '.join(names)} -> {' '.join(name for axis, name in enumerate(names) if axis != dim)}", names[dim])
    arguments = {"self": value, "dim": dim, "index": index % value.shape[dim]}
    operator = torch.ops.aten.select.int
    (made,) = form(recorder, application.of(operator, arguments, [(shape, value.dtype)]))
    assert made is not None
    return made


def _repeats(value: Value, dim: int) -> bool:
    """Whether the elements repeat along all of an axis."""
    repeated = set(value.repeated())
    return all(leaf in repeated for leaf in leaves(value.axes[dim]))


def _slice(recorder: Recorder, application: Application) -> Made:
    value = application.value("self")
    dim = application.dim("dim", len(value.axes))
    begin, end, step = _bounds(application, value.shape[dim])
    return [_sliced(recorder, application, value, dim, (begin, end, step))]


def _bounds(application: Application, extent: int) -> tuple[int, int, int]:
    """Begin, end and step of a slice of an axis."""
    given = application.arguments
    begin = 0 if given["start"] is None else application.number("start")
    end = extent if given["end"] is None else application.number("end")
    begin, end, step = slice(begin, end, application.number("step")).indices(extent)
    return begin, max(begin, end), step


def _sliced(
    recorder: Recorder, application: Application, value: Value, dim: int, bounds: tuple[int, int, int]
) -> Value:
    begin, end, step = bounds
    extent = value.shape[dim]
    length = len(range(begin, end, step))
    if (begin, length) == (0, extent):
        return value
    if _repeats(value, dim):
        return Value(value.source, (*value.axes[:dim], fresh(length), *value.axes[dim + 1 :]))
    pieces = None
    if step == 1 and begin % length == 0 and extent % length == 0 and extent // length <= _PIECES:
        pieces = split(value.axes[dim], [extent // length, length])
    if pieces is None:
        return _cut(recorder, application, value, dim, bounds)
    cut = Value(value.source, (*value.axes[:dim], *pieces, *value.axes[dim + 1 :]))
    return _selected(recorder, application, cut, dim, begin // length)


def _cut(recorder: Recorder, application: Application, value: Value, dim: int, bounds: tuple[int, int, int]) -> Value:
    """A slice in which the label is whole."""

    begin, end, step = bounds
    shape = list(value.shape)
    shape[dim] = len(range(begin, end, step))
    names = [f"a{axis}" for axis in range(len(shape))]
    form = Form(f"{' '.join(names)} -> {' '.join([*names[:dim], 'cut', *names[dim + 1 :]])}", f"{names[dim]} cut")
    arguments = {"self": value, "dim": dim, "start": begin, "end": end, "step": step}
    operator = torch.ops.aten.slice.Tensor
    (made,) = form(recorder, application.of(operator, arguments, [(shape, value.dtype)]))
    assert made is not None
    return made


def _split(recorder: Recorder, application: Application) -> Made:
    value = application.value("self")
    dim = application.dim("dim", len(value.axes))
    made: Made = []
    begin = 0
    for result in application.results:
        assert result is not None
        end = begin + result[0][dim]
        made.append(_sliced(recorder, application, value, dim, (begin, end, 1)))
        begin = end
    return made


def _unbind(recorder: Recorder, application: Application) -> Made:
    value = application.value("self")
    dim = application.dim("dim", len(value.axes))
    return [_selected(recorder, application, value, dim, index) for index in range(value.shape[dim])]


# --- joining ----------------------------------------------------------------------------------------------------------


def _stack(recorder: Recorder, application: Application) -> Made:
    values = application.values("tensors")
    dim = application.dim("dim", len(application.shape))
    return [_stacked(recorder, values, dim, application.dtype)]


def _stacked(recorder: Recorder, values: Sequence[Value], dim: int, dtype: torch.dtype) -> Value:
    """Values of one shape along a new axis `dim`, which is whole."""
    values = [as_dtype(recorder, value, dtype) for value in values]
    names = axis_names(values[0])

    def arguments(labels: Labels) -> Arguments:
        axes = tuple(labels.axis(name) for name in names)
        return [[Shown(number, axes) for number in range(len(values))], 0], {}

    result = Result(values[0].dtype, [["piece"], *([name] for name in names)], {"piece": len(values)})
    (made,) = recorder.call("aten::stack", [(value, names) for value in values], [result], arguments, ["piece"])
    return permuted(made, [*range(1, dim + 1), 0, *range(dim + 1, len(names) + 1)])


def _cat(recorder: Recorder, application: Application) -> Made:
    """Equal pieces are a new label in front of theirs; others make one whole label."""
    values = [value for value in application.values("tensors") if 0 not in value.shape]
    rank = len(application.shape)
    dim = application.dim("dim", rank)
    if len(values) == 1:
        return [as_dtype(recorder, values[0], application.dtype)]
    extents = [value.shape[dim] for value in values]
    if len(set(extents)) == 1 and len(extents) <= _PIECES:
        made = _stacked(recorder, values, dim, application.dtype)
        axes = made.axes
        return [replace(made, axes=(*axes[:dim], (*axes[dim], *axes[dim + 1]), *axes[dim + 2 :]))]
    return [_joined(recorder, application, values, dim)]


def _joined(recorder: Recorder, application: Application, values: Sequence[Value], dim: int) -> Value:
    values = [as_dtype(recorder, value, application.dtype) for value in values]
    shared = [f"a{axis}" for axis in range(len(application.shape))]
    names = [[*shared[:dim], f"piece{number}", *shared[dim + 1 :]] for number in range(len(values))]

    def arguments(labels: Labels) -> Arguments:
        blocks = [Shown(number, tuple(labels.axis(name) for name in own)) for number, own in enumerate(names)]
        return [blocks, dim], {}

    result = Result(application.dtype, [[name] for name in shared], {shared[dim]: application.shape[dim]})
    whole = [shared[dim], *(own[dim] for own in names)]
    (made,) = recorder.call("aten::cat", list(zip(values, names, strict=True)), [result], arguments, whole)
    return made


# --- gradients of parts -----------------------------------------------------------------------------------------------


def _select_backward(recorder: Recorder, application: Application) -> Made:
    rank = len(application.shape)
    dim = application.dim("dim", rank)
    grad = application.value("grad_output")
    return [_placed(recorder, application, grad, dim, application.shape[dim], application.number("index"))]


def _placed(recorder: Recorder, application: Application, grad: Value, dim: int, extent: int, index: int) -> Value:
    """`grad` at `index` of a new axis, zeros elsewhere."""

    names = [f"a{axis}" for axis in range(len(grad.axes))]
    after = [*names[:dim], "new", *names[dim:]]
    shape = [*grad.shape[:dim], extent, *grad.shape[dim:]]
    form = Form(f"{' '.join(names)} -> {' '.join(after)}", "new", sizes={"input_sizes": " ".join(after)})
    arguments = {"grad_output": grad, "input_sizes": shape, "dim": dim, "index": index % extent}
    operator = torch.ops.aten.select_backward.default
    (made,) = form(recorder, application.of(operator, arguments, [(shape, grad.dtype)]))
    assert made is not None
    return made


def _slice_backward(recorder: Recorder, application: Application) -> Made:
    grad, shape = application.value("grad_output"), application.shape
    dim = application.dim("dim", len(shape))
    extent, length = shape[dim], grad.shape[dim]
    begin, _, step = _bounds(application, extent)
    if length == 0:
        return [recorder.filled(shape, torch.zeros((), dtype=application.dtype))]
    if length == extent:
        return [grad]
    if step == 1 and begin % length == 0 and extent % length == 0 and extent // length <= _PIECES:
        made = _placed(recorder, application, grad, dim, extent // length, begin // length)
        axes = made.axes
        return [replace(made, axes=(*axes[:dim], (*axes[dim], *axes[dim + 1]), *axes[dim + 2 :]))]
    names = [f"a{axis}" for axis in range(len(shape))]
    before = [*names[:dim], "cut", *names[dim + 1 :]]
    sizes = {"input_sizes": " ".join(names)}
    form = Form(f"{' '.join(before)} -> {' '.join(names)}", f"{names[dim]} cut", sizes=sizes)
    return form(recorder, application)


def _scatter_along(recorder: Recorder, application: Application) -> Made:
    """slice_scatter and select_scatter: the axis is whole."""
    value, source = application.value("self"), application.value("src")
    dim = application.dim("dim", len(value.axes))
    names = [f"a{axis}" for axis in range(len(value.axes))]
    cut = ["cut"] if len(source.axes) == len(names) else []
    text = " ".join([*names[:dim], *cut, *names[dim + 1 :]])
    form = Form(f"{' '.join(names)}, {text} -> {' '.join(names)}", " ".join([names[dim], *cut]))
    return form(recorder, application)


def _pad(recorder: Recorder, application: Application) -> Made:
    """Padded axes are whole."""
    value, pads = application.value("self"), application.numbers("pad")
    rank = len(value.axes)
    padded = {rank - 1 - number // 2 for number, pad in enumerate(pads) if pad}
    if not padded:
        return [value]
    names = [f"a{axis}" for axis in range(rank)]
    after = [f"p{axis}" if axis in padded else name for axis, name in enumerate(names)]
    whole = " ".join([names[axis] + f" p{axis}" for axis in padded])
    return Form(f"{' '.join(names)} -> {' '.join(after)}", whole)(recorder, application)


def _diagonal(recorder: Recorder, application: Application) -> Made:
    """The two axes are whole."""
    value = application.value("self")
    rank = len(value.axes)
    pair = {application.dim("dim1", rank), application.dim("dim2", rank)}
    names = [f"a{axis}" for axis in range(rank)]
    kept = [name for axis, name in enumerate(names) if axis not in pair]
    whole = " ".join([*(names[axis] for axis in pair), "diagonal"])
    return Form(f"{' '.join(names)} -> {' '.join([*kept, 'diagonal'])}", whole)(recorder, application)


def _turned(recorder: Recorder, application: Application) -> Made:
    """A quarter turn swaps the two axes, which are whole."""
    rank = len(application.shape)
    first, second = application.dims("dims", rank)
    before = [f"a{axis}" for axis in range(rank)]
    after = [f"b{axis}" if axis in (first, second) else name for axis, name in enumerate(before)]
    mixed = " ".join(names[axis] for names in (before, after) for axis in (first, second))
    return Form(f"{' '.join(before)} -> {' '.join(after)}", mixed)(recorder, application)


def _diagonal_backward(recorder: Recorder, application: Application) -> Made:
    """diagonal_backward and diag_embed: the diagonal and the two axes that it becomes are whole."""
    rank = len(application.shape)
    pair = {application.dim("dim1", rank), application.dim("dim2", rank)}
    names = [f"a{axis}" for axis in range(rank)]
    before = " ".join([*(name for axis, name in enumerate(names) if axis not in pair), "diagonal"])
    mixed = " ".join([*(names[axis] for axis in pair), "diagonal"])
    sizes = {"input_sizes": " ".join(names)} if "input_sizes" in application.arguments else {}
    return Form(f"{before} -> {' '.join(names)}", mixed, sizes=sizes)(recorder, application)


def _border(recorder: Recorder, application: Application) -> Made:
    """Padding by what is inside: the padded axes, the last ones, are whole."""
    rank, padded = len(application.shape), len(application.numbers("padding")) // 2
    inner = [f"a{axis}" for axis in range(rank)]
    outer = [*inner[: rank - padded], *(f"p{axis}" for axis in range(padded))]
    mixed = " ".join([*inner[rank - padded :], *outer[rank - padded :]])
    texts = [" ".join(inner), " ".join(outer)]
    backward = "grad_output" in application.arguments
    text = f"{texts[1]}, {texts[0]} -> {texts[0]}" if backward else f"{texts[0]} -> {texts[1]}"
    return Form(text, mixed)(recorder, application)


def _as_strided(recorder: Recorder, application: Application) -> Made:
    """Strides are of the whole tensor as it lies in memory: it is taken whole, row-major."""

    value = application.value("self")
    node = application.node.args[0]
    fake = getattr(node, "meta", {}).get("val")
    if fake is None or not fake.is_contiguous():
        application.refuse("it is of a tensor that is not contiguous")
    before = " ".join(f"a{axis}" for axis in range(len(value.axes)))
    after = " ".join(f"b{axis}" for axis in range(len(application.shape)))
    arguments = {"input": value, "size": application.numbers("size"), "stride": application.numbers("stride")}
    arguments["offset"] = application.arguments["storage_offset"] or 0
    form = Form(f"{before} -> {after}", f"{before} {after}")
    operator = torch.ops.joinsum.strided.default
    return form(recorder, application.of(operator, arguments, [(application.shape, application.dtype)]))


def _as_strided_scatter(recorder: Recorder, application: Application) -> Made:
    """As `as_strided`: all labels are whole."""
    node = application.node.args[0]
    fake = getattr(node, "meta", {}).get("val")
    if fake is None or not fake.is_contiguous():
        application.refuse("it is of a tensor that is not contiguous")
    value, source = application.value("self"), application.value("src")
    names = " ".join(f"a{axis}" for axis in range(len(value.axes)))
    others = " ".join(f"b{axis}" for axis in range(len(source.axes)))
    given = {"input": value, "source": source, "offset": application.arguments["storage_offset"] or 0}
    given |= {"size": application.numbers("size"), "stride": application.numbers("stride")}
    operator = torch.ops.joinsum.strided_scatter.default
    form = Form(f"{names}, {others} -> {names}", f"{names} {others}")
    return form(recorder, application.of(operator, given, [(application.shape, application.dtype)]))


_TRIANGLE = Form("*b i j -> *b i j", "i j", flops="1 *b i j")
_LABELS = "labels only"
_PARTS = "labels only where it is one of at most 8 equal pieces, which a call picks; else a call with the label whole"

ROWS: list[Row] = [
    *rows("views", "view view_copy _unsafe_view unsqueeze squeeze squeeze.dim squeeze.dims", _view, _LABELS),
    *rows("views", "permute permute_copy", _permute, _LABELS),
    *rows("views", "t transpose.int", _transpose, _LABELS),
    *rows("views", "expand expand_copy", _expand, "labels along which the elements repeat"),
    *rows("views", "repeat", _repeat, "labels along which the elements repeat"),
    *rows("views", "slice.Tensor", _slice, _PARTS),
    *rows("views", "split.Tensor split_with_sizes unsafe_split.Tensor", _split, _PARTS),
    *rows("views", "select.int", _select, "a call in which the axis is whole"),
    *rows("views", "unbind.int", _unbind, "a call for each element of the axis, which is whole"),
    *rows("views", "stack", _stack, "a call with a new label, which is whole"),
    *rows("views", "cat", _cat, "at most 8 equal pieces: a new label in front of theirs; else the axis is whole"),
    *rows("views", "select_backward", _select_backward, "a call with a new label, which is whole"),
    *rows("views", "slice_backward", _slice_backward, "one of at most 8 equal pieces: as select_backward; else whole"),
    *rows("views", "slice_scatter select_scatter", _scatter_along, "along `dim`, which is whole"),
    *rows("views", "constant_pad_nd", _pad, "axes that are padded are whole"),
    *rows(
        "views",
        "reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d reflection_pad1d_backward "
        "reflection_pad2d_backward replication_pad1d_backward replication_pad2d_backward",
        _border,
        "axes that are padded are whole",
    ),
    *rows("views", "diagonal_backward diag_embed", _diagonal_backward, "the two axes are whole"),
    *rows("views", "roll flip", Along("dims"), "along `dims`, which are whole"),
    *rows("views", "rot90", _turned, "the two axes of `dims` are whole"),
    *rows("views", "tril triu", _TRIANGLE, _TRIANGLE.described),
    *rows("views", "diagonal diagonal_copy", _diagonal, "the two axes are whole"),
    *rows("views", "as_strided", _as_strided, "all labels whole"),
    *rows("views", "as_strided_scatter", _as_strided_scatter, "all labels whole"),
]
