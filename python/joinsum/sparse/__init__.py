"""Sparse tensors, and programs over them that are ordered, formatted and looped by cost."""

from __future__ import annotations

from joinsum.sparse.dialects import check_logical, check_physical
from joinsum.sparse.estimators import Estimator, estimator_names, register_estimator
from joinsum.sparse.measured_cost import MeasuredCost, MeasuredKernel, measure_cost
from joinsum.sparse.pieces import (
    choose_formats,
    elimination_cost,
    estimate,
    minimal_sub_expressions,
    must_precede,
    order_costs,
)
from joinsum.sparse.plan import Plan
from joinsum.sparse.plan_cache import PlanCacheInfo, plan_cache_clear, plan_cache_info
from joinsum.sparse.program import Program
from joinsum.sparse.sparse_tensor import SparseTensor

__all__ = [
    "Estimator",
    "MeasuredCost",
    "MeasuredKernel",
    "Plan",
    "PlanCacheInfo",
    "Program",
    "SparseTensor",
    "check_logical",
    "check_physical",
    "choose_formats",
    "elimination_cost",
    "estimate",
    "estimator_names",
    "measure_cost",
    "minimal_sub_expressions",
    "must_precede",
    "order_costs",
    "plan_cache_clear",
    "plan_cache_info",
    "register_estimator",
]
