"""Gathers, scatters and lookups: axes that indices point into are undivided, or each shard gives partial results."""

from __future__ import annotations

import math

import torch

from joinsum.capture.recording.application import Application
from joinsum.capture.recording.values import Arguments, Names, Result, Value, axis_names
from joinsum.capture.recording.vertices import CallRule, Labels, call_operator, reshaped
from joinsum.capture.rules.form import Form, form_of, shard_of
from joinsum.capture.rules.pointwise import Pointwise
from joinsum.capture.rules.row import Entry, Results, rows
from joinsum.capture.rules.undivided import undivided

__all__ = ["ROWS"]

# --- tables -----------------------------------------------------------------------------------------------------------

_LOOKUP = Form("v d, *b -> *b d", reduce="v=add", shards=shard_of("v"), flops="1 *b d")
_LOOKUP_BACKWARD = Form("*b d, *b, v -> v d", reduce="*b=add", flops="1 *b d")
_BY_FREQUENCY = Form("*b d, *b -> v d", undivided="*b v", sizes={"num_weights": "v"}, flops="1 *b d")


def _embedding(application: Application) -> Results:
    arguments = {"table": application.value("weight"), "index": application.value("indices")}
    return _LOOKUP.apply(application, torch.ops.joinsum.embedding_shard.default, arguments, application.type)


def _embedding_backward(application: Application) -> Results:
    if application.arguments["scale_grad_by_freq"]:
        return _BY_FREQUENCY(application)
    extent = application.shape[0]
    arguments = {
        "grad": application.value("grad_output"),
        "index": application.value("indices"),
        # Its shard on a site has the numbers of the rows whose gradients that site computes.
        "rows": application.recorder.computed((extent,), torch.arange, extent),
        "padding": application.arguments["padding_idx"],
        "extent": extent,
    }
    operator = torch.ops.joinsum.embedding_backward_shard.default
    return _LOOKUP_BACKWARD.apply(application, operator, arguments, application.type)


def _lookup_update(tables: int, numbers: int) -> Form:
    """The update of a table and its moments, `tables` in all, by the gradient of what a lookup found."""
    operands = [*["v d"] * tables, "*b d", "*b", *[""] * numbers]
    pattern = f"{', '.join(operands)} -> {', '.join(['v d'] * tables)}"
    return Form(pattern, undivided="*b", shards=shard_of("v"), flops=f"{2 * tables} *b d")


# --- index and index_put ----------------------------------------------------------------------------------------------


class _Indices:
    """Names of the axes of a tensor that indices point into."""

    def __init__(self, application: Application, value: Value) -> None:
        indices = application.arguments["indices"]
        assert isinstance(indices, list)
        self.indices = [*indices, *[None] * (len(value.axes) - len(indices))]
        self.tensors = [index for index in self.indices if index is not None]
        if any(index.dtype in (torch.bool, torch.uint8) for index in self.tensors):
            application.refuse("an index of truth values gives a shape that depends on data")
        rank = max(len(index.axes) for index in self.tensors)
        self.names = [f"i{axis}" for axis in range(rank)]
        self.axes = axis_names(len(value.axes))
        self.indexed = [name for name, index in zip(self.axes, self.indices, strict=True) if index is not None]

    def operands(self, value: Value) -> list[tuple[Value, Names]]:
        """The tensor and the indices, with names of their axes."""
        return [(value, self.axes), *((index, self.of(index)) for index in self.tensors)]

    def of(self, index: Value) -> list[str]:
        """Names of the axes of an index, which broadcasts."""
        return self.names[len(self.names) - len(index.axes) :]

    def result(self) -> list[str]:
        """Names of the axes of the indexed elements: the axes of the indices replace the indexed ones where these are
        adjacent, and come first where they are not."""
        axes = [axis for axis, index in enumerate(self.indices) if index is not None]
        first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
        rest = [name for name in self.axes if name not in self.indexed]
        return [*rest[:first], *self.names, *rest[first:]]

    def arguments(self, labels: Labels, value: Value) -> list[object]:
        """The tensor and the list of indices, as `operands` numbers them."""
        blocks: list[object] = []
        operand = 1
        for index in self.indices:
            blocks.append(None if index is None else labels.block(operand, index, self.of(index)))
            operand += index is not None
        while blocks and blocks[-1] is None:
            blocks.pop()
        return [labels.block(0, value, self.axes), blocks]


