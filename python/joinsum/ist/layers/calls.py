"""What independent subnet training knows of functions and methods, by the nodes of torch.fx that call them: which keep
the neurons of their operands, and which mix them. `modules` has the same of modules.
"""

from __future__ import annotations

from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

from torch import fx

from joinsum.ist.layers.modules import ALONG_AXIS, counts_neurons
from joinsum.ist.layers.tracing import asks_size, name_of

__all__ = [
    "call_mixes_neurons",
    "call_pools_channels_apart",
    "flattened_axes",
    "is_elementwise_call",
    "is_first_of",
    "is_sum",
    "rearranges",
    "spatial_axes_after_mean",
]

# Functions and methods that compute each element from those of their operands at the same place, without the
# underscores of those that work in place. Other operands may be numbers or tensors of the same neurons.
_ACTIVATIONS = (
    *("relu", "relu6", "leaky_relu", "rrelu", "prelu", "elu", "selu", "celu", "gelu", "silu", "mish", "tanh"),
    *("sigmoid", "hardtanh", "hardswish", "hardsigmoid", "hardshrink", "softshrink", "tanhshrink", "softplus"),
    *("softsign", "logsigmoid", "log_sigmoid", "threshold", "dropout", "dropout1d", "dropout2d", "dropout3d"),
    *("alpha_dropout", "feature_dropout", "feature_alpha_dropout", "bernoulli"),
)
_FUNCTIONS = (
    *("abs", "absolute", "neg", "negative", "pos", "positive", "sign", "sgn", "exp", "exp2", "expm1", "log", "log2"),
    *("log10", "log1p", "sqrt", "rsqrt", "square", "reciprocal", "pow", "float_power", "sin", "cos", "tan", "asin"),
    *("acos", "atan", "arcsin", "arccos", "arctan", "sinh", "cosh", "asinh", "acosh", "atanh", "arcsinh", "arccosh"),
    *("arctanh", "sinc", "erf", "erfc", "erfinv", "erfcx", "expit", "logit", "lgamma", "gammaln", "digamma", "psi"),
    *("i0", "i0e", "i1", "i1e", "ndtr", "ndtri", "log_ndtr", "entr", "round", "floor", "ceil", "trunc", "fix", "frac"),
    *("clamp", "clip", "clamp_min", "clamp_max", "nan_to_num", "isnan", "isinf", "isfinite", "deg2rad", "rad2deg"),
)
_KINDS = (
    *("contiguous", "to", "type", "type_as", "float", "double", "half", "bfloat16", "bool", "int", "long", "detach"),
    *("clone", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "requires_grad"),
)
_OPERATORS = (
    *("add", "iadd", "sub", "isub", "rsub", "subtract", "maximum", "minimum", "fmax", "fmin", "where", "lerp"),
    *("addcmul", "addcdiv", "masked_fill", "atan2", "arctan2", "hypot", "logaddexp", "logaddexp2", "fmod", "remainder"),
    *("mod", "floordiv", "floor_divide", "copysign", "heaviside", "xlogy", "xlog1py", "eq", "ne", "lt", "le", "gt"),
    *("ge", "less", "less_equal", "greater", "greater_equal", "not_equal", "logical_and", "logical_or", "logical_xor"),
    *("logical_not", "and", "or", "xor", "invert"),
)
_PRODUCTS = frozenset(("mul", "imul", "multiply", "div", "truediv", "itruediv", "true_divide", "divide"))
_ELEMENTWISE = frozenset((*_ACTIVATIONS, *_FUNCTIONS, *_KINDS, *_OPERATORS)) | _PRODUCTS
# Those that give other elements, or the same at other places.
_REARRANGING = frozenset(
    (
        *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expand", "expand_as", "repeat", "tile"),
        *("transpose", "permute", "t", "swapaxes", "swapdims", "movedim", "moveaxis", "cat", "concat", "concatenate"),
        *("stack", "hstack", "vstack", "unbind", "getitem", "select", "narrow", "gather", "index_select"),
        "take_along_dim",
        *("matmul", "mm", "bmm", "einsum", "linear", "bilinear", "tensordot", "outer", "T", "mT", "H", "mH", "topk"),
        *("max", "min", "argmax", "argmin", "median", "norm", "normalize", "layer_norm", "rms_norm", "group_norm"),
        *("rot90", "diff", "cummax", "cummin", "logcumsumexp", "view_as", "reshape_as", "rearrange", "pixel_shuffle"),
    )
)
_BUILTIN = (BuiltinFunctionType, MethodDescriptorType)
# Functions that combine the elements along an axis, or give some of them or others: the place of that argument.
_AXIS_ARGUMENTS = (
    dict.fromkeys((*ALONG_AXIS, "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "sort", "argsort", "flip"), 1)
    | dict.fromkeys(("sum", "mean", "prod", "amax", "amin", "std", "var", "logsumexp", "max", "min", "median"), 1)
    | dict.fromkeys(("argmax", "argmin", "narrow", "select", "index_select", "gather", "unbind"), 1)
    | dict.fromkeys(("chunk", "split", "roll", "normalize", "topk", "diff"), 2)
)
_DEFAULT_AXES = (
    dict.fromkeys(("glu", "sort", "argsort", "topk", "diff"), -1)
    | dict.fromkeys(("chunk", "split", "unbind"), 0)
    | {"normalize": 1}
)
# Those that pool as many axes behind the channels as their names say.
_POOLING = {
    f"{kind}_pool{count}d": count for kind in ("max", "avg", "adaptive_avg", "adaptive_max") for count in (1, 2, 3)
}


def is_elementwise_call(node: fx.Node) -> bool:
    """Whether it computes each element of its result from those of its operands at the same place."""
    name = _plain_name(node)
    if name == "where":
        return len(node.args) + len(node.kwargs) == 3
    if name in ("max", "min"):
        return len(node.args) == 2 and isinstance(node.args[1], fx.Node)
    return name in _ELEMENTWISE or (name == "getattr" and node.args[1] == "data")


def is_first_of(node: fx.Node) -> bool:
    """Whether it takes the first of several results."""
    return name_of(node) == "getitem" and node.args[1:] == (0,)


def is_sum(node: fx.Node) -> bool:
    """Whether an elementwise operator of several tensors takes each of them in as a sum does, rather than multiplies
    them: what it combines are not gates."""
    return _plain_name(node) not in _PRODUCTS


def rearranges(node: fx.Node) -> bool:
    """Whether it is known that it gives elements of its operand at other places, or combines several."""
    name = node.args[1] if name_of(node) == "getattr" else _plain_name(node)
    return name in _REARRANGING or name in _AXIS_ARGUMENTS or name in _POOLING


def _plain_name(node: fx.Node) -> str:
    """The name of a method, or of a function of torch or Python, without its underscores and namespace."""
    return _known_name(node).strip("_").removeprefix("special_")


def _known_name(node: fx.Node) -> str:
    """The name of a method, or of a function of torch or Python; of others, which `torch.fx.wrap` lets through, none: a
    user's own `square` may be anything."""
    own = node.op == "call_function" and not isinstance(node.target, _BUILTIN)
    root = str(getattr(node.target, "__module__", "")).partition(".")[0]
    return "" if own and root not in ("torch", "math", "operator", "_operator") else name_of(node)


def _argument(node: fx.Node, place: int, name: str, default: Any = None) -> Any:
    """An argument of a call, by its place or its name."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def call_pools_channels_apart(node: fx.Node, spatial: int) -> bool:
    """Whether a function of a value that has so many axes behind its channels pools or pads only these axes."""
    name = _known_name(node)
    if name == "interpolate":
        return spatial > 0
    if name == "pad":
        padding = _argument(node, 1, "pad")
        return isinstance(padding, (tuple, list)) and len(padding) <= 2 * spatial
    return spatial > 0 and _POOLING.get(name) == spatial


def call_mixes_neurons(node: fx.Node, spatial: int, second: bool) -> bool:
    """Whether a function combines the neurons of a value that has so many axes behind them, or gives some of them: it
    pools, reduces, reorders or indexes their axis.

    second   whether they are known to be axis 1; else only the axes behind them are
    """
    name = _known_name(node)
    if name in _POOLING:
        return spatial < _POOLING[name]
    if name == "getitem":
        return _indexes_neurons(node.args[1], spatial, second)
    if name not in _AXIS_ARGUMENTS:
        return False
    keyword = "dims" if name in ("flip", "roll") else "dim"
    axes = _argument(node, _AXIS_ARGUMENTS[name], keyword, _DEFAULT_AXES.get(name))
    if axes is None:
        return name not in ("softmax", "log_softmax", "softmin")
    listed = axes if isinstance(axes, (tuple, list)) else (axes,)
    return any(counts_neurons(axis, spatial, second) for axis in listed)


def _indexes_neurons(index: Any, spatial: int, second: bool) -> bool:
    """Whether an index of a tensor takes some of the neurons, or gives them at other places."""
    entries = index if isinstance(index, tuple) else (index,)
    if not all(each is Ellipsis or isinstance(each, (int, slice, list)) for each in entries):
        return False  # a new axis or a mask of several gives the others other numbers
    before = entries.index(Ellipsis) if Ellipsis in entries else len(entries)
    behind = len(entries) - before - 1
    place = len(entries) - 1 - spatial if spatial < behind else 1 if second and before > 1 else None
    return place is not None and entries[place] != slice(None)


def spatial_axes_after_mean(node: fx.Node, spatial: int) -> int | None:
    """How many axes a mean leaves behind the channels; None where it takes in others, and for other functions."""
    if _known_name(node) != "mean":
        return None
    rank = 2 + spatial
    axes = {axis + rank if axis < 0 else axis for axis in _axes(node)}
    if not axes or not axes <= set(range(2, rank)):
        return None
    return spatial if _argument(node, 2, "keepdim", False) else spatial - len(axes)


def flattened_axes(node: fx.Node) -> tuple[int, int] | None:
    """The first and last of the axes that become one; None for a function that does not flatten."""
    name = _known_name(node)
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
