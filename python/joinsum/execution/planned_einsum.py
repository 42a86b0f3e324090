"""One einsum, planned for operands of certain shapes and dtypes to be run often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from joinsum import _C
from joinsum.base.arguments import show
from joinsum.base.dtypes import dtype_name
from joinsum.base.errors import PlanError
from joinsum.cluster.context import Context, context
from joinsum.execution.autograd import differentiable_run
from joinsum.execution.operands import autocast_dtype, check_not_traced, check_operands, outside_of_graphs
from joinsum.execution.planned_graph import PlannedGraph, check_shape
from joinsum.graphs.equation import Operations, common_dtype, positions, read_arguments, read_operations, views_of
from joinsum.sparse import SparseTensor

__all__ = ["EinsumSignature", "PlannedEinsum", "einsum_plan"]


@dataclass(frozen=True)
class EinsumSignature:
    """What the plan of an einsum depends on: the equation, ⊗ and ⊕ as users name them, and traits of the operands.

    entries   of sparse operands, by position: about how many elements each stores
    """

    equation: str
    operations: Operations
    shapes: Sequence[Sequence[int]]
    dtypes: Sequence[torch.dtype]
    device: torch.device
    entries: Mapping[int, int] = field(default_factory=dict)


class PlannedEinsum(PlannedGraph):
    """One einsum, planned for operands of certain shapes and dtypes; `joinsum.einsum_plan` makes one.

    Its graph reads views of the operands, of the dtype that torch would compute in. Raises PlanError, KernelError.
    """

    def __init__(self, current: Context, signature: EinsumSignature, cache: bool = True) -> None:
        read = views_of(signature.equation, signature.shapes, dict(signature.operations.extents))
        operations, dtype = signature.operations, None
        if operations.products:
            dtype = common_dtype(
                signature.equation, signature.shapes, signature.dtypes, device=signature.device, new=read.new
            )
        if dtype is torch.bool and len(signature.shapes) > 1:
            operations = operations.of_truth_values()
        labels = [list(view.labels) for view in read.views]
        vertex = _C.NamedVertex(operations.join, operations.agg, labels, read.result, read.new, read.order)
        extents = [view.shape(shape) for view, shape in zip(read.views, signature.shapes, strict=True)]
        inputs = [
            _C.einsum_input(f"x{i}", dtype_name("einsum", dtype or own), shape, signature.entries.get(i))
            for i, (shape, own) in enumerate(zip(extents, signature.dtypes, strict=True))
        ]
        node = _C.named_einsum_vertex("einsum", inputs, vertex, "z.positions")
        super().__init__(current, _C.EinsumPlan.make([("z", node)]), cache)
        self._signature = signature
        self._views = read.views

    def apply(self, operands: Sequence[torch.Tensor]) -> torch.Tensor:
        """The result for operands that fit, in autograd."""
        inputs = []
        for operand, view, dtype in zip(operands, self._views, self.dtypes, strict=False):
            tensor = view.of(operand) if view.steps else operand
            inputs.append(tensor if tensor.dtype is dtype else tensor.to(dtype))
        # argmax and argmin read one more input.
        inputs += [positions(extents, operands[0].device) for extents in self._positions.values()]
        return differentiable_run(self, inputs)[0]

    @outside_of_graphs
    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """The result for operands of the shapes and dtypes that were planned."""
        with self.context.preparing("run"):
            check_not_traced("plan")
            self._check_operands(tensors)
        return self.apply(tensors)

    def _check_operands(self, tensors: Sequence[torch.Tensor]) -> None:
        self.check_sites()
        shapes, dtypes = self._signature.shapes, self._signature.dtypes
        if len(tensors) != len(shapes):
            raise PlanError(f"plan: another number of operands: planned={len(shapes)}, given={len(tensors)}")
        planned = zip(check_operands("plan", tensors), shapes, dtypes, strict=True)
        for i, (tensor, shape, dtype) in enumerate(planned):
            check_shape("operand", i, tensor, shape)
            if tensor.dtype is not dtype:
                raise PlanError(
                    f"plan: an operand has another dtype than planned: operand={i}, planned={dtype}, "
                    f"given={tensor.dtype}"
                )

    def __repr__(self) -> str:
        return f"{self._signature.equation}\n{super().__repr__()}"


def einsum_plan(
    *arguments: object,
    dtype: torch.dtype = torch.float32,
    join: str = "mul",
    agg: str = "sum",
    extents: Mapping[str, int] | None = None,
    cache: bool = True,
) -> PlannedEinsum:
    """Plans an einsum once, to run it often: the plan is called with the operands.

    equation             as `joinsum.einsum`'s, in both of its forms: `einsum_plan((4, 5), [0, 1], (5, 6), [1, 2])`
    operands             tensors, of which shape and dtype are read and nothing else (they may be without data, on
                         "meta"), or shapes
    dtype                of operands that are shapes
    join, agg, extents   as `joinsum.einsum`'s
    cache                whether the plan may come from memory, or the user's cache folder, and is stored there

    Its table says in which order the einsums of two operands are taken; then, for each step of the physical plan, the
    partition vector (into how many parts the sites divide each label), the result's placement, and the bytes and
    seconds that it is predicted to take. On a process group all ranks call. On one site, too, joinsum's own plan runs;
    `joinsum.einsum` calls torch there.
    Raises PlanError, KernelError as `joinsum.einsum`.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=4)
    >>> run = joinsum.einsum_plan("ij,jk->ik", (512, 2048), (2048, 512), cache=False)
    >>> run
    ij,jk->ik
    plan of x0, x1 -> z, on 4 sites (2x2), planned here
    order
    einsum  labels     operands
    ------  ---------  --------
    (1)     ij,jk->ik  x0, x1
    steps
    step   operation                                      parts        placement     wire B     time
    -----  ---------------------------------------------  -----------  ---------  ---------  -------
    t0     local_join[1; 0; contract[ab,bc->ac]](x0, x1)  i=4 j=1 k=1  (0, 0)             0  2.68 ms
    t1     local_aggregate[0, 2; add](t0)                 i=4 k=1      (0, 0)             0      0 s
    t2     broadcast[0, 1](t1)                            i=1 k=1      (*, *)     3,145,728   679 us
    total                                                                         3,145,728  3.36 ms
    >>> x, y = torch.rand(512, 2048), torch.rand(2048, 512)
    >>> torch.allclose(run(x, y), x @ y, rtol=1e-4)
    True
    """
    current = context()
    with current.preparing("einsum"):
        equation, operands = read_arguments(arguments, "einsum_plan", shapes=True)
        operations = read_operations("einsum_plan", join, agg, extents)
        shapes = [_shape(i, operand) for i, operand in enumerate(operands)]
        dtypes = [x.dtype if isinstance(x, torch.Tensor) else dtype for x in operands]
        devices = [x.device for x in operands if isinstance(x, torch.Tensor) and not x.is_meta]
        signature = EinsumSignature(equation, operations, shapes, dtypes, devices[0] if devices else current.device)

    def make() -> PlannedEinsum:
        with current.preparing("einsum"):
            return PlannedEinsum(current, signature, cache)

    key = ("einsum_plan", equation, operations, autocast_dtype(signature.device), *shapes, *dtypes)
    planned = current.cached(key, make) if cache else make()
    _ = planned.choice
    return planned


def _shape(position: int, operand: object) -> tuple[int, ...]:
    if isinstance(operand, torch.Tensor):
        return operand.shape
    if isinstance(operand, SparseTensor):
        raise PlanError(
            "einsum_plan: plans are of dense operands; joinsum.einsum plans sparse ones at their first call, and "
            f"joinsum.sparse.Program(...).plan() shows such a plan: operand={position}"
        )
    good = isinstance(operand, Sequence) and not isinstance(operand, str)
    if not good or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in operand):  # type: ignore[attr-defined]
        raise PlanError(
            f"einsum_plan: an operand is a tensor, or a shape such as (4, 5): operand={position}, given={show(operand)}"
        )
    return tuple(operand)  # type: ignore[arg-type]
