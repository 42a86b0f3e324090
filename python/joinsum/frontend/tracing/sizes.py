"""Graphs in which sizes that change between calls are symbols, as Dynamo captures them: the graph for given sizes.

A graph has a symbol for each size that may change between calls, such as the length of a batch; its inputs are tensors
and symbols. joinsum plans a graph of numbers, so the symbols are replaced by the sizes of a call.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import fx
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree

from joinsum.capture.recording.symbolic_numbers import SymbolicNumber, SymbolicNumbers, plain, with_shape
from joinsum.cluster.context import context
from joinsum.frontend.tracing.torch_internals import module_of

__all__ = ["GraphBySize", "Sizes", "Sources", "results_of", "sizes_in", "sources_of"]

# A number for each symbol, by the symbol's name.
Sizes = Mapping[str, int]

# For each symbol the position of an input that has its value: the input itself, or the size of one of its axes.
Sources = dict[str, tuple[int, int | None]]

# Sizes for which a graph's programs are cached; those used least recently are dropped.
_CACHED = 32

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Resizable(Protocol):
    """What can be made for other sizes from what there is for some."""

    def resized(self, sizes: Sizes, full: Callable[[], Self]) -> Self | None:
        """The same for other sizes; None where they need another graph. `full` makes it from the graph."""
        ...


Made = TypeVar("Made", bound=Resizable)

# Makes something of a graph of numbers, of the examples of its inputs, and of those numbers that are symbolic.
Make = Callable[[fx.GraphModule, Sequence[Any], SymbolicNumbers | None], Made]


class GraphBySize(Generic[Made]):
    """What is made of a graph, for each set of sizes in which it is called; once for a graph of numbers.

    gm, examples   the graph and the examples of its inputs
    """

    def __init__(self, gm: fx.GraphModule, examples: Sequence[Any], make: Make[Made]) -> None:
        self._gm, self._examples, self._make = gm, list(examples), make
        self._sources = sources_of(self._examples)
        self._made: dict[tuple[int, ...], Made] = {}
        self._first: Made | None = None
        self._latest: Made | None = None

    @property
    def latest(self) -> Made:
        """What was used last; before that, what is made for the sizes of the examples."""
        return self.at(sizes_in(self._sources, self._examples)) if self._latest is None else self._latest

    def of(self, args: Sequence[Any]) -> Made:
        """What is made for the sizes of these arguments."""
        if not self._sources:
            return self.latest
        return self.at(sizes_in(self._sources, args))

    def at(self, sizes: Sizes) -> Made:
        """What is made for these sizes, which may have symbols of other graphs, too."""
        key = tuple(sizes[name] for name in self._sources)
        if key in self._made:
            found = self._made.pop(key)
        elif self._sources:
            found = self._of_sizes(dict(zip(self._sources, key, strict=True)))
        else:
            found = self._make(self._gm, self._examples, None)
        while len(self._made) >= _CACHED:
            del self._made[next(iter(self._made))]
        self._latest = self._made[key] = found
        return found

    def _of_sizes(self, sizes: Sizes) -> Made:
        def full() -> Made:
            numbers = SymbolicNumbers(sizes) if context().sites > 1 else None
            return self._make(*_with_sizes(self._gm, self._examples, sizes, numbers), numbers)

        if self._first is None:
            self._first = full()
            return self._first
        return self._first.resized(sizes, functools.cache(full)) or full()


def sources_of(examples: Sequence[Any]) -> Sources:
    """Where the inputs of a graph, given by examples, have the values of its symbols."""
    found: Sources = {}
    for position, example in enumerate(examples):
        entries = [(None, example)] if isinstance(example, torch.SymInt) else []
        if isinstance(example, torch.Tensor):
            entries = [*enumerate(example.shape)]  # type: ignore[list-item]
        for axis, size in entries:
            expression = size.node.expr if isinstance(size, torch.SymInt) else None
            if expression is not None and expression.is_symbol:
                found.setdefault(expression.name, (position, axis))
    return found


def sizes_in(sources: Sources, values: Sequence[Any]) -> Sizes:
    """The sizes of inputs, or those for which their examples were captured."""
    found = {}
    for name, (position, axis) in sources.items():
        size = values[position] if axis is None else values[position].shape[axis]
        found[name] = int(size.node.hint if isinstance(size, torch.SymInt) else size)
    return found


def results_of(gm: fx.GraphModule, sizes: Sizes) -> list[Any]:
    """Fake tensors as a graph of Dynamo's returns them for these sizes, and the results that are numbers."""
    numbers = _Numbers(sizes, None)
    entries: Any = gm.graph.output_node().args[0]
    values = [x.meta["example_value"] if isinstance(x, fx.Node) else x for x in entries]
    return [_distinct(numbers.of(x)) for x in values]


