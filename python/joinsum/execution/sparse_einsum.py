"""Einsums of which an operand is sparse: each is a program of one query, planned by the estimated entries."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from joinsum import _C
from joinsum.algebra.sources import sparse_array
from joinsum.base.arguments import check_has_elements, show
from joinsum.base.dtypes import dtype_name
from joinsum.base.errors import PlanError
from joinsum.cluster.context import Context
from joinsum.execution.compressed_rows import Call, by_rows, has_few_elements, remember, remember_for_traits
from joinsum.execution.operands import check_operands
from joinsum.execution.paired_rows import by_pairs
from joinsum.execution.planned_einsum import EinsumSignature, PlannedEinsum
from joinsum.execution.planned_graph import PlannedGraph
from joinsum.execution.planned_sparse_einsum import PlannedSparseEinsum
from joinsum.execution.sparse_gradients import SparseGradients, at_pattern
from joinsum.execution.sparse_queries import SparseQueries
from joinsum.graphs.equation import Operations, common_dtype, new_labels
from joinsum.graphs.query_vertices import check_not_densified, einsum_program
from joinsum.sparse import SparseTensor
from joinsum.sparse.plan_cache import PLANS
from joinsum.sparse.plan_options import plan_options
from joinsum.sparse.recorded import carried
from joinsum.sparse.spellings import levels_of

__all__ = ["OutFormat", "has_sparse", "plan_sparse_einsum", "sparse_einsum"]

# "auto", "dense", or the levels of a SparseTensor.
OutFormat = str | Sequence[str]

_DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool)

_HALVES = (torch.float16, torch.bfloat16)

# Labels of which the best order is searched.
_MOST_SEARCHED = 8

# Begins the keys of plans whose products of sums stay as they are.
_AS_WRITTEN = "as written"

# Elements of dense results that kernels fill.
_MOST_DENSE = 1 << 28


def has_sparse(operands: Sequence[object]) -> bool:
    """Whether an operand is a SparseTensor, or a tensor of a sparse layout of torch's."""
    return any(
        isinstance(x, SparseTensor) or (isinstance(x, torch.Tensor) and x.layout is not torch.strided) for x in operands
    )


@dataclass(frozen=True)
class _Read:
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


def _read(equation: str, operands: Sequence[SparseTensor | torch.Tensor], operations: Operations) -> _Read:
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
    return _Read(equation, operations, labels, result, extents, dtype)


def _neutral_fill(read: _Read, operands: Sequence[SparseTensor | torch.Tensor]) -> float:
    """A fill for dense operands, which store every element: one that annihilates the join, so that no loop has to visit
    what sparse operands do not store; none of which has the opposite one."""
    if read.dtype.is_floating_point and read.operations.join == "add":
        fill = {"min": math.inf, "max": -math.inf}.get(read.operations.agg, 0.0)
        return 0.0 if any(isinstance(x, SparseTensor) and x.fill == -fill for x in operands) else fill
    return 0.0


def _sparse(operand: SparseTensor | torch.Tensor, read: _Read, fill: float) -> SparseTensor:
    if isinstance(operand, SparseTensor):
        return operand if operand.dtype is read.dtype else operand.to(read.dtype)
    if operand.device.type != "cpu":
        raise PlanError(f"einsum: sparse operands lie on the CPU; move them with x.cpu(): device={operand.device}")
    if operand.layout is not torch.strided:
        return SparseTensor.from_torch(operand.to(read.dtype))
    return SparseTensor.from_torch(operand.detach().to(read.dtype), fill=fill)


def _handle(x: SparseTensor | torch.Tensor, operations: Operations, fill: float) -> _C.SparseTensor:
    """An operand as kernels read it; what is false in dense factors is not visited."""
    if isinstance(x, SparseTensor):
        return x.handle
    return _C.SparseTensor.from_dense(x.detach(), fill, x.dtype is torch.bool and operations.join == "mul")


