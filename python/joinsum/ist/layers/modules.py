"""What independent subnet training knows of modules: which axis of which tensor counts neurons, and which numbers of
the module say how many there are. A row for each kind of module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

__all__ = [
    "ALONG_AXIS",
    "Member",
    "Role",
    "as_consumer",
    "as_follower",
    "as_producer",
    "counts_neurons",
    "has_own_forward",
    "is_elementwise",
    "is_norm",
    "mixes_neurons",
    "own_reason",
    "pools_channels_apart",
    "set_counts",
    "spatial_axes",
    "treats_neurons_apart",
    "unknown_tensor",
]


@dataclass(frozen=True)
class Role:
    """How a module takes part in a hidden layer.

    axes         for each of its tensors that is cut, the axis that counts neurons
    attributes   the module's numbers that count neurons
    neurons      the extent of that axis
    outer        how many times the axis counts all neurons, one time after another: 3 where it has the rows of queries,
                 those of keys and those of values
    numbers      other numbers of the module, and by how much they grow with each neuron
    """

    axes: Mapping[str, int]
    attributes: tuple[str, ...]
    neurons: int
    outer: int = 1
    numbers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Member:
    """A module of a hidden layer. An axis that counts neurons has `block` consecutive elements for each."""

    module: str
    role: Role
    block: int = 1


# By the number of axes behind the channels.
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_LAST_AXIS_NORMS = (nn.LayerNorm, nn.RMSNorm)
# Those of inputs with one, two and three axes behind the channels.
_BY_SPATIAL_AXES = tuple(zip(_CONVOLUTIONS, _BATCH_NORMS, _INSTANCE_NORMS, strict=True))
_ELEMENTWISE = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid),
    *(nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Softplus, nn.Softsign, nn.Identity, nn.LogSigmoid, nn.RReLU),
    *(nn.Hardshrink, nn.Softshrink, nn.Tanhshrink, nn.Threshold),
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout),
)
_POOLING = (
    (nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d),
    (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d),
    (nn.MaxPool3d, nn.AvgPool3d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool3d),
)
# Those that have a role in hidden layers, and the tensors of all of them.
_WITH_PARAMETERS = (
    *(nn.Linear, *_CONVOLUTIONS, *_EMBEDDINGS, *_BATCH_NORMS, *_INSTANCE_NORMS, *_LAST_AXIS_NORMS, nn.PReLU),
)
_TENSORS = frozenset(("weight", "bias", "running_mean", "running_var", "num_batches_tracked"))
# Modules that combine the elements along an axis `dim`, by the names of their functions.
ALONG_AXIS = {"softmax": nn.Softmax, "log_softmax": nn.LogSoftmax, "softmin": nn.Softmin, "glu": nn.GLU}
_CHANNEL_MIXING = (nn.GroupNorm, nn.LocalResponseNorm, nn.CrossMapLRN2d, nn.ChannelShuffle, nn.PixelShuffle)


def _is_plain(module: nn.Module, kinds: Sequence[type[nn.Module]]) -> bool:
    """Whether it is of one of these kinds, and computes what the kind does, with no other forward pass."""
    own = "forward" in vars(module)
    return not own and any(isinstance(module, kind) and type(module).forward is kind.forward for kind in kinds)


def has_own_forward(module: nn.Module) -> bool:
    """Whether a module that has a role here, as what its class derives from, computes something of its own."""
    if _is_huggingface_linear(module):
        return "forward" in vars(module)
    if not _is_plain(module, _WITH_PARAMETERS):
        return True
    kind: Any = type(module)
    return isinstance(module, _CONVOLUTIONS) and all(kind._conv_forward is not x._conv_forward for x in _CONVOLUTIONS)


def unknown_tensor(module: nn.Module) -> str | None:
    """A parameter or buffer that no role knows of, such as the factors of a low-rank adapter. Says nothing of a module
    whose own tensors are computed from others."""
    tensors = module._parameters | module._buffers
    if any(name not in tensors and hasattr(module, name) for name in ("weight", "bias")):
        return None
    return next((name for name, tensor in tensors.items() if tensor is not None and name not in _TENSORS), None)


def own_reason(module: nn.Module) -> str | None:
    """Why a module cannot be cut as what its class derives from."""
    kind = type(module).__name__
    if has_own_forward(module):
        return f"{kind} has a forward pass of its own"
    unknown = unknown_tensor(module)
    return None if unknown is None else f"{kind} has a tensor that joinsum does not know how to cut: tensor={unknown}"


def is_elementwise(module: nn.Module) -> bool:
    """Whether it computes each element of its result from the one at the same place."""
    if _drops_samples(module):
        return True
    if isinstance(module, nn.PReLU):
        return module.num_parameters == 1 and _is_plain(module, (nn.PReLU,))
    return _is_plain(module, _ELEMENTWISE)


def _drops_samples(module: nn.Module) -> bool:
    """Whether it multiplies each sample by a random number, as torchvision's StochasticDepth, and the modules called
    DropPath of timm and transformers, do."""
    kind = type(module).__name__
    known = kind == "StochasticDepth" or kind.endswith("DropPath")
    return known and next(module.parameters(), None) is None


def pools_channels_apart(module: nn.Module, spatial: int) -> bool:
    """Whether it treats channels apart, where an input has so many axes behind them. Where it has none, or fewer than
    the module pools, the module pools other axes: the neurons of a Linear, or the channels of a smaller convolution."""
    if _is_plain(module, (nn.Upsample,)):
        return spatial > 0
    if _is_plain(module, (nn.ZeroPad2d,)):
        return spatial >= 2
    return spatial > 0 and _is_plain(module, _POOLING[spatial - 1])


def counts_neurons(axis: int | None, spatial: int, second: bool) -> bool:
    """Whether it is the axis of neurons that have so many axes behind them, as an operator names it.

    second   whether they are known to be axis 1; else only the axes behind them are
    """
    return axis == -1 - spatial or (second and axis == 1)


def mixes_neurons(module: nn.Module, spatial: int, second: bool) -> bool:
    """Whether it is known to combine neurons that have so many axes behind them: it pools their axis, takes a softmax
    along it or mixes channels.

    second   whether they are known to be axis 1
    """
    if isinstance(module, nn.Softmax2d):
        return spatial == 2
    if isinstance(module, _CHANNEL_MIXING):
        return second
    if isinstance(module, tuple(ALONG_AXIS.values())):
        dim: Any = module.dim
        return counts_neurons(dim, spatial, second)
    return any(isinstance(module, kinds) and spatial < count for count, kinds in enumerate(_POOLING, 1))


def is_norm(module: nn.Module) -> bool:
    """Whether it standardises its input."""
    return isinstance(module, (*_BATCH_NORMS, *_INSTANCE_NORMS, *_LAST_AXIS_NORMS))


def spatial_axes(module: nn.Module) -> int:
    """How many axes its input has behind the channels of axis 1; 0 where it reads the last axis, and for BatchNorm1d,
    which may have either."""
    if isinstance(module, nn.BatchNorm1d):
        return 0
    return next((count for count, kinds in enumerate(_BY_SPATIAL_AXES, 1) if isinstance(module, kinds)), 0)


def treats_neurons_apart(module: nn.Module, spatial: int) -> bool:
    """Whether a norm, PReLU or depthwise convolution has a parameter for each neuron, where so many axes are behind
    these; 0 where they are the last axis. Norms of the last axis do not treat neurons apart, but standardise over those
    of a subnet."""
    if isinstance(module, nn.PReLU):
        return True
    if isinstance(module, _LAST_AXIS_NORMS):
        return spatial == 0
    if isinstance(module, nn.BatchNorm1d):
        return spatial <= 1
    return spatial > 0 and isinstance(module, _BY_SPATIAL_AXES[spatial - 1])


def _is_huggingface_linear(module: nn.Module) -> bool:
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf") and hasattr(module, "nx")


def _depthwise(module: nn.Module) -> bool:
    return isinstance(module, _CONVOLUTIONS) and module.groups == module.in_channels == module.out_channels > 1


def as_producer(module: nn.Module) -> Role | None:
    """The module as what computes neurons, one for each index of its result's channels."""
    if isinstance(module, nn.Linear):
        return Role({"weight": 0, "bias": 0}, ("out_features",), module.out_features)
    if isinstance(module, _CONVOLUTIONS) and module.groups == 1:
        return Role({"weight": 0, "bias": 0}, ("out_channels",), module.out_channels)
    if isinstance(module, _EMBEDDINGS) and module.max_norm is None:
        return Role({"weight": 1}, ("embedding_dim",), module.embedding_dim)
    if _is_huggingface_linear(module):
        return Role({"weight": 1, "bias": 0}, ("nf",), _integer(module, "nf"))
    return None


