"""Finds the hidden layers of a model that can be cut, by a walk over its torch.fx graph.

Every value gets the neurons that an axis of it counts. Elementwise operators, norms and pooling keep them; Linear,
convolution and embedding layers produce new ones, and consume those of their input. Neurons that reach anything else
(the model's output, a residual sum, an operator that mixes axes) cannot be dealt out, and the reason is recorded.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx, nn

from joinsum.base.errors import PlanError
from joinsum.ist.layers import HiddenLayer, Member, not_normalised
from joinsum.ist.modules import (
    as_consumer,
    as_follower,
    as_producer,
    is_elementwise,
    is_norm,
    is_pooling,
    keeps_channels,
)

__all__ = ["Found", "find_layers"]

# Functions and methods that compute each element from the one at the same place, and those of two operands.
_ELEMENTWISE = frozenset(
    (
        *("relu", "relu_", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "tanh", "sigmoid"),
        *("hardtanh", "hardswish", "hardsigmoid", "softplus", "dropout", "dropout1d", "dropout2d", "dropout3d"),
        *("alpha_dropout", "abs", "neg", "exp", "square", "sqrt", "pow", "clamp", "contiguous", "float", "half"),
        *("bfloat16", "to", "type", "detach", "clone", "truediv", "div"),
    )
)
_PRODUCTS = frozenset(("mul", "mul_", "imul"))
_SUMS = frozenset(("add", "add_", "iadd", "sub", "isub"))
_POOLING = frozenset(
    (
        *("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "interpolate", "pad"),
        *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
        *("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"),
    )
)
_SIZES = frozenset(("size", "dim", "getattr", "ndimension", "numel"))


@dataclass(frozen=True)
class Found:
    """The layers of a model that can be cut, and for the producers of others the reason why they are not."""

    layers: tuple[HiddenLayer, ...]
    uncut: dict[str, str]


def find_layers(model: nn.Module, unnormalised: bool, scaled: bool | None) -> Found:
    """The hidden layers of a model.

    unnormalised   whether layers without a norm are cut
    scaled         whether consumers' inputs are multiplied by the number of sites; by default in layers that are
                   normalised only after their sum has joined a residual

    Raises PlanError, naming the module, for a layer without a norm, and where no layer can be cut.
    """
    layers: list[HiddenLayer] = []
    uncut: dict[str, str] = {}
    for prefix, graph in _graphs(model, uncut):
        walk = _Walk(model, prefix)
        walk.run(graph)
        found, reasons = walk.layers(unnormalised, scaled)
        layers += found
        uncut |= reasons
    layers += _encoder_layers(model, scaled)
    if not layers:
        reasons_text = "; ".join(f"{name}: {reason}" for name, reason in uncut.items()) or "no Linear or convolution"
        raise PlanError(
            "IST: no hidden layer can be cut; give them by name, layers=[(producer, norms, consumer), ...]: "
            f"{reasons_text}"
        )
    return Found(tuple(layers), uncut)


def _encoder_layers(model: nn.Module, scaled: bool | None) -> Iterator[HiddenLayer]:
    """The hidden units of torch's own transformer layers, whose sums join a residual that is normed again."""
    for name, module in model.named_modules():
        if isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
            first, second = (f"{name}.{each}" if name else each for each in ("linear1", "linear2"))
            produced, consumed = as_producer(module.linear1), as_consumer(module.linear2)
            if produced is not None and consumed is not None:
                members = (Member(first, produced),), (), (Member(second, consumed),)
                yield HiddenLayer(first, produced.neurons, *members, scaled=scaled is not False)


