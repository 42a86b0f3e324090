"""Contractions of a Dynamo graph as one operator with labels, `joinsum::einsum`, RMS norms as `joinsum::rms_norm`, and
bags of embeddings as operators that have rules.

AOTAutograd turns linear, matmul and einsum into views and products of matrices, and RMS norms into six operators.
Rewritten before that, they remain einsums and norms, forward and backward: the gradient of `joinsum::einsum` is
`joinsum::einsum`.
"""

from __future__ import annotations

import operator
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, NoReturn

import torch
from torch import fx

from joinsum.base.errors import CaptureError
from joinsum.capture.decompositions.embedding_bag import embedding_bag
from joinsum.capture.numbered_gradients import numbered_gradients
from joinsum.capture.recording.application import module_path, source_line
from joinsum.capture.sparse_calls import register_sparse_calls

__all__ = ["SPARSE_GRADIENT", "rewrite"]

register_sparse_calls()

# In the metadata of a placeholder of a Dynamo graph that is a table: whether torch makes the gradients of all of its
# lookups sparse.
SPARSE_GRADIENT = "joinsum.sparse_gradient"

# --- the graph --------------------------------------------------------------------------------------------------------


def rewrite(gm: fx.GraphModule, contractions: bool = True) -> int:
    """Rewrites rms_norm, embedding_bag, torch.sparse's products, to_dense and, with `contractions`, linear, matmul,
    `@`, mm, bmm, mv, addmm, baddbmm and einsum in place; returns how many.

    Not rewritten: operands that are no tensors of known shape, equations with `...`, repeated labels or without a
    result, products whose contracted axis broadcasts, norms of half types, and operators inside of torch.func's
    transforms (vmap, grad).

    Lookups whose gradients would be sparse get dense ones, which torch can trace, and mark their tables.

    Raises CaptureError for an embedding_bag with a greatest norm.

    >>> from torch import fx
    >>> gm = fx.symbolic_trace(lambda x, w: torch.nn.functional.linear(x, w))
    >>> for node, shape in zip(gm.graph.nodes, [(2, 3, 4), (5, 4), (2, 3, 5)]):
    ...     node.meta["example_value"] = torch.empty(shape)  # as Dynamo leaves it
    >>> rewrite(gm), gm(torch.ones(2, 3, 4), torch.ones(5, 4)).shape
    (1, torch.Size([2, 3, 5]))
    """
    kinds = _ALWAYS | _CONTRACTIONS if contractions else _ALWAYS
    count = depth = 0
    for each in gm.modules():
        if isinstance(each, fx.GraphModule) and each is not gm and any(map(_make_dense, each.graph.nodes)):
            each.recompile()
    for node in list(gm.graph.nodes):
        depth += _nesting(node)
        if depth > 0:
            _make_dense(node)
        if node.target is torch.autograd.grad:
            node.target, count = numbered_gradients, count + 1
        if depth > 0:
            continue
        kind = kinds.get(node.target) if node.op in ("call_function", "call_method") else None
        if kind is None:
            continue
        before = node.prev
        with gm.graph.inserting_before(node):
            new = kind(_Call(gm.graph, node))
        if new is None:
            continue
        added, place = node.prev, {key: x for key, x in node.meta.items() if key in ("stack_trace", "nn_module_stack")}
        while added is not before:
            added.meta |= place
            added = added.prev
        if "example_value" in node.meta:
            new.meta["example_value"] = node.meta["example_value"]
        node.replace_all_uses_with(new)
        gm.graph.erase_node(node)
        count += 1
    if count:
        gm.graph.lint()
        gm.recompile()
    return count


def _nesting(node: fx.Node) -> int:
    """1 where a transform of torch.func begins, -1 where it ends."""
    name = getattr(node.target, "__name__", "")
    return name.endswith("_increment_nesting") - name.endswith("_decrement_nesting")


