"""Products of matrices and einsums: they keep their labels, and become einsums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from joinsum import _C
from joinsum.capture.application import Application
from joinsum.capture.axes import fresh
from joinsum.capture.operators.elementwise import as_dtype, right_aligned
from joinsum.capture.operators.form import Form
from joinsum.capture.operators.row import Made, Row, rows
from joinsum.capture.recorder import Names, Recorder, Value
from joinsum.dtypes import torch_dtype

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


def _product(recorder: Recorder, application: Application) -> Made:
    """A product of two operands, plus a tensor where the operator adds one: β self + α product."""
    left, right, result = _PRODUCTS[application.operator._opname]
    values = [value for _, value in application.tensors()]
    added = values[:-2]
    made = recorder.einsum([(values[-2], left), (values[-1], right)], result, "mul")
    alpha, beta = application.arguments.get("alpha", 1), application.arguments.get("beta", 1)
    assert isinstance(alpha, (int, float))
    assert isinstance(beta, (int, float))
    made = recorder.scaled(made, float(alpha)) if alpha != 1 else made
    if not added or beta == 0:
        return [made]
    more = recorder.scaled(added[0], float(beta)) if beta != 1 else added[0]
    names, order = right_aligned([made, more])
    return [recorder.einsum([(made, names[0]), (more, names[1])], order, "add")]


def _einsum(recorder: Recorder, application: Application) -> Made:
    """joinsum::einsum(equation, operands): the equation has explicit labels, each once in an operand."""
    equation = application.arguments["equation"]
    operands = application.arguments["operands"]
    assert isinstance(equation, str)
    assert isinstance(operands, list)
    left, result = equation.split("->")
    given: list[tuple[Value, Names]] = []
    for value, labels in zip(operands, left.split(","), strict=True):
        given.append((as_dtype(recorder, value, application.dtype), labels))
    return [_contracted(recorder, given, result)]


def _einsum_graph(recorder: Recorder, application: Application) -> Made:
    """joinsum::einsum_graph(graph, inputs): the graph's einsums, one by one."""
    text = application.arguments["graph"]
    assert isinstance(text, str)
    graph = _C.EinsumPlan.parse(text)
    shapes = graph.shapes
    values = {name: value for (name, _), value in zip(graph.inputs, application.values("inputs"), strict=True)}
    for name, inputs, labels, result, join, aggregate, extents in graph.vertices:
        operands = list(zip((values[each] for each in inputs), labels, strict=True))
        dtype = torch_dtype(shapes[name][0])
        values[name] = _vertex(recorder, operands, (result, extents), (join, aggregate), dtype)
    return [values[node] for node in graph.output_nodes]


def _vertex(
    recorder: Recorder,
    operands: Sequence[tuple[Value, Names]],
    result: tuple[Names, Mapping[str, int]],
    kernels: tuple[str, str],
    dtype: torch.dtype,
) -> Value:
    """An einsum; along the labels that only the result has, whose extents are given, it repeats."""
    labels, new = result
    join, aggregate = kernels
    if aggregate not in ("max", "min") and not (aggregate == "add" and dtype.is_floating_point):
        # Elements that repeat count as often as they do.
        operands = [(recorder.stored(value), names) for value, names in operands]
    own = [label for label in labels if label not in new]
    made = recorder.einsum(operands, own, join, aggregate, dtype)
    axes = iter(made.axes)
    return Value(made.source, tuple(fresh(new[label]) if label in new else next(axes) for label in labels))


def _contracted(recorder: Recorder, operands: Sequence[tuple[Value, Names]], result: Names) -> Value:
    return recorder.einsum(operands, result, "mul" if len(operands) > 1 else "id")


# By the numbers of axes of the operands: the groups divide the axis t.
_GROUPS: dict[tuple[int, int], Form] = {
    (2, 3): Form("t k, e k n, e -> t n", "t e", "k=add", flops="2 t k n"),
    (3, 2): Form("e m k, k t, e -> m t", "t e", "k=add", flops="2 t k m"),
    (2, 2): Form("m t, t n, e -> e m n", "t e", flops="2 t m n"),
}


def _grouped(recorder: Recorder, application: Application) -> Made:
    """A product for each group of an axis, whose ends `offs` holds; without it one for each pair of matrices."""
    left, right, ends = application.value("self"), application.value("mat2"), application.optional("offs")
    if application.optional("bias") is not None or left.dtype is not application.dtype:
        application.refuse("it adds a bias, or gives another dtype")
    if ends is None:
        return [recorder.einsum([(left, "bik"), (right, "bkj")], "bij", "mul")]
    given = {"left": left, "right": right, "ends": ends}
    result = (application.shape, application.dtype)
    form = _GROUPS[len(left.axes), len(right.axes)]
    return form(recorder, application.of(torch.ops.joinsum.grouped_product.default, given, [result]))


# Distances of rows; the features are whole.
_DISTANCE = Form("*b m k, *b n k -> *b m n", "k", flops="3 *b m n k")
_DISTANCE_BACKWARD = Form("*b m n, *b m k, *b n k, *b m n -> *b m k", "k", "n=add", flops="4 *b m n k")

_GROUPED = Form("t k, e k n, e -> t n", "t e", "k=add", flops="2 t k n")
_GROUPED_BACKWARD = Form("t k, e k n, e, t n -> t k, e k n", "t e n", flops="4 t k n")

ROWS: list[Row] = [
    *rows("contractions", "mm bmm mv dot vdot", _product, "an einsum; merged axes keep their labels"),
    *rows("contractions", "addmm baddbmm addbmm addmv addr", _product, "an einsum, and its sum with the added tensor"),
    *rows("contractions", "joinsum::einsum", _einsum, "an einsum with these labels"),
    *rows("contractions", "joinsum::einsum_graph", _einsum_graph, "the einsums of `joinsum.einsum` and its gradients"),
    *rows(
        "contractions",
        "_grouped_mm",
        _grouped,
        "joinsum::grouped_product: groups are whole, what is contracted folds by add",
    ),
    *rows("contractions", "_cdist_forward", _DISTANCE, _DISTANCE.described),
    *rows("contractions", "_cdist_backward", _DISTANCE_BACKWARD, _DISTANCE_BACKWARD.described),
    *rows("contractions", "transformers::grouped_mm_fallback", _GROUPED, _GROUPED.described),
    *rows("contractions", "transformers::grouped_mm_fallback_backward", _GROUPED_BACKWARD, _GROUPED_BACKWARD.described),
]
