"""torch.nn.functional's softmax, norms and attention as graphs of einsums, planned and run on all sites as one.

Each is a graph of the vertices of `joinsum.einsum`: a softmax is a maximum, a difference and exponential, a sum and a
quotient. The maximum only bounds the exponentials, so gradients treat it as a constant. Source:
EinDecomp, section 5. Arguments, results and gradients are torch's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from joinsum.base.arguments import integer, integers, is_number, show
from joinsum.base.errors import PlanError
from joinsum.execution.graph_call import evaluate

__all__ = ["layer_norm", "log_softmax", "rms_norm", "scaled_dot_product_attention", "softmax"]

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def softmax(input: torch.Tensor, dim: int) -> torch.Tensor:
    """exp(x) / Σ exp(x) along `dim`, of any shape; the maximum is subtracted first.

    Raises PlanError where `dim` is no axis, KernelError for a dtype without exponentials.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> joinsum.nn.functional.softmax(torch.tensor([[0., 0.], [1., 1.]]), dim=1)
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    labels, rest = _along("softmax", input, dim)
    graph = [
        f"M = einsum[{labels}->{rest}; id; max](x)",
        f"C = einsum[{rest}->{rest}; detach; add](M)",
        f"E = einsum[{labels},{rest}->{labels}; sub | exp; add](x, C)",
        f"S = einsum[{labels}->{rest}; id; add](E)",
        f"output z = einsum[{labels},{rest}->{labels}; div; add](E, S)",
    ]
    return evaluate("softmax", graph, {"x": input})


def log_softmax(input: torch.Tensor, dim: int) -> torch.Tensor:
    """log(softmax(x)) along `dim`, of any shape, without the loss of small probabilities.

    Raises PlanError where `dim` is no axis, KernelError for a dtype without exponentials.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> joinsum.nn.functional.log_softmax(torch.tensor([[0., 0.], [1., 1.]]), dim=1)
    tensor([[-0.6931, -0.6931],
            [-0.6931, -0.6931]])
    """
    labels, rest = _along("log_softmax", input, dim)
    graph = [
        f"M = einsum[{labels}->{rest}; id; max](x)",
        f"C = einsum[{rest}->{rest}; detach; add](M)",
        f"D = einsum[{labels},{rest}->{labels}; sub; add](x, C)",
        f"S = einsum[{labels}->{rest}; exp; add](D)",
        f"output z = einsum[{labels},{rest}->{labels}; expression[2, x0-log(x1)]; add](D, S)",
    ]
    return evaluate("log_softmax", graph, {"x": input})


def layer_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """(x - mean) / √(variance + eps) · weight + bias over the last axes, whose extents are `normalized_shape`.

    `weight` and `bias` have the shape `normalized_shape`. Raises PlanError where a shape does not fit.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> joinsum.nn.functional.layer_norm(torch.tensor([[1., 3.], [5., 5.]]), [2], eps=0.)[0]
    tensor([-1.,  1.])
    """
    labels, rest, last = _last_axes("layer_norm", input, normalized_shape, weight, bias)
    scale = 1 / math.prod(normalized_shape)
    graph = [
        f"M = einsum[{labels}->{rest}; scale[{scale!r}]; add](x)",
        f"D = einsum[{labels},{rest}->{labels}; sub; add](x, M)",
        f"V = einsum[{labels}->{rest}; square | scale[{scale!r}]; add](D)",
        f"n = einsum[{labels},{rest}->{labels}; expression[2, x0/sqrt(x1+{_number('layer_norm', eps)})]; add](D, V)",
    ]
    return _with_affine("layer_norm", graph, {"x": input}, (labels, last), (weight, bias))