def _program(read: _Read, operands: Sequence[SparseTensor]) -> _C.SparseProgram:
    """The program of the einsum, over operands of its dtype."""
    inputs = [_C.SparseInput(list(x.shape), x.fill, x.handle, 0, []) for x in operands]
    dtype = dtype_name("einsum", read.dtype)
    return einsum_program(read.labels, read.result, read.extents, read.operations, inputs, dtype)


class _Planned:
    """The plan of an einsum for operands of certain shapes, levels and numbers of entries; `formats` of the result's
    levels, in the order of its axes, are chosen where none are given."""

    def __init__(
        self,
        read: _Read,
        operands: Sequence[SparseTensor],
        formats: Sequence[str] | None,
        recorded: bool,
        distribute: bool = True,
    ) -> None:
        begin = time.perf_counter()
        program = _program(read, operands)
        few = len(read.extents) <= _MOST_SEARCHED
        options = plan_options(search="branch_and_bound" if few else "greedy", distribute=distribute)
        if formats is not None:
            options.formats = {"z": list(formats)}
        # Ties of other joins are those of the joined operands. Sums of several operands may be reduced one by one.
        ties = recorded and read.operations.agg in ("max", "min") and read.operations.join != "add"
        # Products of some factors may overflow where the product of all does not.
        options.whole = ties or (read.operations.agg == "prod" and read.dtype.is_floating_point)
        self.plan = _C.SparsePlan(program, options)
        self.seconds = time.perf_counter() - begin
        self.plan.forget_tensors()
        # Whether it holds for finite elements only.
        self.finite = self.plan.distributed
        self._extents = read.extents
        self._data: dict[str, Any] = self.plan.data()

    @property
    def gives_dense(self) -> bool:
        """Whether the result's levels are dense."""
        return all(level == "dense" for level in self._data["physical"][-1]["formats"])

    @property
    def iterations(self) -> float:
        """Of the innermost loops of all kernels, as estimated."""
        return sum(kernel["iterations"][-1] if kernel["iterations"] else 1.0 for kernel in self._data["physical"])

    @property
    def queries(self) -> list[dict[str, Any]]:
        """The logical queries: name, operator, indices that it reduces, expression, output."""
        return cast(list[dict[str, Any]], self._data["logical"])

    def run(self, operands: dict[str, _C.SparseTensor]) -> SparseTensor | torch.Tensor:
        """The result; dense where all its levels are."""
        handle = self.plan.run(operands, torch.get_num_threads(), "automatic", "", True)["z"]
        result = SparseTensor.of_handle(handle)
        return result.to_dense() if all(level == "dense" for level in handle.formats) else result

    def run_all(self, operands: dict[str, _C.SparseTensor]) -> dict[str, SparseTensor]:
        """The results of all queries."""
        results = self.plan.run(operands, torch.get_num_threads(), "automatic", "", True, True)
        return {name: SparseTensor.of_handle(handle) for name, handle in results.items()}

    def check_not_densified(self, operands: Sequence[SparseTensor]) -> None:
        """Raises where a loop visits all coordinates of a sparse operand: what it does not store counts too."""
        sparse = {
            f"x{i}": x.nnz for i, x in enumerate(operands) if "dense" not in x.levels or x.nnz < math.prod(x.shape)
        }
        check_not_densified("einsum", self._data, self._extents, sparse)


def _all_finite(operands: Sequence[SparseTensor | torch.Tensor]) -> bool:
    """Whether no stored element is an infinity or no number."""
    return all(x.handle.all_finite if isinstance(x, SparseTensor) else bool(x.isfinite().all()) for x in operands)


def _bucket(entries: int) -> int:
    """Numbers of entries that one plan serves: within a factor of two."""
    return entries.bit_length()


def _traits(tensors: Sequence[SparseTensor]) -> tuple[object, ...]:
    return tuple(x.traits for x in tensors)


@dataclass(frozen=True)
class _Contraction:
    """An einsum that is planned as a dense one is, and the operands as it reads them."""

    planned: PlannedEinsum
    operands: list[torch.Tensor]


