"""Finds the hidden layers of a model that can be cut, by a walk over its torch.fx graph.

Every value gets the neurons that an axis of it counts. Elementwise operators, norms and pooling keep them; Linear,
convolution and embedding layers produce new ones, and consume those of their input. Neurons that reach anything else
(the model's output, a residual sum, an operator that is not known) cannot be dealt out, and the reason is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx, nn

from joinsum.base.errors import PlanError
from joinsum.ist.layers.attention import attention_heads, is_attention
from joinsum.ist.layers.calls import (
    call_mixes_neurons,
    call_pools_channels_apart,
    flattened_axes,
    is_elementwise_call,
    is_first_of,
    is_sum,
    rearranges,
    spatial_axes_after_mean,
)
from joinsum.ist.layers.encoder_layers import encoder_layers, is_transformer, layer_with_last_sum
from joinsum.ist.layers.hidden_layers import (
    HiddenLayer,
    Member,
    Uncuttable,
    Unnormalised,
    layer_of_heads,
    not_normalised,
    tensor_names,
)
from joinsum.ist.layers.modules import (
    as_consumer,
    as_follower,
    as_producer,
    is_elementwise,
    is_norm,
    mixes_neurons,
    own_reason,
    pools_channels_apart,
    spatial_axes,
    treats_neurons_apart,
)
from joinsum.ist.layers.neurons import Neurons, Sum, Value
from joinsum.ist.layers.tracing import asks_size, graphs_of, is_number, modules_read, name_of

__all__ = ["Found", "check_named_layers", "find_layers"]

_CROSSES = "they cross a residual sum"
# Operators after which a transformer layer's sum is still not normed.
_KEEP_SUMS = {"getitem", "select", "mean", "amax", "transpose", "permute", "flatten", "reshape", "squeeze"}
# The modules of a hidden layer, and what they do with its neurons.
_PLACES = {"producers": "computes", "followers": "has parameters of", "consumers": "reads"}


@dataclass(frozen=True)
class Found:
    """The layers of a model that can be cut, and for the producers of others the reason why they are not."""

    layers: tuple[HiddenLayer, ...]
    uncut: dict[str, str]


def find_layers(
    model: nn.Module, unnormalised: Unnormalised, scaled: bool | None, heads_on: torch.device | None = None
) -> Found:
    """The hidden layers of a model that is not distributed.

    unnormalised   whether layers without a norm are cut; "skip" leaves them out
    scaled         whether consumers' inputs are multiplied by the number of sites; by default in layers that are
                   normalised only after their sum has joined a residual
    heads_on       attention heads are neurons too, and trials of attention modules run on this device

    Raises PlanError, naming the modules, for layers without a norm, and where no layer can be cut.
    """
    layers: list[HiddenLayer] = []
    unnormed: list[HiddenLayer] = []
    uncut: dict[str, str] = {}
    walks, tensors = _walks(model, uncut)
    for walk in walks:
        found, without_norm, reasons = walk.layers(scaled)
        layers += found
        unnormed += without_norm
        uncut |= reasons
    for name, layer in encoder_layers(model, scaled, uncut):
        reason = tensors.reason(layer.members)
        if reason is not None:
            uncut[layer.name] = reason
            continue
        (unnormed if any(walk.leaves_unnormed(name) for walk in walks) else layers).append(layer)
    if unnormalised is True and unnormed:
        places = {name: place for place, (name, _) in enumerate(model.named_modules())}
        layers = sorted((*layers, *unnormed), key=lambda layer: places[layer.name])
    elif unnormalised == "skip":
        uncut |= {each.module: _no_norm_before(layer) for layer in unnormed for each in layer.producers}
    elif unnormed:
        raise not_normalised(unnormed)
    if heads_on is not None:
        layers += _attention_layers(model, layers, scaled, uncut, tensors, heads_on)
    if not layers:
        reasons = _reasons_of_others(model, walks, tensors) | uncut
        reasons_text = "; ".join(f"{name}: {reason}" for name, reason in reasons.items()) or "no Linear or convolution"
        raise PlanError(
            "IST: no hidden layer can be cut; give them by name, layers=[(producer, norms, consumer), ...]: "
            f"{reasons_text}"
        )
    return Found(tuple(layers), uncut)


def _no_norm_before(layer: HiddenLayer) -> str:
    return f"no norm stands between them and what reads them: consumer={layer.consumers[0].module}"


def _reasons_of_others(model: nn.Module, walks: Sequence[_Walk], tensors: _Tensors) -> dict[str, str]:
    """Why modules with parameters compute no neurons."""
    reasons: dict[str, str] = {}
    for name, module in model.named_modules():
        has_parameters = any(True for _ in module.parameters(recurse=False))
        if not has_parameters or as_follower(module) is not None or any(True for _ in module.children()):
            continue
        if as_producer(module) is None:
            reasons[name] = f"a module of this kind cannot be a producer: kind={type(module).__name__}"
        elif name in tensors.read:
            reasons[name] = f"the forward pass reads a tensor of it itself: tensor={tensors.read[name]}"
        elif not any(walk.calls(name) for walk in walks):
            reasons[name] = "the forward pass does not call it, as far as torch.fx can follow"
    return reasons


def _attention_layers(
    model: nn.Module,
    others: Sequence[HiddenLayer],
    scaled: bool | None,
    uncut: dict[str, str],
    tensors: _Tensors,
    device: torch.device,
) -> list[HiddenLayer]:
    """The layers of attention heads, beside the others that were found; says in `uncut` why some are not cut."""
    taken = {(each.module, *at) for layer in others for each in layer.members for at in each.role.axes.items()}
    layers: list[HiddenLayer] = []
    for heads in list(attention_heads(model, uncut, device)):
        layer = layer_of_heads(heads, scaled)
        axes = {(each.module, *at) for each in layer.members for at in each.role.axes.items()}
        reason = "another hidden layer has its projections" if axes & taken else tensors.reason(layer.members)
        if reason is not None:
            uncut[layer.name] = reason
            continue
        layers.append(layer)
        taken |= axes
        for member in layer.members:
            uncut.pop(member.module, None)
    return layers


def _walks(model: nn.Module, uncut: dict[str, str]) -> tuple[list[_Walk], _Tensors]:
    """Passes over all graphs of the model, and what is known of its tensors."""
    graphs = list(graphs_of(model, uncut))
    tensors = _Tensors(model, modules_read(model, graphs), Uncuttable.of(model))
    walks = [_Walk(model, prefix, tensors) for prefix, _ in graphs]
    for walk, (_, graph) in zip(walks, graphs, strict=True):
        walk.run(graph)
    return walks, tensors


def check_named_layers(model: nn.Module, layers: Sequence[HiddenLayer]) -> None:
    """Raises PlanError where the neurons of layers that were named cannot be dealt out: where the forward pass reads a
    parameter itself, as tied weights are read (`F.linear(x, self.embedding.weight)`), because only the module's own
    operator knows of the cut; where an operator mixes them; where they pass modules that the layer does not name. Says
    nothing of what torch.fx cannot follow."""
    walks, tensors = _walks(model, {})
    for layer in layers:
        reason = tensors.read_reason(layer.members)
        if reason is None and not is_attention(model.get_submodule(layer.name)):
            reason = next((found for walk in walks if (found := walk.refuted(layer)) is not None), None)
        if reason is not None:
            raise PlanError(
                f"IST: the neurons of a hidden layer cannot be dealt out: {reason}; leave it out of layers: layer="
                f"{layer.name}"
            )


@dataclass(frozen=True)
class _Tensors:
    """What is known of a model's tensors.

    read         the modules of which the forward pass reads a tensor itself, and the tensor's name
    uncuttable   those that are tied or computed
    """

    model: nn.Module
    read: Mapping[str, str]
    uncuttable: Uncuttable

    def read_reason(self, members: Sequence[Member]) -> str | None:
        """Why these modules' neurons are not only theirs."""
        name = next((self.read[each.module] for each in members if each.role.axes and each.module in self.read), None)
        return None if name is None else f"the forward pass reads a tensor of a module itself: tensor={name}"

    def reason(self, members: Sequence[Member]) -> str | None:
        """Why the tensors of these modules cannot be cut."""
        return self.read_reason(members) or self.uncuttable.reason(tensor_names(self.model, members))


