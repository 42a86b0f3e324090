"""Sparse tensors, and programs over them that are ordered, formatted and looped by cost."""

from __future__ import annotations

from joinsum.sparse.estimators import Estimator, estimator_names, register_estimator
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
    "Plan",
    "PlanCacheInfo",
    "Program",
    "SparseTensor",
    "choose_formats",
    "elimination_cost",
    "estimate",
    "estimator_names",
    "minimal_sub_expressions",
    "must_precede",
    "order_costs",
    "plan_cache_clear",
    "plan_cache_info",
    "register_estimator",
]