@dataclass(frozen=True)
class _Call:
    """One einsum over sparse operands, planned."""

    current: Context
    read: _Read
    given: Sequence[SparseTensor | torch.Tensor]
    operands: list[SparseTensor]
    planned: _Planned
    out_format: OutFormat
    key: tuple[object, ...]

    @classmethod
    def of(
        cls,
        current: Context,
        read: _Read,
        operands: Sequence[SparseTensor | torch.Tensor],
        out_format: OutFormat = "auto",
        recorded: bool = False,
        cache: bool = True,
    ) -> _Call:
        fill = _neutral_fill(read, operands)
        tensors = [_sparse(operand, read, fill) for operand in operands]
        formats = _formats(read, out_format)
        traits = _traits(tensors)
        key: tuple[object, ...] = (
            "sparse_einsum",
            read.equation,
            read.operations,
            read.dtype,
            formats,
            recorded,
            traits,
        )

        def found(distribute: bool) -> _Planned:
            def make() -> _Planned:
                return _Planned(read, tensors, formats, recorded, distribute)

            return PLANS.get(key, make) if cache else make()

        planned = found(distribute=True)
        if planned.finite and not _all_finite(tensors):
            key = (_AS_WRITTEN, *key)
            planned = found(distribute=False)
        return cls(current, read, operands, tensors, planned, out_format, key)

    def run(self) -> SparseTensor | torch.Tensor:
        """The result, by the sites there are; dense where all its levels are."""
        queries = self._queries(["z"])
        if queries is not None:
            return queries.run(self._blocks())["z"]
        return self.planned.run(self._handles())

    def run_by_rows(self) -> SparseTensor | torch.Tensor:
        """The result on one site, by the loops of compressed rows where there are some; without gradients."""
        return sparse_einsum(self.current, self.read.equation, self.plain, self.read.operations, self.plain_format)

    @property
    def plain(self) -> list[SparseTensor | torch.Tensor]:
        """The operands without gradients."""
        return [x.detach() if isinstance(x, torch.Tensor) else x for x in self.given]

    @property
    def plain_format(self) -> OutFormat:
        """How the result without gradients is stored."""
        if self.out_format in ("auto", "dense"):
            return "dense"
        # A dense result would not say which elements are stored.
        named = not self.read.result or _formats(self.read, self.out_format) is not None
        return self.out_format if named else "coo"

    @property
    def is_plain(self) -> bool:
        """Whether operands are read as they are given: of one dtype, and none in a layout of torch's; and whether they
        are planned as others of the same traits."""
        return self.key[0] != _AS_WRITTEN and all(
            x.dtype is self.read.dtype and (isinstance(x, SparseTensor) or x.layout is torch.strided)
            for x in self.given
        )

    def again(self) -> Call:
        """What computes the call for other operands of the same traits, without gradients, on one site."""
        planned, out_format, operations = self.planned, self.out_format, self.read.operations
        gives_truths = self.read.gives_truths
        fill = _neutral_fill(self.read, self.given)

        def call(given: Sequence[SparseTensor | torch.Tensor]) -> SparseTensor | torch.Tensor | None:
            if planned.finite and not _all_finite(given):
                return None
            handles = {f"x{i}": _handle(x, operations, fill) for i, x in enumerate(given)}
            return _formatted(planned.run(handles), gives_truths, out_format)

        return call

    def results(self) -> dict[str, SparseTensor]:
        """Those of all queries by name."""
        queries = self._queries([query["name"] for query in self.planned.queries])
        return self.planned.run_all(self._handles()) if queries is None else queries.sparse_run(self._blocks())

    def _handles(self) -> dict[str, _C.SparseTensor]:
        fill = _neutral_fill(self.read, self.given)
        given = self.given if self.is_plain else self.operands
        return {f"x{i}": _handle(x, self.read.operations, fill) for i, x in enumerate(given)}

    def _queries(self, results: Sequence[str]) -> SparseQueries | None:
        """The einsum as the sites divide it, if they do."""
        if self.current.sites == 1:
            return None
        dense = tuple(name for name, x in self._blocks().items() if isinstance(x, torch.Tensor))
        tensors = {f"x{i}": x for i, x in enumerate(self.operands)}
        return self.current.cached(
            ("sites", dense, *results, *self.key),
            lambda: SparseQueries.where_divided(self.current, self.planned.plan, tensors, dense, results),
        )

    def _blocks(self) -> dict[str, SparseTensor | torch.Tensor]:
        """The operands as sites store them."""
        return {
            f"x{i}": x.detach().to(self.read.dtype) if isinstance(x, torch.Tensor) and x.layout is torch.strided else y
            for i, (x, y) in enumerate(zip(self.given, self.operands, strict=True))
        }

    def contraction(self, cache: bool = True) -> _Contraction | None:
        """How sites compute the dense result of a sum of products of one sparse operand, whose fill is 0, with dense
        ones, in autograd: planned with all that is dense. None of another einsum."""
        read, operands = self.read, self.given
        sparse = [i for i, x in enumerate(operands) if isinstance(x, SparseTensor) or x.layout is not torch.strided]
        if not read.operations.products or read.dtype is torch.bool or len(sparse) != 1 or len(operands) < 2:
            return None
        (position,) = sparse
        operand, labels = operands[position], read.labels[position]
        if operand.requires_grad or self.operands[position].fill != 0 or len(set(labels)) < len(labels):
            return None
        array = sparse_array("einsum", operand).to(read.dtype)
        entries = 1 << _bucket(array.values().numel())
        shapes, dtypes = [tuple(x.shape) for x in operands], [x.dtype for x in operands]
        key = ("sparse_einsum_on_sites", read.equation, read.operations, position, entries, *shapes, *dtypes)
        signature = EinsumSignature(
            read.equation,
            read.operations,
            shapes,
            [read.dtype] * len(operands),
            torch.device("cpu"),
            {position: entries},
        )
        given = [array if i == position else cast(torch.Tensor, x) for i, x in enumerate(operands)]
        with self.current.preparing("einsum"):
            check_operands("einsum", [x for x in given if x is not array])
        if not cache:
            return _Contraction(PlannedEinsum(self.current, signature, cache=False), given)
        return _Contraction(self.current.cached(key, lambda: PlannedEinsum(self.current, signature)), given)

    def gives_dense(self, recorded: bool) -> bool:
        """Whether the result is a dense tensor, also in autograd."""
        return self.out_format == "dense" or (self.out_format == "auto" and (recorded or self.planned.gives_dense))

    def query_plan(self, recorded: bool, cache: bool) -> PlannedGraph | None:
        """How the sites divide its queries; None of one site, and where each process computes all."""
        every = recorded and not self.read.operations.products
        queries = self._queries([query["name"] for query in self.planned.queries] if every else ["z"])
        if queries is None:
            return None
        return queries.planned if cache else PlannedGraph(self.current, queries.planned.core, cache=False)

    def gradient_of_products(self, position: int, arriving: torch.Tensor | SparseTensor) -> torch.Tensor:
        """The gradient for an operand of a sum of products: the einsum of the one that arrives at the result with the
        other operands; for a sparse operand where it stores elements."""
        labels, operand = self.read.labels[position], self.operands[position]
        dense = isinstance(self.given[position], torch.Tensor)
        operands: list[SparseTensor | torch.Tensor] = [arriving]
        named = [self.read.result]
        for other, tensor in enumerate(self.operands):
            if other != position:
                operands.append(tensor)
                named.append(self.read.labels[other])
        if not dense:
            operands.append(at_pattern(operand))
            named.append(labels)
        known = {label for each in named for label in each}
        extents = tuple((label, self.read.extents[label]) for label in sorted(set(labels) - known))
        equation = ",".join(_text(each) for each in named) + "->" + _text(labels)
        result = sparse_einsum(
            self.current, equation, operands, Operations(extents=extents), "dense" if dense else "coo"
        )
        if dense:
            assert isinstance(result, torch.Tensor)
            return result
        assert isinstance(result, SparseTensor)
        return _aligned(operand, result)

    def gradients(
        self, positions: Sequence[int], results: Mapping[str, SparseTensor], arriving: torch.Tensor | SparseTensor
    ) -> list[torch.Tensor | None]:
        """The gradients for operands of any einsum, by the results of its queries."""
        d = SparseTensor.from_torch(arriving) if isinstance(arriving, torch.Tensor) else arriving
        tensors = {f"x{i}": x for i, x in enumerate(self.operands)} | dict(results) | {"d": d}
        wanted = [f"x{i}" for i in positions]
        dense = [name for name, x in zip(tensors, self.given, strict=False) if isinstance(x, torch.Tensor)]
        finite = _all_finite(list(tensors.values()))
        key = ("gradients", *wanted, *dense, finite, _traits(list(tensors.values())), *self.key)
        gradients = self.current.cached(
            key, lambda: SparseGradients(self.current, self.planned.queries, self.read.extents, tensors, wanted)
        )
        found = gradients.run(tensors)
        return [self._aligned(i, found.get(f"x{i}")) for i in positions]

    def _aligned(self, position: int, found: SparseTensor | torch.Tensor | None) -> torch.Tensor | None:
        """A gradient as its operand, or the values of this one, have it."""
        if found is None:
            return None
        if isinstance(self.given[position], torch.Tensor):
            return found if isinstance(found, torch.Tensor) else found.to_dense()
        sparse = found if isinstance(found, SparseTensor) else SparseTensor.from_torch(found)
        return _aligned(self.operands[position], sparse)


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
        ctx: Any, call: _Call, positions: Sequence[int], made: list[SparseTensor], *inputs: torch.Tensor
    ) -> torch.Tensor:
        ctx.call, ctx.positions, ctx.results = call, positions, None
        # Reading them in the backward pass raises where they were written to.
        ctx.save_for_backward(*inputs, *(x for x in call.given if isinstance(x, torch.Tensor)))
        if call.read.operations.products:
            found = call.run() if call.current.sites > 1 else call.run_by_rows()
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
        call: _Call = ctx.call
        if torch.is_grad_enabled():
            raise PlanError(
                f"einsum: gradients of sparse einsums have no gradients, so create_graph=True is not taken; make the "
                f"sparse operands dense with to_dense()\n  {call.read.equation}"
            )
        assert ctx.saved_tensors
        needed = [p for i, p in enumerate(ctx.positions) if ctx.needs_input_grad[3 + i]]
        sparse = call.out_format not in ("auto", "dense")
        arrived = at_pattern(ctx.result, arriving) if sparse else arriving.contiguous()
        if ctx.results is None:
            gradients: list[torch.Tensor | None] = [call.gradient_of_products(p, arrived) for p in needed]
        else:
            gradients = call.gradients(needed, ctx.results, arrived)
        found = dict(zip(needed, gradients, strict=True))
        return (None, None, None, *(found.get(p) for p in ctx.positions))


