"""Views are labels: reshapes split and merge them, permutations and expansions reorder and repeat them."""

from __future__ import annotations

import torch

from joinsum.capture.recording.application import Application
from joinsum.capture.recording.axes import Axis, fresh
from joinsum.capture.recording.values import Value, axis_names
from joinsum.capture.recording.vertices import expanded, permuted, reshaped
from joinsum.capture.rules.along import Along
from joinsum.capture.rules.form import Form, form_of
from joinsum.capture.rules.row import Entry, Results, Traits, rows

__all__ = ["ROWS"]


def _view(application: Application) -> Results:
    return [reshaped(application.value("self"), application.shape)]


def _permute(application: Application) -> Results:
    value = application.value("self")
    return [permuted(value, application.dims("dims", len(value.axes)))]


def _transpose(application: Application) -> Results:
    value = application.value("self")
    rank = len(value.axes)
    order = list(range(rank))
    if application.name == "aten::t":
        return [permuted(value, order[::-1])]
    first, second = application.dim("dim0", rank), application.dim("dim1", rank)
    if rank:
        order[first], order[second] = order[second], order[first]
    return [permuted(value, order)]


def _expand(application: Application) -> Results:
    return [expanded(application.value("self"), application.shape)]


def _repeat(application: Application) -> Results:
    """A repeated axis is the product of a label along which the elements repeat, and of the axis itself."""
    value, counts = application.value("self"), application.numbers("repeats")
    axes: list[Axis] = [*[()] * (len(counts) - len(value.axes)), *value.axes]
    return [Value(value.producer, tuple((*fresh(count), *axis) for count, axis in zip(counts, axes, strict=True)))]


# --- calls on undivided axes ------------------------------------------------------------------------------------------


def _pad(application: Application) -> Results:
    """Padded axes are undivided."""
    value, pads = application.value("self"), application.numbers("pad")
    names = axis_names(len(value.axes))
    padded = {len(names) - 1 - number // 2 for number, pad in enumerate(pads) if pad}
    if not padded:
        return [value]
    after = [f"p{axis}" if axis in padded else name for axis, name in enumerate(names)]
    undivided = [name for axis in padded for name in (names[axis], after[axis])]
    return form_of([names], [after], undivided)(application)


def _border(application: Application) -> Results:
    """Padding by elements of the tensor: the padded axes, the last ones, are undivided."""
    inner, padded = axis_names(len(application.shape)), len(application.numbers("padding")) // 2
    first = len(inner) - padded
    outer = [*inner[:first], *(f"p{axis}" for axis in range(padded))]
    backward = "grad_output" in application.arguments
    operands, result = ([outer, inner], inner) if backward else ([inner], outer)
    return form_of(operands, [result], [*inner[first:], *outer[first:]])(application)


def _diagonal_axes(application: Application, rank: int) -> tuple[list[str], list[str], list[str]]:
    """Names of the axes of a tensor, and of its diagonal; the undivided ones of both."""
    names, pair = axis_names(rank), {application.dim("dim1", rank), application.dim("dim2", rank)}
    diagonal = [*(name for axis, name in enumerate(names) if axis not in pair), "diagonal"]
    return names, diagonal, [*(names[axis] for axis in pair), "diagonal"]


def _diagonal(application: Application) -> Results:
    names, diagonal, undivided = _diagonal_axes(application, len(application.value("self").axes))
    return form_of([names], [diagonal], undivided)(application)


def _diagonal_backward(application: Application) -> Results:
    """diagonal_backward and diag_embed."""
    names, diagonal, undivided = _diagonal_axes(application, len(application.shape))
    sizes = "input_sizes" if "input_sizes" in application.arguments else ""
    return form_of([diagonal], [names], undivided, sizes)(application)


def _diagonal_scatter(application: Application) -> Results:
    names, diagonal, undivided = _diagonal_axes(application, len(application.shape))
    return form_of([names, diagonal], [names], undivided)(application)


def _rot90(application: Application) -> Results:
    """A quarter turn swaps the two axes, which are undivided."""
    before = axis_names(len(application.shape))
    pair = application.dims("dims", len(before))
    after = [f"b{axis}" if axis in pair else name for axis, name in enumerate(before)]
    return form_of([before], [after], [names[axis] for names in (before, after) for axis in pair])(application)


def _strided(application: Application) -> tuple[list[str], dict[str, object]]:
    """Names of the axes of the tensor that has the strides, and the arguments of `joinsum::strided`.

    Strides refer to the memory of a contiguous tensor, so the operator reads all of the tensor.
    """
    fake = getattr(application.node.args[0], "meta", {}).get("val")
    if fake is None or not fake.is_contiguous():
        application.refuse("it is of a tensor that is not contiguous")
    value = application.value("self")
    sizes = {name: application.numbers(name) for name in ("size", "stride")}
    offset = application.arguments["storage_offset"] or 0
    return axis_names(len(value.axes)), {"input": value, "offset": offset, **sizes}


def _as_strided(application: Application) -> Results:
    names, arguments = _strided(application)
    after = [f"b{axis}" for axis in range(len(application.shape))]
    form = form_of([names], [after], [*names, *after])
    return form.apply(application, torch.ops.joinsum.strided.default, arguments, application.type)


def _as_strided_scatter(application: Application) -> Results:
    names, arguments = _strided(application)
    source = application.value("src")
    others = [f"b{axis}" for axis in range(len(source.axes))]
    form = form_of([names, others], [names], [*names, *others])
    operator = torch.ops.joinsum.strided_scatter.default
    return form.apply(application, operator, {**arguments, "source": source}, application.type)


_LABELS = "labels only"
_REPEATED = "labels along which the elements repeat"
_PAIR = "the two axes are undivided"

ROWS = rows(
    "views",
    Entry("view view_copy", _view, _LABELS),
    Entry("_unsafe_view", _view, _LABELS, Traits(may_alias=True)),
    Entry("unsqueeze squeeze squeeze.dim squeeze.dims", _view, _LABELS),
    Entry("permute permute_copy", _permute, _LABELS),
    Entry("t transpose.int", _transpose, _LABELS),
    Entry("expand expand_copy", _expand, _REPEATED),
    Entry("repeat", _repeat, _REPEATED),
    Entry("constant_pad_nd", _pad, "axes that are padded are undivided"),
    Entry(
        "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d "
        "reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward "
        "replication_pad2d_backward replication_pad3d_backward",
        _border,
        "axes that are padded are undivided",
    ),
    Entry("diagonal diagonal_copy", _diagonal, _PAIR),
    Entry("diagonal_backward diag_embed", _diagonal_backward, _PAIR),
    Entry("diagonal_scatter", _diagonal_scatter, _PAIR),
    Entry("roll flip", Along("dims"), "along `dims`, which are undivided"),
    Entry("rot90", _rot90, "the two axes of `dims` are undivided"),
    Entry("tril triu", Form("*b i j -> *b i j", "i j", flops="1 *b i j")),
    Entry("as_strided", _as_strided, "all labels undivided"),
    Entry("as_strided_scatter", _as_strided_scatter, "all labels undivided"),
)
