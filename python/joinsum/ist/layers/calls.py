"""What independent subnet training knows of functions and methods, by the nodes of torch.fx that call them: which keep
the neurons of their operands, and which combine them. `modules` has the same of modules.
"""

from __future__ import annotations

import operator
from typing import Any

from torch import fx

from joinsum.ist.layers.modules import ALONG_AXIS, counts_neurons
from joinsum.ist.layers.tracing import asks_size, name_of

__all__ = [
    "call_mixes_neurons",
    "call_pools_channels_apart",
    "combines_operands",
    "flattened_axes",
    "is_elementwise_call",
    "is_sum",
    "spatial_axes_after_mean",
]

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
# Functions that combine the elements along an axis: the place of that argument.
_AXIS_ARGUMENTS = (
    dict.fromkeys((*ALONG_AXIS, "cumsum", "cumprod", "sort", "flip", "logsumexp"), 1)
    | dict.fromkeys(("sum", "mean", "prod", "amax", "amin", "std", "var"), 1)
    | dict.fromkeys(("chunk", "split", "roll"), 2)
)
# Those that pool as many axes behind the channels as their names say.
_POOLING = {
    f"{kind}_pool{count}d": count for kind in ("max", "avg", "adaptive_avg", "adaptive_max") for count in (1, 2, 3)
}


def is_elementwise_call(node: fx.Node) -> bool:
    """Whether it computes each element of its result from the one of its only operand at the same place."""
    name = name_of(node)
    return name in _ELEMENTWISE or (name == "getattr" and node.args[1] == "data")


def combines_operands(node: fx.Node) -> bool:
    """Whether it computes each element of its result from those of two operands at the same place."""
    return name_of(node) in _PRODUCTS | _SUMS or node.target in (operator.add, operator.mul, operator.sub)


def is_sum(node: fx.Node) -> bool:
    """Whether that is their sum or difference."""
    return name_of(node) in _SUMS


def _argument(node: fx.Node, place: int, name: str, default: Any = None) -> Any:
    """An argument of a call, by its place or its name."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def call_pools_channels_apart(node: fx.Node, spatial: int) -> bool:
    """Whether a function of a value that has so many axes behind its channels pools or pads only these axes."""
    name = name_of(node)
    if name == "interpolate":
        return spatial > 0
    if name == "pad":
        padding = _argument(node, 1, "pad")
        return isinstance(padding, (tuple, list)) and len(padding) <= 2 * spatial
    return spatial > 0 and _POOLING.get(name) == spatial


def call_mixes_neurons(node: fx.Node, spatial: int) -> bool:
    """Whether a function combines the neurons of a value that has so many axes behind them: it pools or reduces their
    axis. Says nothing of the axes before them, whose number is not known."""
    name = name_of(node)
    if name in _POOLING:
        return spatial < _POOLING[name]
    if name not in _AXIS_ARGUMENTS:
        return False
    default = {"glu": -1, "sort": -1}.get(name, 0 if name in ("chunk", "split") else None)
    axes = _argument(node, _AXIS_ARGUMENTS[name], "dims" if name in ("flip", "roll") else "dim", default)
    if axes is None:
        return name not in ("softmax", "log_softmax", "softmin")
    listed = axes if isinstance(axes, (tuple, list)) else (axes,)
    return any(counts_neurons(axis, spatial) for axis in listed)


def spatial_axes_after_mean(node: fx.Node, spatial: int) -> int | None:
    """How many axes a mean leaves behind the channels; None where it takes in others, and for other functions."""
    if name_of(node) != "mean":
        return None
    rank = 2 + spatial
    axes = {axis + rank if axis < 0 else axis for axis in _axes(node)}
    if not axes or not axes <= set(range(2, rank)):
        return None
    return spatial if _argument(node, 2, "keepdim", False) else spatial - len(axes)


def flattened_axes(node: fx.Node) -> tuple[int, int] | None:
    """The first and last of the axes that become one; None for a function that does not flatten."""
    name = name_of(node)
    if name == "flatten":
        found: dict[str, Any] = dict(zip(("start_dim", "end_dim"), node.args[1:], strict=False)) | dict(node.kwargs)
        return found.get("start_dim", 0), found.get("end_dim", -1)
    return (1, -1) if name in ("view", "reshape") and _flattens(node) else None


def _flattens(node: fx.Node) -> bool:
    """Whether a view is (x.size(0), -1): all axes but the batch's become one."""
    shape: Any = node.args[1:]
    shape = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    return len(shape) == 2 and _is_first_extent(shape[0]) and shape[1] == -1


def _is_first_extent(extent: object) -> bool:
    """Whether it is x.size(0), x.shape[0] or x.size()[0] of a tensor."""
    if not isinstance(extent, fx.Node) or len(extent.args) != 2 or extent.args[1] != 0:
        return False
    if name_of(extent) == "size":
        return True
    of = extent.args[0]
    return name_of(extent) == "getitem" and isinstance(of, fx.Node) and asks_size(of)


def _axes(node: fx.Node) -> tuple[int, ...]:
    """The axes that a reduction names; (0,) where it names none."""
    axes: Any = _argument(node, 1, "dim", 0)
    listed = axes if isinstance(axes, (tuple, list)) else (axes,)
    return tuple(each if isinstance(each, int) else 0 for each in listed)
