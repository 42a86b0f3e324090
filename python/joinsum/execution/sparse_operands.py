"""The operands of an einsum of which one is sparse: read, checked, and as kernels take them; formats of its result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from joinsum import _C
from joinsum.base.arguments import check_has_elements, show
from joinsum.base.dtypes import dtype_name
from joinsum.base.errors import PlanError
from joinsum.cluster.context import Context
from joinsum.graphs.equation import Operations, common_dtype, new_labels
from joinsum.graphs.query_vertices import einsum_program
from joinsum.sparse import SparseTensor
from joinsum.sparse.spellings import levels_of

__all__ = [
    "OutFormat",
    "ReadEinsum",
    "all_finite",
    "as_sparse",
    "asked_formats",
    "check_sparse_operands",
    "formatted",
    "handle_of",
    "has_sparse",
    "neutral_fill",
    "program_of",
    "read_before",
    "without_half",
]

# "auto", "dense", or the levels of a SparseTensor.
OutFormat = str | Sequence[str]

_DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool)

_HALVES = (torch.float16, torch.bfloat16)

# Elements of dense results that kernels fill.
_MOST_DENSE = 1 << 28


def has_sparse(operands: Sequence[object]) -> bool:
    """Whether an operand is a SparseTensor, or a tensor of a sparse layout of torch's."""
    return any(
        isinstance(x, SparseTensor) or (isinstance(x, torch.Tensor) and x.layout is not torch.strided) for x in operands
    )


@dataclass(frozen=True)
class ReadEinsum:
    """An einsum over sparse operands as it was read."""

    equation: str
    operations: Operations
    labels: list[list[str]]
    result: list[str]
    extents: dict[str, int]
    dtype: torch.dtype

    @property
    def gives_truths(self) -> bool:
        """Whether its results are truth values."""
        return self.operations.agg in ("any", "all")


def read_before(
    current: Context, equation: str, operands: Sequence[SparseTensor | torch.Tensor], operations: Operations
) -> ReadEinsum:
    """The same call is read once."""
    shapes, dtypes = tuple(tuple(x.shape) for x in operands), tuple(x.dtype for x in operands)
    key = ("sparse_read", equation, operations, shapes, dtypes)
    return current.cached(key, lambda: _read(equation, operands, operations))


def _read(equation: str, operands: Sequence[SparseTensor | torch.Tensor], operations: Operations) -> ReadEinsum:
    shapes = [list(x.shape) for x in operands]
    labels, result, extents = _C.parse_equation(equation, shapes, dict(operations.extents))
    for number, (own, shape) in enumerate(zip(labels, shapes, strict=True)):
        for label, extent in zip(own, shape, strict=True):
            if extent != extents[label]:
                raise PlanError(
                    f"einsum: sparse operands are not repeated along an axis of one element; leave the axis out: "
                    f"operand={number}, label={label}, extents=[{extent}, {extents[label]}]\n  {equation}"
                )
    new = new_labels(labels, result, extents)
    dtypes = [x.dtype for x in operands]
    if operations.products:
        # Autocast leaves sparse products in the dtype of their operands, as torch does.
        with torch.autocast("cpu", enabled=False):
            dtype = common_dtype(equation, shapes, dtypes, new=new)
    else:
        dtype = dtypes[0] if len(set(dtypes)) == 1 else None
    if dtype is None and len(set(dtypes)) > 1:
        raise PlanError(f"einsum: dtypes of the operands differ; convert one with to(dtype): dtypes={show(dtypes)}")
    dtype = dtype or dtypes[0]
    _C.sparse_aggregation(operations.agg)  # raises for one that sparse operands do not have, even if nothing is reduced
    if operations.agg == "logsumexp" and not dtype.is_floating_point:
        raise PlanError(
            f"einsum: logsumexp is not defined on this dtype; convert the operands with to(torch.float64): "
            f"dtype={dtype}\n  {equation}"
        )
    if dtype is torch.bool and operations.agg == "sum" and operations.join != "mul" and len(operands) > 1:
        raise PlanError(
            f'einsum: sums of truth values; give agg="any" or "all", or count them in to(torch.int64): '
            f"join={operations.join}\n  {equation}"
        )
    if dtype is torch.bool and operations.products and len(operands) > 1:
        operations = replace(operations, agg="any")  # the fill, false, annihilates the product
    if dtype not in _DTYPES:
        names = ", ".join(str(each) for each in _DTYPES)
        raise PlanError(
            f"einsum: sparse operands have one of the dtypes {names}; convert them with to(dtype): dtype={dtype}"
        )
    return ReadEinsum(equation, operations, labels, result, extents, dtype)