def rms_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """x / √(mean of x² + eps) · weight over the last axes, whose extents are `normalized_shape`.

    `weight` has the shape `normalized_shape`; `eps` is by default that of the dtype, as in torch. Raises PlanError
    where a shape does not fit.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> joinsum.nn.functional.rms_norm(torch.tensor([[1., -7.], [2., 2.]]), [2])
    tensor([[ 0.2000, -1.4000],
            [ 1.0000,  1.0000]])
    """
    labels, rest, last = _last_axes("rms_norm", input, normalized_shape, weight, None)
    scale = 1 / math.prod(normalized_shape)
    least = _number("rms_norm", torch.finfo(input.dtype).eps if eps is None else eps)
    graph = [
        f"V = einsum[{labels}->{rest}; square | scale[{scale!r}]; add](x)",
        f"n = einsum[{labels},{rest}->{labels}; expression[2, x0/sqrt(x1+{least})]; add](x, V)",
    ]
    return _with_affine("rms_norm", graph, {"x": input}, (labels, last), (weight, None))


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """softmax(scale · Q Kᵀ + mask) V.

    query, key, value   [..., L, E], [..., S, E] and [..., S, D]; the leading axes are equal
    attn_mask           added to the scores, or truth values that say which take part; its axes are aligned from the
                        right with [..., L, S], and repeat where they have extent 1 or are missing
    is_causal           a query attends to the keys up to its own position; not together with a mask
    scale               1/√E by default

    A query that attends to no key gives zeros, as in torch. Raises PlanError where shapes do not fit, and for dropout.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> x = torch.eye(2)
    >>> joinsum.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    tensor([[1.0000, 0.0000],
            [0.3302, 0.6698]])
    """
    who = "scaled_dot_product_attention"
    if dropout_p != 0:
        raise PlanError(f"{who}: dropout is not part of the graph; apply it to the result: dropout_p={dropout_p}")
    _check_attention(who, (query, key, value))
    batch = _LETTERS[: query.dim() - 2]
    rows, wide = f"{batch}L", f"{batch}LS"
    factor = _number(who, 1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    tensors = {"q": query, "k": key, "v": value}
    mask = _mask(who, query, key, (attn_mask, is_causal))
    graph = [f"P = einsum[{rows}E,{batch}SE->{wide}; mul; add](q, k)"]
    if mask is None:
        graph.append(f"T = einsum[{wide}->{wide}; expression[1, x0*{factor}]; add](P)")
    else:
        seen, tensors["m"] = _repeated(who, mask, wide, [*query.shape[:-1], key.shape[-2]])
        graph.append(f"T = einsum[{wide},{seen}->{wide}; expression[2, x0*{factor}+x1]; add](P, m)")
    graph += [
        f"M = einsum[{wide}->{rows}; id; max](T)",
        f"C = einsum[{rows}->{rows}; detach; add](M)",
        # In a row without keys the maximum is -inf, and the sum 0.
        f"N = einsum[{rows}->{rows}; expression[1, where(x0==-inf,0,x0)]; add](C)",
        f"E = einsum[{wide},{rows}->{wide}; sub | exp; add](T, N)",
        f"S = einsum[{wide}->{rows}; id; add](E)",
        f"W = einsum[{wide},{rows}->{wide}; expression[2, where(x1==0,0,x0/x1)]; add](E, S)",
        f"output z = einsum[{wide},{batch}SD->{rows}D; mul; add](W, v)",
    ]
    return evaluate(who, graph, tensors)


# --- labels and shapes ------------------------------------------------------------------------------------------------


def _along(who: str, input: torch.Tensor, dim: int) -> tuple[str, str]:
    """Labels of a tensor, and of it without axis `dim`."""
    axis = integer(who, "dim", dim)
    if not -input.dim() <= axis < input.dim():
        raise PlanError(f"{who}: no such axis: dim={dim}, shape={list(input.shape)}")
    labels = _LETTERS[: input.dim()]
    axis %= input.dim()
    return labels, labels[:axis] + labels[axis + 1 :]


def _last_axes(
    who: str,
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> tuple[str, str, str]:
    """Labels of a tensor, of its first axes, and of its last ones, which are normalised."""
    shape = integers(who, "normalized_shape", normalized_shape)
    first = input.dim() - len(shape)
    if not shape or first < 0 or list(input.shape[first:]) != list(shape):
        raise PlanError(f"{who}: not the last extents: normalized_shape={list(shape)}, shape={list(input.shape)}")
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and list(tensor.shape) != list(shape):
            raise PlanError(
                f"{who}: {name} has another shape than normalized_shape: {name}={list(tensor.shape)}, "
                f"normalized_shape={list(shape)}"
            )
    labels = _LETTERS[: input.dim()]
    return labels, labels[:first], labels[first:]


def _with_affine(
    who: str,
    graph: list[str],
    tensors: dict[str, torch.Tensor],
    labels: tuple[str, str],
    affine: tuple[torch.Tensor | None, torch.Tensor | None],
) -> torch.Tensor:
    """n · weight + bias."""
    every, last = labels
    now = "n"
    for name, join, tensor in zip(("w", "b"), ("mul", "add"), affine, strict=True):
        if tensor is not None:
            tensors[name] = tensor
            graph.append(f"{now}{name} = einsum[{every},{last}->{every}; {join}; add]({now}, {name})")
            now += name
    return evaluate(who, [*graph, f"output z = {now}"], tensors)


def _check_attention(who: str, tensors: Sequence[torch.Tensor]) -> None:
    query, key, value = tensors
    if any(x.dim() < 2 for x in tensors) or len({x.shape[:-2] for x in tensors}) > 1:
        shapes = [list(x.shape) for x in tensors]
        raise PlanError(f"{who}: query, key and value have equal leading axes and two more: shapes={shapes}")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        shapes = [list(x.shape) for x in tensors]
        raise PlanError(f"{who}: shapes are [..., L, E], [..., S, E] and [..., S, D]: shapes={shapes}")


def _mask(
    who: str, query: torch.Tensor, key: torch.Tensor, options: tuple[torch.Tensor | None, bool]
) -> torch.Tensor | None:
    """The term that is added to the scores."""
    mask, causal = options
    if causal:
        if mask is not None:
            raise PlanError(f"{who}: give a mask or is_causal=True, not both: attn_mask={show(tuple(mask.shape))}")
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    if mask is None or mask.dtype is not torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=query.dtype, device=query.device).masked_fill(~mask, -math.inf)


def _repeated(who: str, mask: torch.Tensor, labels: str, shape: Sequence[int]) -> tuple[str, torch.Tensor]:
    """Labels of a mask's axes, and the mask without those that repeat."""
    lead = len(shape) - mask.dim()
    if lead < 0 or any(own not in (1, n) for own, n in zip(mask.shape, shape[lead:], strict=True)):
        raise PlanError(f"{who}: a mask does not fit the scores: mask={list(mask.shape)}, scores={list(shape)}")
    present = [axis for axis in range(mask.dim()) if mask.shape[axis] == shape[lead + axis]]
    gone = [axis for axis in range(mask.dim()) if axis not in present]
    return "".join(labels[lead + axis] for axis in present), mask.squeeze(gone) if gone else mask


def _number(who: str, value: float) -> str:
    if not is_number(value) or not math.isfinite(value):
        raise PlanError(f"{who}: not a number: value={show(value)}")
    return f"({float(value)!r})"