def _recorded_positions(read: _Read, operands: Sequence[SparseTensor | torch.Tensor]) -> list[int]:
    """The operands that require gradients. Raises PlanError where sparse einsums have no gradients."""
    if read.operations.agg not in ("sum", "max", "min"):
        raise PlanError(
            f"einsum: gradients of sparse einsums are those of sum, max and min; detach the operands, or make them "
            f"dense: agg={read.operations.agg}"
        )
    positions = [position for position, operand in enumerate(operands) if operand.requires_grad]
    if any(len(set(read.labels[position])) < len(read.labels[position]) for position in positions):
        raise PlanError(f"einsum: no gradient for the diagonal of a sparse einsum\n  {read.equation}")
    return positions


def _in_autograd(call: _Call, operands: Sequence[SparseTensor | torch.Tensor]) -> SparseTensor | torch.Tensor:
    """The einsum whose operands, or their values, require gradients; its result is dense unless levels are asked
    for."""
    positions, inputs = _recorded_positions(call.read, operands), []
    for position in positions:
        operand = operands[position]
        inputs.append(operand.values() if isinstance(operand, SparseTensor) else operand)
    made: list[SparseTensor] = []
    found = cast(torch.Tensor, _Recorded.apply(call, positions, made, *inputs))  # type: ignore[no-untyped-call]
    return made[0].with_values(found) if made else found


