"""What an einsum is, by torch alone: the operands are spread over all labels, joined element by element, then reduced.

`Value` carries beside a tensor the bound that rounding errors are measured by: the same einsum on absolute values,
where differences become sums, and extremes keep their value but pass a gradient to all that they were chosen from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce

import torch

Labels = tuple[str, ...]
Elementwise = Callable[..., torch.Tensor]

# Closer than this part of their bound two numbers may be equal after rounding, or the other way round.
MARGIN = 1e-4


@dataclass(frozen=True)
class Vertex:
    """result = ⊕ over the labels that it lacks of ⊗(operands). A join is `kernel | map`; the map follows the last."""

    name: str
    inputs: tuple[str, ...]
    labels: tuple[Labels, ...]
    result: Labels
    join: str
    agg: str
    extents: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Value:
    """A tensor with its bound.

    exact     no rounding occurs in it, whatever the order of the operations
    positive  it is an input of positive numbers
    """

    tensor: torch.Tensor
    bound: torch.Tensor
    exact: bool
    positive: bool = False


class Unstable(Exception):
    """Rounding may change a result by more than its bound: an extreme of all but equal numbers, a huge exponent."""


# --- kernels ----------------------------------------------------------------------------------------------------------


class _Reciprocal(torch.autograd.Function):
    """1 / x whose slope counts as positive, as bounds of gradients do."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return 1 / x

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, d: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return d / (x * x)