class _Walk:
    """One pass over a graph."""

    def __init__(self, model: nn.Module, prefix: str, tensors: _Tensors) -> None:
        self._model = model
        self._prefix = prefix
        self._tensors = tensors
        self._numbers: set[fx.Node] = set()  # tensors of one element, which every neuron may be multiplied with
        self._values: dict[fx.Node, Value | None] = {}
        self._extents: dict[fx.Node, tuple[int, int]] = {}  # of an axis, and how many are behind it, of other values
        self._all: list[Neurons] = []
        self._calls: dict[str, int] = {}
        self._joins: dict[str, Sum] = {}  # the sum that takes in a producer's result
        self._last_sums: dict[str, Sum] = {}  # of torch's transformer layers that give a sum

    def run(self, graph: fx.Graph) -> None:
        """Fills in the neurons of every value."""
        for node in graph.nodes:
            if node.op == "call_module":
                self._values[node] = self._module(node)
            elif node.op in ("call_function", "call_method"):
                self._values[node] = self._function(node)
            elif node.op == "output":
                self._escape(node, "they reach the output", mixed=not self._prefix)
                self._read(node.all_input_nodes if not self._prefix else [])
            elif node.op == "get_attr" and is_number(node):
                self._numbers.add(node)
            elif node.op == "get_attr":
                self._note_tensor(node)

    def layers(self, scaled: bool | None) -> tuple[list[HiddenLayer], list[HiddenLayer], dict[str, str]]:
        """The layers that can be cut, with a norm and without, and the reasons of the others by producer."""
        layers: list[HiddenLayer] = []
        unnormed: list[HiddenLayer] = []
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
            members = tuple(neurons.producers), tuple(neurons.followers), tuple(neurons.consumers)
            multiplied = scaled if scaled is not None else later and not neurons.normed
            layer = HiddenLayer(neurons.producers[0].module, neurons.count, *members, scaled=multiplied)
            (layers if neurons.normed or later else unnormed).append(layer)
        return layers, unnormed, uncut

    def calls(self, name: str) -> bool:
        """Whether a module is called."""
        return name in self._calls

    def leaves_unnormed(self, name: str) -> bool:
        """Whether a transformer layer of torch gives a sum that is read and that no norm follows."""
        found = self._last_sums.get(name)
        return found is not None and found.is_read and not found.normed

    def refuted(self, layer: HiddenLayer) -> str | None:
        """Why a layer that was named cannot be cut, as far as this graph tells."""
        named = {place: {each.module for each in getattr(layer, place)} for place in _PLACES}
        several = any(each.block > 1 for each in layer.members)  # features of a neuron, which may be mixed
        for neurons in self._all:
            own = {place: [each.module for each in getattr(neurons, place)] for place in _PLACES}
            if neurons.parent is not None or not any(named[place] & {*own[place]} for place in _PLACES):
                continue
            if neurons.mixed and not several:
                return neurons.reason
            for place, modules in own.items():
                other = next((each for each in modules if each not in named[place]), None)
                if other is not None:
                    crossed = f"{_CROSSES}, and " if neurons.residual else ""
                    return f"{crossed}a module that the layer does not name {_PLACES[place]} them: module={other}"
        return None

    def _reason(self, neurons: Neurons) -> str | None:
        if neurons.reason is not None:
            return neurons.reason
        if neurons.residual:
            return _CROSSES
        members = (*neurons.producers, *neurons.followers, *neurons.consumers)
        twice = [each.module for each in members if self._calls[each.module] > 1]
        if twice:
            return f"a module is called more than once: module={twice[0]}"
        producers = {each.module for each in neurons.producers}
        gates = [each.module for each in neurons.consumers if each.module in producers]
        if gates:
            return f"a module reads them and computes what they are multiplied with: module={gates[0]}"
        return self._tensors.reason(members) or (None if neurons.consumers else "nothing reads them")

    # --- operators ----------------------------------------------------------------------------------------------------

    def _module(self, node: fx.Node) -> Value | None:
        target = str(node.target)
        name = f"{self._prefix}.{target}" if self._prefix else target
        module = self._model.get_submodule(name)
        self._calls[name] = self._calls.get(name, 0) + 1
        if is_transformer(module):
            return self._transformed(node, name, module)
        value = self._operand(node)
        self._note_extents(node, module)
        if value is not None and (is_elementwise(module) or pools_channels_apart(module, value.spatial)):
            return value
        if type(module) is nn.Flatten and value is not None:
            return self._flattened(node, value, module.start_dim, module.end_dim)
        roles = as_follower(module), as_producer(module), as_consumer(module)
        own = own_reason(module) if any(role is not None for role in roles) else None
        if own is not None:
            self._escape(node, f"they reach a module that may mix them: {own}: module={name}")
        if roles[0] is not None and value is not None:
            return self._followed(node, value, name, module)
        produced = roles[1]
        self._consume(node, value, name, module)
        if produced is None:
            return None
        neurons = self._new(produced.neurons)
        neurons.producers.append(Member(name, produced))
        neurons.reason = own
        return Value(neurons, spatial_axes(module), producers=frozenset([name]))

    def _transformed(self, node: fx.Node, name: str, module: nn.Module) -> Value | None:
        """The result of a transformer layer of torch, or of a stack of them, which norms its first operand."""
        normed = node.args[0] if node.args else node.kwargs.get("src", node.kwargs.get("tgt"))
        operand = self._values.get(normed) if isinstance(normed, fx.Node) else None
        for each in operand.sums if operand is not None else ():
            each.normed = True
        self._read(each for each in node.all_input_nodes if each is not normed)
        kind = type(module).__name__
        self._escape(node, f"they reach a module that mixes them: module={name}, kind={kind}", mixed=True)
        last = layer_with_last_sum(name, module)
        if last is None:
            return None
        neurons = self._new(last.width)
        neurons.reason = "they are those of a transformer layer's result"
        return Value(neurons, 0, sums=frozenset([self._last_sums.setdefault(last.name, Sum())]))

    def _followed(self, node: fx.Node, value: Value, name: str, module: nn.Module) -> Value | None:
        role = as_follower(module)
        assert role is not None
        neurons = value.of.root()
        block, rest = divmod(role.neurons, neurons.count)
        if rest or value.block not in (None, block) or not treats_neurons_apart(module, value.spatial):
            self._escape(node, f"they reach a module of another axis: module={name}, kind={type(module).__name__}")
            return None
        neurons.followers.append(Member(name, role, block))
        neurons.normed |= is_norm(module)
        for each in value.sums if is_norm(module) else ():
            each.normed = True
        return replace(value, flat=value.flat or (isinstance(module, nn.BatchNorm1d) and value.spatial == 0))

    def _consume(self, node: fx.Node, value: Value | None, name: str, module: nn.Module) -> None:
        """Makes a module the consumer of the neurons that it reads, if it can be one."""
        if value is None:
            return
        role = as_consumer(module)
        if role is None:
            reason = f"they reach a module that mixes them: module={name}, kind={type(module).__name__}"
            self._escape(node, reason, mixed=mixes_neurons(module, value.spatial, value.second))
            return
        neurons = value.of.root()
        block, rest = divmod(role.neurons, neurons.count)
        if rest or value.block not in (None, block) or value.spatial != spatial_axes(module):
            self._escape(node, f"they reach a module along another axis: module={name}")
            return
        neurons.consumers.append(Member(name, role, block))
        self._read(node.all_input_nodes)

    def _read(self, nodes: Iterable[fx.Node]) -> None:
        """Notes that the sums which these values are made of are read."""
        for value in map(self._values.get, nodes):
            for each in value.sums if value is not None else ():
                each.is_read = True

    def _function(self, node: fx.Node) -> Value | None:
        if is_number(node):
            self._numbers.add(node)
        operands = [each for each in node.all_input_nodes if each not in self._numbers]
        values = [each for each in map(self._values.get, operands) if each is not None]
        if not operands and is_elementwise_call(node):
            self._numbers.add(node)
        if len(operands) == 1 and operands[0] in self._extents:
            of_module = operands[0].op == "call_module" and is_first_of(node)
            if of_module or is_elementwise_call(node):
                self._extents[node] = self._extents[operands[0]]
        if not values or asks_size(node):
            return None
        first, is_only = values[0], len(node.all_input_nodes) == 1
        if is_elementwise_call(node):
            return first if len(operands) == 1 else self._combined(node, operands, values)
        if is_only and call_pools_channels_apart(node, first.spatial):
            return first
        flattened = flattened_axes(node)
        if flattened is not None:
            return self._flattened(node, first, *flattened)
        spatial = spatial_axes_after_mean(node, first.spatial)
        if spatial is not None:
            return replace(first, spatial=spatial)
        name = name_of(node)
        if name in _KEEP_SUMS and not first.of.root().producers:
            return first
        what = f"attribute={node.args[1]}" if name == "getattr" else f"operator={name}"
        does = "mixes axes" if rearranges(node) else "joinsum does not know"
        self._escape(
            node,
            f"they reach an operator that {does}: {what}",
            is_only and call_mixes_neurons(node, first.spatial, first.second),
        )
        return None

    def _combined(self, node: fx.Node, operands: Sequence[fx.Node], values: Sequence[Value]) -> Value | None:
        """The result of an elementwise operator of several tensors. Neurons that are added to others cross a residual
        sum, but not those that are added to a function of them."""
        summed, first, one = is_sum(node), values[0], values[0].of.root()
        roots = {each.of.root() for each in values}
        alike = len(values) == len(operands) and all(
            (each.spatial, each.of.root().count) == (first.spatial, one.count) for each in values
        )
        if not alike:
            extents = {self._extents.get(each) for each in operands if self._values.get(each) is None}
            whole = one.count * (first.block or 1), first.spatial
            self._escape(node, "they are combined with a value that is not cut", mixed=whole in extents)
            if not summed and len(values) > 1:
                return None
        else:
            for other in sorted(roots - {one}, key=self._all.index):
                one.take_in(other)
        crosses = summed and not (alike and len(roots) == 1)
        one.residual |= crosses
        block = first.block if not alike or all(each.block == first.block for each in values) else None
        producers = frozenset().union(*(each.producers for each in values))
        sums = frozenset().union(*(each.sums for each in values))
        flat = any(each.flat for each in values)
        if crosses:
            joined = Sum()
            self._joins |= dict.fromkeys(producers, joined)
            return Value(one, first.spatial, block, sums=sums | {joined}, flat=flat)
        return Value(one, first.spatial, block, producers, sums, flat)

    def _flattened(self, node: fx.Node, value: Value, start: int, end: int) -> Value | None:
        if start != 1 or end != -1 or not value.spatial:
            self._escape(node, "they are flattened with other axes before them")
            return None
        return replace(value, spatial=0, block=None, flat=True)

    def _note_extents(self, node: fx.Node, module: nn.Module) -> None:
        """Notes how long the axis is that a module reads as channels or features, and of attention that of its
        result."""
        if isinstance(module, nn.MultiheadAttention):
            self._extents[node] = module.embed_dim, 0
        role = as_consumer(module) or as_follower(module)
        of = node.all_input_nodes
        if role is not None and len(of) == 1 and not isinstance(module, nn.BatchNorm1d):
            self._extents[of[0]] = role.neurons, spatial_axes(module)
        elif is_elementwise(module) and len(of) == 1 and of[0] in self._extents:
            self._extents[node] = self._extents[of[0]]

    def _note_tensor(self, node: fx.Node) -> None:
        """Notes how long the last axis of a parameter or buffer is that has more than one element."""
        owner, _, name = str(node.target).rpartition(".")
        module = self._model.get_submodule(".".join(filter(None, (self._prefix, owner))))
        shape = list(getattr(getattr(module, name, None), "shape", ()))
        longer = [place for place, extent in enumerate(shape) if extent > 1]
        if longer:
            self._extents[node] = shape[longer[-1]], len(shape) - 1 - longer[-1]

    # --- neurons ------------------------------------------------------------------------------------------------------

    def _new(self, count: int) -> Neurons:
        self._all.append(Neurons(count))
        return self._all[-1]

    def _operand(self, node: fx.Node) -> Value | None:
        values = [self._values.get(each) for each in node.all_input_nodes]
        if len(values) == 1:
            return values[0]
        self._escape(node, f"they reach a module of several inputs: module={node.target}")
        return None

    def _escape(self, node: fx.Node, reason: str, mixed: bool = False) -> None:
        """Notes that the neurons of all operands cannot be dealt out."""
        for each in node.all_input_nodes:
            value = self._values.get(each)
            neurons = None if value is None else value.of.root()
            if neurons is not None and (neurons.reason is None or (mixed and not neurons.mixed)):
                neurons.reason, neurons.mixed = reason, mixed