def check_sparse_operands(operands: Sequence[object]) -> None:
    """Raises PlanError for operands that are no tensors, without data, or of a sparse layout of torch's in autograd."""
    for number, operand in enumerate(operands):
        if not isinstance(operand, (SparseTensor, torch.Tensor)):
            remedy = "SparseTensor.from_scipy(x)" if hasattr(operand, "tocoo") else "torch.as_tensor(x)"
            raise PlanError(
                f"einsum: an operand beside sparse ones is a tensor; give {remedy}: operand={number}, "
                f"type={type(operand).__name__}"
            )
        if isinstance(operand, torch.Tensor) and operand.layout is not torch.strided and operand.requires_grad:
            raise PlanError(
                f"einsum: a tensor of torch's sparse layouts has no gradient here; give "
                f"SparseTensor.from_torch(x.detach()).with_values(values): operand={number}"
            )
        if isinstance(operand, torch.Tensor):
            check_has_elements(f"einsum: operand {number}", operand)


def without_half(operand: SparseTensor | torch.Tensor) -> SparseTensor | torch.Tensor:
    """What autocast made half a float, as sparse operands are."""
    return operand.float() if isinstance(operand, torch.Tensor) and operand.dtype in _HALVES else operand


def neutral_fill(read: ReadEinsum, operands: Sequence[SparseTensor | torch.Tensor]) -> float:
    """A fill for dense operands, which store every element: one that annihilates the join, so that no loop has to visit
    what sparse operands do not store; none of which has the opposite one."""
    if read.dtype.is_floating_point and read.operations.join == "add":
        fill = {"min": math.inf, "max": -math.inf, "logsumexp": -math.inf}.get(read.operations.agg, 0.0)
        return 0.0 if any(isinstance(x, SparseTensor) and x.fill == -fill for x in operands) else fill
    return 0.0


def as_sparse(operand: SparseTensor | torch.Tensor, read: ReadEinsum, fill: float) -> SparseTensor:
    """An operand of the einsum's dtype; a dense one stores what differs from the fill."""
    if isinstance(operand, SparseTensor):
        return operand if operand.dtype is read.dtype else operand.to(read.dtype)
    if operand.device.type != "cpu":
        raise PlanError(f"einsum: sparse operands lie on the CPU; move them with x.cpu(): device={operand.device}")
    if operand.layout is not torch.strided:
        return SparseTensor.from_torch(operand.to(read.dtype))
    return SparseTensor.from_torch(operand.detach().to(read.dtype), fill=fill)


def handle_of(x: SparseTensor | torch.Tensor, operations: Operations, fill: float) -> _C.SparseTensor:
    """An operand as kernels read it; what is false in dense factors is not visited."""
    if isinstance(x, SparseTensor):
        return x.handle
    return _C.SparseTensor.from_dense(
        x.detach().resolve_neg(), fill, x.dtype is torch.bool and operations.join == "mul"
    )


def program_of(read: ReadEinsum, operands: Sequence[SparseTensor]) -> _C.SparseProgram:
    """The program of the einsum, over operands of its dtype."""
    inputs = [_C.SparseInput(list(x.shape), x.fill, x.handle, 0, []) for x in operands]
    dtype = dtype_name("einsum", read.dtype)
    return einsum_program(read.labels, read.result, read.extents, read.operations, inputs, dtype)


def asked_formats(read: ReadEinsum, out_format: OutFormat) -> tuple[str, ...] | None:
    """The levels of the result that are asked for, in the order of its axes, or lists of what it stores, of which other
    ones are made; None where they are to be chosen, and for more dense elements than fit."""
    rank = len(read.result)
    if out_format == "auto" or rank == 0:
        return None
    if out_format == "dense":
        small = math.prod(read.extents[label] for label in read.result) <= _MOST_DENSE
        return ("dense",) * rank if small else None
    formats, axes = levels_of("einsum", out_format, None, rank)
    if axes == list(range(rank)) and "dense" not in formats[1:]:
        return tuple(formats)
    return None if set(formats) == {"dense"} else ("sorted_list",) * rank


def all_finite(operands: Sequence[SparseTensor | torch.Tensor]) -> bool:
    """Whether no stored element is an infinity or no number."""
    return all(x.handle.all_finite if isinstance(x, SparseTensor) else bool(x.isfinite().all()) for x in operands)


def formatted(
    result: SparseTensor | torch.Tensor, gives_truths: bool, out_format: OutFormat
) -> SparseTensor | torch.Tensor:
    """The result as it was asked for, of truth values where the einsum gives these."""
    if gives_truths:
        result = result.to(torch.bool)
    if out_format == "auto":
        return result
    if isinstance(result, torch.Tensor):
        return result if out_format == "dense" else SparseTensor.from_torch(result).with_levels(out_format)
    return result.to_dense() if out_format == "dense" else result.with_levels(out_format)
