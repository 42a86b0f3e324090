"""Layouts of images in graphs that torch runs: channels last around convolutions, whose kernels are faster so."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["align_group_norms", "use_channels_last"]

_ATEN = torch.ops.aten
_CONVOLUTION = _ATEN.convolution.default
_CONVOLUTION_BACKWARD = _ATEN.convolution_backward.default
# Their first results have the layout of what is normed, which fake tensors do not say; by place the latter.
_GROUP_NORMS = {_ATEN.native_group_norm.default: 0, _ATEN.native_group_norm_backward.default: 1}

# Operators that compute the same in any layout, and whose result has the layout of their operands.
_ANY_LAYOUT = frozenset(
    [
        _ATEN._native_batch_norm_legit_functional.default,
        _ATEN._native_batch_norm_legit.no_stats,
        _ATEN._native_batch_norm_legit_no_training.default,
        _ATEN.native_batch_norm_backward.default,
        _ATEN.max_pool2d_with_indices.default,
        _ATEN.max_pool2d_with_indices_backward.default,
        _ATEN.avg_pool2d.default,
        _ATEN.avg_pool2d_backward.default,
        torch.ops.joinsum.resize.default,
        torch.ops.joinsum.resize_backward.default,
        *_GROUP_NORMS,
        _ATEN.cat.default,
        _ATEN.mean.dim,
        _ATEN.sum.dim_IntList,
        _ATEN.detach.default,
        _ATEN.alias.default,
        operator.getitem,
    ]
)


def use_channels_last(graph: fx.Graph) -> int:
    """Makes two-dimensional convolutions of single precision on the CPU, their gradients, and what reads their results
    element by element compute with channels as the last axis in memory; gives the number of tensors that are copied
    from one layout to the other. Results of the graph, and operands of operators that may depend on the layout, have
    the layout that they had. `meta["val"]` tells the new layouts.

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> def twice(x, w, v):
    ...     return torch.nn.functional.conv2d(torch.nn.functional.conv2d(x, w).relu(), v)
    >>> examples = torch.ones(2, 3, 8, 8), torch.ones(16, 3, 3, 3), torch.ones(4, 16, 3, 3)
    >>> gm = make_fx(twice, tracing_mode="fake")(*examples)
    >>> use_channels_last(gm.graph)
    4
    """
    faster = [node for node in graph.nodes if _is_faster(node)]
    if not torch._C._has_mkldnn or not faster:
        return 0
    weights = {node.args[1] if node.target is _CONVOLUTION else node.args[2] for node in faster}
    ends = {*graph.find_nodes(op="placeholder"), *graph.output_node().all_input_nodes} - weights
    ends -= {node for node in ends if _is_gradient_of_weight(node)}
    convolved = [node if node.target is _CONVOLUTION else node.all_input_nodes[0] for node in faster]
    if _elements(ends) > _elements(convolved):
        return 0
    return _Layouts(graph).run()


def align_group_norms(graph: fx.Graph) -> int:
    """Gives the gradients of group norms operands of one layout, that of what was normed, as torch's kernel takes for
    granted: the layout of some operators' results is another one than fake tensors say. Gives the number of gradients.
    """
    found = [node for node in graph.nodes if node.target is _ATEN.native_group_norm_backward.default]
    for node in found:
        normed: Any = node.args[1]
        layout = _layout_of(normed.meta["val"]) if _keeps_layout(node) else torch.contiguous_format
        with graph.inserting_before(node):
            operands = []
            for operand in node.args[:2]:
                copy = graph.call_function(_ATEN.contiguous.default, (operand,), {"memory_format": layout})
                copy.meta = dict(operand.meta)
                operands.append(copy)
        node.args = (*operands, *node.args[2:])
    return len(found)


def _layout_of(value: torch.Tensor) -> torch.memory_format:
    last = value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last and not value.is_contiguous() else torch.contiguous_format


def _is_slice_of_image(node: fx.Node) -> bool:
    """Whether a view, of some channels for example, is only read by what takes any layout."""
    return node.target is _ATEN.slice.Tensor and all(_in_any_layout(each) or _is_faster(each) for each in node.users)


def _is_gradient_of_weight(node: fx.Node) -> bool:
    if node.target is not operator.getitem:
        return False
    source, index = node.args
    return isinstance(source, fx.Node) and source.target is _CONVOLUTION_BACKWARD and bool(index == 1)


def _elements(nodes: Iterable[fx.Node]) -> int:
    """The elements of those results that are images."""
    return sum(node.meta["val"].numel() for node in nodes if _is_image(node))


def _is_faster(node: fx.Node) -> bool:
    """Whether a convolution, or its gradient, is one that channels last make faster."""
    if node.target is _CONVOLUTION:
        x, weight, *_, transposed, _, _ = node.args
        images = [x, weight]
    elif node.target is _CONVOLUTION_BACKWARD:
        *images, _, _, _, _, transposed, _, _, _ = node.args
    else:
        return False
    return not transposed and all(_is_image(each) for each in images)


def _is_image(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return (
        isinstance(value, FakeTensor)
        and value.dim() == 4
        and value.dtype == torch.float32
        and value.device.type == "cpu"
        and all(isinstance(extent, int) for extent in value.shape)
    )


def _keeps_layout(node: fx.Node) -> bool:
    """Whether a group norm takes channels last: the gradients of weight and bias alone, which torch's kernel cannot
    compute so, do not."""
    if node.target is not _ATEN.native_group_norm_backward.default:
        return True
    mask: Any = node.args[-1]
    return bool(mask[0])


def _in_any_layout(node: fx.Node) -> bool:
    pointwise = isinstance(node.target, torch._ops.OpOverload) and torch.Tag.pointwise in node.target.tags
    return pointwise or (node.target in _ANY_LAYOUT and _keeps_layout(node))


class _Layouts:
    """The nodes of a graph, from the first on, with the layouts that they have now."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.before: dict[fx.Node, Any] = {node: node.meta.get("val") for node in graph.nodes}
        self.copies: dict[tuple[fx.Node, torch.memory_format], fx.Node] = {}

    def run(self) -> int:
        for node in list(self.graph.nodes):
            if node.op == "output":
                self._replace(node, self._as_before)
            elif node.op == "call_function":
                self._visit(node)
        return len(self.copies)

    def _visit(self, node: fx.Node) -> None:
        if _is_faster(node):
            self._replace(node, lambda each: self._copied(each, torch.channels_last))
        elif not any(self._changed(each) for each in node.all_input_nodes):
            return
        elif _in_any_layout(node) and self._spreads(node):
            self._replace(node, self._channels_last)
        elif _is_slice_of_image(node):
            pass  # of the image as it is
        else:
            self._replace(node, self._as_before)
            return
        with _fake_mode_of(node):
            arguments: Any
            arguments, keywords = fx.node.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
            node.meta["val"] = node.target(*arguments, **keywords)  # type: ignore[operator]
            if node.target in _GROUP_NORMS:
                first, *others = node.meta["val"]
                layout = _layout_of(arguments[_GROUP_NORMS[node.target]])
                node.meta["val"] = (first if first is None else first.contiguous(memory_format=layout), *others)
        if _is_gradient_of_weight(node):
            self._keep_layout(node)

    def _keep_layout(self, gradient: fx.Node) -> None:
        """A weight's gradient has the layout of the weight, which is updated."""
        if not self._changed(gradient):
            return
        with self.graph.inserting_after(gradient):
            copy = self._copied(gradient, torch.contiguous_format)
        gradient.replace_all_uses_with(copy, lambda user: user is not copy)

    def _replace(self, node: fx.Node, change: Callable[[fx.Node], fx.Node]) -> None:
        with self.graph.inserting_before(node):
            node.args, node.kwargs = fx.node.map_arg((node.args, node.kwargs), change)

    def _changed(self, node: fx.Node) -> bool:
        """Whether a value that is not contiguous had other strides."""
        values, before = _tensors(node.meta.get("val")), _tensors(self.before[node])
        changed = (x.stride() != y.stride() for x, y in zip(values, before, strict=True))
        return any(each and not x.is_contiguous() for each, x in zip(changed, values, strict=True))

    def _spreads(self, node: fx.Node) -> bool:
        """Whether the result was contiguous, so that the layouts of operands decide about that of the result."""
        return all(each.is_contiguous() for each in _tensors(self.before[node]))

    def _channels_last(self, node: fx.Node) -> fx.Node:
        """An operand beside others that have channels last."""
        value = node.meta.get("val")
        whole = isinstance(value, torch.Tensor) and value.dim() == 4 and min(value.shape[2:]) > 1
        return self._copied(node, torch.channels_last) if whole else node

    def _as_before(self, node: fx.Node) -> fx.Node:
        return self._copied(node, torch.contiguous_format) if self._changed(node) else node

    def _copied(self, node: fx.Node, layout: torch.memory_format) -> fx.Node:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.dim() != 4 or value.is_contiguous(memory_format=layout):
            return node
        if (node, layout) not in self.copies:
            copy = self.graph.call_function(_ATEN.clone.default, (node,), {"memory_format": layout})
            with _fake_mode_of(node):
                copy.meta = {**node.meta, "val": value.clone(memory_format=layout)}
            self.before[copy] = copy.meta["val"]
            self.copies[node, layout] = copy
        return self.copies[node, layout]


def _tensors(value: Any) -> list[torch.Tensor]:
    values = value if isinstance(value, (tuple, list)) else [value]
    return [each for each in values if isinstance(each, torch.Tensor)]


@contextmanager
def _fake_mode_of(node: fx.Node) -> Iterator[None]:
    values = [value for each in (node, *node.all_input_nodes) for value in _tensors(each.meta.get("val"))]
    with next(value for value in values if isinstance(value, FakeTensor)).fake_mode, torch.no_grad():
        yield