@dataclass(frozen=True)
class _Call:
    """A call of a contraction or a norm in a Dynamo graph."""

    graph: fx.Graph
    node: fx.Node

    def arguments(self, *names: str) -> list[Any]:
        """The arguments of these names; None for arguments that are left out."""
        arguments = dict(zip(names, self.node.args, strict=False)) | dict(self.node.kwargs)
        if set(arguments) - set(names) or len(self.node.args) > len(names):
            return [None] * len(names)
        return [arguments.get(name) for name in names]

    def einsum(self, equation: str, operands: Sequence[fx.Node]) -> fx.Node:
        """A call of the operator. It reads an input in place of its transpose: then the backward pass saves the input,
        and a sparse one has no views in plans."""
        left, _, result = equation.partition("->")
        labels = left.split(",")
        nodes = list(operands)
        for place, node in enumerate(operands):
            if _is_transposed_input(node):
                nodes[place], labels[place] = node.args[0], labels[place][::-1]  # type: ignore[assignment]
        return self.graph.call_function(torch.ops.joinsum.einsum.default, (f"{','.join(labels)}->{result}", nodes))


def _is_transposed_input(node: fx.Node) -> bool:
    """Whether a node is the transpose of an input that is a matrix."""
    source = node.args[0] if node.args and not node.kwargs else None
    if not isinstance(source, fx.Node) or source.op != "placeholder" or len(_shape(source) or ()) != 2:
        return False
    how = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return [how, *node.args[1:]] in _TRANSPOSES


_TRANSPOSES = [
    ["t"],
    ["getattr", "T"],
    ["getattr", "mT"],
    *(["transpose", *axes] for axes in ((0, 1), (1, 0), (-1, -2), (-2, -1), (0, -1), (-1, 0))),
]


def _shape(node: Any) -> tuple[int, ...] | None:
    """Shape of a node's result; None where it is no dense tensor."""
    value = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    return tuple(value.shape) if isinstance(value, torch.Tensor) and value.layout == torch.strided else None


def _linear(call: _Call) -> fx.Node | None:
    x, weight, bias = call.arguments("input", "weight", "bias")
    shape, of_weight = _shape(x), _shape(weight)
    if not shape or of_weight is None or len(of_weight) != 2:
        return None
    batch = string.ascii_lowercase[: len(shape) - 1]
    product = call.einsum(f"{batch}Y,ZY->{batch}Z", [x, weight])
    return product if bias is None else _plus(call, product, bias)


def _plus(call: _Call, product: fx.Node, bias: fx.Node) -> fx.Node:
    """The sum with a bias, in the dtype of the product as autocast has it."""
    dtype = call.node.meta["example_value"].dtype
    if bias.meta.get("example_value") is None or bias.meta["example_value"].dtype != dtype:
        bias = call.graph.call_method("to", (bias, dtype))
    return call.graph.call_function(operator.add, (product, bias))


def _matmul(call: _Call) -> fx.Node | None:
    if call.node.kwargs and set(call.node.kwargs) - {"other", "input", "mat2", "vec"}:
        return None
    operands = [*call.node.args, *call.node.kwargs.values()]
    nodes = [each for each in operands if isinstance(each, fx.Node)]
    if len(operands) != 2 or len(nodes) != 2:
        return None
    left, right = nodes
    a, b = _shape(left), _shape(right)
    if not a or not b:
        return None
    if a[-1] != (b[-2] if len(b) > 1 else b[-1]):
        return None
    rank = max(len(a), len(b)) - 2
    batch = string.ascii_lowercase[: max(rank, 0)]
    x, left_batch = _without_ones(call, left, a[:-2], b[:-2], batch)
    y, right_batch = _without_ones(call, right, b[:-2], a[:-2], batch)
    rows, columns = ("X" if len(a) > 1 else ""), ("Z" if len(b) > 1 else "")
    return call.einsum(f"{left_batch}{rows}Y,{right_batch}Y{columns}->{batch}{rows}{columns}", [x, y])