class _Untraceable(Exception):
    """A submodule whose forward pass torch.fx cannot follow."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__(kind.__name__)
        self.kind = kind


class _Tracer(fx.Tracer):
    """Follows the model's own modules; those of the kinds `opaque` are single nodes."""

    def __init__(self, opaque: set[type[nn.Module]]) -> None:
        super().__init__()
        self._opaque = opaque

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        known = (as_producer, as_consumer, as_follower)
        return (
            type(module) in self._opaque
            or super().is_leaf_module(module, name)
            or any(role(module) is not None for role in known)
        )

    def call_module(self, module: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        try:
            return super().call_module(module, forward, args, kwargs)
        except _Untraceable:
            raise
        except Exception as error:  # any error of the module's own code that has met a proxy
            raise _Untraceable(type(module)) from error


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Undoes what tracing the forward pass writes into modules and buffers."""
    saved = [(module, dict(module.__dict__), dict(module._buffers)) for module in model.modules()]
    plain = [x for x in model.buffers() if type(x) is torch.Tensor and not x.is_meta]
    values = [x.detach().clone() for x in plain]
    try:
        yield
    finally:
        for module, attributes, buffers in saved:
            module.__dict__.clear()
            module.__dict__.update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)
        with torch.no_grad():
            for x, value in zip(plain, values, strict=True):
                x.copy_(value)


def _graphs(model: nn.Module, uncut: dict[str, str]) -> Iterator[tuple[str, fx.Graph]]:
    """The graph of the model, in which modules that cannot be traced are single nodes, and graphs of what these
    contain. Says in `uncut` why a module was not traced."""
    pending = [("", model)]
    opaque: set[type[nn.Module]] = set()
    while pending:
        prefix, module = pending.pop(0)
        children = [(f"{prefix}.{name}" if prefix else name, child) for name, child in module.named_children()]
        if isinstance(module, (nn.ModuleList, nn.ModuleDict)):
            pending += children
            continue
        if _Tracer(set()).is_leaf_module(module, prefix):
            continue
        graph = None
        while graph is None and type(module) not in opaque:
            try:
                with _unchanged(module):
                    graph = _Tracer(opaque).trace(module)
            except _Untraceable as error:
                opaque.add(error.kind)
            except Exception as error:  # of the model's own code, which has met a proxy
                first_line = next(iter(str(error).splitlines()), type(error).__name__)
                uncut[prefix or "the model"] = f"torch.fx cannot follow its forward pass: {first_line}"
                break
        if graph is None:
            pending += children
            continue
        yield prefix, graph
        inner = [name for name, each in module.named_modules() if name and type(each) in opaque]
        outermost = [name for name in inner if not any(name.startswith(f"{other}.") for other in inner)]
        for name in outermost:
            submodule = module.get_submodule(name)
            path = f"{prefix}.{name}" if prefix else name
            pending += [(f"{path}.{each}", child) for each, child in submodule.named_children()]


@dataclass(eq=False)
class _Neurons:
    """What is known of the neurons of one or several producers, whose results have been combined element by element."""

    count: int
    producers: list[Member] = field(default_factory=list)
    followers: list[Member] = field(default_factory=list)
    consumers: list[Member] = field(default_factory=list)
    normed: bool = False
    residual: bool = False
    reason: str | None = None
    parent: _Neurons | None = None

    def root(self) -> _Neurons:
        found = self
        while found.parent is not None:
            found = found.parent
        return found


@dataclass(eq=False)
class _Sum:
    """A residual sum, and whether what it gives is normed later."""

    normed: bool = False


@dataclass(frozen=True)
class _Value:
    """The neurons that an axis of a value counts: axis 1, before others (`channels`), or the last one.

    block      elements of a neuron there; None where that depends on the input's size
    producers  whose results it has that no sum has taken in yet
    sums       that it is made of
    """

    of: _Neurons
    channels: bool
    block: int | None = 1
    producers: frozenset[str] = frozenset()
    sums: frozenset[_Sum] = frozenset()


class _Walk:
    """One pass over a graph."""

    def __init__(self, model: nn.Module, prefix: str) -> None:
        self._model = model
        self._prefix = prefix
        self._values: dict[fx.Node, _Value | None] = {}
        self._all: list[_Neurons] = []
        self._calls: dict[str, int] = {}
        self._joins: dict[str, _Sum] = {}  # the sum that takes in a producer's result

    def run(self, graph: fx.Graph) -> None:
        """Fills in the neurons of every value."""
        for node in graph.nodes:
            if node.op == "call_module":
                self._values[node] = self._module(node)
            elif node.op in ("call_function", "call_method"):
                self._values[node] = self._function(node)
            elif node.op == "output":
                self._escape(node, "they reach the output")
            else:
                self._values[node] = None

    def layers(self, unnormalised: bool, scaled: bool | None) -> tuple[list[HiddenLayer], dict[str, str]]:
        """The layers that can be cut, and the reasons of the others by producer."""
        layers: list[HiddenLayer] = []
        uncut: dict[str, str] = {}
        for neurons in self._all:
            if neurons.parent is not None or not neurons.producers:
                continue
            reason = self._reason(neurons)
            if reason is not None:
                uncut |= {member.module: reason for member in neurons.producers}
                continue
            sums = [self._joins.get(member.module) for member in neurons.consumers]
            later = all(each is not None and each.normed for each in sums)
            name = neurons.producers[0].module
            if not (neurons.normed or later or unnormalised):
                raise not_normalised(name, neurons.consumers[0].module)
            members = tuple(neurons.producers), tuple(neurons.followers), tuple(neurons.consumers)
            multiplied = scaled if scaled is not None else later and not neurons.normed
            layers.append(HiddenLayer(name, neurons.count, *members, scaled=multiplied))
        return layers, uncut

    def _reason(self, neurons: _Neurons) -> str | None:
        if neurons.reason is not None:
            return neurons.reason
        if neurons.residual:
            return "they cross a residual sum"
        twice = [each.module for each in (*neurons.producers, *neurons.consumers) if self._calls[each.module] > 1]
        if twice:
            return f"a module is called more than once: module={twice[0]}"
        return None if neurons.consumers else "nothing reads them"

    # --- operators ----------------------------------------------------------------------------------------------------

    def _module(self, node: fx.Node) -> _Value | None:
        target = str(node.target)
        name = f"{self._prefix}.{target}" if self._prefix else target
        module = self._model.get_submodule(name)
        self._calls[name] = self._calls.get(name, 0) + 1
        value = self._operand(node)
        if value is not None and (is_elementwise(module) or is_pooling(module)):
            return value
        if isinstance(module, nn.PReLU) and module.num_parameters == 1:
            return value
        if isinstance(module, nn.Flatten) and value is not None:
            return self._flattened(node, value, module.start_dim, module.end_dim)
        follower = as_follower(module)
        if follower is not None and value is not None:
            return self._followed(node, value, name, module)
        produced = as_producer(module)
        self._consume(node, value, name, module)
        if produced is None:
            self._escape(node, f"they reach a module that mixes them: module={name}, kind={type(module).__name__}")
            return None
        neurons = self._new(produced.neurons)
        neurons.producers.append(Member(name, produced))
        return _Value(neurons, channels=keeps_channels(module), producers=frozenset([name]))

    def _followed(self, node: fx.Node, value: _Value, name: str, module: nn.Module) -> _Value | None:
        role = as_follower(module)
        assert role is not None
        neurons = value.of.root()
        block, rest = divmod(role.neurons, neurons.count)
        last_axis = isinstance(module, (nn.LayerNorm, nn.RMSNorm))
        if rest or value.block not in (None, block) or (last_axis and value.channels):
            self._escape(node, f"they reach a norm of another axis: module={name}")
            return None
        neurons.followers.append(Member(name, role, block))
        neurons.normed |= is_norm(module)
        for each in value.sums if is_norm(module) else ():
            each.normed = True
        return value

    def _consume(self, node: fx.Node, value: _Value | None, name: str, module: nn.Module) -> None:
        """Makes a module the consumer of the neurons that it reads, if it can be one."""
        role = as_consumer(module)
        if value is None or role is None:
            return
        neurons = value.of.root()
        block, rest = divmod(role.neurons, neurons.count)
        if rest or value.block not in (None, block) or value.channels != keeps_channels(module):
            self._escape(node, f"they reach a module along another axis: module={name}")
            return
        neurons.consumers.append(Member(name, role, block))

    def _function(self, node: fx.Node) -> _Value | None:
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
        values = [each for each in map(self._values.get, node.all_input_nodes) if each is not None]
        if not values or name in _SIZES:
            return None
        if name in _ELEMENTWISE and len(node.all_input_nodes) == 1:
            return values[0]
        if name in _POOLING and len(node.all_input_nodes) == 1 and values[0].channels:
            return values[0]
        if name in _PRODUCTS | _SUMS or node.target in (operator.add, operator.mul, operator.sub):
            return self._combined(node, values, name in _SUMS)
        if name == "flatten":
            start, end = _flattened_axes(node)
            return self._flattened(node, values[0], start, end)
        if name in ("view", "reshape") and self._flattens(node):
            return self._flattened(node, values[0], 1, -1)
        if name == "mean" and values[0].channels and set(_axes(node)) <= {2, 3, 4, -1, -2, -3}:
            return replace(values[0], channels=bool(node.kwargs.get("keepdim", False)))
        self._escape(node, f"they reach an operator that mixes axes: operator={name}")
        return None

    def _combined(self, node: fx.Node, values: Sequence[_Value], is_sum: bool) -> _Value | None:
        """The result of an elementwise operator of two operands, one of which may be a number."""
        if len(node.all_input_nodes) == 1 and len(values) == 1:
            return values[0]
        first, second = values[0], values[-1]
        one, other = first.of.root(), second.of.root()
        alike = len(values) == len(node.all_input_nodes) == 2 and (first.channels, one.count) == (
            second.channels,
            other.count,
        )
        if not alike:
            self._escape(node, "they are combined with a value that is not cut")
            if not is_sum:
                return None
        elif one is not other:
            for name in ("producers", "followers", "consumers"):
                getattr(one, name).extend(getattr(other, name))
            one.normed, one.residual = one.normed or other.normed, one.residual or other.residual
            one.reason, other.parent = one.reason or other.reason, one
        one.residual |= is_sum
        block = first.block if not alike or first.block == second.block else None
        producers = frozenset().union(*(each.producers for each in values))
        sums = frozenset().union(*(each.sums for each in values))
        if is_sum:
            joined = _Sum()
            self._joins |= dict.fromkeys(producers, joined)
            return _Value(one, first.channels, block, sums=sums | {joined})
        return _Value(one, first.channels, block, producers, sums)

    def _flattened(self, node: fx.Node, value: _Value, start: int, end: int) -> _Value | None:
        if start != 1 or end != -1 or not value.channels:
            self._escape(node, "they are flattened with other axes before them")
            return None
        return replace(value, channels=False, block=None)

    def _flattens(self, node: fx.Node) -> bool:
        """Whether a view is (x.size(0), -1): all axes but the batch's become one."""
        shape: Any = node.args[1:]
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return len(shape) == 2 and isinstance(shape[0], fx.Node) and shape[1] == -1

    # --- neurons ------------------------------------------------------------------------------------------------------

    def _new(self, count: int) -> _Neurons:
        self._all.append(_Neurons(count))
        return self._all[-1]

    def _operand(self, node: fx.Node) -> _Value | None:
        values = [self._values.get(each) for each in node.all_input_nodes]
        if len(values) == 1:
            return values[0]
        self._escape(node, f"they reach a module of several inputs: module={node.target}")
        return None

    def _escape(self, node: fx.Node, reason: str) -> None:
        """Notes that the neurons of all operands cannot be dealt out."""
        for each in node.all_input_nodes:
            value = self._values.get(each)
            if value is not None and value.of.root().reason is None:
                value.of.root().reason = reason


def _axes(node: fx.Node) -> tuple[int, ...]:
    """The axes that a reduction names; (0,) where it names none."""
    axes: Any = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else 0)
    listed = axes if isinstance(axes, (tuple, list)) else (axes,)
    return tuple(each if isinstance(each, int) else 0 for each in listed)


def _flattened_axes(node: fx.Node) -> tuple[int, int]:
    """The first and last axis of a call of flatten."""
    found: dict[str, Any] = dict(zip(("start_dim", "end_dim"), node.args[1:], strict=False)) | dict(node.kwargs)
    return found.get("start_dim", 0), found.get("end_dim", -1)