def as_consumer(module: nn.Module) -> Role | None:
    """The module as what reads neurons; its bias belongs to every site."""
    if isinstance(module, nn.Linear):
        return Role({"weight": 1}, ("in_features",), module.in_features)
    if isinstance(module, _CONVOLUTIONS) and module.groups == 1:
        return Role({"weight": 1}, ("in_channels",), module.in_channels)
    if _is_huggingface_linear(module):
        return Role({"weight": 0}, ("nx",), _integer(module, "nx"))
    return None


def as_follower(module: nn.Module) -> Role | None:
    """The module as what treats neurons apart, with a parameter for each: norms, PReLU, depthwise convolutions."""
    if isinstance(module, (*_BATCH_NORMS, *_INSTANCE_NORMS)):
        axes = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), 0)
        return Role(axes, ("num_features",), module.num_features)
    if isinstance(module, _LAST_AXIS_NORMS):
        if len(module.normalized_shape) != 1:
            return None
        return Role({"weight": 0, "bias": 0}, ("normalized_shape",), module.normalized_shape[0])
    if isinstance(module, nn.PReLU) and module.num_parameters > 1:
        return Role({"weight": 0}, ("num_parameters",), module.num_parameters)
    if _depthwise(module):
        attributes = ("in_channels", "out_channels", "groups")
        return Role({"weight": 0, "bias": 0}, attributes, _integer(module, "groups"))
    return None


def _integer(module: nn.Module, name: str) -> int:
    return int(getattr(module, name))


def set_counts(module: nn.Module, member: Member, neurons: int) -> None:
    """Sets the module's numbers to those of so many neurons of its layer."""
    for attribute in member.role.attributes:
        count = member.role.outer * neurons * member.block
        value: Any = (count,) if attribute == "normalized_shape" else count
        setattr(module, attribute, value)
    for attribute, each in member.role.numbers.items():
        setattr(module, attribute, neurons * each)
