"""Layers: sparse ones, and those that are written as graphs of einsums, on all sites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joinsum.nn import functional

if TYPE_CHECKING:
    from joinsum.nn.sparse_linear import SparseLinear

__all__ = ["SparseLinear", "functional"]


def __getattr__(name: str) -> object:
    """Loads what capture is needed for when it is first used."""
    if name != "SparseLinear":
        raise AttributeError(f"module 'joinsum.nn' has no attribute {name!r}")
    from joinsum.nn.sparse_linear import SparseLinear

    globals()[name] = SparseLinear
    return SparseLinear
