"""Graphs of ATen operators that write over values which nobody reads again, so that memory is used once; products of
matrices are added to what SGD updates, so that no gradient is stored."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from joinsum.base.disjoint_sets import DisjointSets
from joinsum.capture.fusion import FUSED
from joinsum.capture.operators.table import traits_of
from joinsum.capture.recording.application import argument_of, operator_name

__all__ = ["add_products", "alike", "merge_updates", "overwrite_operands"]

_ATEN = torch.ops.aten
_ADAM = torch.ops.joinsum.adam_update.out
_CHECKS = (torch.ops.joinsum.checked.default, torch.ops.joinsum.checked_factors.default)

# The most bytes of gradients on the CPU that wait for an update of several parameters: those that caches hold.
_WAITING = 1 << 20


def add_products(graph: fx.Graph, inputs: Collection[int]) -> int:
    """Replaces `addcmul(x, a @ b, rate)`, a step of SGD without momentum, by `addmm(x, a, b, alpha=rate)`, where `x` is
    an input that may be overwritten, nothing else reads the product, which reads no such input itself, and the rate is
    one number. The product may be transposed. It is computed once all assertions have held and `x` is read no more, so
    that its operands do not stay until the end. Gives the number of these products.

    inputs   positions of placeholders that may be overwritten

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> def step(w, x, y, rate):
    ...     return torch.addcmul(w, x.t() @ y, rate)
    >>> examples = torch.ones(3, 2), torch.ones(5, 3), torch.ones(5, 2), torch.tensor(-0.1)
    >>> add_products(make_fx(step, tracing_mode="fake")(*examples).graph, [0])
    1
    """
    placeholders = graph.find_nodes(op="placeholder")
    overwritten = {placeholders[position] for position in inputs}
    memory = _Memory(graph, inputs)
    updated = {memory.root(node) for node in overwritten}
    added: dict[fx.Node, _Product] = {}
    for node in graph.nodes:
        product = _product_added_to(overwritten, node)
        if product is not None and updated.isdisjoint(map(memory.root, (product.first, product.second))):
            added[node] = product
    places = {node: place for place, node in enumerate(graph.nodes)}
    checks = [node for node in places if node.target in _CHECKS]
    readers: dict[fx.Node, list[fx.Node]] = {}
    for node in places:
        if node.op != "output":
            for root in {memory.root(operand) for operand in node.all_input_nodes}:
                readers.setdefault(root, []).append(node)
    for node, product in added.items():
        x: Any = node.args[0]
        rate: Any = node.args[2]
        others = [reader for reader in readers[memory.root(x)] if reader is not node]
        with graph.inserting_after(max([product.node, rate, *checks, *others], key=places.__getitem__)):
            number = graph.call_method("item", (rate,))
        with graph.inserting_after(number):
            new = graph.call_function(_ATEN.addmm.default, (x, product.first, product.second), {"alpha": number})
        if product.transposed:
            with graph.inserting_before(new):
                first = graph.call_function(_ATEN.t.default, (product.second,))
                second = graph.call_function(_ATEN.t.default, (product.first,))
            new.args = (x, first, second)
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        _erase_unread(graph, node)
    return len(added)


class _Product(NamedTuple):
    """`node` computes `first @ second`; its transpose is wanted if `transposed`."""

    node: fx.Node
    first: fx.Node
    second: fx.Node
    transposed: bool


def _product_added_to(overwritten: Collection[fx.Node], node: fx.Node) -> _Product | None:
    """What a step of SGD adds to an input, if that is a product of matrices which nothing else reads."""
    if node.target is not _ATEN.addcmul.default or node.kwargs or node.args[0] not in overwritten:
        return None
    x: Any
    product: Any
    rate: Any
    x, product, rate = node.args
    if not isinstance(product, fx.Node) or not isinstance(rate, fx.Node):
        return None
    value, number = x.meta["val"], rate.meta["val"]
    if value.dtype not in (torch.float32, torch.float64) or not value.is_cpu or number.dim() != 0:
        return None
    transposed = False
    while product.target is _ATEN.t.default and len(product.users) == 1:
        product, transposed = product.args[0], not transposed
    if product.target is not _ATEN.mm.default or len(product.users) != 1 or product.meta["val"].dtype != value.dtype:
        return None
    return _Product(product, product.args[0], product.args[1], transposed)


def _erase_unread(graph: fx.Graph, node: fx.Node) -> None:
    """Erases a node that nothing reads, and operands that nothing reads then."""
    operands = node.all_input_nodes
    graph.erase_node(node)
    for operand in operands:
        if not operand.users and operand.op == "call_function":
            _erase_unread(graph, operand)


def overwrite_operands(graph: fx.Graph, inputs: Collection[int]) -> int:
    """Makes operators write over operands: over the first one, `add(x, y)` -> `add_(x, y)`, or, where an operator of
    joinsum's has an overload `out`, over those that its outputs are named after, `param_out=param`. The operand has the
    result's shape, strides and dtype, and neither it nor a view of it is read later or given back. Gives the number of
    these operators.

    inputs   positions of placeholders that may be overwritten; all others stay as they are

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> graph = make_fx(lambda x: torch.exp(x * 2 + 1), tracing_mode="fake")(torch.ones(3)).graph
    >>> overwrite_operands(graph, [])
    2
    """
    memory = _Memory(graph, inputs)
    count = 0
    for place, node in list(enumerate(graph.nodes)):
        if node.target is FUSED:
            count += _overwrite_fused(memory, node, place)
            continue
        target, operands = _overwriting(node)
        if target is None or not all(memory.dies(operand, place) for operand in operands.values()):
            continue
        if any(memory.read_besides(operand, node) for operand in operands.values()):
            continue
        if len(target._schema.arguments) > len(node.target._schema.arguments):
            node.kwargs = {**node.kwargs, **operands}
        node.target = target
        for operand in operands.values():
            memory.unite(node, operand)
        count += 1
    return count


def merge_updates(graph: fx.Graph, inputs: Collection[int]) -> int:
    """Makes Adam's updates in place one operator for several parameters with the same numbers (on the CPU, small ones),
    in the last one's place, where nothing reads or writes their memory in between; gives the number of these updates.

    inputs   positions of placeholders that may be overwritten
    """
    memory = _Memory(graph, inputs)
    touched: dict[fx.Node, int] = {}
    for place, node in enumerate(graph.nodes):
        if node.op != "output" and node.target is not operator.getitem:
            touched |= {memory.root(operand): place for operand in node.all_input_nodes}
    groups: dict[Any, list[fx.Node]] = {}
    waiting: dict[Any, int] = {}
    merged = 0
    for place, node in list(enumerate(graph.nodes)):
        if node.target is not _ADAM or any(touched[memory.root(x)] > place for x in node.args[:4]):
            continue
        gradient, key = node.args[1].meta["val"], node.args[4:]
        size = gradient.nbytes if gradient.is_cpu else 0
        if size > _WAITING:
            continue
        if waiting.get(key, 0) + size > _WAITING:
            merged += _merge_updates(graph, groups.pop(key))
            waiting[key] = 0
        groups.setdefault(key, []).append(node)
        waiting[key] = waiting.get(key, 0) + size
    return merged + sum(_merge_updates(graph, group) for group in groups.values())


def _merge_updates(graph: fx.Graph, updates: Sequence[fx.Node]) -> int:
    """Replaces the updates by one, and their results by the operands that these have overwritten."""
    if len(updates) < 2:
        return 0
    operands = [list(each) for each in zip(*(node.args[:4] for node in updates), strict=True)]
    with graph.inserting_after(updates[-1]):
        graph.call_function(torch.ops.joinsum.adam_updates_.default, (*operands, *updates[-1].args[4:]))
    for node in updates:
        written: Any = (node.args[0], node.args[2], node.args[3])
        for result in list(node.users):
            result.replace_all_uses_with(written[result.args[1]])
            graph.erase_node(result)
        graph.erase_node(node)
    return len(updates)


def _overwrite_fused(memory: _Memory, node: fx.Node, place: int) -> bool:
    """Makes results of a program overwrite operands of their layout, each another one, which stand in their place."""
    operands: Any = node.args[0]
    numbers = (x for x in operands if x.meta["val"].dtype is not torch.bool)
    free = [x for x in numbers if memory.dies(x, place) and not memory.read_besides(x, node)]
    overwritten = [-1] * len(node.meta["val"])
    for result in list(node.users):
        number: Any = result.args[1]
        found = next((x for x in free if alike(x.meta.get("val"), result.meta["val"])), None)
        if found is None:
            continue
        free.remove(found)
        overwritten[number] = operands.index(found)
        memory.unite(result, found)
        result.replace_all_uses_with(found)
        node.graph.erase_node(result)
    if max(overwritten) < 0:
        return False
    node.target = torch.ops.joinsum.fused_.default
    node.args = (*node.args, overwritten)
    given = [number for number, over in enumerate(overwritten) if over < 0]
    for result in list(node.users):
        result.args = (node, given.index(result.args[1]))  # type: ignore[arg-type]
    return True


def _overwriting(node: fx.Node) -> tuple[torch._ops.OpOverload | None, dict[str, fx.Node]]:
    """The operator that writes each result over an operand of the same memory layout, and these operands, by the
    names of the arguments that are written; None where there is none."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or not node.args:
        return None, {}
    if target.namespace == "joinsum":
        return _with_outputs(node, target)
    operand = node.args[0]
    if target.namespace != "aten" or not isinstance(operand, fx.Node):
        return None, {}
    if not alike(operand.meta.get("val"), node.meta.get("val")):
        return None, {}
    packet = getattr(_ATEN, f"{target._opname}_", None)
    found = getattr(packet, target._overloadname, None) if packet is not None else None
    if not isinstance(found, torch._ops.OpOverload) or any(each.alias_info for each in target._schema.returns):
        return None, {}
    own, other = target._schema.arguments, found._schema.arguments
    same = [(x.name, str(x.type)) for x in own] == [(x.name, str(x.type)) for x in other]
    return (found, {own[0].name: operand}) if same and len(target._schema.returns) == 1 else (None, {})