def _index(application: Application) -> Results:
    """The indexed axes are undivided; those of the indices may be divided."""
    value = application.value("self")
    indices = _Indices(application, value)
    names = indices.result()
    result = Result(value.dtype, [[name] for name in names], dict(zip(names, application.shape, strict=True)))

    def arguments(labels: Labels) -> Arguments:
        return indices.arguments(labels, value), {}

    rule = CallRule(undivided=indices.indexed)
    return call_operator(application.name, indices.operands(value), [result], arguments, rule)


def _index_put(application: Application) -> Results:
    """The indexed axes and those of the indices are undivided; the others may be divided."""
    value, source = application.value("self"), application.value("values")
    accumulate = bool(application.arguments["accumulate"])
    mask = _only_mask(application)
    if mask is not None and math.prod(source.shape) == 1 and not accumulate:
        return _filled_where(application, mask)
    indices = _Indices(application, value)
    names = indices.result()
    own = names[len(names) - len(source.axes) :]
    operands = [*indices.operands(value), (source, own)]
    result = Result(value.dtype, [[name] for name in indices.axes], {})

    def arguments(labels: Labels) -> Arguments:
        return [*indices.arguments(labels, value), labels.block(len(operands) - 1, source, own), accumulate], {}

    rule = CallRule(undivided=[*indices.indexed, *indices.names])
    return call_operator("aten::index_put", operands, [result], arguments, rule)


def _only_mask(application: Application) -> Value | None:
    """The mask of the first axes, where that alone is the index."""
    indices = application.arguments["indices"]
    assert isinstance(indices, list)
    first, others = indices[0], [index for index in indices[1:] if index is not None]
    return first if isinstance(first, Value) and first.dtype is torch.bool and not others else None


def _filled_where(application: Application, mask: Value) -> Results:
    """One element wherever a mask is true: no shape depends on the mask's elements."""
    value = application.value("self")
    arguments = {
        "condition": reshaped(mask, (*mask.shape, *[1] * (len(value.shape) - len(mask.shape)))),
        "self": reshaped(application.value("values"), ()),
        "other": value,
    }
    return Pointwise()(application.of(torch.ops.aten.where.self, arguments, application.type))


# --- along one axis ---------------------------------------------------------------------------------------------------


def _flat(value: Value) -> Value:
    return reshaped(value, (math.prod(value.shape),))


def _gather(application: Application) -> Results:
    """The indexed axis is undivided; the others may be divided where the index has all of their elements."""
    value, index = application.value("self"), application.value("index")
    if not value.axes or not index.axes:
        return _gather_of_scalars(application, value, index)
    dim = application.dim("dim", len(value.axes))
    before, after, mixed = [], [], []
    for axis, (extent, other) in enumerate(zip(value.shape, index.shape, strict=True)):
        before.append(f"a{axis}")
        after.append(f"g{axis}" if axis == dim or extent != other else f"a{axis}")
        mixed += [f"a{axis}"] if axis == dim else [f"a{axis}", f"g{axis}"] if extent != other else []
    return form_of([before, after], [after], mixed)(application)


def _gather_of_scalars(application: Application, value: Value, index: Value) -> Results:
    """A gather where one of the tensors has no axes, which counts as an axis of one element."""
    arguments = {"self": _flat(value), "dim": 0, "index": _flat(index)}
    (result,) = _gather(application.of(application.operator, arguments, (_flat(index).shape, value.dtype)))
    assert result is not None
    return [reshaped(result, index.shape)]


def _scatter(application: Application) -> Results:
    """The indexed axis is undivided in all tensors; the others may be divided where their extents are equal."""
    value, index, source = application.value("self"), application.value("index"), application.arguments.get("src")
    if not value.axes or not index.axes:
        return _scatter_of_scalars(application)
    dim = application.dim("dim", len(value.axes))
    shape = source.shape if isinstance(source, Value) else index.shape
    axes: list[list[str]] = [[], [], []]
    mixed: list[str] = []
    for axis, extents in enumerate(zip(value.shape, index.shape, shape, strict=True)):
        equal = axis != dim and all(extent == extents[0] for extent in extents)
        names = [f"a{axis}"] * 3 if equal else [f"a{axis}", f"g{axis}", f"s{axis}"]
        mixed += [] if equal else names
        for own, name in zip(axes, names, strict=True):
            own.append(name)
    return form_of(axes if isinstance(source, Value) else axes[:2], axes[:1], mixed)(application)


