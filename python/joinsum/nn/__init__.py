"""Layers written as graphs of einsums, on all sites."""

from __future__ import annotations

from joinsum.nn import functional

__all__ = ["functional"]