def _passing_to_all(value: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """The value of the one with the gradient of the other."""
    return value.detach() + total - total.detach()


def _extreme_of_two(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _passing_to_all(torch.maximum(a, b), a + b)


JOINS: dict[str, tuple[Elementwise, Elementwise]] = {
    "mul": (torch.mul, torch.mul),
    "add": (torch.add, torch.add),
    "sub": (torch.sub, torch.add),
    "div": (torch.div, lambda a, b: a * _Reciprocal.apply(b)),
    "max": (torch.maximum, _extreme_of_two),
    "min": (torch.minimum, _extreme_of_two),
    "squared_difference": (lambda a, b: (a - b) * (a - b), lambda a, b: (a + b) * (a + b)),
    "abs_difference": (lambda a, b: (a - b).abs(), torch.add),
}
MAPS: dict[str, tuple[Elementwise, Elementwise]] = {
    "id": (lambda x: x, lambda m: m),
    "negate": (torch.neg, lambda m: m),
    "abs": (torch.abs, lambda m: m),
    "square": (lambda x: x * x, lambda m: m * m),
    "relu": (torch.relu, lambda m: m),
    "exp": (torch.exp, torch.exp),
    "tanh": (torch.tanh, lambda m: m),
    "sigmoid": (torch.sigmoid, lambda m: m + 1),
    "softplus": (lambda x: torch.logaddexp(x, torch.zeros_like(x)), lambda m: m + 1),
    "cast[f32]": (lambda x: x.double(), lambda m: m),
    "cast[f64]": (lambda x: x.double(), lambda m: m),
    "cast[i64]": (lambda x: x.double(), lambda m: m),
}
AGGREGATIONS = ("sum", "prod", "max", "min", "logsumexp", "any", "all")

_SELECTING = {"max", "min", "id", "negate", "abs", "relu", "cast[f32]", "cast[f64]", "cast[i64]"}
_WHOLE = _SELECTING | {"mul", "add", "sub", "squared_difference", "abs_difference", "square"}
_STEEP = {"exp": 8.0, "logsumexp": 8.0}
_NEAR_ZERO = {"abs", "relu"}
_NEAR_EACH_OTHER = {"max", "min", "abs_difference"}


# --- one vertex -------------------------------------------------------------------------------------------------------


def evaluate(vertex: Vertex, operands: Sequence[Value], most: float) -> Value:
    """The vertex's value. Whole numbers are exact up to `most`. Raises Unstable."""
    order = _order(vertex)
    tensors = [spread(x.tensor, labels, order) for x, labels in zip(operands, vertex.labels, strict=True)]
    bounds = [spread(x.bound, labels, order) for x, labels in zip(operands, vertex.labels, strict=True)]
    kernels = vertex.join.split(" | ")
    exact = all(x.exact for x in operands)
    whole = exact and all(_is_whole(x.tensor) for x in operands)
    if len(operands) > 1:
        name = kernels.pop(0)
        if name == "div" and not all(x.positive for x in operands[1:]):
            raise Unstable("a divisor that may be near 0")
        tensor, bound = tensors[0], bounds[0]
        for y, m in zip(tensors[1:], bounds[1:], strict=True):
            _check_apart(name, tensor - y, bound + m, exact)
            tensor, bound = JOINS[name][0](tensor, y), JOINS[name][1](bound, m)
            exact = exact and _stays_exact(name, whole, bound, most)
    else:
        tensor, bound = tensors[0], bounds[0]
    for name in kernels:
        _check_map(name, tensor, bound, exact)
        tensor, bound = MAPS[name][0](tensor), MAPS[name][1](bound)
        exact = exact and _stays_exact(name, whole, bound, most)
    remaining = [label for label in order if label in vertex.result]
    tensor, bound, exact = _aggregated(vertex.agg, tensor, bound, len(remaining), exact, whole, most)
    return Value(placed(tensor, remaining, vertex), placed(bound, remaining, vertex), exact)


def _order(vertex: Vertex) -> list[str]:
    """All labels of the operands, those that stay first."""
    met = list(dict.fromkeys(label for labels in vertex.labels for label in labels))
    return sorted(met, key=lambda label: label not in vertex.result)


def _is_whole(x: torch.Tensor) -> bool:
    return x.dtype is torch.bool or bool((x == x.round()).all())


def _stays_exact(name: str, whole: bool, bound: torch.Tensor, most: float) -> bool:
    return name in _SELECTING or (whole and name in _WHOLE and _largest(bound) < most)


def _largest(x: torch.Tensor) -> float:
    return float(x.detach().max()) if x.numel() else 0.0


def _check_apart(name: str, difference: torch.Tensor, bound: torch.Tensor, exact: bool) -> None:
    if name in _NEAR_EACH_OTHER and not exact and bool((difference.abs() <= MARGIN * bound).any()):
        raise Unstable(f"{name} of numbers that are all but equal")


def _check_map(name: str, tensor: torch.Tensor, bound: torch.Tensor, exact: bool) -> None:
    if name in _NEAR_ZERO and not exact and bool((tensor.abs() <= MARGIN * bound).any()):
        raise Unstable(f"{name} of a number that is all but 0")
    if _largest(bound) > _STEEP.get(name, float("inf")):
        raise Unstable(f"{name} of a large number")


def spread(x: torch.Tensor, labels: Sequence[str], order: Sequence[str]) -> torch.Tensor:
    """The operand with an axis for each label of `order`: of extent 1 where it lacks the label."""
    names = list(labels)
    while len(set(names)) < len(names):
        first, second = next((names.index(n), a) for a, n in enumerate(names) if n in names[:a])
        x = x.diagonal(0, first, second)
        names = [n for a, n in enumerate(names) if a not in (first, second)] + [names[first]]
    x = x.permute([names.index(label) for label in order if label in names])
    for axis, label in enumerate(order):
        if label not in names:
            x = x.unsqueeze(axis)
    return x


def _aggregated(
    agg: str, tensor: torch.Tensor, bound: torch.Tensor, remaining: int, exact: bool, whole: bool, most: float
) -> tuple[torch.Tensor, torch.Tensor, bool]:
    if agg in ("any", "all"):
        if tensor.dtype is not torch.bool and not exact and bool((tensor.abs() <= MARGIN * bound).any()):
            raise Unstable(f"{agg} of a number that is all but 0")
        truth = (tensor != 0).reshape([*tensor.shape[:remaining], _count(tensor.shape[remaining:])])
        value = truth.any(-1) if agg == "any" else truth.all(-1)
        return value, torch.ones(value.shape, dtype=torch.float64), True
    if remaining == tensor.ndim:
        return tensor, bound, exact
    tensor, bound = (x.reshape([*x.shape[:remaining], _count(x.shape[remaining:])]) for x in (tensor, bound))
    if agg == "sum":
        value, limit = tensor.sum(-1), bound.sum(-1)
    elif agg == "prod":
        _check_range(tensor)
        value, limit = tensor.prod(-1), bound.prod(-1)
    elif agg == "logsumexp":
        _check_map(agg, tensor, bound, exact)
        value, limit = torch.logsumexp(tensor, -1), _bound_of_extreme(bound) + torch.tensor(bound.shape[-1] + 1.0).log()
    else:
        value, limit = _extreme(agg, tensor, bound, exact), _bound_of_extreme(bound)
    aggregates_exactly = agg in ("max", "min") or (agg in ("sum", "prod") and whole and _largest(limit) < most)
    return value, limit, exact and aggregates_exactly


def _check_range(tensor: torch.Tensor) -> None:
    """No product of some of the elements may leave the range of a float32."""
    logarithms = tensor.detach().abs().log().nan_to_num(0, 0, 0)
    if _largest(logarithms.clamp(min=0).sum(-1)) > 60 or _largest(-logarithms.clamp(max=0).sum(-1)) > 60:
        raise Unstable("prod of many numbers")


def _count(shape: Sequence[int]) -> int:
    return reduce(lambda a, b: a * b, shape, 1)


def _bound_of_extreme(bound: torch.Tensor) -> torch.Tensor:
    if bound.shape[-1] == 0:
        return bound.sum(-1)
    return _passing_to_all(bound.amax(-1), bound.sum(-1))


def _extreme(agg: str, tensor: torch.Tensor, bound: torch.Tensor, exact: bool) -> torch.Tensor:
    if tensor.shape[-1] == 0:
        return tensor.sum(-1) + float("-inf" if agg == "max" else "inf")
    if tensor.shape[-1] > 1 and not exact:
        two = torch.topk(tensor if agg == "max" else -tensor, 2, -1).values
        if bool((two[..., 0] - two[..., 1] <= MARGIN * bound.amax(-1)).any()):
            raise Unstable(f"{agg} of numbers that are all but equal")
    return tensor.amax(-1) if agg == "max" else tensor.amin(-1)


def placed(x: torch.Tensor, remaining: Sequence[str], vertex: Vertex) -> torch.Tensor:
    """With the axes of the result: broadcasts, and zeros beside the diagonals of labels that it repeats."""
    once = list(dict.fromkeys(vertex.result))
    x = spread(x, remaining, once)
    x = x.expand([vertex.extents.get(label, x.shape[axis]) for axis, label in enumerate(once)])
    shape = [x.shape[once.index(label)] for label in vertex.result]
    firsts = [axis for axis, label in enumerate(vertex.result) if label not in vertex.result[:axis]]
    on_diagonal = torch.ones(shape, dtype=torch.bool)
    for axis, label in enumerate(vertex.result):
        on_diagonal &= _along(axis, shape) == _along(vertex.result.index(label), shape)
    view = x
    for axis in range(len(shape)):
        if axis not in firsts:
            view = view.unsqueeze(axis)
    return torch.where(on_diagonal, view, torch.zeros((), dtype=x.dtype))


def _along(axis: int, shape: Sequence[int]) -> torch.Tensor:
    """Each element's index along one axis."""
    return torch.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))])
