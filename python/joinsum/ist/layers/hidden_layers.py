"""Hidden layers: groups of modules that produce, follow and consume the same neurons."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import nn

from joinsum.base.errors import PlanError
from joinsum.ist.layers.attention import AttentionHeads, heads_of, is_attention, projects_heads
from joinsum.ist.layers.modules import Member, Role, as_consumer, as_follower, as_producer, is_norm, unknown_tensor

__all__ = [
    "Cut",
    "HiddenLayer",
    "Member",
    "Names",
    "Uncuttable",
    "Unnormalised",
    "cut_tensors",
    "explicit_layers",
    "layer_of_heads",
    "not_normalised",
    "tensor_names",
]

# Names of modules of one role: one name or several.
Names = str | Sequence[str]
# Whether layers without a norm are cut: True, False where they are refused, "skip" where they stay whole.
Unnormalised = bool | Literal["skip"]

_NAMED = 8  # layers that an error names


@dataclass(frozen=True)
class HiddenLayer:
    """Neurons that are dealt out to the sites, and the modules that have a tensor with an axis of them.

    name        the first producer's
    neurons     how many there are: features of a Linear, channels of a convolution, heads of attention
    producers   compute them; weights are cut by output, and so are biases
    followers   treat each apart: norms, PReLU, depthwise convolutions
    consumers   read them; weights are cut by input
    scaled      whether what consumers read is multiplied by the number of sites while subnets train
    """

    name: str
    neurons: int
    producers: tuple[Member, ...]
    followers: tuple[Member, ...]
    consumers: tuple[Member, ...]
    scaled: bool = False

    @property
    def members(self) -> tuple[Member, ...]:
        """All modules."""
        return (*self.producers, *self.followers, *self.consumers)


@dataclass
class Cut:
    """A tensor of the model that is cut along an axis by each of one or two hidden layers.

    axes    for each layer's name, the axis, and the consecutive elements that a neuron has there
    outer   for layers of which that axis counts all neurons several times, one time after another, how many times
    """

    name: str
    axes: dict[str, tuple[int, int]] = field(default_factory=dict)
    outer: dict[str, int] = field(default_factory=dict)


def cut_tensors(model: nn.Module, layers: Sequence[HiddenLayer]) -> list[Cut]:
    """The tensors that these layers cut, in the model's order. Raises PlanError for one that is shared by name, and
    where layers cut it twice along one axis or along more than two."""
    found: dict[str, Cut] = {}
    for layer in layers:
        for member in layer.members:
            module = model.get_submodule(member.module)
            for tensor, axis in member.role.axes.items():
                if getattr(module, tensor, None) is None:
                    continue
                name = f"{member.module}.{tensor}" if member.module else tensor
                cut = found.setdefault(name, Cut(name))
                taken = [owner for owner, (at, _) in cut.axes.items() if at == axis or owner == layer.name]
                if taken or len(cut.axes) == 2:
                    raise PlanError(
                        f"IST: two hidden layers cut one axis of a tensor: tensor={name}, axis={axis}, "
                        f"layers={[*cut.axes, layer.name]}; leave one of them out of layers"
                    )
                cut.axes[layer.name] = (axis, member.block)
                if member.role.outer > 1:
                    cut.outer[layer.name] = member.role.outer
    reason = Uncuttable.of(model).reason(found)
    if reason is not None:
        raise PlanError(f"IST: {reason}; name the hidden layers to cut in layers, without these modules")
    order = [name for name, _ in itertools.chain(model.named_parameters(), model.named_buffers())]
    return sorted(found.values(), key=lambda cut: order.index(cut.name))


@dataclass(frozen=True)
class Uncuttable:
    """Tensors of a model that cannot be cut, whichever layer asks.

    known   the names of all parameters and buffers; others are computed
    tied    for a tensor of several names, all of these
    """

    known: frozenset[str]
    tied: Mapping[str, Sequence[str]]

    @staticmethod
    def of(model: nn.Module) -> Uncuttable:
        """Those of this model."""
        names: dict[int, list[str]] = {}
        parameters = model.named_parameters(remove_duplicate=False)
        for name, tensor in itertools.chain(parameters, model.named_buffers(remove_duplicate=False)):
            names.setdefault(id(tensor), []).append(name)
        tied = {name: shared for shared in names.values() if len(shared) > 1 for name in shared}
        return Uncuttable(frozenset(itertools.chain(*names.values())), tied)

    def reason(self, names: Iterable[str]) -> str | None:
        """Why one of these tensors cannot be cut."""
        for name in names:
            if name not in self.known:
                return (
                    "a tensor is no parameter but is computed from others (a parametrization, weight norm), so it "
                    f"cannot be cut: tensor={name}"
                )
            if name in self.tied:
                return (
                    "tied weights: two modules have one parameter, and only one of them is cut: modules="
                    f"{[each.rpartition('.')[0] for each in self.tied[name]]}, parameter={name}"
                )
        return None


def tensor_names(model: nn.Module, members: Sequence[Member]) -> list[str]:
    """The tensors of these modules that their layer cuts."""
    return [
        f"{member.module}.{tensor}" if member.module else tensor
        for member in members
        for tensor in member.role.axes
        if getattr(model.get_submodule(member.module), tensor, None) is not None
    ]


def explicit_layers(
    model: nn.Module, groups: Sequence[object], unnormalised: Unnormalised, scaled: bool | None, device: torch.device
) -> list[HiddenLayer]:
    """Layers of (producers, norms, consumers), each a module's name or several; the producer may be an attention
    module, of which a trial runs on the device. The model is not distributed. Raises PlanError, naming the module."""
    return [_explicit(model, group, unnormalised, scaled, device) for group in groups]


def layer_of_heads(heads: AttentionHeads, scaled: bool | None) -> HiddenLayer:
    """The hidden layer of an attention module's heads. Their sum joins a residual, so by default it keeps its size."""
    return HiddenLayer(heads.name, heads.neurons, heads.producers, (), (heads.output,), scaled=scaled is not False)


