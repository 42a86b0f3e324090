"""`joinsum.distributed_einsum`: a context manager in which torch's contractions run on all sites."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from joinsum.base.errors import PlanError
from joinsum.execution.einsum import einsum
from joinsum.frontend.tracing.torch_internals import function_modes, wrap_checkpointed

__all__ = ["distributed_einsum"]

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class distributed_einsum(TorchFunctionMode):
    """A context manager in which every `torch.einsum`, `matmul`, `@`, `mm`, `bmm` and `linear` of plain tensors runs on
    all sites through `joinsum.einsum`, with gradients; everything else is unchanged. Each call is planned alone, once
    for its shapes; `joinsum.compile` plans a function as a whole. Contractions inside torch's own C++ operators, such
    as `scaled_dot_product_attention`, are not affected.

    The backward passes of these calls run on all sites wherever they are started, and so does what
    `torch.utils.checkpoint` recomputes in them. On a process group all ranks compute equal tensors. Raises the errors
    of `joinsum.einsum`.
    Source: EinDecomp paper, section 9.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=4)
    >>> x = torch.arange(4.).reshape(2, 2)
    >>> with joinsum.distributed_einsum():
    ...     y = x @ x
    >>> torch.equal(y, x @ x)
    True
    """

    def __enter__(self) -> distributed_einsum:
        _wrap_checkpoints_once()
        entered: distributed_einsum = super().__enter__()  # type: ignore[no-untyped-call]
        return entered

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        contraction = _CONTRACTIONS.get(func)
        if contraction is None or kwargs.get("out") is not None:
            return func(*args, **kwargs)
        # torch disables the mode while this runs, so the implementation's own calls of torch are plain ones.
        return contraction(*args, **kwargs)


@functools.cache
def _wrap_checkpoints_once() -> None:
    """Makes functions that are checkpointed inside the context run inside it when `torch.utils.checkpoint` recomputes
    them: the backward pass may run outside, and torch runs it without function modes."""
    wrap_checkpointed(_entering_again)


def _entering_again(function: Callable[..., Any]) -> Callable[..., Any]:
    """Inside the context, a version of the function that enters the context wherever it is called."""
    if not _inside():
        return function

    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        if _inside():
            return function(*args, **kwargs)
        with distributed_einsum():
            return function(*args, **kwargs)

    return inside


def _inside() -> bool:
    return any(isinstance(mode, distributed_einsum) for mode in function_modes())


def _einsum(*arguments: Any) -> torch.Tensor:
    # torch.einsum also accepts the operands as one list.
    if len(arguments) == 2 and isinstance(arguments[1], (list, tuple)):
        arguments = (arguments[0], *arguments[1])
    return einsum(*arguments)  # type: ignore[return-value]


def _matmul(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """torch.matmul: vectors, matrices, and batches with broadcasting."""
    if input.dim() == 0 or other.dim() == 0:
        raise PlanError(f"matmul: operands have an axis: shapes={list(input.shape)}, {list(other.shape)}; use *")
    rank = max(input.dim(), other.dim(), 2)
    batch = _LETTERS[: rank - 2]
    row = "X" if input.dim() > 1 else ""
    column = "Z" if other.dim() > 1 else ""
    left, left_labels = _without_broadcast(input, batch, row + "Y")
    right, right_labels = _without_broadcast(other, batch, "Y" + column)
    found = [label for label in batch if label in left_labels or label in right_labels]
    product = einsum(f"{left_labels},{right_labels}->{''.join(found)}{row}{column}", left, right)
    shape = torch.broadcast_shapes(input.shape[:-2], other.shape[:-2])  # type: ignore[no-untyped-call]
    core = ([input.shape[-2]] if row else []) + ([other.shape[-1]] if column else [])
    return product.reshape([*shape, *core])  # type: ignore[union-attr]


def _without_broadcast(x: torch.Tensor, batch: str, core: str) -> tuple[torch.Tensor, str]:
    """The tensor without batch axes of length one, and its labels."""
    own = batch[len(batch) - (x.dim() - len(core)) :] if x.dim() > len(core) else ""
    dropped = [axis for axis in range(len(own)) if x.shape[axis] == 1]
    labels = "".join(label for axis, label in enumerate(own) if axis not in dropped)
    return (x.squeeze(dropped) if dropped else x), labels + core


def _linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    batch = _LETTERS[: input.dim() - 1]
    column, result = ("Z", batch + "Z") if weight.dim() == 2 else ("", batch)
    product: torch.Tensor = einsum(f"{batch}Y,{column}Y->{result}", input, weight)  # type: ignore[assignment]
    return product if bias is None else product + bias


def _mm(input: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    return einsum("XY,YZ->XZ", input, mat2)  # type: ignore[return-value]


def _bmm(input: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    return einsum("aXY,aYZ->aXZ", input, mat2)  # type: ignore[return-value]


def _swapped(other: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
    return _matmul(input, other)


_CONTRACTIONS: dict[Any, Callable[..., torch.Tensor]] = {
    torch.einsum: _einsum,
    torch.matmul: _matmul,
    torch.Tensor.matmul: _matmul,
    torch.Tensor.__matmul__: _matmul,
    torch.Tensor.__rmatmul__: _swapped,
    torch.mm: _mm,
    torch.Tensor.mm: _mm,
    torch.bmm: _bmm,
    torch.Tensor.bmm: _bmm,
    torch.nn.functional.linear: _linear,
}