def _with_outputs(
    node: fx.Node, target: torch._ops.OpOverload
) -> tuple[torch._ops.OpOverload | None, dict[str, fx.Node]]:
    found = getattr(target.overloadpacket, "out", None)
    value = node.meta.get("val")
    results = value if isinstance(value, tuple) else (value,)
    if found is None or not all(isinstance(result, torch.Tensor) for result in results):
        return None, {}
    given = dict(zip((each.name for each in target._schema.arguments), node.args, strict=False))
    operands: dict[str, fx.Node] = {}
    for argument, result in zip(found._schema.arguments[len(target._schema.arguments) :], results, strict=True):
        operand = given.get(argument.name.removesuffix("_out"))
        if not isinstance(operand, fx.Node) or not alike(operand.meta.get("val"), result):
            return None, {}
        operands[argument.name] = operand
    device = results[0].device.type.upper()
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key(found.name(), device)
    return (found, operands) if has_kernel else (None, {})


def alike(first: Any, second: Any) -> bool:
    """Whether two tensors have one layout, in which each element has a place of its own."""
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return False
    layout = (first.shape, first.stride(), first.dtype) == (second.shape, second.stride(), second.dtype)
    return (
        layout
        and first.dim() > 0
        and (first.is_contiguous() or (first.dim() == 4 and first.is_contiguous(memory_format=torch.channels_last)))
    )


