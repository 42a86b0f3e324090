"""Gathers, scatters and lookups: axes that indices point into are whole, or folded part by part."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from joinsum.capture.application import Application
from joinsum.capture.operators.elementwise import Pointwise
from joinsum.capture.operators.form import Form
from joinsum.capture.operators.row import Made, Row, rows
from joinsum.capture.operators.whole import whole
from joinsum.capture.recorder import Arguments, Labels, Recorder, Result, Shown, Value

__all__ = ["ROWS"]

# --- tables -----------------------------------------------------------------------------------------------------------

_PART = {"offsets": "offset v", "local": "local v", "extents": "extent v"}
_LOOKUP = Form("v d, *b -> *b d", fold="v=add", parts=_PART, flops="1 *b d")
_LOOKUP_BACKWARD = Form("*b d, *b, v -> v d", fold="*b=add", flops="1 *b d")
_BY_FREQUENCY = Form("*b d, *b -> v d", whole="*b v", sizes={"num_weights": "v"}, flops="1 *b d")


def _embedding(recorder: Recorder, application: Application) -> Made:
    given = {"table": application.value("weight"), "index": application.value("indices")}
    result = (application.shape, application.dtype)
    return _LOOKUP(recorder, application.of(torch.ops.joinsum.embedding_part.default, given, [result]))


def _embedding_backward(recorder: Recorder, application: Application) -> Made:
    if application.arguments["scale_grad_by_freq"]:
        return _BY_FREQUENCY(recorder, application)
    extent = application.shape[0]
    given = {
        "grad": application.value("grad_output"),
        "index": application.value("indices"),
        # Divided by row, it tells each site which rows to make.
        "rows": recorder.constant(torch.arange(extent)),
        "padding": application.arguments["padding_idx"],
        "extent": extent,
    }
    operator = torch.ops.joinsum.embedding_backward_part.default
    return _LOOKUP_BACKWARD(recorder, application.of(operator, given, [(application.shape, application.dtype)]))


# --- index and index_put ----------------------------------------------------------------------------------------------


class _Indices:
    """Names of the axes of a tensor that indices point into."""

    def __init__(self, application: Application, value: Value) -> None:
        given = application.arguments["indices"]
        assert isinstance(given, list)
        self.indices = [*given, *[None] * (len(value.axes) - len(given))]
        self.tensors = [index for index in self.indices if index is not None]
        if any(index.dtype in (torch.bool, torch.uint8) for index in self.tensors):
            application.refuse("an index of truth values gives a shape that depends on data")
        rank = max(len(index.axes) for index in self.tensors)
        self.names = [f"i{axis}" for axis in range(rank)]
        self.axes = [f"a{axis}" for axis in range(len(value.axes))]
        self.pointed = [name for name, index in zip(self.axes, self.indices, strict=True) if index is not None]

    def of(self, index: Value) -> list[str]:
        """Names of the axes of an index, which broadcasts."""
        return self.names[len(self.names) - len(index.axes) :]

    def result(self) -> list[str]:
        """Names of the axes of what the indices pick: theirs stand where they point, or in front."""
        places = [place for place, index in enumerate(self.indices) if index is not None]
        first = places[0] if places == list(range(places[0], places[-1] + 1)) else 0
        rest = [name for name in self.axes if name not in self.pointed]
        return [*rest[:first], *self.names, *rest[first:]]

    def shown(self, labels: Labels, first: int) -> list[object]:
        """The argument of indices, of which the first is operand `first`."""
        made: list[object] = []
        for index in self.indices:
            made.append(None if index is None else _block(labels, first, index, self.of(index)))
            first += index is not None
        while made and made[-1] is None:
            made.pop()
        return made


def _block(labels: Labels, number: int, value: Value, names: Sequence[str]) -> Shown:
    axes = zip(names, value.shape, strict=True)
    return Shown(number, tuple(labels.axis(name) if extent > 1 else () for name, extent in axes))


def _index(recorder: Recorder, application: Application) -> Made:
    """The axes that are pointed into are whole; those of the indices are free."""
    value = application.value("self")
    indices = _Indices(application, value)
    operands = [(value, indices.axes), *((index, indices.of(index)) for index in indices.tensors)]
    names = indices.result()
    result = Result(value.dtype, [[name] for name in names], dict(zip(names, application.shape, strict=True)))

    def arguments(labels: Labels) -> Arguments:
        return [_block(labels, 0, value, indices.axes), indices.shown(labels, 1)], {}

    return list(recorder.call(application.name, operands, [result], arguments, indices.pointed))


def _index_put(recorder: Recorder, application: Application) -> Made:
    """What is pointed into and the indices are whole; the other axes are free."""
    value, put = application.value("self"), application.value("values")
    accumulate = bool(application.arguments["accumulate"])
    mask = _only_mask(application)
    if mask is not None and math.prod(put.shape) == 1 and not accumulate:
        return _put_where(recorder, application, mask)
    indices = _Indices(application, value)
    names = indices.result()
    put_names = names[len(names) - len(put.axes) :]
    operands = [(value, indices.axes), *((index, indices.of(index)) for index in indices.tensors), (put, put_names)]
    result = Result(value.dtype, [[name] for name in indices.axes], {})

    def arguments(labels: Labels) -> Arguments:
        blocks = [_block(labels, 0, value, indices.axes), indices.shown(labels, 1)]
        return [*blocks, _block(labels, len(operands) - 1, put, put_names), accumulate], {}

    mixed = [*indices.pointed, *indices.names]
    return list(recorder.call("aten::index_put", operands, [result], arguments, mixed))


def _only_mask(application: Application) -> Value | None:
    """The mask of the first axes, where that alone is the index."""
    indices = application.arguments["indices"]
    assert isinstance(indices, list)
    first, others = indices[0], [index for index in indices[1:] if index is not None]
    return first if isinstance(first, Value) and first.dtype is torch.bool and not others else None


def _put_where(recorder: Recorder, application: Application, mask: Value) -> Made:
    """One element in all places of a mask: no shape depends on that."""
    value = application.value("self")
    missing = len(value.shape) - len(mask.shape)
    given = {
        "condition": recorder.reshaped(mask, (*mask.shape, *[1] * missing)),
        "self": recorder.reshaped(application.value("values"), ()),
        "other": value,
    }
    chosen = application.of(torch.ops.aten.where.self, given, [(application.shape, application.dtype)])
    return Pointwise()(recorder, chosen)


# --- along one axis ---------------------------------------------------------------------------------------------------


def _gather(recorder: Recorder, application: Application) -> Made:
    """The axis that is pointed into is whole; the others are free where the index has all of them."""
    value, index = application.value("self"), application.value("index")
    if not value.axes or not index.axes:
        return [recorder.reshaped(_gathered_line(recorder, application, value, index), index.shape)]
    dim = application.dim("dim", len(value.axes))
    before, after, mixed = [], [], []
    for axis, (extent, other) in enumerate(zip(value.shape, index.shape, strict=True)):
        before.append(f"a{axis}")
        after.append(f"g{axis}" if axis == dim or extent != other else f"a{axis}")
        mixed += [f"a{axis}"] if axis == dim else [f"a{axis}", f"g{axis}"] if extent != other else []
    text = f"{' '.join(before)}, {' '.join(after)} -> {' '.join(after)}"
    return Form(text, " ".join(mixed))(recorder, application)


def _gathered_line(recorder: Recorder, application: Application, value: Value, index: Value) -> Value:
    """A gather where one of the tensors has no axes, which counts as an axis of one element."""
    line = recorder.reshaped(value, (math.prod(value.shape),))
    places = recorder.reshaped(index, (math.prod(index.shape),))
    arguments = {"self": line, "dim": 0, "index": places}
    results = [(places.shape, value.dtype)]
    (made,) = _gather(recorder, application.of(application.operator, arguments, results))
    assert made is not None
    return made


def _scatter(recorder: Recorder, application: Application) -> Made:
    """The axis that is pointed into is whole in all tensors; the others are free where they are of one extent."""
    value, index, source = application.value("self"), application.value("index"), application.arguments.get("src")
    if not value.axes or not index.axes:
        return _scattered_line(recorder, application)
    dim = application.dim("dim", len(value.axes))
    shape = source.shape if isinstance(source, Value) else index.shape
    texts: list[list[str]] = [[], [], []]
    mixed: list[str] = []
    for axis, extents in enumerate(zip(value.shape, index.shape, shape, strict=True)):
        equal = axis != dim and len(set(extents)) == 1
        names = [f"a{axis}"] * 3 if equal else [f"a{axis}", f"g{axis}", f"s{axis}"]
        mixed += [] if equal else names
        for text, name in zip(texts, names, strict=True):
            text.append(name)
    used = texts if isinstance(source, Value) else texts[:2]
    left = ", ".join(" ".join(text) for text in used)
    return Form(f"{left} -> {' '.join(texts[0])}", " ".join(mixed))(recorder, application)


def _scattered_line(recorder: Recorder, application: Application) -> Made:
    """A scatter where a tensor has no axes, which counts as an axis of one element."""
    shape = application.shape
    changed: dict[str, object] = {"dim": 0}
    for name, value in application.tensors():
        changed[name] = recorder.reshaped(value, (math.prod(value.shape),))
    results = [((math.prod(shape),), application.dtype)]
    alone = application.of(application.operator, {**application.arguments, **changed}, results)
    (made,) = _scatter(recorder, alone)
    assert made is not None
    return [recorder.reshaped(made, shape)]


def _index_select(recorder: Recorder, application: Application) -> Made:
    value = application.value("self")
    dim = application.dim("dim", len(value.axes))
    names = [f"a{axis}" for axis in range(len(value.axes))]
    if not names:
        return [value]
    after = [*names[:dim], "g", *names[dim + 1 :]]
    return Form(f"{' '.join(names)}, g -> {' '.join(after)}", names[dim])(recorder, application)


def _index_add(recorder: Recorder, application: Application) -> Made:
    value = application.value("self")
    dim = application.dim("dim", len(value.axes))
    names = [f"a{axis}" for axis in range(len(value.axes))]
    if not names:
        return whole(recorder, application)
    added = [*names[:dim], "g", *names[dim + 1 :]]
    text = f"{' '.join(names)}, g, {' '.join(added)} -> {' '.join(names)}"
    return Form(text, f"{names[dim]} g")(recorder, application)


def _index_fill(recorder: Recorder, application: Application) -> Made:
    value = application.value("self")
    names = [f"a{axis}" for axis in range(len(value.axes))]
    if not names:
        return whole(recorder, application)
    element = ", " if isinstance(application.arguments["value"], Value) else ""
    text = f"{' '.join(names)}, g{element} -> {' '.join(names)}"
    return Form(text, f"{names[application.dim('dim', len(names))]} g")(recorder, application)


_TAKE = Form("*a, *i -> *i", "*a", flops="1 *i")
_PUT = Form("*a, i, i -> *a", "*a i", flops="1 i")
_BUCKETS = Form("*a, n -> *a", "n", flops="8 *a")
_AMONG = Form("*a, *b -> *a", "*b", flops="8 *a")


def _put(recorder: Recorder, application: Application) -> Made:
    """The order of indices and what is put counts, not their shapes."""
    flat = {name: application.value(name) for name in ("index", "source")}
    lines = {name: recorder.reshaped(value, (math.prod(value.shape),)) for name, value in flat.items()}
    return _PUT(recorder, application.with_arguments(lines))


def _search(recorder: Recorder, application: Application) -> Made:
    """Sorted rows belong to the rows of what is searched, or there is one for all."""
    rank = len(application.value("sorted_sequence").axes)
    shared = rank == 1 and len(application.shape) != 1
    sorter = ", *b n" if application.optional("sorter") is not None else ""
    text = f"n, *b{sorter.replace('*b ', '')} -> *b" if shared else f"*b n, *b m{sorter} -> *b m"
    return Form(text, "n", flops="8 *b" if shared else "8 *b m")(recorder, application)


ROWS: list[Row] = [
    *rows("lookups", "embedding", _embedding, "joinsum::embedding_part: rows fold by add, columns and batch are free"),
    *rows(
        "lookups",
        "embedding_dense_backward",
        _embedding_backward,
        "joinsum::embedding_backward_part: the batch folds by add, rows and columns are free",
    ),
    *rows("indexing", "index.Tensor", _index, "the axes that indices point into are whole"),
    *rows(
        "indexing", "index_put _unsafe_index_put", _index_put, "the axes pointed into and those of indices are whole"
    ),
    *rows("indexing", "_unsafe_index.Tensor", _index, "the axes that indices point into are whole"),
    *rows("indexing", "gather", _gather, "`dim` is whole, that of the index is free"),
    *rows(
        "indexing",
        "scatter.src scatter.value scatter_add scatter_reduce.two",
        _scatter,
        "`dim` is whole in all tensors; other labels free",
    ),
    *rows("indexing", "index_select", _index_select, "`dim` is whole, that of the index is free"),
    *rows("lookups", "_embedding_bag _embedding_bag_backward", whole, "all labels whole"),
    *rows("indexing", "index_add index_copy", _index_add, "`dim` is whole in all tensors"),
    *rows("indexing", "index_fill.int_Scalar index_fill.int_Tensor", _index_fill, "`dim` is whole"),
    *rows("indexing", "take", _TAKE, _TAKE.described),
    *rows("indexing", "bucketize.Tensor", _BUCKETS, _BUCKETS.described),
    *rows("indexing", "searchsorted.Tensor", _search, "the sorted axis is whole"),
    *rows("indexing", "isin.Tensor_Tensor", _AMONG, _AMONG.described),
    *rows("indexing", "put", _put, _PUT.described),
    *rows("indexing", "masked_scatter masked_scatter_backward", whole, "all labels whole"),
]