def _scatter_of_scalars(application: Application) -> Results:
    """A scatter where a tensor has no axes, which counts as an axis of one element."""
    shape = application.shape
    arguments = application.arguments | {name: _flat(value) for name, value in application.tensors()} | {"dim": 0}
    (result,) = _scatter(application.of(application.operator, arguments, ((math.prod(shape),), application.dtype)))
    assert result is not None
    return [reshaped(result, shape)]


def _index_select(application: Application) -> Results:
    value = application.value("self")
    names = axis_names(len(value.axes))
    if not names:
        return [value]
    dim = application.dim("dim", len(names))
    return form_of([names, ["g"]], [[*names[:dim], "g", *names[dim + 1 :]]], [names[dim]])(application)


def _index_add(application: Application) -> Results:
    names = axis_names(len(application.shape))
    if not names:
        return undivided(application)
    dim = application.dim("dim", len(names))
    source = [*names[:dim], "g", *names[dim + 1 :]]
    return form_of([names, ["g"], source], [names], [names[dim], "g"])(application)


def _index_fill(application: Application) -> Results:
    names = axis_names(len(application.shape))
    if not names:
        return undivided(application)
    element: list[Names] = [[]] if isinstance(application.arguments["value"], Value) else []
    return form_of([names, ["g"], *element], [names], [names[application.dim("dim", len(names))], "g"])(application)


_TAKE = Form("*a, *i -> *i", "*a", flops="1 *i")
_PUT = Form("*a, i, i -> *a", "*a i", flops="1 i")
_BUCKETS = Form("*a, n -> *a", "n", flops="8 *a")
_AMONG = Form("*a, *b -> *a", "*b", flops="8 *a")


def _put(application: Application) -> Results:
    """Only the order of the indices and of the source's elements counts, not their shapes."""
    return _PUT(application.with_arguments({name: _flat(application.value(name)) for name in ("index", "source")}))


def _search(application: Application) -> Results:
    """Each row of values has a sorted row, or there is one sorted row for all."""
    rank = len(application.value("sorted_sequence").axes)
    shared = rank == 1 and len(application.shape) != 1
    sorter = ", *b n" if application.optional("sorter") is not None else ""
    text = f"n, *b{sorter.replace('*b ', '')} -> *b" if shared else f"*b n, *b m{sorter} -> *b m"
    return Form(text, "n", flops="8 *b" if shared else "8 *b m")(application)


ROWS = [
    *rows(
        "lookups",
        Entry(
            "embedding",
            _embedding,
            "joinsum::embedding_shard: rows are reduced by add, columns and batch may be divided",
        ),
        Entry(
            "embedding_dense_backward",
            _embedding_backward,
            "joinsum::embedding_backward_shard: the batch is reduced by add, rows and columns may be divided",
        ),
        *(
            Entry(f"joinsum::{name}_lookup_update", _lookup_update(tables, numbers), "rows and columns may be divided")
            for name, tables, numbers in (("sgd", 1, 1), ("adagrad", 2, 2), ("sparse_adam", 3, 4))
        ),
        Entry("_embedding_bag _embedding_bag_backward", undivided, "all labels undivided"),
    ),
    *rows(
        "indexing",
        Entry("index.Tensor _unsafe_index.Tensor", _index, "the axes that indices point into are undivided"),
        Entry("index_put _unsafe_index_put", _index_put, "the axes pointed into and those of indices are undivided"),
        Entry("gather", _gather, "`dim` is undivided, that of the index may be divided"),
        Entry(
            "scatter.src scatter.value scatter_add scatter_reduce.two",
            _scatter,
            "`dim` is undivided in all tensors; other labels may be divided",
        ),
        Entry("index_select", _index_select, "`dim` is undivided, that of the index may be divided"),
        Entry("index_add index_copy", _index_add, "`dim` is undivided in all tensors"),
        Entry("index_fill.int_Scalar index_fill.int_Tensor", _index_fill, "`dim` is undivided"),
        Entry("take", _TAKE),
        Entry("bucketize.Tensor", _BUCKETS),
        Entry("searchsorted.Tensor", _search, "the sorted axis is undivided"),
        Entry("isin.Tensor_Tensor", _AMONG),
        Entry("put", _put, _PUT.described),
        Entry("masked_scatter masked_scatter_backward", undivided, "all labels undivided"),
    ),
]
