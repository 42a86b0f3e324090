"""Products of matrices and einsums, which become einsums of the same labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from joinsum import _C
from joinsum.base.dtypes import torch_dtype
from joinsum.capture.operators.elementwise import right_aligned
from joinsum.capture.recording.application import Application
from joinsum.capture.recording.axes import fresh
from joinsum.capture.recording.values import Names, Value, axis_names
from joinsum.capture.recording.vertices import as_dtype, einsum, expanded, materialized, scaled
from joinsum.capture.rules.form import Form
from joinsum.capture.rules.row import Entry, Results, Rule, rows

__all__ = ["ROWS"]

# Labels of the operands and the result of each product, by the operator's name.
_PRODUCTS: dict[str, tuple[str, str, str]] = {
    "mm": ("ik", "kj", "ij"),
    "bmm": ("bik", "bkj", "bij"),
    "mv": ("ik", "k", "i"),
    "dot": ("k", "k", ""),
    "vdot": ("k", "k", ""),
    "addmm": ("ik", "kj", "ij"),
    "addbmm": ("bik", "bkj", "ij"),
    "addr": ("i", "j", "ij"),
    "baddbmm": ("bik", "bkj", "bij"),
    "addmv": ("ik", "k", "i"),
}


def _product(application: Application) -> Results:
    """A product of two operands, plus a tensor where the operator adds one: β self + α product."""
    left, right, result = _PRODUCTS[application.operator._opname]
    *added, first, second = (value for _, value in application.tensors())
    product = einsum([(first, left), (second, right)], result, "mul")
    alpha, beta = (application.scalar(name) * 1.0 if added else 1.0 for name in ("alpha", "beta"))
    product = scaled(product, alpha) if alpha != 1 else product
    if not added or beta == 0:
        return [product]
    return [einsum(*right_aligned([product, scaled(added[0], beta) if beta != 1 else added[0]]), "add")]


def _trilinear(application: Application) -> Results:
    """Three operands, each with axes of one element where it is expanded, summed over some axes."""
    values = [application.value(name) for name in ("i1", "i2", "i3")]
    expanded = [application.numbers(name) for name in ("expand1", "expand2", "expand3")]
    rank = len(values[0].shape) + len(expanded[0])
    names = axis_names(rank)
    operands = [
        (value, [name for axis, name in enumerate(names) if axis not in axes])
        for value, axes in zip(values, expanded, strict=True)
    ]
    summed = application.numbers("sumdim")
    return [einsum(operands, [name for axis, name in enumerate(names) if axis not in summed], "mul")]


def _einsum(application: Application) -> Results:
    """joinsum::einsum(equation, operands): the equation has explicit labels, each once in an operand."""
    equation = application.arguments["equation"]
    assert isinstance(equation, str)
    left, result = equation.split("->")
    values = [as_dtype(value, application.dtype) for value in application.values("operands")]
    operands = list(zip(values, left.split(","), strict=True))
    return [einsum(operands, result, "mul" if len(operands) > 1 else "id")]


def _einsum_graph(application: Application) -> Results:
    """joinsum::einsum_graph(graph, inputs): the graph's einsums, one by one."""
    text = application.arguments["graph"]
    assert isinstance(text, str)
    graph = _C.EinsumPlan.parse(text)
    shapes = graph.shapes
    values = {name: value for (name, _), value in zip(graph.inputs, application.values("inputs"), strict=True)}
    for name, inputs, labels, result, join, aggregate, extents in graph.vertices:
        operands = list(zip((values[each] for each in inputs), labels, strict=True))
        dtype = torch_dtype(shapes[name][0])
        values[name] = _vertex(operands, (result, extents), (join, aggregate), dtype)
    return [values[node] for node in graph.output_nodes]


def _vertex(
    operands: Sequence[tuple[Value, Names]],
    result: tuple[Names, Mapping[str, int]],
    kernels: tuple[str, str],
    dtype: torch.dtype,
) -> Value:
    """An einsum, repeated along the labels that only the result has, whose extents are the second part of `result`."""
    labels, new = result
    join, aggregate = kernels
    if aggregate not in ("max", "min") and not (aggregate == "add" and dtype.is_floating_point):
        # The aggregate takes a repeated element as often as it is repeated.
        operands = [(materialized(value), names) for value, names in operands]
    value = einsum(operands, [label for label in labels if label not in new], join, aggregate, dtype)
    axes = iter(value.axes)
    return Value(value.producer, tuple(fresh(new[label]) if label in new else next(axes) for label in labels))


# By the numbers of axes of the operands: the groups divide the axis t.
_GROUPS: dict[tuple[int, int], Form] = {
    (2, 3): Form("t k, e k n, e -> t n", "t e", "k=add", flops="2 t k n"),
    (3, 2): Form("e m k, k t, e -> m t", "t e", "k=add", flops="2 t k m"),
    (2, 2): Form("m t, t n, e -> e m n", "t e", flops="2 t m n"),
}


def _grouped(application: Application) -> Results:
    """A product for each group of an axis, whose ends `offs` holds; without it one for each pair of matrices."""
    left, right, ends = application.value("self"), application.value("mat2"), application.optional("offs")
    if application.optional("bias") is not None or left.dtype is not application.dtype:
        application.refuse("it adds a bias, or gives another dtype")
    if ends is None:
        return [einsum([(left, "bik"), (right, "bkj")], "bij", "mul")]
    form = _GROUPS[len(left.axes), len(right.axes)]
    operands = {"left": left, "right": right, "ends": ends}
    return form.apply(application, torch.ops.joinsum.grouped_product.default, operands, application.type)


# Distances of rows, whose features are undivided.
_DISTANCE = Form("*b m k, *b n k -> *b m n", "k", flops="3 *b m n k")
_DISTANCE_BACKWARD = Form("*b m n, *b m k, *b n k, *b m n -> *b m k", "k", "n=add", flops="4 *b m n k")


def _distances(form: Form) -> Rule:
    """Of rows whose batches broadcast."""

    def rule(application: Application) -> Results:
        rows = {name: application.value(name) for name in ("x1", "x2")}
        batch = torch.broadcast_shapes(*(value.shape[:-2] for value in rows.values()))  # type: ignore[no-untyped-call]
        whole = {name: expanded(value, (*batch, *value.shape[-2:])) for name, value in rows.items()}
        return form(application.with_arguments(whole))

    return rule


_GROUPED = Form("t k, e k n, e -> t n", "t e", "k=add", flops="2 t k n")
_GROUPED_BACKWARD = Form("t k, e k n, e, t n -> t k, e k n", "t e n", flops="4 t k n")

ROWS = rows(
    "contractions",
    Entry("mm bmm mv dot vdot", _product, "an einsum; merged axes keep their labels"),
    Entry("addmm baddbmm addbmm addmv addr", _product, "an einsum, and its sum with the added tensor"),
    Entry("_trilinear", _trilinear, "an einsum of three operands"),
    Entry("joinsum::einsum", _einsum, "an einsum with these labels"),
    Entry("joinsum::einsum_graph", _einsum_graph, "the einsums of `joinsum.einsum` and its gradients"),
    Entry(
        "_grouped_mm", _grouped, "joinsum::grouped_product: groups are undivided, what is contracted is reduced by add"
    ),
    Entry("_cdist_forward", _distances(_DISTANCE), _DISTANCE.described),
    Entry("_cdist_backward", _distances(_DISTANCE_BACKWARD), _DISTANCE_BACKWARD.described),
    Entry("transformers::grouped_mm_fallback", _GROUPED),
    Entry("transformers::grouped_mm_fallback_backward", _GROUPED_BACKWARD),
)
