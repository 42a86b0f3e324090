"""Plans of sparse programs on several sites: their queries are vertices of a graph, which is planned as all others."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch

from joinsum import _C
from joinsum.base.dtypes import dtype_name
from joinsum.cluster.context import Context, context
from joinsum.execution.planned_graph import PlannedGraph
from joinsum.sparse import SparseTensor
from joinsum.sparse.plan import Plan

__all__ = ["SparseQueries"]


@dataclass(frozen=True)
class _Tensor:
    """A tensor of a program, or the result of a query, as vertices read it; `entries` where it is sparse."""

    node: _C.EinsumNode
    shape: Sequence[int]
    fill: float
    entries: int | None


class SparseQueries:
    """The queries of a plan on the sites there are.

    Each is a vertex of a graph: a kernel over sparse and dense blocks, whose indices the planner divides among sites by
    estimated entries. An index that a query reduces leaves partial results, which its operator reduces.
    """

    def __init__(
        self,
        current: Context,
        plan: _C.SparsePlan,
        tensors: Mapping[str, SparseTensor],
        dense: Collection[str],
        results: Sequence[str],
    ) -> None:
        """Plans the queries over `tensors` of one dtype, of which sites store those named in `dense` densely; `results`
        names the queries whose results are wanted."""
        (dtype,) = {x.dtype for x in tensors.values()}
        self._dtype = dtype_name("sparse", dtype)
        self._known: dict[str, _Tensor] = {}
        self._diagonals: dict[str, tuple[str, list[list[int]]]] = {}  # the tensor of each
        self._names = {name: f"t{number}" for number, name in enumerate(tensors)}
        for name, x in tensors.items():
            entries = None if name in dense or not x.shape else 1 << x.nnz.bit_length()
            node = _C.einsum_input(self._names[name], self._dtype, list(x.shape), entries)
            self._known[name] = _Tensor(node, x.shape, x.fill, entries)
        for query in plan.site_queries():
            self._add(query)
        same = plan.same_as
        self._results = {name: same.get(name, name) for name in results}
        self._outputs = list(dict.fromkeys(self._results.values()))
        outputs = [(f"q{i}", self._known[name].node) for i, name in enumerate(self._outputs)]
        self.planned = PlannedGraph(current, _C.EinsumPlan.make(outputs))

    def _operand(self, tensor: str, diagonal: list[list[int]]) -> _Tensor:
        """What a query reads: a tensor, or the elements of it that are equal along the axes of each group."""
        if not diagonal:
            return self._known[tensor]
        name = f"{tensor} {diagonal}"
        if name not in self._known:
            whole = self._known[tensor]
            shape = [whole.shape[axes[0]] for axes in diagonal]
            self._names[name] = f"t{len(self._names)}"
            node = _C.einsum_input(self._names[name], self._dtype, shape, whole.entries)
            self._known[name] = _Tensor(node, shape, whole.fill, whole.entries)
            self._diagonals[name] = tensor, diagonal
        return self._known[name]

    def _add(self, query: _C.SparseSiteQuery) -> None:
        operands = [self._operand(*each) for each in zip(query.tensors, query.diagonals, strict=True)]
        extents = dict(query.extents)
        for operand, letters in zip(operands, query.operands, strict=True):
            extents |= dict(zip(letters, operand.shape, strict=True))
        shape = [extents[letter] for letter in query.output]
        dense = query.dense or not shape
        entries = None if dense else round(min(query.entries, math.prod(shape)))
        call = self._call(query, extents, [operand.fill for operand in operands], entries)
        node = _C.einsum_call([operand.node for operand in operands], call)
        self._known[query.name] = _Tensor(node, shape, query.fill, entries)

    def _call(
        self, query: _C.SparseSiteQuery, extents: Mapping[str, int], fills: Sequence[float], entries: int | None
    ) -> _C.Call:
        argument = _C.CallArgument
        points = math.prod(extents.values())
        return _C.Call(
            function="joinsum::sparse_query",
            operands=query.operands,
            results=[(self._dtype, list(query.output))],
            arguments=[
                argument([argument.operand(i, list(letters)) for i, letters in enumerate(query.operands)]),
                argument([argument(fill) for fill in fills]),
                argument(query.expression),
                argument(query.output),
                argument("".join(query.extents)),
                argument([argument.extent(letter) for letter in query.extents]),
                argument(entries is None),
            ],
            undivided=query.undivided,
            reduce=query.reduce,
            extents=query.extents,
            flops=[(2 * query.iterations / points, "".join(extents))] if points else [],
            entries=entries,
        )

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


def _block(x: SparseTensor | torch.Tensor, sparse: bool) -> torch.Tensor:
    """The tensor as blocks store it: a coalesced `torch.sparse_coo` one has the elements that are not at the fill."""
    if isinstance(x, torch.Tensor) or not sparse:
        return x if isinstance(x, torch.Tensor) else x.to_dense()
    indices, values = x.handle.to_coordinates(without_fill=True)
    return torch.sparse_coo_tensor(torch.stack(indices), values, x.shape, is_coalesced=True, check_invariants=False)


def _diagonal(x: torch.Tensor, groups: Sequence[Sequence[int]]) -> torch.Tensor:
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


def _result(found: torch.Tensor, known: _Tensor) -> SparseTensor | torch.Tensor:
    if not found.is_sparse:
        return found
    return SparseTensor.from_coordinates(found.indices(), found.values(), found.shape, levels="coo", fill=known.fill)


# --- plans of programs ------------------------------------------------------------------------------------------------


class _Divided:
    """The plan of a program on the sites of a context; without queries where these do not divide it."""

    def __init__(self, current: Context, plan: Plan) -> None:
        self.current = current
        entries = plan.program.tensors
        handles = {name: handle for name, handle in entries.items() if handle is not None}
        self._tensors = {name: SparseTensor.of_handle(handle) for name, handle in handles.items()}
        self.queries = None
        large = any(math.prod(x.shape) >= 2**63 for x in self._tensors.values())
        if handles and len(handles) == len(entries) and not large and plan.handle.site_queries():
            dense = {name for name, x in self._tensors.items() if 2 * x.nnz > math.prod(x.shape)}
            self.queries = SparseQueries(current, plan.handle, self._tensors, dense, plan.program.queries)

    def run(self) -> dict[str, SparseTensor]:
        assert self.queries is not None
        return {
            name: x if isinstance(x, SparseTensor) else SparseTensor.from_torch(x, fill=self.queries.fill(name))
            for name, x in self.queries.run(self._tensors).items()
        }


def _on_sites(plan: Plan) -> dict[str, SparseTensor] | None:
    current = context()
    if current.sites == 1:
        return None
    if plan.divided is None or plan.divided.current is not current:
        plan.divided = _Divided(current, plan)
    return None if plan.divided.queries is None else plan.divided.run()


Plan.on_sites = staticmethod(_on_sites)
