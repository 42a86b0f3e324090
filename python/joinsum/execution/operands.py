"""Operands of einsums: tensors that joinsum can read, what torch does while it calls, and `out=`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ParamSpec, TypeVar

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from joinsum.base.arguments import check_array, check_has_elements, show
from joinsum.base.errors import PlanError

__all__ = [
    "autocast_dtype",
    "check_not_traced",
    "check_not_transformed",
    "check_operands",
    "check_tensors",
    "checksum",
    "checksum_of",
    "fixed_shape",
    "outside_of_graphs",
    "recording",
    "result_into",
    "share_memory",
    "tensor_traits",
]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_CHUNK = 1 << 15  # words of 8 bytes of an operand that are mixed at once, in a cache
_FAKE = (FakeTensor, FunctionalTensor)  # what operands are while torch records

_OUTSIDE = (
    "a planned graph runs on all sites by its own plan, outside of compiled graphs; in a function for joinsum.compile "
    "call joinsum.einsum or torch's operators, which it plans together"
)


def check_operands(who: str, operands: Sequence[object]) -> list[torch.Tensor]:
    """The operands as tensors that joinsum can read, on one device; raises for what is none, naming the operand."""
    return check_tensors(who, {f"operand {i}": x for i, x in enumerate(operands)})


def check_tensors(who: str, named: Mapping[str, object]) -> list[torch.Tensor]:
    """The same for what messages call by name."""
    devices = {name: x.device for name, x in named.items() if isinstance(x, torch.Tensor)}
    if len(set(devices.values())) > 1:
        found = ", ".join(f"{name}={device}" for name, device in devices.items())
        raise PlanError(f"{who}: operands lie on different devices; move them to one with x.to(device): {found}")
    return [_checked(f"{who}: {name}", x) for name, x in named.items()]


def fixed_shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """The shape as numbers: a recording of symbolic ones then holds for these alone.

    >>> fixed_shape(torch.ones(2, 3))
    (2, 3)
    """
    return tuple(int(extent) for extent in tensor.shape)


def tensor_traits(tensors: Iterable[torch.Tensor], recorded: bool) -> list[tuple[object, ...]]:
    """All that the checks of tensors read, as a key: tensors of equal traits are checked once. `recorded` says whether
    torch records operators now, where shapes may be symbolic."""
    return [(fixed_shape(x) if recorded else x.shape, x.dtype, x.device, x.layout, type(x)) for x in tensors]


def _checked(who: str, operand: object) -> torch.Tensor:
    tensor = operand
    if isinstance(operand, torch.Tensor):
        if not (isinstance(operand, _FAKE) and recording()):
            check_has_elements(who, operand)
        if operand.requires_grad:
            tensor = operand.detach()
    check_array(who, tensor)
    assert isinstance(operand, torch.Tensor)
    return operand


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype that torch's autocast converts products to now; None where it is off."""
    kind = device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if on else None


def checksum(tensor: torch.Tensor) -> int:
    """A number, modulo 2^64, of the elements and their order: tensors that differ hardly ever share it."""
    flat = tensor.contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8)
    words = flat.numel() // 8
    whole, rest = flat[: 8 * words], flat[8 * words :]
    whole = (whole.clone() if whole.storage_offset() % 8 else whole).view(torch.int64)
    total = _mixed_sum(rest.to(torch.int64), words)
    for begin in range(0, words, _CHUNK):
        total += _mixed_sum(whole[begin : begin + _CHUNK], begin)
    return total % 2**64


def checksum_of(tensor: torch.Tensor) -> str:
    """The checksum of a tensor, or those of what a sparse one consists of."""
    parts = [tensor.indices(), tensor.values()] if tensor.is_sparse else [tensor]
    return "+".join(str(checksum(part)) for part in parts)


def _mixed_sum(words: torch.Tensor, begin: int) -> int:
    """Σ of the words, each mixed with its place.

    Source: the finalizer of SplitMix64, in Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014.
    """
    mixed = torch.arange(begin + 1, begin + 1 + words.numel(), device=words.device)
    mixed.mul_(0x1E3779B97F4A7C15).add_(words)
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1)):
        mixed.bitwise_xor_(mixed >> shift).mul_(factor)
    return int(mixed.sum())


# --- out= -------------------------------------------------------------------------------------------------------------


def result_into(out: object, result: torch.Tensor) -> torch.Tensor:
    """Writes `result` into the tensor `out`; raises before anything is written."""
    if not isinstance(out, torch.Tensor):
        raise PlanError(f"einsum: out is a tensor: out={show(out)}")
    for name in ("shape", "dtype", "device"):
        mine, wanted = getattr(out, name), getattr(result, name)
        if mine != wanted:
            shown = [list(x) if isinstance(x, torch.Size) else x for x in (mine, wanted)]
            raise PlanError(f"einsum: out has another {name} than the result: out={shown[0]}, result={shown[1]}")
    if torch.is_grad_enabled() and (out.requires_grad or result.requires_grad):
        raise PlanError("einsum: out= is not differentiated; leave it out, or call inside torch.no_grad()")
    # Dynamo itself tracks what shares memory.
    if not torch.compiler.is_dynamo_compiling() and share_memory(result, out):
        result = result.clone()
    return out.copy_(result)


def share_memory(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether both are views of one memory, of whatever parts of it.

    >>> x = torch.ones(2, 3)
    >>> share_memory(x[0], x[1]), share_memory(x, x.clone())
    (True, False)
    """
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


# --- what torch does --------------------------------------------------------------------------------------------------


def check_not_traced(who: str) -> None:
    """Raises PlanError inside `torch.jit.trace`: its recording would have this call's result as a constant. `who` opens
    the message."""
    if torch._C._get_tracing_state() is not None:
        raise PlanError(f"{who}: torch.jit.trace cannot record what sites run; use torch.compile or joinsum.compile")


def check_not_transformed(who: str) -> None:
    """Raises PlanError inside a transform of `torch.func` in a function that is compiled: torch lets no operator stand
    there that is registered in Python. `who` opens the message."""
    if torch._C._are_functorch_transforms_active():
        raise PlanError(
            f"{who}: a compiled function cannot transform it (torch.func.grad, vmap, jvp); transform the compiled "
            "function, or take torch's operators there"
        )


_Mode = torch._C._TorchDispatchModeKey


def recording() -> bool:
    """Whether torch records operators, to run them again on other tensors, or infers shapes of tensors without data:
    `make_fx`, `torch.export`, and what is below `torch.compile`."""
    return any(torch._C._get_dispatch_mode(mode) is not None for mode in (_Mode.PROXY, _Mode.FUNCTIONAL, _Mode.FAKE))


def outside_of_graphs(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, which Dynamo leaves out of what it compiles: it breaks the graph there, and where it may not break
    it says why. As `torch.compiler.disable`, which would load Dynamo with joinsum."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = _OUTSIDE  # type: ignore[attr-defined]
    return function
