"""One einsum over sparse operands as a program of one query, planned by the estimated entries."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from joinsum import _C
from joinsum.cluster.context import Context
from joinsum.execution.compressed_rows import Call
from joinsum.execution.operands import check_operands
from joinsum.execution.planned_einsum import EinsumSignature, PlannedEinsum
from joinsum.execution.planned_graph import PlannedGraph
from joinsum.execution.sparse_blocks import array_of
from joinsum.execution.sparse_operands import (
    OutFormat,
    ReadEinsum,
    all_finite,
    as_sparse,
    asked_formats,
    formatted,
    handle_of,
    neutral_fill,
    program_of,
)
from joinsum.execution.sparse_queries import SparseQueries
from joinsum.graphs.query_vertices import check_not_densified
from joinsum.sparse import SparseTensor
from joinsum.sparse.plan_cache import PLANS
from joinsum.sparse.plan_options import plan_options

__all__ = ["SparseCall", "traits_of"]

# Labels of which the best order is searched.
_MOST_SEARCHED = 8

# Begins the keys of plans whose products of sums stay as they are.
_AS_WRITTEN = "as written"


class _PlannedQuery:
    """The plan of an einsum for operands of certain shapes, levels and numbers of entries; `formats` of the result's
    levels, in the order of its axes, are chosen where none are given."""

    def __init__(
        self,
        read: ReadEinsum,
        operands: Sequence[SparseTensor],
        formats: Sequence[str] | None,
        recorded: bool,
        distribute: bool = True,
    ) -> None:
        begin = time.perf_counter()
        program = program_of(read, operands)
        few = len(read.extents) <= _MOST_SEARCHED
        # Ties of other joins are those of the joined operands. Sums of several operands may be reduced one by one.
        ties = recorded and read.operations.agg in ("max", "min") and read.operations.join != "add"
        # Joined elements that are compared again round alike as they are written.
        search = "branch_and_bound" if few else "greedy"
        options = plan_options(search=search, distribute=distribute and not ties)
        if formats is not None:
            options.formats = {"z": list(formats)}
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
    def has_lists(self) -> bool:
        """Whether a level of the result lists coordinates; others have a place for each."""
        return any(level in ("sorted_list", "hash") for level in self._data["physical"][-1]["formats"])

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
        handle = self.plan.run(operands, torch.get_num_threads(), "automatic", "", True).results["z"]
        result = SparseTensor.of_handle(handle)
        return result.to_dense() if all(level == "dense" for level in handle.formats) else result

    def run_all(self, operands: dict[str, _C.SparseTensor]) -> dict[str, SparseTensor]:
        """The results of all queries."""
        results = self.plan.run(operands, torch.get_num_threads(), "automatic", "", True, True).results
        return {name: SparseTensor.of_handle(handle) for name, handle in results.items()}

    def check_not_densified(self, operands: Sequence[SparseTensor]) -> None:
        """Raises where a loop visits all coordinates of a sparse operand: what it does not store counts too."""
        sparse = {
            f"x{i}": x.nnz for i, x in enumerate(operands) if "dense" not in x.levels or x.nnz < math.prod(x.shape)
        }
        check_not_densified("einsum", self._data, self._extents, sparse)


def _bucket(entries: int) -> int:
    """Numbers of entries that one plan serves: within a factor of two."""
    return entries.bit_length()


def traits_of(tensors: Sequence[SparseTensor]) -> tuple[object, ...]:
    """What a plan takes for granted of tensors."""
    return tuple(x.traits for x in tensors)


@dataclass(frozen=True)
class _Contraction:
    """An einsum that is planned as a dense one is, and the operands as it reads them."""

    planned: PlannedEinsum
    operands: list[torch.Tensor]


@dataclass(frozen=True)
class SparseCall:
    """One einsum over sparse operands, planned."""

    current: Context
    read: ReadEinsum
    given: Sequence[SparseTensor | torch.Tensor]
    operands: list[SparseTensor]
    planned: _PlannedQuery
    out_format: OutFormat
    key: tuple[object, ...]

    @classmethod
    def of(
        cls,
        current: Context,
        read: ReadEinsum,
        operands: Sequence[SparseTensor | torch.Tensor],
        out_format: OutFormat = "auto",
        recorded: bool = False,
        cache: bool = True,
    ) -> SparseCall:
        fill = neutral_fill(read, operands)
        tensors = [as_sparse(operand, read, fill) for operand in operands]
        formats = asked_formats(read, out_format)
        traits = traits_of(tensors)
        key: tuple[object, ...] = (
            "sparse_einsum",
            read.equation,
            read.operations,
            read.dtype,
            formats,
            recorded,
            traits,
        )

        def found(distribute: bool) -> _PlannedQuery:
            def make() -> _PlannedQuery:
                return _PlannedQuery(read, tensors, formats, recorded, distribute)

            return PLANS.get(key, make) if cache else make()

        planned = found(distribute=True)
        if planned.finite and not all_finite(tensors):
            key = (_AS_WRITTEN, *key)
            planned = found(distribute=False)
        return cls(current, read, operands, tensors, planned, out_format, key)

    def run(self) -> SparseTensor | torch.Tensor:
        """The result, by the sites there are; dense where all its levels are."""
        queries = self._queries(["z"])
        if queries is not None:
            return queries.run(self._blocks())["z"]
        return self.planned.run(self._handles())

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
        named = not self.read.result or asked_formats(self.read, self.out_format) is not None
        return self.out_format if named else "coo"

    @property
    def is_plain(self) -> bool:
        """Whether operands are read as they are given: of one dtype, and none in a layout of torch's; and whether they
        are planned as others of the same traits."""
        return self.key[0] != _AS_WRITTEN and all(
            x.dtype is self.read.dtype and (isinstance(x, SparseTensor) or x.layout is torch.strided)
            for x in self.given
        )

    def check_not_densified(self) -> None:
        """Raises where elements that are not stored count, and too many are visited. Of a product with zeros none
        does."""
        if self.read.operations.join != "mul" or any(x.fill != 0 for x in self.operands):
            self.planned.check_not_densified(self.operands)

    def again(self) -> Call:
        """What computes the call for other operands of the same traits, without gradients, on one site."""
        planned, operations = self.planned, self.read.operations
        out_format = "dense" if self.gives_dense(recorded=False) else self.out_format
        gives_truths = self.read.gives_truths
        fill = neutral_fill(self.read, self.given)

        def call(given: Sequence[SparseTensor | torch.Tensor]) -> SparseTensor | torch.Tensor | None:
            if planned.finite and not all_finite(given):
                return None
            handles = {f"x{i}": handle_of(x, operations, fill) for i, x in enumerate(given)}
            return formatted(planned.run(handles), gives_truths, out_format)

        return call

    def results(self) -> dict[str, SparseTensor]:
        """Those of all queries by name."""
        queries = self._queries([query["name"] for query in self.planned.queries])
        return self.planned.run_all(self._handles()) if queries is None else queries.sparse_run(self._blocks())

    def _handles(self) -> dict[str, _C.SparseTensor]:
        fill = neutral_fill(self.read, self.given)
        given = self.given if self.is_plain else self.operands
        return {f"x{i}": handle_of(x, self.read.operations, fill) for i, x in enumerate(given)}

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
        array = self._array(operand)
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
        with torch.autocast("cpu", enabled=False):
            if not cache:
                return _Contraction(PlannedEinsum(self.current, signature, cache=False), given)
            return _Contraction(self.current.cached(key, lambda: PlannedEinsum(self.current, signature)), given)

    def _array(self, operand: SparseTensor | torch.Tensor) -> torch.Tensor:
        """A sparse operand of fill 0 as sites store it. Nobody writes to it."""
        array = array_of("einsum", operand).to(self.read.dtype)
        if not torch.is_grad_enabled() or (isinstance(operand, SparseTensor) and operand.shared_values is None):
            return array
        # The backward pass reads the values of now, whatever is written into the operand's memory until then.
        indices, values = array.indices(), array.values().clone()
        return torch.sparse_coo_tensor(indices, values, array.shape, is_coalesced=True, check_invariants=False)

    def gives_dense(self, recorded: bool) -> bool:
        """Whether the result is a dense tensor, also in autograd; a sum of products with dense operands is one, too,
        where its levels have a place for each element anyway."""
        if self.out_format != "auto":
            return self.out_format == "dense"
        sums = any(label not in self.read.result for own in self.read.labels for label in own)
        beside = sums and any(isinstance(x, torch.Tensor) and x.layout is torch.strided for x in self.given)
        return recorded or self.planned.gives_dense or (beside and not self.planned.has_lists)

    def query_plan(self, recorded: bool, cache: bool) -> PlannedGraph | None:
        """How the sites divide its queries; None of one site, and where each process computes all."""
        every = recorded and not self.read.operations.products
        queries = self._queries([query["name"] for query in self.planned.queries] if every else ["z"])
        if queries is None:
            return None
        return queries.planned if cache else PlannedGraph(self.current, queries.planned.core, cache=False)