def _formats(read: _Read, out_format: OutFormat) -> tuple[str, ...] | None:
    """The levels of the result that are asked for, in the order of its axes; None where they are to be chosen, or are
    made of what is chosen: in another order of axes, or with more dense elements than fit."""
    rank = len(read.result)
    if out_format == "auto" or rank == 0:
        return None
    if out_format == "dense":
        small = math.prod(read.extents[label] for label in read.result) <= _MOST_DENSE
        return ("dense",) * rank if small else None
    formats, axes = levels_of("einsum", out_format, None, rank)
    return tuple(formats) if axes == list(range(rank)) and "dense" not in formats[1:] else None


def _without_half(operand: SparseTensor | torch.Tensor) -> SparseTensor | torch.Tensor:
    """What autocast made half a float, as sparse operands are."""
    return operand.float() if isinstance(operand, torch.Tensor) and operand.dtype in _HALVES else operand


def _read_before(
    current: Context, equation: str, operands: Sequence[SparseTensor | torch.Tensor], operations: Operations
) -> _Read:
    """The same call is read once."""
    shapes, dtypes = tuple(tuple(x.shape) for x in operands), tuple(x.dtype for x in operands)
    key = ("sparse_read", equation, operations, shapes, dtypes)
    return current.cached(key, lambda: _read(equation, operands, operations))