def _without_ones(
    call: _Call, node: fx.Node, own: Sequence[int], other: Sequence[int], batch: str
) -> tuple[fx.Node, str]:
    """An operand without the batch axes of one element that broadcast, and the labels of the others."""
    labels = batch[len(batch) - len(own) :]
    padded = [1] * (len(batch) - len(other)) + list(other)
    ones = [axis for axis, extent in enumerate(own) if extent == 1 and padded[len(batch) - len(own) + axis] != 1]
    for axis in reversed(ones):
        node = call.graph.call_method("squeeze", (node, axis))
    return node, "".join(label for axis, label in enumerate(labels) if axis not in ones)


def _added(names: Sequence[str]) -> Callable[[_Call], fx.Node | None]:
    """addmm and baddbmm: β input + α product."""

    def rule(call: _Call) -> fx.Node | None:
        added, left, right, beta, alpha = call.arguments("input", *names, "beta", "alpha")
        a, b = _shape(left), _shape(right)
        if a is None or b is None or added is None or beta == 0:
            return None
        batch = "a" * (len(a) - 2)
        product = call.einsum(f"{batch}XY,{batch}YZ->{batch}XZ", [left, right])
        if alpha is not None and alpha != 1:
            product = call.graph.call_function(operator.mul, (product, alpha))
        if beta is not None and beta != 1:
            added = call.graph.call_function(operator.mul, (added, beta))
        return _plus(call, product, added)

    return rule


def _einsum(call: _Call) -> fx.Node | None:
    """torch.einsum: equations with explicit labels, each once in an operand."""
    arguments: list[Any] = list(call.node.args)
    equation, *operands = arguments
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = list(operands[0])
    shapes = [_shape(each) for each in operands]
    if not isinstance(equation, str) or "." in equation or "->" not in equation or None in shapes:
        return None
    left, result = equation.replace(" ", "").split("->")
    labels = left.split(",")
    extents: dict[str, int] = {}
    for own, shape in zip(labels, shapes, strict=True):
        assert shape is not None
        pairs = list(zip(own, shape, strict=True))
        if len(set(own)) != len(own) or any(extents.setdefault(label, extent) != extent for label, extent in pairs):
            return None
    if len(set(result)) != len(result) or set(result) - set(extents):
        return None
    return call.einsum(f"{left}->{result}", operands)


def _to_dense(call: _Call) -> fx.Node | None:
    """The product of an input with one: a sum of products, which a sparse tensor is taken in. Others are dense."""
    (x,) = [each for each in [*call.node.args, *call.node.kwargs.values()] if isinstance(each, fx.Node)]
    shape = _shape(x)
    if not shape:
        return None
    value, dtype = x.meta["example_value"], call.node.meta["example_value"].dtype
    if x.op != "placeholder":
        return call.graph.call_method("to", (x, dtype))
    one = call.graph.call_function(torch.ones, ((),), {"dtype": value.dtype, "device": value.device})
    letters = string.ascii_lowercase[: len(shape)]
    dense = call.einsum(f"{letters},->{letters}", [x, one])
    return dense if dtype == value.dtype else call.graph.call_method("to", (dense, dtype))


def _rms_norm(call: _Call) -> fx.Node | None:
    """Norms of single and double precision, whose weight has the same dtype and whose axes have known extents."""
    x, extents, weight, eps = call.arguments("input", "normalized_shape", "weight", "eps")
    shape = _shape(x)
    if not shape or not isinstance(extents, (list, tuple)) or not all(isinstance(each, int) for each in extents):
        return None
    dtype = x.meta["example_value"].dtype
    same = weight is None or (_shape(weight) == tuple(extents) and weight.meta["example_value"].dtype == dtype)
    if dtype not in (torch.float32, torch.float64) or not same or not isinstance(eps, (int, float, NoneType)):
        return None
    if not extents or shape[-len(extents) :] != tuple(extents):
        return None
    eps = torch.finfo(dtype).eps if eps is None else eps
    norm = call.graph.call_function(torch.ops.joinsum.rms_norm.default, (x, list(extents), weight, float(eps)))
    return call.graph.call_function(operator.getitem, (norm, 0))


def _mark(table: Any, sparse: object) -> None:
    """Notes a lookup in a table."""
    if isinstance(table, fx.Node):
        table.meta[SPARSE_GRADIENT] = bool(sparse) and table.meta.get(SPARSE_GRADIENT, True)