class _Memory:
    """Which nodes share memory, and when each memory is read for the last time."""

    def __init__(self, graph: fx.Graph, inputs: Collection[int]) -> None:
        self._sets: DisjointSets[fx.Node] = DisjointSets()
        self._last: dict[fx.Node, float] = {}
        nodes = list(graph.nodes)
        position = 0
        for place, node in enumerate(nodes):
            self._last[node] = place
            if node.op == "placeholder":
                self._last[node] = place if position in inputs else float("inf")
                position += 1
            elif node.op == "get_attr":
                self._last[node] = float("inf")
            for operand in node.all_input_nodes:
                if _may_share(node, operand):
                    self.unite(node, operand)
            for operand in node.all_input_nodes:
                self._read(operand, float("inf") if node.op == "output" else place)

    def root(self, node: fx.Node) -> fx.Node:
        """The node that stands for all that share memory with this one."""
        return self._sets.find(node)

    def shares(self, first: fx.Node, second: fx.Node) -> bool:
        """Whether two nodes have memory in common."""
        return self.root(first) is self.root(second)

    def read_besides(self, operand: fx.Node, node: fx.Node) -> bool:
        """Whether a node reads the memory of an operand by more than one argument, but for a square."""
        read: list[fx.Node] = []
        fx.node.map_arg((node.args, node.kwargs), read.append)
        square = node.target in (_ATEN.mul.Tensor, _ATEN.mul_.Tensor)
        if square and all(other is operand for other in read):
            return False
        return sum(self.shares(operand, other) for other in read) > 1

    def unite(self, first: fx.Node, second: fx.Node) -> None:
        """Says that two nodes share memory."""
        first, second = self.root(first), self.root(second)
        if first is not second:
            self._last[second] = max(self._last[first], self._last[second])
            self._sets.unite(second, first)

    def dies(self, node: fx.Node, place: int) -> bool:
        """Whether nobody reads the memory after the node at `place`."""
        return self._last[self.root(node)] <= place

    def _read(self, node: fx.Node, place: float) -> None:
        root = self.root(node)
        self._last[root] = max(self._last[root], place)


def _written(node: fx.Node, target: torch._ops.OpOverload) -> list[Any]:
    """What an operator writes into, or gives back as it is."""
    return [argument_of(node, each.name) for each in target._schema.arguments if each.alias_info is not None]


def _may_share(node: fx.Node, operand: fx.Node) -> bool:
    """Whether the result may be a view of the operand, or the operand itself."""
    target = node.target
    if node.op != "call_function":
        return False
    if not isinstance(target, torch._ops.OpOverload):
        return operand.target is not FUSED  # each of whose results has memory of its own
    if target.namespace != "aten" and any(each.alias_info for each in target._schema.arguments):
        return operand in _written(node, target)
    views = any(each.alias_info is not None for each in target._schema.returns)
    return views or traits_of(operator_name(target)).may_alias