def _check_operands(operands: Sequence[object]) -> None:
    for number, operand in enumerate(operands):
        if not isinstance(operand, (SparseTensor, torch.Tensor)):
            raise PlanError(
                f"einsum: an operand beside sparse ones is a tensor: operand={number}, type={type(operand).__name__}"
            )
        if isinstance(operand, torch.Tensor) and operand.layout is not torch.strided and operand.requires_grad:
            raise PlanError(
                f"einsum: a tensor of torch's sparse layouts has no gradient here; give "
                f"SparseTensor.from_torch(x.detach()).with_values(values): operand={number}"
            )
        if isinstance(operand, torch.Tensor):
            check_has_elements(f"einsum: operand {number}", operand)


def sparse_einsum(
    current: Context,
    equation: str,
    operands: Sequence[SparseTensor | torch.Tensor],
    operations: Operations,
    out_format: OutFormat,
) -> SparseTensor | torch.Tensor:
    """The einsum of operands of which one is sparse at least; `joinsum.einsum` says what the arguments are."""
    read, operands = _prepared(current, equation, operands, operations)
    recorded = _is_recorded(operands)
    texts = (equation, operations.join, operations.agg, out_format)
    call = None
    if not recorded and _may_go_by_rows(current, read):
        if _is_planned_first(operands, out_format):
            call = _Call.of(current, read, operands, out_format)
        for way in _ways_by_rows(call, read, operands, out_format):
            computed = way.call(operands)
            if computed is not None:
                way.keep(current, texts, operands, way.call)
                return computed
    if call is None:
        with current.preparing("einsum"):
            call = _Call.of(current, read, operands, out_format, recorded)
    contraction = call.contraction() if current.sites > 1 and call.gives_dense(recorded) else None
    if contraction is not None:
        return contraction.planned.apply(contraction.operands)
    if recorded:
        return _in_autograd(call, operands)
    if out_format != "dense":
        with current.preparing("einsum"):
            call.planned.check_not_densified(call.operands)
    if current.sites == 1 and isinstance(out_format, str) and call.is_plain:
        remember_for_traits(current, texts, operands, call.again())
    return _formatted(call.run(), read.gives_truths, out_format)


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
    read, given = _prepared(current, equation, operands, operations)
    recorded = _is_recorded(given)
    with current.preparing("einsum"):
        call = _Call.of(current, read, given, out_format, recorded, cache)
        contraction = call.contraction(cache) if current.sites > 1 and call.gives_dense(recorded) else None
        if recorded and contraction is None:
            _ = _recorded_positions(read, given)
        elif not recorded and out_format != "dense":
            call.planned.check_not_densified(call.operands)
        program = _program(read, call.operands)
        way = _first_way(call, recorded)
    site_plan = call.query_plan(recorded, cache) if contraction is None else contraction.planned
    if site_plan is not None:
        _ = site_plan.choice
    plan = call.planned.plan, program, call.planned.seconds, read.dtype
    return PlannedSparseEinsum(*plan, equation, operands, None if way is None else way.name, site_plan, call_again)