def _make_dense(node: fx.Node) -> bool:
    """Makes the gradient of a lookup dense where it would be sparse; returns whether it would."""
    names = {torch.nn.functional.embedding: _OF_EMBEDDING, torch.nn.functional.embedding_bag: _OF_BAGS}.get(
        node.target  # type: ignore[arg-type]
    )
    place = -1 if names is None else names.index("sparse")
    if place < 0 or not (node.args[place] if len(node.args) > place else node.kwargs.get("sparse", False)):
        return False
    if len(node.args) > place:
        node.args = (*node.args[:place], False, *node.args[place + 1 :])
    else:
        node.kwargs = {**node.kwargs, "sparse": False}
    return True


def _embedding(call: _Call) -> fx.Node | None:
    """A lookup whose gradient would be sparse."""
    given = dict(zip(_OF_EMBEDDING, call.arguments(*_OF_EMBEDDING), strict=True))
    sparse = given.pop("sparse")
    _mark(given["weight"], sparse)
    if not sparse:
        return None
    options = {name: value for name, value in given.items() if value is not None}
    return call.graph.call_function(torch.nn.functional.embedding, (), options)


_OF_EMBEDDING = ("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")


def _embedding_bag(call: _Call) -> fx.Node | None:
    """Bags of tensors that are not nested; the old order of the arguments, the table first, is left to torch."""
    given = dict(zip(_OF_BAGS, call.arguments(*_OF_BAGS), strict=True))
    table = given["weight"]
    if not _shape(given["input"]) or not _shape(table) or not table.meta["example_value"].is_floating_point():
        return None
    if given["max_norm"] is not None:
        remedy = "leave max_norm out, and scale the table's rows after each step of the optimizer"
        _refuse_bags(call.node, "a lookup in a captured table does not scale its rows", remedy)
    options = {
        name: value
        for name, value in given.items()
        if value is not None and name not in ("max_norm", "norm_type", "sparse")
    }
    _mark(table, given["sparse"])
    options["sparse"] = bool(given["sparse"])
    return call.graph.call_function(embedding_bag, (), options)


_OF_BAGS = (
    *("input", "weight", "offsets", "max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse"),
    *("per_sample_weights", "include_last_offset", "padding_idx"),
)


def _refuse_bags(node: fx.Node, why: str, remedy: str) -> NoReturn:
    module = module_path(node)
    of = f"module={module}, " if module else ""
    raise CaptureError(f"capture: {why}: operator=embedding_bag, {of}at={source_line(node)}; {remedy}")


_Kinds = dict[Any, Callable[[_Call], fx.Node | None]]
_NORMS: _Kinds = dict.fromkeys([torch.rms_norm, torch.nn.functional.rms_norm], _rms_norm)
_CONTRACTIONS: _Kinds = {
    torch.nn.functional.linear: _linear,
    torch._C._nn.linear: _linear,
    **dict.fromkeys([torch.matmul, torch.mm, torch.bmm, torch.mv, operator.matmul], _matmul),
    **dict.fromkeys(["matmul", "mm", "bmm", "mv", "__matmul__"], _matmul),
    torch.addmm: _added(["mat1", "mat2"]),
    torch.baddbmm: _added(["batch1", "batch2"]),
    "addmm": _added(["mat1", "mat2"]),
    "baddbmm": _added(["batch1", "batch2"]),
    torch.einsum: _einsum,
    torch.functional.einsum: _einsum,
}
_TABLES: _Kinds = {
    torch.nn.functional.embedding: _embedding,
    torch.nn.functional.embedding_bag: _embedding_bag,
}
# Sparse tensors are dense ones in Dynamo's graph, where torch's operators of sparse ones do not work.
_OF_SPARSE: _Kinds = {
    torch.sparse.mm: _matmul,
    torch.sparse.addmm: _added(["mat1", "mat2"]),
    "to_dense": _to_dense,
    torch.Tensor.to_dense: _to_dense,
}
_ALWAYS = _NORMS | _TABLES | _OF_SPARSE