def _distinct(x: Any) -> Any:
    """A fake tensor like x, of its own; a number itself."""
    if not isinstance(x, torch.Tensor):
        return x
    fake: Any = x
    with fake.fake_mode, torch.no_grad():
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def _with_sizes(
    gm: fx.GraphModule, examples: Sequence[Any], sizes: Sizes, symbolic: SymbolicNumbers | None
) -> tuple[fx.GraphModule, list[Any]]:
    """A copy of a graph with numbers in place of torch's symbols, and the examples of its inputs; it has the same
    inputs, and reads none that are numbers.

    symbolic   where given, numbers that depend on sizes are numbers of it
    """
    graph, numbers = fx.Graph(), _Numbers(sizes, symbolic)
    copies: dict[fx.Node, Any] = {}
    for node in gm.graph.nodes:
        value = _value_of(node)
        if isinstance(value, _SYMBOLIC) and node.op != "placeholder":
            copies[node] = numbers.of(value)
            continue
        copied = graph.node_copy(node, lambda x: copies[x])
        copied.args = map_aggregate(copied.args, numbers.of)
        copied.kwargs = map_aggregate(copied.kwargs, numbers.of)
        if "val" in node.meta:
            copied.meta["val"] = pytree.tree_map(numbers.of, node.meta["val"])
        copies[node] = numbers.of(value) if isinstance(value, _SYMBOLIC) else copied
    return module_of(graph, gm), [numbers.of(x) for x in examples]


def _value_of(node: fx.Node) -> Any:
    return node.meta.get("val")


class _Numbers:
    """Replaces torch's symbols by numbers."""

    def __init__(self, sizes: Sizes, symbolic: SymbolicNumbers | None) -> None:
        self._sizes, self._symbolic = sizes, symbolic
        self._known: dict[Any, Any] = {}

    def of(self, value: Any) -> Any:
        """A number for a symbolic one, a fake tensor of these sizes for a fake tensor; other values unchanged."""
        if isinstance(value, _SYMBOLIC):
            return self._number(value)
        if isinstance(value, torch.Tensor):
            shape, stride = value.shape, value.stride()
            if any(isinstance(x, torch.SymInt) for x in (*shape, *stride)):
                fake: Any = value
                numbers = [self.of(x) for x in shape]
                with fake.fake_mode, torch.no_grad():
                    made = torch.empty_strided(
                        plain(numbers),
                        [plain(self.of(x)) for x in stride],
                        dtype=value.dtype,
                        device=value.device,
                    )
                return with_shape(made, numbers)
        return value

    def _number(self, value: Any) -> Any:
        expression = value.node.expr
        if any(x.name not in self._sizes for x in expression.free_symbols):
            return value  # it depends on data; who reads it says so
        if expression not in self._known:
            found = self._computed(expression)
            kind = int if isinstance(value, torch.SymInt) else float if isinstance(value, torch.SymFloat) else bool
            self._known[expression] = found if isinstance(found, SymbolicNumber) else kind(found)
        return self._known[expression]

    def _computed(self, expression: Any) -> Any:
        """The number that an expression of sympy is."""
        if self._symbolic is None:
            return expression.xreplace({x: self._sizes[x.name] for x in expression.free_symbols})
        if expression.is_symbol:
            return self._symbolic.symbol(expression.name)
        if expression.is_Integer:
            return int(expression)
        if expression.is_Float:
            return float(expression)
        name = type(expression).__name__
        if name == "Pow" and not (expression.args[1].is_Integer and expression.args[1] > 0):
            name = ""
        if name in _FUNCTIONS:
            return functools.reduce(_FUNCTIONS[name], map(self._computed, expression.args))
        if name == "ToFloat":
            return self._computed(expression.args[0]) * 1.0
        for symbol in expression.free_symbols:
            int(self._symbolic.symbol(symbol.name))  # no other size
        return expression.xreplace({x: self._sizes[x.name] for x in expression.free_symbols})


# Functions of torch's symbolic shapes, by their classes in sympy and torch.
_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "Pow": operator.pow,
    "PowByNatural": operator.pow,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Max": max,
    "Min": min,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "Equality": operator.eq,
    "Unequality": operator.ne,
    "StrictLessThan": operator.lt,
    "LessThan": operator.le,
    "StrictGreaterThan": operator.gt,
    "GreaterThan": operator.ge,
}
