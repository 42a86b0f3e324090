"""Names of element types: torch's dtypes and the short names that plans print."""

from __future__ import annotations

import torch

from joinsum.base.errors import PlanError

__all__ = ["NAMES", "accumulation_dtype", "dtype_name", "torch_dtype"]

NAMES: dict[torch.dtype, str] = {
    torch.bool: "bool",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex64: "c64",
    torch.complex128: "c128",
}
_DTYPES = {name: dtype for dtype, name in NAMES.items()}


def dtype_name(who: str, dtype: torch.dtype) -> str:
    """Short name of `dtype`; raises PlanError for one that joinsum has no arrays of. `who` opens the message.

    >>> dtype_name("relation", torch.bfloat16)
    'bf16'
    """
    name = NAMES.get(dtype)
    if name is None:
        raise PlanError(f"{who}: unsupported dtype: dtype={dtype}, supported=[{', '.join(map(str, NAMES))}]")
    return name


def torch_dtype(name: str) -> torch.dtype:
    """The dtype that plans print as `name`.

    >>> torch_dtype("c64")
    torch.complex64
    """
    return _DTYPES[name]


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which torch's kernels add numbers of a dtype: float32 for half types.

    >>> accumulation_dtype(torch.bfloat16), accumulation_dtype(torch.float64)
    (torch.float32, torch.float64)
    """
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
