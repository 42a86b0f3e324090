"""Plans of sparse programs on several sites: their queries are vertices of a graph, which is planned as all others."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import torch

from joinsum import _C
from joinsum.base.dtypes import dtype_name
from joinsum.cluster.context import Context, context
from joinsum.execution.planned_graph import PlannedGraph
from joinsum.execution.sparse_blocks import block_of
from joinsum.graphs.query_vertices import Axes, QueryOperand, add_queries
from joinsum.sparse import SparseTensor
from joinsum.sparse.plan import Plan

__all__ = ["SparseQueries"]


# torch counts the bytes of all elements of a sparse tensor, by 63 bits.
_MOST_ELEMENTS = 2**59


class _Statistics(NamedTuple):
    """What is known of a tensor whose elements are not."""

    dtype: torch.dtype
    shape: Sequence[int]
    fill: float
    nnz: int


class SparseQueries:
    """The queries of a plan on the sites there are."""

    def __init__(
        self,
        current: Context,
        plan: _C.SparsePlan,
        tensors: Mapping[str, SparseTensor | _Statistics],
        dense: Collection[str],
        results: Sequence[str],
    ) -> None:
        """Plans the queries over `tensors` of one dtype, of which sites store those named in `dense` densely; `results`
        names the queries whose results are wanted."""
        self._known: dict[str, QueryOperand] = {}
        self._names: dict[str, str] = {}  # of the graph's inputs
        self._diagonals: dict[str, tuple[str, Axes]] = {}  # the tensor of each
        for name, x in tensors.items():
            entries = None if name in dense or not x.shape else 1 << x.nnz.bit_length()
            self._add_input(name, dtype_name("sparse", x.dtype), x.shape, x.fill, entries)
        add_queries(self._known, plan, self._diagonal)
        self._results = {name: plan.same_as.get(name, name) for name in results}
        self._outputs = list(dict.fromkeys(self._results.values()))
        outputs = [(f"q{i}", self._known[name].node) for i, name in enumerate(self._outputs)]
        self.planned = PlannedGraph(current, _C.EinsumPlan.make(outputs))

    @classmethod
    def where_divided(
        cls,
        current: Context,
        plan: _C.SparsePlan,
        tensors: Mapping[str, SparseTensor | _Statistics],
        dense: Collection[str],
        results: Sequence[str],
    ) -> SparseQueries | None:
        """The same; None of one site, of more labels than there are letters, of tensors of 2^59 elements, and of a
        number that is not stored."""
        large = any(math.prod(x.shape) >= _MOST_ELEMENTS for x in tensors.values())
        absent = any(not x.shape and x.nnz == 0 for x in tensors.values())
        if current.sites == 1 or large or absent or not plan.site_queries():
            return None
        return cls(current, plan, tensors, dense, results)

    def _add_input(self, name: str, dtype: str, shape: Sequence[int], fill: float, entries: int | None) -> None:
        self._names[name] = f"t{len(self._names)}"
        node = _C.einsum_input(self._names[name], dtype, list(shape), entries)
        self._known[name] = QueryOperand(node, fill, entries)

    def _diagonal(self, tensor: str, axes: Axes) -> QueryOperand:
        """An input of its own: the elements that are equal along the axes of each group."""
        name = f"{tensor} {axes}"
        if name not in self._known:
            whole = self._known[tensor]
            shape = [whole.shape[first] for first, *_ in axes]
            self._add_input(name, whole.node.dtype, shape, whole.fill, whole.entries)
            self._diagonals[name] = tensor, axes
        return self._known[name]

    def fill(self, name: str) -> float:
        """Of a result."""
        return self._known[self._results[name]].fill

    def run(self, tensors: Mapping[str, SparseTensor | torch.Tensor]) -> dict[str, SparseTensor | torch.Tensor]:
        """The results by name, for tensors like those that were planned: dense ones as torch's."""
        blocks = {name: _block(x, self._known[name].entries is not None) for name, x in tensors.items()}
        blocks |= {name: _diagonal(blocks[tensor], axes) for name, (tensor, axes) in self._diagonals.items()}
        read = {self._names[name]: block for name, block in blocks.items()}
        found = dict(zip(self._outputs, self.planned.run([read[name] for name in self.planned.names]), strict=True))
        return {name: _result(found[same], self._known[same]) for name, same in self._results.items()}

    def sparse_run(self, tensors: Mapping[str, SparseTensor | torch.Tensor]) -> dict[str, SparseTensor]:
        """The same, with dense results as tensors of dense levels."""
        return {
            name: x if isinstance(x, SparseTensor) else SparseTensor.from_torch(x, fill=self.fill(name))
            for name, x in self.run(tensors).items()
        }