def _prepared(
    current: Context, equation: str, operands: Sequence[SparseTensor | torch.Tensor], operations: Operations
) -> tuple[_Read, Sequence[SparseTensor | torch.Tensor]]:
    """The einsum as it was read, and its operands."""
    with current.preparing("einsum"):
        _check_operands(operands)
        if torch.is_autocast_enabled("cpu"):
            operands = [_without_half(x) for x in operands]
        return _read_before(current, equation, operands, operations), operands


def _is_recorded(operands: Sequence[SparseTensor | torch.Tensor]) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in operands)


def _may_go_by_rows(current: Context, read: _Read) -> bool:
    """Whether loops of compressed rows may compute it: a sum of products on one site."""
    operations = read.operations
    products = operations.products or (read.dtype is torch.bool and (operations.join, operations.agg) == ("mul", "any"))
    return current.sites == 1 and products and torch._C._len_torch_dispatch_stack() == 0


def _is_planned_first(operands: Sequence[SparseTensor | torch.Tensor], out_format: OutFormat) -> bool:
    """Whether the plan chooses the way: where the format is to be chosen, or there are more than two operands."""
    return out_format == "auto" or len(operands) > 2


@dataclass(frozen=True)
class _Way:
    """How a sum of products is computed without a loop nest of its own, and what remembers that."""

    name: str
    call: Call
    keep: Callable[..., None]


def _first_way(call: _Call, recorded: bool) -> _Way | None:
    """What is tried before the loop nests of the plan."""
    read, out_format = call.read, call.out_format
    if not _may_go_by_rows(call.current, read):
        return None
    operands = call.given
    if recorded:
        if not read.operations.products:
            return None
        operands, out_format = call.plain, call.plain_format
        call = _Call.of(call.current, read, operands, out_format)
    planned = call if _is_planned_first(operands, out_format) else None
    return next(_ways_by_rows(planned, read, operands, out_format), None)


def _ways_by_rows(
    call: _Call | None, read: _Read, operands: Sequence[SparseTensor | torch.Tensor], out_format: OutFormat
) -> Iterator[_Way]:
    """How a sum of products can be computed by the loops of compressed rows, alone or pair by pair. The call is planned
    where `_is_planned_first` says so."""
    case = read.labels, read.result, read.dtype, operands
    gives_dense = out_format == "dense" or (out_format == "auto" and call is not None and call.planned.gives_dense)
    found = by_rows(*case, "dense" if gives_dense else out_format)
    if found is None and out_format == "auto" and all(isinstance(x, SparseTensor) for x in operands):
        found = by_rows(*case, "csr") if len(operands) != 2 or has_few_elements(*case) else None
    if found is not None:
        yield _Way("compressed rows", found, remember)
    if gives_dense and call is not None:
        pairs = by_pairs(read.labels, read.result, read.extents, read.dtype, operands, call.planned.iterations)
        if pairs is not None:
            yield _Way("pairs", pairs, remember_for_traits)


def _formatted(
    result: SparseTensor | torch.Tensor, gives_truths: bool, out_format: OutFormat
) -> SparseTensor | torch.Tensor:
    if gives_truths:
        result = result.to(torch.bool)
    if out_format == "auto":
        return result
    if isinstance(result, torch.Tensor):
        return result if out_format == "dense" else SparseTensor.from_torch(result).with_levels(out_format)
    return result.to_dense() if out_format == "dense" else result.with_levels(out_format)
