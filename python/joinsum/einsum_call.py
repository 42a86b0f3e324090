"""One einsum of tensors of certain shapes and dtypes, ready to run again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from joinsum import _C
from joinsum.compiled_graph import CompiledGraph, differentiable_run
from joinsum.context import context
from joinsum.dtypes import dtype_name
from joinsum.einsum_arguments import View, common_dtype, views_of
from joinsum.einsum_plan import join_kernel

__all__ = ["PRODUCTS", "EinsumCall", "einsum_call", "kernel_texts"]

PRODUCTS = ("mul", "sum")  # the join and the aggregation that torch.einsum has


@dataclass(frozen=True)
class EinsumCall:
    """A graph of one einsum, and how its inputs are viewed and converted."""

    compiled: CompiledGraph
    views: tuple[View, ...]

    def run(self, operands: Sequence[torch.Tensor]) -> torch.Tensor:
        """The result, in autograd."""
        inputs = []
        for operand, view, dtype in zip(operands, self.views, self.compiled.dtypes, strict=True):
            tensor = view.of(operand) if view.steps else operand
            inputs.append(tensor if tensor.dtype is dtype else tensor.to(dtype))
        return differentiable_run(self.compiled, inputs)[0]


def einsum_call(
    equation: str,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[torch.dtype],
    kernels: tuple[str, str],
    *,
    device: torch.device,
    kept: bool = True,
) -> EinsumCall:
    """The call for operands of these shapes and dtypes.

    kernels   the join and the aggregation, as users name them
    device    of the operands
    kept      whether its plan is kept in the user's cache folder

    Raises PlanError, KernelError.
    """
    views, result = views_of(equation, shapes)
    dtype = common_dtype(equation, shapes, dtypes, device) if kernels == PRODUCTS else None
    inputs = [
        _C.einsum_input(f"x{i}", dtype_name("einsum", dtype or own), view.shape(shape))
        for i, (view, shape, own) in enumerate(zip(views, shapes, dtypes, strict=True))
    ]
    join, fold = kernel_texts(dtypes, kernels)
    labels = [list(view.labels) for view in views]
    vertex = _C.einsum_vertex(inputs, labels, list(result), _C.Kernel(join), _C.Kernel(fold), {})
    return EinsumCall(CompiledGraph(context(), _C.EinsumPlan.make([("z", vertex)]), kept), views)


def kernel_texts(dtypes: Sequence[torch.dtype], kernels: tuple[str, str]) -> tuple[str, str]:
    """Texts of the kernels that join and fold operands of these dtypes."""
    join, agg = kernels
    if agg in ("any", "all") and join == "mul" and len(dtypes) > 1 and all(dtype is torch.bool for dtype in dtypes):
        join = "min"  # the product of truth values
    return join_kernel("einsum", join, agg, len(dtypes))
