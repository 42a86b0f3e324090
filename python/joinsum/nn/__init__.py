"""Layers: sparse ones, and those that are written as graphs of einsums, on all sites."""

from __future__ import annotations

from joinsum.nn import functional
from joinsum.nn.sparse_linear import SparseLinear

__all__ = ["SparseLinear", "functional"]
