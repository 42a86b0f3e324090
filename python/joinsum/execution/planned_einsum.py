"""One einsum, planned for operands of certain shapes and dtypes to be run often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from joinsum import _C
from joinsum.base.dtypes import dtype_name
from joinsum.base.errors import PlanError
from joinsum.cluster.context import Context
from joinsum.execution.autograd import differentiable_run
from joinsum.execution.operands import check_not_traced, check_operands, outside_of_graphs
from joinsum.execution.planned_graph import PlannedGraph, check_shape
from joinsum.graphs.equation import Operations, common_dtype, positions, views_of

__all__ = ["EinsumSignature", "PlannedEinsum"]


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
