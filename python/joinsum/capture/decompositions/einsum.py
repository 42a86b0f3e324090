"""The operator `joinsum::einsum`: a contraction with labels, whose gradients are contractions with labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from joinsum.base.errors import PlanError
from joinsum.capture.recording.application import current_place


@torch.library.custom_op("joinsum::einsum", mutates_args=())
def _einsum(equation: str, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """`torch.einsum` of an equation with explicit result, each label once in an operand."""
    # A result may not share memory with an operand.
    result = torch.einsum(equation, *operands)
    return result.clone() if len(operands) == 1 else result.contiguous()


@_einsum.register_fake
def _(equation: str, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    if len({operand.dtype for operand in operands}) > 1:  # torch's contractions promote no dtypes
        dtypes = [operand.dtype for operand in operands]
        raise PlanError(
            f"capture: a product of tensors of several dtypes: dtypes={dtypes}{current_place()}; convert them to one, "
            "as with x.to(torch.float32)"
        )
    left, result = equation.split("->")
    extents: dict[str, Any] = {}
    for labels, operand in zip(left.split(","), operands, strict=True):
        extents |= zip(labels, operand.shape, strict=True)
    return operands[0].new_empty([extents[label] for label in result])


def _setup(ctx: Any, inputs: tuple[str, Sequence[torch.Tensor]], output: torch.Tensor) -> None:
    equation, operands = inputs
    ctx.equation = equation
    ctx.save_for_backward(*operands)


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[None, list[torch.Tensor | None]]:
    """The gradient of an operand: the einsum of the result's gradient and the other operands, in its labels."""
    left, result = ctx.equation.split("->")
    operands = list(zip(left.split(","), ctx.saved_tensors, strict=True))
    gradients: list[torch.Tensor | None] = []
    for number, (own, operand) in enumerate(operands):
        if not operand.requires_grad:
            gradients.append(None)
            continue
        others = operands[:number] + operands[number + 1 :]
        labels = [result, *(label for label, _ in others)]
        # The forward sums alone over a label that only this operand has: the gradient repeats along it.
        remaining = "".join(label for label in own if label in "".join(labels))
        equation = f"{','.join(labels)}->{remaining}"
        gradient = torch.ops.joinsum.einsum(equation, [grad, *(each.conj() for _, each in others)])
        if remaining != own:
            shape = [extent if label in remaining else 1 for label, extent in zip(own, operand.shape, strict=True)]
            gradient = gradient.reshape(shape).expand(operand.shape)
        gradients.append(gradient)
    return None, gradients


_einsum.register_autograd(_backward, setup_context=_setup)


def _under_autocast(device: str, key: str) -> Callable[..., torch.Tensor]:
    def einsum(equation: str, operands: Sequence[torch.Tensor]) -> torch.Tensor:
        dtype = torch.get_autocast_dtype(device)
        cast = [
            each.to(dtype) if each.is_floating_point() and each.dtype != torch.float64 else each for each in operands
        ]
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))):
            result: torch.Tensor = torch.ops.joinsum.einsum(equation, cast)
        return result

    return einsum


# As for matmul: under autocast operands are of its dtype.
_LIBRARY = torch.library.Library("joinsum", "FRAGMENT")  # type: ignore[no-untyped-call]
for _device, _key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
    _LIBRARY.impl("einsum", _under_autocast(_device, _key), _key)  # type: ignore[no-untyped-call]