def _explicit(
    model: nn.Module, group: object, unnormalised: Unnormalised, scaled: bool | None, device: torch.device
) -> HiddenLayer:
    if not isinstance(group, (tuple, list)) or len(group) not in (3, 4):
        raise PlanError(
            "IST: a hidden layer is (producers, norms, consumers), each a module's name or a list of names, and "
            f"optionally the number of neurons: layer={group!r}"
        )
    producers, norms, consumers = (_names(model, names) for names in group[:3])
    if not producers or not consumers:
        raise PlanError(f"IST: a hidden layer has a producer and a consumer: layer={group!r}")
    counts = len(producers), len(norms), len(consumers), len(group)
    if counts == (1, 0, 1, 3) and is_attention(model.get_submodule(producers[0])):
        heads = heads_of(model, producers[0], consumers[0], device)
        if isinstance(heads, str):
            raise PlanError(f"IST: attention heads cannot be cut: module={producers[0]}: {heads}")
        return layer_of_heads(heads, scaled)
    for name in producers:
        owner, _, child = name.rpartition(".")
        if projects_heads(model.get_submodule(owner), child):
            raise PlanError(
                f"IST: neurons of a producer compute heads: module={name}; name the attention module instead"
            )
    roles = [(name, _role(model, name, as_producer, "producer")) for name in producers]
    neurons = int(group[3]) if len(group) == 4 else roles[0][1].neurons
    followers = [(name, _role(model, name, as_follower, "norm")) for name in norms]
    readers = [(name, _role(model, name, as_consumer, "consumer")) for name in consumers]
    made, followed, read = (_members(neurons, each) for each in (roles, followers, readers))
    layer = HiddenLayer(producers[0], neurons, made, followed, read, scaled=bool(scaled))
    if unnormalised is not True and not any(is_norm(model.get_submodule(name)) for name in norms):
        raise not_normalised([layer])
    return layer


def _names(model: nn.Module, names: object) -> list[str]:
    listed = [names] if isinstance(names, (str, nn.Module)) else list(names or ())  # type: ignore[call-overload]
    by_module = {id(module): name for name, module in model.named_modules()}
    found = []
    for each in listed:
        name = by_module.get(id(each)) if isinstance(each, nn.Module) else each
        try:
            model.get_submodule(name)  # type: ignore[arg-type]
        except (AttributeError, TypeError):
            raise PlanError(f"IST: the model has no such module: module={each!r}") from None
        found.append(str(name))
    return found


def _role(model: nn.Module, name: str, as_role: object, what: str) -> Role:
    module = model.get_submodule(name)
    role = as_role(module)  # type: ignore[operator]
    if role is None:
        raise PlanError(f"IST: a module of this kind cannot be a {what}: module={name}, kind={type(module).__name__}")
    unknown = unknown_tensor(module)
    if unknown is not None:
        raise PlanError(
            f"IST: a module has a tensor that joinsum does not know how to cut: module={name}, kind="
            f"{type(module).__name__}, tensor={unknown}"
        )
    return role  # type: ignore[no-any-return]


def _members(neurons: int, roles: Sequence[tuple[str, Role]]) -> tuple[Member, ...]:
    members = []
    for name, role in roles:
        block, rest = divmod(role.neurons, neurons)
        if rest or not block:
            what = f"module={name}, extent={role.neurons}, neurons={neurons}"
            raise PlanError(f"IST: a module's extent is no multiple of the layer's neurons: {what}")
        members.append(Member(name, role, block))
    return tuple(members)


def not_normalised(layers: Sequence[HiddenLayer]) -> PlanError:
    """The refusal of layers without a norm."""
    named = [f"producer={each.name}, consumer={each.consumers[0].module}" for each in layers[:_NAMED]]
    others = [f"and {len(layers) - _NAMED} others"] if len(layers) > _NAMED else []
    one = len(layers) == 1
    which = "a hidden layer" if one else f"{len(layers)} hidden layers"
    between, them = ("its producer and its consumer", "it") if one else ("producer and consumer", "them")
    return PlanError(
        f"IST: {which} without a norm between {between}: {'; '.join((*named, *others))}; a subnet's sums have another "
        "size than the full network's, so put a BatchNorm or LayerNorm between them, or pass unnormalised=True (and "
        "scaled=True where the sum joins a residual that is normed later), or "
        f'unnormalised="skip" to leave {them} whole'
    )