def _block(x: SparseTensor | torch.Tensor, sparse: bool) -> torch.Tensor:
    if isinstance(x, torch.Tensor):
        return x
    return block_of(x) if sparse else x.to_dense()


def _diagonal(x: torch.Tensor, groups: Axes) -> torch.Tensor:
    """The elements that are equal along the axes of each group, which become one axis."""
    if not x.is_sparse:
        labels = [next(i for i, axes in enumerate(groups) if axis in axes) for axis in range(x.dim())]
        return torch.einsum(x, labels, list(range(len(groups))))
    indices, values = x.indices(), x.values()
    kept = torch.ones(values.numel(), dtype=torch.bool)
    for axes in groups:
        for axis in axes[1:]:
            kept &= indices[axis] == indices[axes[0]]
    first = [axes[0] for axes in groups]
    shape = [x.shape[axis] for axis in first]
    found = torch.sparse_coo_tensor(indices[first][:, kept], values[kept], shape, check_invariants=False)
    return found.coalesce()


def _result(found: torch.Tensor, known: QueryOperand) -> SparseTensor | torch.Tensor:
    if not found.is_sparse:
        return found
    return SparseTensor.from_coordinates(found.indices(), found.values(), found.shape, levels="coo", fill=known.fill)


# --- plans of programs ------------------------------------------------------------------------------------------------


class _Divided:
    """The plan of a program on the sites of a context; without queries where these do not divide it."""

    def __init__(self, current: Context, plan: Plan) -> None:
        self.current = current
        handles = plan.program.tensors
        tensors: dict[str, SparseTensor | _Statistics] = {}
        for name, (shape, fill, entries) in plan.program.inputs.items():
            handle = handles[name]
            known = _Statistics(plan.dtype, shape, fill, round(entries))
            tensors[name] = known if handle is None else SparseTensor.of_handle(handle)
        # An infinity times a zero that is stored is no number.
        least = 0.5 if plan.program.all_finite else 1 - 1e-12
        dense = {name for name, x in tensors.items() if x.nnz > least * math.prod(x.shape)}
        results = plan.program.queries
        self.queries = SparseQueries.where_divided(current, plan.handle, tensors, dense, results) if tensors else None
        self._tensors = {name: x for name, x in tensors.items() if isinstance(x, SparseTensor)}
        self.runs = self.queries is not None and len(self._tensors) == len(tensors)

    def run(self) -> dict[str, SparseTensor]:
        assert self.queries is not None
        return self.queries.sparse_run(self._tensors)


def _divided(plan: Plan) -> _Divided | None:
    current = context()
    if current.sites == 1:
        return None
    if plan.divided is None or plan.divided.current is not current:
        with current.preparing("einsum"):
            plan.divided = _Divided(current, plan)
    divided: _Divided = plan.divided
    return divided


def _on_sites(plan: Plan) -> dict[str, SparseTensor] | None:
    divided = _divided(plan)
    return divided.run() if divided is not None and divided.runs else None


def _planned_on_sites(plan: Plan) -> PlannedGraph | None:
    divided = _divided(plan)
    return None if divided is None or divided.queries is None else divided.queries.planned


Plan.on_sites = staticmethod(_on_sites)
Plan.planned_on_sites = staticmethod(_planned_on_sites)
Plan.preparing = staticmethod(lambda: context().preparing("einsum"))
