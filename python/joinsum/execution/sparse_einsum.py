"""Einsums of which an operand is sparse, with gradients, by the loops of compressed rows or by planned queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from joinsum.base.errors import PlanError
from joinsum.cluster.context import Context
from joinsum.execution.compressed_rows import (
    LIKE_OPERANDS,
    Call,
    by_rows,
    has_few_elements,
    remember,
    remember_for_traits,
)
from joinsum.execution.elements_in_rows import by_elements, joins_elements
from joinsum.execution.operands import check_not_traced
from joinsum.execution.paired_rows import by_pairs
from joinsum.execution.planned_sparse_einsum import PlannedSparseEinsum
from joinsum.execution.sparse_call import SparseCall, traits_of
from joinsum.execution.sparse_gradients import SparseGradients, at_pattern
from joinsum.execution.sparse_operands import (
    OutFormat,
    ReadEinsum,
    all_finite,
    check_sparse_operands,
    formatted,
    program_of,
    read_before,
    without_half,
)
from joinsum.graphs.equation import Operations
from joinsum.sparse import SparseTensor
from joinsum.sparse.recorded import carried

__all__ = ["plan_sparse_einsum", "sparse_einsum"]


def _run_by_rows(call: SparseCall) -> SparseTensor | torch.Tensor:
    """The result on one site, by the loops of compressed rows where there are some; without gradients."""
    return sparse_einsum(call.current, call.read.equation, call.plain, call.read.operations, call.plain_format)


def _gradient_of_products(call: SparseCall, position: int, arriving: torch.Tensor | SparseTensor) -> torch.Tensor:
    """The gradient for an operand of a sum of products: the einsum of the one that arrives at the result with the
    other operands; for a sparse operand where it stores elements."""
    labels, operand = call.read.labels[position], call.operands[position]
    dense = isinstance(call.given[position], torch.Tensor)
    operands: list[SparseTensor | torch.Tensor] = [arriving]
    named = [call.read.result]
    for other, tensor in enumerate(call.operands):
        if other != position:
            operands.append(tensor)
            named.append(call.read.labels[other])
    if not dense:
        operands.append(at_pattern(operand))
        named.append(labels)
    known = {label for each in named for label in each}
    extents = tuple((label, call.read.extents[label]) for label in sorted(set(labels) - known))
    equation = ",".join(_text(each) for each in named) + "->" + _text(labels)
    form = "dense" if dense else "coo"
    result = sparse_einsum(call.current, equation, operands, Operations(extents=extents), form)
    if dense:
        assert isinstance(result, torch.Tensor)
        return result
    assert isinstance(result, SparseTensor)
    return _aligned(operand, result)


def _gradients(
    call: SparseCall,
    positions: Sequence[int],
    results: Mapping[str, SparseTensor],
    arriving: torch.Tensor | SparseTensor,
) -> list[torch.Tensor | None]:
    """The gradients for operands of any einsum, by the results of its queries."""
    d = SparseTensor.from_torch(arriving) if isinstance(arriving, torch.Tensor) else arriving
    tensors = {f"x{i}": x for i, x in enumerate(call.operands)} | dict(results) | {"d": d}
    wanted = [f"x{i}" for i in positions]
    dense = [name for name, x in zip(tensors, call.given, strict=False) if isinstance(x, torch.Tensor)]
    finite = all_finite(list(tensors.values()))
    key = ("gradients", *wanted, *dense, finite, traits_of(list(tensors.values())), *call.key)
    gradients = call.current.cached(
        key, lambda: SparseGradients(call.current, call.planned.queries, call.read.extents, tensors, wanted)
    )
    found = gradients.run(tensors)
    return [_as_operand(call, i, found.get(f"x{i}")) for i in positions]


def _as_operand(call: SparseCall, position: int, found: SparseTensor | torch.Tensor | None) -> torch.Tensor | None:
    """A gradient as its operand, or the values of this one, have it."""
    if found is None:
        return None
    if isinstance(call.given[position], torch.Tensor):
        return found if isinstance(found, torch.Tensor) else found.to_dense()
    sparse = found if isinstance(found, SparseTensor) else SparseTensor.from_torch(found)
    return _aligned(call.operands[position], sparse)


def _text(labels: Sequence[str]) -> str:
    return "".join(f"{{{label}}}" for label in labels)


def _aligned(pattern: SparseTensor, found: SparseTensor) -> torch.Tensor:
    """Values of a tensor, whose fill is 0, at the stored elements of another one, which has all that are not 0."""
    if math.prod(pattern.shape) >= 2**63:
        raise PlanError(
            f"einsum: no gradient for a sparse operand of 2^63 elements or more: shape={list(pattern.shape)}"
        )
    others, values = found.handle.to_coordinates(True)
    at = torch.stack(others) if others else torch.empty((0, len(values)), dtype=torch.int64)
    # A gradient has memory of its own.
    return carried("einsum", values.clone(), at, pattern.coordinates(), pattern.shape, 0.0)


class _Recorded(torch.autograd.Function):
    """An einsum over sparse operands: the elements of a dense result, or the values of a sparse one. `inputs` are the
    dense operands in autograd, and the values of sparse ones, at `positions`."""

    @staticmethod
    def forward(
        ctx: Any, call: SparseCall, positions: Sequence[int], made: list[SparseTensor], *inputs: torch.Tensor
    ) -> torch.Tensor:
        ctx.call, ctx.positions, ctx.results = call, positions, None
        # Reading them in the backward pass raises where they were written to.
        given = [x for x in call.given if isinstance(x, torch.Tensor)]
        shared = [x.shared_values for x in call.given if isinstance(x, SparseTensor) and not x.requires_grad]
        ctx.save_for_backward(*inputs, *given, *(x for x in shared if x is not None))
        if call.read.operations.products:
            found = call.run() if call.current.sites > 1 else _run_by_rows(call)
        else:
            ctx.results = call.results()
            found = ctx.results["z"]
        if call.out_format in ("auto", "dense"):
            dense = found if isinstance(found, torch.Tensor) else found.to_dense()
            return dense if ctx.results is None else dense.clone()
        x = found if isinstance(found, SparseTensor) else SparseTensor.from_torch(found)
        made.append(x.with_levels(call.out_format))
        ctx.result = made[0]
        return made[0].values()

    @staticmethod
    def backward(ctx: Any, arriving: torch.Tensor) -> tuple[Any, ...]:
        call: SparseCall = ctx.call
        if torch.is_grad_enabled():
            raise PlanError(
                f"einsum: gradients of sparse einsums have no gradients, so create_graph=True is not taken; make the "
                f"sparse operands dense with to_dense()\n  {call.read.equation}"
            )
        functorch = torch._C._functorch
        if functorch.is_legacy_batchedtensor(arriving) or functorch.is_batchedtensor(arriving):
            raise PlanError(
                f"einsum: gradients of sparse einsums are not batched, so is_grads_batched=True and vectorize=True are "
                f"not taken; leave them out\n  {call.read.equation}"
            )
        assert ctx.saved_tensors
        needed = [p for i, p in enumerate(ctx.positions) if ctx.needs_input_grad[3 + i]]
        sparse = call.out_format not in ("auto", "dense")
        arrived = at_pattern(ctx.result, arriving) if sparse else arriving.contiguous()
        if ctx.results is None:
            gradients: list[torch.Tensor | None] = [_gradient_of_products(call, p, arrived) for p in needed]
        else:
            gradients = _gradients(call, needed, ctx.results, arrived)
        found = dict(zip(needed, gradients, strict=True))
        return (None, None, None, *(found.get(p) for p in ctx.positions))


def _recorded_positions(read: ReadEinsum, operands: Sequence[SparseTensor | torch.Tensor]) -> list[int]:
    """The operands that require gradients. Raises PlanError where sparse einsums have no gradients."""
    if read.operations.agg not in ("sum", "max", "min", "logsumexp"):
        raise PlanError(
            f"einsum: gradients of sparse einsums are those of sum, max, min and logsumexp; detach the operands, or "
            f"make them dense: agg={read.operations.agg}"
        )
    positions = [position for position, operand in enumerate(operands) if operand.requires_grad]
    if any(len(set(read.labels[position])) < len(read.labels[position]) for position in positions):
        raise PlanError(f"einsum: no gradient for the diagonal of a sparse einsum\n  {read.equation}")
    return positions


def _in_autograd(call: SparseCall, operands: Sequence[SparseTensor | torch.Tensor]) -> SparseTensor | torch.Tensor:
    """The einsum whose operands, or their values, require gradients; its result is dense unless levels are asked
    for."""
    positions, inputs = _recorded_positions(call.read, operands), []
    for position in positions:
        operand = operands[position]
        inputs.append(operand.values() if isinstance(operand, SparseTensor) else operand)
    made: list[SparseTensor] = []
    found = cast(torch.Tensor, _Recorded.apply(call, positions, made, *inputs))  # type: ignore[no-untyped-call]
    return made[0].with_values(found) if made else found


def _listed(x: SparseTensor | torch.Tensor) -> SparseTensor | torch.Tensor:
    """The operand; one whose values are in autograd in lists where its last level is dense, of which conversions leave
    out what equals the fill."""
    if not isinstance(x, SparseTensor) or not x.requires_grad or x.levels[-1:] != ("dense",):
        return x
    values = x.values()
    lists = SparseTensor.from_coordinates(x.coordinates(), values.detach(), x.shape, levels="coo", fill=x.fill)
    return lists.with_values(values)


def sparse_einsum(
    current: Context,
    equation: str,
    operands: Sequence[SparseTensor | torch.Tensor],
    operations: Operations,
    out_format: OutFormat,
) -> SparseTensor | torch.Tensor:
    """The einsum of operands of which one is sparse at least; `joinsum.einsum` says what the arguments are."""
    if _sums_exponentials_in_float32(operations, operands):
        result = sparse_einsum(current, equation, _as_doubles(operands), operations, out_format)
        return result.to(torch.float32)
    read, operands = _prepared(current, equation, operands, operations)
    recorded = _is_recorded(operands)
    if recorded:
        operands = [_listed(x) for x in operands]
    texts = (equation, operations.join, operations.agg, out_format)
    call = None
    if not recorded and _may_go_by_rows(current):
        if _is_planned_first(operands, out_format):
            call = SparseCall.of(current, read, operands, out_format)
        for way in _ways_by_rows(call, read, operands, out_format):
            computed = way.call(operands)
            if computed is not None:
                way.keep(current, texts, operands, way.call)
                return computed
    if call is None:
        with current.preparing("einsum"):
            call = SparseCall.of(current, read, operands, out_format, recorded)
    contraction = call.contraction() if current.sites > 1 and call.gives_dense(recorded) else None
    if contraction is not None:
        return contraction.planned.apply(contraction.operands)
    if out_format != "dense" and not (recorded and out_format == "auto"):
        with current.preparing("einsum"):
            call.check_not_densified()
    if recorded:
        return _in_autograd(call, operands)
    if current.sites == 1 and isinstance(out_format, str) and call.is_plain:
        remember_for_traits(current, texts, operands, call.again())
    return formatted(call.run(), read.gives_truths, _chosen_format(call))


def plan_sparse_einsum(
    current: Context,
    equation: str,
    operands: Sequence[SparseTensor | torch.Tensor],
    operations: Operations,
    out_format: OutFormat,
    cache: bool,
    call_again: Callable[..., Any],
) -> PlannedSparseEinsum:
    """How the same einsum is computed; `joinsum.einsum_plan` says what the arguments are, and `call_again` computes it
    for other operands."""
    wide = _sums_exponentials_in_float32(operations, operands)
    read, given = _prepared(current, equation, _as_doubles(operands) if wide else operands, operations)
    recorded = _is_recorded(given)
    with current.preparing("einsum"):
        call = SparseCall.of(current, read, given, out_format, recorded, cache)
        contraction = call.contraction(cache) if current.sites > 1 and call.gives_dense(recorded) else None
        if recorded and contraction is None:
            _ = _recorded_positions(read, given)
        elif not recorded and out_format != "dense":
            call.check_not_densified()
        program = program_of(read, call.operands)
        way = _first_way(call, recorded)
    site_plan = call.query_plan(recorded, cache) if contraction is None else contraction.planned
    if site_plan is not None:
        _ = site_plan.choice
    plan = call.planned.plan, program, call.planned.seconds, read.dtype
    return PlannedSparseEinsum(*plan, equation, operands, None if way is None else way.name, site_plan, call_again)


def _sums_exponentials_in_float32(operations: Operations, operands: Sequence[object]) -> bool:
    """Whether exponentials would be summed in float32, which loses small ones beside a large sum."""
    return operations.agg == "logsumexp" and all(getattr(x, "dtype", None) is torch.float32 for x in operands)


def _as_doubles(operands: Sequence[SparseTensor | torch.Tensor]) -> list[SparseTensor | torch.Tensor]:
    return [x.to(torch.float64) for x in operands]


def _prepared(
    current: Context, equation: str, operands: Sequence[SparseTensor | torch.Tensor], operations: Operations
) -> tuple[ReadEinsum, Sequence[SparseTensor | torch.Tensor]]:
    """The einsum as it was read, and its operands."""
    with current.preparing("einsum"):
        check_not_traced("einsum")
        check_sparse_operands(operands)
        if torch.is_autocast_enabled("cpu"):
            operands = [without_half(x) for x in operands]
        return read_before(current, equation, operands, operations), operands


def _is_recorded(operands: Sequence[SparseTensor | torch.Tensor]) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in operands)


def _may_go_by_rows(current: Context) -> bool:
    """Whether loops of compressed rows may compute it, on one site."""
    return current.sites == 1 and torch._C._len_torch_dispatch_stack() == 0


def _sums_products(read: ReadEinsum) -> bool:
    operations = read.operations
    return operations.products or (read.dtype is torch.bool and (operations.join, operations.agg) == ("mul", "any"))


def _is_planned_first(operands: Sequence[SparseTensor | torch.Tensor], out_format: OutFormat) -> bool:
    """Whether the plan chooses the way: where the format is to be chosen, or there are more than two operands."""
    return out_format == "auto" or len(operands) > 2


@dataclass(frozen=True)
class _Way:
    """How a sum of products is computed without a loop nest of its own, and what remembers that."""

    name: str
    call: Call
    keep: Callable[..., None]


def _first_way(call: SparseCall, recorded: bool) -> _Way | None:
    """What is tried before the loop nests of the plan."""
    read, out_format = call.read, call.out_format
    if not _may_go_by_rows(call.current):
        return None
    operands = call.given
    if recorded:
        if not read.operations.products:
            return None
        operands, out_format = call.plain, call.plain_format
        call = SparseCall.of(call.current, read, operands, out_format)
    planned = call if _is_planned_first(operands, out_format) else None
    return next(_ways_by_rows(planned, read, operands, out_format), None)


def _like_operands(
    read: ReadEinsum, operands: Sequence[SparseTensor | torch.Tensor], out_format: OutFormat, gives_dense: bool
) -> Call | None:
    """How a sum of products of sparse operands is computed by rows with a result that is stored as they are, where its
    format is to be chosen and few elements are expected; None of another one."""
    if out_format != "auto" or not all(isinstance(x, SparseTensor) for x in operands):
        return None
    case = read.labels, read.result, read.dtype, operands
    few = not gives_dense or len(operands) != 2 or has_few_elements(*case)
    return by_rows(*case, LIKE_OPERANDS) if few else None


def _chosen_format(call: SparseCall) -> OutFormat:
    """How the result of the call is stored: on several sites as on one, where loops of compressed rows compute it."""
    gives_dense = call.gives_dense(recorded=False)
    by_rows_on_one = call.current.sites > 1 and _sums_products(call.read)
    if by_rows_on_one and _like_operands(call.read, call.given, call.out_format, gives_dense) is not None:
        return "csr" if len(call.read.result) == 2 else "coo"
    return "dense" if gives_dense else call.out_format


def _ways_by_rows(
    call: SparseCall | None, read: ReadEinsum, operands: Sequence[SparseTensor | torch.Tensor], out_format: OutFormat
) -> Iterator[_Way]:
    """How it can be computed by the loops of compressed rows, a sum of products alone or pair by pair. The call is
    planned where `_is_planned_first` says so."""
    elements = joins_elements(read, operands)
    if not elements and not _sums_products(read):
        return
    gives_dense = out_format == "dense" if call is None else call.gives_dense(recorded=False)
    by_element = by_elements(read, operands, out_format, gives_dense) if elements else None
    if by_element is not None:
        yield _Way("compressed rows", by_element, remember_for_traits)
    if not _sums_products(read):
        return
    found = _like_operands(read, operands, out_format, gives_dense)
    if found is None:
        found = by_rows(read.labels, read.result, read.dtype, operands, "dense" if gives_dense else out_format)
    if found is not None:
        yield _Way("compressed rows", found, remember)
    if gives_dense and call is not None:
        pairs = by_pairs(read.labels, read.result, read.extents, read.dtype, operands, call.planned.iterations)
        if pairs is not None:
            yield _Way("pairs", pairs, remember_for_traits)
